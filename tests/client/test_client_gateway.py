"""The low-level client with a running gateway."""

import asyncio
import uuid
from datetime import UTC, datetime, timedelta

import httpx
import pyoxigraph as ox
import pytest
from client_gateway import NUMBERS, QUICK, following, numbers

from edge.client import BadAnswer, Client, Closed, Endpoints, Options, Refused, Scheduled
from tests.support.waiting import PATIENCE, eventually


@pytest.fixture(params=["http", "websocket", "auto"])
async def client(request, empty_gateway):
    async with Client(empty_gateway.endpoints, over=request.param, options=QUICK) as found:
        yield found


async def test_updates_and_queries_of_every_form(client):
    done = await client.update('INSERT DATA { <urn:a> <urn:p> 1 , "x"@en ; <urn:q> _:b }')
    assert (done.added, done.removed) == (3, 0)
    rows = await client.select("SELECT ?o ?none { <urn:a> <urn:p> ?o } ORDER BY DATATYPE(?o)")
    assert rows.variables == ("o", "none")
    assert {row["o"] for row in rows} == {ox.Literal(1), ox.Literal("x", language="en")}
    assert rows == await client.query("SELECT ?o ?none { <urn:a> <urn:p> ?o } ORDER BY DATATYPE(?o)")
    assert await client.ask("ASK { <urn:a> <urn:p> 1 }") is True
    assert await client.query("ASK { <urn:a> <urn:p> 2 }") is False
    triples = await client.construct(
        "CONSTRUCT { ?o <urn:r> ?s } WHERE { ?s <urn:p> ?o FILTER(?o = 1 || 1 = 1) ?s <urn:q> ?b }"
    )
    assert triples == []
    (triple,) = await client.construct("CONSTRUCT { ?s <urn:r> ?o } WHERE { ?s <urn:p> ?o FILTER(ISNUMERIC(?o)) }")
    assert triple == ox.Triple(ox.NamedNode("urn:a"), ox.NamedNode("urn:r"), ox.Literal(1))
    assert len(await client.construct("DESCRIBE <urn:a>")) >= 2


async def test_datasets(client):
    await client.update(
        "INSERT DATA { <urn:s> <urn:p> 1 GRAPH <urn:g> { <urn:s> <urn:p> 2 } GRAPH <urn:h> { <urn:s> <urn:p> 3 } }"
    )
    query = "SELECT ?n { { ?s <urn:p> ?n } UNION { GRAPH ?g { ?s <urn:p> ?n } } }"
    assert numbers(await client.select(query, default_graphs=["urn:g"])) == [2]
    assert numbers(await client.select(query, default_graphs=["urn:g"], named_graphs=["urn:h"])) == [2, 3]
    await client.update("INSERT { <urn:s> <urn:q> ?n } WHERE { ?s <urn:p> ?n }", using=["urn:h"])
    assert numbers(await client.select("SELECT ?n { ?s <urn:q> ?n }")) == [3]
    subscription = await client.subscribe(query, named_graphs=["urn:h"])
    assert numbers((await following(subscription)).added) == [3]


async def test_errors_have_the_members_of_the_protocol(client):
    for request in [client.query("SELECT"), client.update("DELETE"), client.subscribe("SELECT")]:
        with pytest.raises(Refused) as refused:
            await request
        assert (refused.value.error, refused.value.status_code) == ("parsing_failed", 400)
        assert refused.value.description
    with pytest.raises(BadAnswer):
        await client.select("ASK {}")


async def test_a_subscription_delivers_changes(client, empty_gateway):
    empty_gateway.put(1, 2)
    async with await client.subscribe(NUMBERS) as subscription:
        first = await following(subscription)
        assert (numbers(first.added), first.removed, first.sequence) == ([1, 2], (), 0)
        await client.update("DELETE DATA { <urn:set> <urn:has> 1 } ; INSERT DATA { <urn:set> <urn:has> 3 }")
        second = await following(subscription)
        assert (numbers(second.added), numbers(second.removed), second.sequence) == ([3], [1], 1)
        assert numbers(subscription.results) == [2, 3]
        assert client.connected
    with pytest.raises(StopAsyncIteration):
        await anext(subscription)


async def test_ask_and_construct_are_subscribed_to_as_well(client):
    truth = await client.subscribe("ASK { <urn:set> <urn:has> 1 }")
    assert [row.plain() for row in (await following(truth)).added] == [{"boolean": False}]
    triples = await client.subscribe("CONSTRUCT { ?n <urn:in> ?s } WHERE { ?s <urn:has> ?m BIND(<urn:x> AS ?n) }")
    assert (await following(triples)).added == ()
    await client.update("INSERT DATA { <urn:set> <urn:has> 1 }")
    flip = await following(truth)
    assert [row.plain() for row in (*flip.removed, *flip.added)] == [{"boolean": False}, {"boolean": True}]
    (row,) = (await following(triples)).added
    assert row.plain() == {"subject": "urn:x", "predicate": "urn:in", "object": "urn:set"}


async def test_rows_are_bags(client):
    await client.update("INSERT DATA { <urn:a> <urn:p> 1 . <urn:b> <urn:p> 1 }")
    subscription = await client.subscribe("SELECT ?n { ?s <urn:p> ?n }")
    assert numbers((await following(subscription)).added) == [1, 1]
    await client.update("DELETE DATA { <urn:a> <urn:p> 1 }")
    assert numbers((await following(subscription)).removed) == [1]
    assert numbers(subscription.results) == [1]


