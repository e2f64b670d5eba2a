"""Cost of one reading for a subscription with an aggregate, OPTIONAL or NOT EXISTS, compared with the plain join."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

import pyoxigraph as ox

from edge.bench.city import NS
from edge.bench.experiment import ExperimentOptions, ExperimentReport, Figure, steps
from edge.bench.subject import subject

_PREFIX: Final = f"PREFIX ns: <{NS}>\n"
_PLAIN: Final = "?sensor ns:isOn ?road ; ns:hasValue ?value"

QUERIES: Final = {
    "join": f"SELECT ?road ?sensor ?value WHERE {{ {_PLAIN} }}",
    "avg": f"SELECT ?road (AVG(?value) AS ?mean) WHERE {{ {_PLAIN} }} GROUP BY ?road",
    "optional": "SELECT ?sensor ?road ?value WHERE { ?sensor ns:isOn ?road OPTIONAL { ?sensor ns:hasValue ?value } }",
    "not_exists": f"SELECT ?sensor ?value WHERE {{ {_PLAIN} FILTER NOT EXISTS {{ ?sensor ns:hasFault ?fault }} }}",
    "in_not_exists": "SELECT ?sensor ?road WHERE { ?sensor ns:isOn ?road "
    "FILTER NOT EXISTS { ?sensor ns:hasValue ?value FILTER(?value >= 50) } }",
}
"""The subscriptions. The NOT EXISTS of the last one is about the reading itself, so each reading changes its result."""

_ROADS: Final = 310
_UPDATES: Final = 200


def run(options: ExperimentOptions) -> ExperimentReport:
    """Measure one engine for each subscription. All have the same sensors and get the same readings alternately."""
    sensors = 1_000 if options.small else 10_000
    quads = list(_sensors(sensors))
    costs: dict[str, list[float]] = {name: [] for name in QUERIES}
    with ExitStack() as stack:
        engines = {name: stack.enter_context(subject(quads, options)) for name in QUERIES}
        for name, query in QUERIES.items():
            engines[name].subscribe([_PREFIX + query])
        for turn in steps(range(options.runs), "operators"):
            # Spread the readings evenly over the sensors.
            texts = [_reading(sensor * (sensors // _UPDATES), turn) for sensor in range(_UPDATES)]
            for name, engine in engines.items():
                done = engine.round(texts)
                engine.check(_UPDATES)
                costs[name].append(done.spent / done.updates / 1000)
    figures = [Figure(f"{name}_us", f"one reading, {name.replace('_', ' ')}, us", costs[name]) for name in QUERIES]
    for name in list(QUERIES)[1:]:
        ratios = [cost / plain for cost, plain in zip(costs[name], costs["join"], strict=True)]
        figures.append(Figure(f"{name}_to_join", f"{name.replace('_', ' ')} / join", ratios))
    indicators = {
        "subscriptions": [1] * options.runs,
        "updates": [_UPDATES] * options.runs,
        "notifications": [_UPDATES] * options.runs,
    }
    return ExperimentReport("operators", options.mode, indicators, figures)


def _sensor(number: int) -> str:
    return f"{NS}SENSOR_URI_{number}"


def _sensors(count: int) -> Iterator[ox.Quad]:
    # The same values in each engine, so that only the operators differ.
    chance = random.Random(count)
    for number in range(count):
        sensor = ox.NamedNode(_sensor(number))
        yield ox.Quad(sensor, ox.NamedNode(NS + "isOn"), ox.NamedNode(f"{NS}ROAD_URI_{number % _ROADS + 1}"))
        yield ox.Quad(sensor, ox.NamedNode(NS + "hasValue"), ox.Literal(chance.randrange(50)))


def _reading(number: int, turn: int) -> str:
    """Return an update with a reading of one sensor.

    Values alternate between above and below 50, so each reading changes the result of each subscription.
    """
    sensor, value = f"<{_sensor(number)}>", 100 + turn if turn % 2 == 0 else turn % 50
    return (
        f"{_PREFIX}DELETE {{ {sensor} ns:hasValue ?value }} INSERT {{ {sensor} ns:hasValue {value} }} "
        f"WHERE {{ {sensor} ns:hasValue ?value }}"
    )
