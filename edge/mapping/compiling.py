"""Compiler of mapping files: checks all keys and builds compiled mappings."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from edge.mapping.binary import layout
from edge.mapping.decode import Decoder, decoder
from edge.mapping.errors import BadKeyError, Fault, FaultsOfTable, nearest, under
from edge.mapping.jsonpath import MEMBER, JsonPath, parse_path
from edge.mapping.model import ConditionSpec, EventSpec, MappingSpec, ReadingKeys, ReadingSpec, StoreSpec, TimeSpec
from edge.mapping.pick import Pick, pick
from edge.mapping.places import DOCUMENTS, NAME, PayloadPlace, find_place
from edge.mapping.reading import XSD, XSD_BOOLEAN, XSD_DECIMAL, XSD_DOUBLE, XSD_INTEGER, XSD_STRING, Event
from edge.mapping.regexes import compile_regex
from edge.mapping.rules import CompiledMapping, Condition, EventRule, Rule, TermTemplates, TimeRule
from edge.mapping.setter import Setter, compile_setter
from edge.mapping.settings import MappingLimits
from edge.mapping.store import StoreRules
from edge.mapping.template import Template, iri_template, text_template
from edge.mapping.terms import constant
from edge.mapping.times import time_format
from edge.mapping.topics import parse_topic
from edge.mapping.unit_symbols import UNIT_CODES
from edge.mapping.units import UNAMBIGUOUS_CODES, UnknownUnit, unit_iri
from edge.mapping.values import KINDS, BadValueError, Converter, literal
from edge.mapping.without_effect import Reasons, idle_conditions, idle_in_all, idle_keys, used_defaults

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


@dataclass(frozen=True, slots=True)
class _Known:
    """The parts that the readings of a mapping have in common."""

    name: str
    """Name of the mapping with that of its pack."""
    payload: str
    names: list[str]
    """Captures of the topic and of the payload."""
    many: set[str]
    """Those that may have several levels."""
    each: JsonPath | None
    items: tuple[str, ...]
    """Captures that differ between the items of `each`."""
    local_captures: tuple[tuple[str, JsonPath], ...]
    local_when: tuple[Condition, ...]
    times: dict[object, TimeRule] = field(default_factory=dict)
    """Readings with equal time keys share one rule, so that the evaluation parses a message's timestamp only once."""
    idle: list[Reasons] = field(default_factory=list)
    """Keys without effect of each compiled reading."""


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
        strict: bool,
        faults: FaultsOfTable,
    ) -> None:
        """`strict`: a unit that QUDT does not have is an error, and not a warning. Faults in `units` go to `faults`."""
        self.pack = pack
        self.namespaces = namespaces
        self.strict = strict
        table = self._units(units, faults)
        self.codes: dict[str, str | None] = {**UNAMBIGUOUS_CODES, **table}
        """Units by the codes in payloads, and in `unit`."""
        self.senml_codes: dict[str, str | None] = {**UNIT_CODES, **table}
        self.defaults = defaults
        self.own = own
        self.limits = limits
        self.used: set[str] = set()
        """Keys of the defaults that have an effect on a reading."""

    def compile(self, spec: MappingSpec, faults: FaultsOfTable) -> CompiledMapping | None:
        """Compile one mapping. Adds all its faults to `faults`, and returns None if it cannot be used."""
        attempt = faults.attempt
        if spec.topic is None and spec.topic_regex is None:
            faults.add(BadKeyError("A mapping needs a topic.", key="topic", allowed="topic, topic_regex"))
        # With a regular expression alone, every topic is a candidate. The expression decides.
        topic = attempt(lambda: under("topic", parse_topic, "#" if spec.topic is None else spec.topic))
        regex = None
        if spec.topic_regex is not None:
            regex = attempt(lambda: under("topic_regex", compile_regex, spec.topic_regex or ""))
        payload = spec.payload or _payload_kind(spec)
        if (payload == "binary") != (spec.fields is not None):
            faults.add(BadKeyError("Binary payloads have fields, and no others do.", key="fields", allowed=_FIELDS))
        fields = None if spec.fields is None else attempt(lambda: layout(spec.fields or []))
        captures = attempt(lambda: self._payload_captures(spec, payload))
        when = attempt(lambda: self._conditions(spec, payload))
        each = attempt(lambda: self._each(spec, payload))
        picked = attempt(lambda: _pick(spec))
        decode = attempt(lambda: _decode(spec, payload))
        names: list[str] = []
        many: set[str] = set()
        if topic is not None and captures is not None:
            groups = [*(regex.groupindex if regex else ())]
            names = [*topic.names, *groups, *(name for name, _ in captures[0]), TOPIC]
            many = {TOPIC, *topic.many, *groups, *captures[1]}
            attempt(lambda: _check_names(names, [name for name, _ in captures[0]]))
        # Otherwise templates would seem to use captures that nothing captures.
        complete = topic is not None and captures is not None and (regex is not None or spec.topic_regex is None)
        name = f"{self.pack}/{spec.name or spec.topic or spec.topic_regex}"
        for reason in _first_captures(captures[0] if captures is not None else ()):
            faults.warn(BadKeyError(reason, key="captures"))
        absolute, local = _parted(when or ())
        fixed, moving = _parted_captures(captures[0] if captures is not None else ())
        for key, reason in idle_conditions(spec.when if spec.ignore or spec.readings is not None else None):
            faults.warn(BadKeyError(reason, key=key))
        ignore = bool(spec.ignore)
        rules: tuple[Rule, ...] = ()
        if ignore:
            attempt(lambda: _only_routing_keys(spec, local))
        else:
            items = tuple(key for key, _ in fixed) if each is not None else ()
            known = _Known(name, payload, names, many, each if picked is None else None, items, moving, local)
            rules = self._rules(spec, known, faults, complete=complete)
        for error in faults.found:
            error.of_defaults = self._is_of_defaults(error, spec)
        if faults.fatal or topic is None:
            return None
        return CompiledMapping(
            name,
            self.pack,
            self.own,
            topic,
            regex,
            payload,
            fields,
            absolute,
            fixed,
            ignore,
            spec.also,
            each,
            picked,
            decode,
            rules,
        )

    def _rules(self, spec: MappingSpec, known: _Known, faults: FaultsOfTable, *, complete: bool) -> tuple[Rule, ...]:
        if spec.readings is None:
            rule = self._rule(spec, spec, known, faults, only=True, complete=complete)
            return () if rule is None else (rule,)
        for key, field_ in (
            *((key, key) for key in ("path", "record", "record_unit", "pattern", "required")),
            ("set", "setter"),
        ):
            if getattr(spec, field_) is not None:
                faults.add(BadKeyError(f'"{key}" belongs into the readings where there are any.', key=key))
        if not spec.readings:
            faults.add(BadKeyError("The list of readings is empty.", key="readings"))
        rules: list[Rule] = []
        observations: dict[object, int] = {}
        for index, reading in enumerate(spec.readings):
            own = FaultsOfTable()
            rule = self._rule(reading, spec, known, own, only=len(spec.readings) == 1, complete=complete)
            if rule is not None:
                rules.append(rule)
                if (earlier := observations.setdefault(shared_observation(rule, known.names) or index, index)) != index:
                    own.warn(
                        BadKeyError(
                            f"readings[{earlier}] has the same observation: the later value replaces the earlier one.",
                            key="observation",
                        )
                    )
            for error in own.found:
                # A fault in a key of the mapping or of [defaults] would come once for each reading.
                if _is_own(error, reading):
                    error.fault = _in_reading(error, index)
                elif any(error.fault == known_.fault for known_ in faults.found):
                    continue
                faults.found.append(error)
        if len(known.idle) == len(spec.readings):
            for key, reason in idle_in_all(spec, known.idle):
                faults.warn(BadKeyError(reason, key=key))
        return tuple(rules)

    def _is_of_defaults(self, error: BadKeyError, spec: MappingSpec) -> bool:
        key = _first_key(error)
        return (
            key in ReadingKeys.model_fields and getattr(spec, key) is None and getattr(self.defaults, key) is not None
        )

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
        known: _Known,
        faults: FaultsOfTable,
        *,
        only: bool,
        complete: bool,
    ) -> Rule | None:
        """Compile one reading. `complete`: whether all captures of the mapping are known."""
        attempt = faults.attempt
        found = attempt(lambda: find_place(reading, known.payload, known.names, known.many))
        place = found[0] if found is not None else PayloadPlace()
        terms = None
        if not reading.ignore and found is not None and complete:
            terms = self._terms(reading, mapping, found[1], found[2], faults)
        elif not reading.ignore and (unit := self._get("unit", reading, mapping)) is not None and "{" not in str(unit):
            attempt(lambda: under("unit", lambda text: self._unit(text, self.codes, faults, "unit"), str(unit)))
        convert = attempt(lambda: self._converter(reading, mapping))
        unit_from = self._get("unit_from", reading, mapping)
        unit_path = None
        if unit_from is not None:
            unit_path = attempt(lambda: under("unit_from", parse_path, str(unit_from)))
        units = self._unit_table(reading, mapping, known.payload, faults)
        factors = attempt(lambda: self._factors(reading, mapping, known.payload)) or ()
        time = None
        if found is not None:
            stamp = self._get("time", reading, mapping)
            time = attempt(lambda: self._time(stamp, known.payload, place.regex, known.times))
        store = attempt(lambda: self._store(self._get("store", reading, mapping)))
        event = attempt(lambda: self._event(self._get("event", reading, mapping), known.payload))
        when = () if reading is mapping else attempt(lambda: self._conditions(reading, known.payload))
        setter = attempt(lambda: self._setter(reading, mapping, known, terms, convert))
        if faults.fatal or convert is None or when is None or not complete:
            return None
        absolute, local = _parted(when)
        required = reading.required
        # A single reading is required by default: a message without it is probably of another kind. A mapping with
        # several readings accepts messages that have only some of them.
        if required is None:
            required = only and (place.path is None or not place.path.wild)
        rule = Rule(
            mapping=known.name,
            what=reading.path or reading.record or "value",
            terms=terms,
            convert=convert,
            path=place.path,
            record=place.record,
            record_unit=place.record_unit,
            regex=place.regex,
            unit_path=unit_path,
            units=units,
            time=time,
            required=required,
            store=store,
            event=event,
            when=absolute,
            local_when=(*known.local_when, *local),
            local_captures=known.local_captures,
            factors=factors,
            setter=setter,
        )
        if several := _several_values(rule, known):
            faults.warn(BadKeyError(several, key="observation"))
        for key, reason in _first_of_several(rule):
            faults.warn(BadKeyError(reason, key=key))
        idle = idle_keys(lambda key: self._get(key, reading, mapping), reading, convert, known.payload, place.regex)
        known.idle.append(idle)
        self.used.update(used_defaults(self.defaults, reading, mapping, idle))
        for error in [BadKeyError(reason, key=key) for key, reason in idle.items()]:
            if _is_own(error, reading):
                faults.warn(error)
        return rule

    def _setter(
        self,
        reading: ReadingSpec,
        mapping: MappingSpec,
        known: _Known,
        terms: TermTemplates | None,
        convert: Converter | None,
    ) -> Setter | None:
        if reading.setter is None:
            return None
        if reading.ignore:
            raise BadKeyError("A value without a reading cannot be set.", key="set")
        if terms is None or convert is None:  # they have faults, which are reported
            return None
        # A command has no payload to capture from: only its topic and the IRI of the observation are known.
        from_payload = {name.removesuffix(_LEVELS) for name in mapping.captures or ()}
        available = {*known.names} - {TOPIC, *from_payload} | terms.observation.names
        return compile_setter(reading.setter, convert, available, self.limits.payload)

    def _terms(
        self,
        reading: ReadingSpec,
        mapping: MappingSpec,
        known: Collection[str],
        many: set[str],
        faults: FaultsOfTable,
    ) -> TermTemplates | None:
        templates: dict[str, Template | None] = {}
        for key in ("observation", *_IRI_KEYS, *_TEXT_KEYS):
            value = self._get(key, reading, mapping)
            try:
                if value is None:
                    templates[key] = None
                elif key in _TEXT_KEYS:
                    templates[key] = text_template(str(value), known)
                else:
                    text = str(value)
                    # The name of a unit with captures is known only when a message has come.
                    if key == "unit" and "{" not in text:
                        text = f"<{self._unit(text, self.codes, faults, key)}>"
                    templates[key] = iri_template(text, self.namespaces, known, many)
            except BadKeyError as error:
                faults.add(error.under(key))
        observation = templates.pop("observation", None)
        if self._get("observation", reading, mapping) is None:
            faults.add(BadKeyError("A reading needs an observation.", key="observation", allowed="an IRI or CURIE"))
        if observation is None or len(templates) < len(_IRI_KEYS) + len(_TEXT_KEYS):
            return None
        used = set(observation.names).union(*(each.names for each in templates.values() if each is not None))
        return TermTemplates(observation, tuple(templates.values()), tuple(sorted(used)))

    def _unit(self, text: str, codes: Mapping[str, str | None], faults: FaultsOfTable, key: str) -> str:
        """Return the IRI of a unit. Raises `BadKeyError`."""
        try:
            return unit_iri(text, self.namespaces, codes)
        except UnknownUnit as error:
            if self.strict:
                raise
            faults.warn(error.under(key))
            return error.iri

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

    def _factors(self, reading: ReadingSpec, mapping: MappingSpec, payload: str) -> tuple[tuple[JsonPath, bool], ...]:
        found = []
        for key, power in (("scale_from", False), ("scale10_from", True)):
            text = self._get(key, reading, mapping)
            if text is None:
                continue
            if payload not in DOCUMENTS:
                raise BadKeyError(f"A {payload} payload has no path to a number.", key=key, allowed="scale")
            if reading.setter is not None and reading.setter.scale is None:
                raise BadKeyError(
                    "The reading is scaled; say how a desired value becomes that of the device.", key="set"
                )
            found.append((under(key, parse_path, str(text)), power))
        return tuple(found)

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

    def _units(self, table: Mapping[str, str], faults: FaultsOfTable) -> dict[str, str | None]:
        resolved: dict[str, str | None] = {}
        for code, unit in table.items():
            try:
                resolved[code] = self._unit(unit, UNAMBIGUOUS_CODES, faults, f'units."{code}"') if unit else None
            except BadKeyError as error:
                faults.add(error.under(f'units."{code}"'))
        return resolved

    def _unit_table(
        self, reading: ReadingSpec, mapping: MappingSpec, payload: str, faults: FaultsOfTable
    ) -> dict[str, str | None]:
        codes = self.senml_codes if payload == "senml" else self.codes
        tables = (self.defaults, mapping) if reading is mapping else (self.defaults, mapping, reading)
        sources = [source.units for source in tables if source.units]
        if not sources:
            return codes
        table = dict(codes)
        for source in sources:
            table.update(self._units(source, faults))
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

    def _event(self, value: object, payload: str) -> EventRule | None:
        if not isinstance(value, EventSpec):
            return EventRule(None, Event()) if value is True else None
        event = Event(within=None if value.within is None else float(value.within))
        if value.id is None and event.within is None:
            raise BadKeyError('The table says nothing: it needs "event.id" or "event.within".', key="event")
        if value.id is None:
            return EventRule(None, event)
        if payload not in DOCUMENTS:
            allowed = "event = true, event = { within = 2 }"
            raise BadKeyError(f"The payload {payload} has no paths.", key="event.id", allowed=allowed)
        return EventRule(under("event.id", parse_path, value.id), event)

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

    def _conditions(self, spec: ReadingSpec, payload: str) -> tuple[Condition, ...]:
        when = spec.when if isinstance(spec.when, list) else [spec.when] if spec.when is not None else []
        conditions = tuple(self._condition(each) for each in when)
        if payload not in DOCUMENTS and _parted(conditions)[1]:
            raise BadKeyError(f'"@" is the object that contains a value, and a {payload} payload has none.', key="when")
        return conditions

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


