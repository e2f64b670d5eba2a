"""Staged changes: large changes that are prepared in pieces between other updates, and then applied at once."""

from __future__ import annotations

import gc
import random
from collections import Counter
from collections.abc import Iterable
from functools import partial
from itertools import pairwise

import pytest
from fake_clock import FakeClock
from scheduler_harness import WAIT, Client, Harness, evaluated, insert

from edge.engine.engine import Engine
from edge.engine.journal.journal import Journal
from edge.engine.requests import Precondition, QueryRequest, Solutions, SubscriberNotification, UpdateRequest
from edge.engine.scheduling.scheduler import Scheduler
from edge.engine.settings import EngineSettings
from edge.engine.start import make_engine, open_engine
from edge.engine.store import index_merge, triple_index
from edge.engine.store.triple_index import members
from edge.engine.updates import staged_change
from edge.protocol.access import ANYBODY, Access
from edge.protocol.errors import (
    Forbidden,
    NotReady,
    PreconditionFailed,
    ResultTooLarge,
    StorageFailed,
    UpdateConflict,
    UpdateFailed,
)
from tests.support.settings import unchecked
from tests.support.waiting import wait_for

COUNT = 5_000


def data(*values: int, verb: str = "INSERT", predicate: str = "a:big", graph: str = "") -> str:
    """Return an update that is long enough for Oxigraph's parser, and large enough to be staged."""
    triples = " . ".join(f"<a:subject-with-a-long-name-{value}> <{predicate}> {value}" for value in values)
    return f"{verb} DATA {{ GRAPH {graph} {{ {triples} }} }}" if graph else f"{verb} DATA {{ {triples} }}"


LARGE = data(*range(COUNT))
_LONG = "\n# " + "long " * 10_000
"""Makes a text so long that Oxigraph parses it."""


class Turns:
    """A scheduler whose writer runs its steps on request."""

    def __init__(self, directory=None, **settings) -> None:
        self.settings = unchecked(EngineSettings, **settings)
        engine = make_engine(self.settings)
        self.journal = Journal.open(directory)
        self.scheduler = Scheduler(engine, self.journal, self.settings, FakeClock(), start=False)
        self.engine = engine

    def send(self, text: str, source: str = "large", access: Access = ANYBODY):
        future = self.scheduler.update([UpdateRequest(text, source=source, access=access)])
        compiler = self.scheduler._compile_queue
        wait_for(lambda: not (compiler._running or compiler._waiting))
        return future

    def stage(self, text: str, source: str = "large"):
        """Send an update and prepare half of it."""
        future = self.send(text, source)
        while not any(attempt.staged._compared for attempt in self.engine.attempts.staged):
            self.scheduler.turn()
        assert not future.done()
        return future

    def finish(self) -> None:
        while self.scheduler.pending_updates or self.engine.untidy:
            self.scheduler.turn()

    def quads(self) -> list[str]:
        return quads(self.engine)


def quads(engine: Engine) -> list[str]:
    """Return the quads of an engine, whose writer may be doing deferred work."""
    with engine.writing:
        return sorted(map(str, engine.graph.quads()))


@pytest.fixture
def turns():
    opened = []

    def begin(*arguments, **settings) -> Turns:
        opened.append(Turns(*arguments, **settings))
        return opened[-1]

    yield begin
    for each in opened:
        each.scheduler._queue.close()
        each.scheduler._readers.close()
        each.scheduler._compile_queue.close(wait=True)
        each.scheduler._workers.close()
        each.engine.close()
        each.journal.close()


def test_other_clients_are_served_between_the_pieces_and_see_no_partial_change(turns):
    world = turns()
    large = world.send(LARGE)
    served = 0
    while not large.done():
        small = world.send(insert(served), "small")
        before = len(world.engine.graph)
        world.scheduler.turn()
        if not small.done():
            world.scheduler.turn()
        assert small.result(0)[0].added == 1
        if not large.done():
            assert len(world.engine.graph) == before + 1
            served += 1
    assert served > 2 * COUNT // 500
    assert large.result(0)[0].added == COUNT
    assert len(world.engine.graph) == COUNT + served + 1


def test_a_staged_change_is_one_notification(open_harness):
    harness = open_harness()
    client = Client(harness, "SELECT ?o { ?s <a:big> ?o }")
    client.future.result(WAIT)
    harness.update(LARGE)
    evaluated(harness.scheduler)
    harness.update(data(*range(100, COUNT), verb="DELETE"))
    evaluated(harness.scheduler)
    assert client.received() == [(0, [], []), (1, list(range(COUNT)), []), (2, [], list(range(100, COUNT)))]


