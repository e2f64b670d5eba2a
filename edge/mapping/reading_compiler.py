"""Compiler of the readings in mapping files: one rule for each."""

from __future__ import annotations

import re
from typing import Final

from edge.mapping.captures import LEVELS, TOPIC
from edge.mapping.common_parts import CommonParts
from edge.mapping.conditions import compile_conditions, parted
from edge.mapping.conversion import converter, default_value, factors
from edge.mapping.errors import BadKeyError, FaultsOfTable, under
from edge.mapping.fault_reasons import because
from edge.mapping.file_units import FileUnits
from edge.mapping.inherited_keys import InheritedKeys
from edge.mapping.jsonpath import parse_path
from edge.mapping.model import ReadingSpec
from edge.mapping.payload_position import PayloadPosition, find_position
from edge.mapping.rule_warnings import first_of_several, several_values
from edge.mapping.rules import ReadingRule, TermTemplates
from edge.mapping.setter import Setter, compile_setter
from edge.mapping.settings import MappingLimits
from edge.mapping.template import Template, iri_template, text_template
from edge.mapping.time_store_event import event_rule, store_rules, time_rule
from edge.mapping.unused_keys import idle_keys, used_defaults
from edge.mapping.values import Converter

_IRI_KEYS: Final = ("unit", "location", "property", "sensor")
_TEXT_KEYS: Final = ("label", "comment", "sensor_label")


