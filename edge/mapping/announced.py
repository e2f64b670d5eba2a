"""Precedence of mappings that devices have announced: those of files and packs come first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from edge.mapping.evaluate import BoundMapping
from edge.mapping.rules import CompiledMapping, ReadingRule
from edge.mapping.template import Template

Group = tuple[BoundMapping, ...]
"""Mappings of equal precedence for one topic."""


def without_taken(mappings: Iterable[CompiledMapping]) -> list[CompiledMapping]:
    """Return the mappings without announced readings that have an observation of another mapping."""
    found = list(mappings)
    announced = [each for each in found if each.announced]
    if not announced:
        return found
    constants: set[str] = set()
    templates: list[Template] = []
    for mapping in found:
        for rule in mapping.rules if not mapping.announced else ():
            if rule.terms is not None:
                constant = rule.terms.observation.constant
                if constant is None:
                    templates.append(rule.terms.observation)
                else:
                    constants.add(constant)
    # Nearly all templates begin otherwise than every announced observation.
    common = _common_start([_observation(rule) for each in announced for rule in each.rules])
    near = [each for each in templates if _can_begin(each, common)]
    kept: list[CompiledMapping] = []
    for mapping in found:
        rules = mapping.rules
        if mapping.announced:
            rules = tuple(rule for rule in rules if not _is_taken(_observation(rule), constants, near))
            if not rules:
                continue
        kept.append(mapping if len(rules) == len(mapping.rules) else replace(mapping, rules=rules))
    return kept


def _observation(rule: ReadingRule) -> str:
    """Return the observation of an announced reading."""
    return (rule.terms.observation.constant or "") if rule.terms is not None else ""


def _common_start(texts: Sequence[str]) -> str:
    first, last = min(texts), max(texts)
    return first[: next((n for n, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), len(first))]


def _can_begin(template: Template, common: str) -> bool:
    start = template.parts[0]
    return isinstance(start, str) and (start.startswith(common) or common.startswith(start))


def _is_taken(observation: str, constants: set[str], templates: Sequence[Template]) -> bool:
    return observation in constants or any(each.match(observation, {}) is not None for each in templates)


def before_ignored(groups: list[Group]) -> tuple[Group, ...]:
    """Return the groups of a topic with the announced ones before those in which packs ignore it."""
    announced = [group for group in groups if group[0].mapping.announced]
    if not announced:
        return tuple(groups)
    others = groups[: -len(announced)]
    ignored = (n for n, group in enumerate(others) if not group[0].mapping.own and _ignores(group))
    at = next(ignored, len(others))
    return (*others[:at], *announced, *others[at:])


def _ignores(group: Group) -> bool:
    return all(bound.mapping.ignore for bound in group)
