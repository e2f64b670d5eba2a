"""The paper's LUTT: a table of patterns for each subscription, all of them walked on every update (Table 4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from edge.bench.city import City
from edge.bench.primitives import COARSE, fine
from edge.engine.performance import clock

Table = list[tuple[tuple[int, int] | None, str]]
"""The patterns of one subscription: a subject (road and lamp, or road and 0) where that is a constant; a predicate."""


def tables_of(city: City) -> Iterator[Table]:
    """The look-up tables of the subscription profile (SPS Architecture, Table 4)."""
    for road, lamp in fine(city):
        yield [((road, lamp), "hasDimmingValue")]
    for road in COARSE:
        yield [((road, 0), "isConnectedTo"), (None, "hasLamp"), (None, "hasDimmingValue")]


def walk(tables: Sequence[Table], city: City, profile: str) -> tuple[int, int]:
    """Look for each update's changed lamps in every table. Returns nanoseconds, and how many tables were hit."""
    changes = [[(road, lamp) for lamp in city.lamps(road)[: 1 if profile == "lamp" else None]] for road in city.roads]
    hit = []
    began = clock()
    for lamps in changes:
        for table in tables:
            for subject_, predicate in table:
                if predicate == "hasDimmingValue" and (subject_ is None or subject_ in lamps):
                    hit.append(table)
                    break
    return clock() - began, len(hit)


def hit_rate(city: City, profile: str) -> float:
    """LHR, percent: of all pairs of an update and a subscription, those where a changed triple passes the table.

    It is a property of the profiles. The engine examines fewer tables: subscriptions that differ only in constants
    share one.
    """
    tables = list(tables_of(city))
    _, hits = walk(tables, city, profile)
    return 100 * hits / (len(city.roads) * len(tables))
