"""Answers to the questions of `examples/city` by plain Python, from all readings and the times of their arrival.

Shares no code with the gateway. As in the gateway, a window is a set: equal values of an observation count once.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import ROUND_FLOOR, Decimal
from pathlib import Path
from typing import ClassVar, NamedTuple

import pyoxigraph as ox

CITY = "http://example.org/city/"
MAP = Path(__file__).parents[2] / "examples" / "city" / "map.ttl"

Row = tuple[object, ...]
Rows = set[Row]
Pairs = set[tuple[str, Decimal]]
"""Observations, without their common beginning, and values."""
Report = tuple[float, Rows]
"""Time and rows. The answers of ASK are rows, too."""


class Reading(NamedTuple):
    """An element of the stream of observations. `time`: seconds since the begin of the queries."""

    time: float
    observation: str
    value: Decimal


class Located(NamedTuple):
    """A reading of a sensor in a known city, as question 7 makes it."""

    sensor: str
    city: str
    temperature: Decimal
    dust: Decimal


def new_readings(time: float, messages: Iterable[tuple[str, str]], state: dict[str, object]) -> Iterator[Reading]:
    """Yield what is new in the messages of a step. `state`: last value and time of each observation."""
    for topic, payload in messages:
        kind, _, name = topic.partition("/")
        content = json.loads(payload)
        if kind == "parking":
            values, stamp = {"cars": content["vehiclecount"]}, content["updatetime"]
        else:
            values, stamp = {each["n"]: each["v"] for each in content["e"] if "v" in each}, content["bt"]
        for member, text in values.items():
            observation, value = f"{name}/{member}", Decimal(text)
            if state.get(observation) != (value, stamp):
                state[observation] = value, stamp
                yield Reading(time, observation, value)


class Knowledge:
    """The map, with its predicates as members."""

    def __init__(self) -> None:
        self._facts: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        for triple in ox.parse(MAP.read_bytes(), ox.RdfFormat.TURTLE):
            predicate = triple.predicate.value.rpartition("/")[2].rpartition("#")[2]
            self._facts[predicate][triple.subject.value.removeprefix(CITY)].append(
                triple.object.value.removeprefix(CITY)
            )
        self.parks = {park: Decimal(spaces) for park, (spaces,) in self._facts["spaces"].items()}
        self.cities = [name for name, kinds in self._facts["type"].items() if "City" in kinds]

    def near(self, place: str) -> list[str]:
        return [park for park, places in self._facts["near"].items() if place in places]

    def parks_in(self, city: str) -> list[str]:
        return [park for park, cities in self._facts["in"].items() if city in cities]

    def cities_at(self, longitude: Decimal, latitude: Decimal) -> list[str]:
        west, east, south, north = (self._facts[side] for side in ("west", "east", "south", "north"))
        return [
            city
            for city in self.cities
            if Decimal(west[city][0]) <= longitude <= Decimal(east[city][0])
            and Decimal(south[city][0]) <= latitude <= Decimal(north[city][0])
        ]


class Answers:
    """Reports of all questions from the begin of the queries to the end of the readings."""

    def __init__(self, readings: Sequence[Reading], epoch: int, end: int) -> None:
        """`epoch`: begin of the queries in seconds since 1970. `end`: seconds since then."""
        self._readings = readings
        self._epoch = epoch
        self._end = end
        self._map = Knowledge()

    def of(self, title: str) -> list[Report]:
        """Return the reports of a question with all rows, also those without any."""
        number = title.partition("-")[0]
        if number == "10":
            return list(self._hottest())
        step, rows = self._questions[number]
        return [(time, rows(self, time)) for time in range(1, self._end + 1) if (self._epoch + time) % step == 0]

    def _window(self, end: int, size: int) -> Pairs:
        return {(each.observation, each.value) for each in self._readings if end - size <= each.time < end}

    def _cars(self, end: int, size: int) -> set[tuple[str, Decimal]]:
        return {
            (name.removesuffix("/cars"), value)
            for name, value in self._window(end, size)
            if name.removesuffix("/cars") in self._map.parks
        }

    def _free_spaces(self, time: int) -> Rows:
        least: dict[str, Decimal] = {}
        for park, cars in self._cars(time, 4):
            if park in self._map.near("Theatre"):
                free = self._map.parks[park] - cars
                least[park] = min(free, least.get(park, free))
        return set(least.items())

    def _full(self, time: int) -> Rows:
        return {(park,) for park, cars in self._cars(time, 1) if cars >= self._map.parks[park]}

    def _silent(self, time: int) -> Rows:
        heard = {park for park, _ in self._cars(time, 3)}
        return {(park,) for park in self._map.parks if park not in heard}

    def _fullest(self, time: int) -> Rows:
        lately = self._cars(time, 12)
        return {
            (park, cars)
            for park, cars in self._cars(time, 1)
            if not any(other == park and more > cars for other, more in lately)
        }

    def _crowded(self, time: int) -> Rows:
        cars = self._cars(time, 1)
        return {(2 * sum(number for _, number in cars) > sum(self._map.parks[park] for park, _ in cars),)}

    def _located(self, time: int) -> list[Located]:
        window = self._window(time, 1)

        def values(sensor: str, member: str) -> list[Decimal]:
            return [value for name, value in window if name == f"{sensor}/{member}"]

        return [
            Located(sensor, city, temperature, dust)
            for sensor, temperature in ((n.removesuffix("/temperature"), v) for n, v in window if "/temperature" in n)
            for longitude in values(sensor, "longitude")
            for latitude in values(sensor, "latitude")
            for dust in values(sensor, "dust")
            for city in self._map.cities_at(longitude, latitude)
        ]

    def _stream(self, end: int, size: int) -> list[Located]:
        """Return the content of a window on the stream of question 7, whose elements have the times of its reports."""
        return [each for time in range(max(end - size, 1), end) for each in self._located(time)]

    def _climate(self, time: int) -> Rows:
        return {(city, Decimal(len(found)), _mean(found)) for city, found in self._temperatures(time).items()}

    def _temperatures(self, time: int) -> dict[str, list[Decimal]]:
        found = defaultdict(list)
        for each in self._stream(time, 10):
            found[each.city].append(each.temperature)
        return found

    def _lost(self, time: int) -> Rows:
        window = self._window(time, 5)
        return {
            (x.removesuffix("/longitude"), longitude, latitude)
            for x, longitude in window
            for y, latitude in window
            if x.endswith("/longitude")
            and y == x.replace("/longitude", "/latitude")
            and not self._map.cities_at(longitude, latitude)
        }

    def _hottest(self) -> Iterator[Report]:
        elements = [(time, found) for time in range(1, self._end + 1) if (found := self._located(time))]
        for count in range(5, len(elements) + 1, 5):
            highest: dict[str, Decimal] = {}
            for _, found in elements[max(0, count - 10) : count]:
                for each in found:
                    highest[each.city] = max(each.temperature, highest.get(each.city, each.temperature))
            yield elements[count - 1][0], set(highest.items())

    def _dust_alarm(self, time: int) -> Rows:
        found = defaultdict(set)
        for each in self._stream(time, 20):
            if each.dust > 2000:
                found[each.city].add(each.sensor)
        return {(city, Decimal(len(sensors))) for city, sensors in found.items() if len(sensors) >= 3}

    def _overview(self, time: int) -> Rows:
        means = {city: _mean(found) for city, found in self._temperatures(time).items()}
        cars = self._cars(time, 1)
        rows: Rows = set()
        for city in self._map.cities:
            free = [self._map.parks[park] - number for park, number in cars if park in self._map.parks_in(city)]
            rows.add((city, means.get(city), sum(free) if free else None))
        return rows

    _questions: ClassVar[dict[str, tuple[int, Callable[[Answers, int], Rows]]]] = {
        "01": (2, _free_spaces),
        "02": (1, _full),
        "03": (1, _full),
        "04": (3, _silent),
        "05": (1, _fullest),
        "06": (1, _crowded),
        "07": (1, lambda self, time: set(self._located(time))),
        "08": (5, _climate),
        "09": (5, _lost),
        "11": (5, _dust_alarm),
        "12": (5, _overview),
    }
    """Step of the reports, and rows of a report, by the number of the question."""


def _mean(values: Sequence[Decimal]) -> Decimal:
    # ROUND of SPARQL rounds half up, also below zero.
    return (sum(values, Decimal(0)) / len(values) * 10 + Decimal("0.5")).quantize(Decimal(1), ROUND_FLOOR) / 10


def selected(reports: Sequence[Report], operator: str) -> list[Report]:
    """Return what ISTREAM or DSTREAM select of reports with all rows."""
    found, before = [], set()
    for time, rows in reports:
        chosen = rows - before if operator == "ISTREAM" else before - rows
        if chosen:
            found.append((time, chosen))
        before = rows
    return found
