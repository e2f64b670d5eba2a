"""Register the twelve questions about the city, and print the reports of their answers. Ctrl-C ends the program.

The queries stay registered. Started again, the program gets the reports that were made meanwhile.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

import httpx
import pyoxigraph as ox

HERE = Path(__file__).parent
CITY = "http://example.org/city/"
MAP = f"{CITY}map"
"""Graph of the background knowledge."""


class Question:
    """A question in one of the two languages, and its query in a gateway."""

    def __init__(self, file: Path, gateway: httpx.Client) -> None:
        self.title = file.stem
        self.text = file.read_text("utf-8")
        name = self.title.partition("-")[2]
        # The name of a query in RSP-QL is an IRI.
        self.path = f"/queries/{quote(f'{CITY}{name}' if file.suffix == '.rspql' else name, safe='')}"
        self._gateway = gateway

    def register(self, observer: str) -> None:
        """Register the query and its observer, unless they are registered already."""
        if self._gateway.get(self.path).status_code == httpx.codes.NOT_FOUND:
            _checked(self._gateway.put(self.path, content=self.text))
        observers = _checked(self._gateway.get(f"{self.path}/observers")).json()
        if not any(observer in json.dumps(each) for each in observers):
            _checked(self._gateway.post(self.path, content=observer, headers={"Content-Type": "text/plain"}))

    def end(self) -> None:
        """End the query with its observers."""
        if self._gateway.get(self.path).status_code != httpx.codes.NOT_FOUND:
            _checked(self._gateway.delete(self.path))


def questions(language: str, gateway: httpx.Client) -> list[Question]:
    """Return the questions in a language, "csparql" or "rspql". Some use the streams of earlier ones."""
    return [Question(file, gateway) for file in sorted((HERE / "queries").glob(f"*.{language}"))]


def load_map(gateway: httpx.Client) -> None:
    """Replace the graph of the background knowledge."""
    triples = "".join(f"{triple} .\n" for triple in ox.parse((HERE / "map.ttl").read_bytes(), ox.RdfFormat.TURTLE))
    update = f"DROP SILENT GRAPH <{MAP}> ; INSERT DATA {{ GRAPH <{MAP}> {{ {triples} }} }}"
    _checked(gateway.post("/kb", data={"action": "update", "queryBody": update}))


def _checked(answer: httpx.Response) -> httpx.Response:
    if answer.is_error:
        raise SystemExit(f"{answer.request.method} {answer.request.url}: {answer.json()['error_description']}")
    return answer


def lines(kind: str, body: bytes) -> Iterator[str]:
    """Yield a line for each row of a report. `kind`: its content type."""
    if not kind.startswith("application/sparql-results+json"):
        triples = body.decode().splitlines()
        yield f"{len(triples)} triples"
        return
    results = json.loads(body)
    if "boolean" in results:
        yield "yes" if results["boolean"] else "no"
        return
    for row in results["results"]["bindings"]:
        yield "  ".join(
            f"{name} {row[name]['value'].removeprefix(CITY)}" for name in results["head"]["vars"] if name in row
        )


class Observer(BaseHTTPRequestHandler):
    """Prints each report that the gateway sends. The path of its URL is the title of the question."""

    def do_POST(self) -> None:
        """Print a report."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        time = re.sub(r".*T([\d:]+).*", r"\1", self.headers["Report-Time"])
        found = list(lines(self.headers["Content-Type"], body)) or ["nothing"]
        text = "".join(f"{time}  {self.path[1:]:15}  {line}\n" for line in found)
        # One write, because reports of several queries arrive at the same time.
        print(text, end="", flush=True)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Do not log requests."""


def main() -> None:
    """Register, and print reports until Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("language", choices=("csparql", "rspql"))
    parser.add_argument("--gateway", default="http://127.0.0.1:8000", help="(%(default)s)")
    parser.add_argument("--port", type=int, default=8099, help="port on which to receive reports (%(default)s)")
    parser.add_argument("--end", action="store_true", help="end the queries instead")
    arguments = parser.parse_args()
    try:
        with httpx.Client(base_url=arguments.gateway, timeout=30) as gateway:
            asked = questions(arguments.language, gateway)
            if arguments.end:
                # A query whose results are the source of others can only end after them.
                for question in reversed(asked):
                    question.end()
                return
            load_map(gateway)
            server = ThreadingHTTPServer(("127.0.0.1", arguments.port), Observer)
            for question in asked:
                question.register(f"http://127.0.0.1:{server.server_port}/{question.title}")
        print(f"{len(asked)} queries are registered. Ctrl-C ends.", flush=True)
        server.serve_forever()
    except httpx.TransportError as error:
        raise SystemExit(f"The gateway at {arguments.gateway} does not answer: {error}") from None
    except OSError as error:
        raise SystemExit(f"Port {arguments.port} cannot be used: {error}. Choose another one with --port") from None
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