def test_a_staged_change_survives_a_restart(tmp_path):
    harness = Harness(tmp_path)
    harness.update(insert(1), LARGE.replace("a:big", "a:other"), insert(2))  # several operations at once are not staged
    harness.update(f"{LARGE} ; {data(*range(COUNT), graph='<a:g>')}")
    harness.update(data(*range(10, COUNT), verb="DELETE"))
    harness.update(insert(3))
    expected = quads(harness.scheduler._engine)
    assert harness.scheduler.close(WAIT)
    assert len(expected) == 2 * COUNT + 10 + 3
    scheduler = open_engine(tmp_path, EngineSettings())
    assert quads(scheduler._engine) == expected
    assert scheduler.close(WAIT)


@pytest.mark.parametrize("others", [3, 1_500])
def test_concurrent_changes_of_others_are_respected(turns, tmp_path, others):
    """A few quads are compared again when the change is applied; if there are many, all are compared again."""
    world = turns(tmp_path)
    world.send(data(0, 1, 2, 3)).done()
    world.finish()
    large = world.stage(LARGE)
    world.send(data(0, 1, verb="DELETE"), "other")
    world.send(data(*range(COUNT - others, COUNT)), "other")
    world.finish()
    assert large.result(0)[0].added == COUNT - 2 - others
    assert len(world.engine.graph) == COUNT
    world.send(data(*range(COUNT), verb="DELETE"))
    world.finish()
    assert world.quads() == []
    world.journal.close()
    again = open_engine(tmp_path, EngineSettings())
    assert len(again._engine.graph) == 0
    assert again.close(WAIT)


class Counted(tuple):
    """A quad that counts its look-ups."""

    looked_up = 0

    def __hash__(self) -> int:
        Counted.looked_up += 1
        return hash(tuple(self))


def test_quads_of_another_large_change_are_looked_up_in_pieces(turns, monkeypatch):
    """All of them at once would make the other change, and all clients, wait."""
    monkeypatch.setattr(staged_change, "_SEARCHED", 500)
    world = turns()
    large = world.stage(LARGE)
    ((attempt),) = world.engine.attempts.staged
    changed = {Counted(quad): True for quad in attempt.staged._wanted}
    counts = []
    Counted.looked_up = 0
    attempt.staged.note(changed)
    while not large.done():
        counts.append(Counted.looked_up)
        Counted.looked_up = 0
        world.scheduler.turn()
    assert counts[0] == 0
    assert max(counts) == 2 * 500  # in this change, and in the set of those to compare again
    assert sum(counts) == 2 * COUNT
    assert large.result(0)[0].added == COUNT


def test_equal_large_changes_of_two_clients_are_made_once(turns, monkeypatch):
    monkeypatch.setattr(staged_change, "_SEARCHED", 500)
    world = turns()
    first = world.stage(LARGE)
    second = world.stage(data(*range(100, COUNT + 100)), "other")
    world.finish()
    assert first.result(0)[0].added + second.result(0)[0].added == COUNT + 100
    assert len(world.engine.graph) == COUNT + 100


def test_a_change_is_merged_exactly_while_another_one_is_being_moved(turns, monkeypatch):
    """Another large change is applied during the merge, and leaves old triples outside of the index."""
    monkeypatch.setattr(index_merge, "_PIECE", 20)
    monkeypatch.setattr(triple_index, "_MOVED", 2)

    def triples(name: str, predicate: str, values: Iterable[int]) -> str:
        return "".join(f"<a:{name}-with-a-long-name-{value}> <{predicate}> {value} . " for value in values)

    known = triples("old", "a:old", range(2_000))
    world = turns()
    world.send(f"INSERT DATA {{ {known} {triples('old', 'a:big', range(300))} }}")
    world.finish()
    large = world.stage(f"INSERT DATA {{ {triples('large', 'a:big', range(2_500))} }}")
    (staged,) = [attempt.staged for attempt in world.engine.attempts.staged]
    while not staged._merges:
        world.scheduler.turn()
    other = world.send(f"INSERT DATA {{ {known} {triples('other', 'a:big', range(300, 900))} }}", "other")
    while not other.done():
        world.scheduler.turn()
    assert not large.done()
    world.finish()
    assert (other.result(0)[0].added, large.result(0)[0].added) == (600, 2_500)
    (index,) = world.engine.graph.graphs.values()
    for predicate in {p for _, p, _ in index.match(None, None, None)}:
        pairs = {(s, o) for s in index.all_subjects() for o in members(index.objects(s, predicate))}
        assert {(s, o) for s, _, o in index.match(None, predicate, None)} == pairs


