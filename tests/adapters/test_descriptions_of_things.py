"""Sensors, properties and places get a type and a label with their first observation, but never over a client's own."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pyoxigraph as ox
import pytest
from adapter_parts import select, update

from edge.adapters.planner import Arrival
from edge.adapters.things import label_of
from edge.engine.requests import QueryRequest
from edge.engine.store.terms import canonical
from edge.mapping.reading import XSD_DECIMAL, Reading

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
SOSA = "http://www.w3.org/ns/sosa/"
THINGS = {
    "urn:sepa-edge:zigbee2mqtt:living/my_lamp": ("Sensor", "living/my lamp"),
    "urn:sepa-edge:property:temperature": ("ObservableProperty", "temperature"),
    "http://example.org/house#K%C3%BCche": ("FeatureOfInterest", "Küche"),
}
SENSOR, PROPERTY, PLACE = THINGS
READING = Reading("urn:o", "21.5", XSD_DECIMAL, location=PLACE, property=PROPERTY, sensor=SENSOR, topic="t")


def write(observations, *readings: Reading) -> None:
    observations.write([Arrival(reading, NOON) for reading in readings]).result(10)


def described(engine) -> dict[str, tuple[str, str]]:
    """Return type and label of the sensor, the property and the place."""
    names = " ".join(f"<{iri}>" for iri in THINGS)
    rows = select(engine, f"VALUES ?s {{ {names} }} ?s a ?type ; rdfs:label ?label")
    return {row[0]: (row[1].removeprefix(SOSA), row[2]) for row in rows}


def test_things_are_described_with_their_first_observation(engine, observations):
    write(observations, READING)
    assert described(engine) == THINGS


def test_a_declared_observation_describes_its_things(engine, observations):
    observations.declare([READING])
    assert described(engine) == THINGS


def test_subscribers_see_them_with_the_observation(engine, observations):
    seen = []
    text = f"SELECT ?l {{ <urn:o> <{SOSA}madeBySensor> ?s . ?s <http://www.w3.org/2000/01/rdf-schema#label> ?l }}"
    engine.subscribe(QueryRequest(text), seen.append).result(10)
    write(observations, READING)
    assert [len(event.delta.added) for event in seen[1:]] == [1]


@pytest.mark.parametrize("triple", ["rdfs:label 'mine'", "a sosa:Platform", "a sosa:Platform ; rdfs:label 'mine'"])
def test_a_description_of_a_client_stays_as_it_is(engine, observations, triple):
    update(engine, f"INSERT DATA {{ <{SENSOR}> {triple} }}")
    before = select(engine, f"<{SENSOR}> ?p ?o")
    write(observations, READING)
    assert select(engine, f"<{SENSOR}> ?p ?o") == before
    assert {iri: described(engine)[iri] for iri in (PROPERTY, PLACE)} == {iri: THINGS[iri] for iri in (PROPERTY, PLACE)}


def test_a_label_that_a_client_changed_stays_with_further_observations(engine, observations):
    write(observations, READING)
    changed = "DELETE { ?s rdfs:label ?l } INSERT { ?s rdfs:label 'mine' } WHERE { ?s rdfs:label ?l }"
    update(engine, changed.replace("?s", f"<{SENSOR}>"))
    write(observations, READING._replace(observation="urn:p"), READING._replace(observation="urn:o", label="new"))
    assert described(engine)[SENSOR] == ("Sensor", "mine")


def test_a_mapping_names_the_sensor_until_a_client_does(engine, observations):
    named = READING._replace(sensor_label="Bench")
    write(observations, READING._replace(observation="urn:first"), named)
    assert described(engine)[SENSOR] == ("Sensor", "Bench")
    # Another mapping of the sensor without a name changes nothing.
    write(observations, READING._replace(observation="urn:next"), named._replace(sensor_label="Bench 2"))
    assert described(engine)[SENSOR] == ("Sensor", "Bench 2")
    update(
        engine,
        f"DELETE {{ <{SENSOR}> rdfs:label ?l }} INSERT {{ <{SENSOR}> rdfs:label 'mine' }} WHERE {{ "
        f"<{SENSOR}> rdfs:label ?l }}",
    )
    write(observations, named._replace(sensor_label="Bench 3"), named._replace(observation="urn:other"))
    assert described(engine)[SENSOR] == ("Sensor", "mine")


def test_values_of_known_observations_describe_nothing(engine, observations):
    write(observations, READING)
    update(engine, f"DELETE WHERE {{ <{SENSOR}> ?p ?o }}")
    plan = observations.write([Arrival(READING._replace(value="22"), NOON)]).result(10)
    assert len(plan.requests) == 1
    assert SENSOR not in described(engine)


def test_a_changed_description_of_an_observation_describes_only_its_present_things(engine, observations):
    write(observations, READING._replace(observation="urn:other", location="urn:place:1"))
    for number in range(5):
        write(observations, READING._replace(sensor=f"urn:sensor:{number}", location=f"urn:place:{number}"))
    assert select(engine, "<urn:o> sosa:madeBySensor ?s") == [("urn:sensor:4",)]
    assert {row[0] for row in select(engine, "?s a sosa:Sensor")} == {SENSOR, "urn:sensor:4"}
    assert {row[0] for row in select(engine, "?s a sosa:FeatureOfInterest")} == {"urn:place:1", "urn:place:4"}
    described_things = select(
        engine, "?s rdfs:label ?l ; monitor:hasMappingDigest ?d FILTER NOT EXISTS { ?s a sosa:Observation }"
    )
    assert len(described_things) == 2 + 2 + 1


def test_a_sensor_that_a_mapping_gives_to_an_observation_later_has_its_name(engine, observations):
    write(observations, READING._replace(sensor=None))
    write(observations, READING._replace(sensor_label="Bench"))
    assert described(engine)[SENSOR] == ("Sensor", "Bench")
    write(observations, READING._replace(sensor_label="Bench", location="urn:place:1"))
    assert described(engine)[SENSOR] == ("Sensor", "Bench")
    changed = "DELETE { ?s rdfs:label ?l } INSERT { ?s rdfs:label 'mine' } WHERE { ?s rdfs:label ?l }"
    update(engine, changed.replace("?s", f"<{SENSOR}>"))
    write(observations, READING._replace(sensor="urn:sensor:2"))
    assert described(engine)[SENSOR] == ("Sensor", "mine")


def test_a_description_that_changes_back_within_one_plan_describes_the_present_things(engine, observations):
    first = READING._replace(sensor_label="Bench", location="urn:place:1")
    second = READING._replace(sensor="urn:sensor:2", sensor_label="Door", location="urn:place:2")
    write(observations, first)
    write(observations, second, first, second)
    assert select(engine, "?s a sosa:Sensor ; rdfs:label ?label") == [("urn:sensor:2", "Door")]
    assert select(engine, "?s a sosa:FeatureOfInterest") == [("urn:place:2",)]


@pytest.mark.parametrize("user", ["urn:o", "urn:other"])
def test_a_place_that_was_a_sensor_has_the_type_of_a_place(engine, observations, user):
    write(observations, READING)
    write(observations, READING._replace(observation="urn:o", sensor="urn:sensor:2", location=SENSOR))
    if user == "urn:other":
        write(observations, READING._replace(observation=user, sensor="urn:sensor:2", location=SENSOR))
        write(observations, READING._replace(sensor="urn:sensor:3"), READING._replace(sensor="urn:sensor:2"))
    assert described(engine)[SENSOR] == ("FeatureOfInterest", THINGS[SENSOR][1])
    assert len(select(engine, f"<{SENSOR}> ?p ?o")) == 3
    # It becomes a sensor again, and nothing of it stays when the last observation leaves it.
    for name in {"urn:o", user}:
        write(observations, READING._replace(observation=name))
    assert described(engine)[SENSOR] == ("Sensor", THINGS[SENSOR][1])
    for name in {"urn:o", user}:
        write(observations, READING._replace(observation=name, sensor=None))
    assert select(engine, f"<{SENSOR}> ?p ?o") == []


def test_a_sensor_that_another_observation_has_as_its_place_is_one_when_it_measures_nothing(engine, observations):
    write(observations, READING, READING._replace(observation="urn:other", sensor=None, location=SENSOR))
    assert described(engine)[SENSOR][0] == "Sensor"
    write(observations, READING._replace(sensor="urn:sensor:2"))
    assert described(engine)[SENSOR] == ("FeatureOfInterest", THINGS[SENSOR][1])


def test_a_reading_of_existing_observations_adds_none(engine, observations):
    update_only = READING._replace(value="22", existing=True)
    write(observations, update_only)
    assert select(engine, "?s ?p ?o") == []
    write(observations, READING, update_only)
    assert select(engine, "<urn:o> sosa:hasResult/qudt:numericValue ?v") == [("22",)]
    update(engine, "DELETE WHERE { <urn:o> ?p ?o }")
    write(observations, update_only)
    assert select(engine, "<urn:o> ?p ?o") == []


def test_an_observation_that_is_its_own_sensor_keeps_its_label(engine, observations):
    write(observations, READING._replace(sensor="urn:o", label="Room"))
    assert [row[0] for row in select(engine, "<urn:o> rdfs:label ?label")] == ["Room"]


def test_a_thing_of_several_new_observations_is_described_once(observations):
    readings = [READING._replace(observation=f"urn:o{number}") for number in range(5)]
    plan = observations.write([Arrival(reading, NOON) for reading in readings]).result(10)
    assert len(plan.requests) == len(THINGS) + len(readings)


@pytest.mark.parametrize(
    ("iri", "label"),
    [
        ("http://example.org/a/b_c", "b c"),
        ("http://example.org/a/", "a"),
        ("urn:x:a%20b", "a b"),
        ("urn:x:a%00b", "a%00b"),
        ("urn:x:%20", "%20"),
        ("urn:x:a%FFb", "a\ufffdb"),
        ("http://example.org", "example.org"),
    ],
)
def test_the_label_is_the_last_part_of_the_iri(iri, label):
    assert label_of(iri) == label


PAGE = (Path(__file__).parents[2] / "docs" / "concepts" / "observation.md").read_text("utf-8")
FORMS = re.findall(r"^\| (`\".*) \| (`.*`|unchanged) \|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize(("given", "stored"), FORMS)
def test_the_documented_forms_of_literals_are_those_of_the_graph(given, stored):
    literals = re.findall(r'`"([^"]*)"(?:\^\^xsd:(\w+)|@([\w-]+))`', given)
    expected = literals if stored == "unchanged" else re.findall(r'`"([^"]*)"(?:\^\^xsd:(\w+)|@([\w-]+))`', stored)
    assert literals
    found = [canonical(_literal(*parts)) for parts in literals]
    assert found == [_literal(*parts) for parts in expected]


def _literal(text: str, datatype: str, language: str) -> ox.Literal:
    if language:
        return ox.Literal(text, language=language)
    return ox.Literal(text, datatype=ox.NamedNode(f"http://www.w3.org/2001/XMLSchema#{datatype}"))
