"""`edge-history serve --sparql`: the SPARQL Protocol with real sockets and other clients, and its limits."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import httpx
import pyoxigraph as ox
import pytest
import rdflib
from click.testing import CliRunner
from deltalake import write_deltalake
from history_data import EX, frame, numbered, readings, write
from rdflib.plugins.stores.sparqlstore import SPARQLStore
from uvicorn.server import ServerState

from spark_offload.cli import edge_history
from spark_offload.connection_slots import ConnectionSlots
from spark_offload.embedded.session import connect_mode, embedded_session
from spark_offload.gateways import Gateways
from spark_offload.history import History
from spark_offload.http_server import server_config
from spark_offload.sparql_endpoint.duckdb_engine import DuckDbEngine
from spark_offload.sparql_endpoint.endpoint import EndpointLimits, SparqlEndpoint
from spark_offload.sparql_endpoint.query_engine import QueryEngine
from spark_offload.sparql_endpoint.slots import QuerySlots
from spark_offload.sparql_endpoint.spark_engine import SparkEngine
from spark_offload.table import open_table
from tests.history.receiving import COMMAND
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PREFIXES = "PREFIX sosa: <http://www.w3.org/ns/sosa/> PREFIX qudt: <http://qudt.org/1.1/schema/qudt#>\n"
VALUES = PREFIXES + "SELECT ?v { ?o sosa:hasResult/qudt:numericValue ?v } ORDER BY ?v LIMIT 2"
LONG = PREFIXES + "SELECT * { ?a sosa:madeBySensor ?x . ?b sosa:madeBySensor ?y }"
"""Query with a result of 3600 rows."""
ENDLESS = (
    PREFIXES
    + "SELECT (COUNT(*) AS ?n) {"
    + " ".join(f"?{name} sosa:madeBySensor ?s{name} ." for name in "abcdef")
    + " FILTER(STRLEN(CONCAT(STR(?a), STR(?b), STR(?c), STR(?d), STR(?e), STR(?f))) > 6) }"
)
UNNAMEABLE = {"query": PREFIXES + "CONSTRUCT { ?s <urn:1> ?s } { ?o sosa:madeBySensor ?s }"}
JSON = "application/sparql-results+json"


class Running(NamedTuple):
    client: httpx.Client
    url: str


class Slow(SparkEngine):
    """A table whose rows take long, without using the processor."""

    def __init__(self, spark: SparkSession, table: str) -> None:
        super().__init__(spark, table)
        rows = open_table(spark, table).where("java_method('java.lang.Thread', 'sleep', 500L) = 'null'")
        self._history = History(spark, rows)

    def newest(self) -> History:
        return self._history


@contextmanager
def serving(
    engine: QueryEngine,
    limits: EndpointLimits | None = None,
    clients: Gateways | None = None,
    origins: tuple[str, ...] = (),
) -> Iterator[Running]:
    """Serve a table from a thread."""
    endpoint = SparqlEndpoint(engine, limits or EndpointLimits(), clients, origins)
    config = server_config(endpoint.app(), ConnectionSlots(20), None)
    config.load()
    loop, state = asyncio.new_event_loop(), ServerState()

    async def start() -> asyncio.Server:
        factory = config.http_protocol_class
        return await loop.create_server(lambda: factory(config=config, server_state=state, app_state={}), "127.0.0.1")

    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = asyncio.run_coroutine_threadsafe(start(), loop).result()
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        with httpx.Client(base_url=url, timeout=60, trust_env=False) as client:
            yield Running(client, f"{url}/sparql")
        wait_for(lambda: not (state.connections or state.tasks or endpoint._runs or endpoint._endings), "the end")
    finally:
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(spark, tmp_path_factory.mktemp("endpoint") / "table", numbered(readings("a1", range(60))))


@pytest.fixture(scope="module")
def running(spark: SparkSession, table: str) -> Iterator[Running]:
    with serving(SparkEngine(spark, table), origins=("https://yasgui.org",)) as found:
        yield found


@pytest.mark.parametrize(
    ("accept", "media_type"),
    [
        (None, JSON),
        ("application/sparql-results+xml, text/csv;q=0.5", "application/sparql-results+xml"),
        ("text/csv", "text/csv; charset=utf-8"),
        (
            "text/html, text/tab-separated-values;q=0.2, application/json;q=0",
            "text/tab-separated-values; charset=utf-8",
        ),
    ],
)
def test_solutions_have_the_format_that_the_client_accepts(
    running: Running, accept: str | None, media_type: str
) -> None:
    response = running.client.get("/sparql", params={"query": VALUES}, headers={"Accept": accept} if accept else {})
    assert (response.status_code, response.headers["content-type"]) == (200, media_type)
    assert response.headers["cache-control"] == "no-store"
    if "csv" in media_type:
        assert response.text == "v\r\n0\r\n1\r\n"
        return
    read = ox.parse_query_results(response.content, ox.QueryResultsFormat.from_media_type(media_type))
    assert isinstance(read, ox.QuerySolutions)
    assert [solution["v"].value for solution in read] == ["0", "1"]


def test_a_query_comes_in_a_url_a_form_or_as_a_body(running: Running) -> None:
    client, ask = running.client, "ASK { GRAPH <urn:g> { ?s ?p ?o } }"
    assert client.post("/sparql", data={"query": ask}).json() == {"head": {}, "boolean": False}
    direct = client.post("/sparql", content="ASK { }", headers={"Content-Type": "application/sparql-query"})
    assert direct.json()["boolean"] is True
    # No observation is in a named graph, so that this dataset is empty.
    parameters = {"query": "ASK { ?s ?p ?o }", "default-graph-uri": ["urn:a", "urn:b"], "named-graph-uri": "urn:c"}
    assert client.get("/sparql", params=parameters).json()["boolean"] is False
    made = PREFIXES + "CONSTRUCT { ?s <urn:saw> 1 } FROM <urn:a> { ?o sosa:madeBySensor ?s }"
    headers = {"Content-Type": "application/sparql-query", "Accept": "application/n-triples"}
    assert client.post("/sparql", content=made, headers=headers).text == ""
    triples = client.post("/sparql", content=made.replace("FROM <urn:a>", ""), headers=headers)
    one = "1"
    assert triples.text == f'<{EX}sensor/a1> <urn:saw> "{one}"^^<http://www.w3.org/2001/XMLSchema#integer> .\n'


def test_the_service_is_described(running: Running) -> None:
    response = running.client.get("/sparql", headers={"Accept": "text/html, */*;q=0.8"})
    graph = rdflib.Graph().parse(data=response.text, format="turtle")
    described = rdflib.Namespace("http://www.w3.org/ns/sparql-service-description#")
    assert list(graph.objects(None, described.endpoint)) == [rdflib.URIRef(running.url)]
    assert list(graph.objects(None, described.supportedLanguage)) == [described.SPARQL11Query]
    assert len(list(graph.objects(None, described.resultFormat))) == 8
    assert running.client.get("/health").json() == {"status": "ok"}


@pytest.mark.parametrize(
    ("options", "status", "detail"),
    [
        ({"params": {"query": "SELECT ?x {\n ?s ?p }"}}, 400, "line 2, column"),
        ({"params": {"query": "INSERT DATA { <urn:a> <urn:b> 1 }"}}, 400, "line 1, column 1"),
        ({"params": {"query": f"ASK {{ {' UNION '.join(['{ ?s ?p ?o }'] * 130)} }}"}}, 400, "259 triple"),
        ({"params": {"query": "ASK { SERVICE <http://example.org/> { } }"}}, 400, "is not allowed"),
        ({"params": {"query": ["ASK { }", "ASK { }"]}}, 400, "given once"),
        ({"params": {"query": "ASK { }", "default-graph-uri": "no iri"}}, 400, "<no iri> is not the IRI of a graph"),
        ({"params": {"query": "ASK { }"}, "headers": {"Accept": "image/png"}}, 406, "application/sparql-results+xml"),
        ({"params": {"query": "DESCRIBE <urn:a>"}, "headers": {"Accept": JSON}}, 406, "application/n-triples"),
        ({"params": UNNAMEABLE, "headers": {"Accept": "application/rdf+xml"}}, 400, "<urn:1> cannot be a predicate"),
        ({"params": {"update": "CLEAR ALL"}}, 403, "SPARQL Update"),
        ({"headers": {"Host": "attacker.example"}}, 421, "attacker.example"),
        ({"headers": {"Origin": "https://attacker.example"}}, 403, "--allow-origin"),
    ],
)
def test_refusals_are_problems(running: Running, options: dict[str, object], status: int, detail: str) -> None:
    response = running.client.get("/sparql", **options)  # type: ignore[arg-type]
    assert response.headers["content-type"] == "application/problem+json"
    assert (response.status_code, detail in response.json()["detail"]) == (status, True), response.text


def test_updates_and_other_bodies_are_refused(running: Running) -> None:
    for media_type, status in (("application/sparql-update", 403), ("text/plain", 415)):
        sent = running.client.post("/sparql", content="CLEAR ALL", headers={"Content-Type": media_type})
        assert sent.status_code == status
    large = running.client.post("/sparql", data={"query": "#" * (1 << 20)})
    assert large.status_code == 413
    assert running.client.put("/sparql").status_code == 405


def test_web_pages_of_allowed_origins_may_query(running: Running) -> None:
    headers = {"Origin": "https://yasgui.org", "Access-Control-Request-Method": "POST"}
    asked = running.client.options("/sparql", headers={**headers, "Access-Control-Request-Headers": "authorization"})
    assert asked.headers["access-control-allow-origin"] == "https://yasgui.org"
    response = running.client.get("/sparql", headers={"Origin": "https://yasgui.org"})
    assert response.headers["access-control-allow-origin"] == "https://yasgui.org"


def federated(running: Running) -> str:
    """Return a query for another store that uses the endpoint."""
    sosa, qudt = "http://www.w3.org/ns/sosa/", "http://qudt.org/1.1/schema/qudt#"
    pattern = f"?o <{sosa}hasResult>/<{qudt}numericValue> ?v FILTER (?v < 2)"
    return f"SELECT ?v {{ SERVICE <{running.url}> {{ {pattern} }} }}"


def test_rdflib_uses_the_endpoint_in_service_clauses(running: Running) -> None:
    assert sorted(str(row[0]) for row in rdflib.Graph().query(federated(running))) == ["0", "1"]  # type: ignore[index]


# By itself: the frames that errors inside rdflib keep would let another thread remove the solutions of Oxigraph.
def test_oxigraph_uses_the_endpoint_in_service_clauses(running: Running) -> None:
    found = ox.Store().query(federated(running))
    assert isinstance(found, ox.QuerySolutions)
    assert sorted(solution["v"].value for solution in found) == ["0", "1"]


def test_clients_need_a_token_if_there_is_a_file_of_tokens(spark: SparkSession, table: str, tmp_path: Path) -> None:
    clients = Gateways(tmp_path / "readers.json")
    token = clients.add("grafana")
    with serving(SparkEngine(spark, table), clients=clients) as found:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {token}"}):
            refused = found.client.get("/sparql", headers=headers)
            assert (refused.status_code, refused.headers["www-authenticate"][:6]) == (401, "Bearer")
        store = SPARQLStore(found.url, headers={"Authorization": f"Bearer {token}"})
        assert [str(row[0]) for row in rdflib.Graph(store).query(VALUES)] == ["0", "1"]  # type: ignore[index]
        made = rdflib.Graph(store).query(PREFIXES + "CONSTRUCT { ?s <urn:saw> 1 } { ?o sosa:madeBySensor ?s }")
        assert [str(row[0]) for row in made] == [f"{EX}sensor/a1"]  # type: ignore[index]


def test_a_table_that_is_replaced_is_read_and_one_that_has_gone_is_unavailable(
    spark: SparkSession, tmp_path: Path
) -> None:
    count = {"query": PREFIXES + "SELECT (COUNT(*) AS ?n) { ?o sosa:madeBySensor ?s }"}
    path, sizes = tmp_path / "table", (9, 4)
    for size in sizes:
        write(spark, tmp_path / str(size), numbered(readings("a1", range(size))))
    spark.sql(f"ALTER TABLE delta.`{tmp_path / '9'}` SET TBLPROPERTIES ('a' = 'b')")  # a higher version
    shutil.copytree(tmp_path / "9", path)
    with serving(SparkEngine(spark, str(path))) as found:
        for size in sizes:
            # Copied, so that Spark does not notice it itself.
            shutil.rmtree(path)
            shutil.copytree(tmp_path / str(size), path)
            answer = found.client.get("/sparql", params=count).json()
            assert answer["results"]["bindings"][0]["n"]["value"] == str(size)
        shutil.rmtree(path)
        response = found.client.get("/sparql", params=count)
        assert (response.status_code, response.headers["retry-after"]) == (503, "5")


def test_a_result_that_is_too_large_is_never_shortened(spark: SparkSession, table: str) -> None:
    with serving(SparkEngine(spark, table), EndpointLimits(rows=3000)) as found:
        response = found.client.get("/sparql", params={"query": LONG})
        assert (response.status_code, "3000 rows" in response.json()["detail"]) == (413, True)
    with serving(SparkEngine(spark, table), EndpointLimits(result_bytes=10_000)) as found:
        assert found.client.get("/sparql", params={"query": LONG}).status_code == 413
    with (
        serving(SparkEngine(spark, table), EndpointLimits(result_bytes=200_000)) as found,
        found.client.stream("GET", "/sparql", params={"query": LONG}) as response,
    ):
        assert response.status_code == 200
        with pytest.raises(httpx.RemoteProtocolError, match="incomplete chunked read"):
            response.read()


def test_a_query_is_cancelled_at_its_time_limit(spark: SparkSession, table: str) -> None:
    with serving(Slow(spark, table), EndpointLimits(seconds=1)) as found:
        response = found.client.get("/sparql", params={"query": VALUES})
        assert (response.status_code, "1 s" in response.json()["detail"]) == (408, True)
        wait_for(lambda: not active(spark), "the end of the jobs")


def test_a_query_is_cancelled_when_its_client_disconnects(spark: SparkSession, table: str) -> None:
    with serving(Slow(spark, table)) as found:
        with pytest.raises(httpx.ReadTimeout):
            found.client.get("/sparql", params={"query": VALUES}, timeout=1)
        wait_for(lambda: not active(spark), "the end of the jobs")
    with serving(SparkEngine(spark, table), EndpointLimits(queries=1)) as found:
        with found.client.stream("GET", "/sparql", params={"query": LONG}) as response:
            assert response.status_code == 200
        wait_for(lambda: found.client.get("/sparql", params={"query": "ASK { }"}).status_code == 200, "a free slot")


def test_queries_beyond_the_limit_are_refused(spark: SparkSession, table: str) -> None:
    slots = QuerySlots(3, 2)
    assert [slots.take(name) for name in ("a", "a", "b")] == ["", "", ""]
    assert "one client" in slots.take("a")
    assert "--max-queries" in slots.take("b")
    slots.free("a")
    assert slots.take("b") == ""
    with serving(Slow(spark, table), EndpointLimits(queries=1, seconds=2)) as found:
        first = threading.Thread(target=lambda: httpx.get(found.url, params={"query": VALUES}, timeout=60))
        first.start()

        def refused() -> httpx.Response | None:
            response = found.client.get("/sparql", params={"query": VALUES})
            return response if response.status_code == 503 else None

        assert wait_for(refused, "a running query").headers["retry-after"] == "5"
        first.join()


def active(spark: SparkSession) -> list[int]:
    return list(spark.sparkContext.statusTracker().getActiveJobsIds())


def test_duckdb_answers_as_spark_does(spark: SparkSession, table: str) -> None:
    made = PREFIXES + "CONSTRUCT { ?s <urn:saw> ?v } { ?o sosa:madeBySensor ?s ; sosa:hasResult/qudt:numericValue ?v }"
    asked = [(VALUES, JSON), (LONG, "text/csv"), ("ASK { }", JSON), (made, "application/n-triples")]
    with connect_mode(), serving(DuckDbEngine(table)) as found, ThreadPoolExecutor(4) as threads:
        answers = [lines(one) for one in threads.map(partial(ask, found), asked * 2)]
        outside = {"query": "SELECT * { ?s ?p ?o }", "default-graph-uri": "urn:none"}
        assert found.client.get("/sparql", params=outside).json()["results"]["bindings"] == []
        refused = found.client.get("/sparql", params={"query": "SELECT * { ?s ?p ?o FILTER(REGEX(?o, ?p)) }"})
        assert (refused.status_code, "--engine spark" in refused.json()["detail"]) == (501, True)
    with serving(SparkEngine(spark, table)) as found:
        assert answers == [lines(ask(found, one)) for one in asked] * 2


def test_duckdb_reads_the_newest_version(tmp_path: Path) -> None:
    path, count = str(tmp_path / "table"), PREFIXES + "SELECT (COUNT(*) AS ?n) { ?o sosa:madeBySensor ?s }"
    with connect_mode():
        stored = frame(embedded_session(), numbered(readings("a1", [7, 8]))).toArrow()
        write_deltalake(path, stored, partition_by=["date"])
        with serving(DuckDbEngine(path)) as found:
            assert lines(ask(found, (count, "text/csv"))) == ["2", "n"]
            write_deltalake(path, stored.slice(1), partition_by=["date"], mode="overwrite")
            assert lines(ask(found, (count, "text/csv"))) == ["1", "n"]
            shutil.rmtree(path)
            assert ask(found, (count, "text/csv")).status_code == 503


def lines(response: httpx.Response) -> list[str]:
    return sorted(response.text.splitlines())


def ask(found: Running, asked: tuple[str, str]) -> httpx.Response:
    return found.client.get("/sparql", params={"query": asked[0]}, headers={"Accept": asked[1]})


def test_limits_end_a_query_of_duckdb(table: str) -> None:
    limits = EndpointLimits(seconds=1, rows=3000, queries=1)
    with connect_mode(), serving(DuckDbEngine(table), limits) as found:
        with (
            found.client.stream("GET", "/sparql", params={"query": LONG}) as response,
            pytest.raises(httpx.RemoteProtocolError, match="incomplete chunked read"),
        ):
            response.read()

        def ended() -> int:
            """Return the status, or 0 while the query before has the only slot."""
            status = found.client.get("/sparql", params={"query": ENDLESS}).status_code
            return 0 if status == 503 else status

        assert [wait_for(ended, "a free slot") for _ in range(2)] == [408, 408]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("engine", ["spark", "duckdb"])
def test_sigterm_ends_the_server_during_a_query(table: str, tmp_path: Path, engine: str) -> None:
    log = tmp_path / "log"
    # This process must not pass the options of its own Spark session to others.
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_"))}
    options = ["--master=local[1]"]
    if engine == "duckdb":
        options = ["--engine=duckdb"]
        environment |= {"PATH": str(tmp_path), "JAVA_HOME": str(tmp_path)}  # without Java
    with log.open("w") as errors:
        server = subprocess.Popen(
            [*COMMAND, "serve", "--sparql", f"--table={table}", "--listen=127.0.0.1:0", *options],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment,
        )
    assert server.stdout is not None
    answers: list[httpx.Response] = []
    try:
        line = server.stdout.readline()
        assert line.startswith(f"serving {table} on http://127.0.0.1:"), log.read_text()
        url = line.split()[-1]
        assert json.loads(httpx.get(url, params={"query": "ASK { }"}, timeout=60).text)["boolean"] is True
        running = threading.Thread(
            target=lambda: answers.append(httpx.get(url, params={"query": ENDLESS}, timeout=60)), daemon=True
        )
        running.start()
        running.join(2)
        assert running.is_alive()
    finally:
        server.send_signal(signal.SIGTERM)
        code = server.wait(300)  # Spark needs long to stop on a busy machine
        server.stdout.close()
    running.join()
    assert (code, answers[0].status_code) == (0, 503), log.read_text()
    assert "Traceback" not in log.read_text()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--sparql", "--listen=0.0.0.0:8600", "--tokens=FILE"], "give --certificate and --key"),
        (["--sparql", "--listen=0.0.0.0:8600", "--certificate=FILE", "--key=FILE"], "give a file of tokens"),
        (["--sparql", "--certificate=FILE"], "go together"),
        (["--sparql", "--allow-origin=*"], "needs --tokens"),
        (["--max-rows=5"], "--max-rows needs --sparql"),
    ],
)
def test_options_that_would_expose_the_history_are_refused(tmp_path: Path, options: list[str], reason: str) -> None:
    file = tmp_path / "file"
    file.touch()
    given = [option.replace("FILE", str(file)) for option in options]
    result = CliRunner().invoke(edge_history, ["serve", "--table=history", *given])
    assert (result.exit_code, reason in result.stderr) == (2, True), result.stderr
