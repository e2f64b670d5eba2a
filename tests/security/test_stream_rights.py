"""Streams of a secured gateway: clients change and read what their graphs allow, and learn nothing of the rest."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
from typing import Any
from unittest.mock import ANY

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from edge.security.clients import Rights
from tests.support.callback_server import callback_server
from tests.support.clients import clients_of
from tests.support.commands import run_edge
from tests.support.stream_client import FORM, StreamGateway, path_of
from tests.support.waiting import PATIENCE, wait_for

ROOMS, HIDDEN, FED, OUT = (f"urn:edge:stream:{name}" for name in ("rooms", "hidden", "fed", "out"))
QUERY, UPDATE = frozenset({"query"}), frozenset({"query", "update"})
CLIENTS = {
    "operator": Rights(frozenset({"query", "update", "administer"})),
    "all": Rights(UPDATE),
    "publisher": Rights(frozenset({"update"}), read=frozenset(), write=frozenset({ROOMS})),
    "writer": Rights(UPDATE, read=frozenset(), write=frozenset({ROOMS})),
    "reader": Rights(QUERY, read=frozenset({ROOMS, FED, "", "urn:open"})),
    "second": Rights(QUERY, read=frozenset({ROOMS})),
    "maker": Rights(UPDATE, read=frozenset({ROOMS, HIDDEN}), write=frozenset({OUT})),
}
NAMED = "FROM NAMED <urn:secret> FROM NAMED <urn:open>"
DATA = """INSERT DATA { <urn:a> <urn:name> 'default' .
  GRAPH <urn:open> { <urn:a> <urn:name> 'open' ; <urn:next> <urn:b> }
  GRAPH <urn:secret> { <urn:a> <urn:name> 'secret' ; <urn:next> <urn:c> . <urn:b> <urn:next> <urn:d> } }"""


class Secured(StreamGateway):
    """A gateway with security whose clients are registered at their first request."""

    def __init__(self, directory: Any, callbacks: Any) -> None:
        self._tokens: dict[str, str] = {}
        self._client = ""
        self.directory = directory
        with clients_of(directory) as clients:
            for name, rights in CLIENTS.items():
                clients.allow(name, rights)
        super().__init__(
            directory,
            EDGE__SECURITY__ENABLED="true",
            EDGE__SECURITY__HTTPS_PORT="0",
            EDGE__SECURITY__WSS_PORT="0",
            EDGE__STREAMS__CALLBACK_HOSTS=f'["{callbacks.url("").removeprefix("http://")}"]',
        )

    def as_client(self, name: str) -> Secured:
        """Let the next requests have the token of a client; without a name, none."""
        if name and name not in self._tokens:
            identity = {"client_identity": name, "grant_types": ["client_credentials"]}
            given = self.http.post("/oauth/register", json={"register": identity}).json()["credentials"]
            answer = self.http.post("/oauth/token", auth=(given["client_id"], given["client_secret"]))
            self._tokens[name] = answer.json()["access_token"]
        self._client = name
        return self

    def forget(self, name: str) -> None:
        del self._tokens[name]

    def send(
        self, method: str, path: str, content: str | None = None, kind: str = "", **options: Any
    ) -> httpx.Response:
        headers = {"Content-Type": kind} if kind else {}
        return self.http.request(method, path, content=content, headers=headers | self.headers(), **options)

    def headers(self) -> dict[str, str]:
        """Return the headers with the token of the client."""
        return {"Authorization": f"Bearer {self._tokens[self._client]}"} if self._client else {}

    def edge(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the command with the token of the client."""
        environment = {**os.environ, "EDGE_TOKEN": self._tokens[self._client]}
        return run_edge([*arguments, "--url", self.endpoints["http"]], environment, seconds=PATIENCE)


@pytest.fixture(scope="module")
def callbacks():
    with callback_server() as server:
        yield server


