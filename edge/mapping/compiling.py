"""Compiler of mapping files: checks all keys and builds compiled mappings."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace
from typing import Final

from edge.mapping.binary import layout
from edge.mapping.errors import BadKeyError, Fault, nearest, under
from edge.mapping.jsonpath import MEMBER, JsonPath, parse_path
from edge.mapping.model import ConditionSpec, MappingSpec, ReadingKeys, ReadingSpec, StoreSpec, TimeSpec
from edge.mapping.places import DOCUMENTS, NAME, find_place
from edge.mapping.reading import XSD, XSD_BOOLEAN, XSD_DECIMAL, XSD_DOUBLE, XSD_INTEGER, XSD_STRING
from edge.mapping.regexes import compile_regex
from edge.mapping.rules import CompiledMapping, Condition, Rule, TermTemplates, TimeRule
from edge.mapping.setter import compile_setter
from edge.mapping.settings import MappingLimits
from edge.mapping.store import StoreRules
from edge.mapping.template import Template, iri_template, text_template
from edge.mapping.terms import constant
from edge.mapping.times import time_format
from edge.mapping.topics import TopicPattern, parse_topic
from edge.mapping.unit_symbols import UNIT_CODES
from edge.mapping.values import KINDS, BadValueError, Converter, literal

TOPIC: Final = "topic"
"""Built-in capture: the whole topic."""

_KIND_IRIS: Final = {
    XSD_DECIMAL: "decimal",
    XSD_INTEGER: "integer",
    XSD_DOUBLE: "double",
    XSD_BOOLEAN: "boolean",
    XSD_STRING: "string",
}
_IRI_KEYS: Final = ("unit", "location", "property", "sensor")
_TEXT_KEYS: Final = ("label", "comment")
_LEVELS: Final = "..."
"""End of the name of a payload capture that may hold several levels, as in topics."""
_FIELDS: Final = 'fields = [{ name = "temperature", type = "i16" }]'


class MappingCompiler:
    """Compiles the mappings of one file; `pack` is its name, `own` marks files of the operator."""

    def __init__(
        self,
        pack: str,
        namespaces: dict[str, str],
        units: dict[str, str],
        defaults: ReadingKeys,
        *,
        own: bool,
        limits: MappingLimits,
    ) -> None:
        self.pack = pack
        self.namespaces = namespaces
        self.units: dict[str, str | None] = {**UNIT_CODES, **self._units(units)}
        self.defaults = defaults
        self.own = own
        self.limits = limits

    def compile(self, spec: MappingSpec) -> CompiledMapping:
        """Compile one mapping. Raises `BadKeyError`."""
        if spec.topic is None and spec.topic_regex is None:
            raise BadKeyError("A mapping needs a topic.", key="topic", allowed="topic, topic_regex")
        # With a regular expression alone, every topic is a candidate. The expression decides.
        topic = under("topic", parse_topic, spec.topic or "#")
        regex = None if spec.topic_regex is None else under("topic_regex", compile_regex, spec.topic_regex)
        payload = spec.payload or _payload_kind(spec)
        if (payload == "binary") != (spec.fields is not None):
            raise BadKeyError("Binary payloads have fields, and no others do.", key="fields", allowed=_FIELDS)
        name = f"{self.pack}/{spec.name or spec.topic or spec.topic_regex}"
        captures, levels = self._payload_captures(spec, payload)
        from_payload = [capture for capture, _ in captures]
        names = [*topic.names, *(regex.groupindex if regex else ()), *from_payload, TOPIC]
        if reserved := {MEMBER, NAME, TOPIC}.intersection(names[:-1]):
            word = min(reserved)
            key = "captures" if word in from_payload else "topic"
            raise BadKeyError(f"The capture {{{word}}} is built in. Choose another name.", key=key)
        if doubled := {each for each in names if names.count(each) > 1}:
            word = min(doubled)
            key = "captures" if word in from_payload else "topic"
            raise BadKeyError(f"The capture {{{word}}} is defined twice.", key=key)
        many = {TOPIC, *topic.many, *(regex.groupindex if regex else ()), *levels}
        ignore = bool(spec.ignore)
        rules: tuple[Rule, ...] = ()
        if ignore:
            _only_routing_keys(spec)
        else:
            rules = self._rules(spec, name, payload, topic, names, many)
        return CompiledMapping(
            name,
            self.pack,
            self.own,
            topic,
            regex,
            payload,
            None if spec.fields is None else layout(spec.fields),
            self._conditions(spec),
            captures,
            ignore,
            spec.also,
            self._each(spec, payload),
            rules,
        )

    def _rules(
        self, spec: MappingSpec, name: str, payload: str, topic: TopicPattern, names: list[str], many: set[str]
    ) -> tuple[Rule, ...]:
        # Readings with equal time keys share one rule, so that the evaluation parses a message's timestamp only once.
        times: dict[object, TimeRule] = {}
        if spec.readings is None:
            return (self._rule(spec, spec, name, payload, names, many, times, only=True),)
        for key, field in (
            *((key, key) for key in ("path", "record", "record_unit", "pattern", "required")),
            ("set", "setter"),
        ):
            if getattr(spec, field) is not None:
                raise BadKeyError(f'"{key}" belongs into the readings where there are any.', key=key)
        if not spec.readings:
            raise BadKeyError("The list of readings is empty.", key="readings")
        rules = []
        for index, reading in enumerate(spec.readings):
            try:
                only = len(spec.readings) == 1
                rules.append(self._rule(reading, spec, name, payload, names, many, times, only=only))
            except BadKeyError as error:
                error.fault = _in_reading(error, index)
                raise
        return tuple(rules)

    def _get(self, key: str, reading: ReadingSpec, mapping: MappingSpec) -> object:
        # The first source with the key wins: the reading, its mapping, then the [defaults] of the file.
        for source in (reading, mapping, self.defaults):
            value: object = getattr(source, key)
            if value is not None:
                return value
        return None

    def _rule(
        self,
        reading: ReadingSpec,
        mapping: MappingSpec,
        name: str,
        payload: str,
        names: list[str],
        many: set[str],
        times: dict[object, TimeRule],
        *,
        only: bool,
    ) -> Rule:
        place, known, several = find_place(reading, payload, names, many)
        terms = None
        if not reading.ignore:
            terms = self._terms(reading, mapping, known, several)
        required = reading.required
        # A single reading is required by default: a message without it is probably of another kind. A mapping with
        # several readings accepts messages that have only some of them.
        if required is None:
            required = only and (place.path is None or not place.path.wild)
        unit_from = self._get("unit_from", reading, mapping)
        convert = self._converter(reading, mapping)
        setter = None
        if reading.setter is not None:
            if terms is None:
                raise BadKeyError("A value without a reading cannot be set.", key="set")
            # A command has no payload to capture from: only its topic and the IRI of the observation are known.
            from_payload = {name.removesuffix(_LEVELS) for name in mapping.captures or ()}
            available = {*names} - {TOPIC, *from_payload} | terms.observation.names
            setter = compile_setter(reading.setter, convert, available, self.limits.payload)
        return Rule(
            mapping=name,
            what=reading.path or reading.record or "value",
            terms=terms,
            convert=convert,
            path=place.path,
            record=place.record,
            record_unit=place.record_unit,
            regex=place.regex,
            unit_path=under("unit_from", parse_path, str(unit_from)) if unit_from is not None else None,
            units=self._unit_table(reading, mapping),
            time=self._time(self._get("time", reading, mapping), payload, place.regex, times),
            required=required,
            store=self._store(self._get("store", reading, mapping)),
            when=() if reading is mapping else self._conditions(reading),
            setter=setter,
        )

    def _terms(
        self, reading: ReadingSpec, mapping: MappingSpec, known: Collection[str], many: set[str]
    ) -> TermTemplates:
        templates: dict[str, Template | None] = {}
        for key in ("observation", *_IRI_KEYS, *_TEXT_KEYS):
            value = self._get(key, reading, mapping)
            try:
                if value is None:
                    templates[key] = None
                elif key in _TEXT_KEYS:
                    templates[key] = text_template(str(value), known)
                else:
                    templates[key] = iri_template(str(value), self.namespaces, known, many)
            except BadKeyError as error:
                raise error.under(key) from None
        observation = templates.pop("observation")
        if observation is None:
            raise BadKeyError("A reading needs an observation.", key="observation", allowed="an IRI or CURIE")
        used = set(observation.names).union(*(each.names for each in templates.values() if each is not None))
        return TermTemplates(observation, tuple(templates.values()), tuple(sorted(used)))

    def _converter(self, reading: ReadingSpec, mapping: MappingSpec) -> Converter:
        word = self._get("datatype", reading, mapping)
        kind, datatype = under("datatype", self._datatype, str(word) if word is not None else "number")
        table = None
        values = self._get("values", reading, mapping)
        if isinstance(values, dict):
            table = {}
            for text, value in values.items():
                try:
                    table[text] = literal(value, kind if word is not None and datatype is None else None)
                except BadValueError as error:
                    raise BadKeyError(f'The value for "{text}" {error}.', key="values") from None
        absent = self._get("absent", reading, mapping)
        return Converter(
            kind=kind,
            datatype=datatype,
            table=table,
            absent=frozenset(absent) if isinstance(absent, list) else frozenset(),
            **{
                name: self._get(key, reading, mapping)  # type: ignore[arg-type]
                for name, key in (("scale", "scale"), ("offset", "offset"), ("low", "min"), ("high", "max"))
            },
            decimal_comma=bool(self._get("decimal_comma", reading, mapping)),
            max_digits=self.limits.digits,
            max_text=self.limits.text,
        )

    def _datatype(self, word: str) -> tuple[str, str | None]:
        if word in KINDS:
            return word, None
        if ":" not in word:
            raise BadKeyError(
                f'"{word}" is not a datatype.', nearest=nearest(word, KINDS), allowed=", ".join(KINDS) + ", or an IRI"
            )
        iri = constant(word, self.namespaces)
        if iri in _KIND_IRIS:
            return _KIND_IRIS[iri], None
        # Other XSD datatypes: an unchecked text could be an ill-typed literal.
        if iri.startswith(XSD):
            raise BadKeyError(
                f'"{word}" is not offered, since its values could not be checked.', allowed=", ".join(KINDS)
            )
        return "string", iri

    def _units(self, table: dict[str, str]) -> dict[str, str | None]:
        resolved: dict[str, str | None] = {}
        for code, unit in table.items():
            try:
                resolved[code] = constant(unit, self.namespaces) if unit else None
            except BadKeyError as error:
                raise error.under(f'units."{code}"') from None
        return resolved

    def _unit_table(self, reading: ReadingSpec, mapping: MappingSpec) -> dict[str, str | None]:
        sources = [source.units for source in (self.defaults, mapping, reading) if source.units]
        if not sources:
            return self.units
        table = dict(self.units)
        for source in sources:
            table.update(self._units(source))
        return table

    def _time(
        self, value: object, payload: str, regex: re.Pattern[str] | None, known: dict[object, TimeRule]
    ) -> TimeRule | None:
        if value is None or payload == "senml":
            return None
        spec = value if isinstance(value, TimeSpec) else TimeSpec(path=str(value))
        if spec in known:
            return known[spec]
        try:
            form = time_format(spec.format, spec.zone)
            if payload in DOCUMENTS:
                rule = TimeRule(parse_path(spec.path), None, form)
            elif regex is not None and spec.path in regex.groupindex:
                rule = TimeRule(None, spec.path, form)
            else:
                raise BadKeyError(f'The pattern has no group "{spec.path}" for the time.', allowed="(?P<time>...)")
        except BadKeyError as error:
            raise error.under("time") from None
        known[spec] = rule
        return rule

    def _store(self, value: object) -> StoreRules | None:
        if not isinstance(value, StoreSpec):
            return None if value in (None, "none") else StoreRules(change=value == "change")
        if not value.model_fields_set:
            raise BadKeyError("The table says nothing.", key="store", allowed=", ".join(StoreSpec.model_fields))
        if value.change is False and value.dead_band is not None:
            raise BadKeyError("Readings with a dead band are stored on change anyway.", key="store.change")
        return StoreRules(bool(value.change) or value.dead_band is not None, value.dead_band, value.at_most_every)

    def _payload_captures(
        self, spec: MappingSpec, payload: str
    ) -> tuple[tuple[tuple[str, JsonPath | str], ...], frozenset[str]]:
        """Return the captures from the payload, and the names of those that may hold several levels."""
        found: list[tuple[str, JsonPath | str]] = []
        levels: set[str] = set()
        for key, place in (spec.captures or {}).items():
            name = key.removesuffix(_LEVELS)
            if payload == "text":
                raise BadKeyError("Captures of text payloads are named groups of the pattern.", key="captures")
            if not name.isidentifier():
                raise BadKeyError(f'"{name}" is not a valid capture name.', key="captures")
            if name != key:
                levels.add(name)
            found.append((name, place if payload == "senml" else under("captures", parse_path, place)))
        return tuple(found), frozenset(levels)

    def _each(self, spec: MappingSpec, payload: str) -> JsonPath | None:
        if spec.each is None:
            return None
        if payload not in DOCUMENTS:
            raise BadKeyError(f"A {payload} payload has no items.", key="each", allowed="json and binary payloads")
        path = under("each", parse_path, spec.each)
        if path.names or path.relative:
            raise BadKeyError("The path of the items has no captures, and begins at the document.", key="each")
        return path

    def _conditions(self, spec: ReadingSpec) -> tuple[Condition, ...]:
        when = spec.when if isinstance(spec.when, list) else [spec.when] if spec.when is not None else []
        return tuple(self._condition(each) for each in when)

    def _condition(self, spec: ConditionSpec) -> Condition:
        one_of = tuple(spec.one_of) if spec.one_of is not None else None
        if spec.equals is not None:
            one_of = (spec.equals,)
        regex = None if spec.matches is None else under("when", compile_regex, spec.matches)
        if spec.exists is None and one_of is None and regex is None:
            raise BadKeyError("A condition says nothing.", key="when", allowed="exists, equals, one_of, matches")
        if spec.path is None and spec.exists is not None:
            raise BadKeyError('"exists" needs a path.', key="when")
        path = None if spec.path is None else under("when", parse_path, spec.path)
        return Condition(path, spec.exists, one_of, regex, self.limits.regex_text)


def _in_reading(error: BadKeyError, index: int) -> Fault:
    key = f"readings[{index}]" + (f".{error.fault.key}" if error.fault.key else "")
    return replace(error.fault, key=key)


def _payload_kind(spec: MappingSpec) -> str:
    if spec.fields is not None:
        return "binary"
    readings = [spec, *(spec.readings or ())]
    if any(reading.record is not None or reading.record_unit is not None for reading in readings):
        return "senml"
    paths = any(reading.path is not None or reading.unit_from is not None for reading in readings)
    return "json" if paths or spec.captures or spec.each is not None else "text"


def _only_routing_keys(spec: MappingSpec) -> None:
    allowed = ("name", "topic", "topic_regex", "payload", "fields", "when", "ignore")
    for key in MappingSpec.model_fields:  # in their order: that of a set is another in each process
        if key not in allowed and key in spec.model_fields_set and getattr(spec, key) is not None:
            word = "set" if key == "setter" else key
            raise BadKeyError("A mapping that ignores its topic has no readings.", key=word, allowed=", ".join(allowed))