def test_a_small_update_does_not_wait_until_a_large_change_is_moved(turns, monkeypatch):
    """Another large change waits. Its merge is made again, so the small update has nothing to take out of it."""
    monkeypatch.setattr(index_merge, "_PIECE", 5)
    monkeypatch.setattr(triple_index, "_MOVED", 2)
    world = turns()
    world.send(data(*range(COUNT), predicate="a:old"))
    world.finish()
    large = world.stage(LARGE)
    (staged,) = [attempt.staged for attempt in world.engine.attempts.staged]
    while not staged._merges:
        world.scheduler.turn()
    other = world.send(data(*range(COUNT, COUNT + 2_000)), "other")
    while not other.done():
        world.scheduler.turn()
    assert not large.done()
    (index,) = world.engine.graph.graphs.values()
    left = len(index.pending.spo)
    assert left > 1_000
    staged.note({next(iter(staged._wanted)): True})
    assert len(index.pending.spo) == left
    world.finish()
    assert len(world.engine.graph) == 2 * COUNT + 2_000


def test_a_comparison_that_is_repeated_is_freed_in_pieces(turns, monkeypatch):
    """Freed at once, the indexes of 80,000 triples would make all clients wait for 40 ms, and the triples that another
    change has in common with them for 20 ms.
    """
    monkeypatch.setattr(triple_index, "_MOVED", 500)
    world = turns()
    large = world.stage(LARGE)
    (staged,) = [attempt.staged for attempt in world.engine.attempts.staged]
    (index,) = staged._added_index.values()
    staged.note(dict.fromkeys(staged._order[: staged_change._MOST_STALE + 1], True))
    stale = staged._stale
    left = []
    while not large.done():
        left.append((len(index.spo), len(stale)))
        world.scheduler.turn()
    left.append((len(index.spo), len(stale)))
    assert staged._compared == 2
    assert left[0][1] > staged_change._MOST_STALE
    assert left[-1] == (0, 0)
    for before, after in pairwise(left):
        assert before[0] - after[0] <= 500
        assert before[1] - after[1] <= 500
    assert large.result(0)[0].added == COUNT


def test_no_long_list_of_a_staged_change_is_young(turns):
    """The garbage collector would visit all its items, and stop all threads meanwhile."""
    longest = 0

    def note(phase: str, info: dict[str, int]) -> None:
        nonlocal longest
        if phase == "start":
            young = [each for age in range(info["generation"] + 1) for each in gc.get_objects(age)]
            longest = max(longest, *(len(each) for each in young if type(each) is list))

    world = turns()
    large = world.send(LARGE)
    gc.collect()
    gc.callbacks.append(note)
    try:
        while not large.done():
            world.scheduler.turn()
        gc.collect(1)
    finally:
        gc.callbacks.remove(note)
    assert longest < COUNT


def test_other_clients_cannot_prevent_a_staged_change(turns):
    world = turns()
    large = world.stage(LARGE)
    for number in range(1_000):
        verb = "DELETE" if number % 2 else "INSERT"
        world.send(data(*range(1_500), verb=verb), "other")
        world.scheduler.turn()
        if large.done():
            break
    assert large.done()


