"""Sparkplug B payloads: a bounded decoder of the protobuf messages that a host application reads, and its own commands.

The wire format has not changed since 2008 (https://protobuf.dev/programming-guides/encoding), and a host needs three of
the messages of Sparkplug 3.0, chapter 6.4. DataSets and Templates are skipped, so a payload cannot nest deeper.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterator
from typing import Final

Raw = int | float | str | bytes
"""A value as the wire has it. Integers have no sign yet."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
"""Wire types."""
_MOST_METRICS: Final = 20_000
"""Metrics of one payload: 1 MiB has room for half a million empty ones."""

INT, LONG, FLOAT, DOUBLE, BOOLEAN, STRING, BYTES, DATASET, TEMPLATE, EXTENSION = range(10, 20)
"""Numbers of the fields of a metric that hold its value."""
_VALUES: Final = {INT: _VARINT, LONG: _VARINT, FLOAT: _FIXED32, DOUBLE: _FIXED64, BOOLEAN: _VARINT} | dict.fromkeys(
    (STRING, BYTES, DATASET, TEMPLATE, EXTENSION), _BYTES
)
"""Their wire types."""
_PROPERTY_VALUES: Final = {3: INT, 4: LONG, 5: FLOAT, 6: DOUBLE, 7: BOOLEAN, 8: STRING}
"""Fields of a property that hold a scalar, as those of a metric."""
_FORMS: Final = {FLOAT: struct.Struct("<f"), DOUBLE: struct.Struct("<d")}


class BadPayload(ValueError):
    """The payload is not one of Sparkplug B; the text says why."""


@dataclasses.dataclass(slots=True)
class Metric:
    """One metric. Attributes that the payload lacks are None or false."""

    name: str | None = None
    alias: int | None = None
    timestamp: int | None = None
    """Milliseconds since 1970."""
    datatype: int | None = None
    historical: bool = False
    null: bool = False
    field: int = 0
    """Number of the field that holds the value; 0: none does."""
    value: Raw = b""
    properties: dict[str, Raw] = dataclasses.field(default_factory=dict)
    """Properties with a scalar value."""


@dataclasses.dataclass(slots=True)
class Payload:
    """A decoded payload."""

    timestamp: int | None = None
    """Milliseconds since 1970."""
    seq: int | None = None
    metrics: list[Metric] = dataclasses.field(default_factory=list)


def decode(data: bytes) -> Payload:
    """Decode a payload. Raises `BadPayload`."""
    payload = Payload()
    for number, wire, value in _fields(data):
        if wire == _VARINT and number == 1:
            payload.timestamp = _integer(value)
        elif wire == _VARINT and number == 3:
            payload.seq = _integer(value)
        elif wire == _BYTES and number == 2 and isinstance(value, bytes):
            if len(payload.metrics) >= _MOST_METRICS:
                raise BadPayload(f"it has more than {_MOST_METRICS} metrics")
            payload.metrics.append(_metric(value))
    return payload


def encode(timestamp: int, metric: Metric, seq: int | None = None) -> bytes:
    """Encode a payload with one metric that has a value: a command. `timestamp`: milliseconds since 1970."""
    content = b""
    if metric.name is not None:
        content += _length_delimited(1, metric.name.encode())
    if metric.alias is not None:
        content += _tag(2, _VARINT) + _varint(metric.alias)
    content += _tag(3, _VARINT) + _varint(timestamp) + _tag(4, _VARINT) + _varint(metric.datatype or 0)
    value = metric.value
    if isinstance(value, str | bytes):
        content += _length_delimited(metric.field, value.encode() if isinstance(value, str) else value)
    elif metric.field in _FORMS:
        content += _tag(metric.field, _VALUES[metric.field]) + _FORMS[metric.field].pack(value)
    else:
        content += _tag(metric.field, _VARINT) + _varint(int(value))
    last = b"" if seq is None else _tag(3, _VARINT) + _varint(seq)
    return _tag(1, _VARINT) + _varint(timestamp) + _length_delimited(2, content) + last


def _metric(data: bytes) -> Metric:
    metric = Metric()
    for number, wire, value in _fields(data):
        if _VALUES.get(number) == wire:
            # Of several values, the last one counts: they are alternatives (oneof).
            metric.field, metric.value = number, _scalar(number, value)
        elif wire == _BYTES and isinstance(value, bytes):
            if number == 1:
                metric.name = _text(value)
            elif number == 9:
                metric.properties |= _properties(value)
        elif wire == _VARINT and isinstance(value, int):
            if number == 2:
                metric.alias = value
            elif number == 3:
                metric.timestamp = value
            elif number == 4:
                metric.datatype = value & 0xFFFF_FFFF
            elif number == 5:
                metric.historical = bool(value)
            elif number == 7:
                metric.null = bool(value)
    return metric


def _properties(data: bytes) -> dict[str, Raw]:
    """Return the scalar properties of a property set, whose keys and values are two lists."""
    keys: list[str] = []
    values: list[Raw | None] = []
    for number, wire, value in _fields(data):
        if wire == _BYTES and isinstance(value, bytes):
            if number == 1:
                keys.append(_text(value))
            elif number == 2:
                values.append(_property(value))
    return {key: value for key, value in zip(keys, values, strict=False) if value is not None}


def _property(data: bytes) -> Raw | None:
    found: Raw | None = None
    null = False
    for number, wire, value in _fields(data):
        kind = _PROPERTY_VALUES.get(number)
        if kind is not None and _VALUES[kind] == wire:
            found = _scalar(kind, value)
        elif number in (9, 10) and wire == _BYTES:
            found = None
        elif number == 2 and wire == _VARINT:
            null = bool(value)
    return None if null else found


def _scalar(field: int, value: int | bytes) -> Raw:
    if isinstance(value, int):
        return value & 0xFFFF_FFFF if field == INT else value != 0 if field == BOOLEAN else value
    if field in _FORMS:
        number: float = _FORMS[field].unpack(value)[0]
        return number
    return _text(value) if field == STRING else value


def _fields(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Yield the fields of a message: number, wire type, value. Raises `BadPayload`."""
    at, end = 0, len(data)
    while at < end:
        tag, at = _read_varint(data, at)
        number, wire = tag >> 3, tag & 7
        if not 0 < number < 1 << 29:
            raise BadPayload(f"a field has the invalid number {number}")
        if wire == _VARINT:
            value, at = _read_varint(data, at)
            yield number, wire, value
            continue
        if wire == _BYTES:
            size, at = _read_varint(data, at)
        elif wire in (_FIXED32, _FIXED64):
            size = 4 if wire == _FIXED32 else 8
        else:
            raise BadPayload(f"a field has the wire type {wire}, which Sparkplug B does not use")
        if size > end - at:
            raise BadPayload(f"a field of {size} bytes ends after the payload")
        yield number, wire, data[at : at + size]
        at += size


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return an integer of at most 64 bits, and the position after it. Raises `BadPayload`."""
    found = shift = 0
    for byte in data[at : at + 10]:
        at += 1
        found |= (byte & 127) << shift
        if byte < 128:
            return found & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7
    raise BadPayload("an integer is incomplete or too long")


def _integer(value: int | bytes) -> int | None:
    return value if isinstance(value, int) else None


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise BadPayload("a text is not UTF-8") from None


def _tag(number: int, wire: int) -> bytes:
    return _varint(number << 3 | wire)


def _length_delimited(number: int, content: bytes) -> bytes:
    return _tag(number, _BYTES) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)
