"""Settings of a mapping without effect, or that make no sense in their combination. They become warnings."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

from edge.mapping.encode import typed_texts
from edge.mapping.fault_reasons import because
from edge.mapping.model import (
    ActuatorSpec,
    ConditionSpec,
    MappingSpec,
    ReadingKeys,
    ReadingSpec,
    SetSpec,
    StoreSpec,
    TimeSpec,
)
from edge.mapping.reading import XSD_BOOLEAN, XSD_STRING
from edge.mapping.serial_model import ChecksumSpec, FramingSpec, SerialSpec
from edge.mapping.values import Converter

Reasons = Mapping[str, str]
"""Why keys have no effect, by key."""

_ARITHMETIC: Final = ("scale", "offset", "min", "max", "round", "decimal_comma")
_SCALES: Final = ("scale_from", "scale10_from")
_OF_NUMBERS: Final = ("unit", "unit_from", *_SCALES)
"""Keys that are meant for numbers, but have an effect on other values, too."""
_OF_IGNORED: Final = ("path", "record", "record_unit", "pattern", "when", "ignore", "required")
"""Keys that select a value, and so have an effect for one that is ignored."""
_NOT_ENCODED: Final = "{} stays a text of hexadecimal digits: `encode` does not name this text."
_TEXTUAL: Final = frozenset({XSD_BOOLEAN, XSD_STRING})
_ZONED: Final = re.compile(r"(?<!%)(?:%%)*%z")
_VARIABLE: Final = r"(?<!\{)(?:\{\{)*\{\s*%s\s*(?:[|}]|\.\.\.)"


def idle_keys(
    get: Callable[[str], object],
    reading: ReadingSpec,
    convert: Converter,
    payload: str,
    pattern: re.Pattern[str] | None,
) -> Reasons:
    """Return the keys of a reading that have no effect. `get`: its value of a key, which it may have inherited."""
    if reading.ignore:
        return {
            "set" if name == "setter" else name: because("no_effect", reason="the value is ignored")
            for name in ReadingSpec.model_fields
            if name not in _OF_IGNORED and getattr(reading, name) is not None
        }
    found: dict[str, str] = {}
    found.update(_of_values(get, convert))
    groups = pattern.groupindex if pattern is not None else {}
    if payload != "senml" and get("unit_from") is None and "unit" not in groups:
        found["units"] = because("no_effect", reason="the payload has no unit code. See `unit_from`")
    found.update(_of_kind(get, payload, has_pattern=pattern is not None))
    found.update(idle_conditions(reading.when))
    if reading.setter is not None:
        found.update({f"set.{key}": reason for key, reason in _of_setter(reading.setter, convert)})
    return {
        key: reason for key, reason in found.items() if _given(get, reading, re.split(r"[.\[]", key)[0]) is not None
    }


def _given(get: Callable[[str], object], reading: ReadingSpec, key: str) -> object:
    """Return the value of a key. Only some keys are inherited."""
    return get(key) if key in ReadingKeys.model_fields else getattr(reading, "setter" if key == "set" else key)


def idle_in_all(mapping: MappingSpec, idle: Sequence[Reasons]) -> Iterator[tuple[str, str]]:
    """Yield the keys of a mapping that have no effect on any of its readings. `idle`: those of each reading."""
    used = [
        (reading, reasons) for reading, reasons in zip(mapping.readings or (), idle, strict=True) if not reading.ignore
    ]
    if not used:
        return
    for key in ReadingKeys.model_fields:
        if getattr(mapping, key) is None or any(
            getattr(reading, key) is None and key not in reasons for reading, reasons in used
        ):
            continue
        inherited = (reasons[key] for reading, reasons in used if getattr(reading, key) is None)
        yield key, next(inherited, because("no_effect", reason="each reading has its own"))


def idle_conditions(when: ConditionSpec | Sequence[ConditionSpec] | None) -> Iterator[tuple[str, str]]:
    """Yield the keys of conditions that have no effect, or that no payload fulfils."""
    several = isinstance(when, Sequence)
    for number, spec in enumerate(when if isinstance(when, Sequence) else [when] if when is not None else []):
        key = f"when[{number}]" if several else "when"
        compared = spec.equals is not None or spec.one_of is not None or spec.matches is not None
        if spec.exists and compared:
            yield f"{key}.exists", because("no_effect", reason="the other key of the condition needs a value anyway")
        if spec.exists is False and compared:
            yield f"{key}.exists", "The condition never holds: a value that does not exist equals nothing."
        if spec.equals is not None and spec.one_of is not None:
            yield f"{key}.one_of", because("no_effect", reason='"equals" names the only value')
        elif spec.one_of == []:
            yield f"{key}.one_of", "The condition never holds: the list is empty."


def idle_conversions(spec: ActuatorSpec) -> Iterator[tuple[str, str]]:
    """Yield the conversions of an actuator whose variable no message contains."""
    messages = [spec, *([spec.removed] if spec.removed is not None else [])]
    for name in spec.convert:
        if not any(_inserted(each.topic, name) or _inserted(each.payload, name) for each in messages):
            yield f"convert.{name}", because("no_effect", reason=f"no message contains {{{name}}}")


def idle_types(spec: ActuatorSpec) -> Iterator[tuple[str, str]]:
    """Yield the payloads of an actuator with a type in a text that is not encoded."""
    for key, each in (("payload", spec), *([("removed.payload", spec.removed)] if spec.removed is not None else [])):
        for variable in typed_texts(each.payload, each.encode if each.encode is not None else spec.encode):
            yield key, _NOT_ENCODED.format(variable)


def idle_port_keys(spec: SerialSpec, checksum_bytes: int) -> Iterator[tuple[str, str]]:
    """Yield the keys of a serial port that have no effect. `checksum_bytes`: size of the checksum, or 0."""
    if isinstance(spec.crc, ChecksumSpec) and spec.crc.endian is not None and checksum_bytes == 1:
        yield "crc.endian", because("no_effect", reason="the checksum has one byte")
    framing = spec.framing
    if isinstance(framing, FramingSpec) and framing.endian is not None and framing.size in (None, 1):
        yield "framing.endian", because("no_effect", reason="the length has one byte")
    if spec.rts is not None and spec.flow == "rtscts":
        yield "rts", because("no_effect", reason="the flow control sets the line")


def idle_defaults(defaults: ReadingKeys, used: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the keys of [defaults] that no reading of the file uses."""
    for key in ReadingKeys.model_fields:
        if getattr(defaults, key) is not None and key not in used:
            yield (
                key,
                "No number of this file uses it."
                if key in _OF_NUMBERS
                else because("no_effect", reason="no reading uses it"),
            )


