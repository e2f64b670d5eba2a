"""A snapshot that is encoded during updates has the state of the commit after which it is stored."""

from __future__ import annotations

import random
import threading
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from engine_world import NOW, new_engine
from hypothesis import given, settings
from hypothesis import strategies as st
from test_mirror import some_update

from edge.engine.engine import Engine
from edge.engine.journal import journal as journal_module
from edge.engine.journal.codec import decode
from edge.engine.journal.journal import Journal, JournalEntry
from edge.engine.requests import UpdateRequest
from edge.engine.scheduling import background_snapshot
from edge.engine.scheduling.background_snapshot import BackgroundSnapshot
from edge.engine.scheduling.writer import Writer
from edge.engine.settings import EngineSettings
from edge.engine.start import open_engine
from edge.engine.store.graph_copy import GraphCopy
from edge.protocol.errors import UpdateFailed
from tests.support.examples import examples
from tests.support.settings import unchecked
from tests.support.waiting import wait_for


def commit(engine: Engine, journal: Journal, author: random.Random) -> None:
    """Run one update that is committed, fails, or is rolled back because the disk refuses it."""
    with suppress(UpdateFailed):
        executed = engine.execute([engine.prepare(UpdateRequest(some_update(author)))], NOW)
        if author.random() < 0.2:
            engine.undo(executed)
            return
        journal.commit([JournalEntry(NOW, step.changes) for step in executed if step.changes])
        engine.show(executed)
        engine.publish(executed)


def restored(directory: Path) -> tuple[set[object], set[object], int, int]:
    engine, journal = new_engine(), Journal.open(directory)
    engine.restore(journal.restore())
    found = set(engine.graph.quads()), set(engine.graph.named_graphs()), journal.sequence, journal.snapshot_sequence
    journal.close()
    return found


@settings(max_examples=examples(60), deadline=None)
@given(seed=st.integers(0, 2**32), stored=st.booleans())
def test_updates_between_any_two_pieces_are_in_the_snapshot(seed, stored):
    """If the snapshot is not stored, because the process is killed, the journal contains the updates."""
    author = random.Random(seed)
    engine = new_engine()
    take = GraphCopy.take

    def take_one(copy: GraphCopy, size: int) -> list[object]:
        if copy in engine._graph_copies:  # not the lock of a mirror
            for _ in range(author.randrange(3)):
                commit(engine, journal, author)
        return take(copy, 1)

    with TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        journal = Journal.open(Path(name))
        for _ in range(4):
            commit(engine, journal, author)
        patch.setattr(GraphCopy, "take", take_one)
        encoded = threading.Event()
        snapshot = BackgroundSnapshot(engine, lambda _: encoded.set())
        snapshot.start()
        assert encoded.wait(20)
        assert snapshot.error is None
        for _ in range(author.randrange(3)):
            commit(engine, journal, author)
        if stored:
            assert journal.snapshot(snapshot.bodies())
        sequence = journal.sequence
        for _ in range(author.randrange(3)):
            commit(engine, journal, author)
        last = journal.sequence
        journal.close()
        state = set(engine.graph.quads()), set(engine.graph.named_graphs())
        assert restored(Path(name)) == (*state, last, sequence if stored else 0)


def test_updates_continue_during_a_snapshot(tmp_path, monkeypatch):
    """The encoding thread pauses between two pieces; updates are committed, then the snapshot is stored."""
    at_a_piece, go_on = threading.Event(), threading.Event()

    def between(snapshot: BackgroundSnapshot) -> object:
        for quad in quads(snapshot):
            at_a_piece.set()
            assert go_on.wait(20)
            yield quad

    quads = BackgroundSnapshot._quads
    monkeypatch.setattr(BackgroundSnapshot, "_quads", between)
    scheduler = open_engine(tmp_path, unchecked(EngineSettings, snapshot_min_bytes=1000, snapshot_ratio=0.1))
    triples = " ".join(f"<a:{n}> <a:p> {n} ." for n in range(2000))
    scheduler.update([UpdateRequest(f"INSERT DATA {{ {triples} }}")]).result(20)
    assert at_a_piece.wait(20)
    for number in range(20):
        text = f"DELETE {{ <a:0> <a:p> ?o }} INSERT {{ <a:0> <a:p> {-1 - number} }} WHERE {{ <a:0> <a:p> ?o }}"
        scheduler.update([UpdateRequest(text)]).result(20)
    assert scheduler._journal.snapshot_sequence == 0
    monkeypatch.undo()
    go_on.set()
    wait_for(lambda: scheduler._journal.snapshot_sequence == 21, what="the snapshot")
    before = set(scheduler._engine.graph.quads())
    assert scheduler.close()
    assert len(before) == 2000
    assert restored(tmp_path)[0] == before


