"""`Options.on_failure` and `Options.locate`: the application ends the attempts, or looks up a changed address."""

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from client_gateway import NUMBERS, QUICK, following, numbers
from reference_broker import reference_broker, results
from relay import relay
from websockets.asyncio.server import serve

from edge.client import BadAnswer, Client, Endpoints, NoConnection, Refused


@pytest.fixture
async def broker():
    async with reference_broker() as found:
        found.rows = [1]
        yield found


def recording(*, continues):
    """Return options whose failure handler records each failure, and the list of failures."""
    failures = []

    def handle(failure):
        failures.append(failure)
        return continues

    return replace(QUICK, on_failure=handle), failures


@asynccontextmanager
async def server(handler):
    """Serve a WebSocket with `handler`, and yield its endpoints."""
    async with serve(handler, "127.0.0.1", 0) as running:
        yield Endpoints.at("127.0.0.1", ws_port=running.sockets[0].getsockname()[1])


async def test_failed_connection_ends_the_attempts(absent_gateway):
    options, failures = recording(continues=False)
    async with Client(absent_gateway.endpoints, over="websocket", options=options) as client:
        for request in (client.subscribe(NUMBERS), client.update("CLEAR ALL", repeat=True)):
            with pytest.raises(NoConnection) as raised:
                await request
            assert raised.value.url == absent_gateway.endpoints.subscribe
            assert isinstance(raised.value.__cause__, ConnectionRefusedError)
            assert not raised.value.lost
    assert len(failures) == 2, "one attempt for each request"


async def test_lost_connection_ends_the_subscription_and_the_next_request_connects_again(broker):
    options, failures = recording(continues=False)
    async with Client(broker.endpoints, options=options) as client:
        subscription = await client.subscribe(NUMBERS)
        for socket in list(broker.sockets):
            await socket.close(1001, "moving")
        assert numbers((await following(subscription)).added) == [1], "waiting notifications are delivered first"
        with pytest.raises(NoConnection) as raised:
            await following(subscription)
        assert raised.value.lost
        assert failures == [raised.value]
        again = await client.subscribe(NUMBERS)
        assert numbers((await following(again)).added) == [1]


async def test_client_continues_if_the_handler_says_so_or_fails(broker, caplog):
    options, failures = recording(continues=True)

    def handle(failure):
        failures.append(failure)
        raise RuntimeError("handler failed")

    for handler in (options.on_failure, handle):
        async with Client(broker.endpoints, options=replace(options, on_failure=handler)) as client:
            subscription = await client.subscribe(NUMBERS)
            await following(subscription)
            broker.rows.append(len(broker.rows) + 1)
            for socket in list(broker.sockets):
                await socket.close()
            assert numbers((await following(subscription)).added) == broker.rows[-1:]
    assert len(failures) == 2
    assert "on_failure failed" in caplog.text


async def test_temporary_refusal_ends_the_attempts():
    async def starting(socket):
        async for text in socket:
            alias = json.loads(text)["subscribe"]["alias"]
            error = {"error": "unavailable", "error_description": "starting", "status_code": 503, "alias": alias}
            await socket.send(json.dumps(error))

    options, failures = recording(continues=False)
    async with server(starting) as endpoints, Client(endpoints, options=options) as client:
        with pytest.raises(Refused, match="starting"):
            await client.subscribe(NUMBERS)
    assert [failure.status_code for failure in failures] == [503]


async def test_invalid_message_ends_the_attempts():
    async def talk(socket):
        await socket.send("hello")
        await socket.wait_closed()

    options, _ = recording(continues=False)
    async with server(talk) as endpoints, Client(endpoints, options=options) as client:
        with pytest.raises(BadAnswer, match="invalid message"):
            await client.subscribe(NUMBERS)


async def test_subscribe_request_that_is_echoed_raises():
    async def echo(socket):
        async for text in socket:
            await socket.send(text)

    async with server(echo) as endpoints, Client(endpoints, options=QUICK) as client:
        with pytest.raises(BadAnswer, match="did not answer"):
            await client.subscribe(NUMBERS)


