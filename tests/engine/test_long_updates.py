"""Updates that are evaluated outside the writer take effect in queue order and do not block others."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Iterable

import pyoxigraph as ox
import pytest
from fake_clock import FakeClock
from scheduler_harness import WAIT, Harness, insert

from edge.engine import engine
from edge.engine.journal.journal import Journal
from edge.engine.queries.forked_evaluation import Child, ForkedEvaluator
from edge.engine.requests import QueryRequest, Solutions, UpdateRequest
from edge.engine.scheduling.scheduler import Scheduler
from edge.engine.settings import EngineSettings
from edge.engine.start import make_engine, open_engine
from edge.engine.updates import update_attempt
from edge.protocol.access import ANYBODY, Access
from edge.protocol.due_time import After
from edge.protocol.errors import Forbidden, NotReady, RequestTimeout, ResultTooLarge, StorageFailed, UpdateConflict
from tests.support.settings import unchecked
from tests.support.waiting import wait_for

NODES = 300
SEED = "INSERT DATA { " + " . ".join(f"<a:n{n}> <a:n> {n}" for n in range(NODES)) + " }"
SLOW = "INSERT { ?a <a:found> ?b } WHERE { ?a <a:n> ?x . ?b <a:n> ?y FILTER(?x + ?y = 7) }"
"""About 200,000 steps, eight solutions."""
MEDIUM = "INSERT { ?a <a:found> ?b } WHERE { ?a <a:n> ?x FILTER(?x < 30) ?b <a:n> ?y FILTER(?x + ?y = 7) }"
"""About 20,000 steps, and the same solutions."""
GENERAL = "INSERT { ?a <a:found> ?b } WHERE { ?a <a:n>+ ?x . ?b (<a:n>|<a:m>)+ ?y . ?b <a:n> ?y FILTER(?x + ?y = 7) }"


class Outside:
    """Holds back the results of forked processes, and counts them."""

    def __init__(self, monkeypatch) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.begun = 0
        self.held = 0
        """Results that wait at the barrier, or have passed it."""
        self.pids: list[int] = []
        begin, result, outside = ForkedEvaluator.begin, Child.result, self

        def noted(self, action, seconds, setting):
            child = begin(self, action, seconds, setting)
            outside.begun += 1
            outside.pids.append(child._pid)
            return child

        def held(self):
            gate = outside.gate
            outside.held += 1
            assert gate.wait(WAIT)
            return result(self)

        monkeypatch.setattr(ForkedEvaluator, "begin", noted)
        monkeypatch.setattr(Child, "result", held)


@pytest.fixture
def outside(monkeypatch) -> Outside:
    return Outside(monkeypatch)


def send(harness: Harness, source: str, *texts: str):
    return harness.scheduler.update([UpdateRequest(text, source=source) for text in texts])


def rows(harness: Harness, text: str = "SELECT ?a ?b { ?a <a:found> ?b }") -> int:
    result = harness.scheduler.query(QueryRequest(text)).result(WAIT)
    assert isinstance(result, Solutions)
    return len(result.rows)


@pytest.mark.parametrize("text", [SLOW, GENERAL], ids=["steps", "as a whole"])
def test_a_long_update_delays_only_later_requests_of_its_client(open_harness, outside, text):
    harness = open_harness()
    harness.update(SEED)
    outside.gate.clear()
    slow = send(harness, "slow", text)
    after = send(
        harness, "slow", "INSERT { <a:s> <a:count> ?n } WHERE { { SELECT (COUNT(*) AS ?n) { ?a <a:found> ?b } } }"
    )
    wait_for(lambda: outside.begun == 1)
    assert send(harness, "other", insert(1)).result(WAIT)[0].added == 1
    assert not slow.done()
    assert not after.done()
    outside.gate.set()
    assert slow.result(WAIT)[0].added == 8
    after.result(WAIT)
    assert rows(harness, "SELECT ?n { ?s <a:count> ?n FILTER(?n = 8) }") == 1
    assert outside.begun == 1


def test_a_long_update_is_repeated_if_its_data_changed(open_harness, outside):
    """The update is evaluated again and sees the change. Unrelated changes do not matter."""
    harness = open_harness()
    harness.update(SEED)
    outside.gate.clear()
    slow = send(harness, "slow", SLOW)
    wait_for(lambda: outside.begun == 1)
    send(harness, "other", insert(1)).result(WAIT)
    send(harness, "other", "DELETE DATA { <a:n0> <a:n> 0 }").result(WAIT)
    outside.gate.set()
    assert slow.result(WAIT)[0].added == 6
    assert outside.begun == 2


WITHIN = "INSERT { ?a <a:found> ?b } WHERE { GRAPH <g:to> { ?a <a:n> ?x . ?b <a:n> ?y FILTER(?x + ?y = 7) } }"


@pytest.mark.parametrize(
    ("operations", "added", "found"),
    [
        (f"DROP NAMED ; {SLOW}", "<urn:v> <urn:p> 1", 8),
        (f"CLEAR GRAPH <g:other> ; {SLOW}", "GRAPH <g:other> { <urn:v> <a:n> 1 }", 8),
        (f"COPY DEFAULT TO <g:to> ; {WITHIN}", "<urn:v> <urn:p> 1", 8),
        (f"COPY DEFAULT TO <g:to> ; {WITHIN}", "GRAPH <g:other> { <urn:v> <a:n> 7 }", 8),
    ],
)
def test_graph_operations_read_only_the_data_of_a_later_where(open_harness, outside, operations, added, found):
    harness = open_harness()
    harness.update(SEED + " ; INSERT DATA { GRAPH <g:other> { <urn:x> <urn:y> 1 } GRAPH <g:to> { <urn:x> <urn:y> 1 } }")
    outside.gate.clear()
    slow = send(harness, "slow", operations)
    wait_for(lambda: outside.held == 1)
    send(harness, "other", f"INSERT DATA {{ {added} }}").result(WAIT)
    outside.gate.set()
    slow.result(WAIT)
    assert outside.begun == 1
    assert rows(harness) == found


@pytest.mark.parametrize("way", ["COPY DEFAULT TO <g:to>", "COPY DEFAULT TO <g:by> ; ADD <g:by> TO <g:to>"])
def test_a_where_after_a_copy_reads_the_source_of_the_copy(open_harness, outside, way):
    harness = open_harness()
    harness.update(SEED)
    outside.gate.clear()
    slow = send(harness, "slow", f"{way} ; {WITHIN}")
    wait_for(lambda: outside.held == 1)
    send(harness, "other", "DELETE DATA { <a:n0> <a:n> 0 }").result(WAIT)
    outside.gate.set()
    slow.result(WAIT)
    assert outside.begun == 2
    assert rows(harness) == 6


def test_a_long_update_with_constantly_changing_data_is_refused(open_harness, outside, monkeypatch):
    harness = open_harness()
    harness.update(SEED)
    outside.gate.clear()
    slow = send(harness, "slow", SLOW)
    for number in range(update_attempt.MOST_TRIES):
        wait_for(lambda number=number: outside.held == number + 1)
        send(harness, "other", f"INSERT DATA {{ <a:n0> <a:n> {1000 + number} }}").result(WAIT)
        gate, outside.gate = outside.gate, threading.Event()
        gate.set()
    with pytest.raises(UpdateConflict, match="narrow its WHERE"):
        slow.result(WAIT)
    outside.gate.set()
    assert rows(harness) == 0
    assert send(harness, "slow", SLOW).result(WAIT)[0].added == 8


def test_a_medium_update_with_constantly_changing_data_is_executed(open_harness, outside):
    """In the end it is evaluated on the writer, where no change can interleave."""
    harness = open_harness()
    harness.update(SEED)
    outside.gate.clear()
    medium = send(harness, "slow", MEDIUM)
    for number in range(update_attempt.MOST_TRIES):
        wait_for(lambda number=number: outside.held == number + 1)
        send(harness, "other", f"DELETE DATA {{ <a:n{number}> <a:n> {number} }}").result(WAIT)
        gate, outside.gate = outside.gate, threading.Event()
        gate.set()
    assert medium.result(WAIT)[0].added == 2
    assert outside.begun == update_attempt.MOST_TRIES


def test_a_request_of_several_operations_is_applied_as_one(open_harness, outside):
    """One operation uses the blank nodes of the one before. Graph management runs when the request is applied."""
    harness = open_harness()
    harness.update(SEED, "INSERT DATA { GRAPH <a:old> { <a:o> <a:o> <a:o> } }")
    text = f"""INSERT DATA {{ _:b <a:made> 1 }} ; {SLOW} ;
        COPY <a:old> TO <a:new> ; INSERT {{ GRAPH <a:new> {{ ?b <a:count> ?n }} }}
        WHERE {{ ?b <a:made> 1 {{ SELECT (COUNT(*) AS ?n) {{ ?a <a:found> ?c }} }} }}"""
    added = send(harness, "slow", text).result(WAIT)[0].added
    assert (added, outside.begun) == (1 + 8 + 1 + 1, 1)
    assert rows(harness, "SELECT ?b { ?b <a:made> 1 GRAPH <a:new> { ?b <a:count> 8 } }") == 1


def test_several_requests_given_at_once(open_harness, outside):
    harness = open_harness()
    harness.update(SEED)
    first, second, third = send(harness, "slow", "INSERT DATA { <a:n500> <a:n> 0 }", SLOW, insert(3)).result(WAIT)
    assert (first.added, second.added, third.added, outside.begun) == (1, 10, 1, 1)


def test_two_processes_make_different_blank_nodes_and_uuids(open_harness, outside):
    harness = open_harness()
    harness.update(SEED)
    outside.gate.clear()
    where = "?a <a:n> ?x . ?b <a:n> ?y FILTER(?x + ?y = 7) BIND(UUID() AS ?u)"
    text = f"INSERT {{ [] <a:made> ?a . ?a <a:id> ?u }} WHERE {{ {where} }}"
    futures = [send(harness, name, text) for name in ("one", "two")]
    wait_for(lambda: outside.begun == 2)
    outside.gate.set()
    for future in futures:
        future.result(WAIT)
    assert rows(harness, "SELECT ?b { ?b <a:made> ?a }") == 16
    assert rows(harness, "SELECT DISTINCT ?u { ?a <a:id> ?u }") == 16


def test_an_error_is_that_of_the_update(open_harness, outside):
    harness = open_harness(max_steps=100_000)
    harness.update(SEED)
    with pytest.raises(ResultTooLarge, match=r"engine\.max_steps"):
        send(harness, "slow", SLOW).result(WAIT)
    assert outside.begun == 1


def test_the_budget_of_steps_is_for_all_operations_of_a_request(open_harness, outside):
    harness = open_harness(max_steps=250_000)
    harness.update(SEED)
    assert send(harness, "slow", SLOW).result(WAIT)[0].added == 8
    with pytest.raises(ResultTooLarge, match=r"engine\.max_steps"):
        send(harness, "slow", f"{SLOW} ; {SLOW}").result(WAIT)


def test_a_long_update_is_limited_in_quads(open_harness):
    harness = open_harness(max_steps=300_000)
    harness.update(SEED)
    for text in ("INSERT { ?a <a:to> ?b } WHERE { ?a <a:n> ?x . ?b <a:n> ?y }",):
        with pytest.raises(ResultTooLarge, match=r"a fifth of engine\.max_steps"):
            send(harness, "large", text).result(WAIT)
    assert rows(harness, "SELECT ?a { ?a <a:to> ?b }") == 0


def test_a_process_that_is_killed_fails_its_update_alone(open_harness, outside):
    harness = open_harness()
    harness.update(SEED)
    outside.gate.clear()
    slow = send(harness, "slow", SLOW)
    wait_for(lambda: outside.begun == 1)
    os.kill(outside.pids[0], signal.SIGSTOP)
    os.kill(outside.pids[0], signal.SIGKILL)
    outside.gate.set()
    error = slow.exception(WAIT)
    assert error is None or isinstance(error, ResultTooLarge)  # the update may have finished before
    assert send(harness, "slow", insert(1)).result(WAIT)[0].added == 1


def test_a_long_update_respects_query_timeout(open_harness):
    harness = open_harness(query_timeout=0.05)
    harness.update(SEED.replace("a:n", "a:m"))
    text = "INSERT { ?a <a:found> ?b } WHERE { ?a <a:m> ?x . ?b <a:m> ?y . ?c <a:m> ?z FILTER(?x + ?y + ?z < 0) }"
    with pytest.raises(RequestTimeout, match=r"\(engine\.query_timeout"):
        send(harness, "slow", text).result(WAIT)


def test_closing_waits_for_a_long_update(tmp_path, outside):
    harness = Harness(tmp_path)
    harness.update(SEED)
    slow = send(harness, "slow", SLOW)
    assert harness.scheduler.close(WAIT)
    assert slow.result(0)[0].added == 8


def test_closing_with_a_short_timeout_ends_a_long_update(tmp_path, outside):
    harness = Harness(tmp_path)
    harness.update(SEED)
    outside.gate.clear()
    slow = send(harness, "slow", SLOW)
    waiting = [send(harness, name, SLOW) for name in ("a", "b", "c")]
    wait_for(lambda: outside.begun == 2)
    closing = threading.Thread(target=harness.scheduler.close, args=(2.0,))
    closing.start()
    wait_for(lambda: not harness.scheduler._engine.forked.open)
    outside.gate.set()
    closing.join(WAIT)
    assert all(isinstance(one.exception(WAIT), NotReady) or one.result(0) for one in (slow, *waiting))
    assert any(isinstance(one.exception(0), NotReady) for one in waiting)


def test_a_commit_that_fails_undoes_it(tmp_path, outside, monkeypatch):
    journal = Journal.open(tmp_path)
    harness = Harness(journal=journal)
    harness.update(SEED)
    outside.gate.clear()
    slow = send(harness, "slow", SLOW)
    wait_for(lambda: outside.begun == 1)
    commit = journal.commit

    def fail(*_: object) -> None:
        raise StorageFailed("no room")

    monkeypatch.setattr(journal, "commit", fail)
    outside.gate.set()
    with pytest.raises(StorageFailed):
        slow.result(WAIT)
    assert rows(harness) == 0
    monkeypatch.setattr(journal, "commit", commit)
    assert send(harness, "slow", SLOW).result(WAIT)[0].added == 8
    assert harness.scheduler.close(WAIT)


def test_a_delayed_update_leaves_the_writer_too(open_harness, outside):
    harness = open_harness()
    harness.update(SEED)
    outside.gate.clear()
    harness.scheduler.schedule(UpdateRequest(SLOW), After(0), "one").result(WAIT)
    wait_for(lambda: outside.begun == 1)
    assert send(harness, "other", insert(1)).result(WAIT)[0].added == 1
    outside.gate.set()
    wait_for(lambda: harness.scheduler.timer("one").result(WAIT).state == "done")
    assert rows(harness) == 8


# The effect equals that of a serial order


def _random_update(random_: random.Random) -> str:
    """Return an update over few terms, so that updates read each other's results."""

    def term() -> str:
        return f"<a:{random_.choice('xyz')}>"

    def pattern(*names: str) -> str:
        places = [random_.choice([term(), f"?{name}"]) for name in names]
        graph = random_.choice(["", "", "<a:g>"])
        text = f"{places[0]} <a:{random_.choice('pq')}> {places[1]}"
        return f"GRAPH {graph} {{ {text} }}" if graph else f"{text} ."

    where = random_.choice(
        [
            lambda: pattern("s", "o"),
            lambda: f"{pattern('s', 'o')} OPTIONAL {{ {pattern('o', 't')} }}",
            lambda: f"{pattern('s', 'o')} FILTER NOT EXISTS {{ {pattern('o', 's')} }}",
            lambda: f"{{ {pattern('s', 'o')} }} UNION {{ {pattern('o', 's')} }} MINUS {{ {pattern('s', 's')} }}",
            lambda: f"?s (<a:p>|<a:q>)+ ?o . {pattern('o', 't')}",
            lambda: f"GRAPH ?g {{ }} {pattern('s', 'o')}",
        ]
    )()
    kind = random_.randrange(10)
    if kind == 0:
        return random_.choice(
            ["COPY <a:g> TO DEFAULT", "CLEAR SILENT GRAPH <a:g>", "ADD DEFAULT TO <a:g>", "CLEAR DEFAULT"]
        )
    if kind < 4:
        return f"INSERT DATA {{ {term()} <a:p> {term()} . GRAPH <a:g> {{ {term()} <a:q> {term()} }} }}"
    if kind < 6:
        return f"DELETE {{ ?s <a:p> ?o . ?s <a:q> ?o }} WHERE {{ {where} }}"
    inserted = random_.choice(["?o <a:p> ?s", "?s <a:q> ?o", "GRAPH <a:g> { ?s <a:q> ?o }"])
    return f"DELETE {{ ?s <a:p> ?o }} INSERT {{ {inserted} }} WHERE {{ {where} }}"


