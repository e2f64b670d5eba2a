"""LOAD on a gateway with security: clients cannot make it fetch documents of its own host and network."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from secured import Harness, settings

from edge.engine.settings import EngineSettings
from edge.gateway import Gateway
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
        thread = threading.Thread(target=http.serve_forever)
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


async def test_the_host_of_the_gateway_must_be_listed(tmp_path, server):
    url, asked = server
    status, text = await load(tmp_path / "not-listed", url)
    assert (status, asked) == (400, [])
    assert "streams.callback_hosts" in text
    status, text = await load(tmp_path / "listed", url, url.removeprefix("http://"))
    assert (status, asked) == (200, ["/document"])
