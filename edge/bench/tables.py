"""The LUTT of the paper: one table of patterns for each subscription. Every update searches all tables (Table 4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from edge.bench.city import City
from edge.bench.primitives import COARSE, fine
from edge.engine.performance import clock

Table = list[tuple[tuple[int, int] | None, str]]
"""Patterns of one subscription: subject and predicate. A constant subject is (road, lamp) or (road, 0), else None."""


def tables_of(city: City) -> Iterator[Table]:
    """Yield the look-up tables of the subscription profile (SPS Architecture, Table 4)."""
    for road, lamp in fine(city):
        yield [((road, lamp), "hasDimmingValue")]
    for road in COARSE:
        yield [((road, 0), "isConnectedTo"), (None, "hasLamp"), (None, "hasDimmingValue")]


def walk(tables: Sequence[Table], city: City, profile: str) -> tuple[int, int]:
    """Search every table for the lamps that each update changes. Return the duration (ns) and the number of hits."""
    changes = [[(road, lamp) for lamp in city.lamps(road)[: 1 if profile == "lamp" else None]] for road in city.roads]
    hit = []
    began = clock()
    for lamps in changes:
        for table in tables:
            for subject_, predicate in table:
                if predicate == "hasDimmingValue" and (subject_ is None or subject_ in lamps):
                    hit.append(table)
                    break  # a subscription counts once for each update
    return clock() - began, len(hit)


def hit_rate(city: City, profile: str) -> float:
    """Return the look-up hit rate (LHR) in percent: the pairs of update and subscription in which a triple matches.

    The rate is a property of the profiles. The engine searches fewer tables, because subscriptions that differ only in
    constants share one.
    """
    tables = list(tables_of(city))
    _, hits = walk(tables, city, profile)
    return 100 * hits / (len(city.roads) * len(tables))
