"""Requests protected with OSCORE (RFC 8613), with the library's client and with single datagrams."""

import asyncio
import json

import aiocoap
import pytest
from aiocoap import DELETE, FETCH, GET, POST, Code, Message
from coap_client import ALL, CoapClient, Datagrams, body, values
from oscore_device import ASK, Device, protected_gate

from edge.gates.coap.oscore import SecurityContext
from edge.security.clients import Rights


@pytest.fixture
async def gate(engine, tmp_path):
    async with protected_gate(engine, tmp_path / "data", plain=False) as gate:
        yield gate


@pytest.fixture
async def device(gate):
    return Device(gate.port, gate.keys())


@pytest.fixture
async def client(gate, tmp_path):
    pytest.importorskip("lakers", reason="aiocoap's OSCORE client needs it")
    async with gate.client(gate.keys("client"), tmp_path / "client") as client:
        yield client


async def test_update_and_query(client):
    await client.update('INSERT DATA { <urn:a> <urn:b> "x" }')
    for code in (FETCH, POST):
        assert values(body(await client.ask(code, "/query", ALL))) == ["x"]
    answer = await client.ask(FETCH, "/query", ASK, accept=60)
    assert (answer.opt.content_format, body(answer)["boolean"]) == (60, True)


async def test_blockwise_request_and_response(client):
    wanted = sorted(str(number) for number in range(300))
    await client.update("INSERT DATA { " + "".join(f'<urn:s{n}> <urn:p> "{n}" . ' for n in wanted) + "}")
    assert values(body(await client.ask(FETCH, "/query", ALL))) == wanted


async def test_errors_and_readings(client, gate):
    answer = await client.ask(FETCH, "/query", b"nonsense")
    assert (answer.code, body(answer)["error"]) == (Code.BAD_REQUEST, "parsing_failed")
    assert (await client.ask(GET, "/nothing")).code == Code.NOT_FOUND
    assert (await client.ask(POST, "/reading/cellar/temperature", b"12.5")).code == Code.CHANGED
    assert gate.came == [("cellar/temperature", b"12.5")]


async def test_a_subscription_is_followed(client):
    """The first result is large, so that the first notification is block-wise."""
    await client.update("INSERT DATA { " + "".join(f'<urn:s{n}> <urn:p> "{n}" . ' for n in range(50)) + "}")
    path = await client.subscribe()
    observation = await client.observe(path)
    first = await observation.notification()
    assert (first["sequence"], len(values(first["addedResults"]))) == (0, 50)
    for number in range(3):
        await client.update(f"DELETE DATA {{ <urn:s{number}> <urn:p> '{number}' }}")
        received = await observation.notification()
        assert (received["sequence"], values(received["removedResults"])) == (number + 1, [str(number)])
    assert (await client.ask(DELETE, path)).code == Code.DELETED
    assert (await observation.message()).code == Code.NOT_FOUND


async def test_notifications_have_numbers_of_their_own(device):
    path = "/" + "/".join((await device.ask(POST, "/subscribe", ALL)).opt.location_path)
    sealed, request = device.seal(GET, path, observe=0)
    outer = [await device.exchange(sealed)]
    writer = Device(device.port, device_keys := device.shared)
    assert device_keys is writer.shared
    for number in range(3):
        writer.keys.sender_sequence_number = 1000 + 10 * number
        assert (
            await writer.ask(POST, "/update", f"INSERT DATA {{ <urn:a> <urn:b> {number} }}".encode())
        ).code == Code.CHANGED
        outer.append(await device.line.receive())
        device.line.acknowledge(outer[-1])
    device.numbers.clear()
    received = [device.open(message, request) for message in outer]
    assert [json.loads(message.payload)["sequence"] for message in received] == [0, 1, 2, 3]
    assert all(message.opt.observe is not None for message in outer)
    assert len(set(device.numbers)) == 3  # the first one is bound to the nonce of the request
    assert device.numbers == sorted(device.numbers)


async def test_deregistering_ends_the_subscription(device, gate):
    path = "/" + "/".join((await device.ask(POST, "/subscribe", ALL)).opt.location_path)
    assert (await device.ask(GET, path, observe=0)).code == Code.CONTENT
    assert (await device.ask(GET, path, observe=1)).code == Code.CONTENT
    assert (await device.ask(GET, path)).code == Code.NOT_FOUND


async def test_on_its_way_a_request_is_not_made_a_deregistration(device):
    """Anyone on the path can see and change the outer Observe option; the inner one counts."""
    path = "/" + "/".join((await device.ask(POST, "/subscribe", ALL)).opt.location_path)
    sealed, request = device.seal(GET, path)
    sealed.opt.observe = 1
    assert device.open(await device.exchange(sealed), request).code == Code.CONTENT
    assert (await device.ask(GET, path)).code == Code.CONTENT