@pytest.mark.parametrize("seed", range(12))
def test_the_effect_is_that_of_the_updates_in_the_order_of_their_commits(seed, tmp_path, monkeypatch, outside):
    """Most updates run outside the writer, and others change their input meanwhile."""
    random_ = random.Random(seed)
    monkeypatch.setattr(update_attempt, "MOST_TRIES", 1_000)
    order: list[str] = []
    settings = EngineSettings()
    subject = make_engine(settings)
    scheduler = Scheduler(subject, Journal.open(tmp_path), settings, FakeClock())
    execute = engine.Engine.execute

    def noted(self, updates, now, tried=None):
        if self is subject and tried is not None and not tried.over and random_.random() < 0.6:
            raise update_attempt.LongUpdate
        done = execute(self, updates, now, tried)
        if self is subject:
            order.append(texts[id(updates[0].plan), tuple(map(str, updates[0].constants))])
        return done

    monkeypatch.setattr(engine.Engine, "execute", noted)
    texts: dict[object, str] = {}
    futures = []
    for number in range(60):
        text = _random_update(random_)
        prepared = subject.prepare(UpdateRequest(text))
        texts[id(prepared.plan), tuple(map(str, prepared.constants))] = text
        futures.append(scheduler.update([UpdateRequest(text, source=f"client {number % 7}")]))
    for future in futures:
        future.exception(WAIT)
    scheduler.query(QueryRequest("ASK {}")).result(WAIT)
    assert outside.begun > 10
    reached = sorted(map(str, subject.graph.quads()))
    assert scheduler.close(WAIT)
    oracle = make_engine(settings)
    for text in order:
        oracle.publish(oracle.execute([oracle.prepare(UpdateRequest(text))], 0))
    assert sorted(map(str, oracle.graph.quads())) == reached


