"""LOAD, from a real HTTP server on loopback."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from edge.engine.requests import QueryRequest, UpdateRequest
from edge.engine.settings import EngineSettings
from edge.engine.start import open_engine
from edge.load_documents import load_document
from edge.protocol.errors import Forbidden, UpdateFailed

DOCUMENTS = {
    "/good": ("text/turtle; charset=utf-8", b"<a> <http://ex/p> _:b . _:b <http://ex/q> 1 ."),
    "/broken": ("text/turtle", b"<a> <http://ex/p>"),
    "/picture": ("image/png", b"\x89PNG"),
}


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
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


def test_only_the_web_can_be_loaded() -> None:
    with pytest.raises(UpdateFailed, match="http and https"):
        load_document("file:///etc/passwd")


def test_load_is_off_by_default(server: str) -> None:
    engine = open_engine(None, load=load_document)
    try:
        with pytest.raises(Forbidden, match=r"engine\.allow_load"):
            engine.update([UpdateRequest(f"LOAD <{server}/good>")]).result(10)
    finally:
        engine.close()