@pytest.fixture(scope="module")
def running(tmp_path_factory, callbacks):
    gateway = Secured(tmp_path_factory.mktemp("rights") / "data", callbacks)
    assert gateway.as_client("operator").ok("POST", "/update", DATA, "application/sparql-update")["added"] == 6
    yield gateway
    gateway.close()


@pytest.fixture
def gateway(running):
    running.as_client("all")
    for stream in ("rooms", "hidden", "fed"):
        running.stream(stream)
    yield running
    running.as_client("operator").end_all()


def text_of(name: str, where: str = "?s ?p ?o", stream: str = ROOMS, clauses: str = "", form: str = "SELECT *") -> str:
    return (
        f"REGISTER QUERY {name} AS {form} {clauses} FROM STREAM <{stream}> [RANGE 100ms STEP 100ms] WHERE {{ {where} }}"
    )


def graph_of(name: str, stream: str) -> str:
    return text_of(name, stream=stream, form="CONSTRUCT { ?s ?p ?o }")


# Streams


def test_requests_without_a_token_are_refused(gateway):
    gateway.as_client("")
    for path in ("/streams", "/streams/rooms", "/queries", "/queries/q", "/queries/q/observers", "/kb?query=ASK{}"):
        assert gateway.send("GET", path).status_code == 401
    for method, path in (("PUT", "/streams/x"), ("PUT", "/queries/q"), ("POST", "/queries/q"), ("POST", "/kb")):
        assert gateway.send(method, path, "x").status_code == 401


def test_elements_need_the_permission_to_write_the_graph_of_the_stream(gateway):
    assert gateway.as_client("publisher").add("rooms", "<urn:a> <urn:p> 1").startswith("1 accepted")
    assert gateway.send("PUT", "/streams/other").status_code == 403
    assert gateway.send("POST", "/streams/hidden", "<urn:a> <urn:p> 1 .", "text/turtle").status_code == 404
    for client in ("reader", "second"):
        gateway.as_client(client)
        assert gateway.send("POST", "/streams/rooms", "<urn:a> <urn:p> 1 .", "text/turtle").status_code == 403
        assert gateway.send("PUT", "/streams/rooms").status_code == 403
        assert gateway.send("DELETE", "/streams/rooms").status_code == 403


@pytest.mark.parametrize(
    ("client", "stream", "status"),
    [
        ("publisher", "rooms", 200),
        ("operator", "hidden", 200),
        ("publisher", "hidden", 404),
        ("publisher", "nothere", 404),
        ("maker", "rooms", 403),
        ("reader", "rooms", 403),
        ("second", "rooms", 403),
        ("", "rooms", 401),
    ],
)
def test_a_source_over_websocket_needs_the_same_permissions(gateway, client, stream, status):
    headers = gateway.as_client(client).headers()
    url = gateway.endpoints["ws"].replace("/subscribe", f"/streams/{stream}")
    with connect(url, additional_headers=headers) as socket:
        with contextlib.suppress(ConnectionClosed):
            socket.send("<urn:a> <urn:p> <urn:b> .")
        assert json.loads(socket.recv(20)).get("status_code", 200) == status


def test_only_its_client_and_administrators_change_or_end_a_stream(gateway):
    gateway.as_client("publisher")
    assert gateway.send("PUT", "/streams/rooms?lateness=PT1H").status_code == 403
    assert gateway.send("DELETE", "/streams/rooms").status_code == 403
    gateway.as_client("operator").ok("DELETE", "/streams/rooms")


def test_a_client_sees_the_streams_that_it_may_read(gateway):
    assert {each["iri"] for each in gateway.as_client("second").ok("GET", "/streams")} == {ROOMS}
    hidden, unknown = (gateway.fails("GET", f"/streams/{name}") for name in ("hidden", "nothere"))
    assert hidden[0] == unknown[0] == 404
    assert hidden[1].replace("hidden", "nothere") == unknown[1]
    texts = [
        gateway.fails("PUT", "/queries/q", text_of("q", stream=f"urn:edge:stream:{each}"))
        for each in ("hidden", "nothere")
    ]
    assert texts[0][0] == texts[1][0] == 400
    assert texts[0][1].replace("hidden", "nothere") == texts[1][1]
    assert gateway.as_client("publisher").fails("GET", "/streams")[0] == 403


