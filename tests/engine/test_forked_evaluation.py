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
from scheduler_harness import WAIT, House

from edge.engine.queries.forked_evaluation import ForkedEvaluator, _Pipe
from edge.engine.queries.oxigraph_queries import EvaluationFailed
from edge.engine.requests import Graph, Notification, QueryRequest, Solutions, SubscribeFailed, UpdateRequest
from edge.protocol.errors import (
    EdgeError,
    Forbidden,
    NotReady,
    ParsingFailed,
    RequestTimeout,
    ResultTooLarge,
    TooManyRequests,
)
from edge.protocol.moments import After
from tests.support.waiting import wait_for

ENDLESS = "?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l FILTER(STR(?c) = CONCAT(STR(?f), STR(?i), STR(?l)))"
MIB = 1 << 20

OpenHouse = Callable[..., House]


@pytest.fixture
def house(open_house: OpenHouse) -> Callable[..., House]:
    def furnished(**settings: object) -> House:
        house = open_house(**settings)
        data = " ".join(f'<urn:s{n}> <urn:p> {n} ; <urn:name> "Nämé\\t\\"{n}\\""@de , _:b{n} .' for n in range(1000))
        house.update(f"INSERT DATA {{ {data} }}")
        return house

    return furnished


@pytest.fixture
def apart() -> Iterator[ForkedEvaluator]:
    apart = ForkedEvaluator(64 * MIB)
    yield apart
    apart.close()


def processes() -> set[str]:
    return {pid for file in Path("/proc/self/task").glob("*/children") for pid in file.read_text().split()}


@pytest.fixture
def children() -> Callable[[], set[str]]:
    """Return the child processes that were started since the test began. Earlier tests may have left a JVM."""
    before = processes()
    return lambda: processes() - before


@pytest.fixture
def everything_apart(monkeypatch):
    monkeypatch.setattr("edge.engine.queries.cost_estimate.SURE", 0)


def query(house: House, text: str):
    return house.scheduler.query(QueryRequest(text))


def test_a_query_that_takes_too_long_is_stopped_and_keeps_nobody_waiting(house, children):
    house = house(query_workers=1, query_timeout=3.0)
    endless = [query(house, f"SELECT * {{ {ENDLESS} }} LIMIT {n}") for n in (1, 2)]
    assert query(house, "ASK { <urn:s1> <urn:p> 1 }").result(WAIT) is True
    assert not any(future.done() for future in endless)
    for future in endless:
        with pytest.raises(RequestTimeout, match=r"engine\.query_timeout"):
            future.result(WAIT)
    wait_for(lambda: house.scheduler.pending_queries == 0)
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
def test_a_query_that_takes_too_much_memory_is_stopped(house, children, text):
    house = house(max_query_memory=48 * MIB, query_timeout=WAIT)
    with pytest.raises(ResultTooLarge, match=r"engine\.max_query_memory"):
        query(house, text).result(WAIT)
    assert query(house, "ASK { <urn:s1> <urn:p> 1 }").result(WAIT) is True
    assert not children()


@pytest.mark.parametrize("form", ["SELECT *", "CONSTRUCT { ?s <urn:q> ?o }", "ASK"])
def test_what_is_evaluated_apart_is_answered_as_everything_else(house, form, monkeypatch):
    house = house()
    text = f"{form} {{ ?s <urn:name>|<urn:p> ?o }}"
    near = query(house, text).result(WAIT)
    monkeypatch.setattr("edge.engine.queries.cost_estimate.SURE", 0)
    far = query(house, text).result(WAIT)
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


@pytest.mark.usefixtures("everything_apart")
def test_a_query_apart_sees_what_was_acknowledged(house):
    house = house()
    for number in range(5):
        house.update(f"DELETE WHERE {{ <urn:n> <urn:is> ?o }} ; INSERT DATA {{ <urn:n> <urn:is> {number} }}")
        result = query(house, "SELECT ?o { <urn:n> <urn:is> ?o }").result(WAIT)
        assert isinstance(result, Solutions)
        assert result.rows == ((ox.Literal(number),),)


def test_what_fails_apart_fails_as_everything_else(house):
    house = house(allow_service=True)
    with pytest.raises(EvaluationFailed):
        query(house, "SELECT * { SERVICE <http://127.0.0.1:1/> { ?s ?p ?o } }").result(WAIT)


