"""Recent values of observations with the clients, from a running gateway."""

import time
from datetime import UTC, datetime, timedelta, timezone

import pytest
from client_gateway import QUICK

from edge.client import AvailableSeries, BadAnswer, Client, Refused, Series, SeriesRow, SyncClient

HOUR = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=3)
"""A whole hour, for the times of values."""

PREFIXES = """PREFIX sosa: <http://www.w3.org/ns/sosa/> PREFIX qudt: <http://qudt.org/1.1/schema/qudt#>
PREFIX time: <http://www.w3.org/2006/time#> PREFIX xsd: <http://www.w3.org/2001/XMLSchema#> """


def record(gateway, name, *values, graph=None):
    """Give an observation one value after the other, one second apart, from `HOUR` on."""
    for seconds, value in enumerate(values):
        at = HOUR + timedelta(seconds=seconds)
        triples = f"""<{name}> sosa:hasResult <{name}/{seconds}> .
        <{name}/{seconds}> qudt:numericValue {value} ; time:hasTime <{name}/{seconds}/time> .
        <{name}/{seconds}/time> time:inXSDDateTimeStamp "{at.isoformat()}"^^xsd:dateTimeStamp"""
        gateway.update(f"{PREFIXES} INSERT DATA {{ {f'GRAPH <{graph}> {{ {triples} }}' if graph else triples} }}")


@pytest.fixture(params=["http", "websocket", "auto"])
async def client(request, empty_gateway):
    async with Client(empty_gateway.endpoints, over=request.param, options=QUICK) as found:
        yield found


@pytest.fixture(scope="module")
def recorded(shared_gateway):
    """A gateway with recent values of some observations."""
    record(shared_gateway, "urn:number", 20, 23.5, 21)
    record(shared_gateway, "urn:boolean", "true", "false", "true", "true")
    record(shared_gateway, "urn:text", '"on"', '"off"', graph="urn:floor")


async def test_values_as_stored(client, recorded):
    number, text = await client.series("urn:number", "urn:text", points="all")
    assert number == Series(
        "urn:number",
        "",
        "number",
        None,
        tuple(SeriesRow(HOUR + timedelta(seconds=each), value) for each, value in enumerate([20, 23.5, 21])),
    )
    assert (text.observation, text.graph, text.kind) == ("urn:text", "urn:floor", "text")
    assert [row.value for row in text.rows] == ["on", "off"]


async def test_summaries(client, recorded):
    # The same hour in another time zone.
    start = HOUR.astimezone(timezone(timedelta(hours=5, minutes=30)))
    found = await client.series(
        "urn:number", "urn:boolean", "urn:text", start=start, end=HOUR + timedelta(hours=1), points=1
    )
    assert [one.step for one in found] == [3600, 3600, 3600]
    assert [one.rows for one in found] == [
        (SeriesRow(HOUR, 21, 20, 23.5, 21.5, 3),),
        (SeriesRow(HOUR, True, False, True, 0.75, 4),),
        (SeriesRow(HOUR, "off", count=2),),
    ]


async def test_periods(client, recorded):
    (found,) = await client.series("urn:number", start=HOUR + timedelta(seconds=1), end=HOUR + timedelta(seconds=2))
    assert [row.value for row in found.rows] == [23.5]
    (found,) = await client.series("urn:number", start="-90s", end="now")
    assert found.rows == ()


async def test_the_list_of_available_series(client, recorded):
    found = {one.observation: one for one in await client.available_series()}
    assert {name: (one.graph, one.kind) for name, one in found.items()} == {
        "urn:number": ("", "number"),
        "urn:boolean": ("", "boolean"),
        "urn:text": ("urn:floor", "text"),
    }
    assert found["urn:number"].start <= HOUR
    assert found["urn:number"].end >= HOUR + timedelta(seconds=2)


async def test_unknown_observations_are_left_out(client, recorded):
    assert [one.observation for one in await client.series("urn:x", "urn:number")] == ["urn:number"]
    with pytest.raises(Refused) as refused:
        await client.series("urn:x")
    assert refused.value.status_code == 404


async def test_wrong_arguments(client):
    with pytest.raises(ValueError, match="available_series"):
        await client.series()
    with pytest.raises(ValueError, match="no time zone"):
        await client.series("urn:number", start=datetime(2026, 1, 1))  # noqa: DTZ001
    with pytest.raises(Refused) as refused:
        await client.series("urn:number", end="tomorrow")
    assert refused.value.status_code == 400


def test_the_blocking_client(empty_gateway, recorded):
    with SyncClient(empty_gateway.endpoints) as client:
        (found,) = client.series("urn:number", start="-1d", points=10)
        assert [row.value for row in found.rows] == [20, 23.5, 21]
        assert "urn:number" in [one.observation for one in client.available_series()]
        with pytest.raises(ValueError, match="available_series"):
            client.series()


def test_a_restart_of_the_gateway_is_a_gap(gateway):
    value = f"{PREFIXES} INSERT DATA {{ <urn:a> sosa:hasResult <urn:q> . <urn:q> qudt:numericValue %s }}"
    gateway.update(value % 1)
    gateway.stop()
    time.sleep(1.1)  # shorter pauses are not gaps
    gateway.start()
    gateway.update(value % 2)
    with SyncClient(gateway.endpoints) as client:
        (found,) = client.series("urn:a", end=datetime.now(UTC) + timedelta(hours=1))
    assert [row.value for row in found.rows] == [1, None, 2]
    times = [row.time for row in found.rows]
    assert times == sorted(times)


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"series": None},
        {"series": [1]},
        {"series": [{"observation": "urn:a"}]},
        {"series": [{"observation": "urn:a", "graph": "", "kind": "number", "step": None, "rows": [{"time": 1}]}]},
        {"series": [{"observation": "urn:a", "graph": "", "kind": "number", "from": "now", "to": "now"}]},
    ],
)
def test_answers_of_other_servers(answer):
    for parse in (Series.several, AvailableSeries.several):
        with pytest.raises(BadAnswer):
            parse(answer)