@pytest.mark.parametrize(
    "text",
    [
        f"{LARGE} ; INSERT {{ ?s <a:copy> ?o }} WHERE {{ ?s <a:big> ?o FILTER(?o < 10) }}",
        f"INSERT {{ ?s <a:copy> ?o }} WHERE {{ ?s <a:big> ?o }} ; {LARGE}",
        f"{LARGE} ; {data(*range(COUNT), verb='DELETE')} ; {data(*range(5, COUNT + 5))}",
        f"{data(*range(COUNT), graph='<a:g>')} ; {data(*range(COUNT), verb='DELETE', graph='<a:g>')}",
        f"{data(*range(COUNT), verb='DELETE', graph='<a:g>')} ; CLEAR DEFAULT",
        "INSERT DATA { "
        + " . ".join(f"_:b{n} <a:very-long-name-of-a-property> _:b{n + 1}" for n in range(COUNT))
        + " }",
    ],
    ids=["with a WHERE", "after a WHERE", "over itself", "nothing is left", "of no graph", "blank nodes"],
)
def test_a_staged_change_has_the_effect_of_the_update(open_harness, text):
    oracle = make_engine(EngineSettings())
    harness = open_harness()
    for each in (data(1, 2, 7), text):
        (expected,) = oracle.execute([oracle.prepare(UpdateRequest(each))], 0)
        oracle.publish([expected])
        assert harness.update(each) == [expected.outcome]
    engine = harness.scheduler._engine
    assert len(engine.graph) == len(oracle.graph)
    assert len(engine.graph.graphs) == len(oracle.graph.graphs)
    if "_:" not in text:
        assert quads(engine) == quads(oracle)


@pytest.mark.parametrize(
    "text",
    [
        "CLEAR DEFAULT ; INSERT DATA { <a:s> <a:big> 1 }",
        "DROP ALL ; CREATE GRAPH <a:g>",
        "ADD DEFAULT TO <a:g>",
        "ADD <a:empty> TO <a:none> ; COPY DEFAULT TO <a:more>",
        "COPY DEFAULT TO <a:g> ; DELETE DATA { GRAPH <a:g> { <a:subject-with-a-long-name-7> <a:big> 7 } }",
        "MOVE DEFAULT TO <a:new> ; MOVE <a:new> TO <a:empty>",
        "COPY DEFAULT TO <a:new> ; DROP GRAPH <a:new> ; MOVE SILENT <a:none> TO <a:g>",
        "INSERT { GRAPH <a:new> { ?s <a:even> true } } WHERE { ?s <a:big> 2 } ; ADD DEFAULT TO <a:new> ; CLEAR DEFAULT",
    ],
)
def test_whole_graphs_are_changed_in_pieces(turns, text, tmp_path):
    world = turns(tmp_path)
    oracle = make_engine(world.settings)
    for each in (LARGE, data(*range(10, 20), graph="<a:g>"), "CREATE GRAPH <a:empty>"):
        oracle.publish(oracle.execute([oracle.prepare(UpdateRequest(each))], 0))
        world.send(each)
        world.finish()
    (expected,) = oracle.execute([oracle.prepare(UpdateRequest(text))], 0)
    future = world.send(text)
    pieces = 0
    while not future.done():
        world.scheduler.turn()
        pieces += bool(world.engine.attempts.staged)
    assert pieces > COUNT // 500
    assert future.result(0) == [expected.outcome]
    assert world.quads() == quads(oracle)
    assert set(world.engine.graph.named_graphs()) == set(oracle.graph.named_graphs())
    world.finish()
    world.journal.close()
    again = open_engine(tmp_path, EngineSettings())
    assert quads(again._engine) == world.quads()
    assert set(again._engine.graph.named_graphs()) == set(oracle.graph.named_graphs())
    assert again.close(WAIT)


NUMBERS = " , ".join(map(str, range(3_000)))
"""So short that a plan of it would be cached, with the numbers as parameters."""


