"""The knowledge base of the benchmark: the street lights of a small city (SPS Architecture, Table 2).

A road is connected to its lamp posts; a post has a position, a lamp and two sensors. All random values come from one
seed, so every run on every machine uses the same triples.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyoxigraph as ox

NS: Final = "http://example.org/lighting#"

DIMMING: Final = ox.NamedNode(NS + "hasDimmingValue")

_RDF: Final = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_RDFS: Final = "http://www.w3.org/2000/01/rdf-schema#"
_OWL: Final = "http://www.w3.org/2002/07/owl#"
_TYPE: Final = ox.NamedNode(_RDF + "type")
_LABEL: Final = ox.NamedNode(_RDFS + "label")
_SEED: Final = 2017
_NOON: Final = 1_500_000_000_000_000
"""Time of the earliest possible sensor reading (us since 1970)."""

_SIZES: Final = (("LARGE", 100), ("MEDIUM", 50), ("SMALL", 25), ("VERY_SMALL", 0))
"""Size classes of roads, each with its minimum number of lamp posts."""

_VOCABULARY: Final = {
    "Class": """Road VerySmallRoad SmallRoad MediumRoad LargeRoad LampPost Lamp LedLamp TraditionalLamp Sensor
        TemperatureSensor PresenceSensor Status LampType SensorType Unit Position Observation Actuator Controller Area
        District City Operator Schedule Fault Maintenance""",
    "NamedIndividual": """ON OFF BROKEN LED TRADITIONAL TEMPERATURE PRESENCE CELSIUS FAHRENHEIT BOOLEAN VERY_SMALL SMALL
        MEDIUM LARGE CITY NORTH SOUTH EAST WEST CENTRE OPERATOR DAWN DUSK NIGHT DAY ALWAYS""",
    "ObjectProperty": """isConnectedTo isPostOf hasLamp isLampOf hasSensor isSensorOf hasStatus hasLampType
        hasSensorType hasUnit hasSize isIn isOperatedBy follows hasFault hasController""",
    "DatatypeProperty": """hasDimmingValue hasLatitude hasLongitude hasValue hasTimestamp hasLength hasPower
        hasNumber""",
}
"""Names of the ontology by OWL class: 27, 26, 16 and 8, as in Table 2."""


@dataclass(frozen=True, slots=True)
class City:
    """A city, given by the number of lamp posts of each road: `posts[0]` belongs to road 1."""

    posts: tuple[int, ...]

    @property
    def roads(self) -> range:
        """The numbers of the roads."""
        return range(1, len(self.posts) + 1)

    def lamps(self, road: int) -> range:
        """The numbers of a road's lamps."""
        return range(1, self.posts[road - 1] + 1)

    def quads(self) -> Iterator[ox.Quad]:
        """Yield all triples as quads of the default graph, in the same order in each run."""
        chance = random.Random(_SEED)
        yield from _ontology()
        for road in self.roads:
            yield from _road(road, len(self.lamps(road)))
            for lamp in self.lamps(road):
                yield from _post(chance, road, lamp)


CITY: Final = City((10,) * 100 + (25,) * 100 + (50,) * 100 + (100,) * 10)
"""The city of the paper: 310 roads, 9,500 lamp posts, 334 K triples."""

SMALL_CITY: Final = City((1,) * 100 + (2,) * 100 + (3,) * 100 + (4,) * 10)
"""A city with as many roads but fewer lamps, for short runs."""


def road_uri(road: int) -> str:
    """Return the IRI of a road, ROAD_URI_X in the paper."""
    return f"{NS}ROAD_URI_{road}"


def lamp_uri(road: int, lamp: int) -> str:
    """Return the IRI of a lamp, LAMP_URI_X_Y in the paper."""
    return f"{NS}LAMP_URI_{road}_{lamp}"


def _node(name: str) -> ox.NamedNode:
    return ox.NamedNode(NS + name)


