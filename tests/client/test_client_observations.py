"""Observations as typed values: read, followed and published by the clients, from a running gateway."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest

from edge.client import Client, Endpoints, Observation, SyncClient
from edge.config import Settings
from edge.gateway import Gateway
from tests.support.waiting import PATIENCE

EX = "http://example.org/"
CELSIUS = "http://qudt.org/1.1/vocab/unit#DegreeCelsius"
NOON = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
CELLAR = {"sensor": f"{EX}cellar", "property": f"{EX}temperature"}


@pytest.fixture
async def client(empty_gateway):
    async with Client(empty_gateway.url) as found:
        yield found


async def following(feed):
    async with asyncio.timeout(PATIENCE):
        return await anext(feed)


async def test_a_published_value_is_an_observation(client):
    await client.publish(21.5, **CELLAR, place=f"{EX}house", unit=CELSIUS, time=NOON)
    (found,) = await client.observations(property="temperature")
    assert found == Observation(
        f"{EX}cellar/temperature", 21.5, f"{EX}cellar", f"{EX}temperature", f"{EX}house", CELSIUS, NOON
    )
    before = datetime.now(UTC)
    await client.publish(22, **CELLAR)
    (found,) = await client.observations()
    assert (found.value, found.unit, found.place) == (22, CELSIUS, f"{EX}house")
    # The gateway stores milliseconds.
    assert before - timedelta(seconds=1) < found.time <= datetime.now(UTC)


@pytest.mark.parametrize("value", [0, -3, True, False, 2.5, Decimal("20.125"), "on", 'a "quoted"\n\\text', 10**30])
async def test_values_keep_their_type(client, value):
    await client.publish(value, **CELLAR)
    (found,) = await client.observations()
    assert (found.value, type(found.value)) == (value, type(value))


async def test_each_change_is_followed(client):
    await client.publish(20, **CELLAR, time=NOON)
    await client.publish(50, sensor=f"{EX}cellar", property=f"{EX}humidity", time=NOON)
    async with client.follow(property="temperature") as feed:
        assert (await following(feed)).value == 20
        for minute in range(1, 4):
            await client.publish(20 + minute, **CELLAR, time=NOON + timedelta(minutes=minute))
        found = [await following(feed) for _ in range(3)]
    assert [each.value for each in found] == [21, 22, 23]
    assert [each.time for each in found] == [NOON + timedelta(minutes=minute) for minute in range(1, 4)]
    with pytest.raises(StopAsyncIteration):
        await following(feed)


async def test_the_same_time_in_another_zone_is_the_same_instant(client):
    await client.publish(1, **CELLAR, time=NOON.astimezone(timezone(timedelta(hours=5, minutes=30))))
    (found,) = await client.observations()
    assert found.time == NOON


@pytest.mark.parametrize(
    ("wanted", "sensors"),
    [
        ({"property": "temperature"}, ["a", "b"]),
        ({"property": f"{EX}temperature"}, ["a", "b"]),
        ({"property": "temp"}, []),
        ({"property": "humidity"}, ["a"]),
        ({"sensor": "b"}, ["b"]),
        ({"sensor": f"{EX}a", "property": "temperature"}, ["a"]),
        ({"place": "attic"}, ["b"]),
        ({}, ["a", "a", "b"]),
        ({"property": 'x") || true || STRENDS("", "'}, []),
    ],
)
async def test_observations_are_selected_by_iri_or_its_last_part(client, wanted, sensors):
    await client.publish(1, sensor=f"{EX}a", property=f"{EX}temperature", time=NOON)
    await client.publish(2, sensor=f"{EX}a", property=f"{EX}humidity", time=NOON)
    await client.publish(3, sensor=f"{EX}b", property="urn:p#temperature", place=f"{EX}attic", time=NOON)
    if wanted.get("property") == f"{EX}temperature":
        sensors = ["a"]
    assert sorted(each.sensor.removeprefix(EX) for each in await client.observations(**wanted)) == sensors


async def test_an_observation_of_a_mapping_keeps_its_result(client):
    await client.update(
        """PREFIX sosa: <http://www.w3.org/ns/sosa/> PREFIX qudt: <http://qudt.org/1.1/schema/qudt#>
        INSERT DATA { <urn:o> a sosa:Observation ; sosa:hasResult <urn:r> . <urn:r> qudt:numericValue 1 ;
          qudt:unit <urn:old> }"""
    )
    await client.publish(2, **CELLAR, unit=CELSIUS, observation="urn:o")
    rows = await client.select("SELECT ?result { <urn:o> <http://www.w3.org/ns/sosa/hasResult> ?result }")
    assert [row.plain()["result"] for row in rows] == ["urn:r"]
    (found,) = await client.observations()
    assert (found.value, found.unit) == (2, CELSIUS)


async def test_published_links_replace_earlier_ones(client):
    await client.publish(1, **CELLAR, place=f"{EX}house", observation="urn:o", time=NOON)
    await client.update(
        "PREFIX sosa: <http://www.w3.org/ns/sosa/> INSERT DATA { <urn:o> sosa:hasFeatureOfInterest <urn:old>, 'text' }"
    )
    other = {"sensor": f"{EX}spare", "property": f"{EX}heat"}
    await client.publish(2, **other, observation="urn:o", time=NOON)
    found = await client.observations()
    assert {each.place for each in found} == {f"{EX}house", "urn:old", "text"}
    assert {(each.sensor, each.property, each.value) for each in found} == {(f"{EX}spare", f"{EX}heat", 2)}
    await client.publish(3, **other, place=f"{EX}attic", observation="urn:o", time=NOON)
    (one,) = await client.observations()
    assert one == Observation("urn:o", 3, f"{EX}spare", f"{EX}heat", f"{EX}attic", None, NOON)
    done = await client.publish(3, **other, place=f"{EX}attic", observation="urn:o", time=NOON)
    assert (done.added, done.removed) == (0, 0)


async def test_odd_observations_of_other_clients_do_not_stop_the_program(client):
    await client.update(
        """PREFIX sosa: <http://www.w3.org/ns/sosa/> PREFIX qudt: <http://qudt.org/1.1/schema/qudt#>
        PREFIX time: <http://www.w3.org/2006/time#> PREFIX xsd: <http://www.w3.org/2001/XMLSchema#>
        INSERT DATA {
          _:o a sosa:Observation ; sosa:hasResult [ qudt:numericValue "x"^^xsd:integer ] ; sosa:madeBySensor "text" .
          <urn:naive> a sosa:Observation ; sosa:hasResult [ qudt:numericValue <urn:iri> ;
            time:hasTime [ time:inXSDDateTimeStamp "2026-05-01T11:00:00"^^xsd:dateTime ] ] .
          <urn:first> a sosa:Observation ; sosa:hasResult [ qudt:numericValue 1 ;
            time:hasTime [ time:inXSDDateTimeStamp "0001-01-01T00:00:00Z"^^xsd:dateTime ] ] .
          <urn:noon> a sosa:Observation ; sosa:hasResult [ qudt:numericValue 2 ;
            time:hasTime [ time:inXSDDateTimeStamp "2026-05-01T12:00:00Z"^^xsd:dateTime ] ] .
          <urn:never> a sosa:Observation ; sosa:hasResult [ qudt:numericValue 3 ;
            time:hasTime [ time:inXSDDateTimeStamp "soon" ] ] }"""
    )
    async with client.follow() as feed:
        found = [await following(feed) for _ in range(5)]
    assert {each.value for each in found[:3]} == {"x", 1, 3}
    assert [each.value for each in found[3:]] == ["urn:iri", 2]
    assert found[3].time == NOON.replace(hour=11, tzinfo=None)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"value": 1, "sensor": "cellar", "property": f"{EX}t"}, 'sensor: "cellar" is not an absolute IRI'),
        ({"value": 1, "sensor": f"{EX}a> }} ; CLEAR ALL #", "property": f"{EX}t"}, "is not an absolute IRI"),
        ({"value": 1, **CELLAR, "unit": "C"}, 'unit: "C" is not an absolute IRI'),
        ({"value": float("nan"), **CELLAR}, "nan is not a finite number"),
        ({"value": Decimal("Infinity"), **CELLAR}, "Infinity is not a finite number"),
        ({"value": 1, **CELLAR, "time": NOON.replace(tzinfo=None)}, "has no time zone"),
    ],
)
async def test_invalid_arguments_are_refused_before_anything_is_sent(arguments, words):
    async with Client(Endpoints()) as client:
        with pytest.raises(ValueError, match=words):
            await client.publish(**arguments)
        with pytest.raises(TypeError):
            await client.publish([1], **CELLAR)
        with pytest.raises(ValueError, match="property is an empty text"):
            client.follow(property="")


async def test_a_following_program_continues_after_a_restart_of_the_gateway(tmp_path, monkeypatch):
    """The gateway has other ports after the restart. The program finds it by the file of its data directory."""
    port, off = {"port": 0}, {"enabled": False}
    settings = Settings.model_validate(
        {"data_dir": tmp_path / "data", "http": port, "ws": port, "mqtt": off, "host": off}
    )
    monkeypatch.setenv("EDGE__DATA_DIR", str(tmp_path / "data"))
    monkeypatch.delenv("EDGE_URL", raising=False)
    async with Client() as client:
        async with Gateway(settings) as first:
            ports = first.endpoints["ws"]
            await client.publish(1, **CELLAR)
            feed = client.follow()
            assert (await following(feed)).value == 1
        async with Gateway(settings) as second:
            assert second.endpoints["ws"] != ports
            await client.publish(2, **CELLAR, repeat=True)
            assert (await following(feed)).value == 2


async def test_the_blocking_client_has_the_same_methods(empty_gateway):
    def work():
        with SyncClient(empty_gateway.url) as client:
            client.publish(1, **CELLAR)
            assert [each.value for each in client.observations(sensor="cellar")] == [1]
            with client.follow(property="temperature", timeout=PATIENCE) as feed:
                assert feed.next(PATIENCE).value == 1
                client.publish(2, **CELLAR)
                assert next(feed).value == 2
            assert list(feed) == []

    await asyncio.to_thread(work)
