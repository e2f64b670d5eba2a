"""Compiled mappings: the data needed for each message, with everything else computed in advance."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation

from edge.mapping.binary import PayloadLayout
from edge.mapping.decode import Decoder
from edge.mapping.item_selection import Pick
from edge.mapping.jsonpath import JsonPath
from edge.mapping.member_paths import MemberPath, MemberPaths
from edge.mapping.payload import PayloadError, PayloadMessage
from edge.mapping.reading import Event
from edge.mapping.setter import Setter
from edge.mapping.store import StoreRules
from edge.mapping.template import Template
from edge.mapping.times import TimeFormat
from edge.mapping.topics import TopicPattern
from edge.mapping.values import Converter, JsonNumber, plain_text


@dataclass(frozen=True, slots=True)
class Terms:
    """Description of a reading: IRIs and texts with all captures filled in."""

    observation: str
    unit: str | None = None
    location: str | None = None
    property: str | None = None
    sensor: str | None = None
    label: str | None = None
    comment: str | None = None
    sensor_label: str | None = None


@dataclass(frozen=True, slots=True)
class NamePattern:
    """Condition for a name: exactly `literal`, matching `regex`, or (`capture`) any name."""

    literal: str | None = None
    regex: re.Pattern[str] | None = None
    capture: str | None = None

    def match(self, name: str) -> dict[str, str] | None:
        """Return the captures, or None if the name does not match."""
        if self.regex is not None:
            found = self.regex.fullmatch(name)
            return None if found is None else found.groupdict()
        if self.literal is not None:
            return {} if self.literal == name else None
        return {} if self.capture is None else {self.capture: name}


@dataclass(frozen=True, slots=True)
class TermTemplates:
    """Templates of `Terms`, in its order, and the captures that they need."""

    observation: Template
    others: tuple[Template | None, ...]
    names: tuple[str, ...]

    def render(self, captures: dict[str, str]) -> Terms:
        """Return the terms. Raises `CaptureError`."""
        rest = [None if template is None else template.render(captures) for template in self.others]
        return Terms(self.observation.render(captures), *rest)


@dataclass(frozen=True, slots=True, eq=False)
class TimeRule:
    """Position of the time in a message: a JSON path or a group of the pattern."""

    path: JsonPath | None
    group: str | None
    format: TimeFormat


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on the payload."""

    path: JsonPath | None
    exists: bool | None
    one_of: tuple[str | bool | Decimal, ...] | None
    regex: re.Pattern[str] | None
    regex_text: int

    def holds(self, message: PayloadMessage) -> bool:
        """Whether the condition holds; it does not for an unreadable payload."""
        try:
            if self.path is None:
                return self._holds([message.text])
            return self.holds_in(message.whole if self.path.absolute else message.document)
        except PayloadError:
            return False

    def holds_in(self, document: object) -> bool:
        """Whether the condition on a path holds in a document, or in a part of it."""
        return self.path is not None and self._holds([hit.value for hit in self.path.walk(document)])

    def _holds(self, values: list[object]) -> bool:
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


@dataclass(frozen=True, slots=True)
class EventRule:
    """Each reading is an event."""

    path: JsonPath | None
    """Leads to what identifies an event; None: nothing does."""
    event: Event
    """The event of a reading without an id."""


@dataclass(frozen=True, slots=True, eq=False)
class ReadingRule:
    """One reading of a mapping."""

    mapping: str
    """Name of the mapping with that of its pack."""
    what: str
    """Name of the value in problems: the path, the record, "value"."""
    terms: TermTemplates | None
    """None: the value is consumed without a reading (`ignore`)."""
    convert: Converter
    path: JsonPath | None
    record: NamePattern
    record_unit: NamePattern
    regex: re.Pattern[str] | None
    unit_path: JsonPath | None
    units: dict[str, str | None]
    time: TimeRule | None
    required: bool
    store: StoreRules | None
    """Selects the readings for the history; None: none."""
    event: EventRule | None
    """None: a repeated value is no change."""
    when: tuple[Condition, ...]
    local_when: tuple[Condition, ...] = ()
    """Conditions on the object that contains the value ("@")."""
    local_captures: tuple[tuple[str, JsonPath], ...] = ()
    """Captures from that object."""
    factors: tuple[tuple[JsonPath, bool], ...] = ()
    """Numbers of the payload by which the value is multiplied; True: the exponent of a power of ten."""
    setter: Setter | None = None
    """Sets the value at its device; None: it cannot be set."""
    default: object = None
    """The raw value where the payload lacks it; None: nothing is read then."""
    existing: bool = False
    """Whether it never adds an observation."""

    @property
    def always(self) -> bool:
        """Whether it has no conditions."""
        return not self.when and not self.local_when

    def applies(self, message: PayloadMessage) -> bool:
        """Whether the reading's own conditions hold."""
        return all(condition.holds(message) for condition in self.when)

    def takes(self, parent: object) -> bool:
        """Whether it takes a value from this object."""
        return all(condition.holds_in(parent) for condition in self.local_when)


def _same(value: object, text: str, wanted: str | bool | Decimal) -> bool:
    if isinstance(wanted, bool):
        return text.lower() == ("true" if wanted else "false")
    if isinstance(wanted, Decimal):
        try:
            # Compared by value: 1.0 equals 1. The length is bounded, because the text comes from a device.
            return len(text) <= 64 and Decimal(text) == wanted
        except InvalidOperation:
            return False
    # The text "1" in a condition does not stand for the number 1 in a payload.
    return text == wanted and not isinstance(value, bool | JsonNumber)


@dataclass(frozen=True, slots=True, eq=False)
class CompiledMapping:
    """One compiled mapping."""

    name: str
    pack: str
    own: bool
    """Whether it belongs to the operator's files, which take precedence over packs."""
    topic: TopicPattern
    topic_regex: re.Pattern[str] | None
    payload: str
    layout: PayloadLayout | None
    """Layout of a binary payload."""
    when: tuple[Condition, ...]
    captures: tuple[tuple[str, JsonPath | str], ...]
    """Captures from the payload: JSON paths, or names of SenML records."""
    ignore: bool
    also: bool
    each: JsonPath | None
    """Leads to items of a document, each of which is read as a document; None: the document is read as a whole."""
    pick: Pick | None
    """Selects one of these items; None: all."""
    decode: Decoder | None
    rules: tuple[ReadingRule, ...]
    announced: bool = False
    """Whether a device has announced it: files and packs take precedence."""
    members: MemberPaths = field(init=False)
    """Look-up of the rules for members of JSON objects, except those for one member of the document."""

    def __post_init__(self) -> None:
        paths = [(number, rule, rule.path) for number, rule in enumerate(self.rules) if rule.path is not None]
        taken = frozenset(path.single for _, rule, path in paths if path.single is not None and rule.always)
        deeper = [MemberPath(number, path, rule.always) for number, rule, path in paths if path.single is None]
        # The class is frozen.
        object.__setattr__(self, "members", MemberPaths(deeper, taken))
