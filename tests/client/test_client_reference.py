"""A broker like the reference engine, tokens, and unexpected answers."""

import asyncio
import json
from datetime import timedelta

import pytest
from client_gateway import QUICK, following, numbers
from reference_broker import reference_broker
from websockets.asyncio.server import serve

from edge.client import Backoff, Client, Endpoints, Options, Refused, Unsupported, Updated
from tests.support.waiting import PATIENCE, eventually

QUERY = "SELECT ?n { ?s ?p ?n }"


@pytest.fixture
async def broker():
    async with reference_broker() as found:
        yield found


async def test_updates_go_over_http_and_subscriptions_over_the_websocket(broker):
    broker.rows = [1]
    async with Client(broker.endpoints) as client:
        subscription = await client.subscribe(QUERY)
        assert numbers((await following(subscription)).added) == [1]
        assert await client.update("INSERT DATA { <a> <b> 'ü&=' }") == Updated(None, None)
        assert broker.updates == ["update=INSERT+DATA+%7B+%3Ca%3E+%3Cb%3E+%27%C3%BC%26%3D%27+%7D"]
        assert numbers(await client.select(QUERY)) == [1]
        await broker.notify(1, [2], [])
        await broker.notify(2, [3], [1, 7])
        assert numbers((await following(subscription)).added) == [2]
        delta = await following(subscription)
        assert (numbers(delta.added), numbers(delta.removed)) == ([3], [1]), "what was not there cannot go"


async def test_changes_may_follow_the_first_result_at_once(broker):
    broker.rows = [1, 2]
    broker.burst = [([], [1]), ([3], [])]
    async with Client(broker.endpoints) as client:
        subscription = await client.subscribe(QUERY)
        await eventually(lambda: numbers(subscription.results) == [2, 3], "all of it")
        received = [await following(subscription) for _ in range(3)]
        assert [(numbers(delta.added), numbers(delta.removed)) for delta in received] == [
            ([1, 2], []),
            ([], [1]),
            ([3], []),
        ]


async def test_a_broker_without_timers_is_sent_no_delayed_update(broker):
    async with Client(broker.endpoints, over="http") as client:
        with pytest.raises(Unsupported):
            await client.update("INSERT DATA { <a> <b> 1 }", delay=timedelta(hours=1))
        with pytest.raises(Unsupported):
            await client.timers()
    assert broker.updates == []


@pytest.mark.parametrize("echoes_alias", [True, False])
async def test_a_refused_subscription_is_reported(broker, echoes_alias):
    broker.echoes_alias = echoes_alias
    async with Client(broker.endpoints) as client:
        with pytest.raises(Refused, match="Encountered x"):
            await client.subscribe("ASK {}")


async def test_after_a_drop_the_client_subscribes_again(broker):
    broker.rows = [1, 2]
    async with Client(broker.endpoints, options=QUICK) as client:
        subscription = await client.subscribe(QUERY)
        await following(subscription)
        broker.rows = [2, 3]
        for socket in list(broker.sockets):
            await socket.close()
        delta = await following(subscription)
        assert (numbers(delta.added), numbers(delta.removed)) == ([3], [1])
        assert len(broker.subscribes) == 2
        assert len({body["alias"] for body in broker.subscribes}) == 1


async def test_tokens_are_sent_and_renewed(broker):
    given = []

    async def token():
        given.append(f"token{len(given) + 1}")
        return given[-1]

    broker.token = "token1"
    async with Client(broker.endpoints, options=Options(token=token, backoff=Backoff(0.05, 0.2))) as client:
        await asyncio.gather(client.subscribe(QUERY), client.update("A"), client.select(QUERY))
        assert given == ["token1"]
        assert {body["authorization"] for body in broker.subscribes} == {"Bearer token1"}
        broker.token = "token2"
        await client.update("B")
        await client.subscribe(QUERY)
        assert given == ["token1", "token2"]
        broker.token = "another"
        with pytest.raises(Refused) as refused:
            await client.update("C")
        assert (refused.value.error, refused.value.status_code) == ("invalid_grant", 401)
        with pytest.raises(Refused):
            await client.subscribe(QUERY)
        assert len(given) == 4
    assert broker.updates == ["update=A", "update=B"]


