"""Clients that violate HTTP or their connections: the answers, and the lines in the log."""

from __future__ import annotations

import gzip
import json
import socket
import ssl
import struct
from collections import Counter
from urllib.parse import urlsplit

import pytest
from support.processes import GatewayProcess

from edge import log_limit

QUERY = b"SELECT * WHERE { ?s ?p ?o }"
GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = (
    b"POST /query HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/sparql-query\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(QUERY), QUERY)
)
OPEN = (
    b"GET /subscribe HTTP/1.1\r\n%bConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
CONNECT = b"\x10\x0e\x00\x04MQTT\x04\x02\x00\x3c\x00\x02ab"


def start(directory, **settings) -> tuple[GatewayProcess, dict[str, str]]:
    gateway = GatewayProcess(directory, {"EDGE__LOG__FORMAT": "json", **settings})
    return gateway, gateway.start()


@pytest.fixture(scope="module")
def secure(tmp_path_factory):
    """Run a gateway with all its TCP ports; return its endpoints."""
    settings = {f"EDGE__SECURITY__{port}_PORT": "0" for port in ("HTTPS", "WSS")}
    gateway, endpoints = start(tmp_path_factory.mktemp("secure"), EDGE__SECURITY__ENABLED="true", **settings)
    yield endpoints
    gateway.stop()


def connect(endpoint: str) -> socket.socket:
    url = urlsplit(endpoint)
    assert url.port is not None
    plain = socket.create_connection(("127.0.0.1", url.port), 20)
    if url.scheme not in ("https", "wss"):
        return plain
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(plain, server_hostname="localhost")


def ask(endpoint: str, request: bytes) -> tuple[int, dict[str, str], dict]:
    """Return status, headers and JSON body of the answer."""
    with connect(endpoint) as connection:
        connection.sendall(request)
        answer = b""
        while part := connection.recv(65536):
            answer += part
    head, _, body = answer.partition(b"\r\n\r\n")
    line, *fields = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (field.partition(": ") for field in fields)}
    return int(line.split()[1]), headers, json.loads(body)


@pytest.mark.parametrize("hosts", [(), ("localhost", "localhost"), ("localhost", "elsewhere.example")])
@pytest.mark.parametrize("service", ["http", "https", "ws", "wss"])
def test_a_request_has_exactly_one_host(secure, service, hosts):
    fields = b"".join(b"Host: %b\r\n" % host.encode() for host in hosts)
    request = OPEN % fields if service in ("ws", "wss") else b"GET /health HTTP/1.1\r\n%b\r\n" % fields
    status, headers, error = ask(secure[service], request)
    assert (status, headers["content-type"]) == (400, "application/json")
    assert error == {
        "error": "invalid_request",
        "error_description": f'The request has {f"{len(hosts)} headers" if hosts else "no header"} "Host"; '
        "send exactly one, with the name and port of this server",
        "status_code": 400,
    }


@pytest.mark.parametrize("host", ["127.0.0.1:8000, evil", "user@127.0.0.1", "a b", "", "localhost/a", "localhost:a"])
@pytest.mark.parametrize("service", ["http", "https", "ws", "wss"])
def test_a_host_is_a_name_or_an_address(secure, service, host):
    field = b"Host: %b\r\n" % host.encode()
    request = OPEN % field if service in ("ws", "wss") else b"GET /health HTTP/1.1\r\n%b\r\n" % field
    status, headers, error = ask(secure[service], request)
    assert (status, headers["content-type"]) == (400, "application/json")
    assert error == {
        "error": "invalid_request",
        "error_description": (
            'The header "Host" is not a host name or address, with or without a port; send the name and port of this '
            "server"
        ),
        "status_code": 400,
    }


@pytest.mark.parametrize("service", ["http", "https"])
def test_a_request_of_http_1_0_needs_no_host(secure, service):
    assert ask(secure[service], b"GET /health HTTP/1.0\r\n\r\n")[0] == 200


