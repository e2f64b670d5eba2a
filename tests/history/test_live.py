"""The live graph in addition to the history: queries to gateways over HTTP, and SERVICE."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from click.testing import CliRunner

from edge.cli import edge as edge_command
from edge.outbox.observation import DCTERMS, QUDT, SOSA
from edge.sparql.query import read_query
from edge.sparql.terms import BlankNode, Literal
from spark_offload import live
from spark_offload.cli import edge_history
from spark_offload.errors import GatewayRefused, QueryRefused
from spark_offload.history import History
from spark_offload.live import GatewayEndpoint
from spark_offload.services import answered
from spark_offload.solutions import GatewaySolutions
from tests.history.history_data import EX, frame, numbered, readings, write
from tests.support.processes import GatewayProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATA = f"""PREFIX ex: <{EX}>
INSERT DATA {{
  ex:s1 ex:value 21.5 ; ex:name "Küche"@de ; ex:note "a\\"\\n" ; ex:at [ ex:floor 2 ] .
  ex:s2 ex:value 20
}}"""
QUIET = {
    "EDGE__MQTT__ENABLED": "false",
    "EDGE__HOST__ENABLED": "false",
    "EDGE__SECURITY__HTTPS_PORT": "0",
    "EDGE__SECURITY__WSS_PORT": "0",
}


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayEndpoint]:
    """Run a gateway with a live graph."""
    process = GatewayProcess(tmp_path_factory.mktemp("box") / "data", QUIET)
    try:
        url = process.start()["http"]
        reported = httpx.post(f"{url}/update", content=DATA, headers={"Content-Type": "application/sparql-update"})
        assert reported.status_code == 200, reported.text
        yield GatewayEndpoint(f"{url}/query")
    finally:
        process.stop()


def test_terms_of_a_gateway_are_unchanged(box: GatewayEndpoint) -> None:
    found = box.select(f"SELECT ?s ?v ?none {{ ?s <{EX}value> ?v }} ORDER BY ?s")
    assert found.variables == ("s", "v", "none")
    assert [tuple(None if term is None else str(term) for term in row) for row in found.rows] == [
        (f"<{EX}s1>", '"21.5"^^<http://www.w3.org/2001/XMLSchema#decimal>', None),
        (f"<{EX}s2>", '"20"^^<http://www.w3.org/2001/XMLSchema#integer>', None),
    ]
    (row,) = box.select(f"SELECT * {{ <{EX}s1> <{EX}name> ?n ; <{EX}note> ?t ; <{EX}at> ?a , ?b }}").rows
    assert row[:2] == (Literal("Küche", "de"), Literal('a"\n'))
    assert isinstance(row[2], BlankNode)
    assert row[2] == row[3]


def test_a_frame_has_the_columns_of_the_history(spark: SparkSession, box: GatewayEndpoint) -> None:
    made = box.frame(spark, f"SELECT ?v ?n ?none {{ <{EX}s1> <{EX}value> ?v ; <{EX}name> ?n }}")
    assert made.columns == ["v", "n", "none"]
    assert [tuple(row) for row in made.collect()] == [
        ('"21.5"^^<http://www.w3.org/2001/XMLSchema#decimal>', '"Küche"@de', None)
    ]
    assert box.frame(spark, "SELECT ?x { ?x <urn:nowhere> ?x }").collect() == []


def test_refusals_show_the_message_of_the_gateway(box: GatewayEndpoint) -> None:
    with pytest.raises(GatewayRefused, match=r"answered 400: .*SPARQL"):
        box.select("SELEKT")
    with pytest.raises(GatewayRefused, match=r"answered 404"):
        GatewayEndpoint(f"{box.url}/nothing").select("SELECT * {}")
    with pytest.raises(GatewayRefused, match="is not a SPARQL endpoint"):
        box.select("ASK {}")
    with pytest.raises(GatewayRefused, match="does not answer"):
        GatewayEndpoint("http://127.0.0.1:1/query").select("SELECT * {}")


@pytest.mark.parametrize("url", ["", "box", "ftp://box/query", "http:///query", "file:///etc/passwd"])
def test_an_invalid_address_is_refused(url: str) -> None:
    with pytest.raises(GatewayRefused, match="is not a URL of a gateway"):
        GatewayEndpoint(url)


def test_a_token_is_sent_over_encrypted_connections_only() -> None:
    with pytest.raises(GatewayRefused, match="use https"):
        GatewayEndpoint("http://box.example:8000/query", token="secret")
    for url in ("http://localhost:8000/query", "http://[::1]:8000/query", "https://box.example/query"):
        assert "secret" in repr(GatewayEndpoint(url, token="secret").token)
        assert "secret" not in repr(GatewayEndpoint(url, token="secret"))


def test_a_secured_gateway_wants_a_token_and_its_certificate(tmp_path: Path) -> None:
    data = tmp_path / "data"
    process = GatewayProcess(data, {**QUIET, "EDGE__SECURITY__ENABLED": "true"})
    try:
        url = f"{process.start()['https']}/query"
        run = CliRunner()
        assert run.invoke(edge_command, ["clients", "allow", "spark", "--data-dir", str(data)]).exit_code == 0
        token = run.invoke(edge_command, ["clients", "token", "spark", "--data-dir", str(data)]).stdout.strip()
        trusted = str(data / "tls" / "ca.pem")
        assert GatewayEndpoint(url, token=token, ca_file=trusted).select("SELECT * { VALUES ?x { 1 } }").rows
        with pytest.raises(GatewayRefused, match="give a token"):
            GatewayEndpoint(url, ca_file=trusted).select("SELECT * {}")
        with pytest.raises(GatewayRefused, match=r"does not answer .*certificate"):
            GatewayEndpoint(url, token=token).select("SELECT * {}")
    finally:
        process.stop()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"head":{"vars":["x"]},"boolean":true}',
        b'{"head":{"vars":["x"]},"results":{"bindings":[{"x":{"type":"triple","value":{}}}]}}',
        b'{"head":{"vars":["x"]},"results":{"bindings":[{"x":5}]}}',
        b"\xff" * 10,
        b" " * 1001,
    ],
)
def test_answers_that_are_not_results_are_refused(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "LARGEST", 1000)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            with pytest.raises(GatewayRefused, match=r"is not a SPARQL endpoint|narrow the query"):
                GatewayEndpoint(f"http://127.0.0.1:{server.server_port}/query").select("SELECT * {}")
        finally:
            server.shutdown()
            thread.join()


ONE = GatewaySolutions(("x",), ((Literal("1"),),))


def test_the_pattern_inside_service_is_queried() -> None:
    requests: list[tuple[str, str]] = []

    def ask(address: str, query: str) -> GatewaySolutions:
        requests.append((address, query))
        return ONE

    prologue = "PREFIX service: <urn:s> # SELECT\nBASE <urn:b>\n"
    inside = '{ ?a service:b "}" , \'}\' , """"}"""  # }\n OPTIONAL { ?a <urn:SERVICE{> ?c FILTER(?c < 5 && ?a > 2) } }'
    around = (
        'SELECT ?x { ?service service:service "SERVICE <x> {" , "x"@service . %s OPTIONAL { %s } } # SERVICE <z> {}'
    )
    inside = inside.replace("<urn:SERVICE{>", "<urn:SERVICE>")
    query = prologue + around % (f"service <http://a/> {inside}", "SERVICE SILENT <http://b/>{}")
    made = answered(query, ask)
    assert requests == [
        ("http://a/", f"{prologue}SELECT * WHERE {inside}"),
        ("http://b/", f"{prologue}SELECT * WHERE {{}}"),
    ]
    assert made.text == prologue + around % ("VALUES ?service1 {}", "VALUES ?service2 {}")
    assert set(made.answers) == {"service1", "service2"}
    for _, text in requests:
        read_query(text)
    read_query(made.text)


