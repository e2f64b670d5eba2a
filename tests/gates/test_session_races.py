"""Race conditions between a client and the engine: the test delays the engine's answers.

The engine is real; the test only decides when its answers arrive.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from gate_client import ALL
from gate_server import running

from edge.engine.requests import SubscribeFailed
from edge.gates.settings import WsGateSettings
from edge.protocol.errors import NotReady
from tests.support.waiting import eventually


class Held:
    """An engine whose subscribe requests wait until the test releases them."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.waiting: list[Any] = []
        self.sinks: list[Any] = []

    def subscribe(self, query, sink, alias=None, keep=False):
        future: Future[Any] = Future()
        self.waiting.append((query, sink, alias, future))
        return future

    def go(self) -> None:
        """Release all waiting requests."""
        while self.waiting:
            query, sink, alias, future = self.waiting.pop(0)
            if future.set_running_or_notify_cancel():
                self.sinks.append(sink)
                future.set_result(self.engine.subscribe(query, sink, alias).result(20))

    def __getattr__(self, name):
        return getattr(self.engine, name)


class Uncancellable(Held):
    """The engine has started the request, so that it cannot be cancelled."""

    def subscribe(self, query, sink, alias=None, keep=False):
        future = super().subscribe(query, sink, alias)
        future.set_running_or_notify_cancel()
        return future

    def go(self) -> None:
        while self.waiting:
            query, sink, alias, future = self.waiting.pop(0)
            future.set_result(self.engine.subscribe(query, sink, alias).result(20))


@pytest.mark.parametrize("kind", [Held, Uncancellable])
async def test_a_subscribe_that_is_not_answered_in_its_timeout_is_an_error_and_leaves_nothing(engine, kind):
    held = kind(engine)
    async with running(held) as gateway:
        client = await gateway.client()
        answer = await client.ask({"subscribe": {"sparql": ALL, "alias": "hasty", "timeout": 20}})
        assert (answer["error"], answer["status_code"], answer["alias"]) == ("timeout", 408, "hasty")
        held.go()
        await eventually(lambda: engine.subscriptions == 0, "unsubscription")
        await gateway.update("INSERT DATA { <urn:a> <urn:b> 1 }")
        unknown = await client.ask({"unsubscribe": {"spuid": "x"}})  # no other message came in between
        assert unknown["error"] == "not_found"


async def test_an_answer_in_time_stops_the_timeout(gateway):
    client = await gateway.client()
    await client.subscribe(timeout=200)
    with pytest.raises(TimeoutError):
        await client.receive(0.4)


async def test_a_client_that_leaves_before_the_answer_leaves_nothing(engine):
    held = Uncancellable(engine)
    async with running(held) as gateway:
        client = await gateway.client()
        await client.send({"subscribe": {"sparql": ALL}})
        await eventually(lambda: held.waiting, "the request")
        client.socket.transport.abort()
        await eventually(lambda: gateway.metric("edge_connections", gate="ws") == 0, "the end of the connection")
        held.go()
        await eventually(lambda: engine.subscriptions == 0, "unsubscription")


async def test_requests_in_work_are_bounded_and_none_is_lost(engine):
    held = Held(engine)
    async with running(held, ws=WsGateSettings(port=0, max_pending_requests=5)) as gateway:
        client = await gateway.client()
        for number in range(40):
            await client.send({"subscribe": {"sparql": ALL, "alias": str(number)}})
        await eventually(lambda: len(held.waiting) == 5, "five requests")
        other = await gateway.client()
        assert (await other.ask("{"))["error"] == "invalid_request"  # other clients are served meanwhile
        assert len(held.waiting) == 5
        answers = []
        while len(answers) < 40:
            held.go()
            answers.append((await client.notification())["alias"])
        assert answers == [str(number) for number in range(40)]


async def test_a_later_failure_is_reported_with_alias_and_spuid(engine):
    held = Held(engine)
    async with running(held) as gateway:
        client = await gateway.client()
        await client.send({"subscribe": {"sparql": ALL, "alias": "mine"}})
        await eventually(lambda: held.waiting, "the request")
        held.go()
        spuid = (await client.notification())["spuid"]
        held.sinks[0](SubscribeFailed(spuid, "mine", "The service does not answer"))
        error = await client.receive()
        assert error == {
            "error": "subscription_failed",
            "error_description": "The service does not answer",
            "status_code": 500,
            "alias": "mine",
            "spuid": spuid,
        }
        await eventually(lambda: engine.subscriptions == 0, "unsubscription")


async def test_errors_that_the_engine_raises_at_once_are_answers_too(engine):
    class Stopping:
        def subscribe(self, query, sink, alias=None, keep=False):
            raise NotReady("The gateway is stopping")

    async with running(Stopping()) as gateway:
        client = await gateway.client()
        answer = await client.ask({"subscribe": {"sparql": ALL, "alias": "mine"}})
        assert (answer["error"], answer["status_code"], answer["alias"]) == ("not_ready", 503, "mine")


async def test_a_fault_of_the_engine_is_an_internal_error_with_an_incident_number(engine, caplog):
    class Broken:
        def subscribe(self, query, sink, alias=None, keep=False):
            future: Future[Any] = Future()
            future.set_exception(ZeroDivisionError("secret detail"))
            return future

    async with running(Broken()) as gateway:
        client = await gateway.client()
        answer = await client.ask({"subscribe": {"sparql": ALL, "alias": "mine"}})
        assert (answer["error"], answer["status_code"], answer["alias"]) == ("internal_error", 500, "mine")
        assert "secret" not in answer["error_description"]
        assert answer["error_description"].split()[2].rstrip(":") in caplog.text
