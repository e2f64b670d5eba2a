"""LOAD, from a real HTTP server on loopback."""

from __future__ import annotations

import gzip
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from edge import load_documents
from edge.engine.requests import QueryRequest, UpdateRequest
from edge.engine.settings import EngineSettings
from edge.engine.start import open_engine
from edge.load_documents import load_document
from edge.protocol.errors import Forbidden, TooLarge, UpdateFailed
from edge.security import certificates
from edge.streams.callback_hosts import CallbackHosts

DOCUMENTS = {
    "/good": ("text/turtle; charset=utf-8", b"<a> <http://ex/p> _:b . _:b <http://ex/q> 1 ."),
    "/broken": ("text/turtle", b"<a> <http://ex/p>"),
    "/long": ("text/turtle", b'<a> <http://ex/p> "' + b"a" * (17 << 20) + b'" .'),
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
        thread = threading.Thread(target=http.serve_forever, args=(0.01,))
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
    ("path", "reason"),
    [
        ("/broken", "not Turtle"),
        ("/picture", "image/png is not"),
        ("/none", "could not be fetched"),
        ("/long", "16 MiB"),
    ],
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


TURTLE = b"<a> <http://ex/p> 1 ."


@contextmanager
def answering(reply: Callable[[socket.socket, bytes], None], tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Serve one connection at a time. `reply` gets the connection and the request; the server then closes it."""

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:  # the test is over
                return
            with closing(connection):
                try:
                    wrapped = connection if tls is None else tls.wrap_socket(connection, server_side=True)
                    with closing(wrapped):
                        reply(wrapped, wrapped.recv(65_536))
                except OSError:  # the client is gone
                    pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http{'' if tls is None else 's'}://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def document(body: bytes, *headers: str) -> bytes:
    """Return an HTTP response with a Turtle document."""
    lines = ["HTTP/1.1 200 OK", "Content-Type: text/turtle", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (["Content-Encoding: gzip"], gzip.compress(TURTLE)),
        (["Content-Encoding: gzip, gzip"], gzip.compress(gzip.compress(TURTLE))),
        (["Content-Encoding: identity", "Content-Encoding: deflate"], TURTLE),
        (["Content-Encoding: X-GZIP"], TURTLE),
        (["Content-Encoding: br"], TURTLE),
    ],
    ids=["gzip", "gzip twice", "two headers", "x-gzip", "br"],
)
def test_a_compressed_document_is_refused(headers: list[str], body: bytes) -> None:
    """A small compressed document can become one of gigabytes, before its length can be checked."""
    with (
        answering(lambda to, _: to.sendall(document(body, *headers))) as url,
        pytest.raises(UpdateFailed, match=r"is compressed \(Content-Encoding: .*without compression"),
    ):
        load_document(url)


def test_the_gateway_asks_for_documents_without_compression() -> None:
    requests: list[bytes] = []

    def reply(to: socket.socket, request: bytes) -> None:
        requests.append(request.lower())
        to.sendall(document(TURTLE, "Content-Encoding: Identity"))

    with answering(reply) as url:
        assert len(list(load_document(url))) == 1
    assert b"\r\naccept-encoding: identity\r\n" in requests[0]


def test_the_length_of_a_document_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_documents, "MAX_DOCUMENT", len(TURTLE))
    with answering(lambda to, _: to.sendall(document(TURTLE))) as url:
        assert len(list(load_document(url))) == 1
    with answering(lambda to, _: to.sendall(document(TURTLE + b" "))) as url, pytest.raises(TooLarge, match="larger"):
        load_document(url)


END = b"Content-Type: text/turtle\r\nContent-Length: 0\r\n\r\n"
SLOW = {
    "a header": (b"HTTP/1.1 200 OK\r\nA: ", b"a", b"\r\n" + END),
    "interim responses": (b"", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + END),
    "a document": (document(TURTLE).replace(b"Length: 2", b"Length: 99999"), b"#", b""),
    "a document of unknown length": (b"HTTP/1.1 200 OK\r\nContent-Type: text/turtle\r\n\r\n" + TURTLE, b"#", b""),
}


@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
@pytest.mark.parametrize("part", SLOW)
def test_a_slow_server_is_left_at_the_deadline(
    part: str, secure: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete: list[str] = []
    first, repeated, last = SLOW[part]
    tls = None
    if secure:
        files = certificates.make(tmp_path / "tls")
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(files.server, files.server_key)
        monkeypatch.setenv("SSL_CERT_FILE", str(files.authority))

    def reply(to: socket.socket, _: bytes) -> None:
        to.sendall(first)
        for _ in range(500):
            to.sendall(repeated)
            pause.wait(0.01)
        to.sendall(last)
        complete.append(part)

    pause = threading.Event()
    monkeypatch.setattr(load_documents, "LONGEST", 0.2)
    with answering(reply, tls) as url, pytest.raises(UpdateFailed, match=r"not received within 0\.2 seconds"):
        load_document(url)
    assert complete == []


def test_a_slow_tls_handshake_ends_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    complete: list[bool] = []

    def reply(to: socket.socket, _: bytes) -> None:
        to.sendall(b"\x16\x03\x03\x40\x00")  # the head of a record of 16 KiB
        for _ in range(500):
            to.sendall(b"\x02")
            pause.wait(0.01)
        complete.append(True)

    pause = threading.Event()
    monkeypatch.setattr(load_documents, "LONGEST", 0.2)
    with answering(reply) as url, pytest.raises(UpdateFailed, match="not received within"):
        load_document(url.replace("http:", "https:"))
    assert complete == []


def test_no_redirect_is_followed_after_the_deadline(server: str) -> None:
    now = 0.0
    asked: list[int] = []

    def slow(host: str, port: int, address: Any) -> bool:
        nonlocal now
        now += load_documents.LONGEST / 2.5
        asked.append(port)
        return True

    start = "/to/" * 9
    with pytest.raises(UpdateFailed, match="not received within"):
        load_document(f"{server}{start}/good", slow, lambda: now)
    assert len(asked) == 3


def test_no_address_is_tried_after_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    tried: list[str] = []

    def connect(address: tuple[str, int], *_: Any, **__: Any) -> socket.socket:
        nonlocal now
        now += load_documents.LONGEST / 1.5
        tried.append(address[0])
        raise TimeoutError

    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{number}", 80)) for number in range(1, 5)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(UpdateFailed, match="not received within"):
        load_document("http://ex/", None, lambda: now)
    assert tried == ["127.0.0.1", "127.0.0.2"]


def test_no_connection_and_no_timer_outlives_a_download() -> None:
    ended: list[bytes] = []

    def reply(to: socket.socket, _: bytes) -> None:
        to.sendall(document(TURTLE))
        to.settimeout(10)
        ended.append(to.recv(1))

    with answering(reply) as url:
        assert len(list(load_document(url))) == 1
        assert len(list(load_document(url))) == 1
    assert ended == [b"", b""]
    for timer in threading.enumerate():
        if timer.name == "load-deadline":
            timer.join(10)
            assert not timer.is_alive()


def test_the_length_of_terms_without_abbreviations_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long prefix that is used often takes far more memory than its document."""
    monkeypatch.setattr("edge.protocol.parsed_quads.LONGEST", 10_000)
    body = f"@prefix p: <http://ex/{'a' * 500}> . ".encode() + b"p:a p:b p:c . " * 20
    with answering(lambda to, _: to.sendall(document(body))) as url:
        quads = load_document(url)
        with pytest.raises(TooLarge, match="without abbreviations"):
            list(quads)


def test_a_context_whose_terms_refer_to_each_other_is_refused() -> None:
    """Oxigraph's parser follows the terms by recursion, and would end the process."""
    context = {f"t{number}": f"t{number + 1}:a" for number in range(5_000)}
    body = json.dumps({"@context": context, "t0": 1}).encode()
    reply = document(body).replace(b"text/turtle", b"application/ld+json")
    with answering(lambda to, _: to.sendall(reply)) as url:
        quads = load_document(url)
        with pytest.raises(UpdateFailed, match="long chain"):
            list(quads)
