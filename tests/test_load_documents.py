"""LOAD, from a real HTTP server on loopback."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from edge.engine.requests import QueryRequest, UpdateRequest
from edge.engine.settings import EngineSettings
from edge.engine.start import open_engine
from edge.load_documents import load_document
from edge.protocol.errors import Forbidden, UpdateFailed
from edge.streams.callback_hosts import CallbackHosts

DOCUMENTS = {
    "/good": ("text/turtle; charset=utf-8", b"<a> <http://ex/p> _:b . _:b <http://ex/q> 1 ."),
    "/broken": ("text/turtle", b"<a> <http://ex/p>"),
    "/picture": ("image/png", b"\x89PNG"),
}


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path.startswith("/to/"):
            self.send_response(302)
            self.send_header("Location", self.path.removeprefix("/to/"))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        kind, body = DOCUMENTS.get(self.path, ("", b""))
        self.send_response(200 if kind else 404)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()
        thread.join()


def test_a_document_is_loaded_into_the_graph_it_is_meant_for(server: str) -> None:
    engine = open_engine(None, EngineSettings(allow_load=True), load=load_document)
    try:
        (outcome,) = engine.update([UpdateRequest(f"LOAD <{server}/good> INTO GRAPH <http://ex/g>")]).result(10)
        assert (outcome.added, outcome.removed) == (2, 0)
        ask = f"ASK {{ GRAPH <http://ex/g> {{ <{server}/a> <http://ex/p>/<http://ex/q> 1 }} }}"
        assert engine.query(QueryRequest(ask)).result(10) is True
    finally:
        engine.close()


@pytest.mark.parametrize(
    ("path", "reason"), [("/broken", "not Turtle"), ("/picture", "image/png is not"), ("/none", "could not be fetched")]
)
def test_a_failed_load_reports_the_reason_and_changes_nothing(server: str, path: str, reason: str) -> None:
    engine = open_engine(None, EngineSettings(allow_load=True), load=load_document)
    try:
        update = f"INSERT DATA {{ <http://ex/a> <http://ex/p> 1 }} ; LOAD <{server}{path}>"
        with pytest.raises(UpdateFailed, match=reason):
            engine.update([UpdateRequest(update)]).result(10)
        assert engine.quads == 0
        (outcome,) = engine.update([UpdateRequest(f"LOAD SILENT <{server}{path}>")]).result(10)
        assert not outcome.changed
    finally:
        engine.close()


@pytest.mark.parametrize("iri", ["file:///etc/passwd", "ftp://localhost/a", "urn:a", "http:///a", "http:a"])
def test_only_the_web_can_be_loaded(iri: str) -> None:
    with pytest.raises(UpdateFailed, match="http and https"):
        load_document(iri)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1", "0x7f000001", "[::1]", "[::ffff:127.0.0.1]"])
def test_no_request_goes_to_an_address_that_is_not_permitted(server: str, host: str) -> None:
    hosts = CallbackHosts([], security=True)
    port = server.rpartition(":")[2]
    with pytest.raises(UpdateFailed, match=r"not be loaded from .*callback_hosts|could not be fetched"):
        load_document(f"http://{host}:{port}/good", hosts.permits)


def test_listed_hosts_are_permitted_by_name_port_and_network(server: str) -> None:
    port = server.rpartition(":")[2]
    for listed in ("127.0.0.1", f"127.0.0.1:{port}", "127.0.0.0/8", "*"):
        hosts = CallbackHosts([listed], security=True)
        assert len(list(load_document(f"{server}/good", hosts.permits))) == 2
    hosts = CallbackHosts([f"localhost:{port}"], security=True)
    assert len(list(load_document(f"http://localhost:{port}/good", hosts.permits))) == 2
    with pytest.raises(UpdateFailed, match="not be loaded"):
        load_document(f"{server}/good", hosts.permits)


def test_a_redirect_leads_to_permitted_addresses_only(server: str) -> None:
    port = server.rpartition(":")[2]
    hosts = CallbackHosts([f"localhost:{port}"], security=True)
    start = f"http://localhost:{port}"
    quads = list(load_document(f"{start}/to//to//good", hosts.permits))
    assert str(quads[0].subject) == f"<{start}/a>"  # the base is the IRI after the redirects
    with pytest.raises(UpdateFailed, match=r"not be loaded from 127\.0\.0\.1"):
        load_document(f"{start}/to/{server}/good", hosts.permits)
    with pytest.raises(UpdateFailed, match="http and https"):
        load_document(f"{start}/to/file:///etc/passwd", hosts.permits)
    with pytest.raises(UpdateFailed, match="more than 10 redirects"):
        load_document(f"{start}{'/to/' * 12}/good", hosts.permits)


def test_a_name_is_resolved_once(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second look-up could give another address than the one that was checked."""
    asked: list[str] = []
    resolve: Any = socket.getaddrinfo

    def counted(host: str, *arguments: Any, **named: Any) -> Any:
        asked.append(host)
        return resolve(host, *arguments, **named)

    monkeypatch.setattr(socket, "getaddrinfo", counted)
    port = server.rpartition(":")[2]
    assert len(list(load_document(f"http://localhost:{port}/good", lambda *_: True))) == 2
    assert [name for name in asked if name not in ("127.0.0.1", "::1")] == ["localhost"]


def test_load_is_off_by_default(server: str) -> None:
    engine = open_engine(None, load=load_document)
    try:
        with pytest.raises(Forbidden, match=r"engine\.allow_load"):
            engine.update([UpdateRequest(f"LOAD <{server}/good>")]).result(10)
    finally:
        engine.close()
