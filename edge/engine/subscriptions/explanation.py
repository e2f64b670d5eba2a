"""Data classes of EXPLAIN: the evaluation of a subscribed query, its cost and the reasons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Effect = Literal["direct", "exact", "restricted", "everything"]
"""Work for a change of a triple that matches a pattern.

`direct`: no lookup. `exact`: the results that contain the triple. `restricted`: the results with the same values of
some variables. `everything`: the whole query.
"""

Many = Literal["one", "together", "each"]
"""Cost of a changed triple for many queries that differ only in constants: that of one query, one evaluation for all of
them together, or one evaluation for each."""


@dataclass(frozen=True, slots=True)
class PatternExplained:
    """Effect of a change of a triple that matches a pattern."""

    pattern: str
    """The pattern in SPARQL. Number and order of the patterns are those of the plan."""
    inside: str
    """The clause of the pattern (OPTIONAL, MINUS, ...); empty if every result contains a matching triple."""
    watched: str
    """The watched triples, with the constants that filters require for the variables."""
    matches: int
    """Approximate number of such triples now."""
    effect: Effect
    known: tuple[str, ...]
    """The variables whose values the triple determines."""
    text: str
    many: Many
    warning: str
    """Reason of a high cost, with a remedy; empty for a low cost."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step from the solutions of the patterns to the result."""

    name: str
    text: str
    keeps: str
    """Content of the memory of this step; empty if it holds nothing."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """Subscriptions that share the work."""

    subscribers: int
    """Number of active subscriptions to this query."""
    queries: int
    """Number of subscribed queries that differ only in the open constants, including this one if it is subscribed."""
    open: tuple[str, ...]
    """Constants in which such queries may differ."""
    closed: tuple[str, ...]
    """Constants that must be equal."""
    text: str


@dataclass(frozen=True, slots=True)
class Evaluations:
    """Cost of the re-evaluations of a query since it was subscribed."""

    count: int
    seconds: float
    share: float
    """Fraction of the evaluation time of all subscriptions, from 0 to 1."""
    merged: int
    """States of the graph that were skipped, because a later commit came before their evaluation."""
    delay: float
    """Seconds between the last relevant commit and its evaluation."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """How the engine keeps, or would keep, a subscribed query up to date."""

    form: str
    kept: Literal["incremental", "re-evaluated"]
    summary: str
    reason: str
    """Reason of re-evaluation; empty for incremental evaluation."""
    parts: tuple[tuple[PatternExplained, ...], ...]
    """The patterns. Each part is evaluated separately, and all of them contribute solutions."""
    steps: tuple[Step, ...]
    memory: str
    kept_rows: int | None
    """Number of rows or groups in memory; None without a subscription."""
    sharing: Sharing
    evaluations: Evaluations | None
    """Cost of re-evaluation so far; None without a subscription, or for incremental evaluation."""
    advice: tuple[str, ...]
    """Hints and possible rewrites of the query."""