def test_internal_names_are_not_variables_of_the_query() -> None:
    made = answered("SELECT * { ?service1 ?service3 ?x . SERVICE <a:> {} SERVICE <b:> {} }", lambda *_: ONE)
    assert set(made.answers) == {"service2", "service4"}


def test_only_silent_services_may_fail() -> None:
    def ask(address: str, _query: str) -> GatewaySolutions:
        raise GatewayRefused(f"{address} does not answer")

    assert answered("ASK { SERVICE SILENT <a:> {} }", ask).answers == {"service1": GatewaySolutions((), ((),))}
    with pytest.raises(GatewayRefused, match="a: does not answer"):
        answered("ASK { SERVICE <a:> {} }", ask)


@pytest.mark.parametrize(
    "query",
    [
        "ASK { SERVICE ?x {} }",
        "ASK { SERVICE ex:a {} }",
        "ASK { SERVICE",
        "ASK { SERVICE <a:> ?x }",
        "ASK { SERVICE <a:> {",
    ],
)
def test_service_in_unsupported_positions_is_refused(query: str) -> None:
    with pytest.raises(QueryRefused, match="SERVICE without"):
        answered(query, lambda *_: ONE)


def test_one_query_reads_history_and_live_graph(spark: SparkSession, box: GatewayEndpoint) -> None:
    """The names of the sensors are live, their measurements are history."""
    rows = numbered([*readings("s1", [20, 21]), *readings("s2", [5]), *readings("s3", [9])])
    history = History(spark, frame(spark, rows), live=[box])
    query = f"""PREFIX ex: <{EX}> PREFIX sosa: <{SOSA}> PREFIX qudt: <{QUDT}>
    SELECT ?name ?now (MAX(?value) AS ?max) (COUNT(DISTINCT ?at) AS ?places) {{
      SERVICE <{box.url}> {{
        ?sensor ex:value ?now OPTIONAL {{ ?sensor ex:name ?name }} OPTIONAL {{ ?sensor ex:at ?at }}
      }}
      ?observation sosa:madeBySensor ?made ; sosa:hasResult/qudt:numericValue ?value .
      FILTER(STR(?made) = CONCAT(STR(ex:sensor), "/", STRAFTER(STR(?sensor), STR(ex:))))
    }} GROUP BY ?name ?now ORDER BY ?now"""
    found = [[None if cell is None else cell.split("^^")[0] for cell in row] for row in history.sparql(query).collect()]
    assert found == [[None, '"20"', '"5"', '"0"'], ['"Küche"@de', '"21.5"', '"21"', '"1"']]


