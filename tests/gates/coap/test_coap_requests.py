"""Queries and updates over CoAP: RFC 7252, RFC 8132, RFC 7959."""

import json
import socket

import aiocoap
import cbor2
import pytest
from aiocoap import ACK, CON, DELETE, FETCH, GET, NON, POST, PUT, Code, Message
from aiocoap.numbers.optionnumbers import OptionNumber
from coap_client import ALL, CoapClient, Datagrams, body, values

from edge.gates.coap import CoapGate
from edge.gates.settings import CoapGateSettings
from edge.metrics import Metrics

X = 'INSERT DATA { <urn:a> <urn:b> "x" }'
JSON, CBOR = 50, 60


def error(message):
    received = body(message)
    assert set(received) >= {"error", "error_description", "status_code"}
    return message.code, received["error"], received["status_code"]


@pytest.mark.parametrize(
    ("code", "path", "payload", "content_format", "answered"),
    [
        (GET, "/query?query=SELECT * {?s ?p ?o}", b"", None, Code.CONTENT),
        (FETCH, "/query", ALL, None, Code.CONTENT),
        (FETCH, "/query", ALL, 0, Code.CONTENT),
        (FETCH, "/query", json.dumps({"sparql": ALL.decode()}).encode(), JSON, Code.CONTENT),
        (FETCH, "/query", cbor2.dumps({"sparql": ALL.decode()}), CBOR, Code.CONTENT),
        (POST, "/query", ALL, None, Code.CHANGED),
    ],
)
async def test_a_query_can_be_asked_in_each_of_these_ways(client, code, path, payload, content_format, answered):
    await client.update(X)
    answer = await client.ask(code, path, payload, content_format=content_format)
    assert answer.code == answered
    assert answer.opt.content_format == JSON
    assert values(body(answer)) == ["x"]


async def test_the_answer_is_cbor_where_that_is_accepted(client):
    await client.update(X)
    answer = await client.ask(FETCH, "/query", ALL, accept=CBOR)
    assert answer.opt.content_format == CBOR
    assert cbor2.loads(answer.payload) == body(await client.ask(FETCH, "/query", ALL))


async def test_errors_are_cbor_where_that_is_accepted(client):
    answer = await client.ask(FETCH, "/query", b"nonsense", accept=CBOR)
    assert error(answer) == (Code.BAD_REQUEST, "parsing_failed", 400)


async def test_ask_and_the_dataset(client):
    await client.update('INSERT DATA { GRAPH <urn:g> { <urn:a> <urn:b> "in g" } }')
    assert body(await client.ask(GET, "/query?query=ASK{}"))["boolean"] is True
    assert values(body(await client.ask(FETCH, "/query", ALL))) == []
    assert values(body(await client.ask(FETCH, "/query?default-graph-uri=urn:g", ALL))) == ["in g"]
    request = json.dumps({"sparql": ALL.decode(), "default-graph-uri": ["urn:h", "urn:g"]}).encode()
    assert values(body(await client.ask(FETCH, "/query", request, content_format=JSON))) == ["in g"]


async def test_an_update_returns_its_counts(gate, client):
    answer = await client.ask(POST, "/update", X.encode())
    assert (answer.code, body(answer)) == (Code.CHANGED, {"added": 1, "removed": 0})
    answer = await client.ask(POST, "/update", b"DELETE WHERE { ?s ?p ?o }")
    assert body(answer) == {"added": 0, "removed": 1}
    assert gate.metric("edge_requests_total", primitive="update", status="200") == 2


async def test_an_update_can_be_delayed(gate, client):
    answer = await client.ask(POST, "/update?delay=PT1H&id=later", X.encode())
    assert answer.code == Code.CHANGED
    assert body(answer)["id"] == "later"
    assert gate.engine.timer("later").result(10).state == "pending"
    assert values(body(await client.ask(FETCH, "/query", ALL))) == []


async def test_large_results_come_in_blocks(client):
    wanted = sorted(str(number) for number in range(500))
    await client.update("INSERT DATA { " + "".join(f'<urn:s{n}> <urn:p> "{n}" . ' for n in wanted) + "}")
    answer = await client.ask(FETCH, "/query", ALL)
    assert answer.opt.block2.block_number > 10
    assert values(body(answer)) == wanted


