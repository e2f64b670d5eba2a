"""`edge-history receive` while clients without a token hold connections."""

from __future__ import annotations

import resource
import signal
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from edge.outbox.segment import MANIFEST
from edge.security import certificates
from tests.history.receiving import EPOCH, Receiver, path, reported, segment, ship

SILENT = 1100


@pytest.fixture(scope="module", autouse=True)
def many_files() -> Iterator[None]:
    """Allow this process as many sockets as the tests need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * SILENT:
        pytest.skip("this process may not open enough sockets")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * SILENT), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def running(folder: Path, *options: str) -> Iterator[Receiver]:
    receiver = Receiver(folder, *options)
    receiver.start()
    try:
        yield receiver
    finally:
        if receiver.process is not None:
            receiver.end(signal.SIGKILL)


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    with running(tmp_path_factory.mktemp("attacked")) as made:
        yield made


def connect(stack: ExitStack, receiver: Receiver) -> socket.socket:
    url = httpx.URL(receiver.url)
    return stack.enter_context(socket.create_connection((url.host, url.port or 0), 20))


def arrived(receiver: Receiver, first: int, *, gateway: str = "g1") -> bool:
    """Ship a segment; return whether it is there."""
    manifest, rows = segment(first, first + 9, gateway=gateway)
    with receiver.client(gateway) as client:
        ship(client, manifest, rows)
    return (receiver.landing / manifest.folder / (manifest.stem + MANIFEST)).exists()


def test_silent_connections_keep_no_gateway_out(receiver: Receiver) -> None:
    with ExitStack() as stack:
        for _ in range(SILENT):
            connect(stack, receiver)
        assert arrived(receiver, 1)


def test_bytes_after_a_401_keep_no_gateway_out(receiver: Receiver) -> None:
    """Each connection has had an answer, and sends a byte of nothing."""
    with ExitStack() as stack:
        for _ in range(600):
            connection = connect(stack, receiver)
            connection.sendall(b"GET /v1/outboxes/g1 HTTP/1.1\r\nHost: here\r\n\r\n")
            assert connection.recv(2000).startswith(b"HTTP/1.1 401")
            connection.sendall(b"\n")
        assert arrived(receiver, 11)


def test_a_gateway_with_many_connections_keeps_no_other_out(receiver: Receiver) -> None:
    with ExitStack() as stack:
        for _ in range(600):
            connection = connect(stack, receiver)
            request = f"GET /v1/outboxes/g1 HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer {receiver.tokens['g1']}"
            connection.sendall(f"{request}\r\n\r\n".encode())
            assert connection.recv(2000).startswith(b"HTTP/1.1 200")
        assert arrived(receiver, 1, gateway="g2")
        assert arrived(receiver, 21), "it may still send itself"


def test_silent_tls_handshakes_keep_no_gateway_out(tmp_path: Path) -> None:
    files = certificates.make(tmp_path / "tls")
    options = (f"--certificate={files.server}", f"--key={files.server_key}", "--max-connections=50")
    trusted = ssl.create_default_context(cafile=files.authority)
    with running(tmp_path, *options) as receiver, ExitStack() as stack:
        for _ in range(120):
            connect(stack, receiver)
        url = receiver.url.replace("127.0.0.1", "localhost")
        header = {"Authorization": f"Bearer {receiver.tokens['g1']}"}
        with httpx.Client(base_url=url, verify=trusted, headers=header, timeout=30) as client:
            ship(client, *segment(1, 10))
            assert client.get("/v1/outboxes/g1").json()["held"] == {EPOCH: [[1, 10]]}
        assert receiver.end() == 0, "connections without a handshake do not delay the end"
        assert "Traceback" not in receiver.log()


def test_a_manifest_has_at_most_a_mebibyte(receiver: Receiver) -> None:
    """A length in the header is refused before the content is sent, and other content while it arrives."""
    manifest, _ = segment(31, 40)
    url = path(manifest, MANIFEST)
    with receiver.client() as client, ExitStack() as stack:
        request = f"PATCH {url} HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer {receiver.tokens['g1']}\r\n"
        for _ in range(5):
            connection = connect(stack, receiver)
            connection.sendall(f"{request}Upload-Offset: 0\r\nContent-Length: {55 << 20}\r\n\r\n".encode())
            assert connection.recv(2000).startswith(b"HTTP/1.1 413")
        chunks = (b" " * (64 << 10) for _ in range(55 * 16))
        answer = client.patch(url, content=chunks, headers=reported(0))
        assert answer.status_code == 413
        assert "update the gateway" in answer.json()["detail"]
        left = int(client.head(url).headers["Upload-Offset"])
        assert left <= 1 << 20
        text = b" " * (1 << 20)
        refused = client.patch(url, content=text[left:], headers=reported(left, whole=text))
        assert refused.status_code == 400, "as large as allowed, but not a manifest"
