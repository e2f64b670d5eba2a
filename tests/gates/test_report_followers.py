"""Reports of a registered query over a WebSocket: from the next one on, until the query or the connection ends."""

from __future__ import annotations

import json
from contextlib import ExitStack, contextmanager
from unittest.mock import ANY
from urllib.parse import quote

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.support.stream_client import FORM, StreamGateway
from tests.support.waiting import wait_for

SELECT = """REGISTER RSTREAM <urn:q> AS SELECT ?o FROM NAMED WINDOW <urn:w> ON <urn:edge:stream:s> [ELEMENTS 1]
WHERE { WINDOW <urn:w> { ?s ?p ?o } }"""


class FollowedGateway(StreamGateway):
    """A gateway, and WebSockets to its queries."""

    @property
    def ws(self) -> str:
        return self.endpoints["ws"].removesuffix("/subscribe")

    @contextmanager
    def follower(self, name="urn:q", parameters="", **options):
        with connect(f"{self.ws}/queries/{quote(name, safe='')}{parameters}", **options) as socket:
            yield Follower(socket)

    def metric(self, name):
        lines = self.http.get("/metrics").text.splitlines()
        return next(float(line.removeprefix(name)) for line in lines if line.startswith(name))

    def put(self, value):
        self.add("s", f'<urn:a> <urn:p> "{value}"')


class Follower:
    """A connection that follows a query."""

    def __init__(self, socket):
        self.socket = socket
        self.first = json.loads(socket.recv(20))

    def report(self):
        return json.loads(self.socket.recv(20))["report"]

    def values(self):
        report = self.report()
        return report["number"], [row["o"]["value"] for row in report["content"]["results"]["bindings"]]

    def end(self):
        """Return the last error, and the code with which the gateway closes the connection."""
        error = json.loads(self.socket.recv(20))
        with pytest.raises(ConnectionClosed) as closed:
            self.socket.recv(20)
        return error["status_code"], error["error_description"], closed.value.rcvd.code


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    gateway = FollowedGateway(tmp_path_factory.mktemp("followers"))
    yield gateway
    gateway.close()


@pytest.fixture
def gateway(running):
    running.stream("s")
    yield running
    running.end_all()


def test_several_followers_get_each_report_with_its_number(gateway):
    gateway.query("urn:q", SELECT)
    gateway.put(1)
    with gateway.follower() as first:
        gateway.put(2)
        assert first.values() == (2, ["2"])
        with gateway.follower() as second:
            assert (first.first, second.first) == (
                {"following": {"query": "urn:q", "number": 1, "of": ANY}},
                {"following": {"query": "urn:q", "number": 2, "of": ANY}},
            )
            gateway.put(3)
            assert first.values() == second.values() == (3, ["3"])
        gateway.put(4)
        assert first.values() == (4, ["4"])


def test_a_follower_that_comes_back_gets_the_reports_after_its_number(gateway):
    gateway.query("urn:q", SELECT)
    with gateway.follower() as follower:
        gateway.put(1)
        assert follower.values() == (1, ["1"])
    gateway.put(2)
    gateway.put(3)
    with gateway.follower(parameters="?after=1") as follower:
        assert follower.first == {"following": {"query": "urn:q", "number": 1, "of": ANY}}
        gateway.put(4)
        assert [follower.values() for _ in range(3)] == [(2, ["2"]), (3, ["3"]), (4, ["4"])]
    with gateway.follower(parameters="?after=99") as follower:
        assert follower.first == {"following": {"query": "urn:q", "number": 0, "of": ANY}}
        assert [follower.values()[0] for _ in range(4)] == [1, 2, 3, 4]


def test_a_follower_of_an_earlier_query_with_the_name_gets_all_reports_of_the_new_one(gateway):
    gateway.query("urn:q", SELECT)
    with gateway.follower() as follower:
        earlier = follower.first["following"]["of"]
        gateway.put(1)
        assert follower.values() == (1, ["1"])
    gateway.ok("DELETE", "/queries/urn%3Aq")
    gateway.query("urn:q", SELECT)
    with gateway.follower() as follower:
        of = follower.first["following"]["of"]
        gateway.put("a")
        gateway.put("b")
        assert follower.values() == (1, ["a"])
    with gateway.follower(parameters=f"?after=1&of={earlier}") as follower:
        assert follower.first == {"following": {"query": "urn:q", "number": 0, "of": of}}
        assert [follower.values() for _ in range(2)] == [(1, ["a"]), (2, ["b"])]
    with gateway.follower(parameters=f"?after=1&of={of}") as follower:
        assert follower.values() == (2, ["b"])
    with gateway.follower(parameters=f"?of={earlier}") as follower:
        assert follower.first["following"]["number"] == 2


@pytest.mark.parametrize("value", ["", "-1", "x", "1.0", "%D9%A1", "1&after=1", "9" * 19])
def test_a_number_that_is_not_that_of_a_report_is_refused(gateway, value):
    gateway.query("urn:q", SELECT)
    with connect(f"{gateway.ws}/queries/urn%3Aq?after={value}") as socket:
        error = json.loads(socket.recv(20))
        assert (error["status_code"], '"after"' in error["error_description"]) == (400, True)
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(20)
        assert closed.value.rcvd.code == 1008


