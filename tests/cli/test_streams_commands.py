"""`edge streams` and `edge queries`: from the registration of a stream to the reports of a query."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

import httpx
import pytest
from edge_command import DEADLINE

from tests.support.waiting import wait_for

QUERY = """REGISTER ISTREAM <urn:warm> AS SELECT ?room ?t
FROM NAMED WINDOW <urn:w> ON <urn:edge:stream:rooms> [ELEMENTS 1]
WHERE { WINDOW <urn:w> { ?room <urn:temperature> ?t } }"""
IRI = "http://example.org/a/stream?x=\u00e9"


@pytest.fixture
def run(shared_edge, gateway):
    def run(command, *arguments, **options):
        return shared_edge(*command.split(), *arguments, "--data-dir", gateway.data_dir, **options)

    return run


@pytest.fixture
def rooms(run):
    assert run("streams put", "rooms").stdout == "Stream urn:edge:stream:rooms registered\n"
    yield run
    run("queries delete", "urn:warm")
    assert run("streams delete", "rooms").returncode == 0


def lines(done):
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_streams_are_listed_shown_and_ended(rooms):
    assert "10 s" not in rooms("streams list").stdout
    lines(rooms("streams put", "rooms", "--lateness", "PT10S"))
    header, *rows = lines(rooms("streams list"))
    assert header.split() == ["stream", "elements", "kept", "lateness", "too", "late", "query"]
    assert [row.split()[:2] for row in rows] == [["urn:edge:stream:observations", "0"], ["urn:edge:stream:rooms", "0"]]
    assert ["lateness", "10.0"] in [line.split() for line in lines(rooms("streams show", "rooms"))]
    assert json.loads(rooms("streams show", "rooms", "--json").stdout)["iri"] == "urn:edge:stream:rooms"
    assert len(json.loads(rooms("streams list", "--json").stdout)) == 2


def test_the_name_of_a_stream_can_be_an_iri(run):
    assert lines(run("streams put", IRI)) == [f"Stream {IRI} registered"]
    assert lines(run("streams add", IRI, "<urn:a> <urn:b> 1 .")) == ["1 accepted, 0 late, 0 too late"]
    assert lines(run("streams delete", IRI)) == [f"Stream {IRI} unregistered"]


def test_late_elements_are_shown(rooms, gateway):
    assert lines(rooms("streams late", "rooms")) == ["(no late elements)"]
    lines(rooms("queries put", "urn:warm", QUERY.replace("[ELEMENTS 1]", "[RANGE PT0.1S STEP PT0.1S]")))
    lines(rooms("streams add", "rooms", "<urn:a> <urn:temperature> 1 ."))
    queries = gateway.endpoints["http"] + "/queries/urn%3Awarm"
    wait_for(lambda: httpx.get(queries).json()["reports"], what="a report")
    time = datetime.fromisoformat(httpx.get(queries).json()["registered"]) + timedelta(milliseconds=1)
    added = rooms("streams add", "rooms", "<urn:a> <urn:temperature> 2 .", "--timestamp", time.isoformat())
    assert lines(added) == ["1 accepted, 0 late, 1 too late"]
    head, triple = lines(rooms("streams late", "rooms"))
    assert head.startswith(f"#2  {time.isoformat().replace('+00:00', 'Z')}, arrived 20")
    assert triple == '  <urn:a> <urn:temperature> "2"^^<http://www.w3.org/2001/XMLSchema#integer> .'
    assert json.loads(rooms("streams late", "rooms", "--json").stdout)[0]["number"] == 2


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("turtle", "<urn:a> <urn:b> 1 ."),
        ("ntriples", '<urn:a> <urn:b> "1" .'),
        ("jsonld", '{"@id": "urn:a", "urn:b": 1}'),
        ("rdfjson", '{"urn:a": {"urn:b": [{"type": "literal", "value": "1"}]}}'),
    ],
)
def test_elements_have_any_format_and_a_time(rooms, form, text):
    done = rooms("streams add", "rooms", "-", "--format", form, "--timestamp", "2020-01-01T00:00:00Z", input=text)
    assert lines(done) == ["1 accepted, 0 late, 0 too late"]


def test_queries_are_listed_shown_paused_and_ended(rooms):
    assert lines(rooms("queries list")) == ["(no queries)"]
    (url,) = lines(rooms("queries put", "urn:warm", QUERY))
    assert url.endswith("/queries/urn%3Awarm")
    header, row = lines(rooms("queries list"))
    assert header.split() == ["query", "state", "reports", "form", "streams"]
    assert row.split() == ["urn:warm", "running", "0", "SELECT", "urn:edge:stream:rooms"]
    shown = lines(rooms("queries show", "urn:warm"))
    assert ["operator", "ISTREAM"] in [line.split() for line in shown]
    assert QUERY.splitlines()[-1] in shown
    assert lines(rooms("queries pause", "urn:warm")) == ["Query urn:warm paused"]
    assert json.loads(rooms("queries show", "urn:warm", "--json").stdout)["state"] == "paused"
    assert lines(rooms("queries restart", "urn:warm")) == ["Query urn:warm restarted"]
    assert lines(rooms("queries observers", "urn:warm")) == ["(no observers)"]
    assert lines(rooms("queries delete", "urn:warm")) == ["Query urn:warm unregistered"]
    assert json.loads(rooms("queries list", "--json").stdout) == []


def test_observers_are_added_listed_and_ended(rooms):
    lines(rooms("queries put", "urn:warm", QUERY))
    callback, target = "http://127.0.0.1:9/reports", "http://127.0.0.1:9/plan"
    (first,) = lines(rooms("queries observers", "urn:warm", "add", callback))
    (second,) = lines(rooms("queries observers", "urn:warm", "add", "--target", target))
    ids = [url.rpartition("/queries/urn%3Awarm/observers/")[2] for url in (first, second)]
    header, *rows = lines(rooms("queries observers", "urn:warm"))
    assert header.split() == ["observer", "to", "has", "failures", "problem"]
    assert sorted(row.split()[:4] for row in rows) == sorted(
        [each, to, "0", "0"] for each, to in zip(ids, (callback, target), strict=True)
    )
    assert len(json.loads(rooms("queries observers", "urn:warm", "--json").stdout)) == 2
    for each, id_ in zip((first, ids[1]), ids, strict=True):
        assert lines(rooms("queries observers", "urn:warm", "end", each)) == [f"Observer {id_} unregistered"]
    assert lines(rooms("queries observers", "urn:warm")) == ["(no observers)"]
    gone = rooms("queries observers", "urn:warm", "end", ids[0])
    assert (gone.returncode, gone.stdout) == (1, "")
    assert f"has no observer {ids[0]}; GET /queries/" in gone.stderr
    assert "`edge queries observers urn:warm`, lists them" in gone.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["add"], 2, "edge queries observers urn:warm add URL"),
        (["end"], 2, "edge queries observers urn:warm end ID"),
        (["end", "x", "--target"], 2, "--target is for `add`"),
        (["add", "http://127.0.0.1:9/", "--json"], 2, "leave it out with `add`"),
        (["remove", "x"], 2, "'add', 'end'"),
        (["add", "ftp://127.0.0.1/"], 1, "is not an http or https URL. Use one such as"),
        (["end", "../x?y"], 1, "has no observer ../x?y"),
        (["add", "/streams/nobody"], 1, "There is no stream urn:edge:stream:nobody; register it first"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else None,
)
def test_changes_of_observers_that_are_refused_have_remedies(rooms, arguments, code, reason):
    lines(rooms("queries put", "urn:warm", QUERY.replace("SELECT ?room ?t", "CONSTRUCT { ?room <urn:is> ?t }")))
    done = rooms("queries observers", "urn:warm", *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert reason in done.stderr


def test_queries_come_from_files_and_errors_have_the_places_of_the_text(rooms, tmp_path):
    file = tmp_path / "warm.rq"
    file.write_text(QUERY)
    lines(rooms("queries put", "urn:warm", f"@{file}"))
    refused = rooms("queries put", "urn:other", "-", input=QUERY.replace("<urn:temperature>", "sosa:hasSimpleResult"))
    assert refused.returncode == 1
    assert 'prefix "sosa:" is not declared (line 3, column 32)' in refused.stderr


def test_reports_are_followed_from_a_number_on(rooms, shared_edge, gateway):
    lines(rooms("queries put", "urn:warm", QUERY))
    first = shared_edge.start("queries", "follow", "urn:warm", "-n", "1", "--data-dir", gateway.data_dir)
    metrics = gateway.endpoints["http"] + "/metrics"
    wait_for(lambda: 'edge_subscriptions{gate="ws"} 1.0' in httpx.get(metrics).text, what="the follower")
    rooms("streams add", "rooms", '<urn:attic> <urn:temperature> "21\\u001B[0m" .')
    output, errors = first.communicate(timeout=DEADLINE)
    assert (first.returncode, errors) == (0, "")
    head, names, rule, row = output.splitlines()
    assert head.startswith("#1  20")
    assert (names.split(), set(rule)) == (["?room", "?t"], {"-", " "})
    assert row.split() == ["<urn:attic>", "21\\x1b[0m"]
    for value in (22, 23):
        rooms("streams add", "rooms", f"<urn:attic> <urn:temperature> {value} .")
    reports = [
        json.loads(line) for line in lines(rooms("queries follow", "urn:warm", "--after", "1", "-n", "2", "--json"))
    ]
    assert [report["number"] for report in reports] == [2, 3]
    assert [report["content"]["results"]["bindings"][0]["t"]["value"] for report in reports] == ["22", "23"]
    assert reports[0]["content_type"] == "application/sparql-results+json"


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["queries", "show", "nobody"], 1, "nobody"),
        (["queries", "put", "x", "SELECT * {}"], 1, "REGISTER"),
        (["queries", "follow", "nobody"], 1, "nobody"),
        (["queries", "follow", "nobody", "--after", "-1"], 2, "--after"),
        (["queries", "follow", "nobody", "--ws", "nonsense"], 2, "nonsense"),
        (["queries", "pause", "nobody"], 1, "nobody"),
        (["streams", "show", "nobody"], 1, "nobody"),
        (["streams", "put", "rooms", "--lateness", "soon"], 1, "lateness"),
        (["streams", "add", "nobody", "<urn:a> <urn:b> 1 ."], 1, "nobody"),
        (["streams", "add", "nobody", "@/none/such"], 2, "cannot be read"),
        (["streams", "list", "--url", "http://127.0.0.1:1"], 3, "reach"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else None,
)
def test_errors_have_reasons_and_exit_codes(run, arguments, code, reason):
    done = run(" ".join(arguments[:2]), *arguments[2:])
    assert (done.returncode, done.stdout) == (code, "")
    assert reason in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["streams list", "queries list", "queries observers x", "queries pause x"])
def test_the_answer_of_another_server_is_refused(run, gateway, command):
    url = gateway.endpoints["http"] + "/health?"  # an address whose answers are JSON, but other ones
    done = run(command, "--url", url)
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr
