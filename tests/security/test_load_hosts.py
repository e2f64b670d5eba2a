"""LOAD on a gateway with security: clients cannot make it fetch documents of its own host and network."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from secured import Harness, settings

from edge.engine.settings import EngineSettings
from edge.gateway import Gateway
from edge.load_documents import load_document
from edge.protocol.errors import UpdateFailed
from edge.security import certificates
from edge.security.clients import Rights
from edge.streams.settings import StreamSettings


class _Handler(BaseHTTPRequestHandler):
    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(200)
        self.send_header("Content-Type", "text/turtle")
        self.send_header("Content-Length", "20")
        self.end_headers()
        self.wfile.write(b"<urn:a> <urn:p> 123.")

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[tuple[str, list[str]]]:
    asked: list[str] = []
    handler = type("Handler", (_Handler,), {"asked": asked})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as http:
        thread = threading.Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}", asked
        http.shutdown()
        thread.join()


async def load(data_dir: Path, url: str, *hosts: str) -> tuple[int, str]:
    """LOAD a document on a new gateway. Returns the status and the text of the answer."""
    wanted = {"engine": EngineSettings(allow_load=True), "streams": StreamSettings(callback_hosts=hosts)}
    async with Gateway(settings(data_dir).model_copy(update=wanted)) as gateway:
        harness = Harness(gateway)
        token = await harness.member("maker", Rights(frozenset({"update"})))
        answer = await harness.update(token, f"LOAD <{url}/document>")
    return answer.status_code, answer.text


PROXIES = ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")


@pytest.fixture
def proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proxy settings of the environment, of a proxy that does not answer."""
    for name in PROXIES:
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("proxies")
def test_proxies_of_the_environment_do_not_apply(server):
    """A proxy would connect to an address that was not checked."""
    url, asked = server
    assert len(list(load_document(f"{url}/document"))) == 1
    assert asked == ["/document"]


@pytest.mark.usefixtures("proxies")
def test_certificates_are_verified_for_the_name_with_the_authorities_of_the_environment(tmp_path, monkeypatch):
    files = certificates.make(tmp_path / "tls")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.server, files.server_key)
    handler = type("Handler", (_Handler,), {"asked": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as https:
        https.socket = context.wrap_socket(https.socket, server_side=True)
        thread = threading.Thread(target=https.serve_forever, args=(0.01,))
        thread.start()
        try:
            url = f"https://localhost:{https.server_port}/document"
            with pytest.raises(UpdateFailed, match="certificate verify failed"):
                load_document(url)
            monkeypatch.setenv("SSL_CERT_FILE", str(files.authority))
            assert len(list(load_document(url))) == 1
        finally:
            https.shutdown()
            thread.join()


async def test_the_host_of_the_gateway_must_be_listed(tmp_path, server):
    url, asked = server
    status, text = await load(tmp_path / "not-listed", url)
    assert (status, asked) == (400, [])
    assert "streams.callback_hosts" in text
    status, text = await load(tmp_path / "listed", url, url.removeprefix("http://"))
    assert (status, asked) == (200, ["/document"])
