"""The contributions of each client to the graph: they survive a restart and cost nothing per update."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from edge.engine.journal import contributions
from edge.engine.journal.contributions import STEP, Contributions
from edge.engine.journal.journal import Journal
from edge.engine.requests import UpdateRequest
from edge.engine.settings import EngineSettings
from edge.engine.start import open_engine
from edge.protocol.access import ACTIONS, Access
from edge.protocol.errors import StorageFailed, UpdateFailed
from tests.support.settings import unchecked

ALICE = Access("alice", ACTIONS - {"administer"}, registration="1")


def opened(directory: Path, **settings: Any) -> Any:
    return open_engine(directory, unchecked(EngineSettings, max_graph_bytes=20 * STEP, **settings))


def add(engine: Any, first: int, count: int, access: Access = ALICE) -> None:
    triples = " ".join(f"<urn:{number}> <urn:p> {number} ." for number in range(first, first + count))
    engine.update([UpdateRequest(f"INSERT DATA {{ {triples} }}", access=access, source="a")]).result(60)


def held(engine: Any) -> int:
    found: int = engine.on_writer(lambda: engine._engine.contributions.of("alice")).result(20)
    return found


def rows(directory: Path) -> dict[str, str]:
    with closing(sqlite3.connect(directory / "edge.sqlite3")) as file:
        return dict(file.execute("SELECT name, value FROM meta WHERE name LIKE 'added:%'"))


def test_contributions_are_exact_after_a_clean_stop(tmp_path):
    engine = opened(tmp_path)
    add(engine, 0, 50)
    before = held(engine)
    assert before == 50 * 700
    assert not rows(tmp_path), "nothing is written with such an update"
    assert engine.close()
    engine = opened(tmp_path)
    assert held(engine) == before
    engine.update([UpdateRequest("DELETE WHERE { ?s ?p ?o }", access=ALICE, source="a")]).result(20)
    assert held(engine) == 0
    assert engine.close()
    assert not rows(tmp_path)


def test_contributions_miss_less_than_a_step_after_a_crash(tmp_path):
    engine = opened(tmp_path / "before")
    writes = 0
    stored: dict[str, str] = {}
    for number in range(60):
        add(engine, 100 * number, 100)
        if (now := rows(tmp_path / "before")) != stored:
            stored, writes = now, writes + 1
    before = held(engine)
    assert writes == before // STEP == 4
    shutil.copytree(tmp_path / "before", tmp_path / "after")
    assert engine.close()
    engine = opened(tmp_path / "after")
    assert before - STEP < held(engine) <= before
    assert engine.close()


def test_a_snapshot_stores_contributions_exactly(tmp_path):
    engine = opened(tmp_path / "before", snapshot_min_bytes=1, snapshot_ratio=0.001)
    add(engine, 0, 100)
    engine.on_writer(lambda: None).result(20)
    while not rows(tmp_path / "before"):
        add(engine, 100, 1)
    assert abs(int(rows(tmp_path / "before")["added:alice"]) - held(engine)) <= 1400
    assert engine.close()


def test_a_restart_gives_no_client_more_of_the_graph(tmp_path):
    total = 0
    for _ in range(3):
        engine = opened(tmp_path)
        with suppress(UpdateFailed):
            while total < 100_000:
                add(engine, total, 500)
                total += 500
        assert engine.close()
    assert total * 700 < 10 * STEP


def test_uncommitted_quads_are_not_counted(tmp_path, monkeypatch):
    engine = opened(tmp_path)
    add(engine, 0, 1000)
    before = held(engine)

    def fail(*_: object) -> None:
        raise StorageFailed("no room")

    with monkeypatch.context() as patch:
        patch.setattr(engine._journal, "_store", fail)
        with pytest.raises(StorageFailed):
            add(engine, 1000, 2000)
    assert held(engine) == before
    assert engine.close()
    assert int(rows(tmp_path)["added:alice"]) == before


def test_clients_that_have_added_least_are_forgotten_first(monkeypatch):
    monkeypatch.setattr(contributions, "_CLIENTS", 10)
    journal, known = Journal.open(None), Contributions()
    for number in range(1, 12):
        known.add(f"client {number}", number * STEP)
    assert [known.of(f"client {number}") // STEP for number in range(1, 12)] == [0] * 5 + list(range(6, 12))
    known.close(journal)
    again = Contributions()
    again.load(journal)
    assert [again.of(f"client {number}") // STEP for number in range(1, 12)] == [0] * 5 + list(range(6, 12))
    journal.close()


def test_a_value_that_cannot_be_read_counts_as_nothing():
    journal, known = Journal.open(None), Contributions()
    journal.commit([], lambda file: file.execute("INSERT INTO meta VALUES ('added:alice', 'x')"))
    known.load(journal)
    assert known.of("alice") == 0
    journal.close()
