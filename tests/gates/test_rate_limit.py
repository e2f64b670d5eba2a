"""The rate limit of a client over all gates, and the errors when it is exceeded."""

from __future__ import annotations

import contextlib

import httpx
import pytest
from gate_client import ALL
from hypothesis import given
from hypothesis import strategies as st
from websockets.exceptions import InvalidStatus

from edge.gates.rate_limit import RateLimit, peer_of
from edge.gates.settings import HttpGateSettings, LimitSettings, WsGateSettings
from edge.listener import is_local
from edge.protocol.access import Access
from edge.protocol.errors import MissingAuthorization, TooManyRequests
from tests.support.waiting import eventually

SLOW = 0.001
"""Requests per second: no token is refilled during a test."""


class ByName:
    """A guard that uses the token as the name of the client."""

    def access(self, authorization):
        if not authorization:
            raise MissingAuthorization("A token is needed")
        return Access(authorization.removeprefix("Bearer "))

    def watch(self, client, revoked):
        return lambda: None


def goes(rate_limit: RateLimit, who: str, now: float) -> bool:
    try:
        rate_limit.request(who, now)
    except TooManyRequests:
        return False
    return True


# The rate limiter


@given(st.integers(1, 20), st.integers(1, 50), st.lists(st.floats(0, 3), max_size=80))
def test_a_client_is_refused_only_beyond_rate_and_burst(rate, burst, pauses):
    rate_limit = RateLimit(LimitSettings(rate=rate, burst=burst))
    now, sent = 100.0, []
    for pause in pauses:
        now += pause
        if goes(rate_limit, "one", now):
            sent.append(now)
    for first, begin in enumerate(sent):
        for last in range(first, len(sent)):
            assert last - first + 1 <= burst + rate * (sent[last] - begin) + 1e-3
    steady = RateLimit(LimitSettings(rate=rate, burst=burst))
    assert all(goes(steady, "one", 100.0 + number * 1.001 / rate) for number in range(100))


def test_a_refused_client_may_continue_after_the_reported_time():
    rate_limit = RateLimit(LimitSettings(rate=2, burst=4))
    assert [goes(rate_limit, "one", 0.0) for _ in range(6)] == [True] * 4 + [False] * 2
    with pytest.raises(TooManyRequests) as refused:
        rate_limit.request("one", 0.0)
    assert refused.value.retry_after == 1
    assert goes(rate_limit, "other", 0.0)
    assert goes(rate_limit, "one", 0.0 + refused.value.retry_after)


def test_idle_clients_of_the_rate_limit_are_evicted():
    rate_limit = RateLimit(LimitSettings(rate=1000, burst=10))
    for number in range(10_000):
        rate_limit.request(f"client {number}", number / 100)
    assert len(rate_limit._requests._full_at) <= 1001


def test_without_a_rate_nothing_is_limited():
    rate_limit = RateLimit(LimitSettings(rate=0, burst=1))
    assert all(goes(rate_limit, "one", 0.0) for _ in range(100))


@pytest.mark.parametrize(
    ("host", "local"),
    [("127.0.0.1", True), ("::1", True), ("192.0.2.1", False), ("fe80::1%eth0", False), ("a name", False)],
)
def test_programs_on_this_machine_are_different_clients(host, local):
    assert is_local(host) is local
    assert (peer_of(host, 1) == peer_of(host, 2)) is not local


# At the gates


