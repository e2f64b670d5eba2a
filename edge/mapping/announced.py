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
    taken = {id(each) for each in announced if _is_taken(each, constants, templates)}
    return [each for each in found if id(each) not in taken]


def _is_taken(mapping: CompiledMapping, constants: set[str], templates: Sequence[Template]) -> bool:
    for rule in mapping.rules:
        observation = None if rule.terms is None else rule.terms.observation.constant
        if observation is None:
            continue
        if observation in constants:
            return True
        for template in templates:
            # The beginning first: nearly all templates differ there, and a pattern is compiled for the others.
            start = template.parts[0]
            if isinstance(start, str) and observation.startswith(start) and template.match(observation, {}) is not None:
                return True
    return False


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