def _pick(spec: MappingSpec) -> Pick | None:
    if spec.pick is None:
        return None
    if spec.each is None:
        raise BadKeyError('"pick" selects one of the items of "each", which is missing.', key="pick")
    return pick(spec.pick)


def _decode(spec: MappingSpec, payload: str) -> Decoder | None:
    if spec.decode is None:
        return None
    if payload != "json":
        raise BadKeyError(f"A {payload} payload has no texts to decode.", key="decode")
    return decoder(spec.decode)


def _first_captures(captures: Sequence[tuple[str, JsonPath | str]]) -> Iterator[str]:
    """Yield warnings about captures of which a payload has several."""
    for name, path in captures:
        if isinstance(path, JsonPath) and path.wild:
            yield f'{{{name}}} is the first of several: "@" is the object that contains the value.'


def _parted(conditions: Sequence[Condition]) -> tuple[tuple[Condition, ...], tuple[Condition, ...]]:
    """Part conditions on the document from those on the object that contains the value ("@")."""
    local = tuple(each for each in conditions if each.path is not None and each.path.relative)
    return tuple(each for each in conditions if each not in local), local


def _parted_captures(
    captures: Sequence[tuple[str, JsonPath | str]],
) -> tuple[tuple[tuple[str, JsonPath | str], ...], tuple[tuple[str, JsonPath], ...]]:
    """Part captures from the document from those from the object that contains the value ("@")."""
    local = tuple((name, path) for name, path in captures if isinstance(path, JsonPath) and path.relative)
    return tuple(each for each in captures if each not in local), local