async def test_blocks_are_as_small_as_the_client_wants_them(gate, client):
    await client.update("INSERT DATA { " + "".join(f'<urn:s{n}> <urn:p> "{n}" . ' for n in range(9)) + "}")
    device = Datagrams(gate.port)
    parts = []
    while not parts or answer.opt.block2.more:  # noqa: F821 - its first value is created in the loop
        answer = await device.ask(FETCH, "/query", ALL, block2=(len(parts), False, 2))
        assert len(answer.payload) <= 64
        parts.append(answer.payload)
    assert values(json.loads(b"".join(parts))) == [str(n) for n in range(9)]
    device.close()


@pytest.mark.parametrize("number", [1, 7])
async def test_a_block_without_a_request_does_not_exist(gate, number):
    device = Datagrams(gate.port)
    assert (await device.ask(FETCH, "/query", ALL, block2=(number, False, 2))).code == Code.REQUEST_ENTITY_INCOMPLETE
    assert (await device.ask(POST, "/update", b"x", block1=(number, False, 2))).code == Code.REQUEST_ENTITY_INCOMPLETE
    device.close()


async def test_requests_that_are_too_long_are_refused_before_they_are_all_there(serving):
    async with serving(max_message=4096) as gate, CoapClient(gate.url) as client:
        answer = await client.ask(POST, "/update", X.encode() + b" " * 5000)
        assert error(answer) == (Code.REQUEST_ENTITY_TOO_LARGE, "payload_too_large", 413)
        assert values(body(await client.ask(FETCH, "/query", ALL))) == []
        await client.update(X + " " * 3000)
        assert values(body(await client.ask(FETCH, "/query", ALL))) == ["x"]


async def test_results_that_are_too_long_are_refused(serving):
    async with serving(max_result=2048) as gate, CoapClient(gate.url) as client:
        await client.update("INSERT DATA { " + "".join(f'<urn:s{n}> <urn:p> "{n}" . ' for n in range(99)) + "}")
        answer = await client.ask(FETCH, "/query", ALL)
        assert error(answer) == (Code.REQUEST_ENTITY_TOO_LARGE, "result_too_large", 413)
        assert "coap.max_result" in body(answer)["error_description"]


async def test_the_stored_blocks_of_many_clients_are_bounded(serving):
    async with serving(max_blocks=4096) as gate:
        devices = [Datagrams(gate.port) for _ in range(9)]
        for device in devices:
            answer = await device.ask(POST, "/update", b" " * 1024, block1=(0, True, 6))
            assert answer.code == Code.CONTINUE
        lost = await devices[0].ask(POST, "/update", X.encode(), block1=(1, False, 6))
        kept = await devices[-1].ask(POST, "/update", X.encode(), block1=(1, False, 6))
        assert (lost.code, kept.code) == (Code.REQUEST_ENTITY_INCOMPLETE, Code.CHANGED)
        for device in devices:
            device.close()