async def test_refusal_of_the_connection_is_the_cause_of_its_end():
    async def dismiss(socket):
        await socket.send(json.dumps({"error": "not_found", "error_description": "wrong path", "status_code": 404}))
        await socket.close(1008, "no such path")

    options, _ = recording(continues=False)
    async with server(dismiss) as endpoints, Client(endpoints, options=options) as client:
        with pytest.raises((Refused, NoConnection)) as raised:
            await client.subscribe(NUMBERS)
    refusal = raised.value.__cause__ if isinstance(raised.value, NoConnection) else raised.value
    assert refusal.description == "wrong path"


async def test_changed_address_is_looked_up_before_each_attempt(empty_gateway):
    gateway = empty_gateway
    gateway.put(1)
    async with relay(gateway.ws_port) as first, relay(gateway.ws_port) as second:
        ports = [first.port]

        def locate(url):
            return url.replace(f":{first.port}", f":{ports[-1]}")

        endpoints = Endpoints.at("127.0.0.1", http_port=gateway.http_port, ws_port=first.port)
        async with Client(endpoints, options=replace(QUICK, locate=locate)) as client:
            subscription = await client.subscribe(NUMBERS)
            await following(subscription)
            ports.append(second.port)
            first.cut()
            gateway.put(2)
            assert numbers((await following(subscription)).added) == [2]
        assert second.heard


@pytest.mark.parametrize("problem", ["no address", "not encrypted"])
async def test_failed_look_up_counts_as_a_failed_connection(broker, problem):
    def locate(url):
        if problem == "no address":
            raise OSError(2, "No such file or directory")
        return "ws://192.0.2.1:9000/subscribe"

    options, _ = recording(continues=False)
    options = replace(options, locate=locate, token=lambda: "secret")
    async with Client(broker.endpoints, options=options) as client:
        with pytest.raises(NoConnection, match=problem) as raised:
            await client.subscribe(NUMBERS)
    assert isinstance(raised.value.__cause__, OSError if problem == "no address" else ValueError)


async def test_restart_delivers_the_whole_result_after_a_resumed_connection(empty_gateway):
    gateway = empty_gateway
    gateway.put(1, 2)
    async with relay(gateway.ws_port) as network:
        endpoints = Endpoints.at("127.0.0.1", http_port=gateway.http_port, ws_port=network.port)
        async with Client(endpoints, options=QUICK) as client:
            subscription = await client.subscribe(NUMBERS, restart=True)
            spuid = subscription.spuid
            await following(subscription)
            network.cut()
            whole = await following(subscription)
            assert (whole.sequence, numbers(whole.added), whole.removed) == (0, [1, 2], ()), "although nothing changed"
            gateway.put(3)
            change = await following(subscription)
            assert (change.sequence, numbers(change.added)) == (1, [3])
            assert subscription.spuid == spuid, "the gateway has sent the missed changes only"


async def test_subscription_without_resume_asks_for_the_whole_result_again(broker):
    async with Client(broker.endpoints, options=QUICK) as client:
        subscription = await client.subscribe(NUMBERS, resume=False)
        assert subscription.variables == ("n",)
        await following(subscription)
        broker.rows = [1, 2]
        for socket in list(broker.sockets):
            await socket.close()
        change = await following(subscription)
        assert (change.sequence, numbers(change.added)) == (1, [2])
    assert len(broker.subscribes) == 2
    assert not {"resume", "spuid"} & set().union(*broker.subscribes)


async def test_an_error_of_a_cancelled_request_concerns_no_other_request(caplog):
    both, cancelled = asyncio.Event(), asyncio.Event()

    async def answer(socket):
        first, second = [json.loads(await socket.recv())["subscribe"]["alias"] for _ in range(2)]
        both.set()
        await cancelled.wait()
        error = {"error": "invalid_grant", "error_description": "expired", "status_code": 401, "alias": first}
        await socket.send(json.dumps(error))
        await (await socket.ping())  # the client has read the error
        rows = {"addedResults": results([1]), "removedResults": {}}
        await socket.send(json.dumps({"notification": {"spuid": "s", "sequence": 0, "alias": second, **rows}}))
        await socket.wait_closed()

    async with server(answer) as endpoints, Client(endpoints, options=QUICK) as client:
        first = asyncio.create_task(client.subscribe(NUMBERS))
        await asyncio.sleep(0)
        second = asyncio.create_task(client.subscribe(NUMBERS))
        await both.wait()
        first.cancel()
        await asyncio.wait({first})
        cancelled.set()
        assert numbers((await following(await second)).added) == [1]
    assert not caplog.records