def _check_names(names: Sequence[str], from_payload: Collection[str]) -> None:
    """Raise `BadKeyError` if a capture is built in or defined twice. The last of the names is that of the topic."""
    if reserved := {MEMBER, NAME, TOPIC}.intersection(names[:-1]):
        word, reason = min(reserved), "is built in. Choose another name."
    elif doubled := {each for each in names if names.count(each) > 1}:
        word, reason = min(doubled), "is defined twice."
    else:
        return
    raise BadKeyError(f"The capture {{{word}}} {reason}", key="captures" if word in from_payload else "topic")


def shared_observation(rule: Rule, names: Collection[str]) -> object:
    """Return what tells the observation of a rule from others, if all its values of a topic go into one.

    None if they do not. `names`: captures that the topic, or the whole message, determines.
    """
    if rule.terms is None or rule.when or rule.local_when:
        return None
    observation = rule.terms.observation
    member = rule.path.member if rule.path is not None else None
    if not observation.names <= {*names, *([MEMBER] if member is not None else ())}:
        return None
    return observation.parts, member if MEMBER in observation.names else None


def _several_values(rule: Rule, known: _Known) -> str | None:
    """Return the warning about a rule that puts several values of a message into one observation."""
    if rule.terms is None or rule.local_when:
        return None
    used = rule.terms.observation.names
    varying = {name for name, _ in rule.local_captures} | set(rule.regex.groupindex if rule.regex is not None else ())
    path = rule.path
    if path is not None:
        # A fixed last name is the same for all values.
        varying |= {*path.names} if path.member is not None else {*path.names, MEMBER}
    if path is not None and path.wild and not used & varying:
        return f'All values of "{path.text}" go into one observation: use a capture of the path in it.'
    if known.each is not None and not rule.when and not used & {*varying, *known.items}:
        return f'The values of all items of "{known.each.text}" go into one observation: use a capture of the items.'
    if known.payload == "senml" and rule.record.literal is None and used <= {*known.names}:
        return "All records go into one observation: use {name} in it."
    return None