@pytest.mark.parametrize(
    "text",
    [
        f"{LARGE} ; CLEAR SILENT GRAPH <a:none>",
        f"{LARGE} ; DROP GRAPH <a:few>",
        f"{LARGE} ; INSERT {{ ?s <a:copy> ?o }} WHERE {{ ?s <a:big> ?o FILTER(?o < 10) }}",
        f"{LARGE} ; DELETE {{ ?s <a:big> ?o }} WHERE {{ ?s <a:big> ?o }} ; {data(*range(10))}",
        LARGE.replace("DATA", "").replace("{ <", "{ <a:x> <a:y> ?o . <") + " WHERE {}",
        LARGE.replace("DATA", "") + " WHERE { GRAPH <a:few> { ?s <a:big> 2 } }",
        LARGE.replace("DATA", "") + " WHERE { GRAPH <a:few> { ?s <a:big> 99 } } ; " + LARGE.replace("big", "more"),
        " ; ".join(data(*range(first, first + 10)) for first in range(0, COUNT, 10)) + " ; CREATE GRAPH <a:g>",
        f"INSERT DATA {{ <a:s> <a:p> {NUMBERS} }}",
        f"INSERT DATA {{ <a:s> <a:p> {NUMBERS} }} ; CREATE GRAPH <a:g>",
        f"INSERT {{ <a:s> <a:p> {NUMBERS} }} WHERE {{ GRAPH <a:few> {{ ?s <a:big> 2 }} }}",
        f"{data(*range(1_000))} ; " + " ; ".join(f"ADD DEFAULT TO <a:g{n}>" for n in range(10)),
        f"INSERT {{ ?s <a:p> {NUMBERS[:9_000]} }} WHERE {{ GRAPH <a:few> {{ ?s <a:big> 2 }} }} ; "
        + " ; ".join(f"ADD DEFAULT TO <a:g{n}>" for n in range(10)),
    ],
    ids=[
        "data and CLEAR",
        "data and DROP",
        "data and WHERE",
        "WHERE and data",
        "empty WHERE",
        "small WHERE",
        "WHERE without solutions",
        "many operations",
        "short text",
        "short text and CREATE",
        "short text with WHERE",
        "copies of data",
        "copies of what WHERE finds",
    ],
)
def test_every_large_change_is_prepared_in_pieces(turns, text):
    world = turns()
    oracle = make_engine(world.settings)
    for each in (data(*range(10), graph="<a:few>"), insert(7)):
        oracle.publish(oracle.execute([oracle.prepare(UpdateRequest(each))], 0))
        world.send(each)
        world.finish()
    (expected,) = oracle.execute([oracle.prepare(UpdateRequest(text))], 0)
    large = world.send(text)
    served = 0
    while not large.done():
        verb = "DELETE" if served % 2 else "INSERT"
        small = world.send(
            f"{verb} DATA {{ GRAPH <a:few> {{ <a:s> <a:p> 1 }} }}", "small", Access("small", priority="high")
        )
        turns_ = 0
        while not small.done():
            world.scheduler.turn()
            turns_ += 1
        assert turns_ <= 2
        served += not large.done()
        world.scheduler.turn()
    world.finish()
    assert large.result(0) == [expected.outcome]
    assert served > 5


def test_a_large_graph_is_replaced_in_pieces(turns):
    world = turns()
    for each in (LARGE, "INSERT DATA { GRAPH <a:few> { <a:s> <a:p> 1 } }"):
        world.send(each)
        world.finish()
    large = world.send("COPY <a:few> TO DEFAULT")
    pieces = 0
    while not large.done():
        world.scheduler.turn()
        pieces += bool(world.engine.attempts.staged)
    assert large.result(0)[0].removed == COUNT
    assert pieces > COUNT // 500
    assert len(world.engine.graph) == 2


def test_concurrent_changes_of_a_copied_or_cleared_graph_are_respected(turns, tmp_path):
    world = turns(tmp_path)
    world.send(LARGE)
    world.finish()
    large = world.stage(f"COPY DEFAULT TO <a:copy> ; MOVE DEFAULT TO <a:old>{_LONG}")
    world.send(data(1, 2, 3, verb="DELETE"), "other")
    world.send(data(COUNT, COUNT + 1), "other")
    world.send(data(7, graph="<a:old>", predicate="a:gone"), "other")
    world.finish()
    assert large.exception(0) is None
    copied = [quad for quad in world.engine.graph.quads() if quad.graph_name.value == "a:copy"]
    assert sorted(int(quad.object.value) for quad in copied) == [0, *range(4, COUNT + 2)]
    assert len(world.engine.graph) == 2 * len(copied)
    world.journal.close()
    again = open_engine(tmp_path, EngineSettings())
    assert quads(again._engine) == world.quads()
    assert again.close(WAIT)


def test_a_copy_of_a_constantly_changing_graph_is_refused(turns, monkeypatch):
    monkeypatch.setattr(staged_change, "_FEW_TURNED", 5)
    monkeypatch.setattr(staged_change, "_MOST_TURNED", 20)
    world = turns()
    world.send(LARGE)
    world.finish()
    copy = world.send(f"COPY DEFAULT TO <a:copy>{_LONG}")
    before = 0
    while not copy.done():
        world.send(data(*range(before % COUNT, before % COUNT + 50), verb="DELETE"), "other")
        world.send(data(*range(before % COUNT, before % COUNT + 50)), "other")
        before += 50
        for _ in range(3):
            world.scheduler.turn()
    assert isinstance(copy.exception(0), UpdateConflict)
    world.finish()
    assert len(world.engine.graph) == COUNT


