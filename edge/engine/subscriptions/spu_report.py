"""Report of the SPUs for operators: subscribed queries with their clients and their cost."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, Literal, get_args

from edge.engine.subscriptions.full_refresh import FullRefresh
from edge.engine.subscriptions.incremental_spu import IncrementalSpu
from edge.engine.subscriptions.reevaluated_spu import ReevaluatedSpu, Usage
from edge.engine.subscriptions.spu import Spu
from edge.engine.subscriptions.spu_registry import SpuRegistry

Cost = Literal["bytes", "notifications", "subscriptions", "seconds"]
"""Kind of cost by which SPUs are compared."""
COSTS: Final[tuple[Cost, ...]] = get_args(Cost)

_EXAMINED: Final = 20_000
"""SPUs that a report looks at, so that it takes at most some 50 ms of a Raspberry Pi's processor."""
_CLIENTS: Final = 10
"""Clients that a report of one SPU lists."""
_TEXT: Final = 4000
"""Characters of a query in a report."""


@dataclass(frozen=True, slots=True)
class SpuReport:
    """One SPU: a query, its subscriptions and its cost."""

    sparql: str
    """Text of the query in its first subscription, at most 4,000 characters."""
    kept: Literal["incremental", "re-evaluated"]
    reason: str
    """Reason of re-evaluation; empty for incremental evaluation."""
    subscriptions: int
    clients: Mapping[str, int]
    """Subscriptions of each client, most first, of at most ten clients. Empty: the gateway itself."""
    rows: int
    """Rows or groups in memory."""
    held: int
    """Approximate bytes of its result in memory."""
    notifications: int
    """Notifications to the present subscriptions so far."""
    usage: Usage | None
    """Cost of the evaluations; None for incremental evaluation."""


@dataclass(frozen=True, slots=True)
class SpuReports:
    """The most expensive SPUs."""

    reports: tuple[SpuReport, ...]
    """The most expensive first."""
    examined: int
    """SPUs among which they were chosen: those of the oldest 20,000 subscriptions."""


def report(registry: SpuRegistry, cost: Cost, most: int) -> SpuReports:
    """Return the SPUs with the highest cost, at most `most`.

    Any thread may call it while the engine works: each figure is one that the SPU has at some moment.
    """
    # `list` and `dict.fromkeys` run in C, so no other thread changes the registry meanwhile.
    spus = list(dict.fromkeys(islice(list(registry.by_spuid.values()), _EXAMINED)))
    chosen = heapq.nlargest(most, spus, key=_KEYS[cost])
    return SpuReports(tuple(map(_report, chosen)), len(spus))


def _report(spu: Spu) -> SpuReport:
    subscribers = list(spu.subscribers.values())
    clients = Counter(subscriber.client for subscriber in subscribers)
    assert isinstance(spu, IncrementalSpu | FullRefresh | ReevaluatedSpu), "there are three kinds"  # noqa: S101
    reason, usage = (spu.query.reason, replace(spu.usage)) if isinstance(spu, ReevaluatedSpu) else ("", None)
    return SpuReport(
        spu.query.request.sparql[:_TEXT],
        "incremental" if usage is None else "re-evaluated",
        reason,
        len(subscribers),
        dict(clients.most_common(_CLIENTS)),
        spu.kept,
        _held(spu),
        _notifications(spu),
        usage,
    )


def _held(spu: Spu) -> int:
    return spu.known.held if isinstance(spu, ReevaluatedSpu) else spu.held


def _notifications(spu: Spu) -> int:
    return sum([subscriber.sequence for subscriber in list(spu.subscribers.values())])


def _seconds(spu: Spu) -> float:
    return spu.usage.seconds if isinstance(spu, ReevaluatedSpu) else 0.0


_KEYS: Final[Mapping[Cost, Callable[[Spu], float]]] = {
    "bytes": _held,
    "notifications": _notifications,
    "subscriptions": lambda spu: len(spu.subscribers),
    "seconds": _seconds,
}
