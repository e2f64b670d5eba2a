"""Warnings about compiled readings: values that would replace each other, and paths of which only the first counts."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from edge.mapping.captures import TOPIC
from edge.mapping.common_parts import CommonParts
from edge.mapping.errors import BadKeyError
from edge.mapping.fault_reasons import because
from edge.mapping.jsonpath import MEMBER
from edge.mapping.rules import CompiledMapping, ReadingRule


def shared_observation(rule: ReadingRule, names: Collection[str]) -> object:
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


def several_values(rule: ReadingRule, common: CommonParts) -> str | None:
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
    if common.each is not None and not rule.when and not used & {*varying, *common.items}:
        return f'The values of all items of "{common.each.text}" go into one observation: use a capture of the items.'
    if common.payload == "senml" and rule.record.literal is None and used <= {*common.names}:
        return "All records go into one observation: use {name} in it."
    return None


def first_of_several(rule: ReadingRule) -> Iterator[tuple[str, str]]:
    """Yield the keys with a path that leads to several values, of which only the first is used, and the warnings."""
    paths = [("time", rule.time.path if rule.time is not None else None), ("unit_from", rule.unit_path)]
    paths.append(("event.id", rule.event.path if rule.event is not None else None))
    for key, path in [*paths, *(("scale_from", path) for path, _ in rule.factors)]:
        if path is not None and path.wild:
            yield key, f'"{path.text}" is the first of several: "@" is the object that contains the value.'


def repeated_observations(mapping: CompiledMapping, observations: dict[object, CompiledMapping]) -> list[BadKeyError]:
    """Return warnings about observations that other mappings have (`observations`), and add those of this one."""
    found = []
    for rule in mapping.rules if not mapping.when else ():
        key = shared_observation(rule, (*mapping.topic.names, TOPIC))
        if key is None:
            continue
        # Without captures, it is the same for all topics.
        constant = rule.terms is not None and rule.terms.observation.constant is not None
        other = observations.setdefault(key if constant else (mapping.topic.text, key), mapping)
        if other is not mapping:
            error = BadKeyError(because("same_observation", name=other.name), key="observation")
            error.warning = True
            found.append(error)
    return found
