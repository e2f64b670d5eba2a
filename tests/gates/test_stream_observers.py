"""Observers of continuous queries: reports at callback URLs, streams of this gateway as observers, and restarts."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

import pytest

from tests.support.callback_server import callback_server
from tests.support.stream_client import FORM, StreamGateway, path_of
from tests.support.waiting import wait_for

WINDOW = "[RANGE 100ms STEP 100ms]"
ELEMENT = "<urn:a> <urn:p> 'one'"


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    gateway = StreamGateway(tmp_path_factory.mktemp("observers"))
    yield gateway
    gateway.close()


@pytest.fixture
def gateway(running):
    yield running
    running.end_all()


@pytest.fixture
def callbacks():
    with callback_server() as server:
        yield server


def query(name: str, form: str, stream: str = "s", kind: str = "QUERY", window: str = WINDOW) -> str:
    return f"REGISTER {kind} {name} AS {form} FROM STREAM <urn:edge:stream:{stream}> {window} {{ ?s <urn:p> ?o }}"


def copy(name: str, stream: str, predicate: str = "urn:p") -> str:
    return query(name, f"CONSTRUCT {{ ?s <{predicate}> ?o }}", stream, "STREAM")


def has_rows(report) -> bool:
    return bool(report.rows)


def test_an_observer_of_select_gets_json_results_and_numbers(gateway, callbacks):
    gateway.stream("s")
    address = gateway.query("q", query("q", "SELECT ?s ?o"))
    observer = gateway.observe("q", callbacks.url("/select?key=1"))
    assert observer.startswith(f"{address}/observers/")
    gateway.add("s", ELEMENT)
    report = callbacks.wait_for("/select?key=1", has_rows)
    assert report.rows == [{"s": "urn:a", "o": "one"}]
    assert report.headers["content-type"] == "application/sparql-results+json"
    assert report.headers["report-query"] == '"q"'
    callbacks.wait_for("/select?key=1", lambda each: each.number > report.number)
    numbers = [each.number for each in callbacks.received("/select?key=1")]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def test_the_description_of_an_observer_is_a_json_string_with_json(gateway, callbacks):
    gateway.stream("s")
    gateway.query("q", query("q", "SELECT ?s ?o"))
    observer = gateway.observe("q", callbacks.url("/described"))
    text = gateway.ok("GET", observer)
    assert isinstance(text, str)
    described = json.loads(text)
    (listed,) = gateway.ok("GET", "/queries/q/observers")
    assert described["id"] == listed["id"] == observer.rpartition("/")[2]
    assert described["callback"] == callbacks.url("/described")


def test_an_observer_of_ask_gets_each_answer(gateway, callbacks):
    gateway.stream("s")
    gateway.query("q", query("q", "ASK"))
    gateway.observe("q", callbacks.url("/ask"))
    callbacks.wait_for("/ask", lambda report: json.loads(report.body)["boolean"] is False)
    gateway.add("s", ELEMENT)
    callbacks.wait_for("/ask", lambda report: json.loads(report.body)["boolean"] is True)


def test_an_observer_of_construct_gets_n_triples_and_can_take_them_from_the_stream(gateway, callbacks):
    gateway.stream("s")
    gateway.query("made", copy("made", "s"))
    gateway.observe("made", callbacks.url("/construct"))
    gateway.query("reader", query("reader", "SELECT ?s ?o", "made"))
    gateway.observe("reader", callbacks.url("/reader"))
    gateway.add("s", ELEMENT)
    report = callbacks.wait_for("/construct", lambda each: each.body)
    assert report.headers["content-type"] == "application/n-triples"
    assert report.body == b'<urn:a> <urn:p> "one" .\n'
    assert callbacks.wait_for("/reader", has_rows).rows == [{"s": "urn:a", "o": "one"}]


def test_rsp_ql_istream_reports_additions_only(gateway, callbacks):
    gateway.stream("s")
    text = (
        "REGISTER ISTREAM <urn:added> AS SELECT ?o "
        "FROM NAMED WINDOW <urn:w> ON <urn:edge:stream:s> [RANGE PT0.1S STEP PT0.1S] "
        "WHERE { WINDOW <urn:w> { ?s <urn:p> ?o } }"
    )
    gateway.ok("PUT", path_of("queries", "urn:added"), text)
    gateway.observe("urn:added", callbacks.url("/added"))
    gateway.add("s", "<urn:a> <urn:p> 'one'")
    callbacks.wait_for("/added", lambda each: each.rows == [{"o": "one"}])
    gateway.add("s", "<urn:a> <urn:p> 'two'")
    callbacks.wait_for("/added", lambda each: each.rows == [{"o": "two"}])
    assert [each.number for each in callbacks.received("/added")] == [1, 2]


def test_a_paused_query_makes_no_reports_until_it_is_restarted(gateway, callbacks):
    gateway.stream("s")
    for name in ("q", "other"):
        gateway.query(name, query(name, "SELECT ?o"))
    gateway.observe("q", callbacks.url("/paused"))
    gateway.observe("other", callbacks.url("/running"))
    callbacks.wait_for("/paused")
    gateway.ok("POST", "/queries/q", "action=pause", FORM)
    number = gateway.ok("GET", "/queries/q")["reports"]
    first = gateway.ok("GET", "/queries/other")["reports"]
    callbacks.wait_for("/running", lambda each: each.number > first + 2)
    assert gateway.ok("GET", "/queries/q")["reports"] == number
    gateway.ok("POST", "/queries/q", "action=restart", FORM)
    callbacks.wait_for("/paused", lambda each: each.number == number + 1)


def test_the_end_of_an_observer_or_a_query_ends_the_reports(gateway, callbacks):
    gateway.stream("s")
    for name in ("ended", "other"):
        gateway.query(name, query(name, "SELECT ?o"))
    observer = gateway.observe("ended", callbacks.url("/first"))
    gateway.observe("ended", callbacks.url("/second"))
    gateway.observe("other", callbacks.url("/other"))
    callbacks.wait_for("/first")
    gateway.ok("DELETE", observer)
    assert gateway.fails("GET", observer)[0] == gateway.fails("DELETE", observer)[0] == 404
    assert [each["callback"] for each in gateway.ok("GET", "/queries/ended/observers")] == [callbacks.url("/second")]
    gateway.ok("DELETE", "/queries/ended")
    assert gateway.fails("GET", "/queries/ended/observers")[0] == 404
    # A report that was under way may still come, and none after it.
    now = gateway.ok("GET", "/queries/other")["reports"]
    callbacks.wait_for("/other", lambda each: each.number > now + 2)
    counts = [len(callbacks.received(path)) for path in ("/first", "/second")]
    callbacks.wait_for("/other", lambda each: each.number > now + 4)
    assert [len(callbacks.received(path)) for path in ("/first", "/second")] == counts


@pytest.mark.parametrize("how", ["url", "other host name", "path"])
def test_a_stream_of_this_gateway_is_an_observer(gateway, callbacks, how):
    for stream in ("s", "target"):
        gateway.stream(stream)
    gateway.query("made", copy("made", "s"))
    path = "/streams/target"
    url = {"url": f"{gateway.http.base_url}{path}", "other host name": f"http://localhost:9{path}", "path": path}[how]
    headers = {"Host": "localhost:9"} if how == "other host name" else {}
    answer = gateway.http.post("/queries/made", content=url, headers={"Content-Type": "text/plain", **headers})
    assert answer.status_code == 200, answer.text
    assert [each["callback"] for each in gateway.ok("GET", "/queries/made/observers")] == [path]
    gateway.query("reader", query("reader", "SELECT ?s ?o", "target"))
    gateway.observe("reader", callbacks.url("/target"))
    gateway.add("s", ELEMENT)
    assert callbacks.wait_for("/target", has_rows).rows == [{"s": "urn:a", "o": "one"}]


def test_streams_that_would_feed_themselves_are_refused(gateway):
    for stream in ("one", "two"):
        gateway.stream(stream)
    gateway.query("first", copy("first", "one"))
    gateway.query("second", copy("second", "two"))
    refused = (400, "The query would read its own results, by the stream urn:edge:stream:one")
    assert gateway.fails("POST", "/queries/first", "/streams/one", "text/plain") == refused
    ended = gateway.observe("first", "/streams/two")
    assert gateway.fails("POST", "/queries/second", "/streams/one", "text/plain") == refused
    gateway.ok("DELETE", ended)
    gateway.observe("second", "/streams/one")
    assert gateway.fails("POST", "/queries/first", "/streams/two", "text/plain")[0] == 400
    assert gateway.fails("POST", "/queries/first", "/streams/second", "text/plain")[0] == 400


def test_a_late_element_corrects_the_report_that_lacks_it(gateway, callbacks):
    gateway.ok("PUT", "/streams/s?lateness=PT1M")
    gateway.query("q", query("q", "SELECT ?o"))
    gateway.query("made", copy("made", "s"))
    for name in ("q", "made"):
        gateway.observe(name, callbacks.url(f"/late-{name}"))
    missed = callbacks.wait_for("/late-q", lambda each: each.number > 2)
    time = datetime.fromisoformat(missed.headers["report-time"])
    late = (time - timedelta(milliseconds=50)).isoformat()
    assert gateway.add("s", ELEMENT, timestamp=late) == "1 accepted, 1 late, 0 too late"
    correction = callbacks.wait_for("/late-q", lambda each: "report-correction" in each.headers)
    assert (correction.headers["report-correction"], correction.headers["report-time"]) == (
        "?1",
        missed.headers["report-time"],
    )
    assert correction.number > missed.number
    assert correction.rows == [{"o": "one"}]
    assert json.loads(correction.body)["removed"] == {"bindings": []}
    made = callbacks.wait_for("/late-made", lambda each: "report-correction" in each.headers)
    assert made.headers["content-type"] == "application/n-quads"
    assert made.body == b'<urn:a> <urn:p> "one" .\n'
    old = (time - timedelta(hours=1)).isoformat()
    assert gateway.add("s", ELEMENT, timestamp=old) == "1 accepted, 0 late, 0 too late"


def test_a_restart_keeps_streams_queries_observers_and_numbers(tmp_path, callbacks):
    gateway = StreamGateway(tmp_path / "data")
    try:
        for stream in ("one", "two"):
            gateway.stream(stream)
        gateway.query("q", query("q", "SELECT ?o", "two", window="[LANDMARK '2026-01-01T00:00:00Z' STEP 100ms]"))
        gateway.query("first", copy("first", "one"))
        gateway.query("second", copy("second", "two"))
        gateway.query("idle", query("idle", "SELECT ?o", "one"))
        gateway.ok("POST", "/queries/idle", "action=pause", FORM)
        observer = gateway.observe("q", callbacks.url("/q"))
        gateway.observe("first", f"{gateway.http.base_url}/streams/two")
        gateway.add("one", ELEMENT)
        before = callbacks.wait_for("/q", has_rows)
        identity = observer.rpartition("/")[2]
        gateway.restart()
        # On another port; the observer that is a stream feeds it as before.
        assert [each["name"] for each in gateway.ok("GET", "/queries")] == ["q", "first", "second", "idle"]
        assert gateway.ok("GET", "/queries/idle")["state"] == "paused"
        assert [each["id"] for each in gateway.ok("GET", "/queries/q/observers")] == [identity]
        assert gateway.fails("POST", "/queries/second", "/streams/one", "text/plain")[0] == 400
        gateway.add("one", "<urn:a> <urn:p> 'two'")
        after = callbacks.wait_for("/q", lambda each: {"o": "two"} in each.rows)
        assert {"o": "one"} in after.rows
        assert after.number > before.number
        numbers = list(dict.fromkeys(each.number for each in callbacks.received("/q")))
        merged = {each.number: int(each.headers["report-merged"]) for each in callbacks.received("/q")}
        assert sum(merged.values()) == numbers[-1] - numbers[0] + merged[numbers[0]]
        gateway.ok("DELETE", f"/queries/q/observers/{identity}")
        wait_for(lambda: gateway.ok("GET", "/queries/q/observers") == [], "the end of the observer")
    finally:
        gateway.close()