def test_observations_are_for_clients_that_may_read_the_default_graph(gateway):
    observations = "urn:edge:stream:observations"
    with clients_of(gateway.directory) as clients:
        clients.allow("outside", Rights(QUERY, read=frozenset({observations})))
    assert observations in {each["iri"] for each in gateway.as_client("reader").ok("GET", "/streams")}
    assert gateway.as_client("outside").ok("GET", "/streams") == []
    assert gateway.fails("PUT", "/queries/q", text_of("q", stream=observations))[0] == 400


def test_the_queries_of_others_are_not_named_in_errors(gateway):
    gateway.query("private", text_of("private"))
    gateway.as_client("operator").ok("DELETE", "/streams/hidden")
    # The client of the stream may not see the query, which can read more.
    with clients_of(gateway.directory) as clients:
        clients.allow("owner", Rights(UPDATE, read=frozenset({HIDDEN}), write=frozenset({HIDDEN})))
    gateway.as_client("owner").stream("hidden")
    gateway.as_client("all").query("other", text_of("other", stream=HIDDEN))
    assert "used by 1 query;" in gateway.as_client("owner").fails("DELETE", "/streams/hidden")[1]
    assert "used by other;" in gateway.as_client("operator").fails("DELETE", "/streams/hidden")[1]


# Queries


def test_registering_a_query_needs_the_action_query(gateway):
    assert gateway.as_client("publisher").send("PUT", "/queries/q", text_of("q")).status_code == 403
    gateway.as_client("second").query("q", text_of("q"))


def test_a_query_that_makes_a_stream_needs_the_permission_to_write_it(gateway):
    for client in ("second", "maker"):
        gateway.as_client(client)
        assert gateway.send("PUT", "/queries/made", graph_of("made", ROOMS)).status_code == 403
    gateway.as_client("maker").query("out", graph_of("out", HIDDEN))
    assert gateway.as_client("operator").ok("GET", "/streams/out")["query"] == "out"


def test_results_of_hidden_streams_reach_no_stream_without_the_permission_to_write_it(gateway):
    gateway.as_client("maker").query("out", graph_of("out", HIDDEN))
    assert gateway.fails("POST", "/queries/out", "/streams/rooms", "text/plain")[0] == 403
    assert gateway.fails("POST", "/queries/out", f"{gateway.http.base_url}/streams/rooms", "text/plain")[0] == 403
    assert gateway.fails("POST", "/queries/out", "/streams/fed", "text/plain")[0] == 404
    with clients_of(gateway.directory) as clients:
        clients.allow("sender", Rights(QUERY, read=frozenset({HIDDEN, OUT})))
    # Without the action update, the permission to write any graph is of no use.
    gateway.as_client("sender")
    assert gateway.send("PUT", "/queries/leak", graph_of("leak", HIDDEN)).status_code == 403


def test_only_clients_that_may_read_all_of_a_query_see_it(gateway, callbacks):
    gateway.as_client("reader").query("q", text_of("q"))
    gateway.as_client("reader").observe("q", callbacks.url("/seen"))
    assert [each["name"] for each in gateway.as_client("all").ok("GET", "/queries")] == ["q"]
    assert gateway.ok("GET", "/queries/q")["state"] == "running"
    for path in ("/queries/q/observers", "/queries/q/observers/1"):
        assert gateway.send("GET", path).status_code == 403
    for method, path, body in (
        ("DELETE", "/queries/q", None),
        ("POST", "/queries/q", callbacks.url("/x")),
        ("DELETE", "/queries/q/observers/1", None),
    ):
        assert gateway.send(method, path, body, "text/plain").status_code == 403
    assert gateway.send("POST", "/queries/q", "action=pause", FORM).status_code == 403
    assert gateway.as_client("second").ok("GET", "/queries") == []
    hidden, unknown = (gateway.fails("GET", f"/queries/{name}") for name in ("q", "r"))
    assert hidden[0] == 404
    assert hidden[1].replace('"q"', '"r"') == unknown[1]
    assert gateway.fails("GET", "/queries/q/observers")[0] == 404
    assert len(gateway.as_client("operator").ok("GET", "/queries/q/observers")) == 1