class ReadingCompiler:
    """Compiles the readings of one file."""

    def __init__(self, namespaces: dict[str, str], units: FileUnits, limits: MappingLimits) -> None:
        self._namespaces = namespaces
        self._units = units
        self._limits = limits
        self._templates: dict[tuple[bool, str, tuple[str, ...], frozenset[str]], Template] = {}
        """Compiled templates. A third of those in the gateway's own files differ from all others."""
        self.used: set[str] = set()
        """Keys of [defaults] that have an effect on a reading."""

    def compile(
        self, keys: InheritedKeys, common: CommonParts, faults: FaultsOfTable, *, only: bool, complete: bool
    ) -> ReadingRule | None:
        """Compile one reading. Adds all its faults to `faults`, and returns None if it cannot be used.

        `only`: whether its mapping has no other; `complete`: whether all captures of the mapping are known.
        """
        reading, payload, attempt = keys.reading, common.payload, faults.attempt
        place = attempt(lambda: find_position(reading, payload, common.names, common.many))
        terms = self._terms_or_unit(keys, place if complete else None, faults)
        convert = attempt(lambda: converter(keys, self._namespaces, self._limits))
        unit_from = keys.get("unit_from")
        unit_path = None if unit_from is None else attempt(lambda: under("unit_from", parse_path, str(unit_from)))
        units = self._units.codes(keys, payload, faults)
        scales = attempt(lambda: factors(keys, payload)) or ()
        time = None
        if place is not None:
            pattern = place.regex
            time = attempt(lambda: time_rule(keys.get("time"), payload, pattern, common.times))
        store = attempt(lambda: store_rules(keys.get("store")))
        event = attempt(lambda: event_rule(keys.get("event"), payload))
        when = () if reading is keys.mapping else attempt(lambda: compile_conditions(reading, payload, self._limits))
        default = attempt(lambda: default_value(reading, place))
        setter = attempt(lambda: self._setter(keys, common, terms, convert))
        if faults.fatal or place is None or convert is None or when is None or not complete:
            return None
        absolute, local = parted(when)
        rule = ReadingRule(
            mapping=common.name,
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
            required=_is_required(reading, place, only=only),
            store=store,
            event=event,
            when=absolute,
            local_when=(*common.local_when, *local),
            local_captures=common.local_captures,
            factors=scales,
            setter=setter,
            default=default,
            existing=bool(reading.existing),
        )
        self._warn(rule, keys, common, faults)
        return rule

    def _terms_or_unit(
        self, keys: InheritedKeys, place: PayloadPosition | None, faults: FaultsOfTable
    ) -> TermTemplates | None:
        """Compile the terms of a reading. `place`: None if captures are unknown; then only the unit is checked."""
        if keys.reading.ignore:
            return None
        if place is not None:
            return self._terms(keys, place, faults)
        unit = keys.get("unit")
        if unit is not None and "{" not in str(unit):
            faults.attempt(lambda: under("unit", lambda text: self._units.iri(text, faults), str(unit)))
        return None

    def _terms(self, keys: InheritedKeys, place: PayloadPosition, faults: FaultsOfTable) -> TermTemplates | None:
        templates: dict[str, Template | None] = {}
        for key in ("observation", *_IRI_KEYS, *_TEXT_KEYS):
            value = keys.get(key)
            try:
                if value is None:
                    templates[key] = None
                elif key in _TEXT_KEYS:
                    templates[key] = self._template(str(value), place, iri=False)
                else:
                    text = str(value)
                    # The name of a unit with captures is known only when a message has come.
                    if key == "unit" and "{" not in text:
                        text = f"<{self._units.iri(text, faults)}>"
                    templates[key] = self._template(text, place, iri=True)
            except BadKeyError as error:
                faults.add(error.under(key))
        observation = templates.pop("observation", None)
        if keys.get("observation") is None:
            faults.add(BadKeyError(because("observation_missing"), key="observation", allowed="an IRI or CURIE"))
        if observation is None or len(templates) < len(_IRI_KEYS) + len(_TEXT_KEYS):
            return None
        used = set(observation.names).union(*(each.names for each in templates.values() if each is not None))
        return TermTemplates(observation, tuple(templates.values()), tuple(sorted(used)))

    def _template(self, text: str, place: PayloadPosition, *, iri: bool) -> Template:
        """Return the template of an IRI or a text. Raises `BadKeyError`."""
        known = (iri, text, tuple(place.captures), frozenset(place.many))
        if (found := self._templates.get(known)) is not None:
            return found
        if iri:
            template = iri_template(text, self._namespaces, place.captures, place.many)
        else:
            template = text_template(text, place.captures)
        self._templates[known] = template
        return template

    def _setter(
        self, keys: InheritedKeys, common: CommonParts, terms: TermTemplates | None, convert: Converter | None
    ) -> Setter | None:
        setter = keys.reading.setter
        if setter is None:
            return None
        if keys.reading.ignore:
            raise BadKeyError("A value without a reading cannot be set.", key="set")
        if terms is None or convert is None:  # they have faults, which are reported
            return None
        # A command has no payload to capture from: only its topic and the IRI of the observation are known.
        from_payload = {name.removesuffix(LEVELS) for name in keys.mapping.captures or ()}
        available = {*common.names} - {TOPIC, *from_payload} | terms.observation.names
        return compile_setter(setter, convert, available, self._limits.payload)

    def _warn(self, rule: ReadingRule, keys: InheritedKeys, common: CommonParts, faults: FaultsOfTable) -> None:
        """Add warnings, and note which keys have no effect and which keys of [defaults] have one."""
        if several := several_values(rule, common):
            faults.warn(BadKeyError(several, key="observation"))
        for key, reason in first_of_several(rule):
            faults.warn(BadKeyError(reason, key=key))
        idle = idle_keys(keys.get, keys.reading, rule.convert, common.payload, rule.regex)
        common.idle.append(idle)
        self.used.update(used_defaults(keys.defaults, keys.reading, keys.mapping, idle))
        for error in [BadKeyError(reason, key=key) for key, reason in idle.items()]:
            if is_own(error, keys.reading):
                faults.warn(error)


def is_own(error: BadKeyError, reading: ReadingSpec) -> bool:
    """Return whether a fault is in a key of the reading, and not in one of its mapping or of [defaults]."""
    key = first_key(error)
    return getattr(reading, "setter" if key == "set" else key, True) is not None


def first_key(error: BadKeyError) -> str:
    """Return the key of a fault without the keys below it."""
    return re.split(r"[.\[]", error.fault.key or "", maxsplit=1)[0]


def _is_required(reading: ReadingSpec, place: PayloadPosition, *, only: bool) -> bool:
    """Return whether a message without the value does not match the mapping.

    A single reading is required by default: a message without it is probably of another kind. A mapping with several
    readings accepts messages that have only some of them.
    """
    if reading.required is not None:
        return reading.required
    if reading.default is not None:
        return False
    return only and (place.path is None or not place.path.wild)
