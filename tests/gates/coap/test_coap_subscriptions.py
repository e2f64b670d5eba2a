"""Subscriptions as observable resources: RFC 7641."""

import json

import pytest
from aiocoap import CON, DELETE, FETCH, GET, NON, POST, Code
from aiocoap.numbers.constants import TransportTuning
from coap_client import ALL, CoapClient, Datagrams, body, values

from edge.engine.requests import UpdateRequest
from tests.support.waiting import eventually


def insert(value):
    return f'INSERT DATA {{ <urn:s> <urn:p> "{value}" }}'


async def over(gate):
    """Wait until the engine has no subscription left."""
    await eventually(lambda: gate.engine.subscriptions == 0, "the end of the subscription")
    await eventually(lambda: gate.metric("edge_subscriptions") == 0, "the end of the observation")


async def test_first_the_result_then_every_change_in_order(gate, client):
    await client.update(insert("before"))
    observation = await client.observe(await client.subscribe())
    first = await observation.notification()
    assert (first["sequence"], values(first["addedResults"]), values(first["removedResults"])) == (0, ["before"], [])
    for number in range(5):
        await client.update(insert(number))
        received = await observation.notification()
        assert (received["sequence"], values(received["addedResults"])) == (number + 1, [str(number)])
    await client.update("DELETE WHERE { ?s ?p ?o }")
    received = await observation.notification()
    assert values(received["removedResults"]) == ["0", "1", "2", "3", "4", "before"]
    assert gate.metric("edge_notifications_total") == 7


@pytest.mark.parametrize("accept", [None, 60])
async def test_the_answer_to_a_subscription_says_where_it_is(client, accept):
    answer = await client.ask(POST, "/subscribe", ALL, accept=accept)
    path = "/" + "/".join(answer.opt.location_path)
    assert (answer.code, body(answer)["path"]) == (Code.CREATED, path)
    first = await (await client.observe(path)).notification()
    assert first["spuid"] == body(answer)["spuid"]


async def test_numbers_of_notifications_grow(client):
    path = await client.subscribe()
    one = await (await client.observe(path)).message()
    observation = await client.observe(path)
    two = await observation.message()
    await client.update(insert("x"))
    three = await observation.message()
    assert one.opt.observe < two.opt.observe < three.opt.observe


async def test_changes_before_the_registration_are_notified(client):
    path = await client.subscribe()
    for number in range(3):
        await client.update(insert(number))
    observation = await client.observe(path)
    seen = []
    while len(seen) < 3:
        seen += values((await observation.notification())["addedResults"])
    assert sorted(seen) == ["0", "1", "2"]


async def test_notifications_are_cbor_where_that_is_accepted(client):
    path = await client.subscribe(b"ASK { ?s ?p ?o }", "/subscribe?alias=mine")
    observation = await client.observe(path, accept=60)
    first = await observation.message()
    assert first.opt.content_format == 60
    assert (body(first)["alias"], body(first)["sequence"]) == ("mine", 0)
    await client.update(insert("x"))
    assert (await observation.message()).opt.content_format == 60


async def test_large_notifications_come_in_blocks(client):
    await client.update("INSERT DATA { " + "".join(f'<urn:s{n}> <urn:p> "{n}" . ' for n in range(200)) + "}")
    observation = await client.observe(await client.subscribe())
    assert len(values((await observation.notification())["addedResults"])) == 200
    await client.update("DELETE WHERE { ?s ?p ?o }")
    assert len(values((await observation.notification())["removedResults"])) == 200


async def test_a_get_without_observe_gives_the_result_of_now(client):
    path = await client.subscribe()
    await client.update(insert("x"))
    answer = await client.ask(GET, path)
    assert answer.opt.observe is None
    assert values(body(answer)) == ["x"]


@pytest.mark.parametrize("query", [b"nonsense", b"SELECT * { ?s ?p ?o FILTER(<urn:no>(?o)) }"])
async def test_an_invalid_subscription_is_refused(gate, client, query):
    answer = await client.ask(POST, "/subscribe", query)
    assert (answer.code, body(answer)["error"]) == (Code.BAD_REQUEST, "parsing_failed")
    await over(gate)


