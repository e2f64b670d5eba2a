"""A gateway on its own event loop for tests with a plain HTTP client, and its graph store."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pyoxigraph as ox
from gate_server import running
from websockets.sync.client import connect

from edge.engine.settings import EngineSettings
from edge.engine.start import open_engine
from edge.gates.settings import HttpGateSettings

TURTLE = {"Content-Type": "text/turtle"}
PATCH = {"Content-Type": "application/sparql-update"}
FORMATS = {
    "text/turtle": ox.RdfFormat.TURTLE,
    "application/n-triples": ox.RdfFormat.N_TRIPLES,
    "application/ld+json": ox.RdfFormat.JSON_LD,
    "application/rdf+xml": ox.RdfFormat.RDF_XML,
    "application/json": ox.RdfFormat.JSON_LD,
    "application/xml": ox.RdfFormat.RDF_XML,
}


class Store:
    """The graph store at a URL."""

    def __init__(self, url: str, ws_url: str = "") -> None:
        self.http = httpx.Client(base_url=url, timeout=20, trust_env=False)
        self.ws_url = ws_url

    def send(self, method: str, graph: str | None, content: Any = None, **headers: str) -> httpx.Response:
        """Send a request. `graph`: empty for the default graph; None: the URL names none."""
        where = "" if graph is None else str(httpx.QueryParams({"graph": graph})) if graph else "default"
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.http.request(method, f"/graph-store{where and '?' + where}", content=content, headers=named)

    def put(self, graph: str | None, turtle: str, **headers: str) -> httpx.Response:
        return self.send("PUT", graph, turtle, **{"Content_Type": "text/turtle", **headers})

    def post(self, graph: str | None, turtle: str, **headers: str) -> httpx.Response:
        return self.send("POST", graph, turtle, **{"Content_Type": "text/turtle", **headers})

    def patch(self, graph: str | None, update: str, **headers: str) -> httpx.Response:
        return self.send("PATCH", graph, update, **{"Content_Type": "application/sparql-update", **headers})

    def lines(self, graph: str) -> list[str] | None:
        """Return the triples of a graph as sorted N-Triples; None: it does not exist."""
        answer = self.send("GET", graph, Accept="application/n-triples")
        if answer.status_code == 404:
            return None
        assert answer.status_code == 200, answer.text
        return sorted(answer.text.splitlines())

    def tag(self, graph: str) -> str:
        """Return the entity tag of a graph."""
        return self.send("GET", graph).headers["etag"]

    def update(self, sparql: str) -> Any:
        answer = self.http.post("/update", content=sparql, headers=PATCH)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def clear(self) -> None:
        """Drop all graphs."""
        self.update("DROP ALL")

    @contextmanager
    def subscribed(self, sparql: str) -> Iterator[Any]:
        """Subscribe. Yields a function that returns the next notification."""
        with connect(self.ws_url) as socket:
            socket.send(json.dumps({"subscribe": {"sparql": sparql}}))

            def receive() -> Any:
                return json.loads(socket.recv(20))["notification"]

            receive()
            yield receive


@contextmanager
def store_running(
    data_dir: Path | None = None, *, http: dict[str, Any] | None = None, **settings: Any
) -> Iterator[Store]:
    """Run a gateway with these settings of the HTTP gate and of the engine."""
    loop, engine = asyncio.new_event_loop(), open_engine(data_dir, EngineSettings(**settings))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    gates = running(engine, http=HttpGateSettings(port=0, **(http or {})))

    def run(coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(20)

    gateway = run(gates.__aenter__())
    store = Store(gateway.http_url, gateway.ws_url)
    try:
        yield store
    finally:
        store.http.close()
        run(gates.__aexit__(None, None, None))
        loop.call_soon_threadsafe(loop.stop)
        thread.join(20)
        loop.close()
        engine.close()


def parsed(answer: httpx.Response) -> set[ox.Triple]:
    """Return the triples of an answer in its format."""
    media_type = answer.headers["content-type"].partition(";")[0]
    return {quad.triple for quad in ox.parse(answer.content, FORMATS[media_type])}