async def test_a_plain_function_may_supply_the_token_and_fail(broker):
    broker.token = "good"
    attempts = []

    def token():
        attempts.append(1)
        if len(attempts) < 3:
            raise OSError("the service is not there")
        return "good"

    async with Client(broker.endpoints, options=Options(token=token, backoff=Backoff(0.01, 0.02))) as client:
        await client.subscribe(QUERY)
        await client.update("A")
    assert len(attempts) == 3


@pytest.mark.parametrize("method", ["POST", "URLENCODED_POST"])
async def test_updates_are_sent_in_the_form_of_the_protocol(broker, method):
    endpoints = Endpoints(broker.endpoints.query, broker.endpoints.update, update_method=method)
    async with Client(endpoints, over="http") as client:
        await client.update("A")
    assert broker.updates == ["A" if method == "POST" else "update=A"]
    expected = "application/sparql-update" if method == "POST" else "application/x-www-form-urlencoded"
    assert broker.headers[0]["Content-Type"] == expected


async def test_a_failing_listener_affects_no_other(broker, caplog):
    def listener(url, connected):
        raise RuntimeError("mine")

    async with Client(broker.endpoints, options=Options(on_connection=listener)) as client:
        await client.subscribe(QUERY)
    assert "on_connection failed" in caplog.text


NONSENSE = [
    "",
    "[]",
    "{}",
    "nonsense",
    '{"notification": 7}',
    '{"result": null}',
    '{"error": {"code": "x"}}',
    "\x00",
    "1",
]


async def test_invalid_messages_are_logged_and_skipped(caplog):
    async def talk(socket):
        async for text in socket:
            alias = json.loads(text)["subscribe"]["alias"]
            for nonsense in NONSENSE:
                if "error" not in nonsense:
                    await socket.send(nonsense)
            await socket.send(b"\xff\xfe")
            broken = {"spuid": "s", "alias": alias, "sequence": 0, "addedResults": {"results": 5}}
            await socket.send(json.dumps({"notification": broken}))
            await socket.send(json.dumps({"notification": {"spuid": "s", "alias": alias, "sequence": 0}}))

    async with serve(talk, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with Client(Endpoints.at("127.0.0.1", ws_port=port)) as client:
            async with asyncio.timeout(PATIENCE):
                subscription = await client.subscribe(QUERY)
            assert (await following(subscription)).added == ()
    assert "invalid message" in caplog.text


async def test_an_ended_subscription_is_repeated_for_temporary_errors(broker):
    broker.rows = [1]
    async with Client(broker.endpoints, options=QUICK) as client:
        subscription = await client.subscribe(QUERY)
        await following(subscription)

        async def fail(status):
            error = {"error": "subscription_failed", "error_description": "no", "status_code": status}
            for socket in list(broker.sockets):
                await socket.send(json.dumps({**error, "spuid": socket.spuid}))

        broker.rows = [2]
        await fail(500)
        delta = await following(subscription)
        assert (numbers(delta.added), numbers(delta.removed)) == ([2], [1])
        await eventually(lambda: len(broker.subscribes) == 2, "it is made again")
        await fail(403)
        with pytest.raises(Refused) as refused:
            await following(subscription)
        assert refused.value.status_code == 403


async def test_only_the_answer_that_a_broker_is_a_gateway_is_kept():
    """A server in front of the gateway denies it at first, for example while the gateway starts."""
    answers = [(404, {}), (200, {"ws": "ws://127.0.0.1:9000/subscribe"}), (200, {"timers": []}), (200, {"timers": []})]
    paths = []

    async def respond(reader, writer):
        paths.append((await reader.readuntil(b"\r\n\r\n")).split()[1].decode())
        status, message = answers[len(paths) - 1]
        body = json.dumps(message)
        head = f"HTTP/1.1 {status} OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write((head + body).encode())
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(respond, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with Client(Endpoints.at("127.0.0.1", http_port=port), over="http") as client:
            with pytest.raises(Unsupported):
                await client.timers()
            assert await client.timers() == []
            assert await client.timers() == []
    assert paths == ["/api/endpoints", "/api/endpoints", "/timers", "/timers"]
