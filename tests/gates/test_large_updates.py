"""Large updates of one client from outside: atomic and durable, and other clients are served meanwhile."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.processes import GatewayProcess
from websockets.sync.client import ClientConnection, connect

COUNT = 20_000
COUNTED = "SELECT (COUNT(*) AS ?n) { ?s <urn:big> ?o }"


def data(verb: str = "INSERT", first: int = 0, count: int = COUNT) -> str:
    triples = (f"<urn:subject:{n}> <urn:big> 'a value of some words {n}'" for n in range(first, first + count))
    return f"{verb} DATA {{ {' . '.join(triples)} }}"


class Site:
    """A gateway process and its clients."""

    def __init__(self, directory: Path, **settings: str) -> None:
        self.gateway = GatewayProcess(directory, {"EDGE__HOST__ENABLED": "false", **settings})
        self.endpoints = self.gateway.start()
        self._pool = ThreadPoolExecutor(8)

    def post(self, text: str) -> Future[httpx.Response]:
        """Send an update over a separate connection."""
        headers = {"Content-Type": "application/sparql-update"}
        url = f"{self.endpoints['http']}/update"
        return self._pool.submit(lambda: httpx.post(url, content=text, headers=headers, timeout=120))

    def count(self) -> int:
        answer = httpx.get(f"{self.endpoints['http']}/query", params={"query": COUNTED}, timeout=60)
        return int(answer.json()["results"]["bindings"][0]["n"]["value"])

    def connect(self) -> ClientConnection:
        return connect(self.endpoints["ws"], proxy=None, max_size=None, ping_interval=None)


@pytest.fixture
def open_site(tmp_path: Path) -> Iterator[Callable[..., Site]]:
    sites: list[Site] = []

    def open_(**settings: str) -> Site:
        sites.append(Site(tmp_path, **settings))
        return sites[-1]

    yield open_
    for site in sites:
        site.gateway.stop()
        site._pool.shutdown()


def ask(socket: ClientConnection, request: dict[str, Any]) -> dict[str, Any]:
    socket.send(json.dumps(request))
    return json.loads(socket.recv(120))  # type: ignore[no-any-return]


def test_a_large_update_delays_no_other_and_is_one_notification(open_site):
    site = open_site()
    with site.connect() as subscriber, site.connect() as victim:
        ask(subscriber, {"subscribe": {"sparql": "SELECT ?s { ?s <urn:big> ?o }"}})
        for verb, rows in (("INSERT", "addedResults"), ("DELETE", "removedResults")):
            large, served = site.post(data(verb)), 0
            while not large.done():
                answer = ask(victim, {"update": {"sparql": f"INSERT DATA {{ <urn:s> <urn:small> {served} }}"}})
                assert "error" not in answer
                served += 1
                assert site.count() in (0, COUNT)
            assert large.result().status_code == 200
            assert served > 1
            notification = json.loads(subscriber.recv(60))["notification"]
            assert len(notification[rows]["results"]["bindings"]) == COUNT


def test_a_killed_gateway_keeps_acknowledged_updates_and_no_partial_ones(open_site):
    site = open_site()
    assert site.post(data()).result().status_code == 200
    site.gateway.kill()
    site.endpoints = site.gateway.start()
    assert site.count() == COUNT
    for round_ in range(1, 4):
        before = site.count()
        large = site.post(data(first=round_ * COUNT))
        with site.connect() as victim:
            for number in range(40 * round_):
                ask(victim, {"update": {"sparql": f"INSERT DATA {{ <urn:s> <urn:small> {number} }}"}})
        acknowledged = large.done()
        site.gateway.kill()
        if not acknowledged:
            acknowledged = large.exception() is None and large.result().status_code == 200
        site.endpoints = site.gateway.start()
        assert site.count() in ((before + COUNT,) if acknowledged else (before, before + COUNT))


class _SlowServer(ThreadingHTTPServer):
    """A server that sends a document on request."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _SlowHandler)
        self.requested = threading.Event()
        self.go_on = threading.Event()


class _SlowHandler(BaseHTTPRequestHandler):
    server: _SlowServer

    def do_GET(self) -> None:
        self.server.requested.set()
        self.send_response(200)
        self.send_header("Content-Type", "application/n-triples")
        self.end_headers()
        while not self.server.go_on.wait(0.5):
            self.wfile.write(b"# not yet\n")
        self.wfile.write("".join(f'<urn:subject:{n}> <urn:big> "{n}" .\n' for n in range(COUNT)).encode())

    def log_message(self, *args: object) -> None:
        pass


def test_others_are_served_while_a_document_is_fetched(open_site):
    site = open_site(EDGE__ENGINE__ALLOW_LOAD="true")
    with _SlowServer() as server, site.connect() as victim:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        loading = site.post(f"LOAD <http://127.0.0.1:{server.server_port}/>")
        assert server.requested.wait(30)
        for number in range(10):
            answer = ask(victim, {"update": {"sparql": f"INSERT DATA {{ <urn:s> <urn:small> {number} }}"}})
            assert "error" not in answer
        assert not loading.done()
        server.go_on.set()
        while not loading.done():
            assert site.count() in (0, COUNT)
        assert loading.result().status_code == 200
        assert site.count() == COUNT
        server.shutdown()
        thread.join()