def test_an_update_that_takes_too_long_is_stopped_and_changes_nothing(house, children):
    house = house(evaluation_timeout=0.5)
    quads = house.scheduler.quads
    slow = f"INSERT {{ ?a <urn:q> ?c }} WHERE {{ {{ SELECT ?a ?c {{ {ENDLESS} }} LIMIT 3 }} }}"
    with pytest.raises(RequestTimeout, match=r"engine\.evaluation_timeout"):
        house.update(slow)
    assert house.scheduler.quads == quads
    assert house.update("INSERT DATA { <urn:a> <urn:b> 1 }")[0].added == 1
    assert not children()


@pytest.mark.usefixtures("everything_apart")
def test_an_update_whose_where_is_evaluated_apart_does_the_same(house):
    house = house()
    where = "SELECT ?s ?o { ?s <urn:name> ?o . ?s <urn:p> ?n FILTER(?n < 500 && ?n != 7) } LIMIT 2000"
    (outcome,) = house.update(f"INSERT {{ ?s <urn:copy> ?o }} WHERE {{ {{ {where} }} }}")
    assert outcome.added == 2 * 499
    assert query(house, "ASK { ?s <urn:copy> ?o FILTER NOT EXISTS { ?s <urn:name> ?o } }").result(WAIT) is False


def test_a_subscription_that_takes_too_long_is_refused(house):
    house = house(evaluation_timeout=0.5)
    with pytest.raises(RequestTimeout, match=r"engine\.evaluation_timeout"):
        house.scheduler.subscribe(QueryRequest(f"SELECT * {{ {ENDLESS} }} LIMIT 1"), lambda _: None).result(WAIT)
    assert house.scheduler.subscriptions == 0


def test_a_subscription_that_begins_to_take_too_long_ends_and_says_so(house):
    house = house(evaluation_timeout=1.0)
    told: list[Notification | SubscribeFailed] = []
    text = "SELECT * { ?s <urn:many> ?a , ?b , ?c , ?d FILTER(?a + ?b + ?c + ?d < 0) } LIMIT 1"
    house.scheduler.subscribe(QueryRequest(text), told.append).result(WAIT)
    many = " , ".join(map(str, range(1000)))
    (outcome,) = house.update(f"INSERT DATA {{ <urn:hub> <urn:many> {many} }}")
    assert outcome.added == 1000
    wait_for(lambda: isinstance(told[-1], SubscribeFailed))
    assert "engine.evaluation_timeout" in told[-1].description


def test_one_client_cannot_fill_the_line_of_those_that_take_long(house):
    house = house(query_workers=1, query_timeout=2.0, max_pending_queries=4)

    def ask(source: str):
        return house.scheduler.query(QueryRequest(f"SELECT * {{ {ENDLESS} }}", source=source))

    flood = [ask("one") for _ in range(10)]
    wait_for(lambda: sum(future.done() for future in flood) == 8)
    other = ask("other")
    with pytest.raises(RequestTimeout):
        other.result(WAIT)
    errors = [type(future.exception(WAIT)) for future in flood]
    assert errors.count(TooManyRequests) == 8


def test_closing_stops_what_is_apart(open_house, children):
    house = open_house()
    house.update(f"INSERT DATA {{ {' '.join(f'<urn:s{n}> <urn:p> {n} .' for n in range(1000))} }}")
    future = query(house, f"SELECT * {{ {ENDLESS} }}")
    wait_for(children)
    assert house.scheduler.close(WAIT)
    with pytest.raises(NotReady):
        future.result(WAIT)
    wait_for(lambda: not children())


def test_closing_gives_an_update_time_and_then_stops_it(open_house, children):
    house = open_house(evaluation_timeout=WAIT)
    house.update(f"INSERT DATA {{ {' '.join(f'<urn:s{n}> <urn:p> {n} .' for n in range(1000))} }}")
    slow = f"INSERT {{ ?a <urn:q> ?c }} WHERE {{ {{ SELECT ?a ?c {{ {ENDLESS} }} LIMIT 3 }} }}"
    future = house.scheduler.update([UpdateRequest(slow)])
    wait_for(children)
    assert house.scheduler.close(4.0)
    with pytest.raises(NotReady):
        future.result(WAIT)
    assert not children()


