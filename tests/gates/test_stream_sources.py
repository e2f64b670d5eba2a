"""Elements over a WebSocket: answers to each message, their order, limits, and clients that go away."""

from __future__ import annotations

import json
from contextlib import contextmanager
from urllib.parse import quote

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.support.stream_client import StreamGateway

LIMIT = 20_000
QUAD = '<urn:a> <urn:p> "x" .'
ONE = {"accepted": 1, "late": 0, "too late": 0}


class SourceGateway(StreamGateway):
    """A gateway, and WebSockets to its streams."""

    @property
    def ws(self) -> str:
        return self.endpoints["ws"].removesuffix("/subscribe")

    @contextmanager
    def source(self, name="s", **options):
        with connect(f"{self.ws}/streams/{quote(name, safe='')}", **options) as socket:
            yield Source(socket)


class Source:
    """A connection to a stream."""

    def __init__(self, socket):
        self.socket = socket

    def send(self, message):
        self.socket.send(message)
        return json.loads(self.socket.recv(20))

    def adds(self, message):
        answer = self.send(message)
        assert list(answer) == ["elements"], answer
        return answer["elements"]

    def fails(self, message):
        answer = self.send(message)
        return answer["status_code"], answer["error_description"]


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    gateway = SourceGateway(
        tmp_path_factory.mktemp("sources"),
        EDGE__STREAMS__MAX_ELEMENT="1024",
        EDGE__WS__MAX_MESSAGE=str(LIMIT),
        EDGE__LIMITS__RATE="1000",
        EDGE__LIMITS__BURST="2000",
    )
    yield gateway
    gateway.close()


@pytest.fixture
def gateway(running):
    running.stream("s")
    yield running
    running.end_all()


@pytest.mark.parametrize("name", ["s", "urn:edge:stream:s", "http://example.org/streams/s"])
def test_each_message_is_answered_when_its_elements_are_in_the_stream(gateway, name):
    with gateway.source(name) as source:
        assert source.adds(QUAD) == ONE
        assert gateway.ok("GET", "/streams/s")["elements"] == 1
        assert source.adds(f"{QUAD}\n@2020-01-31T12:00:00Z\n{QUAD}\n@1600000000000000\n{QUAD}\n")["accepted"] == 3
    assert gateway.ok("GET", "/streams/s")["elements"] == 4


def test_a_query_reports_the_elements(gateway):
    text = "REGISTER RSTREAM <urn:q> AS SELECT ?o FROM NAMED WINDOW <urn:w> ON <urn:edge:stream:s> [ELEMENTS 1] "
    gateway.query("urn:q", text + "WHERE { WINDOW <urn:w> { ?s ?p ?o } }")
    with connect(f"{gateway.ws}/subscribe") as subscriber, gateway.source() as source:
        subscriber.send(
            json.dumps({"subscribe": {"sparql": text.replace("urn:q", "urn:r") + "{ WINDOW <urn:w> { ?s ?p ?o } }"}})
        )
        subscriber.recv(20)
        source.adds('<urn:a> <urn:p> "seen" .')
        rows = json.loads(subscriber.recv(20))["notification"]["addedResults"]["results"]["bindings"]
    assert [row["o"]["value"] for row in rows] == ["seen"]


def test_answers_come_in_the_order_of_the_messages(gateway):
    with gateway.source() as source:
        messages = [QUAD if number % 3 else "nothing" for number in range(100)]
        for message in messages:
            source.socket.send(message)
        answers = [json.loads(source.socket.recv(20)) for _ in messages]
    assert ["elements" in answer for answer in answers] == [message == QUAD for message in messages]
    assert gateway.ok("GET", "/streams/s")["elements"] == messages.count(QUAD)


@pytest.mark.parametrize(
    ("message", "status", "reason"),
    [
        (b"binary", 400, "Binary messages are not understood"),
        ("", 400, "has no quads"),
        ('{"subscribe": {"sparql": "SELECT * {}"}}', 400, "not N-Quads"),
        (f"{QUAD}\n@9000-01-01T00:00:00Z\n{QUAD}", 400, "streams.max_ahead"),
        (f'<urn:a> <urn:p> "{"x" * 2000}" .', 413, "streams.max_element"),
        ("#" + "x" * LIMIT, 413, "ws.max_message"),
        ("#" + "\u00e9" * (LIMIT // 2), 413, "ws.max_message"),
    ],
)
def test_an_error_adds_nothing_and_the_connection_goes_on(gateway, message, status, reason):
    with gateway.source() as source:
        found = source.fails(message)
        assert found[0] == status
        assert reason in found[1]
        assert source.adds(QUAD) == ONE
    assert gateway.ok("GET", "/streams/s")["elements"] == 1


def test_a_stream_can_be_registered_and_ended_while_a_source_is_connected(gateway):
    with gateway.source("later") as source:
        assert source.fails(QUAD)[0] == 404
        gateway.stream("later")
        assert source.adds(QUAD) == ONE
        gateway.ok("DELETE", "/streams/later")
        assert source.fails(QUAD)[0] == 404


@pytest.mark.parametrize("name", ["", "observations", "a b", "x" * 300])
def test_streams_that_take_no_elements_of_clients_give_an_error(gateway, name):
    with gateway.source(name) as source:
        assert source.fails(QUAD)[0] == 400


def test_a_message_beyond_twice_the_limit_closes_the_connection(gateway):
    with gateway.source() as source:
        source.socket.send("#" * (3 * LIMIT))
        with pytest.raises(ConnectionClosed):
            source.socket.recv(20)
        assert source.socket.close_code == 1009


def test_a_client_that_goes_away_without_reading_leaves_its_elements(gateway):
    with gateway.source() as source:
        assert source.adds(QUAD) == ONE
        for _ in range(20):
            source.socket.send(QUAD)
    with gateway.source() as source:
        assert source.adds(QUAD) == ONE
    assert 2 <= gateway.ok("GET", "/streams/s")["elements"] <= 22


def test_pages_of_other_origins_add_nothing(gateway):
    with pytest.raises(Exception, match="403"), gateway.source(origin="http://example.org"):
        pass


def test_elements_that_were_acknowledged_survive_a_power_cut(gateway):
    gateway.query("q", "REGISTER QUERY q AS SELECT ?o FROM STREAM <urn:edge:stream:s> [RANGE 1h STEP 1h] { ?s ?p ?o }")
    with gateway.source() as source:
        assert source.adds(QUAD) == ONE
        gateway.restart()
        with pytest.raises(ConnectionClosed):
            source.send(QUAD)
    described = gateway.ok("GET", "/streams/s")
    assert (described["elements"], described["kept_bytes"]) == (1, len(QUAD) + 1)


def test_a_gateway_without_streams_says_so(tmp_path):
    gateway = SourceGateway(tmp_path, EDGE__STREAMS__ENABLED="false")
    try:
        with gateway.source() as source:
            assert source.fails(QUAD)[0] == 404
    finally:
        gateway.close()
