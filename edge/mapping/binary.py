"""Binary payloads: converts bytes to a document like that of JSON, by a list of fields."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from edge.mapping.errors import BadKeyError, nearest
from edge.mapping.fault_reasons import because
from edge.mapping.model import FieldSpec
from edge.mapping.payload import PayloadError
from edge.mapping.values import JsonNumber

Endian = Literal["big", "little"]

INTEGERS: Final[dict[str, tuple[int, bool, Endian]]] = {
    f"{sign}{8 * size}{end}": (size, sign == "i", "little" if end == "le" else "big")
    for sign in "ui"
    for size in (1, 2, 3, 4, 6, 8)
    for end in ("", "be", "le")
}
"""Size in bytes, signedness and byte order of the integer types. Without a suffix they are big-endian."""
FLOATS: Final = {
    f"f{8 * size}{end}": struct.Struct(("<" if end == "le" else ">") + code)
    for size, code in ((4, "f"), (8, "d"))
    for end in ("", "be", "le")
}
"""The IEEE 754 types."""
_OTHERS: Final = ("hex", "text", "skip")
_TYPES: Final = "u8, i8, u16, i16, u24, i24, u32, i32, u48, i48, u64, i64, f32, f64, each with le; hex, text, skip"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_ANY: Final = "*"
"""The case for all values without a case of their own."""

Document = dict[str, object]
_Step = Callable[["_Reader", Document], None]
_Size = Callable[["_Reader", Document], int]


@dataclass(frozen=True, slots=True, eq=False)
class PayloadLayout:
    """Layout of a binary payload."""

    _steps: tuple[_Step, ...]

    def read(self, payload: bytes) -> Document:
        """Return the document; numbers are `JsonNumber`. Raises `PayloadError` if the payload is too short or does
        not match.

        Bytes after the last field are ignored.
        """
        document: Document = {}
        reader = _Reader(payload)
        for step in self._steps:
            step(reader, document)
        return document


def layout(fields: Sequence[FieldSpec]) -> PayloadLayout:
    """Compile the layout of a mapping. Raises `BadKeyError`."""
    if not fields:
        raise BadKeyError("A binary payload has fields.", key="fields", allowed="fields = [{ name, type }, ...]")
    return PayloadLayout(_steps(fields, "fields", {}, top=True))


class _Reader:
    """A payload and the read position."""

    __slots__ = ("at", "payload")

    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        self.at = 0

    def take(self, size: int, what: str) -> bytes:
        end = self.at + size
        # A signed field may give a negative size.
        if size < 0 or end > len(self.payload):
            raise PayloadError(f"the payload has {len(self.payload)} bytes and ends within {what}")
        found = self.payload[self.at : end]
        self.at = end
        return found

    @property
    def left(self) -> int:
        return len(self.payload) - self.at


def _steps(fields: Sequence[FieldSpec], key: str, before: dict[str, bool], *, top: bool = False) -> tuple[_Step, ...]:
    """`before`: names of the preceding fields, and whether each is an integer."""
    known = dict(before)
    steps: list[_Step] = []
    for index, field in enumerate(fields):
        try:
            if field.at is not None:
                if not top:
                    raise BadKeyError("Only a field of the payload itself has a place of its own.", key="at")
                steps.append(_jump(field.at))
            steps.append(_step(field, known))
        except BadKeyError as error:
            inner = f".{error.fault.key}" if error.fault.key else ""
            raise BadKeyError(
                error.fault.reason,
                key=f"{key}[{index}]{inner}",
                allowed=error.fault.allowed,
                nearest=error.fault.nearest,
            ) from None
    return tuple(steps)


def _step(field: FieldSpec, known: dict[str, bool]) -> _Step:
    forms = [form for form in ("type", "fields", "cases") if getattr(field, form) is not None]
    if len(forms) != 1:
        raise BadKeyError("A field has a type, fields that repeat, or cases.", allowed="type, fields, cases")
    if field.cases is not None:
        return _choice(field, field.cases, known)
    name = _named(field, known) if field.type != "skip" else ""
    if field.fields is not None:
        return _group(field, field.fields, name, known)
    return _value(field, str(field.type), name, known)


def _named(field: FieldSpec, known: dict[str, bool]) -> str:
    if field.name is None or not _NAME.fullmatch(field.name):
        raise BadKeyError(because("field_name"), key="name")
    if field.name in known:
        raise BadKeyError(because("field_taken"), key="name")
    # Only a whole integer can be the size, the number or the case of later fields.
    known[field.name] = field.type in INTEGERS and field.bits is None
    return field.name


def _value(field: FieldSpec, kind: str, name: str, known: dict[str, bool]) -> _Step:
    _only(field, kind, "name", "type", "at", *(("size",) if kind in _OTHERS else ()), "bits")
    if kind in INTEGERS:
        return _integer(name, INTEGERS[kind], None if field.bits is None else _bits(field.bits, 8 * INTEGERS[kind][0]))
    if field.bits is not None:
        raise BadKeyError("Only integers have bits.", key="bits")
    if kind in FLOATS:
        return _float(name, FLOATS[kind])
    if kind not in _OTHERS:
        raise BadKeyError(
            because("not_a_type", name=kind),
            key="type",
            nearest=nearest(kind, [*INTEGERS, *FLOATS, *_OTHERS]),
            allowed=_TYPES,
        )
    size = _size(field.size, "size", known)
    if kind == "skip":
        return lambda reader, document: _unused(reader.take(size(reader, document), "what is skipped"))
    if kind == "hex":
        return lambda reader, document: document.update({name: reader.take(size(reader, document), name).hex()})
    return lambda reader, document: document.update({name: _text(reader.take(size(reader, document), name), name)})


def _unused(_: bytes) -> None:
    """Bytes that are skipped."""


def _text(found: bytes, name: str) -> str:
    try:
        # Devices fill a text of fixed size with spaces or zero bytes.
        return found.decode().strip(" \t\r\n\0")
    except UnicodeDecodeError as error:
        raise PayloadError(f"{name} is not UTF-8 text (byte {error.start} of it)") from None


def _integer(name: str, form: tuple[int, bool, Endian], bits: dict[str, tuple[int, int]] | None) -> _Step:
    size, signed, endian = form

    def step(reader: _Reader, document: Document) -> None:
        # Bits are taken from the unsigned number: a negative one would continue with ones above its highest bit.
        number = int.from_bytes(reader.take(size, name), endian, signed=signed and bits is None)
        if bits is None:
            document[name] = JsonNumber(number)
        else:
            document[name] = {each: JsonNumber(number >> low & mask) for each, (low, mask) in bits.items()}

    return step


def _float(name: str, form: struct.Struct) -> _Step:
    def step(reader: _Reader, document: Document) -> None:
        found = reader.take(form.size, name)
        (number,) = form.unpack(found)
        document[name] = JsonNumber(repr(number) if form.size == 8 else shortest(number, found, form))

    return step


def shortest(number: float, found: bytes, form: struct.Struct) -> str:
    """Return the shortest decimal with the same single-precision encoding: 21.2 instead of 21.200000762939453."""
    # Nine digits identify every number of single precision (IEEE 754).
    for digits in range(6, 10):
        text = f"{number:.{digits}g}"
        try:
            if form.pack(float(text)) == found:
                return text
        # Rounded up, the greatest finite number is too large for single precision.
        except OverflowError:
            continue
    return repr(number)


def _bits(bits: dict[str, int | tuple[int, int]], width: int) -> dict[str, tuple[int, int]]:
    """Name to lowest bit and mask."""
    found = {}
    for name, place in bits.items():
        low, count = place if isinstance(place, tuple) else (place, 1)
        if low < 0 or count < 1 or low + count > width:
            raise BadKeyError(
                f'"{name}" is beyond the {width} bits of the field.', key="bits", allowed="bit, or [lowest bit, bits]"
            )
        found[name] = (low, (1 << count) - 1)
    return found


def _size(given: int | str | None, key: str, known: dict[str, bool]) -> _Size:
    """Number of bytes (or repetitions): a constant, the value of an earlier field, or all that remain."""
    if given is None:
        return lambda reader, _: reader.left
    if isinstance(given, int):
        if given < 0:
            raise BadKeyError("must not be negative.", key=key)
        return lambda _, __: given
    if not known.get(given):
        integers = [name for name, integer in known.items() if integer]
        raise BadKeyError(
            f'No integer field "{given}" comes before.',
            key=key,
            nearest=nearest(given, integers),
            allowed=", ".join(integers) or "a number",
        )
    return lambda _, document: int(str(document[given]))


def _group(field: FieldSpec, fields: Sequence[FieldSpec], name: str, known: dict[str, bool]) -> _Step:
    """Repeated fields: a list of documents, or with `by` a document with the value of one field as key."""
    _only(field, "that repeats", "name", "fields", "repeat", "by", "at")
    endless = field.repeat is None
    times = _size(field.repeat, "repeat", known)
    steps = _steps(fields, "fields", {})
    by = field.by
    if by is not None and by not in (names := [each.name for each in fields]):
        raise BadKeyError("No field of the group has that name.", key="by", nearest=nearest(by, filter(None, names)))

    def step(reader: _Reader, document: Document) -> None:
        found: list[Document] = []
        count = times(reader, document)
        while reader.left if endless else len(found) < count:
            began = reader.at
            item: Document = {}
            for each in steps:
                each(reader, item)
            # A pass that consumes no bytes would repeat forever when the group runs to the end of the payload.
            if reader.at == began:
                raise PayloadError(f"{name} repeats nothing")
            found.append(item)
        document[name] = found if by is None else {str(item[by]): item for item in found}

    return step


def _choice(field: FieldSpec, cases: dict[str, list[FieldSpec]], known: dict[str, bool]) -> _Step:
    """Fields that depend on an earlier one, as in type-length-value encodings."""
    _only(field, "with cases", "on", "cases")
    on = field.on
    if on is None or not known.get(on):
        integers = [name for name, integer in known.items() if integer]
        raise BadKeyError("Cases depend on an integer field before them.", key="on", allowed=", ".join(integers))
    found: dict[int, tuple[_Step, ...]] = {}
    other: tuple[_Step, ...] | None = None
    for text, fields in cases.items():
        steps = _steps(fields, f"cases.{text}", known)
        if text == _ANY:
            other = steps
            continue
        try:
            found[int(text, 0)] = steps
        except ValueError:
            raise BadKeyError(f'"{text}" is not a number.', key="cases", allowed='"32", "0x20", "*"') from None

    def step(reader: _Reader, document: Document) -> None:
        value = int(str(document[on]))
        steps = found.get(value, other)
        if steps is None:
            raise PayloadError(f'{on} is {value} at byte {reader.at}, which has no case; add one, or "*"')
        for each in steps:
            each(reader, document)

    return step


def _jump(place: int) -> _Step:
    def step(reader: _Reader, _: Document) -> None:
        reader.at = place if place >= 0 else len(reader.payload) + place
        if not 0 <= reader.at <= len(reader.payload):
            raise PayloadError(f"the payload has {len(reader.payload)} bytes, and nothing at {place}")

    return step


def _only(field: FieldSpec, what: str, *allowed: str) -> None:
    for key in field.model_fields_set:
        if key not in allowed and getattr(field, key) is not None:
            raise BadKeyError(f"A field {what} has no such key.", key=key, allowed=", ".join(allowed))