def test_an_empty_graph_that_a_client_may_not_change_is_refused(turns):
    world = turns()
    access = Access("anna", read=None, write=frozenset({"a:allowed"}))
    future = world.send(f"{data(*range(COUNT), graph='<a:allowed>')} ; CLEAR DEFAULT", access=access)
    world.finish()
    assert isinstance(future.exception(0), Forbidden)
    assert len(world.engine.graph) == 0


@pytest.mark.parametrize(
    "text",
    [
        f"{data(*range(COUNT), graph='<a:allowed>')[:-1]} GRAPH <a:other> {{}} }}",
        f"{data(*range(COUNT), graph='<a:allowed>')} ; INSERT DATA {{ GRAPH <a:other> {{}} }} ; CLEAR GRAPH <a:n>",
        f"INSERT DATA {{ GRAPH <a:allowed> {{ <a:s> <a:p> {NUMBERS} }} GRAPH <a:other> {{}} }}",
        f"INSERT {{ GRAPH <a:allowed> {{ <a:s> <a:p> {NUMBERS} }} GRAPH <a:other> {{}} }} WHERE {{}}",
        f"{data(*range(COUNT), graph='<a:other>').replace('DATA', '')} WHERE {{ <a:none> ?p ?o }}",
    ],
    ids=["long", "several", "short", "empty WHERE", "no solutions"],
)
def test_data_in_a_graph_that_a_client_may_not_change_is_refused(turns, text):
    world = turns()
    future = world.send(text, access=Access("anna", read=None, write=frozenset({"a:allowed"})))
    while not future.done():
        world.scheduler.turn()
    assert isinstance(future.exception(0), Forbidden)
    assert "<a:other>" in str(future.exception(0))
    assert len(world.engine.graph) == 0


def test_too_many_operations_on_whole_graphs_are_refused(turns):
    world = turns()
    world.send(LARGE)
    world.finish()
    future = world.send(" ; ".join(f"ADD DEFAULT TO <a:copy{n}>" for n in range(65)))
    world.finish()
    assert isinstance(future.exception(0), ResultTooLarge)
    assert len(world.engine.graph.graphs) == 1


def test_whole_graphs_that_a_client_may_not_change_are_refused(turns):
    world = turns()
    world.send(LARGE)
    world.finish()
    access = Access("anna", read=None, write=frozenset({"a:allowed"}))
    texts = ["CLEAR DEFAULT", "DROP ALL", "COPY DEFAULT TO <a:other>", "MOVE DEFAULT TO <a:allowed>"]
    texts += [f"{data(*range(COUNT), graph='<a:allowed>')} ; DROP {which}" for which in ("DEFAULT", "GRAPH <a:none>")]
    futures = [world.send(text, access=access) for text in texts]
    allowed = world.send("COPY DEFAULT TO <a:allowed>", access=access)
    world.finish()
    assert [type(future.exception(0)) for future in futures] == [Forbidden] * 6
    assert allowed.result(0)[0].added == COUNT


def test_no_other_graph_takes_the_place_of_one_that_a_client_may_change(turns):
    """Ids of unused terms are reused between two pieces."""
    world = turns()
    access = Access("anna", read=None, write=frozenset({"a:allowed"}))
    forbidden = world.send(
        data(*range(COUNT), graph="<a:other>").replace("{ <a:s", "{ <a:other> <a:p> 1 . <a:s", 1), access=access
    )
    world.finish()
    assert isinstance(forbidden.exception(0), Forbidden)
    assert len(world.engine.graph) == 0


def test_a_refused_staged_change_leaves_nothing_behind(turns):
    world = turns(max_steps=5 * 10_000)
    before = len(world.engine.graph.dictionary)
    access = Access("anna", read=None, write=frozenset({"a:allowed"}))
    refused = [
        (world.send(data(*range(COUNT), graph="<a:forbidden>"), access=access), Forbidden),
        (world.send(data(*range(20_000))), ResultTooLarge),
        (world.send(f"{data(*range(6_000))} ; {data(*range(6_000), graph='<a:g>')}"), ResultTooLarge),
    ]
    world.finish()
    for future, error in refused:
        assert isinstance(future.exception(0), error)
    assert (len(world.engine.graph), len(world.engine.graph.dictionary)) == (0, before)


