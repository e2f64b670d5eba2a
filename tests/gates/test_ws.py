"""The WebSocket gate from a client's view."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import struct

import pytest
from gate_client import ALL, rows
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Frame, Opcode

from edge.gates.settings import WsGateSettings
from tests.support.settings import unchecked
from tests.support.waiting import PATIENCE, eventually

EMPTY = {"head": {"vars": ["s", "p", "o"]}, "results": {"bindings": []}}


async def test_the_answer_to_a_subscribe_is_everything_as_sequence_0_with_removed_results_in_full_form(gateway):
    await gateway.update("INSERT DATA { <urn:a> <urn:b> 'c' }")
    client = await gateway.client()
    first = await client.subscribe(alias="mine")
    assert first["alias"] == "mine"
    assert first["sequence"] == 0
    assert first["spuid"].startswith("sepa://subscription/")
    assert rows(first["addedResults"]) == [("urn:a", "urn:b", "c")]
    assert first["removedResults"] == EMPTY


async def test_notifications_have_the_changes_and_increasing_sequences(gateway):
    client = await gateway.client()
    first = await client.subscribe(alias="mine")
    await gateway.update("INSERT DATA { <urn:a> <urn:b> 1 }")
    await gateway.update("DELETE { <urn:a> <urn:b> 1 } INSERT { <urn:a> <urn:b> 2 } WHERE {}")
    added, changed = await client.notification(), await client.notification()
    assert (added["sequence"], changed["sequence"]) == (1, 2)
    assert added["spuid"] == changed["spuid"] == first["spuid"]
    assert rows(added["addedResults"]) == [("urn:a", "urn:b", "1")]
    assert rows(changed["removedResults"]) == [("urn:a", "urn:b", "1")]
    assert rows(changed["addedResults"]) == [("urn:a", "urn:b", "2")]


async def test_ask_subscription_notifies(gateway):
    client = await gateway.client()
    first = await client.subscribe("ASK { <urn:door> <urn:is> 'open' }")
    boolean = "http://www.w3.org/2001/XMLSchema#boolean"
    false = {"boolean": {"type": "literal", "value": "false", "datatype": boolean}}
    true = {"boolean": {"type": "literal", "value": "true", "datatype": boolean}}
    assert first["addedResults"]["head"]["vars"] == ["boolean"]
    assert first["addedResults"]["results"]["bindings"] == [false]
    await gateway.update("INSERT DATA { <urn:door> <urn:is> 'open' }")
    flip = await client.notification()
    assert flip["removedResults"]["results"]["bindings"] == [false]
    assert flip["addedResults"]["results"]["bindings"] == [true]


async def test_construct_subscription_notifies_with_triples(gateway):
    client = await gateway.client()
    await client.subscribe("CONSTRUCT { ?s <urn:q> ?o } WHERE { ?s <urn:p> ?o }")
    await gateway.update("INSERT DATA { <urn:a> <urn:p> 'x' }")
    notification = await client.notification()
    assert notification["addedResults"]["head"]["vars"] == ["subject", "predicate", "object"]
    assert rows(notification["addedResults"]) == [("urn:a", "urn:q", "x")]


async def test_a_subscription_has_the_base_directions_of_a_query(gateway):
    """The direction tells two rows apart, so a client that removes one of them keeps the other."""
    client = await gateway.client()
    directed = {"type": "literal", "value": "a", "xml:lang": "en", "its:dir": "ltr"}
    plain = {"type": "literal", "value": "a", "xml:lang": "en"}
    text = (
        "SELECT DISTINCT ?t { ?s <urn:v> ?v { BIND(STRLANGDIR('a', 'en', 'ltr') AS ?t) } UNION { BIND('a'@en AS ?t) } }"
    )
    await gateway.update("INSERT DATA { <urn:a> <urn:v> 1 }")

    def terms(results):
        return sorted((row["t"] for row in results["results"]["bindings"]), key=len)

    assert terms((await client.subscribe(text))["addedResults"]) == [plain, directed]
    assert terms((await client.ask({"query": {"sparql": text}}))["result"]) == [plain, directed]
    await gateway.update("DELETE DATA { <urn:a> <urn:v> 1 }")
    assert terms((await client.notification())["removedResults"]) == [plain, directed]


async def test_no_notification_follows_unsubscribed(gateway):
    client = await gateway.client()
    first = await client.subscribe(alias="mine")
    answer = await client.ask({"unsubscribe": {"spuid": first["spuid"]}})
    assert answer["unsubscribed"]["spuid"] == first["spuid"]
    await gateway.update("INSERT DATA { <urn:a> <urn:b> 1 }")
    again = await client.ask({"unsubscribe": {"spuid": first["spuid"], "alias": "mine"}})
    assert (again["error"], again["status_code"], again["alias"]) == ("not_found", 404, "mine")
    assert gateway.metric("edge_subscriptions", gate="ws") == 0


async def test_subscriptions_of_another_connection_cannot_be_ended(gateway):
    owner, other = await gateway.client(), await gateway.client()
    first = await owner.subscribe()
    answer = await other.ask({"unsubscribe": {"spuid": first["spuid"]}})
    assert answer["status_code"] == 404
    await gateway.update("INSERT DATA { <urn:a> <urn:b> 1 }")
    assert (await owner.notification())["sequence"] == 1


@pytest.mark.parametrize(
    ("message", "error", "status", "alias"),
    [
        ("{", "invalid_request", 400, None),
        ('{"subscribe":{"sparql":"ASK{}","alias":"me"', "invalid_request", 400, "me"),
        ("[]", "invalid_request", 400, None),
        ("{}", "invalid_request", 400, None),
        ('{"subscribe":{"alias":"me"}}', "invalid_request", 400, "me"),
        ('{"subscribe":{"sparql":5,"alias":"me"}}', "invalid_request", 400, "me"),
        ('{"subscribe":{"sparql":"ASK{}","alias":5}}', "invalid_request", 400, None),
        ('{"subscribe":{"sparql":"ASK{}","timeout":-1,"alias":"me"}}', "invalid_request", 400, "me"),
        ('{"subscribe":{"sparql":"ASK{}","default-graph-uri":[1],"alias":"me"}}', "invalid_request", 400, "me"),
        ('{"subscribe":"ASK{}"}', "invalid_request", 400, None),
        ('{"subscribe":{},"unsubscribe":{}}', "invalid_request", 400, None),
        ('{"subscribe":{"sparql":"\\ud800","alias":"me"}}', "invalid_request", 400, "me"),
        ('{"subscribe":{"sparql":"SELECT * {","alias":"me"}}', "parsing_failed", 400, "me"),
        ('{"unsubscribe":{"spuid":"sepa://subscription/none","alias":"me"}}', "not_found", 404, "me"),
        ('{"unsubscribe":{"spuid":7,"alias":"me"}}', "invalid_request", 400, "me"),
        ("[" * 100_000, "invalid_request", 400, None),
        (b'{"subscribe":{"sparql":"ASK{}"}}', "invalid_request", 400, None),
    ],
    ids=lambda value: repr(value)[:40],
)
async def test_a_bad_message_gets_a_flat_error_with_its_alias_and_the_socket_lives(
    gateway, message, error, status, alias
):
    client = await gateway.client()
    answer = await client.ask(message)
    assert answer["error"] == error
    assert answer["status_code"] == status
    assert isinstance(answer["error_description"], str)
    assert answer.get("alias") == alias
    assert (await client.subscribe())["sequence"] == 0


async def test_unknown_members_and_both_places_and_forms_of_authorization_are_taken(gateway):
    client = await gateway.client()
    agent = {"_events": {}, "options": {"path": None, "noDelay": True}, "sockets": {}, "maxSockets": None}
    first = await client.subscribe(httpsAgent=agent, authorization="Bearer x.y.z")
    assert first["sequence"] == 0
    answer = await client.ask({"subscribe": {"sparql": ALL}, "authorization": "x.y.z"})
    assert answer["notification"]["sequence"] == 0
    answer = await client.ask({"unsubscribe": {"spuid": first["spuid"], "httpsAgent": agent}})
    assert answer["unsubscribed"]["spuid"] == first["spuid"]


async def test_graphs_of_a_subscription_come_as_array_or_string(gateway):
    await gateway.update("INSERT DATA { GRAPH <urn:g> { <urn:a> <urn:b> 1 } <urn:x> <urn:y> 2 }")
    client = await gateway.client()
    for graphs in ("urn:g", ["urn:g"]):
        first = await client.subscribe(**{"default-graph-uri": graphs})
        assert rows(first["addedResults"]) == [("urn:a", "urn:b", "1")]
    first = await client.subscribe("SELECT ?s ?p ?o { GRAPH ?g { ?s ?p ?o } }", **{"named-graph-uri": ["urn:other"]})
    assert rows(first["addedResults"]) == []


async def test_text_in_64_byte_fragments_is_understood(gateway):
    client = await gateway.client()
    message = json.dumps({"subscribe": {"sparql": ALL + " # " + "x" * 5000, "alias": "small C client"}})
    parts = [message[start : start + 64] for start in range(0, len(message), 64)]
    await client.socket.send(parts)
    assert (await client.notification())["alias"] == "small C client"


@pytest.mark.parametrize("path", ["/", "/nowhere", "/subscribe/", "/secure/subscribe"])
async def test_another_path_gets_the_right_path_and_is_closed(gateway, path):
    client = await gateway.client(f"ws://127.0.0.1:{gateway.ws_port}{path}")
    answer = await client.receive()
    assert (answer["error"], answer["status_code"]) == ("not_found", 404)
    assert '"/subscribe"' in answer["error_description"]
    with pytest.raises(ConnectionClosed):
        await client.receive()


async def test_many_subscribes_in_one_go_are_all_answered_in_order(gateway):
    client = await gateway.client()
    for number in range(250):
        await client.send({"subscribe": {"sparql": f"SELECT * {{ <urn:{number}> ?p ?o }}", "alias": str(number)}})
    answers = [(await client.notification())["alias"] for _ in range(250)]
    assert answers == [str(number) for number in range(250)]
    assert gateway.metric("edge_subscriptions", gate="ws") == 250


async def test_a_client_that_leaves_is_unsubscribed_everywhere(gateway):
    client, other = await gateway.client(), await gateway.client()
    for _ in range(3):
        await client.subscribe()
    await other.subscribe()
    client.socket.transport.abort()
    await eventually(lambda: gateway.metric("edge_subscriptions", gate="ws") == 1, "unsubscription")
    await eventually(lambda: gateway.metric("edge_connections", gate="ws") == 1, "one connection")
    before = gateway.metric("edge_notifications_total", gate="ws")
    await gateway.update("INSERT DATA { <urn:a> <urn:b> 1 }")
    assert (await other.notification())["sequence"] == 1
    assert gateway.metric("edge_notifications_total", gate="ws") == before + 1


async def test_the_same_query_with_different_datasets_gets_different_results(gateway):
    """In the reference engine both share one SPU."""
    await gateway.update("INSERT DATA { GRAPH <urn:g> { <urn:a> <urn:b> 1 } GRAPH <urn:h> { <urn:a> <urn:b> 2 } }")
    client = await gateway.client()
    for graph, value in (("urn:g", "1"), ("urn:h", "2")):
        first = await client.subscribe(**{"default-graph-uri": [graph]})
        assert rows(first["addedResults"]) == [("urn:a", "urn:b", value)]


async def test_oversize_messages_get_an_error_and_far_too_large_ones_close_the_connection(serve):
    async with serve(ws=WsGateSettings(port=0, max_message=2000)) as gateway:
        client = await gateway.client()
        answer = await client.ask("x" * 2001)
        assert (answer["error"], answer["status_code"]) == ("payload_too_large", 413)
        assert "ws.max_message" in answer["error_description"]
        assert (await client.ask("é" * 1999))["status_code"] == 413
        assert (await client.subscribe())["sequence"] == 0
        await client.send("x" * 4001)
        with pytest.raises(ConnectionClosed) as closed:
            await client.receive()
        assert closed.value.rcvd.code == 1009


async def test_limits_of_subscriptions_and_connections(serve):
    async with serve(ws=WsGateSettings(port=0, max_subscriptions=2, max_connections=2)) as gateway:
        client = await gateway.client()
        first = await client.subscribe(alias="1")
        await client.subscribe(alias="2")
        answer = await client.ask({"subscribe": {"sparql": ALL, "alias": "3"}})
        assert (answer["error"], answer["status_code"], answer["alias"]) == ("too_many_requests", 429, "3")
        await client.ask({"unsubscribe": {"spuid": first["spuid"]}})
        await client.subscribe(alias="3")
        await gateway.client()
        with pytest.raises(InvalidStatus) as refused:
            await gateway.client()
        assert refused.value.response.status_code == 429
        error = json.loads(refused.value.response.body)
        assert error["error"] == "too_many_requests"
        assert "ws.max_connections)" in error["error_description"]


@pytest.mark.parametrize("begun", [b"", b"GET /subscribe HTTP/1.1\r\nHost: localhost\r\n"], ids=["silence", "half"])
async def test_unfinished_handshakes_make_place_for_a_client(serve, begun):
    async with serve(ws=WsGateSettings(port=0, max_connections=2)) as gateway:
        first = await gateway.client()
        pending = []
        for _ in range(30):
            pending.append(await asyncio.open_connection("127.0.0.1", gateway.ws_port))
            pending[-1][1].write(begun)
            await pending[-1][1].drain()
        await (await gateway.client()).subscribe()
        await first.subscribe()
        with pytest.raises(InvalidStatus):
            await gateway.client()
        for _, writer in pending:
            writer.close()


async def test_handshakes_of_replaced_connections_are_dropped(serve, caplog):
    """Handshakes that have arrived when newer connections take the slots."""
    handshake = (
        b"GET /subscribe HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )

    def answer(client: socket.socket) -> bytes:
        try:
            return client.recv(12)
        except ConnectionError:
            return b""

    async with serve(ws=WsGateSettings(port=0, max_connections=2)) as gateway:
        with contextlib.ExitStack() as stack:
            opened = []
            for _ in range(60):  # without a turn of the event loop
                client = socket.create_connection(("127.0.0.1", gateway.ws_port), PATIENCE)
                opened.append(stack.enter_context(client))
                with contextlib.suppress(ConnectionError):
                    client.sendall(handshake)
            answers = [await asyncio.to_thread(answer, client) for client in opened]
        assert set(answers) == {b"", b"HTTP/1.1 101", b"HTTP/1.1 429"}
        assert answers.count(b"HTTP/1.1 101") == 2
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_a_dead_client_is_detected_by_pings(serve):
    async with serve(ws=WsGateSettings(port=0, ping_interval=0.1, ping_timeout=0.2)) as gateway:
        client = await gateway.client(ping_interval=None)
        await client.subscribe()
        client.socket.transport.pause_reading()  # so it sends no pongs
        await eventually(lambda: gateway.metric("edge_subscriptions", gate="ws") == 0, "unsubscription")
        client.socket.transport.resume_reading()


async def test_clients_are_notified_when_the_gateway_stops(engine, serve):
    async with serve() as gateway:
        client, deaf = await gateway.client(), await gateway.client()
        await client.subscribe()
        deaf.socket.transport.pause_reading()
        async with asyncio.timeout(PATIENCE):
            await gateway.ws_gate.stop()
        with pytest.raises(ConnectionClosed) as closed:
            await client.receive()
        assert closed.value.rcvd.code == 1001
        deaf.socket.transport.resume_reading()


async def test_pages_of_other_origins_are_refused_where_origins_are_listed(serve):
    async with serve(ws=WsGateSettings(port=0, origins=("https://app.example",))) as gateway:
        with pytest.raises(InvalidStatus) as refused:
            await gateway.client(origin="https://evil.example")
        assert refused.value.response.status_code == 403
        for origin in ("https://app.example", "http://127.0.0.1:8000", None):
            client = await gateway.client(origin=origin)
            assert (await client.subscribe())["sequence"] == 0


async def test_without_security_no_credentials_are_required(serve):
    async with serve(ws=unchecked(WsGateSettings, port=0, authorize_within=0.05)) as gateway:
        client = await gateway.client()
        await asyncio.sleep(0.3)
        assert (await client.subscribe())["sequence"] == 0


async def test_a_broken_frame_closes_only_its_own_connection(gateway):
    bad, good = await gateway.client(), await gateway.client()
    await good.subscribe()
    bad.socket.transport.write(struct.pack("!BB", 0xFF, 0xFF) * 20)
    with pytest.raises(ConnectionClosed):
        await bad.receive()
    broken_utf8 = await gateway.client()
    broken_utf8.socket.transport.write(Frame(Opcode.TEXT, b"\xff\xfe").serialize(mask=True))
    with pytest.raises(ConnectionClosed):
        await broken_utf8.receive()
    await gateway.update("INSERT DATA { <urn:a> <urn:b> 1 }")
    assert (await good.notification())["sequence"] == 1