def test_too_many_parameters_are_refused(gateway):
    gateway.query("urn:q", SELECT)
    with connect(f"{gateway.ws}/queries/urn%3Aq?{'a=1&' * 200}") as socket:
        assert json.loads(socket.recv(20))["status_code"] == 400


def test_the_numbers_are_those_of_the_query_after_a_restart(gateway):
    gateway.query("urn:q", SELECT)
    with gateway.follower() as follower:
        gateway.put(1)
        assert follower.values() == (1, ["1"])
        gateway.kill()
        with pytest.raises(ConnectionClosed):
            follower.socket.recv(20)
    gateway.start()
    with gateway.follower() as follower:
        assert follower.first["following"]["number"] == 1
        gateway.put(2)
        assert follower.values() == (2, ["2"])


@pytest.mark.parametrize(
    ("form", "content_type", "content"),
    [
        ("ASK", "application/sparql-results+json", {"head": {}, "boolean": True}),
        ("CONSTRUCT { ?o ?p ?s }", "application/n-triples", "<urn:b> <urn:p> <urn:a> .\n"),
    ],
)
def test_all_forms_of_queries_can_be_followed(gateway, form, content_type, content):
    gateway.query("urn:q", SELECT.replace("SELECT ?o", form))
    with gateway.follower() as follower:
        gateway.add("s", "<urn:a> <urn:p> <urn:b>")
        report = follower.report()
    assert (report["content_type"], report["content"]) == (content_type, content)


def test_a_query_that_ends_ends_its_followers(gateway):
    gateway.query("urn:q", SELECT)
    with gateway.follower() as follower:
        gateway.ok("DELETE", "/queries/urn%3Aq")
        assert follower.end() == (404, 'The query "urn:q" has been ended', 1008)


def test_a_paused_query_goes_on_for_its_followers(gateway):
    gateway.query("urn:q", SELECT)
    with gateway.follower() as follower:
        gateway.ok("POST", "/queries/urn%3Aq", "action=pause", FORM)
        gateway.put(1)
        gateway.ok("POST", "/queries/urn%3Aq", "action=restart", FORM)
        gateway.put(2)
        assert follower.values() == (1, ["2"])


def test_a_stream_that_ends_with_its_query_leaves_no_follower(gateway):
    gateway.query("urn:q", SELECT.replace("SELECT ?o", "CONSTRUCT { ?s ?p ?o }"))
    with gateway.follower() as follower:
        gateway.end_all()
        assert follower.end()[::2] == (404, 1008)
    gateway.stream("s")
    gateway.query("urn:q", SELECT)
    with gateway.follower() as follower:
        gateway.put(1)
        assert follower.values() == (1, ["1"])


def test_a_gateway_that_stops_ends_its_followers(gateway):
    gateway.query("urn:q", SELECT)
    with gateway.follower() as follower:
        gateway.process.stop()
        with pytest.raises(ConnectionClosed) as closed:
            follower.socket.recv(20)
    assert closed.value.rcvd.code == 1001
    gateway.http.close()
    gateway.start()


def test_many_followers_of_one_query_get_each_report_and_leave_nothing(gateway):
    gateway.query("urn:q", SELECT)
    with ExitStack() as stack:
        followers = [stack.enter_context(gateway.follower()) for _ in range(50)]
        assert gateway.metric('edge_subscriptions{gate="ws"}') == 50
        for number in (1, 2, 3):
            gateway.put(number)
        for follower in followers:
            assert [follower.values()[0] for _ in range(3)] == [1, 2, 3]
    wait_for(lambda: not gateway.metric('edge_subscriptions{gate="ws"}'), what="no follower")


@pytest.mark.parametrize("name", ["urn:other", "", "a\r\nb", "../queries", "é%", "x" * 4_000, "\0", "q?x=1"])
def test_an_unknown_query_is_an_error(gateway, name):
    with connect(f"{gateway.ws}/queries/{quote(name, safe='')}") as socket:
        error = json.loads(socket.recv(20))
        assert error["status_code"] == 404
        with pytest.raises(ConnectionClosed):
            socket.recv(20)


def test_a_message_of_a_follower_is_an_error(gateway):
    gateway.query("urn:q", SELECT)
    with gateway.follower() as follower:
        follower.socket.send('{"subscribe": {"sparql": "ASK {}"}}')
        status, text, code = follower.end()
    assert (status, code) == (400, 1008)
    assert "/subscribe" in text


def test_a_follower_that_disconnects_is_forgotten(gateway):
    gateway.query("urn:q", SELECT)
    with gateway.follower() as staying:
        for _ in range(20):
            with gateway.follower():
                pass
        gateway.put(1)
        assert staying.values() == (1, ["1"])
    wait_for(lambda: 'edge_connections{gate="ws"} 0' in gateway.http.get("/metrics").text, what="no connection")


def test_a_follower_that_does_not_read_gets_the_newest_results(gateway):
    """It gets merged reports, and delays neither sources nor another follower."""
    gateway.query("urn:q", SELECT)
    large = "x" * 60_000
    with gateway.follower(max_queue=1) as slow, gateway.follower() as quick:
        for number in range(1, 200):
            gateway.put(f"{number}-{large}")
            assert quick.report()["number"] == number
        last, covered = 0, []
        while last < 199:
            report = slow.report()
            last = report["number"]
            covered += range(last - report["merged"] + 1, last + 1)
        assert covered == list(range(1, 200))
