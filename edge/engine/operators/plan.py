"""A compiled pattern, and its triggers: the effects of a changed quad."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edge.engine.operators.layout import Places
from edge.engine.operators.operators import Condition, Operator, Scan
from edge.sparql.algebra import Triple


@dataclass(frozen=True, slots=True)
class OptionalRightSide:
    """The right side of an OPTIONAL, which leads from a quad that shares no variable with the left side to the
    solutions that the quad affects: `{ ?a :p ?b OPTIONAL { ?b :q ?c . ?c :r ?d } }` and a quad of `?c :r ?d`.
    """

    operator: Operator
    shared: tuple[tuple[int, int], ...]
    """Places of the variables that both sides certainly bind, and their places in the whole solution. Fewer pairs find
    more solutions than necessary.
    """


@dataclass(frozen=True, slots=True)
class Trigger:
    """A triple pattern in a plan. Only a quad that matches it can change the solutions."""

    places: Places
    fixes: tuple[int | None, int | None, int | None, int | None]
    """For each position of the quad the place in the whole solution that it determines, if unbound; None: no place."""
    exact: bool
    """Whether each affected solution contains the quad, so that it appears and disappears with it."""
    own: frozenset[int]
    """The places of `fixes` that nothing else in the plan uses, except `guards`."""
    steady: bool
    """Whether no expression except `guards` uses the other places, which therefore have few values."""
    guards: tuple[Condition, ...]
    """Conditions that depend only on a quad that matches."""
    scan: Scan
    pattern: Triple
    inside: tuple[str, ...]
    """See `Scope`."""
    reach: OptionalRightSide | None = None
    """How to find the affected solutions of a quad if `fixes` determine none of their variables. None: evaluate all."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A compiled pattern."""

    operator: Operator
    triggers: tuple[Trigger, ...]
    fixed: tuple[tuple[int, int], ...]
    """Places of variables, and of the constants that filters require them to equal."""
    shown: Mapping[int, int]
    """Places of parameters that may stay open, and the places of solutions that show their required values."""
    graph_names: bool
    """Whether the creation or removal of a named graph changes the solutions."""
