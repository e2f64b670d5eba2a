"""The commands that use a running gateway: query, update, subscribe, publish."""

import contextlib
import csv
import errno
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading

import pyoxigraph as ox
import pytest
from edge_command import DEADLINE, launch
from websockets.sync.server import serve

from edge import endpoints
from edge.cli.exit_codes import Failure
from edge.cli.locate import locate
from tests.support.waiting import wait_for

NUMBERS = "SELECT ?n { <urn:numbers> <urn:has> ?n }"


@pytest.fixture
def ask(shared_edge, gateway):
    """Run a command against the gateway, whose graph contains only the test's data."""

    def run(command, *arguments, **more):
        return shared_edge(command, "--data-dir", gateway.data_dir, *arguments, **more)

    assert run("update", "CLEAR ALL").returncode == 0
    return run


def put(ask, *numbers):
    data = " . ".join(f"<urn:numbers> <urn:has> {number}" for number in numbers)
    assert ask("update", f"INSERT DATA {{ {data} }}").stdout == f"{len(numbers)} added, 0 removed\n"


def test_select_is_a_table(ask):
    ask(
        "update",
        """PREFIX sosa: <http://www.w3.org/ns/sosa/>
        INSERT DATA { <urn:s> a sosa:Sensor ;
          <urn:p> "été \\u6e29\\u5ea6"@fr , "a\\tb\\u001b[31m", _:b , "5"^^<urn:t> , 5 }""",
    )
    done = ask("query", "SELECT ?p ?o { <urn:s> ?p ?o } ORDER BY ?p STR(?o)")
    assert done.returncode == 0
    header, rule, *rows, count = done.stdout.splitlines()
    assert header.split() == ["?p", "?o"]
    assert set(rule) == {"-", " "}
    assert count == "(6 results)"
    cells = {row.split(maxsplit=1)[1] for row in rows}
    assert {"sosa:Sensor", "été 温度@fr", "a\\tb\\x1b[31m", "5^^<urn:t>", "5"} <= cells
    assert {row.index(cell) for row, cell in zip(rows, [row.split(maxsplit=1)[1] for row in rows], strict=True)} == {
        header.index("?o")
    }


@pytest.mark.parametrize(("text", "answer"), [("ASK { ?s ?p 1 }", "true\n"), ("ASK { ?s ?p 9 }", "false\n")])
def test_ask_prints_true_or_false_and_ends_with_0(ask, text, answer):
    put(ask, 1)
    done = ask("query", text)
    assert (done.returncode, done.stdout) == (0, answer)


def test_every_format(ask):
    put(ask, 1, 2)
    rows = list(csv.reader(io.StringIO(ask("query", "-f", "csv", NUMBERS).stdout)))
    assert sorted(rows) == [["1"], ["2"], ["n"]]
    assert ask("query", "-f", "tsv", NUMBERS).stdout.splitlines()[0] == "?n"
    assert len(json.loads(ask("query", "-f", "json", NUMBERS).stdout)["results"]["bindings"]) == 2
    assert "http://www.w3.org/2005/sparql-results#" in ask("query", "-f", "xml", NUMBERS).stdout
    construct = "CONSTRUCT { ?s <urn:q> ?o } WHERE { ?s ?p ?o }"
    for form, media_type in [
        ("table", "text/turtle"),
        ("turtle", "text/turtle"),
        ("ntriples", "application/n-triples"),
        ("xml", "application/rdf+xml"),
        ("json", "application/ld+json"),
        ("jsonld", "application/ld+json"),
    ]:
        text = ask("query", "-f", form, construct).stdout
        assert len(list(ox.parse(text.encode(), format=ox.RdfFormat.from_media_type(media_type)))) == 2, form


def test_a_format_that_does_not_apply_is_refused(ask):
    done = ask("query", "-f", "turtle", NUMBERS)
    assert done.returncode == 1
    assert "choose another --format" in done.stderr


def test_sparql_from_a_file_and_from_standard_input(ask, tmp_path):
    file = tmp_path / "ü.ru"
    file.write_text('INSERT DATA { <urn:a> <urn:b> "ü" }', encoding="utf-8")
    assert ask("update", f"@{file}").stdout == "1 added, 0 removed\n"
    assert ask("query", "-", input='ASK { <urn:a> <urn:b> "ü" }').stdout == "true\n"