@pytest.mark.parametrize("during", ["reading", "staged"])
def test_a_condition_that_is_broken_during_a_long_update_leaves_nothing_behind(turns, during):
    world = turns()
    world.send(LARGE)
    world.finish()
    before = world.quads()
    update = UpdateRequest(
        "INSERT { ?s <a:copy> ?o } WHERE { ?s <a:big> ?o }",
        source="large",
        condition=Precondition("a:new", exists=False),
    )
    future = world.scheduler.update([update])
    while not getattr(world.engine.attempts, during):
        world.scheduler.turn()
    world.send("CREATE GRAPH <a:new>", source="other")
    world.finish()
    assert isinstance(future.exception(0), PreconditionFailed)
    assert world.quads() == before
    assert not world.engine.attempts.reading
    assert not world.engine.attempts.staged


def test_a_full_graph_refuses_a_staged_change_as_a_whole(turns):
    world = turns(max_graph_bytes=1_000_000)
    future = world.send(LARGE)
    world.finish()
    assert isinstance(future.exception(0), UpdateFailed)
    assert len(world.engine.graph) == 0
    assert len(world.engine.graph.dictionary) == 1


def test_a_commit_that_fails_undoes_it(turns, monkeypatch):
    world = turns()
    world.send(insert(1))
    world.finish()
    terms = len(world.engine.graph.dictionary)

    def fail(*_: object) -> None:
        raise StorageFailed("no room")

    with monkeypatch.context() as patched:
        patched.setattr(world.journal, "commit", fail)
        future = world.send(LARGE)
        world.finish()
        assert isinstance(future.exception(0), StorageFailed)
    assert (len(world.engine.graph), len(world.engine.graph.dictionary)) == (1, terms)
    future = world.send(LARGE)
    world.finish()
    assert future.result(0)[0].added == COUNT


# Random large and small updates of several clients


def _manage(random_: random.Random) -> str:
    one, other = (random_.choice(["DEFAULT", "GRAPH <a:g>", "GRAPH <a:h>"]) for _ in range(2))
    silent = random_.choice(["", "SILENT", "SILENT"])
    verb = random_.choice(["CREATE", "CLEAR", "DROP", "ADD", "ADD", "COPY", "COPY", "MOVE"])
    if verb == "CREATE":
        return f"CREATE {silent} GRAPH {random_.choice(['<a:g>', '<a:h>', '<a:i>'])}"
    if verb in ("CLEAR", "DROP"):
        return f"{verb} {silent} {random_.choice([one, one, 'NAMED', 'ALL'])}"
    return f"{verb} {silent} {one} TO {other}"


def _update(random_: random.Random) -> str:
    first = random_.randrange(200)
    values = range(first, first + random_.choice([1, 2, 30, 100]))
    verb, graph = random_.choice(["INSERT", "INSERT", "DELETE"]), random_.choice(["", "", "<a:g>", "<a:h>"])
    text = data(*values, verb=verb, graph=graph, predicate=random_.choice(["a:p", "a:p", "a:q"]))
    kind, long = random_.randrange(10), random_.choice(["", _LONG, _LONG])
    if kind == 0:
        return f"{text} ; {data(*values, verb='DELETE', predicate='a:q')}{long}"
    if kind == 1:
        return "INSERT { ?s <a:q> ?o } WHERE { ?s <a:p> ?o }"
    if kind == 2:
        return f"INSERT {{ ?s <a:q> ?o }} WHERE {{ ?s <a:p> ?o }} ; {_manage(random_)}"
    if kind in (3, 4):
        operations = [
            random_.choice([text, _manage(random_), _manage(random_)]) for _ in range(random_.randrange(1, 4))
        ]
        return " ; ".join(operations) + long
    if kind == 5:
        return text.replace("DATA", "") + random_.choice([" WHERE {}", " WHERE { <a:none> ?p ?o }"]) + long
    if kind == 6:
        return f"{text} ; INSERT {{ ?s <a:q> ?o }} WHERE {{ ?s <a:p> ?o FILTER(?o < {first}) }}{long}"
    return text + long


OPTIONAL = "SELECT * { ?s <a:p> ?o OPTIONAL { ?s <a:q> ?x FILTER(?x > 100) } }"
"""The result of an update follows from the states before and after it."""