@pytest.mark.parametrize(
    ("code", "path", "payload", "options", "wanted"),
    [
        (FETCH, "/query", b"nonsense", {}, (Code.BAD_REQUEST, "parsing_failed", 400)),
        (FETCH, "/query", b"\xff", {}, (Code.BAD_REQUEST, "invalid_request", 400)),
        (FETCH, "/query", b"", {}, (Code.BAD_REQUEST, "invalid_request", 400)),
        (GET, "/query", b"", {}, (Code.BAD_REQUEST, "invalid_request", 400)),
        (GET, "/query?query=ASK{}&query=ASK{}", b"", {}, (Code.BAD_REQUEST, "invalid_request", 400)),
        (FETCH, "/query?query=ASK{}", ALL, {}, (Code.BAD_REQUEST, "invalid_request", 400)),
        (FETCH, "/query?quarry=1", ALL, {}, (Code.BAD_REQUEST, "invalid_request", 400)),
        (FETCH, "/query?delay=PT1S", ALL, {}, (Code.BAD_REQUEST, "invalid_request", 400)),
        (POST, "/update?delay=soon", X.encode(), {}, (Code.BAD_REQUEST, "invalid_request", 400)),
        (POST, "/update", X.encode(), {"content_format": 41}, (Code(143), "unsupported_media_type", 415)),
        (FETCH, "/query", b"{", {"content_format": JSON}, (Code.BAD_REQUEST, "invalid_request", 400)),
        (FETCH, "/query", b"[]", {"content_format": JSON}, (Code.BAD_REQUEST, "invalid_request", 400)),
        (FETCH, "/query", b'{"sparql": 5}', {"content_format": JSON}, (Code.BAD_REQUEST, "invalid_request", 400)),
        (FETCH, "/query", b"\xff", {"content_format": CBOR}, (Code.BAD_REQUEST, "invalid_request", 400)),
        (FETCH, "/query", cbor2.dumps({1: 2}), {"content_format": CBOR}, (Code.BAD_REQUEST, "invalid_request", 400)),
        (POST, "/reading", b"1", {}, (Code.NOT_FOUND, "not_found", 404)),
        (POST, "/reading/", b"1", {}, (Code.BAD_REQUEST, "invalid_request", 400)),
        (POST, "/reading/a/%00", b"1", {}, (Code.BAD_REQUEST, "invalid_request", 400)),
        (POST, "/reading/a/+", b"1", {}, (Code.BAD_REQUEST, "invalid_request", 400)),
        (POST, "/reading/$SYS/a", b"1", {}, (Code.BAD_REQUEST, "invalid_request", 400)),
        (FETCH, "/query", ALL, {"accept": 41}, (Code.NOT_ACCEPTABLE, "not_acceptable", 406)),
        (FETCH, "/query", ALL, {"if_none_match": True}, (Code.BAD_OPTION, "invalid_request", 400)),
        (PUT, "/update", X.encode(), {}, (Code.METHOD_NOT_ALLOWED, "method_not_allowed", 405)),
        (DELETE, "/query", b"", {}, (Code.METHOD_NOT_ALLOWED, "method_not_allowed", 405)),
        (GET, "/nothing", b"", {}, (Code.NOT_FOUND, "not_found", 404)),
        (GET, "/", b"", {}, (Code.NOT_FOUND, "not_found", 404)),
    ],
)  # fmt: skip
async def test_invalid_requests_are_reported(client, code, path, payload, options, wanted):
    answer = await client.ask(code, path, payload, **options)
    assert error(answer) == wanted
    assert answer.opt.content_format == JSON


async def test_references_in_cbor_do_not_make_much_of_little(client):
    """A shared text (tag 28) in an array that refers to it repeatedly (tag 29)."""
    text = b"\xd8\x1c\x79\x04\x00" + b"x" * 1024
    times = 5000
    array = b"\x99" + times.to_bytes(2, "big") + text + b"\xd8\x1d\x00" * (times - 1)
    answer = await client.ask(FETCH, "/query", b"\xa1\x66sparql" + array, content_format=CBOR)
    assert error(answer) == (Code.REQUEST_ENTITY_TOO_LARGE, "payload_too_large", 413)


async def test_the_resources_are_listed(client):
    answer = await client.ask(GET, "/.well-known/core")
    assert answer.opt.content_format == 40
    links = answer.payload.decode()
    assert [link.partition(">")[0] for link in links.split(",")] == ["</query", "</update", "</subscribe", "</reading"]
    assert '</reading>;rt="sepa.reading";ct="0 50 60 110 112"' in links
    chosen = (await client.ask(GET, "/.well-known/core?rt=sepa.q*")).payload.decode()
    assert chosen.startswith("</query>")
    assert "update" not in chosen
    assert (await client.ask(GET, "/.well-known/core", accept=JSON)).code == Code.NOT_ACCEPTABLE


async def test_an_update_that_comes_twice_is_carried_out_once(gate, client):
    """RFC 7252, 4.5: the answer was lost, so the device repeats the message."""
    await client.update("INSERT DATA { <urn:n> <urn:is> 0 }")
    device = Datagrams(gate.port)
    count = b"DELETE { ?s ?p ?n } INSERT { ?s ?p ?m } WHERE { ?s ?p ?n BIND(?n + 1 AS ?m) }"
    first = await device.ask(POST, "/update", count)
    device._number -= 1
    second = await device.ask(POST, "/update", count)
    assert (first.code, first.payload) == (second.code, second.payload)
    assert values(body(await client.ask(FETCH, "/query", ALL))) == ["1"]
    device.close()


