"""Compiler of mapping files: checks all keys and builds compiled mappings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from edge.mapping.binary import layout
from edge.mapping.captures import TOPIC, check_names, first_of_several_captures, parted_captures, payload_captures
from edge.mapping.common_parts import CommonParts
from edge.mapping.conditions import compile_conditions, parted
from edge.mapping.decode import Decoder, decoder
from edge.mapping.errors import BadKeyError, Fault, FaultsOfTable, under
from edge.mapping.fault_reasons import because
from edge.mapping.file_units import FileUnits
from edge.mapping.inherited_keys import InheritedKeys
from edge.mapping.item_selection import Pick, pick
from edge.mapping.jsonpath import JsonPath, parse_path
from edge.mapping.model import MappingSpec, ReadingKeys
from edge.mapping.payload_position import DOCUMENTS
from edge.mapping.reading_compiler import ReadingCompiler, first_key, is_own
from edge.mapping.regexes import compile_regex
from edge.mapping.rule_warnings import shared_observation
from edge.mapping.rules import CompiledMapping, Condition, ReadingRule
from edge.mapping.settings import MappingLimits
from edge.mapping.topics import TopicPattern, parse_topic
from edge.mapping.unused_keys import idle_conditions, idle_in_all

_FIELDS: Final = 'fields = [{ name = "temperature", type = "i16" }]'


@dataclass(frozen=True, slots=True)
class _Captures:
    """Captures of a mapping."""

    names: Sequence[str]
    """Those of the topic and of the payload."""
    many: frozenset[str]
    """Those that may have several levels."""
    complete: bool
    """Whether there are no others. Otherwise templates would seem to use captures that nothing captures."""


class MappingCompiler:
    """Compiles the mappings of one file; `pack` is its name, `own` marks files of the operator."""

    def __init__(
        self,
        pack: str,
        namespaces: dict[str, str],
        units: FileUnits,
        defaults: ReadingKeys,
        *,
        own: bool,
        limits: MappingLimits,
    ) -> None:
        self._pack = pack
        self._defaults = defaults
        self._own = own
        self._limits = limits
        self._reading = ReadingCompiler(namespaces, units, limits)

    @property
    def used(self) -> set[str]:
        """Keys of the defaults that have an effect on a reading."""
        return self._reading.used

    def compile(self, spec: MappingSpec, faults: FaultsOfTable) -> CompiledMapping | None:
        """Compile one mapping. Adds all its faults to `faults`, and returns None if it cannot be used."""
        attempt = faults.attempt
        topic, regex = _topic(spec, faults)
        payload = spec.payload or _payload_kind(spec)
        if (payload == "binary") != (spec.fields is not None):
            faults.add(BadKeyError(because("binary_fields"), key="fields", allowed=_FIELDS))
        fields = None if spec.fields is None else attempt(lambda: layout(spec.fields or []))
        from_payload = attempt(lambda: payload_captures(spec, payload))
        when = attempt(lambda: compile_conditions(spec, payload, self._limits))
        each = attempt(lambda: _each(spec, payload))
        picked = attempt(lambda: _pick(spec))
        decode = attempt(lambda: _decode(spec, payload))
        captures = _captures(spec, topic, regex, from_payload, faults)
        name = f"{self._pack}/{spec.name or spec.topic or spec.topic_regex}"
        found = from_payload[0] if from_payload is not None else ()
        _warn(spec, found, faults)
        absolute, local = parted(when or ())
        fixed, moving = parted_captures(found)
        rules: tuple[ReadingRule, ...] = ()
        if spec.ignore:
            attempt(lambda: _only_routing_keys(spec, local))
        else:
            items = tuple(key for key, _ in fixed) if each is not None else ()
            one_by_one = each if picked is None else None
            common = CommonParts(name, payload, captures.names, captures.many, one_by_one, items, moving, local)
            rules = self._rules(spec, common, faults, complete=captures.complete)
        for error in faults.found:
            error.of_defaults = self._is_of_defaults(error, spec)
        if faults.fatal or topic is None:
            return None
        return CompiledMapping(
            name,
            self._pack,
            self._own,
            topic,
            regex,
            payload,
            fields,
            absolute,
            fixed,
            bool(spec.ignore),
            spec.also,
            each,
            picked,
            decode,
            rules,
        )

    def _rules(
        self, spec: MappingSpec, common: CommonParts, faults: FaultsOfTable, *, complete: bool
    ) -> tuple[ReadingRule, ...]:
        if spec.readings is None:
            keys = InheritedKeys(spec, spec, self._defaults)
            rule = self._reading.compile(keys, common, faults, only=True, complete=complete)
            return () if rule is None else (rule,)
        _check_keys_beside_readings(spec, faults)
        rules: list[ReadingRule] = []
        observations: dict[object, int] = {}
        for index, reading in enumerate(spec.readings):
            own = FaultsOfTable()
            keys = InheritedKeys(reading, spec, self._defaults)
            rule = self._reading.compile(keys, common, own, only=len(spec.readings) == 1, complete=complete)
            if rule is not None:
                rules.append(rule)
                observation = shared_observation(rule, common.names) or index
                if (earlier := observations.setdefault(observation, index)) != index:
                    reason = f"readings[{earlier}] has the same observation: the later value replaces the earlier one."
                    own.warn(BadKeyError(reason, key="observation"))
            for error in own.found:
                # A fault in a key of the mapping or of [defaults] would come once for each reading.
                if is_own(error, reading):
                    error.fault = _in_reading(error, index)
                elif any(error.fault == known.fault for known in faults.found):
                    continue
                faults.found.append(error)
        if len(common.idle) == len(spec.readings):
            for key, reason in idle_in_all(spec, common.idle):
                faults.warn(BadKeyError(reason, key=key))
        return tuple(rules)

    def _is_of_defaults(self, error: BadKeyError, spec: MappingSpec) -> bool:
        key = first_key(error)
        return (
            key in ReadingKeys.model_fields and getattr(spec, key) is None and getattr(self._defaults, key) is not None
        )


def _topic(spec: MappingSpec, faults: FaultsOfTable) -> tuple[TopicPattern | None, re.Pattern[str] | None]:
    """Compile the topic, and the regular expression for topics."""
    if spec.topic is None and spec.topic_regex is None:
        faults.add(BadKeyError(because("topic_missing"), key="topic", allowed="topic, topic_regex"))
    # With a regular expression alone, every topic is a candidate. The expression decides.
    topic = faults.attempt(lambda: under("topic", parse_topic, "#" if spec.topic is None else spec.topic))
    regex = None
    if spec.topic_regex is not None:
        regex = faults.attempt(lambda: under("topic_regex", compile_regex, spec.topic_regex or ""))
    return topic, regex


def _captures(
    spec: MappingSpec,
    topic: TopicPattern | None,
    regex: re.Pattern[str] | None,
    from_payload: tuple[Sequence[tuple[str, JsonPath | str]], frozenset[str]] | None,
    faults: FaultsOfTable,
) -> _Captures:
    """Combine all captures. `topic`, `regex` and `from_payload` are None if they have faults."""
    if topic is None or from_payload is None:
        return _Captures((), frozenset(), complete=False)
    groups = [*(regex.groupindex if regex is not None else ())]
    own = [name for name, _ in from_payload[0]]
    names = [*topic.names, *groups, *own, TOPIC]
    faults.attempt(lambda: check_names(names, own))
    many = frozenset({TOPIC, *topic.many, *groups, *from_payload[1]})
    return _Captures(names, many, complete=regex is not None or spec.topic_regex is None)


def _warn(spec: MappingSpec, captures: Sequence[tuple[str, JsonPath | str]], faults: FaultsOfTable) -> None:
    for reason in first_of_several_captures(captures):
        faults.warn(BadKeyError(reason, key="captures"))
    for key, reason in idle_conditions(spec.when if spec.ignore or spec.readings is not None else None):
        faults.warn(BadKeyError(reason, key=key))


def _check_keys_beside_readings(spec: MappingSpec, faults: FaultsOfTable) -> None:
    """Add a fault for each key that belongs to one reading, and one if there are no readings."""
    for key, field in (
        *((key, key) for key in ("path", "record", "record_unit", "pattern", "required", "default", "existing")),
        ("set", "setter"),
    ):
        if getattr(spec, field) is not None:
            faults.add(BadKeyError(because("in_readings", name=key), key=key))
    if not spec.readings:
        faults.add(BadKeyError(because("no_readings"), key="readings"))


def _each(spec: MappingSpec, payload: str) -> JsonPath | None:
    if spec.each is None:
        return None
    if payload not in DOCUMENTS:
        raise BadKeyError(f"A {payload} payload has no items.", key="each", allowed="json and binary payloads")
    path = under("each", parse_path, spec.each)
    if path.names or path.relative:
        raise BadKeyError("The path of the items has no captures, and begins at the document.", key="each")
    return path


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