def test_late_elements_are_for_clients_that_may_read_the_stream(gateway):
    assert gateway.as_client("second").ok("GET", f"/streams/{ROOMS}?elements=late") == []
    assert gateway.send("GET", f"/streams/{HIDDEN}?elements=late").status_code == 404
    # It may write the stream only, and lacks the action.
    assert gateway.as_client("publisher").send("GET", f"/streams/{ROOMS}?elements=late").status_code == 403
    assert gateway.as_client("writer").send("GET", f"/streams/{ROOMS}").status_code == 200
    assert gateway.fails("GET", f"/streams/{ROOMS}?elements=late")[0] == 403


def test_the_command_line_changes_observers_with_the_rights_of_its_token(gateway, callbacks):
    gateway.as_client("reader").query("q", text_of("q"))
    added = gateway.edge("queries", "observers", "q", "add", callbacks.url("/seen"))
    assert added.returncode == 0
    (observer,) = gateway.ok("GET", "/queries/q/observers")
    assert added.stdout.strip().endswith(f"/observers/{observer['id']}")
    refused = gateway.edge("queries", "observers", "q", "add", "http://127.0.0.1:1/")
    assert (refused.returncode, "streams.callback_hosts" in refused.stderr) == (1, True)
    for client, reason in (("all", "belongs to another client"), ("second", 'no query "q"')):
        gateway.as_client(client)
        for change in (("add", callbacks.url("/seen")), ("end", observer["id"])):
            refused = gateway.edge("queries", "observers", "q", *change)
            assert (refused.returncode, reason in refused.stderr) == (1, True), refused.stderr
    ended = gateway.as_client("reader").edge("queries", "observers", "q", "end", observer["id"])
    assert ended.stdout == f"Observer {observer['id']} unregistered\n"


@pytest.mark.parametrize(
    ("clauses", "where", "found"),
    [
        ("FROM <urn:secret> FROM <urn:open>", "?x <urn:p> ?y . <urn:a> <urn:name> ?found", ["open"]),
        (
            NAMED,
            "?x <urn:p> ?y . GRAPH ?g { ?s <urn:name> ?found }",
            ["open"],
        ),
        (NAMED, "?x <urn:p> ?y . OPTIONAL { GRAPH <urn:secret> { ?s <urn:name> ?found } }", []),
        (NAMED, "?x <urn:p> ?y . OPTIONAL { GRAPH <urn:open> { ?s <urn:name> ?found } }", ["open"]),
        (NAMED, "?x <urn:p> ?y . BIND(EXISTS { GRAPH <urn:secret> { ?s ?p ?o } } AS ?found)", ["false"]),
        ("FROM <urn:secret> FROM <urn:open>", "?x <urn:p> ?y . <urn:a> <urn:next>+ ?found", ["urn:b"]),
        ("FROM <urn:secret>", "?x <urn:p> ?y . OPTIONAL { <urn:a> !<urn:p> ?found }", []),
        (
            NAMED,
            "?x <urn:p> ?y . OPTIONAL { GRAPH <urn:secret> { <urn:a> <urn:next>* ?found . ?found <urn:next> ?z } }",
            [],
        ),
    ],
)
def test_a_query_reads_live_data_of_permitted_graphs_only(gateway, callbacks, clauses, where, found):
    for client in ("reader", "all"):
        gateway.as_client(client).query(client, text_of(client, where, clauses=clauses))
        gateway.observe(client, callbacks.url(f"/{client}"))
    seen = len(callbacks.received("/reader"))
    gateway.add("rooms", "<urn:x> <urn:p> 1")
    report = wait_for(lambda: next((each for each in callbacks.received("/reader")[seen:] if each.rows), None), "rows")
    assert [row["found"] for row in report.rows if "found" in row] == found
    assert b"secret" not in report.body