async def test_unsubscribing_reaches_the_gateway(client, empty_gateway):
    async with httpx.AsyncClient(trust_env=False) as http:

        async def served():
            return (await http.get(f"http://127.0.0.1:{empty_gateway.http_port}/api/engine")).json()["subscriptions"]

        before = await served()
        subscriptions = [await client.subscribe(NUMBERS), await client.subscribe("ASK {}")]
        assert await served() == before + 2
        for subscription in subscriptions:
            await subscription.close()
        async with asyncio.timeout(PATIENCE):
            while await served() != before:
                pass


async def test_timers_are_listed_replaced_and_cancelled(client):
    name = f"off/lamp {uuid.uuid4()}"
    scheduled = await client.update("INSERT DATA { <urn:s> <urn:p> 1 }", delay=timedelta(hours=1), id=name)
    assert (scheduled.id, scheduled.replaced) == (name, False)
    tomorrow = datetime.now(UTC).replace(microsecond=7) + timedelta(days=1)
    again = await client.update("INSERT DATA { <urn:s> <urn:p> 2 }", at=tomorrow, id=name)
    assert (again.at, again.replaced) == (tomorrow, True)
    timer = await client.timer(name)
    assert (timer.id, timer.state, timer.at, timer.finished) == (name, "pending", tomorrow, None)
    assert "2" in timer.sparql
    assert timer in await client.timers("pending")
    await client.cancel(name)
    assert (await client.timer(name)).state == "cancelled"
    for request in [client.cancel("nobody"), client.timer("nobody")]:
        with pytest.raises(Refused) as refused:
            await request
        assert refused.value.status_code == 404


async def test_a_delayed_update_has_an_outcome(client):
    subscription = await client.subscribe(NUMBERS)
    await following(subscription)
    scheduled = await client.update("INSERT DATA { <urn:set> <urn:has> 1 }", delay=timedelta(milliseconds=10))
    assert isinstance(scheduled, Scheduled)
    assert numbers((await following(subscription)).added) == [1]
    timer = await client.timer(scheduled.id)
    assert (timer.state, timer.added, timer.removed, timer.sparql) == ("done", 1, 0, None)
    assert timer.finished >= timer.at
    with pytest.raises(Refused):
        await client.update("nonsense", delay=timedelta(hours=1))


async def test_a_slow_application_gets_merged_deltas(empty_gateway):
    options = Options(waiting=2)
    async with Client(empty_gateway.endpoints, options=options) as client:
        subscription = await client.subscribe(NUMBERS)
        for number in range(50):
            await client.update(f"INSERT DATA {{ <urn:set> <urn:has> {number} }}")
        await eventually(lambda: len(subscription.results) == 50, "all numbers are here")
        first, second = await following(subscription), await following(subscription)
        assert (len(first.added), len(second.added)) == (0, 50)
        assert (first.sequence, second.sequence) == (0, 1)


async def test_many_requests_at_once_are_answered_each_with_its_own(empty_gateway):
    async with Client(empty_gateway.endpoints, over="websocket", options=Options(in_flight=20)) as client:
        outcomes = await asyncio.gather(
            *(client.update(f"INSERT DATA {{ <urn:set> <urn:has> {n} }}") for n in range(200)),
            *(client.ask(f"ASK {{ FILTER({n} > 100) }}") for n in range(200)),
        )
        assert [outcome.added for outcome in outcomes[:200]] == [1] * 200
        assert outcomes[200:] == [n > 100 for n in range(200)]


async def test_updates_over_the_socket_keep_their_order(empty_gateway):
    async with Client(empty_gateway.endpoints, over="websocket") as client:
        overwrite = "DELETE WHERE {{ <urn:x> <urn:is> ?o }} ; INSERT DATA {{ <urn:x> <urn:is> {} }}"
        subscription = await client.subscribe("SELECT ?n { <urn:x> <urn:is> ?n }")
        await asyncio.gather(*(client.update(overwrite.format(n)) for n in range(50)))
        assert numbers(await client.select("SELECT ?n { <urn:x> <urn:is> ?n }")) == [49]
        await eventually(lambda: numbers(subscription.results) == [49], "the last one")
        seen = []
        while seen[-1:] != [49]:
            seen += numbers((await following(subscription)).added)
        assert seen == list(range(50))


async def test_requests_of_a_closed_client_are_refused(empty_gateway):
    client = Client(empty_gateway.endpoints)
    subscription = await client.subscribe(NUMBERS)
    await client.close()
    await client.close()
    with pytest.raises(Closed):
        await client.query("ASK {}")
    with pytest.raises(Closed):
        await client.subscribe(NUMBERS)
    assert [notification async for notification in subscription] == []
    assert not client.connected


async def test_pending_requests_fail_when_the_client_is_closed(absent_gateway):
    client = Client(absent_gateway.endpoints, over="websocket")
    tasks = [asyncio.create_task(client.subscribe(NUMBERS)), asyncio.create_task(client.ask("ASK {}"))]
    await asyncio.sleep(0)
    await client.close()
    assert [type(error) for error in await asyncio.gather(*tasks, return_exceptions=True)] == [Closed, Closed]


@pytest.mark.parametrize("url", ["http://x/subscribe", "ws://", "nonsense", "ws://h:99999/s"])
def test_wrong_addresses_are_refused_at_once(url):
    with pytest.raises(ValueError, match="not an address"):
        Endpoints(subscribe=url)


def test_endpoints_of_a_host():
    assert Endpoints.at("::1").subscribe == "ws://[::1]:9000/subscribe"
    assert Endpoints.at("gateway.local", http_port=80).update == "http://gateway.local:80/update"