def test_changes_during_a_snapshot_are_encoded_in_pieces_of_bounded_size(tmp_path, monkeypatch):
    monkeypatch.setattr(journal_module, "CHUNK_QUADS", 100)
    engine, journal = new_engine(), Journal.open(tmp_path)
    encoded = threading.Event()
    snapshot = BackgroundSnapshot(engine, lambda _: encoded.set())
    snapshot.start()
    assert encoded.wait(20)
    for number in range(0, 5000, 500):
        triples = " ".join(f"<a:{n}> <a:p> {n} ." for n in range(number, number + 500))
        executed = engine.execute([engine.prepare(UpdateRequest(f"INSERT DATA {{ {triples} }}"))], NOW)
        journal.commit([JournalEntry(NOW, step.changes) for step in executed])
        engine.show(executed)
    bodies = snapshot.bodies()
    assert max(sum(sum(entry.changes.sizes) for entry in decode(body)) for body in bodies) == 100
    assert journal.snapshot(bodies)
    journal.close()
    assert restored(tmp_path) == (set(engine.graph.quads()), set(), 10, 10)


def test_a_large_change_before_it_is_stored_is_not_encoded_by_the_writer(tmp_path, monkeypatch):
    """The change is committed when the encoding is complete and the writer has not been notified yet."""
    put, bodies = Writer._put_snapshot, BackgroundSnapshot.bodies
    stored: list[bool] = []
    changes = iter([f"INSERT DATA {{ {' '.join(f'<b:{n}> <a:p> {n} .' for n in range(5000))} }}"])

    def late(writer: Writer, snapshot: BackgroundSnapshot) -> None:
        for text in changes:
            scheduler.update([UpdateRequest(text)]).result(20)
        put(writer, snapshot)

    def noted(snapshot: BackgroundSnapshot) -> object:
        stored.append(snapshot._copy.behind(500))
        return bodies(snapshot)

    monkeypatch.setattr(Writer, "_put_snapshot", late)
    monkeypatch.setattr(BackgroundSnapshot, "bodies", noted)
    scheduler = open_engine(tmp_path, unchecked(EngineSettings, snapshot_min_bytes=1000, snapshot_ratio=0.1))
    triples = " ".join(f"<a:{n}> <a:p> {n} ." for n in range(2000))
    scheduler.update([UpdateRequest(f"INSERT DATA {{ {triples} }}")]).result(20)
    wait_for(lambda: scheduler._journal.snapshot_sequence == 2, what="the snapshot")
    assert stored == [False]
    assert scheduler.close()
    assert len(restored(tmp_path)[0]) == 7000


def test_a_snapshot_that_cannot_be_encoded_is_tried_again_later(tmp_path, monkeypatch):
    def fail(*_: object) -> object:
        raise MemoryError

    monkeypatch.setattr(background_snapshot, "snapshot_bodies", fail)
    scheduler = open_engine(tmp_path, unchecked(EngineSettings, snapshot_min_bytes=1000, snapshot_ratio=0.1))
    add = "INSERT DATA { %s }"
    scheduler.update([UpdateRequest(add % " ".join(f"<a:{n}> <a:p> {n} ." for n in range(2000)))]).result(20)
    wait_for(lambda: not scheduler._journal.snapshot_due, what="the failure")
    monkeypatch.undo()
    scheduler.update([UpdateRequest(add % " ".join(f"<a:{n}> <a:q> {n} ." for n in range(2000)))]).result(20)
    wait_for(lambda: scheduler._journal.snapshot_sequence == 2, what="the snapshot")
    assert scheduler.close()
    assert len(restored(tmp_path)[0]) == 4000


def test_a_snapshot_in_the_making_does_not_delay_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(background_snapshot, "_PIECE", 1)
    scheduler = open_engine(tmp_path, unchecked(EngineSettings, snapshot_min_bytes=1000, snapshot_ratio=0.1))
    triples = " ".join(f"<a:{n}> <a:p> {n} ." for n in range(5000))
    scheduler.update([UpdateRequest(f"INSERT DATA {{ {triples} }}")]).result(20)
    assert scheduler.close()
    wait_for(lambda: all(thread.name != "snapshot" for thread in threading.enumerate()), what="the thread to end")
    assert len(restored(tmp_path)[0]) == 5000