def test_a_delayed_update_that_is_stopped_by_the_end_is_run_at_the_next_start(children, tmp_path):
    house = House(tmp_path, evaluation_timeout=WAIT)
    house.update(f"INSERT DATA {{ {' '.join(f'<urn:s{n}> <urn:p> {n} .' for n in range(1000))} }}")
    slow = f"INSERT {{ ?a <urn:q> ?c }} WHERE {{ {{ SELECT ?a ?c {{ {ENDLESS} }} LIMIT 3 }} }}"
    house.scheduler.schedule(UpdateRequest(slow), After(1), "slow").result(WAIT)
    wait_for(children)
    assert house.scheduler.close(4.0)
    house = House(tmp_path, evaluation_timeout=0.5)
    wait_for(lambda: house.scheduler.timer("slow").result(WAIT).state != "pending")
    outcome = house.scheduler.timer("slow").result(WAIT)
    assert outcome.state == "failed"
    assert "engine.evaluation_timeout" in str(outcome)
    assert house.scheduler.close(WAIT)


def test_a_child_keeps_no_connection_of_the_gateway_open(apart):
    here, there = socket.socketpair()
    readable, writable = os.pipe()
    child = apart.begin(lambda: os.read(readable, 1), WAIT, "a setting")
    here.close()
    there.settimeout(WAIT)
    assert there.recv(1) == b""
    os.write(writable, b"x")
    with pytest.raises((EdgeError, RuntimeError)):  # it does not inherit the pipe either
        child.result()
    there.close()
    os.close(readable)
    os.close(writable)


def test_a_fault_apart_is_told(apart):
    def divide() -> float:
        return 1 / 0

    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        apart.begin(divide, WAIT, "a setting").result()


def test_where_priorities_may_not_be_changed_all_else_goes_on(apart, monkeypatch):
    def refused(_: int) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "nice", refused)
    assert apart.begin(lambda: 7, WAIT, "a setting").result() == 7


def test_a_child_that_dies_is_told_as_too_much_memory(apart):
    with pytest.raises(ResultTooLarge):
        apart.begin(os.abort, WAIT, "a setting").result()


def test_a_large_result_is_read_in_pieces(apart, monkeypatch):
    """A read of a large piece would hold the GIL."""
    sizes: list[int] = []
    read = _Pipe.read

    def noted(pipe: _Pipe, size: int) -> bytes:
        sizes.append(size)
        return read(pipe, size)

    monkeypatch.setattr(_Pipe, "read", noted)
    rows = [(number, str(number)) for number in range(100_000)]
    assert apart.begin(lambda: rows, WAIT, "a setting").result() == rows
    assert max(sizes) < 2 * 65_536
    text = b"x" * 10 * MIB
    assert apart.begin(lambda: (text, text[1:]), WAIT, "a setting").result() == (text, text[1:])


def test_a_child_that_dies_while_it_writes_is_told_as_too_much_memory(apart):
    child = apart.begin(lambda: b"x" * 10 * MIB, WAIT, "a setting")
    os.kill(child._pid, signal.SIGKILL)
    with pytest.raises(ResultTooLarge):
        child.result()


def test_an_update_waits_for_no_query(house, children):
    house = house(query_timeout=2.0)
    endless = query(house, f"SELECT * {{ {ENDLESS} }}")
    wait_for(children)
    house.scheduler.update([UpdateRequest("INSERT DATA { <urn:a> <urn:b> 1 }")]).result(WAIT)
    assert not endless.done()
    with pytest.raises(RequestTimeout):
        endless.result(WAIT)


def test_a_long_text_is_checked_where_no_short_query_waits_for_it(house, monkeypatch):
    house = house(query_workers=1)
    queries = house.scheduler._engine.queries
    checking, go_on = threading.Event(), threading.Event()

    def check(request: QueryRequest, *arguments, run_apart=queries.run_apart):
        checking.set()
        assert go_on.wait(WAIT)
        return run_apart(request, *arguments)

    monkeypatch.setattr(queries, "run_apart", check)
    long = query(house, f"SELECT ?x {{ VALUES ?x {{ {' '.join(map(str, range(10_000)))} }} }}")
    assert checking.wait(WAIT)
    assert query(house, "ASK { }").result(WAIT) is True
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
def test_a_long_text_is_refused_like_a_short_one(house, text, error):
    house = house()
    errors = []
    for padding in ("", f"#{'x' * 20_000}"):
        with pytest.raises(error) as raised:
            query(house, f"{text}\n{padding}").result(WAIT)
        errors.append(raised.value.to_json())
    assert errors[0] == errors[1]
