"""Senders of Linked Data Notifications: observers of continuous queries whose target has an inbox."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote

import httpx
import pytest

from tests.support.processes import free_port
from tests.support.stream_client import FORM, StreamGateway, path_of
from tests.support.waiting import wait_for

JSON_LD, LDP = "application/ld+json", "http://www.w3.org/ns/ldp#"
WINDOW = "[RANGE 100ms STEP 100ms]"
ELEMENT = "<urn:a> <urn:p> 'one'"
RESULT = (
    "PREFIX rs: <http://www.w3.org/2001/sw/DataAccess/tests/result-set#> "
    "PREFIX as: <https://www.w3.org/ns/activitystreams#> "
    "SELECT ?name ?value { GRAPH ?g { ?a a as:Announce ; as:object/rs:solution/rs:binding ?binding . "
    "?binding rs:variable ?name ; rs:value ?value } }"
)


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    gateway = StreamGateway(tmp_path_factory.mktemp("senders"))
    yield gateway
    gateway.close()


@pytest.fixture
def gateway(running):
    yield running
    running.end_all()
    running.http.post("/update", content="DROP ALL", headers={"Content-Type": "application/sparql-update"})


class Receiver:
    """A plain receiver: the resource /target with an inbox at /box."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.received: list[tuple[str, bytes]] = []
        """Content types and bodies."""