@pytest.mark.parametrize("seed", range(30))
def test_the_effect_is_that_of_the_updates_in_the_order_of_their_commits(seed, tmp_path, monkeypatch, turns):
    random_ = random.Random(seed)
    for limit, values in {
        "updates.staged_change._PIECE": [3, 10, 40],
        "updates.staged_change._ENCODED": [2, 50],
        "updates.staged_change._MOST_STALE": [0, 5, 1_000],
        "updates.staged_change._SEARCHED": [2, 20, 5_000],
        "updates.staged_change._FEW_TURNED": [0, 5, 1_000],
        "updates.staged_change._MOST_TURNED": [5, 1_000],
        "updates.attempts.STAGED_FROM": [2, 20],
        "updates.update_processor.FIRST_QUADS": [2, 20, 2_000],
        "store.deferred_changes.LARGE": [2, 20],
        "store.index_merge._PIECE": [1, 5, 250],
        "store.triple_index._MOVED": [1, 20, 2_000],
    }.items():
        monkeypatch.setattr(f"edge.engine.{limit}", random_.choice(values))
    world = turns(tmp_path)
    oracle = make_engine(world.settings)
    rows: Counter[str] = Counter()
    optional: Counter[str] = Counter()

    def take(item) -> None:
        rows.update(str(row) for row in item.delta.added)
        rows.subtract(str(row) for row in item.delta.removed)

    def take_optional(item) -> None:
        optional.update(str(row) for row in item.delta.added)
        optional.subtract(str(row) for row in item.delta.removed)

    def check() -> None:
        for text in order:
            oracle.publish(oracle.execute([oracle.prepare(UpdateRequest(text))], 0))
        order.clear()
        assert world.quads() == quads(oracle)
        assert graphs(world.engine) == graphs(oracle)
        expected: list[SubscriberNotification] = []
        request = QueryRequest("SELECT * { ?s ?p ?o }")
        oracle.unsubscribe(oracle.subscribe(request, expected.append, None, 0).spuid)
        assert +rows == Counter(str(row) for row in expected[0].delta.added)
        expected.clear()
        oracle.unsubscribe(oracle.subscribe(QueryRequest(OPTIONAL), expected.append, None, 0).spuid)
        assert +optional == Counter(str(row) for row in expected[0].delta.added)

    def graphs(engine) -> list[str]:
        return sorted(map(str, engine.graph.named_graphs()))

    def done(text: str, future) -> None:
        if future.exception(0) is None:
            order.append(text)
        else:
            assert isinstance(future.exception(0), UpdateFailed | UpdateConflict | StorageFailed)

    def commit(*given) -> int:
        """Commit, unless the disk is full."""
        if random_.random() < full:
            raise StorageFailed("no room")
        return real_commit(*given)

    real_commit, full = world.journal.commit, random_.choice([0.0, 0.2])
    monkeypatch.setattr(world.journal, "commit", commit)

    order: list[str] = []
    world.scheduler.subscribe(QueryRequest("SELECT * { ?s ?p ?o }"), take)
    world.scheduler.subscribe(QueryRequest(OPTIONAL), take_optional)
    futures = []
    for _ in range(40):
        text = _update(random_)
        futures.append(world.send(text, f"client {random_.randrange(4)}"))
        futures[-1].add_done_callback(partial(done, text))
        for _ in range(random_.randrange(12)):
            world.scheduler.turn()
        check()
        if random_.random() < 0.2:
            world.scheduler.query(QueryRequest("SELECT * { ?s ?p ?o }")).result(WAIT)
    full = 0.0
    world.finish()
    check()
    assert all(future.done() for future in futures)
    result = world.scheduler.query(QueryRequest("SELECT * { ?s ?p ?o }")).result(WAIT)
    assert isinstance(result, Solutions)
    assert Counter(map(str, result.rows)) == +rows
    world.journal.close()
    restored = open_engine(tmp_path, world.settings)
    assert quads(restored._engine) == world.quads()
    assert graphs(restored._engine) == graphs(world.engine)
    assert restored.close(WAIT)


def test_a_staged_change_is_not_continued_after_close(turns, monkeypatch):
    """The gateway stops while the writer prepares a piece, so the update is not among those that wait."""
    world = turns()
    large = world.stage(LARGE)
    queue, advance = world.scheduler._queue, staged_change.StagedChange.advance

    def refused_meanwhile(staged):
        queue.close()
        queue.refuse_rest()
        return advance(staged)

    monkeypatch.setattr(staged_change.StagedChange, "advance", refused_meanwhile)
    world.scheduler.turn()
    assert isinstance(large.exception(0), NotReady)
    assert queue.finished
    assert not world.quads()
