"""Precedence of mappings that devices have announced: those of files and packs come first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from edge.mapping.evaluate import BoundMapping
from edge.mapping.rules import CompiledMapping
from edge.mapping.template import Template

Group = tuple[BoundMapping, ...]
"""Mappings of equal precedence for one topic."""


def without_taken(mappings: Iterable[CompiledMapping]) -> list[CompiledMapping]:
    """Return the mappings without announced ones that have an observation of another mapping."""
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
    common = _common_start([_observation(each) for each in announced])
    near = [each for each in templates if _can_begin(each, common)]
    taken = {id(each) for each in announced if _is_taken(_observation(each), constants, near)}
    return [each for each in found if id(each) not in taken]


def _observation(mapping: CompiledMapping) -> str:
    """Return the observation of an announced mapping, which has one reading."""
    terms = mapping.rules[0].terms
    return (terms.observation.constant or "") if terms is not None else ""


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