@contextmanager
def receiver(port: int) -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Link", f'</box>; rel="{LDP}inbox"')
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            accepted = self.path == "/box" and self.headers["Content-Type"] == JSON_LD
            if accepted:
                made.received.append((self.headers["Content-Type"], body))
            self.send_response(201 if accepted else 415)
            self.send_header("Location", f"/box/{len(made.received)}")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Write nothing."""

    listener = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    made = Receiver(listener.server_address[1])
    thread = threading.Thread(target=listener.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield made
    finally:
        listener.shutdown()
        thread.join()
        listener.server_close()


def select(gateway: StreamGateway, name: str = "q") -> None:
    gateway.stream("s")
    gateway.query(
        name,
        f"REGISTER QUERY {name} AS SELECT ?s ?o FROM STREAM <urn:edge:stream:s> {WINDOW} {{ ?s <urn:p> ?o }}",
    )


def notify(gateway: StreamGateway, name: str, target: str) -> str:
    """Add a target; return the URL of the observer."""
    return str(gateway.ok("POST", path_of("queries", name), f"target={quote(target, safe='')}", FORM))


def described(gateway: StreamGateway, observer: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(gateway.ok("GET", observer))
    return found


def values(gateway: StreamGateway) -> set[tuple[str, str]]:
    """Return the bindings in the notifications that a gateway has."""
    rows = gateway.ok("GET", "/query", params={"query": RESULT})["results"]["bindings"]
    return {(row["name"]["value"], row["value"]["value"]) for row in rows}


def test_reports_arrive_in_the_inbox_of_a_graph_of_this_gateway(gateway):
    graph = {"graph": "urn:floor-plan"}
    gateway.http.put(
        "/graph-store", params=graph, content="<urn:lamp> a <urn:L> .", headers={"Content-Type": "text/turtle"}
    )
    select(gateway)
    target = f"{gateway.http.base_url}/graph-store?graph=urn:floor-plan"
    observer = notify(gateway, "q", target)
    gateway.add("s", ELEMENT)
    wait_for(lambda: values(gateway) == {("s", "urn:a"), ("o", "one")}, "a notification with the row")
    inbox = described(gateway, observer)["inbox"]
    assert inbox == f"{gateway.http.base_url}/inbox?graph=urn%3Afloor-plan"
    notes = gateway.ok("GET", str(inbox))["contains"]
    note = gateway.http.get(notes[0], headers={"Accept": JSON_LD})
    assert note.headers["content-type"] == JSON_LD
    assert target in note.text
    assert described(gateway, observer)["lost"] == 0


def test_reports_arrive_in_the_inbox_of_a_query_of_another_gateway(gateway, tmp_path):
    other = StreamGateway(tmp_path)
    try:
        select(other, "theirs")
        select(gateway)
        notify(gateway, "q", f"{other.http.base_url}/queries/theirs")
        gateway.add("s", ELEMENT)
        wait_for(lambda: values(other) == {("s", "urn:a"), ("o", "one")}, "a notification with the row")
        assert other.ok("GET", "/inbox?query=theirs")["contains"] != []
    finally:
        other.close()


@pytest.mark.parametrize("form", ["CONSTRUCT { ?s <urn:made> ?o }", "ASK"])
def test_a_plain_receiver_gets_json_ld(gateway, form):
    gateway.stream("s")
    gateway.query("q", f"REGISTER QUERY q AS {form} FROM STREAM <urn:edge:stream:s> {WINDOW} {{ ?s <urn:p> ?o }}")
    with receiver(0) as plain:
        observer = notify(gateway, "q", f"{plain.url}/target")
        gateway.add("s", ELEMENT)
        sought = b'"urn:made":[{"@value":"one"}]' if form.startswith("CONSTRUCT") else b'"boolean":true'
        wait_for(lambda: any(sought in body for _, body in plain.received), "the result")
        identities = [json.loads(body)["@id"] for _, body in plain.received]
        assert len(set(identities)) == len(identities)
        found = described(gateway, observer)
        assert (found["target"], found["inbox"]) == (f"{plain.url}/target", f"{plain.url}/box")
        assert "callback" not in found
        gateway.ok("DELETE", observer)


def test_reports_wait_for_a_dead_target_over_a_restart(tmp_path):
    gateway, port = StreamGateway(tmp_path / "data"), free_port()
    try:
        gateway.stream("s")
        # Each row is reported once, so one that a restart loses does not come again.
        gateway.ok(
            "PUT",
            path_of("queries", "urn:q"),
            "REGISTER ISTREAM <urn:q> AS SELECT ?o FROM NAMED WINDOW <urn:w> ON <urn:edge:stream:s> "
            "[LANDMARK '2026-01-01T00:00:00Z' STEP 100ms] WHERE { WINDOW <urn:w> { ?s <urn:p> ?o } }",
        )
        observer = notify(gateway, "urn:q", f"http://127.0.0.1:{port}/target")
        gateway.add("s", ELEMENT)
        wait_for(lambda: described(gateway, observer).get("failures", 0), "a failed attempt")
        gateway.restart()
        (listed,) = gateway.ok("GET", f"{path_of('queries', 'urn:q')}/observers")
        assert (listed["target"], listed["acknowledged"]) == (f"http://127.0.0.1:{port}/target", 0)
        with receiver(port) as plain:
            wait_for(lambda: plain.received, "the report")
            content = json.loads(plain.received[0][1])
            assert (content["number"], content["query"]) == (1, "urn:q")
            assert content["object"]["solution"] == [{"binding": [{"variable": "o", "value": {"@value": "one"}}]}]
    finally:
        gateway.close()


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        ("target=", "target=URL"),
        ("target=nowhere", "the URL of the target"),
        ("target=/streams/s", "the URL of the target"),
        ("target=http://example.org/&callback=http://example.org/", '"callback" or a "target"'),
        ("target=http://user:pass@example.org/", "the URL of the target has credentials"),
        ("target=http://example.org/%25zz", "not an IRI"),
    ],
)
def test_other_targets_are_refused(gateway, form, reason):
    select(gateway)
    status, description = gateway.fails("POST", "/queries/q", form, FORM)
    assert status == 400
    assert reason in description
    assert gateway.ok("GET", "/queries/q/observers") == []


def test_a_target_that_is_no_resource_with_an_inbox_has_the_reason(gateway):
    select(gateway)
    url = f"{gateway.http.base_url}/health"
    assert "link" not in httpx.get(url).headers
    observer = notify(gateway, "q", url)
    wait_for(lambda: "the target has no inbox" in str(described(gateway, observer).get("problem")), "the reason")
    assert described(gateway, observer)["inbox"] == ""
