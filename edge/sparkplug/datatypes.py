"""Datatypes of metrics: values as JSON for the mapping language, and desired values as metrics of commands.

Source: Sparkplug 3.0, section 6.4.16.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Final

from edge.mapping.binary import shortest
from edge.mapping.fault_reasons import because
from edge.mapping.reading import XSD_DATE_TIME
from edge.sparkplug.payload import BOOLEAN, DOUBLE, FLOAT, INT, LONG, STRING, Metric

Json = int | float | bool | str | None

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST: Final = 253_402_300_799_999
"""Milliseconds of the last moment of the year 9999."""
_SINGLE: Final = struct.Struct("<f")
_LARGEST_SINGLE: Final = Decimal(repr(_SINGLE.unpack(b"\xff\xff\x7f\x7f")[0]))
LONGEST_TEXT: Final = 16_384
"""Characters of a value that is a text."""


class BadMetric(ValueError):
    """The metric cannot be read or set; the text says why."""


@dataclass(frozen=True, slots=True)
class Datatype:
    """A datatype whose values can be observed."""

    name: str
    fields: tuple[int, ...]
    """Fields that may hold its value; commands use the first one."""
    key: str
    """The key `datatype` of the mapping language."""
    bits: int = 0
    """Of integers."""
    signed: bool = False

    @property
    def bounds(self) -> tuple[int, int] | None:
        """Smallest and largest value of an integer; None: it is not one."""
        if not self.bits:
            return None
        return (-(1 << self.bits - 1), (1 << self.bits - 1) - 1) if self.signed else (0, (1 << self.bits) - 1)

    @property
    def limits(self) -> tuple[Decimal, Decimal] | None:
        """Smallest and largest value that can be set; None: those of the mapping language apply."""
        if self.bounds is not None:
            low, high = self.bounds
            return Decimal(low), Decimal(high)
        return (-_LARGEST_SINGLE, _LARGEST_SINGLE) if self.fields[0] == FLOAT else None


def _integer(name: str, bits: int, *, signed: bool) -> Datatype:
    # Implementations differ in the field of 32 bits without sign, so both are read.
    return Datatype(name, (LONG, INT) if bits == 64 else (INT, LONG), "integer", bits, signed)


DATATYPES: Final = {
    1: _integer("Int8", 8, signed=True),
    2: _integer("Int16", 16, signed=True),
    3: _integer("Int32", 32, signed=True),
    4: _integer("Int64", 64, signed=True),
    5: _integer("UInt8", 8, signed=False),
    6: _integer("UInt16", 16, signed=False),
    7: _integer("UInt32", 32, signed=False),
    8: _integer("UInt64", 64, signed=False),
    9: Datatype("Float", (FLOAT,), "number"),
    10: Datatype("Double", (DOUBLE,), "number"),
    11: Datatype("Boolean", (BOOLEAN,), "boolean"),
    12: Datatype("String", (STRING,), "string"),
    13: Datatype("DateTime", (LONG,), XSD_DATE_TIME),
    14: Datatype("Text", (STRING,), "string"),
    15: Datatype("UUID", (STRING,), "string"),
}
"""Datatypes by their numbers."""
_OTHERS: Final = {16: "DataSet", 17: "Bytes", 18: "File", 19: "Template", 20: "PropertySet", 21: "PropertySetList"}


def datatype_of(number: int | None) -> Datatype:
    """Return a datatype by its number. Raises `BadMetric`."""
    found = DATATYPES.get(number or 0)
    if found is None:
        if number is None or not 0 < number < 35:
            raise BadMetric(because("datatype_unknown", name=number or 0))
        name = _OTHERS.get(number, "an array")
        raise BadMetric(because("datatype_unused", name=name))
    return found


def value_of(metric: Metric, datatype: Datatype) -> Json:
    """Return the value of a metric as JSON; None: it has none. Raises `BadMetric`."""
    if metric.null or not metric.field:
        return None
    raw = metric.value
    if metric.field not in datatype.fields:
        raise BadMetric(f"its value is not one of {datatype.name}, which its birth names")
    if datatype.bits:
        return _signed(int(raw), datatype, 64 if metric.field == LONG else 32)
    if isinstance(raw, float):
        # NaN and infinity stand for values that a device does not have.
        if not math.isfinite(raw):
            return None
        return raw if metric.field == DOUBLE else float(shortest(raw, _SINGLE.pack(raw), _SINGLE))
    if isinstance(raw, str):
        if len(raw) > LONGEST_TEXT:
            raise BadMetric(f"it is a text of {len(raw)} characters, the limit is {LONGEST_TEXT}")
        return raw
    if datatype.key == XSD_DATE_TIME:
        return _time(int(raw))
    return bool(raw)


def _signed(raw: int, datatype: Datatype, width: int) -> int:
    """Return an integer of the wire with its sign: two's complement of its own size, or of the field's."""
    low, high = datatype.bounds or (0, 0)
    if datatype.signed:
        if raw >= 1 << width - 1:
            raw -= 1 << width
        elif high < raw < 1 << datatype.bits:
            raw -= 1 << datatype.bits
    if not low <= raw <= high:
        raise BadMetric(f"{raw} is not a value of {datatype.name}")
    return raw


def _time(raw: int) -> str:
    if raw > _LATEST:
        raise BadMetric(f"{raw} is not a time in milliseconds since 1970")
    text = (_EPOCH + timedelta(milliseconds=raw)).isoformat(timespec="milliseconds")
    return f"{text[:-6]}Z"


def command_of(number: int, text: str) -> Metric:
    """Return a metric without name for a desired value. Raises `BadMetric`."""
    datatype = datatype_of(number)
    field = datatype.fields[0]
    if datatype.key == "string":
        if len(text) > LONGEST_TEXT:
            raise BadMetric(f"the text has more than {LONGEST_TEXT} characters")
        return Metric(datatype=number, field=field, value=text)
    if datatype.key == "boolean":
        if text not in ("true", "false"):
            raise BadMetric(f'"{text[:40]}" is not true or false')
        return Metric(datatype=number, field=field, value=text == "true")
    try:
        wanted = Decimal(text)
        if datatype.bounds is None:
            value = float(wanted)
            if datatype.key != "number" or not math.isfinite(value):
                raise ValueError(text)
            if field == FLOAT:
                _SINGLE.pack(value)
            return Metric(datatype=number, field=field, value=value)
        low, high = datatype.bounds
        if not low <= wanted <= high or wanted != int(wanted):
            raise ValueError(text)
    except (InvalidOperation, ValueError, OverflowError):
        raise BadMetric(f'"{text[:40]}" is not a value of {datatype.name} that can be set') from None
    return Metric(datatype=number, field=field, value=int(wanted) % (1 << (64 if field == LONG else 32)))