async def test_http_refuses_excess_requests_with_retry_after(serve):
    async with serve(limits=LimitSettings(rate=SLOW, burst=2)) as gateway, gateway.http() as http:
        answers = [await http.get("/query", params={"query": "ASK {}"}) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert answers[-1].json()["error"] == "too_many_requests"
        assert "limits.rate" in answers[-1].json()["error_description"]
        assert int(answers[-1].headers["Retry-After"]) == answers[-1].json()["retry_after"] > 900
        async with gateway.http() as other:
            assert (await other.get("/query", params={"query": "ASK {}"})).status_code == 200
        assert (await http.get("/health")).status_code == 200


async def test_a_websocket_is_refused_with_the_alias_and_lives(serve):
    async with serve(limits=LimitSettings(rate=SLOW, burst=2)) as gateway:
        client = await gateway.client()
        await client.subscribe(alias="mine")
        await client.send("this is no JSON")
        assert (await client.receive())["error"] == "invalid_request"
        for message in (
            {"query": {"sparql": "ASK {}", "alias": "again"}},
            {"unsubscribe": {"spuid": "x", "alias": "again"}},
        ):
            await client.send(message)
            received = await client.receive()
            assert (received["error"], received["alias"], received["status_code"]) == (
                "too_many_requests",
                "again",
                429,
            )
            assert received["retry_after"] > 900
        await client.send("this is no JSON, either")
        assert (await client.receive())["error"] == "too_many_requests"
        await gateway.update("INSERT DATA { <urn:a> <urn:b> 1 }")
        assert (await client.notification())["sequence"] == 1


async def test_an_identity_is_one_client_on_all_gates_and_connections(serve):
    async with serve(guard=ByName(), limits=LimitSettings(rate=SLOW, burst=3)) as gateway:
        for _ in range(2):
            client = await gateway.client()
            await client.send({"query": {"sparql": "ASK {}", "authorization": "Bearer one"}})
            assert "result" in await client.receive()
        async with gateway.http() as http:
            codes = [
                (await http.get("/query", params={"query": "ASK {}"}, headers={"Authorization": name})).status_code
                for name in ("Bearer one", "Bearer one", "Bearer two", "Bearer two")
            ]
        assert codes == [200, 429, 200, 200]


async def test_unauthenticated_clients_are_counted(serve):
    async with serve(guard=ByName(), limits=LimitSettings(rate=SLOW, burst=2)) as gateway, gateway.http() as http:
        codes = [(await http.get("/query", params={"query": "ASK {}"})).status_code for _ in range(3)]
        assert codes == [401, 401, 429]


async def test_subscriptions_are_counted_over_all_connections_of_a_client(serve, engine):
    async with serve(guard=ByName(), limits=LimitSettings(max_subscriptions=2)) as gateway:
        first, second = await gateway.client(), await gateway.client()

        async def subscribe(client, name):
            await client.send({"subscribe": {"sparql": ALL, "alias": "mine", "authorization": name}})
            return await client.receive()

        begun = await subscribe(first, "one")
        assert "notification" in begun
        assert "notification" in await subscribe(second, "one")
        refused = await subscribe(second, "one")
        assert (refused["error"], refused["alias"]) == ("too_many_requests", "mine")
        assert "limits.max_subscriptions" in refused["error_description"]
        assert "notification" in await subscribe(second, "two")
        spuid = begun["notification"]["spuid"]
        await first.send({"unsubscribe": {"spuid": spuid, "authorization": "one"}})
        assert "unsubscribed" in await first.receive()
        assert "notification" in await subscribe(first, "one")
        await first.socket.close()
        await eventually(lambda: engine.subscriptions == 2, "the closed one's are gone")
        assert "notification" in await subscribe(second, "one")


async def test_a_refused_subscription_takes_no_slot(serve):
    async with serve(limits=LimitSettings(max_subscriptions=1)) as gateway:
        client = await gateway.client()
        for _ in range(3):
            await client.send({"subscribe": {"sparql": "SELECT oops"}})
            assert (await client.receive())["error"] == "parsing_failed"
        await client.subscribe()


async def test_a_client_at_its_quota_can_resume_before_its_loss_is_detected(serve):
    async with serve(guard=ByName(), limits=LimitSettings(max_subscriptions=1)) as gateway:
        lost, again = await gateway.client(), await gateway.client()
        subscription = {"sparql": ALL, "authorization": "one", "resume": True}
        await lost.send({"subscribe": subscription})
        first = (await lost.receive())["notification"]
        await again.send({"subscribe": {**subscription, "spuid": first["spuid"], "sequence": 0}})
        assert (await again.receive())["notification"]["spuid"] == first["spuid"]


async def test_a_subscription_that_is_resumed_is_counted_once(serve):
    async with serve(limits=LimitSettings(max_subscriptions=1)) as gateway:
        for _ in range(3):
            client = await gateway.client()
            first = await client.subscribe(resume=True)
            client.socket.transport.abort()
            again = await gateway.client()
            await again.send(
                {"subscribe": {"sparql": ALL, "spuid": first["spuid"], "sequence": first["sequence"], "alias": "again"}}
            )
            assert (await again.receive())["notification"]["spuid"] == first["spuid"]
            await again.send({"subscribe": {"sparql": ALL}})
            assert (await again.receive())["error"] == "too_many_requests"
            await again.send({"unsubscribe": {"spuid": first["spuid"]}})
            assert "unsubscribed" in await again.receive()
            await again.subscribe()


async def test_connections_of_one_address_are_limited(serve, monkeypatch):
    for module in ("edge.gates.ws.gate", "edge.gates.http.limits"):
        monkeypatch.setattr(f"{module}.is_local", lambda host: False)
    ws, http = WsGateSettings(port=0, max_connections_of_one=2), HttpGateSettings(port=0, max_connections_of_one=2)
    async with serve(ws=ws, http=http) as gateway:
        client, _ = await gateway.client(), await gateway.client()
        with pytest.raises(InvalidStatus) as refused:
            await gateway.client()
        assert refused.value.response.status_code == 429
        assert b"ws.max_connections_of_one" in refused.value.response.body
        await client.socket.close()

        async def comes_in() -> bool:
            with contextlib.suppress(InvalidStatus):
                await gateway.client()
                return True
            return False

        await eventually(comes_in, "the slot of the closed connection")
        async with contextlib.AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(gateway.http()) for _ in range(3)]
            answers: list[httpx.Response] = [await client.get("/health") for client in clients]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert "http.max_connections_of_one" in answers[-1].json()["error_description"]


async def test_on_this_machine_connections_are_not_counted_by_address(serve):
    async with serve(ws=WsGateSettings(port=0, max_connections_of_one=1)) as gateway:
        for _ in range(3):
            await (await gateway.client()).subscribe()


async def test_one_client_that_floods_does_not_fill_the_queue(engine, serve):
    """Its updates are refused; those of others are executed."""
    async with serve() as gateway, gateway.http() as http:
        received = []
        original = engine.update

        def spy(requests, *more):
            received.append(requests[0].source)
            return original(requests, *more)

        engine.update = spy
        client = await gateway.client()
        await client.send({"update": {"sparql": "INSERT DATA { <urn:a> <urn:b> 1 }"}})
        await client.receive()
        headers = {"Content-Type": "application/sparql-update"}
        for number in range(2):
            await http.post("/update", content=f"INSERT DATA {{ <urn:a> <urn:b> {number + 2} }}", headers=headers)
        assert received[1] == received[2]
        assert len(set(received)) == 2
        assert all(source.startswith("127.0.0.1:") for source in received)