def test_a_description_has_permitted_graphs_only(gateway, callbacks):
    with clients_of(gateway.directory) as clients:
        clients.allow("describer", Rights(UPDATE, read=frozenset({ROOMS, "urn:open"}), write=frozenset({OUT})))
    clauses = "FROM <urn:open> FROM <urn:secret> FROM NAMED <urn:secret>"
    gateway.as_client("describer").query(
        "out", text_of("out", "?s <urn:p> ?o", clauses=clauses, form="DESCRIBE <urn:a> ?s")
    )
    gateway.observe("out", callbacks.url("/described"))
    gateway.as_client("all").add("rooms", "<urn:a> <urn:p> 1")
    report = callbacks.wait_for("/described", lambda each: b"urn:p" in each.body)
    assert b'"open"' in report.body
    assert b"secret" not in report.body


# Observers


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:1/",
        "http://localhost:1/",
        "http://[::1]:1/",
        "http://192.168.1.1/",
        "http://169.254.169.254/",
        "http://2130706433/",
    ],
)
def test_private_addresses_get_no_reports_unless_they_are_listed(gateway, url):
    gateway.as_client("reader").query("q", text_of("q"))
    for body, kind in ((url, "text/plain"), (f"target={url}", FORM)):
        status, description = gateway.fails("POST", "/queries/q", body, kind)
        assert status == 403
        assert "streams.callback_hosts" in description
    assert gateway.ok("GET", "/queries/q/observers") == []


def test_reports_go_to_a_listed_host(gateway, callbacks):
    gateway.as_client("reader").query("listed", text_of("listed"))
    gateway.observe("listed", callbacks.url("/listed"))
    gateway.as_client("publisher").add("rooms", "<urn:x> <urn:p> 1")
    callbacks.wait_for("/listed", lambda each: each.rows)


# The end of permissions


def test_a_new_client_with_the_name_of_a_revoked_one_has_none_of_its_queries(gateway, callbacks):
    rights = Rights(QUERY, read=frozenset({ROOMS}))
    with clients_of(gateway.directory) as clients:
        clients.allow("moved", rights)
    gateway.as_client("moved").query("q", text_of("q"))
    gateway.observe("q", callbacks.url("/moved"))
    with clients_of(gateway.directory) as clients:
        clients.revoke("moved")
        clients.allow("moved", rights)
    wait_for(lambda: gateway.send("GET", "/queries").status_code == 401, "the end of the token")
    gateway.forget("moved")
    gateway.as_client("moved")
    assert gateway.fails("GET", "/queries/q/observers")[0] == 403
    assert gateway.send("DELETE", "/queries/q").status_code == 403
    assert gateway.send("POST", "/queries/q", callbacks.url("/x"), "text/plain").status_code == 403
    with clients_of(gateway.directory) as clients:
        clients.allow("moved", Rights(QUERY, read=frozenset({FED})))
    wait_for(lambda: gateway.ok("GET", "/queries") == [], "the smaller permissions")
    assert gateway.fails("GET", "/queries/q")[0] == 404


def follow(gateway, client, name="q"):
    """Follow a query over a WebSocket."""
    headers = gateway.as_client(client).headers()
    url = gateway.endpoints["ws"].replace("/subscribe", f"/queries/{name}")
    return connect(url, additional_headers=headers)


@pytest.mark.parametrize(
    ("client", "status"),
    [("reader", 200), ("operator", 200), ("all", 403), ("second", 404), ("publisher", 403), ("", 401)],
)
def test_only_its_client_and_administrators_follow_a_query(gateway, client, status):
    gateway.as_client("reader").query("q", text_of("q"))
    with follow(gateway, client) as socket:
        answer = json.loads(socket.recv(20))
        assert answer.get("status_code", 200) == status
        if status == 200:
            assert answer == {"following": {"query": "q", "number": answer["following"]["number"], "of": ANY}}
        else:
            with pytest.raises(ConnectionClosed):
                socket.recv(20)


