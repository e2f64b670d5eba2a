"""An attacker on the path reads, changes, replays or forges protected messages (RFC 8613, sections 7 and 8)."""

import asyncio

import pytest
from aiocoap import FETCH, GET, POST, Code, Message
from coap_client import ALL, Datagrams
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oscore_device import ASK, Device, protected_gate

from edge.protocol.errors import StorageFailed
from edge.security.oscore import SharedContext
from tests.support.examples import examples

WINDOW = 32
CLEAR = "DELETE WHERE { <urn:a> ?p ?o } ;"


@pytest.fixture
async def gate(engine, tmp_path):
    async with protected_gate(engine, tmp_path / "data", plain=False) as gate:
        yield gate


@pytest.fixture
async def device(gate):
    """Return a device that has sent a valid message since the gate started."""
    device = Device(gate.port, gate.keys())
    assert (await device.ask(FETCH, "/query", ASK)).code == Code.CONTENT
    return device


async def test_a_recorded_request_is_not_carried_out_again(gate, device):
    sealed, request = device.seal(POST, "/reading/a", b"1")
    assert device.open(await device.exchange(sealed), request).code == Code.CHANGED
    for _ in range(3):
        answer = await device.send_from_new_address(sealed)
        assert (answer.code, answer.payload) == (Code.UNAUTHORIZED, b"Replay detected")
    assert gate.came == [("a", b"1")]


async def test_a_request_that_was_held_back_is_taken_once_and_not_too_late(gate, device):
    late, _ = device.seal(POST, "/reading/late", b"1")
    too_late, _ = device.seal(POST, "/reading/too-late", b"1")
    for _ in range(WINDOW - 2):
        device.seal(FETCH, "/query", ASK)
    assert (await device.ask(FETCH, "/query", ASK)).code == Code.CONTENT
    assert (await device.send_from_new_address(too_late)).code == Code.CHANGED  # the last number in the window
    assert gate.came == [("too-late", b"1")]
    assert (await device.ask(FETCH, "/query", ASK)).code == Code.CONTENT
    assert (await device.send_from_new_address(late)).payload == b"Replay detected"
    assert (await device.send_from_new_address(too_late)).payload == b"Replay detected"
    assert gate.came == [("too-late", b"1")]


async def test_a_request_recorded_before_a_restart_is_not_executed_after_it(engine, tmp_path):
    recorded = []
    async with protected_gate(engine, tmp_path / "data") as gate:
        keys = gate.keys()
        device = Device(gate.port, keys)
        sealed, request = device.seal(FETCH, "/query", ASK)
        echo = device.open(await device.exchange(sealed), request).opt.echo
        for shown in ({"echo": echo}, {}, {"echo": echo}):
            sealed, request = device.seal(POST, "/reading/a", b"1", **shown)
            assert device.open(await device.exchange(sealed), request).code == Code.CHANGED
            recorded.append(sealed)
        held_back, _ = device.seal(POST, "/reading/held-back", b"1")
        recorded.append(held_back)
    async with protected_gate(engine, tmp_path / "data") as gate:
        again = Device(gate.port, keys, device.keys.sender_sequence_number)
        for sealed in recorded:
            sealed_answer = await again.send_from_new_address(sealed)
            assert sealed_answer.opt.oscore is not None  # a value that only a client with the keys can return
        # A client with the keys is accepted after one more exchange; others are not.
        assert (await again.ask(POST, "/reading/now", b"1")).code == Code.CHANGED
        for sealed in recorded:
            assert (await again.send_from_new_address(sealed)).payload == b"Replay detected"
        assert gate.came == [("now", b"1")]


async def test_a_recorded_echo_value_is_useless_to_others(gate):
    """The freshness value is inside the protected message, and each client has its own."""
    one, two = Device(gate.port, gate.keys("one")), Device(gate.port, gate.keys("two"))
    sealed, request = one.seal(FETCH, "/query", ASK)
    echo = one.open(await one.exchange(sealed), request).opt.echo
    sealed, request = two.seal(FETCH, "/query", ASK, echo=echo)
    answer = two.open(await two.exchange(sealed), request)
    assert answer.code == Code.UNAUTHORIZED
    assert answer.opt.echo not in (None, echo)