def test_datasets(ask):
    ask("update", "INSERT DATA { GRAPH <urn:g> { <urn:a> <urn:b> 1 } }")
    assert ask("query", "--default-graph", "urn:g", "ASK { <urn:a> ?p 1 }").stdout == "true\n"
    assert ask("query", "--named-graph", "urn:h", "ASK { GRAPH ?g { ?s ?p ?o } }").stdout == "false\n"


@pytest.mark.parametrize("command", ["query", "update", "subscribe"])
def test_invalid_sparql_is_exit_code_1_with_the_gateways_message(ask, command):
    done = ask(command, "SELEKT *")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("edge: ")
    assert len(done.stderr.splitlines()) == 1
    assert "Traceback" not in done.stderr


def test_subscribe_prints_added_and_removed_rows(ask, shared_edge, gateway):
    put(ask, 1)
    watching = shared_edge.start(
        "subscribe", "--json", "--alias", "n", "-n", 3, "--data-dir", gateway.data_dir, NUMBERS
    )
    first = json.loads(watching.stdout.readline())
    assert (first["sequence"], first["alias"]) == (0, "n")
    put(ask, 2)
    ask("update", "DELETE DATA { <urn:numbers> <urn:has> 1 }")
    out, err = watching.communicate(timeout=DEADLINE)
    assert (watching.returncode, err) == (0, "")
    added, removed = map(json.loads, out.splitlines())
    assert [b["n"]["value"] for b in added["addedResults"]["results"]["bindings"]] == ["2"]
    assert added["removedResults"] == {"head": {"vars": ["n"]}, "results": {"bindings": []}}
    assert [b["n"]["value"] for b in removed["removedResults"]["results"]["bindings"]] == ["1"]


def test_subscribe_prints_a_table(ask, shared_edge, gateway):
    put(ask, 1)
    watching = shared_edge.start("subscribe", "-n", 2, "--data-dir", gateway.data_dir, NUMBERS)
    lines = [watching.stdout.readline() for _ in range(4)]
    ask("update", "DELETE DATA { <urn:numbers> <urn:has> 1 } ; INSERT DATA { <urn:numbers> <urn:has> 10 }")
    out, _ = watching.communicate(timeout=DEADLINE)
    text = "".join(lines) + out
    assert "#0: 1 added, 0 removed\n  ?n\n  --\n+ 1\n" in text
    assert text.endswith("#1: 1 added, 1 removed\n- 1\n+ 10\n")


def test_publish_reaches_the_subscriber(ask, shared_edge, gateway, tmp_path):
    query = "SELECT ?v { ?o <http://www.w3.org/ns/sosa/hasResult>/<http://qudt.org/1.1/schema/qudt#numericValue> ?v }"
    query += " # of the kitchen"
    query = query.replace("{ ?o", '{ ?o <http://mml.arces.unibo.it/monitor#hasMqttTopic> "senml/kitchen" . ?o')
    watching = shared_edge.start("subscribe", "--json", "-n", 3, "--data-dir", gateway.data_dir, query)
    assert json.loads(watching.stdout.readline())["sequence"] == 0
    for value in ("21.5", "22"):
        payload = f'[{{"n":"temperature","u":"Cel","v":{value}}}]'
        (tmp_path / "payload.json").write_text(payload)
        done = ask("publish", "senml/kitchen", payload if value == "22" else f"@{tmp_path / 'payload.json'}")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        reported = json.loads(watching.stdout.readline())
        assert [b["v"]["value"] for b in reported["addedResults"]["results"]["bindings"]] == [value]
    assert [b["v"]["value"] for b in reported["removedResults"]["results"]["bindings"]] == ["21.5"]
    assert watching.wait(DEADLINE) == 0


def test_publish_reports_messages_that_the_gateway_cannot_read(ask):
    done = ask("publish", "garage/door", "open")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == (
        "edge: published, but no mapping matches garage/door; make one with: edge mapping new TOPIC PAYLOAD\n"
    )
    done = ask("publish", "senml/garage", '[{"n": "t", "u": "Cel", "v": "warm"}]')
    assert done.returncode == 0
    assert done.stderr.startswith("edge: published, but t: ")
    assert ask("publish", "sepa/query", "{}").stderr == ""


def test_ctrl_c_ends_a_subscription_quietly(ask, shared_edge, gateway):
    watching = shared_edge.start("subscribe", "--json", "--data-dir", gateway.data_dir, NUMBERS)
    assert watching.stdout.readline()
    watching.send_signal(signal.SIGINT)
    _, err = watching.communicate(timeout=DEADLINE)
    assert (watching.returncode, err) == (0, "")