async def test_delete_ends_a_subscription_and_notifies_the_observer(gate, client):
    path = await client.subscribe()
    observation = await client.observe(path)
    await observation.message()
    assert (await client.ask(DELETE, path)).code == Code.DELETED
    last = await observation.message()
    assert (last.code, body(last)["error"]) == (Code.NOT_FOUND, "not_found")
    assert last.opt.observe is None
    await over(gate)
    for code in (GET, DELETE):
        assert (await client.ask(code, path)).code == Code.NOT_FOUND


async def test_an_observer_that_deregisters_ends_it(gate):
    device = Datagrams(gate.port)
    created = await device.ask(POST, "/subscribe", ALL)
    path = "/".join(created.opt.location_path)
    assert (await device.ask(GET, path, observe=0)).opt.observe is not None
    answer = await device.ask(GET, path, observe=1)
    assert (answer.code, answer.opt.observe) == (Code.CONTENT, None)
    await over(gate)
    device.close()


async def following(gate, device, kind=CON, *, several=False):
    """Let a device observe; return the observation."""
    created = await device.ask(POST, "/subscribe", ALL)
    path = "/".join(created.opt.location_path)
    assert json.loads((await device.ask(GET, path, observe=0, kind=kind)).payload)["sequence"] == 0
    assert several or gate.engine.subscriptions == 1
    return path


async def test_an_observer_that_resets_a_notification_is_removed(serving):
    async with serving(follow_within=2.0) as gate, CoapClient(gate.url) as client:
        device = Datagrams(gate.port)
        await following(gate, device)
        await client.update(insert("x"))
        device.reset(await device.receive())
        await over(gate)
        device.close()


@pytest.mark.parametrize("kind", [CON, NON])
async def test_a_vanished_observer_is_detected_at_the_next_check(serving, kind):
    """This needs no change of the result, and holds for both ways to observe."""
    async with serving(follow_within=2.0, ping_interval=0.2) as gate:
        device = Datagrams(gate.port)
        await following(gate, device, kind)
        device.close()
        await over(gate)


async def test_an_observer_that_confirms_nothing_is_removed(serving, monkeypatch):
    """The intervals of RFC 7252, section 4.2, divided by a thousand. The observer is alive and does not read."""
    monkeypatch.setattr(TransportTuning, "ACK_TIMEOUT", 0.002)
    async with serving(follow_within=2.0) as gate:
        device = Datagrams(gate.port)
        await following(gate, device)
        for number in range(3):
            gate.engine.update([UpdateRequest(insert(number))]).result(10)
        await over(gate)
        device.close()


async def test_an_observer_that_answers_pings_stays(serving):
    async with serving(follow_within=2.0, ping_interval=0.1) as gate, CoapClient(gate.url) as client:
        device = Datagrams(gate.port)
        await following(gate, device)
        for _ in range(3):
            ping = await device.receive()
            assert ping.code == Code.EMPTY
            device.reset(ping)
        await client.update(insert("x"))
        while (received := await device.receive()).code == Code.EMPTY:
            device.reset(received)
        assert values(json.loads(received.payload)["addedResults"]) == ["x"]
        device.close()


async def test_an_unobserved_subscription_ends(serving):
    async with serving(follow_within=0.1) as gate, CoapClient(gate.url) as client:
        path = await client.subscribe()
        await over(gate)
        assert (await client.ask(GET, path)).code == Code.NOT_FOUND


async def test_a_slow_observer_gets_one_merged_delta_and_delays_no_other(gate, client):
    device = Datagrams(gate.port)
    await following(gate, device)
    quick = await client.observe(await client.subscribe())
    await quick.message()
    await client.update(insert("first"))
    first = await device.receive()
    for number in range(6):
        await client.update(insert(number))
        await client.update(f'DELETE DATA {{ <urn:s> <urn:p> "{number}" }}')
    await client.update(insert("last"))
    for _ in range(14):
        assert await quick.message()
    device.acknowledge(first)
    seen = []
    while "last" not in seen:
        received = await device.receive()
        if received.mid == first.mid:
            continue  # repeated before it was acknowledged
        device.acknowledge(received)
        notification = json.loads(received.payload)
        seen += values(notification["addedResults"])
    assert notification["sequence"] == 14
    assert gate.metric("edge_merged_notifications_total") >= 10
    device.close()