async def test_wrong_keys_decrypt_nothing(gate, device):
    wrong = SharedContext("", device.shared.kid, bytes(16), device.shared.salt)
    sealed, _ = Device(gate.port, wrong, 1000).seal(POST, "/reading/a", b"1")
    answer = await device.send_from_new_address(sealed)
    assert (answer.code, answer.payload) == (Code.BAD_REQUEST, b"Decryption failed")
    assert (await device.ask(FETCH, "/query", ASK)).code == Code.CONTENT  # its sequence number was not consumed
    assert gate.came == []


async def test_id_of_another_context_decrypts_nothing(gate, device):
    other = Device(gate.port, gate.keys("other"))
    await other.ask(FETCH, "/query", ASK)
    sealed, _ = device.seal(POST, "/reading/a", b"1")
    option = sealed.opt.oscore
    sealed.opt.oscore = option[: -len(device.shared.kid)] + other.shared.kid
    assert (await device.send_from_new_address(sealed)).payload == b"Decryption failed"
    sealed.opt.oscore = option[: -len(device.shared.kid)] + b"nobody"
    answer = await device.send_from_new_address(sealed)
    assert (answer.code, answer.payload) == (Code.UNAUTHORIZED, b"Security context not found")
    assert gate.came == []


async def test_a_changed_message_is_not_carried_out(gate, device):
    sealed, _ = device.seal(POST, "/reading/a", b"1")
    for place in range(len(sealed.payload)):
        changed = bytearray(sealed.payload)
        changed[place] ^= 1 << place % 8
        answer = await device.exchange(sealed.copy(payload=bytes(changed)))
        assert answer.payload == b"Decryption failed", place
    for length in range(len(sealed.payload)):
        answer = await device.exchange(sealed.copy(payload=sealed.payload[:length]))
        assert answer.payload == b"Decryption failed", length
    another_number = bytes([sealed.opt.oscore[0], sealed.opt.oscore[1] + 1]) + sealed.opt.oscore[2:]
    assert (await device.exchange(sealed.copy(oscore=another_number))).payload == b"Decryption failed"
    assert gate.came == []


async def test_unprotected_options_are_ignored(gate, device):
    """Inner options are not read from the outer message (RFC 8613, section 4.1.1)."""
    sealed, request = device.seal(POST, "/reading/a", b"1")
    sealed.opt.uri_path = ["update"]
    sealed.opt.uri_query = ["update=CLEAR ALL"]
    assert device.open(await device.exchange(sealed), request).code == Code.CHANGED
    assert gate.came == [("a", b"1")]


async def test_an_answer_belongs_to_its_request(device):
    """An attacker exchanges the answers of two requests: the client notices."""
    first, one = device.seal(FETCH, "/query", b"ASK { <urn:a> <urn:b> <urn:c> }")
    second, two = device.seal(FETCH, "/query", ASK)
    answers = [await device.exchange(first), await device.exchange(second)]
    with pytest.raises(ValueError, match="Tag invalid"):
        device.open(answers[1], one)
    assert device.open(answers[1], two).code == Code.CONTENT


async def test_a_protected_answer_reveals_nothing(gate, device):
    sealed, request = device.seal(FETCH, "/query", b"nonsense")
    answer = await device.exchange(sealed)
    assert answer.code == Code.CHANGED  # success, whatever the inner code is
    assert answer.opt.content_format is None
    assert b"parsing_failed" not in answer.payload
    assert device.open(answer, request).code == Code.BAD_REQUEST


async def test_only_post_and_fetch_carry_protected_messages(device):
    sealed, _ = device.seal(POST, "/reading/a", b"1")
    assert (await device.exchange(sealed.copy(code=GET))).code == Code.METHOD_NOT_ALLOWED


async def test_protection_within_protection_is_refused(device):
    sealed, request = device.seal(POST, "/reading/a", b"1", oscore=b"\x09\x14\x01")
    assert device.open(await device.exchange(sealed), request).code == Code.BAD_OPTION