_NODES: Final = {name: _node(name) for names in _VOCABULARY.values() for name in names.split()}
_INDIVIDUAL: Final = ox.NamedNode(_OWL + "NamedIndividual")


def _described(node: ox.NamedNode, kind: ox.NamedNode) -> Iterator[ox.Quad]:
    yield ox.Quad(node, _TYPE, kind)
    yield ox.Quad(node, _LABEL, ox.Literal(node.value.removeprefix(NS)))


def _ontology() -> Iterator[ox.Quad]:
    for kind, names in _VOCABULARY.items():
        for name in names.split():
            yield from _described(_NODES[name], ox.NamedNode(_OWL + kind))


def _road(road: int, posts: int) -> Iterator[ox.Quad]:
    node = ox.NamedNode(road_uri(road))
    size = next(name for name, least in _SIZES if posts >= least)
    yield from _described(node, _NODES["Road"])
    yield ox.Quad(node, _TYPE, _INDIVIDUAL)
    yield ox.Quad(node, _NODES["hasSize"], _NODES[size])
    yield ox.Quad(node, _NODES["hasLength"], ox.Literal(30 * posts))


def _post(chance: random.Random, road: int, number: int) -> Iterator[ox.Quad]:
    """Yield the 35 triples of a lamp post, its lamp and its two sensors."""
    post, lamp = _node(f"POST_URI_{road}_{number}"), ox.NamedNode(lamp_uri(road, number))
    street = ox.NamedNode(road_uri(road))
    yield ox.Quad(street, _NODES["isConnectedTo"], post)
    yield from _described(post, _NODES["LampPost"])
    yield ox.Quad(post, _TYPE, _INDIVIDUAL)
    yield ox.Quad(post, _NODES["isPostOf"], street)
    yield ox.Quad(post, _NODES["hasNumber"], ox.Literal(number))
    yield ox.Quad(post, _NODES["hasLatitude"], ox.Literal(round(44.4 + chance.random() / 5, 6)))
    yield ox.Quad(post, _NODES["hasLongitude"], ox.Literal(round(11.2 + chance.random() / 5, 6)))
    yield ox.Quad(post, _NODES["hasLamp"], lamp)
    yield from _described(lamp, _NODES["Lamp"])
    yield ox.Quad(lamp, _TYPE, _INDIVIDUAL)
    yield ox.Quad(lamp, _NODES["isLampOf"], post)
    yield ox.Quad(lamp, _NODES["hasStatus"], _NODES[chance.choice(("ON", "OFF", "BROKEN"))])
    # At most 49, so that updates that count down from 100 change every value.
    yield ox.Quad(lamp, DIMMING, ox.Literal(str(chance.randrange(50))))
    yield ox.Quad(lamp, _NODES["hasLampType"], _NODES[chance.choice(("LED", "TRADITIONAL"))])
    yield ox.Quad(lamp, _NODES["hasPower"], ox.Literal(chance.choice((35, 70, 150))))
    readings = (
        ("TEMPERATURE", chance.choice(("CELSIUS", "FAHRENHEIT")), str(chance.randrange(-10, 40))),
        ("PRESENCE", "BOOLEAN", chance.choice(("True", "False"))),
    )
    for kind, unit, value in readings:
        sensor = _node(f"{kind}_URI_{road}_{number}")
        yield ox.Quad(post, _NODES["hasSensor"], sensor)
        yield from _described(sensor, _NODES["Sensor"])
        yield ox.Quad(sensor, _TYPE, _INDIVIDUAL)
        yield ox.Quad(sensor, _NODES["isSensorOf"], post)
        yield ox.Quad(sensor, _NODES["hasSensorType"], _NODES[kind])
        yield ox.Quad(sensor, _NODES["hasUnit"], _NODES[unit])
        yield ox.Quad(sensor, _NODES["hasValue"], ox.Literal(value))
        yield ox.Quad(sensor, _NODES["hasTimestamp"], ox.Literal(_NOON + chance.randrange(86_400_000_000)))
