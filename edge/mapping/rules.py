"""Mappings in compiled form: what is looked at per message, with everything that can be known before known."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from edge.mapping.binary import Layout
from edge.mapping.jsonpath import Path
from edge.mapping.payload import PayloadError, PayloadMessage
from edge.mapping.store import Store
from edge.mapping.template import Template
from edge.mapping.times import TimeFormat
from edge.mapping.topics import TopicPattern
from edge.mapping.values import Converter, JsonNumber, plain_text


@dataclass(frozen=True, slots=True)
class Terms:
    """What describes a reading besides its value: IRIs and texts with all captures put in."""

    observation: str
    unit: str | None = None
    location: str | None = None
    property: str | None = None
    sensor: str | None = None
    label: str | None = None
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class NamePattern:
    """What a name must be: exactly `literal`, or like `regex`, or (`capture`) anything."""

    literal: str | None = None
    regex: re.Pattern[str] | None = None
    capture: str | None = None

    def match(self, name: str) -> dict[str, str] | None:
        """The captures, or None where the name is another."""
        if self.regex is not None:
            found = self.regex.fullmatch(name)
            return None if found is None else found.groupdict()
        if self.literal is not None:
            return {} if self.literal == name else None
        return {} if self.capture is None else {self.capture: name}


@dataclass(frozen=True, slots=True)
class TermTemplates:
    """The templates of `Terms`, in its order, and the captures that they need."""

    observation: Template
    others: tuple[Template | None, ...]
    names: tuple[str, ...]

    def render(self, captures: dict[str, str]) -> Terms:
        """The terms. Raises `CaptureError`."""
        rest = [None if template is None else template.render(captures) for template in self.others]
        return Terms(self.observation.render(captures), *rest)


@dataclass(frozen=True, slots=True, eq=False)
class TimeRule:
    """Where a message tells its time: a JSON path or a group of the pattern."""

    path: Path | None
    group: str | None
    format: TimeFormat


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that must hold of a payload."""

    path: Path | None
    exists: bool | None
    one_of: tuple[str | bool | Decimal, ...] | None
    regex: re.Pattern[str] | None
    regex_text: int

    def holds(self, message: PayloadMessage) -> bool:
        """Whether it holds; an unreadable payload fulfils no condition."""
        try:
            values = [message.text] if self.path is None else [hit.value for hit in self.path.walk(message.document)]
        except PayloadError:
            return False
        if self.exists is not None and self.exists != bool(values):
            return False
        if self.one_of is None and self.regex is None:
            return True
        return any(self._fits(value) for value in values)

    def _fits(self, value: object) -> bool:
        if isinstance(value, dict | list) or value is None:
            return False
        text = plain_text(value)
        if self.one_of is not None and not any(_same(value, text, wanted) for wanted in self.one_of):
            return False
        return self.regex is None or self.regex.search(text, 0, self.regex_text) is not None


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """One reading of a mapping."""

    mapping: str
    """Name of the mapping, with that of its pack."""
    what: str
    """How problems call what is read: the path, the record, "value"."""
    terms: TermTemplates | None
    """None: the value is taken and nothing is yielded (`ignore`)."""
    convert: Converter
    path: Path | None
    record: NamePattern
    record_unit: NamePattern
    regex: re.Pattern[str] | None
    unit_path: Path | None
    units: dict[str, str | None]
    time: TimeRule | None
    required: bool
    store: Store | None
    """Which of its readings are stored for the history; None: none."""
    when: tuple[Condition, ...]

    def applies(self, message: PayloadMessage) -> bool:
        """Whether the reading's own conditions hold."""
        return all(condition.holds(message) for condition in self.when)


def _same(value: object, text: str, wanted: str | bool | Decimal) -> bool:
    if isinstance(wanted, bool):
        return text.lower() == ("true" if wanted else "false")
    if isinstance(wanted, Decimal):
        try:
            return len(text) <= 64 and Decimal(text) == wanted
        except InvalidOperation:
            return False
    return text == wanted and not isinstance(value, bool | JsonNumber)


@dataclass(frozen=True, slots=True, eq=False)
class CompiledMapping:
    """One mapping, ready for use."""

    name: str
    pack: str
    own: bool
    """Whether it is of the operator's own files, which go before packs."""
    topic: TopicPattern
    topic_regex: re.Pattern[str] | None
    payload: str
    layout: Layout | None
    """What the bytes of a binary payload are."""
    when: tuple[Condition, ...]
    captures: tuple[tuple[str, Path | str], ...]
    """Captures from the payload: JSON paths, or names of SenML records."""
    ignore: bool
    also: bool
    rules: tuple[Rule, ...]
