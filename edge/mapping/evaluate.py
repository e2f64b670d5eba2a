"""Evaluation of rules: converts the payload of a matched mapping to readings and problems."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from typing import Final

from edge.mapping.captures import TOPIC
from edge.mapping.jsonpath import MEMBER, JsonPath, Place
from edge.mapping.outcome import Collector
from edge.mapping.payload import PayloadError, PayloadMessage
from edge.mapping.payload_position import DOCUMENTS, NAME
from edge.mapping.reading import Event, Reading
from edge.mapping.regexes import group_value, named_groups
from edge.mapping.rules import CompiledMapping, EventRule, ReadingRule, Terms, TimeRule
from edge.mapping.senml import SenmlRecord, records
from edge.mapping.template import CaptureError
from edge.mapping.times import BadTimeError
from edge.mapping.values import EXACT, BadValueError, Converter, OtherKindError, payload_factor, plain_text, shown

FIRST_NUMBER: Final = re.compile(
    r"(?<![A-Za-z0-9_.])[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?(?![0-9]|\.[0-9])"
)
"""First number of a text that is not part of a word or of a dotted address."""
_FIRST_COMMA_NUMBER: Final = re.compile(r"(?<![A-Za-z0-9_.,])[-+]?[0-9]+(?:,[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_UNREAD: Final = object()

RenderTerms = Callable[[ReadingRule, dict[str, str]], Terms]
"""Renders the terms of a rule that needs captures from the payload; remembers them. Raises `CaptureError`."""


@dataclass(slots=True)
class BoundRule:
    """A rule with the captures of one topic."""

    rule: ReadingRule
    captures: dict[str, str]
    terms: Terms | None
    """The terms, if the topic alone determines them."""
    fault: str | None


@dataclass(slots=True)
class BoundMapping:
    """A mapping with the captures of one topic."""

    mapping: CompiledMapping
    captures: dict[str, str]
    rules: list[BoundRule]
    members: dict[str, list[BoundRule]] = field(default_factory=dict)
    """Rules for one member of a JSON object, by member name. `CompiledMapping.members` finds the others."""
    required: list[tuple[ReadingRule, JsonPath]] = field(default_factory=list)
    """Rules for values that JSON must have, with their paths."""
    defaults: list[tuple[BoundRule, JsonPath]] = field(default_factory=list)
    """Rules with a value for JSON that lacks it, with their paths."""


def bind(mapping: CompiledMapping, topic: str, captures: dict[str, str]) -> BoundMapping:
    """Prepare `mapping` for the messages of `topic`."""
    captures = {**captures, TOPIC: topic}
    bound = BoundMapping(mapping, captures, [])
    for rule in mapping.rules:
        fixed = captures
        if rule.path is not None and (member := rule.path.member) is not None:
            fixed = {**captures, MEMBER: member}
        terms, fault = None, None
        if rule.terms is not None and all(name in fixed for name in rule.terms.names):
            try:
                terms = rule.terms.render(fixed)
            except CaptureError as error:
                fault = str(error)
        ready = BoundRule(rule, fixed, terms, fault)
        bound.rules.append(ready)
        if rule.path is not None and rule.path.single is not None:
            bound.members.setdefault(rule.path.single, []).append(ready)
        if rule.path is not None and rule.required:
            bound.required.append((rule, rule.path))
        if rule.path is not None and rule.default is not None:
            bound.defaults.append((ready, rule.path))
    return bound


@dataclass(slots=True)
class MessageEvaluation:
    """Evaluation of one message by its mappings."""

    message: PayloadMessage
    out: Collector
    render: RenderTerms
    now: datetime | None
    _times: dict[TimeRule, datetime | None] = field(default_factory=dict)

    def run(self, bound: BoundMapping) -> None:
        """Apply one mapping."""
        given = self.message
        self.message = given.read_by(bound.mapping.layout)
        try:
            if bound.mapping.each is not None:
                self._items(bound, bound.mapping.each)
            elif bound.mapping.payload in DOCUMENTS:
                self._json(bound)
            elif bound.mapping.payload == "senml":
                self._senml(bound)
            else:
                self._text(bound)
        except PayloadError as error:
            self.out.problem(bound.mapping.name, "payload", str(error))
        finally:
            self.message = given  # others read it without the decoded bytes

    def _items(self, bound: BoundMapping, each: JsonPath) -> None:
        whole = self.message
        hits = each.walk(whole.document)
        pick = bound.mapping.pick
        for hit in hits if pick is None else filter(None, [pick.of(hits)]):
            self.message = whole.item(hit.value)
            self._times.clear()  # the same path leads to another time in each item
            try:
                self._json(bound)
            except PayloadError as error:  # one item hides no other
                self.out.problem(bound.mapping.name, "payload", str(error))

    def _json(self, bound: BoundMapping) -> None:
        if bound.mapping.decode is not None:
            self.message = self.message.replaced(bound.mapping.decode.decoded(self.message.document))
        document = self.message.document
        captures: dict[str, str] = {}
        for name, path in bound.mapping.captures:
            value = path.first(self._start(path, None)) if isinstance(path, JsonPath) else None
            if value is None or isinstance(value, dict | list):
                self.out.problem(bound.mapping.name, str(name), "the payload lacks this capture, so nothing is read")
                return
            captures[name] = plain_text(value)
        # Places (identity of the parent, key) that a rule has used, so that wildcard rules after it skip them. A rule
        # with `ignore` has no terms but uses its place as well, which hides the value from the wildcards.
        taken: set[Place] = set()
        # One pass over the payload with a look-up for each member: mappings may have many rules.
        if bound.members and isinstance(document, dict):
            for key, value in document.items():
                for ready in bound.members.get(key, ()):
                    rule = ready.rule
                    if (rule.when and not rule.applies(self.message)) or (rule.local_when and not rule.takes(document)):
                        continue
                    taken.add((id(document), key))
                    self._json_value(ready, value, document, captures)
        if bound.mapping.members:
            self._deeper(bound, document, captures, taken)
        for rule, path in bound.required:
            if not path.leads_somewhere(document):
                self.out.problem(rule.mapping, rule.what, "the payload has no such value")
        for ready, path in bound.defaults:
            if not path.leads_somewhere(document) and ready.rule.applies(self.message):
                self._json_value(ready, ready.rule.default, document, captures)

    def _start(self, path: JsonPath, parent: object) -> object:
        """Return the part of the payload in which a path starts. `parent` contains the value."""
        if path.relative:
            return parent
        return self.message.whole if path.absolute else self.message.document

    def _deeper(self, bound: BoundMapping, document: object, captures: dict[str, str], taken: set[Place]) -> None:
        for number, hits in bound.mapping.members.by_rule(document, taken):
            ready = bound.rules[number]
            rule = ready.rule
            if rule.path is None or (rule.when and not rule.applies(self.message)):
                continue
            for hit in hits:
                place = (id(hit.parent), hit.key)
                if (rule.path.wild and place in taken) or (rule.local_when and not rule.takes(hit.parent)):
                    continue
                taken.add(place)
                self._json_value(
                    ready, hit.value, hit.parent, {**captures, **hit.captures} if captures else hit.captures
                )

    def _json_value(self, ready: BoundRule, value: object, parent: object, captures: dict[str, str]) -> None:
        """Read one value; `parent` contains it."""
        rule = ready.rule
        if rule.terms is None or value is None or (isinstance(value, dict | list) and not rule.required):
            return
        if rule.local_captures:
            found = self._captures_of(rule, parent)
            if found is None:
                return
            captures = {**captures, **found}
        unit_code: object = None
        if rule.unit_path is not None:
            unit_code = rule.unit_path.first(self._start(rule.unit_path, parent))
        if rule.regex is not None:
            match = self._search(rule, plain_text(value)) if not isinstance(value, dict | list) else None
            if match is None:
                return
            value = group_value(match)
            captures = {**captures, **named_groups(match)}
            unit_code = match.groupdict().get("unit") or unit_code
        time = None
        if rule.time is not None and rule.time.path is not None:
            time = self._json_time(rule, rule.time, parent)
        convert = rule.convert
        if rule.factors:
            scaled = self._scaled(rule, parent)
            if scaled is None:
                return
            convert = scaled
        event = self._event(rule, rule.event, rule.event.path, parent) if rule.event and rule.event.path else None
        self._emit(ready, value, captures, unit_code, time, convert=convert, event=event)

    def _event(self, rule: ReadingRule, given: EventRule, path: JsonPath, parent: object) -> Event:
        """Return the event with its id, if the payload has one."""
        found = path.first(self._start(path, parent))
        if found is None or isinstance(found, dict | list):
            self.out.problem(rule.mapping, "event", f'the payload has no id at "{path.text}"', kept=True)
            return given.event
        return given.event._replace(id=plain_text(found))

    def _scaled(self, rule: ReadingRule, parent: object) -> Converter | None:
        """Return the converter with the factors in the payload; None if one is missing."""
        scale = rule.convert.scale or Decimal(1)
        for path, power in rule.factors:
            raw = path.first(self._start(path, parent))
            factor = payload_factor(raw, power=power)
            if factor is None:
                self.out.problem(rule.mapping, rule.what, f'its scale at "{path.text}" is not a number of usual size')
                return None
            scale = EXACT.multiply(scale, factor)
        return replace(rule.convert, scale=scale)

    def _captures_of(self, rule: ReadingRule, parent: object) -> dict[str, str] | None:
        """Return the captures from the object that contains the value; None if it lacks one."""
        found: dict[str, str] = {}
        for name, path in rule.local_captures:
            value = path.first(parent)
            if value is None or isinstance(value, dict | list):
                self.out.problem(rule.mapping, name, "the object with the value lacks this capture, so it is not read")
                return None
            found[name] = plain_text(value)
        return found

    def _json_time(self, rule: ReadingRule, time: TimeRule, parent: object) -> datetime | None:
        path = time.path
        if path is None:
            return None
        if path.relative:
            return self._parse_time(rule, time, path.first(parent))
        # An absolute path gives one time for the whole message: parse it once, and report a bad one once.
        if time not in self._times:
            self._times[time] = self._parse_time(rule, time, path.first(self._start(path, parent)))
        return self._times[time]

    def _parse_time(self, rule: ReadingRule, time: TimeRule, raw: object) -> datetime | None:
        try:
            return time.format.parse(raw)
        except BadTimeError as error:
            self.out.problem(rule.mapping, "time", str(error), kept=True)
            return None

    def _text(self, bound: BoundMapping) -> None:
        text = self.message.text
        for ready in bound.rules:
            rule = ready.rule
            if rule.terms is None or text in rule.convert.absent or not rule.applies(self.message):
                continue
            if rule.regex is None:
                self._emit(ready, self._default_text(rule, text), {}, None, None)
                continue
            match = self._search(rule, text)
            if match is None:
                continue
            groups = match.groupdict()
            time = None
            if rule.time is not None and rule.time.group is not None:
                time = self._parse_time(rule, rule.time, groups.get(rule.time.group))
            self._emit(ready, group_value(match), named_groups(match), groups.get("unit"), time)

    def _default_text(self, rule: ReadingRule, text: str) -> str:
        convert = rule.convert
        if convert.table is not None or convert.kind in ("string", "boolean", "auto"):
            return text
        regex = _FIRST_COMMA_NUMBER if convert.decimal_comma else FIRST_NUMBER
        # The end position bounds the search: the time of a regular expression grows with the text.
        match = regex.search(text, 0, self.out.limits.regex_text)
        return match.group() if match is not None else text

    def _search(self, rule: ReadingRule, text: str) -> re.Match[str] | None:
        if len(text) > self.out.limits.regex_text:
            limit = self.out.limits.regex_text
            self.out.problem(
                rule.mapping, rule.what, f"has {len(text)} characters; a pattern is tried on up to {limit}"
            )
            return None
        match = rule.regex.search(text) if rule.regex is not None else None
        if match is None and (rule.required or (rule.path is not None and not rule.path.wild)):
            self.out.problem(rule.mapping, rule.what, f"the pattern is not found in {shown(text)}")
        return match

    def _senml(self, bound: BoundMapping) -> None:
        found = list(records(self.message.document, self.now))
        captures: dict[str, str] = {}
        # Records that serve as captures do not become readings.
        consumed = {str(place) for _, place in bound.mapping.captures}
        for name, place in bound.mapping.captures:
            value = next((record.value for record in found if record.name == place), None)
            if value is None or isinstance(value, dict | list):
                self.out.problem(bound.mapping.name, name, f'the pack has no record "{place}", so nothing is read')
                return
            captures[name] = plain_text(value)
        for record in found:
            if record.name in consumed:
                continue
            for ready in bound.rules:
                names = _record_names(ready.rule, record)
                if names is not None and ready.rule.applies(self.message):
                    self._record(ready, record, {**captures, **names, NAME: record.name})
                    break

    def _record(self, ready: BoundRule, record: SenmlRecord, captures: dict[str, str]) -> None:
        rule = ready.rule
        if rule.terms is None:
            return
        if record.time_fault is not None:
            self.out.problem(rule.mapping, "time", record.time_fault, kept=True)
        self._emit(ready, record.value, captures, record.unit, record.time, what=record.name)

    def _emit(
        self,
        ready: BoundRule,
        raw: object,
        captures: dict[str, str],
        unit_code: object,
        time: datetime | None,
        what: str | None = None,
        convert: Converter | None = None,
        event: Event | None = None,
    ) -> None:
        rule = ready.rule
        try:
            converted = (convert or rule.convert)(raw)
            if converted is None:
                return
            terms = ready.terms
            if terms is None:
                if ready.fault is not None:
                    raise CaptureError(ready.fault)
                terms = self.render(rule, {**captures, **ready.captures})
        # A wildcard also meets members of other kinds, such as texts among numbers. That is not a problem.
        except OtherKindError as error:
            if rule.path is None or not rule.path.wild:
                self.out.problem(rule.mapping, what or rule.what, str(error))
            return
        except (BadValueError, CaptureError) as error:
            self.out.problem(rule.mapping, what or rule.what, str(error))
            return
        unit = terms.unit if unit_code is None else self._unit(rule, unit_code, terms.unit)
        self.out.reading(
            Reading(
                terms.observation,
                converted[0],
                converted[1],
                unit,
                terms.location,
                terms.property,
                terms.sensor,
                terms.label,
                terms.comment,
                self.message.topic,
                time,
                rule.store,
                event if event is not None or rule.event is None else rule.event.event,
                False,
                terms.sensor_label,
                rule.existing,
            ),
            rule.mapping,
        )

    def _unit(self, rule: ReadingRule, code: object, fallback: str | None) -> str | None:
        unit = rule.units.get(code, _UNREAD) if isinstance(code, str) else _UNREAD
        if unit is _UNREAD:
            self.out.problem(
                rule.mapping, "unit", f"{shown(str(code))} is not a known unit; add it to `units`", kept=True
            )
            return fallback
        return unit if isinstance(unit, str) else fallback


def _record_names(rule: ReadingRule, record: SenmlRecord) -> dict[str, str] | None:
    names = rule.record.match(record.name)
    units = rule.record_unit.match(record.unit or "")
    return None if names is None or units is None else {**names, **units}