# Documents


NODE = ox.NamedNode("a:loaded")


class Library:
    """Documents that are delivered when the barrier is open."""

    def __init__(self, **settings: object) -> None:
        self.door = threading.Event()
        self.reading = 0
        self.documents: dict[str, Iterable[ox.Quad]] = {
            "urn:small": [ox.Quad(NODE, NODE, ox.Literal(n)) for n in range(10)],
            "urn:large": [ox.Quad(NODE, NODE, ox.Literal(n)) for n in range(5_000)],
        }
        self.scheduler = open_engine(None, unchecked(EngineSettings, allow_load=True, **settings), load=self._load)  # type: ignore[arg-type]

    def _load(self, document: str) -> Iterable[ox.Quad]:
        self.reading += 1
        assert self.door.wait(WAIT)
        return self.documents[document]

    def send(self, text: str, access: Access = ANYBODY):
        return self.scheduler.update([UpdateRequest(text, source="reader", access=access)])


@pytest.fixture
def open_library():
    opened = []

    def begin(**settings: object) -> Library:
        opened.append(Library(**settings))
        return opened[-1]

    yield begin
    for library in opened:
        library.door.set()
        assert library.scheduler.close(WAIT)


@pytest.mark.parametrize(("name", "count"), [("small", 10), ("large", 5_000)])
def test_fetching_a_document_delays_no_other_client(open_library, name, count):
    library = open_library()
    loading = library.send(f"LOAD <urn:{name}> INTO GRAPH <a:g> ; {insert(1)}")
    after = library.send(f"INSERT {{ <a:s> <a:count> ?n }} WHERE {COUNTED}")
    wait_for(lambda: library.reading == 1)
    other = library.scheduler.update([UpdateRequest(insert(2), source="other")])
    assert other.result(WAIT)[0].added == 1
    assert not loading.done()
    assert not after.done()
    library.door.set()
    assert loading.result(WAIT)[0].added == count + 1
    after.result(WAIT)
    ask = f"ASK {{ <a:s> <a:count> {count} }}"
    assert library.scheduler.query(QueryRequest(ask)).result(WAIT) is True
    assert library.reading == 1