async def test_a_protected_message_that_makes_no_sense_inside(gate, device):
    """From a client with keys whose inner message is not valid CoAP."""
    aad_of, build = device.keys, device.keys._split_message
    for inside in (b"\x02\xff\xff\xff\xff", b"\x02\xf1", b"\xff", b"\x45", b"\x02\xde\x00"):
        aad_of._split_message = lambda *_, inside=inside: (build(*_)[0], inside)
        sealed, request = device.seal(POST, "/reading/a", b"1")
        answer = await device.exchange(sealed)
        assert not answer.code.is_successful() or not device.open(answer, request).code.is_successful(), inside
    del aad_of._split_message
    assert (await device.ask(FETCH, "/query", ASK)).code == Code.CONTENT
    assert gate.metrics.registry.get_sample_value("edge_internal_errors_total") == 0


@settings(
    max_examples=examples(25),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    st.lists(
        st.tuples(st.binary(max_size=16), st.binary(max_size=40), st.sampled_from([POST, FETCH, GET])), max_size=15
    )
)
def test_gate_survives_any_option(engine, tmp_path_factory, messages):
    async def story():
        async with protected_gate(engine, tmp_path_factory.mktemp("gate")) as gate:
            device = Device(gate.port, gate.keys())
            for option, payload, code in messages:
                message = Message(code=code, payload=payload)
                message.opt.oscore = option
                assert not (await device.send_from_new_address(message)).code.is_successful()
            assert (await device.ask(FETCH, "/query", ASK)).code == Code.CONTENT
            assert gate.metrics.registry.get_sample_value("edge_internal_errors_total") == 0
        while Datagrams.open:
            Datagrams.open.pop().close()

    asyncio.run(story())


async def test_no_sequence_number_is_used_on_a_full_disk(gate, monkeypatch):
    """Nothing is sent unprotected either; when there is space, everything works again."""
    device = Device(gate.port, gate.keys())

    def full(kid, count):
        raise StorageFailed("no room")

    monkeypatch.setattr(gate.security.contexts, "reserve", full)
    sealed, _ = device.seal(POST, "/reading/a", b"1")
    answer = await device.exchange(sealed)
    assert (answer.code, answer.payload) == (Code.INTERNAL_SERVER_ERROR, b"no room")
    monkeypatch.undo()
    assert (await device.ask(POST, "/subscribe", ALL)).code == Code.CREATED
    path = "/" + "/".join((await device.ask(POST, "/subscribe", ALL)).opt.location_path)
    follow, followed = device.seal(GET, path, observe=0)
    assert device.open(await device.exchange(follow), followed).code == Code.CONTENT
    monkeypatch.setattr("edge.gates.coap.oscore.SecurityContext.new_sequence_number", lambda context: full(b"", 1))
    update, updated = device.seal(POST, "/update", b'INSERT DATA { <urn:a> <urn:b> "x" }')
    # with the sequence number of the request
    assert device.open(await device.send_from_new_address(update), updated).code == Code.CHANGED
    last = await device.line.receive()
    device.line.acknowledge(last)
    assert (last.code, last.payload) == (Code.INTERNAL_SERVER_ERROR, b"Not protected")
    monkeypatch.undo()
    assert (await device.ask(FETCH, "/query", ASK)).code == Code.CONTENT


async def test_no_number_of_the_gateway_comes_twice_when_it_is_killed(engine, tmp_path):
    """Everything that was not stored is lost: as after a power cut, nothing is stored at the end."""
    numbers, sent, keys = [], 0, None
    for _ in range(4):
        async with protected_gate(engine, tmp_path / "data") as gate:
            keys = keys or gate.keys()
            device = Device(gate.port, keys, sent)
            for _ in range(3):
                path = "/" + "/".join((await device.ask(POST, "/subscribe", ALL)).opt.location_path)
                sealed, request = device.seal(GET, path, observe=0)
                device.open(await device.exchange(sealed), request)
                update, _ = device.seal(POST, "/update", f"{CLEAR} INSERT DATA {{ <urn:a> <urn:b> {sent} }}".encode())
                await device.send_from_new_address(update)
                received = await device.line.receive()
                device.line.acknowledge(received)
                device.open(received, request)
                sent = device.keys.sender_sequence_number
            numbers += device.numbers
    assert len(numbers) >= 16
    assert len(set(numbers)) == len(numbers)