@pytest.mark.parametrize("service", ["ws", "wss"])
def test_websocket_port_refuses_other_requests_with_a_json_error(secure, service):
    status, headers, error = ask(secure[service], b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert (status, headers["upgrade"], error["error"]) == (426, "websocket", "upgrade_required")
    twice = b"Host: localhost\r\nOrigin: http://localhost\r\nOrigin: http://localhost\r\n"
    status, _, error = ask(secure[service], OPEN % twice)
    assert (status, error["error"]) == (400, "invalid_request")


BODIES = [
    ("POST", "/query", "application/sparql-query"),
    ("POST", "/update", "application/sparql-update"),
    ("POST", "/history", "application/sparql-update"),
    ("POST", "/sparql", "application/x-www-form-urlencoded"),
    ("PUT", "/timers/a", "application/sparql-update"),
    ("POST", "/explain", "application/sparql-query"),
    ("PUT", "/api/engine", "application/json"),
]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    gateway, endpoints = start(tmp_path_factory.mktemp("plain"))
    yield endpoints["http"]
    gateway.stop()


def compressed(method: str, path: str, media_type: str, coding: str) -> bytes:
    body = gzip.compress(QUERY)
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: {media_type}\r\n"
    return f"{head}Content-Encoding: {coding}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


@pytest.mark.parametrize("coding", ["gzip", "identity, br"])
@pytest.mark.parametrize(("method", "path", "media_type"), BODIES)
def test_a_compressed_body_is_refused_with_the_accepted_encodings(plain, method, path, media_type, coding):
    status, headers, error = ask(plain, compressed(method, path, media_type, coding))
    assert (status, headers["accept-encoding"], error["error"]) == (415, "identity", "unsupported_media_type")
    assert coding.split()[-1] in error["error_description"]


def test_a_registration_that_is_compressed_is_refused_likewise(secure):
    status, headers, _ = ask(secure["https"], compressed("POST", "/oauth/register", "application/json", "deflate"))
    assert (status, headers["accept-encoding"]) == (415, "identity")


def test_another_415_names_no_encoding(plain):
    status, headers, _ = ask(plain, compressed("POST", "/query", "text/plain", "identity"))
    assert status == 415
    assert "accept-encoding" not in headers


def leave(endpoint: str, request: bytes, *, reset: bool) -> None:
    """Send a request and disconnect without reading the answer."""
    with socket.create_connection(("127.0.0.1", urlsplit(endpoint).port), 20) as connection:
        if reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.sendall(request)


@pytest.mark.parametrize("reset", [False, True])
def test_clients_that_vanish_leave_no_errors_and_few_lines(tmp_path, reset):
    # The second connection is refused while it opens: that answer fails most easily.
    gateway, endpoints = start(tmp_path, EDGE__HTTP__MAX_CONNECTIONS="1", EDGE__HTTP__MAX_HEADER="8192")
    large = b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 9000
    upgrade = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    requests = {
        "http": [b"bad\r\n\r\n", large, GET + b"bad\r\n\r\n", POST * 5 + b"bad\r\n\r\n", POST[:-3], upgrade],
        "ws": [
            b"bad\r\n\r\n",
            GET,
            OPEN % b"Host: localhost\r\n",
            OPEN % b"Host: localhost\r\n" + b"\x89\x80abcd" * 50,
        ],
        "mqtt": [b"bad", CONNECT, CONNECT + b"\xc0\x00" * 100, CONNECT + b"\x30\x05\x00\x01ahi\xe0\x00"],
    }
    for _ in range(2 * log_limit.BURST):
        for service, some in requests.items():
            for request in some:
                leave(endpoints[service], request, reset=reset)
    assert ask(endpoints["ws"], GET)[0] == 426, "it serves"
    gateway.stop()
    lines = [json.loads(line) for line in gateway.log().splitlines() if line.startswith("{")]
    assert [line for line in lines if "traceback" in line] == []
    assert not [line for line in lines if line["level"] == "error" and line["logger"].startswith(("edge", "asyncio"))]
    sources = Counter((line["logger"], line["event"].split("(")[0]) for line in lines)
    assert max(sources.values()) <= log_limit.BURST + 2, sources
    assert sum(line.get("suppressed", 0) for line in lines) > 0