def test_live_observations_join_their_versions(spark: SparkSession, box: GatewayEndpoint) -> None:
    series = f"{EX}observation/s1"
    reported = httpx.post(
        box.url.replace("/query", "/update"),
        content=f"INSERT DATA {{ <{series}> <{EX}quality> 1 }}",
        headers={"Content-Type": "application/sparql-update"},
    )
    assert reported.status_code == 200
    history = History(spark, frame(spark, numbered([*readings("s1", [1, 2]), *readings("s2", [3])])), live=[box])
    joined = f"?version <{DCTERMS}isVersionOf> ?live SERVICE <{box.url}> {{ ?live <{EX}quality> ?quality }}"
    assert history.sparql(f"SELECT ?version {{ {joined} }}").count() == 2
    assert history.ask(f"ASK {{ {joined} }}")
    optional = f"OPTIONAL {{ SERVICE <{box.url}> {{ ?live <{EX}quality> ?q }} }}"
    found = history.sparql(f"SELECT ?q {{ ?version <{DCTERMS}isVersionOf> ?live {optional} }}").collect()
    assert sorted((row.q or "").split("^^")[0] for row in found) == ["", '"1"', '"1"']
    assert not history.ask(f"ASK {{ SERVICE <{box.url}> {{ <urn:a> <urn:b> <urn:c> }} }}")


def test_only_named_gateways_are_queried(spark: SparkSession, box: GatewayEndpoint) -> None:
    history = History(spark, frame(spark, numbered(readings("s1", [1]))), live=[box])
    for silent in ("", "SILENT "):
        with pytest.raises(QueryRefused, match="is not allowed"):
            history.sparql(f"SELECT * {{ SERVICE {silent}<http://127.0.0.1:1/query> {{ ?s ?p ?o }} }}")


def test_the_command_queries_the_configured_gateways(spark: SparkSession, box: GatewayEndpoint, tmp_path: Path) -> None:
    table = write(spark, tmp_path / "table", numbered(readings("s1", [1])))
    query = f"SELECT ?v {{ SERVICE <{box.url}> {{ <{EX}s1> <{EX}value> ?v }} }}"
    command = ["query", "-", "--table", table, "--format", "csv"]
    reported = CliRunner().invoke(edge_history, [*command, "--live", box.url], input=query)
    assert reported.stdout.split() == ["v", "21.5"], reported.output
    explained = CliRunner().invoke(edge_history, [*command, "--live", box.url, "--explain"], input=query)
    assert explained.stdout.startswith("SELECT"), explained.output
    refused = CliRunner().invoke(edge_history, command, input=query)
    assert isinstance(refused.exception, QueryRefused)
    assert "--live URL" in str(refused.exception)
