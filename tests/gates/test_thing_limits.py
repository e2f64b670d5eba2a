"""The work for descriptions of things is bounded."""

from __future__ import annotations

import asyncio

import pytest

from edge.engine.requests import UpdateRequest
from edge.gates.http.things import graph, observing
from edge.gates.origins import ANY
from edge.gates.settings import HttpGateSettings
from tests.support.waiting import eventually

PREFIX = "PREFIX sosa: <http://www.w3.org/ns/sosa/> "


def devices(*names: str, observations: int = 1) -> str:
    triples = (
        f"<urn:{name}/{number}> a sosa:Observation ; sosa:madeBySensor <urn:{name}> ."
        for name in names
        for number in range(observations)
    )
    return f"{PREFIX} INSERT DATA {{ {' '.join(triples)} }}"


async def listed(http):
    """Return the names of all things, part by part."""
    path, found = "/things", []
    while path:
        answer = await http.get(path)
        assert answer.status_code == 200
        found += [each["id"].removeprefix("urn:") for each in answer.json()]
        path = answer.links.get("next", {}).get("url")
    return found


async def test_a_device_with_too_many_observations_does_not_hide_the_others(gateway, monkeypatch):
    monkeypatch.setattr(graph, "MOST_ROWS", 20)
    names = [f"n{number}" for number in range(9)]
    await gateway.update(devices(*names))
    await gateway.update(devices("big", "n3big", "z", observations=21))
    async with gateway.http() as http:
        for name in ("big", "n3big", "z"):
            answer = await http.get(f"/things/urn:{name}")
            assert (answer.status_code, answer.json()["error"]) == (413, "result_too_large")
        assert await listed(http) == names


async def test_the_list_has_as_many_things_as_fit_a_response(serve):
    async with serve(http=HttpGateSettings(port=0, max_result=1_500)) as gateway, gateway.http() as http:
        await gateway.update(devices("a", "b", "c", "d", "e"))
        first = await http.get("/things")
        assert first.status_code == 200
        assert len(first.content) <= 1_500
        assert (len(first.json()), "next" in first.links) == (2, True)
        assert await listed(http) == ["a", "b", "c", "d", "e"]


async def test_a_thing_with_a_long_description_does_not_hide_the_others(serve):
    async with serve(http=HttpGateSettings(port=0, max_result=3_000)) as gateway, gateway.http() as http:
        names = [f"n{number}" for number in range(6)]
        await gateway.update(devices(*names))
        await gateway.update(devices("big", "n3big", "z"))
        comments = " ".join(f'<urn:{name}/0> rdfs:comment "{"x" * 3_000}" .' for name in ("big", "n3big", "z"))
        await gateway.update(
            f"PREFIX rdfs: <http://www.w3.org/2000/01/rdf-schema#> INSERT DATA {{ {comments} }}",
        )
        assert await listed(http) == names
        alone = await http.get("/things?limit=1&offset=0")
        assert (alone.status_code, alone.json()) == (200, [])
        assert alone.links["next"]["url"] == "/things?offset=1&limit=1"
        answer = await http.get("/things/urn:n3big")
        assert (answer.status_code, answer.json()["error"]) == (413, "result_too_large")
        assert "query a part of it" in answer.json()["error_description"]


EVENTS = {"Accept": "text/event-stream"}


async def test_observers_leave_half_of_the_connections_and_end_with_the_gate(serve):
    settings = HttpGateSettings(port=0, max_connections=4)
    # The time of the test runner ends a gate that waits for its streams.
    async with serve(http=settings, stop_timeout=1_000) as gateway, gateway.http() as http:
        await gateway.update(devices("a"))
        async with (
            http.stream("GET", "/properties/urn:a%2F0", headers=EVENTS) as first,
            http.stream("GET", "/properties/urn:a%2F0", headers=EVENTS) as second,
        ):
            assert (first.status_code, second.status_code) == (200, 200)
            refused = await http.get("/properties/urn:a%2F0", headers=EVENTS)
            assert (refused.status_code, refused.json()["error"]) == (429, "too_many_requests")
            assert "half of http.max_connections" in refused.json()["error_description"]
            await gateway.http_gate.stop()
            assert [line async for line in first.aiter_lines() if line] == ["retry: 5000"]


VALUE = "<http://qudt.org/1.1/schema/qudt#numericValue>"


def result_of(value: str, quantity: str = "<urn:q>") -> str:
    return f"<urn:a/0> sosa:hasResult {quantity} . {quantity} {VALUE} {value}"


def new_value(value: str) -> UpdateRequest:
    old = f"<urn:q> {VALUE} ?old"
    return UpdateRequest(
        f"{PREFIX} DELETE {{ {old} }} INSERT {{ {result_of(value)} }} WHERE {{ OPTIONAL {{ {old} }} }}"
    )