@pytest.mark.filterwarnings("ignore:Initializing messages with:DeprecationWarning")  # the library, its own
async def test_no_answer_where_none_is_wanted(device, gate):
    await device.ask(FETCH, "/query", ASK)
    sealed, _ = device.seal(POST, "/reading/a", b"1", no_response=2)
    device.line.send_message(sealed)
    assert (await device.line.receive()).code == Code.EMPTY
    sealed, request = device.seal(FETCH, "/query", b"nonsense", no_response=2)
    assert device.open(await device.exchange(sealed), request).code == Code.BAD_REQUEST


async def test_a_missing_block_is_reported_in_the_protected_response(device):
    update = "INSERT DATA { " + "".join(f'<urn:s{n}> <urn:p> "{n}" . ' for n in range(50)) + "}"
    await device.ask(POST, "/update", update.encode())
    assert (await device.ask(FETCH, "/query", ALL)).opt.block2.more
    answer = await device.ask(FETCH, "/query", ALL, block2=(99, False, 6))
    assert answer.code == Code.REQUEST_ENTITY_INCOMPLETE


async def test_the_permissions_of_a_client_apply(gate):
    reader = Device(gate.port, gate.keys("reader", Rights(actions=frozenset({"query"}))))
    graphs = Device(gate.port, gate.keys("graphs", Rights(write=frozenset({"urn:g"}))))
    update = b'INSERT DATA { <urn:a> <urn:b> "x" }'
    assert (await reader.ask(FETCH, "/query", ALL)).code == Code.CONTENT
    for path, payload in (("/update", update), ("/subscribe", ALL), ("/reading/a", b"1")):
        assert (await reader.ask(POST, path, payload)).code == Code.FORBIDDEN, path
    assert (await graphs.ask(POST, "/update", update)).code == Code.FORBIDDEN
    assert (await graphs.ask(POST, "/reading/a", b"1")).code == Code.FORBIDDEN
    within = b'INSERT DATA { GRAPH <urn:g> { <urn:a> <urn:b> "x" } }'
    assert (await graphs.ask(POST, "/update", within)).code == Code.CHANGED
    assert gate.came == []


async def test_a_token_inside_changes_nothing(gate):
    reader = Device(gate.port, gate.keys("reader", Rights(actions=frozenset({"query"}))))
    gate.keys("writer")
    token = gate.security.token("writer", None)
    asked = json.dumps({"sparql": "INSERT DATA { <urn:a> <urn:b> 1 }", "authorization": f"Bearer {token}"})
    assert (await reader.ask(POST, "/update", asked.encode(), content_format=50)).code == Code.FORBIDDEN


async def test_the_subscription_of_another_client_looks_nonexistent(gate):
    mine, other = Device(gate.port, gate.keys("mine")), Device(gate.port, gate.keys("other"))
    path = "/" + "/".join((await mine.ask(POST, "/subscribe", ALL)).opt.location_path)
    for code in (GET, DELETE):
        assert (await other.ask(code, path)).code == Code.NOT_FOUND
    assert (await mine.ask(GET, path)).code == Code.CONTENT


async def test_unprotected_requests_are_refused_on_reachable_addresses(gate):
    gate.keys("lamp")
    token = gate.security.token("lamp", None)
    async with CoapClient(gate.url) as client:
        for path in ("/query", "/update", "/subscribe", "/reading/a", "/nothing"):
            message = Message(code=POST, uri=gate.url + path, payload=ALL)
            message.opt.add_option(aiocoap.numbers.OptionNumber(65000).create_option(value=token.encode()))
            answer = await client.send(message)
            assert answer.code == Code.UNAUTHORIZED, path
            assert b"OSCORE" in answer.payload
            assert len(answer.payload) < 60  # the answer goes to the address of the sender
        listed = await client.ask(GET, "/.well-known/core")
        assert listed.payload.count(b";osc") == 4
        assert listed.payload.count(b"</") == 4


async def test_loopback_accepts_tokens_and_keys(engine, tmp_path):
    async with protected_gate(engine, tmp_path / "data") as gate, CoapClient(gate.url) as client:
        keys = gate.keys("lamp")
        message = Message(code=FETCH, uri=gate.url + "/query", payload=ASK)
        assert (await client.send(message)).code == Code.UNAUTHORIZED
        message = Message(code=FETCH, uri=gate.url + "/query", payload=ASK)
        token = gate.security.token("lamp", None)
        message.opt.add_option(aiocoap.numbers.OptionNumber(65000).create_option(value=token.encode()))
        assert (await client.send(message)).code == Code.CONTENT
        assert (await Device(gate.port, keys).ask(FETCH, "/query", ASK)).code == Code.CONTENT