def test_a_closed_pipe_is_not_an_error(ask, shared_edge, gateway):
    put(ask, *range(300))
    command = [sys.executable, "-m", "edge", "query", "-f", "csv", "--data-dir", str(gateway.data_dir)]
    query = "SELECT * { ?a ?b ?c . ?a ?b ?n }"  # 90,000 rows: some ten times what a pipe holds
    with subprocess.Popen(
        [*command, query], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=shared_edge.environ()
    ) as process:
        process.stdout.readline()
        process.stdout.close()
        assert (process.wait(DEADLINE), process.stderr.read()) == (0, b"")


def test_a_subscription_that_lost_its_reader_ends(ask, shared_edge, gateway):
    watching = shared_edge.start("subscribe", "--json", "--data-dir", gateway.data_dir, NUMBERS)
    assert watching.stdout.readline()
    watching.stdout.close()
    put(ask, 1)
    assert watching.wait(DEADLINE) == 0
    assert watching.stderr.read() == ""
    watching.stdout = None


def test_reconnect_reports_the_lost_connection_and_prints_the_result_again(edge, tmp_path):
    running = launch(edge, tmp_path / "data", EDGE__HOST__ENABLED="false")
    edge("update", "INSERT DATA { <urn:numbers> <urn:has> 1 }", "--data-dir", running.data_dir)
    errors = (tmp_path / "errors").open("w+")
    watching = edge.start("subscribe", "--json", "--reconnect", "--data-dir", running.data_dir, NUMBERS, stderr=errors)
    first = json.loads(watching.stdout.readline())
    running.stop()
    wait_for(lambda: "trying again" in (tmp_path / "errors").read_text(), "it says so")
    launch(edge, running.data_dir, EDGE__HOST__ENABLED="false")
    again = json.loads(watching.stdout.readline())
    assert again["sequence"] == 0
    assert again["addedResults"] == first["addedResults"]
    assert (tmp_path / "errors").read_text().count("trying again") == 1
    errors.close()


def test_lost_connection_without_reconnect_is_exit_code_3(edge, tmp_path):
    running = launch(edge, tmp_path / "data", EDGE__HOST__ENABLED="false")
    watching = edge.start("subscribe", "--json", "--data-dir", running.data_dir, NUMBERS)
    assert watching.stdout.readline()
    running.stop(signal.SIGKILL)
    assert watching.wait(DEADLINE) == 3
    assert len(watching.stderr.read().splitlines()) == 1


def test_addresses_from_the_environment(ask, shared_edge, gateway, tmp_path):
    put(ask, 1)
    environ = {"EDGE_URL": gateway.endpoints["http"], "EDGE_WS": gateway.endpoints["ws"]}
    assert shared_edge("query", "ASK { ?s ?p 1 }", environ=environ).stdout == "true\n"
    assert json.loads(shared_edge("subscribe", "--json", "-n", "1", NUMBERS, environ=environ).stdout)["sequence"] == 0
    assert shared_edge("query", "ASK {}", environ={"EDGE__DATA_DIR": str(gateway.data_dir)}).stdout == "true\n"
    config = tmp_path / "edge.toml"
    config.write_text(f"data_dir = '{os.path.relpath(gateway.data_dir, tmp_path)}'\n")
    assert shared_edge("query", "ASK { ?s ?p 1 }", environ={"EDGE_CONFIG": str(config)}).stdout == "true\n"
    config.write_text("data_dir = 'other'\n")
    done = shared_edge("query", "ASK {}", environ={"EDGE_CONFIG": str(config)})
    assert (done.returncode, f"no gateway runs on {tmp_path / 'other'}" in done.stderr) == (3, True)
    config.write_text("data_dir = \n")
    done = shared_edge("query", "ASK {}", environ={"EDGE_CONFIG": str(config)})
    assert (done.returncode, str(config) in done.stderr) == (2, True)


