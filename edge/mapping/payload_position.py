"""Position of a reading's value in a payload, and the captures that are known there."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from edge.mapping.errors import BadKeyError, under
from edge.mapping.fault_reasons import because
from edge.mapping.jsonpath import MEMBER, JsonPath, parse_path
from edge.mapping.model import ReadingSpec
from edge.mapping.regexes import compile_regex
from edge.mapping.rules import NamePattern
from edge.mapping.topics import name_pattern

NAME: Final = "name"
"""Built-in capture of SenML readings: the full name of the record."""

DOCUMENTS: Final = ("json", "binary")
"""Kinds of payloads to which paths apply."""

# These groups of a pattern carry the value, its unit and its time. They are not captures.
_SPECIAL_GROUPS: Final = frozenset({"value", "unit", "time"})


@dataclass(frozen=True, slots=True)
class PayloadPosition:
    """Position of a reading's value in the payload."""

    path: JsonPath | None = None
    record: NamePattern = field(default_factory=NamePattern)
    record_unit: NamePattern = field(default_factory=NamePattern)
    regex: re.Pattern[str] | None = None
    captures: Sequence[str] = ()
    """All captures that templates of the reading may use."""
    many: Collection[str] = ()
    """Those that may have several levels."""


def find_position(reading: ReadingSpec, payload: str, names: Sequence[str], many: Collection[str]) -> PayloadPosition:
    """Compile the position. `names`, `many`: captures of the mapping. Raises `BadKeyError`."""
    _check_kind(reading, payload)
    place = PayloadPosition()
    known, several = [*names], {*many}
    if payload in DOCUMENTS:
        path = under("path", parse_path, reading.path or "$")
        known += [*path.names, MEMBER] if path.has_member else path.names
        place = PayloadPosition(path)
    elif payload == "senml":
        record, found = _record("record", reading.record)
        record_unit, more = _record("record_unit", reading.record_unit)
        known += [*found, *more, NAME]
        several |= {*found, NAME}
        place = PayloadPosition(None, record, record_unit)
    if reading.pattern is not None:
        regex = under("pattern", compile_regex, reading.pattern)
        groups = [group for group in regex.groupindex if group not in _SPECIAL_GROUPS]
        known += groups
        several.update(groups)
        place = replace(place, regex=regex)
    if twice := [each for each in known if known.count(each) > 1]:
        raise BadKeyError(f"The capture {{{twice[0]}}} is defined twice.", key="path")
    return replace(place, captures=known, many=several)


def _record(key: str, text: str | None) -> tuple[NamePattern, list[str]]:
    if text is None:
        return NamePattern(), []
    names: list[str] = []
    try:
        return NamePattern(*name_pattern(text, names)), names
    except BadKeyError as error:
        raise error.under(key) from None


def _check_kind(reading: ReadingSpec, payload: str) -> None:
    for key, kind in (("path", "json"), ("record", "senml"), ("record_unit", "senml"), ("unit_from", "json")):
        if getattr(reading, key) is not None and payload != kind and not (kind == "json" and payload in DOCUMENTS):
            raise BadKeyError(because("for_payload", name=key, kind=kind, payload=payload), key=key)
    if reading.pattern is not None and payload == "senml":
        raise BadKeyError('"pattern" is for payloads of kind text and json.', key="pattern")