def _first_of_several(rule: Rule) -> Iterator[tuple[str, str]]:
    """Yield the keys with a path that leads to several values, of which only the first is used, and the warnings."""
    paths = [("time", rule.time.path if rule.time is not None else None), ("unit_from", rule.unit_path)]
    paths.append(("event.id", rule.event.path if rule.event is not None else None))
    for key, path in [*paths, *(("scale_from", path) for path, _ in rule.factors)]:
        if path is not None and path.wild:
            yield key, f'"{path.text}" is the first of several: "@" is the object that contains the value.'


def _is_own(error: BadKeyError, reading: ReadingSpec) -> bool:
    """Whether a fault is in a key of the reading, and not in one of its mapping or of [defaults]."""
    key = _first_key(error)
    return getattr(reading, "setter" if key == "set" else key, True) is not None


def _first_key(error: BadKeyError) -> str:
    return re.split(r"[.\[]", error.fault.key or "", maxsplit=1)[0]


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
    return "json" if paths or spec.captures or spec.each is not None or spec.decode is not None else "text"


def _only_routing_keys(spec: MappingSpec, local: Sequence[Condition]) -> None:
    if local:
        raise BadKeyError('A mapping that ignores its topic has no values, so nothing contains one ("@").', key="when")
    allowed = ("name", "topic", "topic_regex", "payload", "fields", "when", "ignore")
    for key in MappingSpec.model_fields:  # in their order: that of a set is another in each process
        if key not in allowed and key in spec.model_fields_set and getattr(spec, key) is not None:
            word = "set" if key == "setter" else key
            raise BadKeyError("A mapping that ignores its topic has no readings.", key=word, allowed=", ".join(allowed))
