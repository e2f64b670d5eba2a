"""A client of the stream resources, with a gateway of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from tests.support.processes import GatewayProcess

FORM = "application/x-www-form-urlencoded"


class StreamGateway:
    """A gateway process, and requests to its streams and queries. Methods return the decoded JSON, status 200."""

    def __init__(self, directory: Path, **settings: str) -> None:
        fixed = {"EDGE__HOST__ENABLED": "false", "EDGE__MQTT__ENABLED": "false"}
        self.process = GatewayProcess(directory, {**fixed, **settings})
        self.start()

    def start(self) -> None:
        self.endpoints = self.process.start()
        self.http = httpx.Client(base_url=self.endpoints["http"], timeout=20)

    def restart(self) -> None:
        """Kill the gateway as a power cut would, and start it again."""
        self.kill()
        self.start()

    def kill(self) -> None:
        """Kill the gateway as a power cut would."""
        self.http.close()
        self.process.kill()

    def close(self) -> None:
        self.http.close()
        self.process.stop()

    def send(
        self, method: str, path: str, content: str | bytes | None = None, kind: str = "", **options: Any
    ) -> httpx.Response:
        headers = {"Content-Type": kind} if kind else {}
        return self.http.request(method, path, content=content, headers=headers, **options)

    def ok(self, method: str, path: str, content: str | bytes | None = None, kind: str = "", **options: Any) -> Any:
        answer = self.send(method, path, content, kind, **options)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def fails(
        self, method: str, path: str, content: str | bytes | None = None, kind: str = "", **options: Any
    ) -> tuple[int, str]:
        """Return status and description of an error."""
        answer = self.send(method, path, content, kind, **options)
        return answer.status_code, answer.json()["error_description"]

    def stream(self, name: str) -> str:
        """Register a stream."""
        return str(self.ok("PUT", path_of("streams", name)))

    def add(self, name: str, turtle: str, **parameters: str) -> str:
        """Add an element; `turtle` lacks the full stop at its end."""
        return str(self.ok("POST", path_of("streams", name), f"{turtle} .", "text/turtle", params=parameters))

    def query(self, name: str, text: str) -> str:
        """Register a query; return its URL."""
        return str(self.ok("PUT", path_of("queries", name), text))

    def observe(self, name: str, url: str) -> str:
        """Add an observer; return its URL."""
        return str(self.ok("POST", path_of("queries", name), url, "text/plain"))

    def end_all(self) -> None:
        """End all queries, and then all streams but the one that always exists."""
        for _ in range(5):
            for query in self.ok("GET", "/queries"):
                self.send("DELETE", path_of("queries", query["name"]))
            for stream in self.ok("GET", "/streams"):
                self.send("DELETE", path_of("streams", stream["iri"]))


def path_of(kind: str, name: str) -> str:
    """Return the path of a stream or a query."""
    return f"/{kind}/{quote(name, safe='')}"
