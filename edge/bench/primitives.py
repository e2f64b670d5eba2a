"""The primitives and profiles of the benchmark, as the paper writes them (SPS Architecture, section V.B, Table 3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from edge.bench.city import NS, City, lamp_uri, road_uri

_PREFIX: Final = f"PREFIX ns: <{NS}>\n"
_ROAD: Final = """{{ ?lamp ns:hasDimmingValue ?dimming . ?post ns:hasLamp ?lamp .
?road ns:isConnectedTo ?post . FILTER(?road = <{road}>)}}"""

_FINE: Final = (range(1, 6), range(101, 105), range(201, 204), range(301, 308))
"""Roads of which every lamp is subscribed."""

COARSE: Final = (6, 105, 204, 308)
"""Roads that are subscribed as a whole."""


def u_lamp(road: int, lamp: int, value: int) -> str:
    """U_LAMP(X,Y): set the dimming value of one lamp."""
    subject = f"<{lamp_uri(road, lamp)}>"
    return (
        f"{_PREFIX}DELETE {{{subject} ns:hasDimmingValue ?dimming}}\n"
        f'INSERT {{{subject} ns:hasDimmingValue "{value}"}}\n'
        f"WHERE {{{subject} ns:hasDimmingValue ?dimming}}"
    )


def u_road(road: int, value: int) -> str:
    """U_ROAD(X): set the dimming value of all lamps of a road."""
    return (
        f"{_PREFIX}DELETE {{?lamp ns:hasDimmingValue ?dimming}}\n"
        f'INSERT {{?lamp ns:hasDimmingValue "{value}"}}\n'
        f"WHERE {_ROAD.format(road=road_uri(road))}"
    )


def s_lamp(road: int, lamp: int) -> str:
    """S_LAMP(X,Y): the dimming value of one lamp (fine grain)."""
    return f"{_PREFIX}SELECT ?dimming\nWHERE {{<{lamp_uri(road, lamp)}> ns:hasDimmingValue ?dimming}}"


def s_road(road: int) -> str:
    """S_ROAD(X): the dimming values of all lamps of a road (coarse grain)."""
    return f"{_PREFIX}SELECT ?lamp ?dimming\nWHERE {_ROAD.format(road=road_uri(road))}"


def fine(city: City) -> Iterator[tuple[int, int]]:
    """Road and number of the lamps that are subscribed one by one."""
    for roads in _FINE:
        for road in roads:
            for lamp in city.lamps(road):
                yield road, lamp


def subscriptions(city: City) -> Iterator[str]:
    """The subscription profile: 1,000 lamps and 4 roads in the city of the paper."""
    for road, lamp in fine(city):
        yield s_lamp(road, lamp)
    for road in COARSE:
        yield s_road(road)


def lamp_updates(city: City, value: int) -> list[str]:
    """The update profile LAMP: the first lamp of every road."""
    return [u_lamp(road, 1, value) for road in city.roads]


def road_updates(city: City, value: int) -> list[str]:
    """The update profile ROAD: every lamp of every road."""
    return [u_road(road, value) for road in city.roads]


def expected_notifications(experiment: str, city: City) -> int:
    """How many notifications a run of LAMP or ROAD sends: 23 and 1,004 in the city of the paper."""
    return len(COARSE) + (sum(map(len, _FINE)) if experiment == "lamp" else len(list(fine(city))))


def value_of_run(number: int) -> int:
    """The value that run `number` (from 0) writes: never the present one, so that every update changes something."""
    return 100 - number % 50