COUNTED = "{ { SELECT (COUNT(*) AS ?n) { GRAPH <a:g> { ?s ?p ?o } } } }"


def test_a_document_is_fetched_once_for_an_update_that_takes_long(open_library, outside):
    library = open_library()
    library.door.set()
    library.send(SEED).result(WAIT)
    assert library.send(f"LOAD <urn:large> ; {SLOW}").result(WAIT)[0].added == 5_000 + 8
    assert (library.reading, outside.begun) == (1, 1)


def test_a_slow_server_does_not_keep_updates_from_being_evaluated(open_library):
    library = open_library()
    library.scheduler.update([UpdateRequest(SEED)]).result(WAIT)
    for number in range(5):
        library.scheduler.update([UpdateRequest("LOAD <urn:small>", source=f"client {number}")])
    wait_for(lambda: library.reading == 2)
    assert library.scheduler.update([UpdateRequest(SLOW, source="other")]).result(WAIT)[0].added == 8


@pytest.mark.parametrize("silent", ["", "SILENT "])
def test_a_document_has_no_more_quads_than_a_request_may_change(open_library, silent):
    library = open_library(max_steps=5 * 4_000)
    library.door.set()
    future = library.send(f"LOAD {silent}<urn:large>")
    if silent:
        assert future.result(WAIT)[0].added == 0
    else:
        with pytest.raises(ResultTooLarge, match=r"LOAD <urn:large>.*a fifth of engine\.max_steps"):
            future.result(WAIT)


def test_no_document_is_fetched_for_a_forbidden_graph(open_library):
    library = open_library()
    access = Access("anna", frozenset({"update"}), write=frozenset({"a:own"}))
    with pytest.raises(Forbidden):
        library.send("LOAD <urn:small> INTO GRAPH <a:other>", access).result(WAIT)
    assert library.reading == 0


def test_all_operations_of_a_request_count_for_the_setting(open_harness):
    harness = open_harness(max_steps=5 * 1_000)
    parts = [" . ".join(f"<a:s> <a:p{part}> {n}" for n in range(400)) for part in range(3)]
    assert harness.update(" ; ".join(f"INSERT DATA {{ {part} }}" for part in parts[:2]))[0].added == 800
    with pytest.raises(ResultTooLarge, match=r"a fifth of engine\.max_steps"):
        harness.update(" ; ".join(f"DELETE DATA {{ {part} }}" for part in (*parts, parts[0])))
    with pytest.raises(ResultTooLarge, match=r"a fifth of engine\.max_steps"):
        harness.update(f"INSERT DATA {{ {parts[0]} }} ; CLEAR DEFAULT")
    assert harness.scheduler.quads == 800
