"""The primitives and profiles of the benchmark, worded as in the paper (SPS Architecture, section V.B, Table 3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from edge.bench.city import NS, City, lamp_uri, road_uri

_PREFIX: Final = f"PREFIX ns: <{NS}>\n"
_ROAD: Final = """{{ ?lamp ns:hasDimmingValue ?dimming . ?post ns:hasLamp ?lamp .
?road ns:isConnectedTo ?post . FILTER(?road = <{road}>)}}"""

_FINE: Final = (range(1, 6), range(101, 105), range(201, 204), range(301, 308))
"""Roads with one subscription for each lamp."""

COARSE: Final = (6, 105, 204, 308)
"""Roads with one subscription for all lamps."""


def u_lamp(road: int, lamp: int, value: int) -> str:
    """Return U_LAMP(X,Y), which sets the dimming value of one lamp."""
    subject = f"<{lamp_uri(road, lamp)}>"
    return (
        f"{_PREFIX}DELETE {{{subject} ns:hasDimmingValue ?dimming}}\n"
        f'INSERT {{{subject} ns:hasDimmingValue "{value}"}}\n'
        f"WHERE {{{subject} ns:hasDimmingValue ?dimming}}"
    )


def u_road(road: int, value: int) -> str:
    """Return U_ROAD(X), which sets the dimming value of all lamps of a road."""
    return (
        f"{_PREFIX}DELETE {{?lamp ns:hasDimmingValue ?dimming}}\n"
        f'INSERT {{?lamp ns:hasDimmingValue "{value}"}}\n'
        f"WHERE {_ROAD.format(road=road_uri(road))}"
    )


def s_lamp(road: int, lamp: int) -> str:
    """Return S_LAMP(X,Y), which subscribes to the dimming value of one lamp (fine grain)."""
    return f"{_PREFIX}SELECT ?dimming\nWHERE {{<{lamp_uri(road, lamp)}> ns:hasDimmingValue ?dimming}}"


def s_road(road: int) -> str:
    """Return S_ROAD(X), which subscribes to the dimming values of all lamps of a road (coarse grain)."""
    return f"{_PREFIX}SELECT ?lamp ?dimming\nWHERE {_ROAD.format(road=road_uri(road))}"


def fine(city: City) -> Iterator[tuple[int, int]]:
    """Yield road and number of each lamp that has its own subscription."""
    for roads in _FINE:
        for road in roads:
            for lamp in city.lamps(road):
                yield road, lamp


def subscriptions(city: City) -> Iterator[str]:
    """Yield the subscription profile: 1,000 lamps and 4 roads in the city of the paper."""
    for road, lamp in fine(city):
        yield s_lamp(road, lamp)
    for road in COARSE:
        yield s_road(road)


def lamp_updates(city: City, value: int) -> list[str]:
    """Return the update profile LAMP: the first lamp of every road."""
    return [u_lamp(road, 1, value) for road in city.roads]


def road_updates(city: City, value: int) -> list[str]:
    """Return the update profile ROAD: every lamp of every road."""
    return [u_road(road, value) for road in city.roads]


def expected_notifications(experiment: str, city: City) -> int:
    """Return the number of notifications of a run of LAMP or ROAD: 23 and 1,004 in the city of the paper."""
    return len(COARSE) + (sum(map(len, _FINE)) if experiment == "lamp" else len(list(fine(city))))


def value_of_run(number: int) -> int:
    """Return the value that run `number` (from 0) writes.

    It differs from the current value of every lamp, so each update changes the graph.
    """
    return 100 - number % 50