def used_defaults(defaults: ReadingKeys, reading: ReadingSpec, mapping: ReadingSpec, idle: Reasons) -> Iterator[str]:
    """Yield the keys of [defaults] that have an effect on a reading."""
    for key in ReadingKeys.model_fields if not reading.ignore else ():
        given = getattr(reading, key) is not None or getattr(mapping, key) is not None
        if getattr(defaults, key) is not None and not given and key not in idle:
            yield key


def _of_values(get: Callable[[str], object], convert: Converter) -> Iterator[tuple[str, str]]:
    if convert.table is not None:
        datatypes = {datatype for _, datatype in convert.table.values()}
        arithmetic = because("no_effect", reason='"values" gives the value, which is not calculated or compared')
        scales = 'The value is not scaled, because "values" gives it. Without this number it is not read.'
    else:
        datatypes = {XSD_BOOLEAN} if convert.kind == "boolean" else {convert.datatype or XSD_STRING}
        arithmetic = because("no_effect", reason=f"a {_word(convert.kind)} is not a number")
        scales = f"A {_word(convert.kind)} is not scaled. Without this number it is not read."
    textual = datatypes <= _TEXTUAL and (convert.table is not None or convert.kind in ("boolean", "string"))
    if convert.table is not None or convert.kind in ("boolean", "string"):
        yield from ((key, arithmetic) for key in _ARITHMETIC)
        yield from ((key, scales) for key in _SCALES)
    elif convert.kind != "auto":
        yield "case", because("no_effect", reason="a number has no case")
    if convert.low is not None and convert.high is not None and convert.low > convert.high:
        yield "min", f"No value is between {convert.low} and {convert.high}."
    if textual:
        word = "truth value" if datatypes == {XSD_BOOLEAN} else "text"
        unit = str(get("unit"))
        if "{" not in unit and not unit.endswith("Unitless"):
            yield "unit", f"A {word} has no unit."
        yield "unit_from", f"A {word} has no unit."
        store = get("store")
        if isinstance(store, StoreSpec) and store.dead_band is not None:
            yield "store.dead_band", because("no_effect", reason=f"a {word} is not a number, and stored on change")
    store = get("store")
    if isinstance(store, StoreSpec) and store.dead_band is not None and store.change:
        yield "store.change", because("no_effect", reason="readings with a dead band are stored on change anyway")


def _of_kind(get: Callable[[str], object], payload: str, *, has_pattern: bool) -> Iterator[tuple[str, str]]:
    time = get("time")
    if payload == "senml":
        yield "time", because("no_effect", reason="SenML records have their own times")
        yield "required", because("no_effect", reason="SenML records are never required")
    elif isinstance(time, TimeSpec) and time.zone is not None:
        if time.format.startswith("unix"):
            yield "time.zone", because("no_effect", reason="a Unix time is in UTC")
        elif _ZONED.search(time.format):
            yield "time.zone", because("no_effect", reason="times of this format name their zone (%z)")
    if payload == "text" and not has_pattern:
        yield "required", because("no_effect", reason="the whole text is the value, so it is never missing")


def _of_setter(spec: SetSpec, convert: Converter) -> Iterator[tuple[str, str]]:
    numeric = ("scale", "offset", "min", "max")
    given = [key for key in (*numeric, "step") if getattr(spec, key) is not None]
    if convert.table is None and convert.kind in ("boolean", "string"):
        reason = f"A {_word(convert.kind)} is not a number, so no value can be set."
        yield from ((key, reason) for key in given if key in numeric)
    if "step" in given and not {"min", "max"} & {*given}:
        yield "step", because("no_effect", reason='without "min" and "max" there is no slider')
    for variable in typed_texts(spec.payload, spec.encode):
        yield "payload", _NOT_ENCODED.format(variable)
    if not _inserted(spec.payload, "value"):
        for key in ("values", "scale", "offset"):
            if getattr(spec, key) is not None:
                yield key, because("no_effect", reason="the payload does not contain {value}")


def _word(kind: str) -> str:
    return "truth value" if kind == "boolean" else "text"


def _inserted(payload: object, name: str) -> bool:
    """Whether a template contains a variable."""
    if isinstance(payload, dict):
        return any(_inserted(each, name) for pair in payload.items() for each in pair)
    if isinstance(payload, list):
        return any(_inserted(each, name) for each in payload)
    return isinstance(payload, str) and re.search(_VARIABLE % re.escape(name), payload) is not None