def test_a_revoked_client_follows_no_longer(gateway):
    rights = Rights(QUERY, read=frozenset({ROOMS}))
    with clients_of(gateway.directory) as clients:
        clients.allow("follower", rights)
    gateway.as_client("follower").query("q", text_of("q"))
    with follow(gateway, "follower") as socket:
        assert "following" in json.loads(socket.recv(20))
        with clients_of(gateway.directory) as clients:
            clients.revoke("follower")
        while "report" in (answer := json.loads(socket.recv(20))):
            pass
        assert answer["status_code"] == 401
        with pytest.raises(ConnectionClosed):
            socket.recv(20)
    gateway.forget("follower")


@pytest.mark.parametrize("rights", [Rights(QUERY), Rights(QUERY, read=frozenset()), Rights(frozenset({"update"}))])
def test_a_client_whose_permissions_change_follows_no_longer(gateway, rights):
    name = f"changing-{len(rights.actions)}-{rights.read is None}-{'query' in rights.actions}"
    with clients_of(gateway.directory) as clients:
        clients.allow(name, Rights(QUERY, read=frozenset({ROOMS})))
    gateway.as_client(name).query("q", text_of("q"))
    with follow(gateway, name) as socket, follow(gateway, "operator") as administrators:
        assert "following" in json.loads(socket.recv(20))
        assert "following" in json.loads(administrators.recv(20))
        with clients_of(gateway.directory) as clients:
            clients.allow(name, rights)
        while "report" in (answer := json.loads(socket.recv(20))):
            pass
        assert answer["status_code"] == 401
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(20)
        assert closed.value.rcvd.code == 1008
        assert "report" in json.loads(administrators.recv(20))


async def test_a_subscription_to_a_window_needs_its_stream_and_ends_with_its_client(harness):
    rights = Rights(frozenset({"subscribe"}), read=frozenset({ROOMS}))
    operator, token = await harness.member("operator"), await harness.member("watcher", rights)
    async with harness.http(headers={"Authorization": f"Bearer {operator}"}) as http:
        for name in ("rooms", "hidden"):
            assert (await http.put(f"/streams/{name}")).status_code == 200
    async with harness.socket() as socket:
        refused = await socket.ask("subscribe", token, sparql=text_of("q", stream=HIDDEN))
        assert "is not registered" in refused["error_description"]
        first = await socket.ask("subscribe", token, sparql=text_of("q"))
        harness.clients.revoke("watcher")
        while "notification" in (received := await socket.receive()):
            assert not received["notification"]["addedResults"]["results"]["bindings"]
        assert (received["error"], received["spuid"]) == ("invalid_client", first["notification"]["spuid"])


def test_after_a_restart_a_revoked_client_has_no_running_query(tmp_path, callbacks):
    gateway = Secured(tmp_path / "data", callbacks)
    try:
        gateway.as_client("operator").stream("rooms")
        for client in ("reader", "second"):
            gateway.as_client(client).query(client, text_of(client))
        gateway.kill()
        with contextlib.closing(sqlite3.connect(gateway.directory / "streams.sqlite3")) as store:
            ((reports,),) = store.execute("SELECT number FROM report_numbers WHERE name = 'second'").fetchall()
        with clients_of(gateway.directory) as clients:
            clients.revoke("second")
        gateway.start()
        states = {each["name"]: each["state"] for each in gateway.as_client("operator").ok("GET", "/queries")}
        assert states == {"reader": "running", "second": "failed"}
        found = gateway.ok("GET", path_of("queries", "second"))
        assert (found["reports"], "revoked" in found["reason"]) == (reports, True)
    finally:
        gateway.close()