async def test_a_second_observer_replaces_the_first_and_starts_with_the_result(gate, client):
    path = await client.subscribe()
    one = await client.observe(path)
    await one.message()
    await client.update(insert("x"))
    await one.message()
    two = await client.observe(path)
    first = await two.notification()
    assert (first["sequence"], values(first["addedResults"])) == (0, ["x"])
    assert (await one.message()).code == Code.NOT_FOUND
    await client.update(insert("y"))
    assert values((await two.notification())["addedResults"]) == ["y"]
    assert gate.engine.subscriptions == 1


async def test_an_observer_can_register_again(gate, client):
    """RFC 7641, 3.3.1: the same token, to verify that it is still registered."""
    device = Datagrams(gate.port)
    path = await following(gate, device)
    await client.update(insert("x"))
    device.acknowledge(await device.receive())
    again = await device.ask(GET, path, observe=0)
    assert values(json.loads(again.payload)["addedResults"]) == ["x"]
    await client.update(insert("y"))
    received = await device.receive()
    device.acknowledge(received)
    assert values(json.loads(received.payload)["addedResults"]) == ["y"]
    assert gate.engine.subscriptions == 1
    device.close()


async def test_one_client_gets_at_most_half_of_the_subscriptions(serving):
    async with serving(max_subscriptions=4) as gate, CoapClient(gate.url) as client, CoapClient(gate.url) as other:
        first = await client.subscribe()
        await client.subscribe()
        answer = await client.ask(POST, "/subscribe", ALL)
        assert (answer.code, body(answer)["error"]) == (Code.TOO_MANY_REQUESTS, "too_many_requests")
        assert "This client has 2 subscriptions" in body(answer)["error_description"]
        await other.subscribe()
        await client.ask(DELETE, first)
        await client.subscribe()
        await eventually(lambda: gate.engine.subscriptions == 3, "the end of the first")


async def test_the_number_of_subscriptions_is_limited(serving):
    async with serving(max_subscriptions=2) as gate, CoapClient(gate.url) as client, CoapClient(gate.url) as other:
        first = await client.subscribe()
        await other.subscribe()
        async with CoapClient(gate.url) as third:
            answer = await third.ask(POST, "/subscribe", ALL)
            assert "all clients together have 2 of 2" in body(answer)["error_description"]
            await client.ask(DELETE, first)
            await third.subscribe()


async def test_an_observer_is_notified_of_the_gateways_stop(serving):
    async with serving() as gate:
        device = Datagrams(gate.port)
        await following(gate, device)
    last = await device.receive()
    assert (last.code, json.loads(last.payload)["error"]) == (Code.SERVICE_UNAVAILABLE, "not_ready")
    device.close()
    await over(gate)


async def test_queries_are_served_with_many_observers(client):
    observations = [await client.observe(await client.subscribe()) for _ in range(20)]
    await client.update(insert("x"))
    for observation in observations:
        assert (await observation.notification())["sequence"] == 0
        assert values((await observation.notification())["addedResults"]) == ["x"]
    assert values(body(await client.ask(FETCH, "/query", ALL))) == ["x"]


async def test_vanished_observers_affect_no_other(serving):
    """An ICMP error about one client is reported with a message to another."""
    async with serving(follow_within=2.0) as gate, CoapClient(gate.url) as client:
        gone, there = [Datagrams(gate.port) for _ in range(30)], Datagrams(gate.port)
        for device in (*gone[:15], there, *gone[15:]):
            await following(gate, device, several=True)
        for device in gone:
            device.close()
        for number in range(3):
            gate.engine.update([UpdateRequest(insert(number))]).result(10)
            received = await there.receive()
            there.acknowledge(received)
            assert values(json.loads(received.payload)["addedResults"]) == [str(number)]
        await eventually(lambda: gate.engine.subscriptions == 1, "the end of the others")
        assert values(body(await client.ask(FETCH, "/query", ALL))) == ["0", "1", "2"]
        there.close()
