"""What EXPLAIN tells: how a subscribed query is kept up to date, what that costs and why. Plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Effect = Literal["direct", "exact", "restricted", "everything"]
"""What is looked at when a triple that matches a pattern comes or goes.

`direct`: nothing but that triple. `exact`: the results that contain it. `restricted`: the results that have the same
values of some variables. `everything`: the whole query.
"""

Many = Literal["one", "together", "each"]
"""What a changed triple costs when many queries differ in nothing but constants: as much as one of them, one evaluation
for all of them together, or one for each."""


@dataclass(frozen=True, slots=True)
class PatternExplained:
    """What happens when a triple that matches a pattern comes or goes."""

    pattern: str
    """As SPARQL. The number and order of the patterns are those of the plan."""
    inside: str
    """The clause it is in (OPTIONAL, MINUS, ...); empty: every result contains a triple that matches it."""
    watched: str
    """The triples that concern it, with the constants that filters make its variables equal to."""
    matches: int
    """About how many triples that is now."""
    effect: Effect
    known: tuple[str, ...]
    """The variables whose values the triple decides."""
    text: str
    many: Many
    warning: str
    """What makes it dear, and what to do about it; empty: nothing."""


@dataclass(frozen=True, slots=True)
class Step:
    """How results are made of the solutions of the patterns."""

    name: str
    text: str
    keeps: str
    """What is kept in memory for it; empty: nothing."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """With whom the work is shared."""

    subscribers: int
    """Subscriptions to this query that are active now."""
    queries: int
    """Subscribed queries that differ from this one in the open constants alone; itself included if it is subscribed."""
    open: tuple[str, ...]
    """Constants in which such queries may differ."""
    closed: tuple[str, ...]
    """Constants that must be equal."""
    text: str


@dataclass(frozen=True, slots=True)
class Evaluations:
    """What re-evaluating a query has cost since it was subscribed."""

    count: int
    seconds: float
    share: float
    """Part of the time of the evaluations of all subscriptions, from 0 to 1."""
    merged: int
    """States of the graph that were skipped, because a later commit came before they were evaluated."""
    delay: float
    """Seconds between the last commit that concerned the query and its evaluation."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """How a subscribed query is, or would be, kept up to date."""

    form: str
    kept: Literal["incremental", "re-evaluated"]
    summary: str
    reason: str
    """Why it is evaluated anew; empty: it is not."""
    parts: tuple[tuple[PatternExplained, ...], ...]
    """The patterns. The solutions are those of all parts, each of which is evaluated apart."""
    steps: tuple[Step, ...]
    memory: str
    kept_rows: int | None
    """How many rows or groups are in memory; None: it is not subscribed."""
    sharing: Sharing
    evaluations: Evaluations | None
    """What re-evaluating the query has cost so far; None: it is not subscribed, or kept incrementally."""
    advice: tuple[str, ...]
    """What to know, and what could be written otherwise."""