async def test_an_observer_gets_all_values_of_a_burst_and_each_that_is_added(gateway):
    await gateway.update(devices("a"))
    async with gateway.http() as http, http.stream("GET", "/properties/urn:a%2F0", headers=EVENTS) as answer:
        lines = (line async for line in answer.aiter_lines() if line.startswith("data"))
        for burst in (range(30), range(400)):
            await asyncio.wrap_future(gateway.engine.update([new_value(str(value)) for value in burst]))
            expected = list(burst)[-observing._QUEUED :]
            got = [await anext(lines)]
            while got[-1] != f"data: {burst[-1]}":
                got.append(await anext(lines))
            assert got[-len(expected) :] == [f"data: {value}" for value in expected]
        await gateway.update(f"{PREFIX} INSERT DATA {{ {result_of('9', '<urn:second>')} }}")
        assert await anext(lines) == "data: 9"


async def not_reading(gateway):
    """Open a stream that is not read, and send values until it blocks."""
    large = "x" * 500_000
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.http_port, limit=1_000)
    writer.write(b"GET /properties/urn:a%2F0 HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
    await reader.readuntil(b"retry: 5000")
    for number in range(20):
        await asyncio.wrap_future(gateway.engine.update([new_value(f'"{large}{number}"')]))
    return writer


async def test_a_stream_that_is_not_read_ends(serve, monkeypatch, caplog):
    async with serve(stop_timeout=1_000) as gateway:
        await gateway.update(devices("a"))
        writer = await not_reading(gateway)
        assert gateway.metric("edge_subscriptions", gate="http") == 1
        await gateway.http_gate.stop()
        assert gateway.metric("edge_subscriptions", gate="http") == 0
        writer.close()
    monkeypatch.setattr(observing, "_STALLED", 0.05)
    async with serve() as gateway:
        await gateway.update(devices("a"))
        writer = await not_reading(gateway)
        await eventually(lambda: gateway.metric("edge_subscriptions", gate="http") == 0)
        writer.close()
    assert not [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")]


async def test_a_client_observes_an_eighth_of_the_connections(serve, monkeypatch):
    monkeypatch.setattr("edge.gates.rate_limit.is_local", lambda host: False)
    async with serve(http=HttpGateSettings(port=0, max_connections=8)) as gateway, gateway.http() as http:
        await gateway.update(devices("a"))
        for _ in range(2):
            async with http.stream("GET", "/properties/urn:a%2F0", headers=EVENTS) as first:
                assert first.status_code == 200
                refused = await http.get("/properties/urn:a%2F0", headers=EVENTS)
                assert (refused.status_code, refused.json()["error"]) == (429, "too_many_requests")
                assert "an eighth of http.max_connections" in refused.json()["error_description"]
            await eventually(lambda: gateway.metric("edge_subscriptions", gate="http") == 0)


async def test_an_event_stream_needs_its_own_media_type(gateway):
    await gateway.update(devices("a"))
    async with gateway.http() as http:
        for accept, status in (("text/*", 406), ("text/*, application/json;q=0.1", 404), ("*/*", 404)):
            answer = await http.get("/properties/urn:a%2F0", headers={"Accept": accept})
            assert answer.status_code == status


async def test_an_idle_observer_gets_comments(gateway, monkeypatch):
    monkeypatch.setattr(observing, "_ALIVE", 0.01)
    await gateway.update(devices("a"))
    async with gateway.http() as http, http.stream("GET", "/properties/urn:a%2F0", headers=EVENTS) as answer:
        lines = answer.aiter_lines()
        assert [await anext(lines) for _ in range(6)] == ["retry: 5000", "", ":", "", ":", ""]


async def test_reading_ends_after_the_timeout(serve):
    async with serve(query_timeout=0.000_001) as gateway, gateway.http() as http:
        await gateway.update(devices("a"))
        for path in ("/things", "/things/urn:a", "/properties/urn:a/0"):
            answer = await http.get(path)
            assert (answer.status_code, answer.json()["error"]) == (408, "timeout")


async def test_clients_that_disconnect_leave_no_slot_occupied(gateway):
    await gateway.update(devices("a"))

    async def begin():
        _, writer = await asyncio.open_connection("127.0.0.1", gateway.http_port)
        writer.write(b"GET /things HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await writer.drain()
        writer.transport.abort()

    await asyncio.gather(*(begin() for _ in range(20)))
    async with gateway.http() as http:
        assert await listed(http) == ["a"]
    assert gateway.metric("edge_internal_errors_total") == 0


async def test_a_page_of_another_origin_may_set_a_property(serve):
    async with serve(http=HttpGateSettings(port=0, cors_origins=("*",))) as gateway, gateway.http() as http:
        asked = {"Origin": "https://app.example", "Access-Control-Request-Method": "PUT"}
        answer = await http.options("/properties/urn:a", headers=asked)
        assert "PUT" in answer.headers["access-control-allow-methods"]


@pytest.mark.parametrize("host", ["a b", "[", 'a"b', "a>b", "x" * 600], ids=ascii)
async def test_the_address_in_a_description_is_valid_with_any_host(serve, host):
    async with serve(http=HttpGateSettings(port=0, hosts=(ANY,))) as gateway, gateway.http() as http:
        await gateway.update(devices("a"))
        for path in ("/.well-known/wot", "/things/urn:a"):
            answer = await http.get(path, headers={"Host": host})
            if answer.status_code == 200:
                assert answer.json()["base"] == f"{gateway.http_url}/"
            else:
                assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")
    assert gateway.metric("edge_internal_errors_total") == 0
