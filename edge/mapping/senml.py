"""SenML resolution: RFC 8428 JSON with base fields, and the older draft form `{"e": [...], "bt": ...}`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Final

from edge.mapping.payload import PayloadError
from edge.mapping.times import BadTimeError, unix_time
from edge.mapping.values import EXACT, JsonNumber

VERSION: Final = 10
# RFC 8428, section 4.5.3: values below 2**28 are seconds relative to now, others are Unix times.
_RELATIVE: Final = Decimal(2**28)


@dataclass(frozen=True, slots=True)
class SenmlRecord:
    """A resolved record: full name, raw value, unit code and time."""

    name: str
    value: object
    unit: str | None
    time: datetime | None
    time_fault: str | None = None


def records(document: object, now: datetime | None) -> Iterator[SenmlRecord]:
    """Yield the records of a pack that have a value, in order.

    `now` is the time of arrival, the base of relative times (below 2**28 seconds, RFC 8428 section 4.5.3); without it
    such records have no time. Raises `PayloadError` if the document is not SenML, or has an unsupported version.
    """
    if isinstance(document, dict):
        entries = document.get("e")
        # In the draft form the base fields are next to the array, in RFC 8428 in its records.
        base = {key: value for key, value in document.items() if key != "e"}
        draft = True
    else:
        entries, base, draft = document, {}, False
    if not isinstance(entries, list):
        raise PayloadError('the payload is not SenML: neither an array of records nor an object with an array "e"')
    state = _Base(draft=draft, now=now)
    state.update(base)
    for entry in entries:
        if not isinstance(entry, dict):
            raise PayloadError("the payload is not SenML: a record is not an object")
        if not draft:
            state.update(entry)
        record = state.resolve(entry)
        if record is not None:
            yield record


class _Base:
    """Values of the base fields at a record."""

    def __init__(self, *, draft: bool, now: datetime | None) -> None:
        self.draft = draft
        self.now = now
        self.name = ""
        self.unit: str | None = None
        self.value: Decimal | None = None
        self.time = Decimal(0)

    def update(self, entry: dict[str, object]) -> None:
        for key, value in entry.items():
            if key == "bn":
                self.name = value if isinstance(value, str) else ""
            elif key == "bu":
                self.unit = value if isinstance(value, str) else None
            elif key == "bt":
                self.time = _decimal(value, "bt")
            elif key == "bv" and not self.draft:
                self.value = _decimal(value, "bv")
            elif key == "bver" and _decimal(value, "bver") > VERSION:
                raise PayloadError(f"the payload is SenML of version {value}, known is up to {VERSION}")
            elif key.endswith("_"):
                # RFC 8428, section 4.4: a label that ends with an underscore must be understood, or the record
                # refused.
                raise PayloadError(f'the payload demands the SenML extension "{key[:40]}", which is not known')

    def resolve(self, entry: dict[str, object]) -> SenmlRecord | None:
        name = entry.get("n", "")
        name = self.name + (name if isinstance(name, str) else "")
        value = self._value(entry)
        if value is None:
            return None
        unit = entry.get("u", self.unit)
        timestamp, fault = self._time(entry)
        return SenmlRecord(name, value, unit if isinstance(unit, str) else None, timestamp, fault)

    def _value(self, entry: dict[str, object]) -> object:
        # The draft form names strings "sv" and truth values "bv". In RFC 8428 "bv" is the base value.
        for key in ("vs", "sv", "vb", "bv") if self.draft else ("vs", "vb"):
            if key in entry:
                return entry[key]
        if isinstance(data := entry.get("vd"), str):
            return data
        value = _number(entry.get("v"))
        if self.value is None:
            return value
        # RFC 8428: if only one of base value and value is present, the other one is zero. A record that only has a sum
        # ("s") has no value.
        if value is None:
            return JsonNumber(format(self.value, "f")) if "s" not in entry else None
        try:
            return JsonNumber(format(EXACT.add(self.value, _decimal(value, "v")), "f"))
        except PayloadError:
            return value

    def _time(self, entry: dict[str, object]) -> tuple[datetime | None, str | None]:
        try:
            time = self.time + _decimal(entry.get("t", JsonNumber("0")), "t")
            if time >= _RELATIVE:
                return unix_time(time), None
            # Time 0 means "roughly now": the reading has no timestamp of its own.
            if time == 0 or self.now is None:
                return None, None
            if abs(time) > _RELATIVE:
                return None, f"{time} is not a time of this era"
            return self.now + timedelta(microseconds=int(time * 1_000_000)), None
        except (BadTimeError, PayloadError, OverflowError) as error:
            return None, str(error)


def _number(value: object) -> object:
    # Sources of the draft form write numbers as texts: "v": "22.5".
    return JsonNumber(value) if isinstance(value, str) else value


def _decimal(value: object, field: str) -> Decimal:
    if isinstance(value, str) and len(value) <= 64:
        try:
            number = Decimal(value)
        except InvalidOperation:
            number = Decimal("NaN")
        # The bound of the exponent keeps exact sums short.
        if number.is_finite() and abs(number.adjusted()) <= 300:
            return number
    raise PayloadError(f'the SenML field "{field}" is not a number')
