"""The HTTP client of commands and outbox: one rule for redirects, time limits and certificates."""

import socket
import ssl
import threading
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from edge.http_client import HttpConnection, NoResponse, request
from edge.security import certificates


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.requests.append((self.path, self.client_address))
        status = 302 if self.path.startswith("/elsewhere") else 404 if self.path == "/missing" else 200
        self.send_response(status)
        self.send_header("Location", "http://127.0.0.1:1/")
        self.send_header("Content-Length", "3")
        self.end_headers()
        self.wfile.write(b"abc")

    def log_message(self, *_):
        pass


@contextmanager
def serving(context=None):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.requests = []
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(("path", "status"), [("/elsewhere?a=b", 302), ("/missing", 404), ("/", 200), ("", 200)])
def test_every_status_is_a_response_and_redirects_are_not_followed(path, status):
    with serving() as server:
        response = request("GET", f"http://127.0.0.1:{server.server_port}{path}", None, {}, 20, 2)
        assert (response.status, response.body) == (status, b"ab")
        assert [requested for requested, _ in server.requests] == [path or "/"]


def test_several_requests_share_a_connection():
    with serving() as server, closing(HttpConnection(f"http://127.0.0.1:{server.server_port}", 20)) as connection:
        for path in "/a", "/b":
            assert connection.send("GET", path, None, {}).status == 200
        (_, one), (_, other) = server.requests
        assert one == other


def test_proxies_of_the_environment_do_not_apply(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with serving() as server:
        assert request("GET", f"http://127.0.0.1:{server.server_port}/", None, {}, 20).status == 200


def test_a_server_that_does_not_answer_is_given_up():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with pytest.raises(NoResponse, match=r"^no answer within 0\.1 s$") as raised:
            request("GET", f"http://127.0.0.1:{silent.getsockname()[1]}/", None, {}, 0.1)
        assert raised.value.timed_out


@pytest.mark.parametrize(
    ("url", "reason"),
    [("http://127.0.0.1:1/", "Connection refused"), ("http://[::1]:port/", "port"), ("http://[::1/", "Invalid IPv6")],
)
def test_the_reason_of_a_failure_is_one_text(url, reason):
    with pytest.raises(NoResponse, match=reason) as raised:
        request("GET", url, None, {}, 20)
    assert not raised.value.timed_out
    assert not raised.value.verify_message


def test_an_address_without_a_port_has_that_of_its_scheme(monkeypatch):
    addresses = []

    def connect(address, *_, **__):
        addresses.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "create_connection", connect)
    for url in "http://[::1]/", "https://[::1]/", "http://gateway/":
        with pytest.raises(NoResponse, match="ConnectionRefusedError"):
            request("GET", url, None, {}, 20)
    assert addresses == [("::1", 80), ("::1", 443), ("gateway", 80)]


def test_a_certificate_that_is_not_trusted_is_named_as_the_reason(tmp_path, monkeypatch):
    files = certificates.make(tmp_path / "tls")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.server, files.server_key)
    with serving(context) as server:
        url = f"https://localhost:{server.server_port}/"
        with pytest.raises(NoResponse) as raised:
            request("GET", url, None, {}, 20)
        assert "certificate" in raised.value.verify_message
        monkeypatch.setenv("SSL_CERT_FILE", str(files.authority))
        assert request("GET", url, None, {}, 20).status == 200