async def test_a_port_in_use_is_not_shared(gate):
    other = CoapGate(gate.engine, CoapGateSettings(port=gate.port), Metrics(), None)
    with pytest.raises(OSError, match="in use"):
        await other.start()
    await other.stop()


async def test_after_the_stop_the_port_is_free(serving):
    async with serving() as gate:
        port = gate.port
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", port))


async def test_the_token_is_not_a_parameter(client):
    """Without security the gateway accepts and ignores it."""
    message = aiocoap.Message(code=FETCH, uri=client.base + "/query", payload=b"ASK {}")
    message.opt.add_option(OptionNumber(65000).create_option(value=b"any"))
    assert (await client.send(message)).code == Code.CONTENT


@pytest.mark.parametrize(
    ("path", "payload", "content_format", "expected_message"),
    [
        ("/query", b' {"sparql": "ASK {}"}', None, "content format 50"),
        ("/query", b'{"query": {"sparql": "ASK {}"}}', JSON, 'only the object inside "query"'),
        ("/subscribe", b'{"subscribe": {"sparql": "ASK {}"}}', JSON, 'only the object inside "subscribe"'),
        ("/query", b"[" * 100_000, JSON, "nested too deeply"),
        ("/query", b'{"sparql": ' + b"9" * 10_000 + b"}", JSON, "too many digits"),
        ("/query", b'{"alias": "mine"}', JSON, 'add the member "sparql"'),
        ("/subscribe", b'{"sparql": "ASK {}", "resume": true}', JSON, '"resume" does not apply'),
        ("/subscribe", b'{"sparql": "ASK {}", "spuid": "x", "sequence": 1}', JSON, "does not apply"),
    ],
)
async def test_a_request_in_the_form_of_another_gate_gets_the_form_of_this_gate(
    client, path, payload, content_format, expected_message
):
    answer = await client.ask(POST, path, payload, content_format=content_format)
    assert error(answer) == (Code.BAD_REQUEST, "invalid_request", 400)
    assert expected_message in body(answer)["error_description"]


async def test_topics_of_the_mqtt_gate_hold_no_readings(serving):
    async with serving(own_topics="sepa/gateway/") as gate, CoapClient(gate.url) as client:
        for path in "/reading/sepa/gateway/request/me", "/reading/sepa/gateway/":
            answer = await client.ask(POST, path, b"1")
            assert error(answer) == (Code.BAD_REQUEST, "invalid_request", 400)
            assert "mqtt_gate.root" in body(answer)["error_description"]
        assert (await client.ask(POST, "/reading/sepa/gateways", b"1")).code == Code.CHANGED
        assert gate.came == [("sepa/gateways", b"1")]


@pytest.mark.parametrize("option", [OptionNumber.URI_PATH, OptionNumber.URI_QUERY])
@pytest.mark.parametrize("kind", [CON, NON])
async def test_paths_and_parameters_that_are_not_utf_8_are_refused(gate, option, kind):
    device = Datagrams(gate.port)
    plain = Message(code=GET, _mtype=kind, _mid=7, _token=b"me").encode()
    device.socket.send(plain + header(option) + b"\xff\xfe")
    answer = await device.receive()
    assert (answer.code, answer.payload) == (Code.BAD_OPTION, b"Paths and parameters are UTF-8")
    assert (answer.token, answer.mtype) == (b"me", ACK if kind is CON else NON)
    assert answer.mid == 7 or kind is NON


def header(option):
    """Return the start of a message with an option of two bytes (RFC 7252, 3.1)."""
    return bytes([option << 4 | 2]) if option < 13 else bytes([0xD2, option - 13])


async def test_datagrams_that_are_not_requests_are_ignored(gate):
    device = Datagrams(gate.port)
    device.socket.send(Message(code=Code.CONTENT, _mtype=CON, _mid=7, _token=b"me").encode() + b"\xb2\xff\xfe")
    assert (await device.ask(FETCH, "/query", b"ASK {}")).code == Code.CONTENT