def test_a_user_who_may_not_read_the_directory_of_the_settings_file_uses_the_default_ports(tmp_path, monkeypatch):
    """On a machine with the package, EDGE_CONFIG is set for each user, and the directory belongs to the gateway's."""

    def denied(_directory):
        raise PermissionError(errno.EACCES, "Permission denied")

    config = tmp_path / "edge.toml"
    config.write_text(f"data_dir = '{tmp_path}'\n")
    monkeypatch.setenv("EDGE_CONFIG", str(config))
    monkeypatch.setattr(endpoints, "read", denied)
    assert locate(None).get("http") == "http://127.0.0.1:8000"
    with pytest.raises(Failure, match="may not read"):
        locate(tmp_path)


def test_another_server_at_the_address_is_reported(edge, gateway):
    """An HTTP server that is not a gateway, and one that never answers."""
    done = edge("query", "ASK {}", "--url", gateway.endpoints["http"] + "/nothing/here")
    assert done.returncode == 1
    done = edge("subscribe", "ASK {}", "--ws", gateway.endpoints["http"].replace("http:", "ws:"))
    assert done.returncode == 1
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"127.0.0.1:{silent.getsockname()[1]}"
        for command in (
            ["query", "ASK {}", "--url", f"http://{url}"],
            ["publish", "a", "1", "--mqtt", f"mqtt://{url}"],
        ):
            done = edge(*command, "--timeout", "0.3")
            assert done.returncode == 3
            assert "within 0.3 s" in done.stderr


@contextlib.contextmanager
def websocket_server(handler):
    """Serve a WebSocket in another thread, and yield its URL."""
    with serve(handler, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"ws://127.0.0.1:{server.socket.getsockname()[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("answer", ["hello", None], ids=["not JSON", "an echo of the request"])
def test_subscribe_reports_a_server_that_is_not_a_gateway(edge, answer):
    def talk(connection):
        for message in connection:
            connection.send(answer or message)

    with websocket_server(talk) as url:
        done = edge("subscribe", "ASK {}", "--ws", url)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "edge: the answer is not that of a gateway; is --ws right?\n"


def test_subscribe_prints_the_reason_of_a_close_frame(edge):
    with websocket_server(lambda connection: connection.close(1008, "too slow")) as url:
        done = edge("subscribe", "ASK {}", "--ws", url)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == f"edge: the connection to {url} ended: too slow\n"


def test_subscribe_reports_a_wrong_path(edge, gateway):
    done = edge("subscribe", "ASK {}", "--ws", gateway.endpoints["ws"] + "/elsewhere")
    assert done.returncode == 1
    assert "There is nothing at" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_load_fetches_documents_if_allowed(edge, tmp_path):
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "a.ttl").write_text("<#s> <urn:p> 1 , 2 .")
    (pages / "b.ttl").write_text("<#s> <urn:p ")
    (pages / "c.html").write_text("text")
    with serving(pages) as url:
        running = launch(edge, tmp_path / "data", EDGE__ENGINE__ALLOW_LOAD="true", EDGE__HOST__ENABLED="false")
        load = ["update", "--data-dir", running.data_dir]
        assert edge(*load, f"LOAD <{url}/a.ttl>").stdout == "2 added, 0 removed\n"
        asked = edge("query", "--data-dir", running.data_dir, f"ASK {{ <{url}/a.ttl#s> <urn:p> 1 }}")
        assert asked.stdout == "true\n"
        for name, reason in [
            (f"{url}/b.ttl", "is not Turtle"),
            (f"{url}/c.html", "not an RDF format"),
            (f"{url}/d.ttl", "could not be fetched"),
            ("file:///etc/hostname", "only http and https"),
        ]:
            done = edge(*load, f"LOAD <{name}>")
            assert done.returncode == 1
            assert reason in done.stderr
    strict = launch(edge, tmp_path / "strict", EDGE__HOST__ENABLED="false")
    done = edge("update", "--data-dir", strict.data_dir, f"LOAD <{url}/a.ttl>")
    assert done.returncode == 1
    assert "LOAD" in done.stderr


@contextlib.contextmanager
def serving(directory):
    """Python's file server over a directory."""
    script = (
        "import functools, http.server as h, sys;"
        "k = functools.partial(h.SimpleHTTPRequestHandler, directory=sys.argv[1]);"
        "k.func.extensions_map = {'.ttl': 'text/turtle', '.html': 'text/html'};"
        "s = h.ThreadingHTTPServer(('127.0.0.1', 0), k); print(s.server_port, flush=True); s.serve_forever()"
    )
    server = subprocess.Popen(
        [sys.executable, "-c", script, str(directory)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"
    finally:
        server.kill()
        server.communicate()
