"""Forked evaluation: queries that take too long are ended, with all their resources."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyoxigraph as ox
import pytest
from scheduler_harness import WAIT, Harness

from edge.engine.queries.forked_evaluation import ForkedEvaluator, _Pipe
from edge.engine.queries.oxigraph_queries import EvaluationFailed
from edge.engine.requests import Graph, QueryRequest, Solutions, SubscribeFailed, SubscriberNotification, UpdateRequest
from edge.protocol.due_time import After
from edge.protocol.errors import (
    EdgeError,
    Forbidden,
    NotReady,
    ParsingFailed,
    RequestTimeout,
    ResultTooLarge,
    TooManyRequests,
)
from tests.support.waiting import wait_for

ENDLESS = "?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l FILTER(STR(?c) = CONCAT(STR(?f), STR(?i), STR(?l)))"
MIB = 1 << 20

OpenHarness = Callable[..., Harness]


@pytest.fixture
def harness(open_harness: OpenHarness) -> Callable[..., Harness]:
    def furnished(**settings: object) -> Harness:
        harness = open_harness(**settings)
        data = " ".join(f'<urn:s{n}> <urn:p> {n} ; <urn:name> "Nämé\\t\\"{n}\\""@de , _:b{n} .' for n in range(1000))
        harness.update(f"INSERT DATA {{ {data} }}")
        return harness

    return furnished


@pytest.fixture
def evaluator() -> Iterator[ForkedEvaluator]:
    evaluator = ForkedEvaluator(64 * MIB)
    yield evaluator
    evaluator.close()


def processes() -> set[str]:
    return {pid for file in Path("/proc/self/task").glob("*/children") for pid in file.read_text().split()}


@pytest.fixture
def children() -> Callable[[], set[str]]:
    """Return the child processes that were started since the test began. Earlier tests may have left a JVM."""
    before = processes()
    return lambda: processes() - before


@pytest.fixture
def all_forked(monkeypatch):
    monkeypatch.setattr("edge.engine.queries.cost_estimate.SURE", 0)


def query(harness: Harness, text: str):
    return harness.scheduler.query(QueryRequest(text))


def test_a_query_that_takes_too_long_is_stopped_and_delays_no_other(harness, children):
    harness = harness(query_workers=1, query_timeout=3.0)
    endless = [query(harness, f"SELECT * {{ {ENDLESS} }} LIMIT {n}") for n in (1, 2)]
    assert query(harness, "ASK { <urn:s1> <urn:p> 1 }").result(WAIT) is True
    assert not any(future.done() for future in endless)
    for future in endless:
        with pytest.raises(RequestTimeout, match=r"engine\.query_timeout"):
            future.result(WAIT)
    wait_for(lambda: harness.scheduler.pending_queries == 0)
    assert not children()


# A child can reuse memory that its parent has freed: hundreds of MB in a test process. So each row
# is large; with small rows a busy machine reached the limit only after minutes.
WIDE = f'?a ?b ?c . ?d ?e ?f BIND(CONCAT("{"x" * 10_000}", STR(?a), STR(?d)) AS ?wide)'


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT * {{ {WIDE} }} ORDER BY ?c ?f",
        f"SELECT DISTINCT * {{ {WIDE} }} ORDER BY ?c",
        f"SELECT ?a ?d (COUNT(*) AS ?n) (SAMPLE(?wide) AS ?s) {{ {WIDE} }} GROUP BY ?a ?d ?c ?f",
        'SELECT * { BIND("aaaaaaaa" AS ?v0) '
        + " ".join(f"BIND(CONCAT(?v{n}, ?v{n}) AS ?v{n + 1})" for n in range(40))
        + " }",
        f"SELECT (GROUP_CONCAT(?wide) AS ?x) {{ {WIDE} }}",
    ],
    ids=["sorted", "distinct", "grouped", "doubled", "concatenated"],
)
def test_a_query_that_takes_too_much_memory_is_stopped(harness, children, text):
    harness = harness(max_query_memory=48 * MIB, query_timeout=WAIT)
    with pytest.raises(ResultTooLarge, match=r"engine\.max_query_memory"):
        query(harness, text).result(WAIT)
    assert query(harness, "ASK { <urn:s1> <urn:p> 1 }").result(WAIT) is True
    assert not children()


@pytest.mark.parametrize("form", ["SELECT *", "CONSTRUCT { ?s <urn:q> ?o }", "ASK"])
def test_a_forked_query_gives_the_same_answer(harness, form, monkeypatch):
    harness = harness()
    text = f"{form} {{ ?s <urn:name>|<urn:p> ?o }}"
    near = query(harness, text).result(WAIT)
    monkeypatch.setattr("edge.engine.queries.cost_estimate.SURE", 0)
    far = query(harness, text).result(WAIT)
    if isinstance(near, Solutions):
        assert isinstance(far, Solutions)
        assert far.variables == near.variables
        assert set(far.rows) == set(near.rows)
        assert len(far.rows) == len(near.rows) == 3000
    elif isinstance(near, Graph):
        assert isinstance(far, Graph)
        assert set(far.triples) == set(near.triples)
    else:
        assert far is near is True


@pytest.mark.usefixtures("all_forked")
def test_a_forked_query_sees_acknowledged_updates(harness):
    harness = harness()
    for number in range(5):
        harness.update(f"DELETE WHERE {{ <urn:n> <urn:is> ?o }} ; INSERT DATA {{ <urn:n> <urn:is> {number} }}")
        result = query(harness, "SELECT ?o { <urn:n> <urn:is> ?o }").result(WAIT)
        assert isinstance(result, Solutions)
        assert result.rows == ((ox.Literal(number),),)


def test_a_forked_query_fails_with_the_same_error(harness):
    harness = harness(allow_service=True)
    with pytest.raises(EvaluationFailed):
        query(harness, "SELECT * { SERVICE <http://127.0.0.1:1/> { ?s ?p ?o } }").result(WAIT)


def test_an_update_that_takes_too_long_is_stopped_and_changes_nothing(harness, children):
    harness = harness(query_timeout=1.5)
    quads = harness.scheduler.quads
    slow = f"INSERT {{ ?a <urn:q> ?c }} WHERE {{ {{ SELECT ?a ?c {{ {ENDLESS} }} LIMIT 3 }} }}"
    with pytest.raises(RequestTimeout, match=r"a third of engine\.query_timeout"):
        harness.update(slow)
    assert harness.scheduler.quads == quads
    assert harness.update("INSERT DATA { <urn:a> <urn:b> 1 }")[0].added == 1
    assert not children()


@pytest.mark.usefixtures("all_forked")
def test_an_update_with_a_forked_where_has_the_same_effect(harness):
    harness = harness()
    where = "SELECT ?s ?o { ?s <urn:name> ?o . ?s <urn:p> ?n FILTER(?n < 500 && ?n != 7) } LIMIT 2000"
    (outcome,) = harness.update(f"INSERT {{ ?s <urn:copy> ?o }} WHERE {{ {{ {where} }} }}")
    assert outcome.added == 2 * 499
    assert query(harness, "ASK { ?s <urn:copy> ?o FILTER NOT EXISTS { ?s <urn:name> ?o } }").result(WAIT) is False


def test_a_subscription_that_takes_too_long_is_refused(harness):
    harness = harness(query_timeout=1.5)
    with pytest.raises(RequestTimeout, match=r"a third of engine\.query_timeout"):
        harness.scheduler.subscribe(QueryRequest(f"SELECT * {{ {ENDLESS} }} LIMIT 1"), lambda _: None).result(WAIT)
    assert harness.scheduler.subscriptions == 0


def test_a_subscription_that_becomes_too_expensive_ends_with_the_reason(harness):
    harness = harness(query_timeout=3.0)
    received: list[SubscriberNotification | SubscribeFailed] = []
    text = "SELECT * { ?s <urn:many> ?a , ?b , ?c , ?d FILTER(?a + ?b + ?c + ?d < 0) } LIMIT 1"
    harness.scheduler.subscribe(QueryRequest(text), received.append).result(WAIT)
    many = " , ".join(map(str, range(1000)))
    (outcome,) = harness.update(f"INSERT DATA {{ <urn:hub> <urn:many> {many} }}")
    assert outcome.added == 1000
    wait_for(lambda: isinstance(received[-1], SubscribeFailed))
    assert "a third of engine.query_timeout" in received[-1].description


def test_one_client_cannot_fill_the_queue_of_long_queries(harness):
    harness = harness(query_workers=1, query_timeout=2.0, max_pending_queries=4)

    def ask(source: str):
        return harness.scheduler.query(QueryRequest(f"SELECT * {{ {ENDLESS} }}", source=source))

    flood = [ask("one") for _ in range(10)]
    wait_for(lambda: sum(future.done() for future in flood) == 8)
    other = ask("other")
    with pytest.raises(RequestTimeout):
        other.result(WAIT)
    errors = [type(future.exception(WAIT)) for future in flood]
    assert errors.count(TooManyRequests) == 8


def test_closing_stops_forked_evaluations(open_harness, children):
    harness = open_harness()
    harness.update(f"INSERT DATA {{ {' '.join(f'<urn:s{n}> <urn:p> {n} .' for n in range(1000))} }}")
    future = query(harness, f"SELECT * {{ {ENDLESS} }}")
    wait_for(children)
    assert harness.scheduler.close(WAIT)
    with pytest.raises(NotReady):
        future.result(WAIT)
    wait_for(lambda: not children())


def test_closing_gives_an_update_time_and_then_stops_it(open_harness, children):
    harness = open_harness(query_timeout=3 * WAIT)
    harness.update(f"INSERT DATA {{ {' '.join(f'<urn:s{n}> <urn:p> {n} .' for n in range(1000))} }}")
    slow = f"INSERT {{ ?a <urn:q> ?c }} WHERE {{ {{ SELECT ?a ?c {{ {ENDLESS} }} LIMIT 3 }} }}"
    future = harness.scheduler.update([UpdateRequest(slow)])
    wait_for(children)
    assert harness.scheduler.close(4.0)
    with pytest.raises(NotReady):
        future.result(WAIT)
    assert not children()


def test_a_delayed_update_that_is_stopped_by_the_end_is_run_at_the_next_start(children, tmp_path):
    harness = Harness(tmp_path, query_timeout=3 * WAIT)
    harness.update(f"INSERT DATA {{ {' '.join(f'<urn:s{n}> <urn:p> {n} .' for n in range(1000))} }}")
    slow = f"INSERT {{ ?a <urn:q> ?c }} WHERE {{ {{ SELECT ?a ?c {{ {ENDLESS} }} LIMIT 3 }} }}"
    harness.scheduler.schedule(UpdateRequest(slow), After(1), "slow").result(WAIT)
    wait_for(children)
    assert harness.scheduler.close(4.0)
    harness = Harness(tmp_path, query_timeout=1.5)
    wait_for(lambda: harness.scheduler.timer("slow").result(WAIT).state != "pending")
    outcome = harness.scheduler.timer("slow").result(WAIT)
    assert outcome.state == "failed"
    assert "a third of engine.query_timeout" in str(outcome)
    assert harness.scheduler.close(WAIT)


def test_a_child_keeps_no_connection_of_the_gateway_open(evaluator):
    here, there = socket.socketpair()
    readable, writable = os.pipe()
    child = evaluator.begin(lambda: os.read(readable, 1), WAIT, "a setting")
    here.close()
    there.settimeout(WAIT)
    assert there.recv(1) == b""
    os.write(writable, b"x")
    with pytest.raises((EdgeError, RuntimeError)):  # it does not inherit the pipe either
        child.result()
    there.close()
    os.close(readable)
    os.close(writable)


def test_an_exception_in_a_forked_process_is_raised(evaluator):
    def divide() -> float:
        return 1 / 0

    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        evaluator.begin(divide, WAIT, "a setting").result()


def test_a_refused_priority_change_is_ignored(evaluator, monkeypatch):
    def refused(_: int) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "nice", refused)
    assert evaluator.begin(lambda: 7, WAIT, "a setting").result() == 7


def test_a_child_that_dies_is_reported_as_too_much_memory(evaluator):
    with pytest.raises(ResultTooLarge):
        evaluator.begin(os.abort, WAIT, "a setting").result()


def test_a_large_result_is_read_in_pieces(evaluator, monkeypatch):
    """A read of a large piece would hold the GIL."""
    sizes: list[int] = []
    read = _Pipe.read

    def noted(pipe: _Pipe, size: int) -> bytes:
        sizes.append(size)
        return read(pipe, size)

    monkeypatch.setattr(_Pipe, "read", noted)
    rows = [(number, str(number)) for number in range(100_000)]
    assert evaluator.begin(lambda: rows, WAIT, "a setting").result() == rows
    assert max(sizes) < 2 * 65_536
    text = b"x" * 10 * MIB
    assert evaluator.begin(lambda: (text, text[1:]), WAIT, "a setting").result() == (text, text[1:])


def test_a_child_that_dies_while_writing_is_reported_as_too_much_memory(evaluator):
    child = evaluator.begin(lambda: b"x" * 10 * MIB, WAIT, "a setting")
    os.kill(child._pid, signal.SIGKILL)
    with pytest.raises(ResultTooLarge):
        child.result()


def test_an_update_waits_for_no_query(harness, children):
    harness = harness(query_timeout=2.0)
    endless = query(harness, f"SELECT * {{ {ENDLESS} }}")
    wait_for(children)
    harness.scheduler.update([UpdateRequest("INSERT DATA { <urn:a> <urn:b> 1 }")]).result(WAIT)
    assert not endless.done()
    with pytest.raises(RequestTimeout):
        endless.result(WAIT)


def test_checking_a_long_text_delays_no_short_query(harness, monkeypatch):
    harness = harness(query_workers=1)
    queries = harness.scheduler._engine.queries
    checking, go_on = threading.Event(), threading.Event()

    def check(request: QueryRequest, *arguments, run_forked=queries.run_forked):
        checking.set()
        assert go_on.wait(WAIT)
        return run_forked(request, *arguments)

    monkeypatch.setattr(queries, "run_forked", check)
    long = query(harness, f"SELECT ?x {{ VALUES ?x {{ {' '.join(map(str, range(10_000)))} }} }}")
    assert checking.wait(WAIT)
    assert query(harness, "ASK { }").result(WAIT) is True
    go_on.set()
    assert len(long.result(WAIT).rows) == 10_000


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("SELECT ?x { ?x ?x }", ParsingFailed),
        ("INSERT DATA { <urn:a> <urn:b> 1 }", ParsingFailed),
        ("SELECT ?x { SERVICE <urn:x> { ?x ?y ?z } }", Forbidden),
    ],
)
def test_a_long_text_is_refused_like_a_short_one(harness, text, error):
    harness = harness()
    errors = []
    for padding in ("", f"#{'x' * 20_000}"):
        with pytest.raises(error) as raised:
            query(harness, f"{text}\n{padding}").result(WAIT)
        errors.append(raised.value.to_json())
    assert errors[0] == errors[1]