async def test_revoking_a_client_ends_its_keys_and_subscriptions(gate, device):
    path = "/" + "/".join((await device.ask(POST, "/subscribe", ALL)).opt.location_path)
    sealed, request = device.seal(GET, path, observe=0)
    assert device.open(await device.exchange(sealed), request).code == Code.CONTENT
    gate.security.clients.revoke("device")
    last = await device.line.receive()
    device.line.acknowledge(last)
    assert last.opt.observe is None
    assert device.open(last, request).code == Code.UNAUTHORIZED
    sealed, _ = device.seal(FETCH, "/query", ASK)
    assert (await device.exchange(sealed)).code == Code.UNAUTHORIZED
    gate.security.clients.allow("device", Rights())
    gate.security.token("device", None)
    sealed, _ = device.seal(FETCH, "/query", ASK)
    answer = await device.exchange(sealed)
    assert (answer.code, answer.payload) == (Code.UNAUTHORIZED, b"Security context not found")


@pytest.mark.parametrize("ended", [False, True])
async def test_new_keys_end_the_old_ones_at_once(gate, device, ended):
    path = "/" + "/".join((await device.ask(POST, "/subscribe", ALL)).opt.location_path)
    sealed, request = device.seal(GET, path, observe=0)
    assert device.open(await device.exchange(sealed), request).code == Code.CONTENT
    if ended:
        gate.security.unshare("device")
    else:
        again = Device(gate.port, gate.security.share("device"))
        assert (await again.ask(FETCH, "/query", ASK)).code == Code.CONTENT
    last = await device.line.receive()
    device.line.acknowledge(last)
    assert device.open(last, request).code == Code.UNAUTHORIZED
    sealed, _ = device.seal(FETCH, "/query", ASK)
    assert (await device.exchange(sealed)).payload == b"Security context not found"


async def test_a_message_that_was_cut_on_its_way(device, gate):
    """For example by a proxy that cannot decrypt it (RFC 8613, 4.1.3.4.2)."""
    await device.ask(FETCH, "/query", ASK)
    text = "INSERT DATA { " + "".join(f'<urn:s{n}> <urn:p> "{n}" . ' for n in range(20)) + "}"
    sealed, request = device.seal(POST, "/update", text.encode())
    for number in range(0, len(sealed.payload), 64):
        part = sealed.copy(payload=sealed.payload[number : number + 64])
        part.opt.block1 = (number // 64, number + 64 < len(sealed.payload), 2)
        answer = await device.exchange(part)
        if part.opt.block1.more:
            assert answer.code == Code.CONTINUE
    assert json.loads(device.open(answer, request).payload)["added"] == 20

    sealed, request = device.seal(FETCH, "/query", ALL)
    whole, number = b"", 0
    while True:
        asked = sealed.copy(payload=sealed.payload if number == 0 else b"")
        asked.opt.block2 = (number, False, 2)
        answer = await device.exchange(asked)
        whole += answer.payload
        if not answer.opt.block2.more:
            break
        number += 1
    asked.opt.block2 = (99, False, 2)
    missing = await device.exchange(asked)
    assert (missing.code, missing.payload) == (Code.REQUEST_ENTITY_INCOMPLETE, b"Blocks are missing")
    opened = device.open(answer.copy(payload=whole), request)
    assert opened.code == Code.CONTENT
    assert opened.opt.block2.more  # the inner message is block-wise, too
    assert opened.payload.startswith(b'{"head"')
    assert gate.metrics.registry.get_sample_value("edge_internal_errors_total") == 0


async def test_clients_without_keys_use_no_memory(device):
    """The gateway does not store blocks that nobody can decrypt."""
    sealed, _ = device.seal(POST, "/update", bytes(100))
    sealed.opt.oscore = sealed.opt.oscore[:-1] + b"\x77"
    sealed.opt.block1 = (0, True, 2)
    line = Datagrams(device.port)
    answer = await device.exchange(sealed.copy(payload=sealed.payload[:64]), line)
    assert answer.payload == b"Security context not found"


async def test_the_disk_is_seldom_written(gate, device):
    """RFC 8613, B.1: no write for a received message, one per 1,024 sequence numbers sent."""
    _, before = gate.security._store.version
    for _ in range(20):
        assert (await device.ask(FETCH, "/query", ASK)).code == Code.CONTENT
    _, after = gate.security._store.version
    assert after == before + 1
    context = SecurityContext(device.shared, gate.security.contexts)
    numbers = [context.new_sequence_number() for _ in range(2 * 1024)]
    assert numbers == list(range(1024, 3 * 1024))
    assert gate.security._store.version[1] == after + 2


async def test_concurrent_requests_are_answered(client):
    await client.ask(FETCH, "/query", ASK)
    answers = await asyncio.gather(*(client.ask(FETCH, "/query", ASK) for _ in range(20)))
    assert {answer.code for answer in answers} == {Code.CONTENT}


async def test_a_request_without_credentials_gets_both_ways_to_authenticate(engine, tmp_path):
    """A client that should protect its requests and does not do so is not looking for a token."""
    async with protected_gate(engine, tmp_path / "data") as gate, CoapClient(gate.url) as client:
        answer = await client.ask(FETCH, "/query", ASK)
        assert answer.code == Code.UNAUTHORIZED
        description = body(answer)["error_description"]
        assert "not protected with OSCORE" in description
        assert "option 65000" in description
