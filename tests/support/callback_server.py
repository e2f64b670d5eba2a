"""A server on loopback for the callback URLs of observers. It keeps all reports that it gets."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from tests.support.waiting import wait_for


class Received(NamedTuple):
    """A report as it arrived."""

    headers: dict[str, str]
    """By name in lower case."""
    body: bytes

    @property
    def number(self) -> int:
        return int(self.headers["report-number"])

    @property
    def rows(self) -> list[dict[str, str]]:
        """The values of each row of a SELECT query."""
        return [
            {name: term["value"] for name, term in row.items()} for row in json.loads(self.body)["results"]["bindings"]
        ]


class CallbackServer:
    """Reports by the path of the callback URL."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._received: dict[str, list[Received]] = {}

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self._port}{path}"

    def received(self, path: str) -> list[Received]:
        """Return the reports so far."""
        return list(self._received.get(path, ()))

    def note(self, path: str, received: Received) -> None:
        self._received.setdefault(path, []).append(received)

    def wait_for(self, path: str, condition: Callable[[Received], Any] = bool) -> Received:
        """Return the first report at a path for which the condition is true."""
        return wait_for(
            lambda: next((each for each in self.received(path) if condition(each)), None), f"a report at {path}"
        )


@contextmanager
def callback_server() -> Iterator[CallbackServer]:
    """Serve on a free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            server.note(self.path, Received({name.lower(): value for name, value in self.headers.items()}, body))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Write nothing."""

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server = CallbackServer(listener.server_address[1])
    thread = threading.Thread(target=listener.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        listener.shutdown()
        thread.join()
        listener.server_close()
