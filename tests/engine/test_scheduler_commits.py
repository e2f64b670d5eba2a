"""The scheduler on the real journal: shared commits, and the rollback of a failed one."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest
from scheduler_harness import WAIT, Client, Harness, commits, insert

from edge.engine.journal.journal import Journal
from edge.engine.requests import QueryRequest, Solutions, UpdateRequest
from edge.protocol.errors import (
    ParsingFailed,
    StorageFailed,
    UpdateFailed,
)
from tests.support.waiting import wait_for


def test_updates_that_waited_share_a_commit(open_harness, tmp_path):
    harness = open_harness(tmp_path)
    harness.busy()
    futures = [harness.queue(insert(value)) for value in range(10)]
    harness.door.set()
    for future in futures:
        assert future.result(WAIT)[0].added == 1
    assert commits(tmp_path) == 1
    wait_for(lambda: harness.values() == list(range(10)))


def test_no_commit_is_larger_than_the_setting_and_no_list_is_split(open_harness, tmp_path):
    harness = open_harness(tmp_path, max_batch=4)
    harness.busy()
    futures = [harness.queue(insert(value), insert(value + 100), insert(value + 200)) for value in range(3)]
    futures.append(harness.queue(*(insert(value + 300) for value in range(9))))
    harness.door.set()
    for future in futures:
        future.result(WAIT)
    assert commits(tmp_path) == 4


def test_an_update_that_fails_takes_none_of_its_neighbours_with_it(open_harness, tmp_path):
    harness = open_harness(tmp_path)
    client = Client(harness)
    harness.busy()
    good, bad, last = (
        harness.queue(insert(1)),
        harness.queue(insert(2), "DROP GRAPH <a:none>"),
        harness.queue(insert(3)),
    )
    harness.door.set()
    assert good.result(WAIT)[0].changed
    with pytest.raises(UpdateFailed):
        bad.result(WAIT)
    assert last.result(WAIT)[0].changed
    assert harness.values() == [1, 3]
    harness.update(insert(4))
    harness.scheduler.unsubscribe(client.future.result(WAIT).spuid).result(WAIT)
    assert client.received() == [(0, [], []), (1, [1], []), (2, [3], []), (3, [4], [])]


def test_an_update_without_effect_is_not_stored(open_harness, tmp_path):
    harness = open_harness(tmp_path)
    harness.update(insert(1))
    before = harness.scheduler.sequence
    (outcome,) = harness.update(insert(1))
    assert not outcome.changed
    assert (harness.scheduler.sequence, commits(tmp_path)) == (before, 1)


def test_wrong_text_is_refused_at_once_and_runs_nothing(open_harness):
    harness = open_harness()
    harness.busy()
    with pytest.raises(ParsingFailed):
        harness.queue(insert(1), "INSERT DATA {").result(0)
    harness.door.set()
    assert harness.values() == []


def test_restart_restores_graphs_and_blank_nodes(tmp_path):
    harness = Harness(tmp_path)
    harness.update(insert(1), "CREATE GRAPH <a:empty>", "INSERT DATA { GRAPH <a:g> { _:x <a:q> _:x , 'x'@EN , 1.50 } }")
    harness.update("DELETE WHERE { ?s <a:p> 1 } ; INSERT DATA { <a:s> <a:p> 2 }")
    everything = QueryRequest("SELECT * { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } UNION { GRAPH ?g { } } }")
    before = harness.scheduler.query(everything).result(WAIT)
    assert harness.scheduler.close(WAIT)
    again = Harness(tmp_path)
    after = again.scheduler.query(everything).result(WAIT)
    assert again.scheduler.close(WAIT)
    assert isinstance(before, Solutions)
    assert isinstance(after, Solutions)
    assert set(before.rows) == set(after.rows)
    assert len(after.rows) == 6


def test_receipts_are_found_again(tmp_path):
    harness = Harness(tmp_path)
    outcomes = []
    for text, receipt in ((insert(1), b"one"), (insert(1), b"nothing changed"), ("DROP GRAPH <a:none>", b"failed")):
        harness.scheduler.write([UpdateRequest(text)], receipt, outcomes.append)
        harness.scheduler.carry_out(wait=True)
    wait_for(lambda: len(outcomes) == 3, what="all outcomes")
    assert [type(outcome) for outcome in outcomes] == [type(None), type(None), UpdateFailed]
    assert harness.scheduler.receipts().result(WAIT) == b"onenothing changed"
    assert harness.scheduler.close(WAIT)
    again = Harness(tmp_path)
    assert again.scheduler.receipts().result(WAIT) == b"onenothing changed"
    assert again.scheduler.close(WAIT)


# Failed commits


def test_a_failed_commit_is_undone(tmp_path):
    """The disk is full: updates are rolled back without notifications, and work again when there is space."""
    journal = Journal.open(tmp_path)
    harness = Harness(journal=journal)
    harness.update(insert(1))
    texts = [
        "SELECT ?o { ?s <a:p> ?o }",
        "SELECT (COUNT(*) AS ?n) { ?s ?p ?o }",
        "ASK { ?s <a:p> 2 }",
        "DESCRIBE ?x { ?x <a:p> 1 }",
    ]
    clients = [Client(harness, text) for text in texts]
    for client in clients:
        client.future.result(WAIT)
        client.items.clear()
    _limit_pages(journal, 1)
    harness.busy()
    futures = [
        harness.queue(f"INSERT DATA {{ <a:s> <a:p> 2 ; <a:big> '{_noise(30_000)}' }}"),
        harness.queue("CLEAR ALL"),
        harness.queue(insert(3), "DROP GRAPH <a:none>"),
    ]
    harness.door.set()
    assert [type(future.exception(WAIT)) for future in futures] == [StorageFailed, StorageFailed, UpdateFailed]
    assert harness.values() == [1]
    assert [client.items for client in clients] == [[], [], [], []], "no client was notified"
    _limit_pages(journal, 1_000_000)
    harness.update(insert(2))
    harness.scheduler.unsubscribe(Client(harness).future.result(WAIT).spuid).result(WAIT)
    wait_for(lambda: all(client.items for client in clients))  # evaluation threads run in parallel with the writer
    assert [[item.sequence for item in client.items] for client in clients] == [[1]] * 4  # type: ignore[union-attr]
    assert clients[0].received() == [(1, [2], [])]
    assert harness.scheduler.close(WAIT)
    again = Harness(tmp_path)
    assert again.values() == [1, 2]
    assert again.scheduler.close(WAIT)


@pytest.mark.parametrize("stored", [True, False])
def test_the_first_query_sees_committed_data_without_waiting_for_the_disk(tmp_path, monkeypatch, stored):
    journal = Journal.open(tmp_path)
    harness = Harness(journal=journal)
    harness.update(insert(1), "INSERT DATA { GRAPH <a:old> { <a:s> <a:q> 1 } }")
    answering, requested = threading.Event(), threading.Event()
    commit = journal.commit

    def slow(*args: Any) -> None:
        requested.set()
        assert answering.wait(WAIT)
        if not stored:
            raise StorageFailed("no")
        commit(*args)

    monkeypatch.setattr(journal, "commit", slow)
    future = harness.queue(insert(2), "DELETE WHERE { ?s <a:p> 1 }", insert(3), "DROP ALL", insert(4))
    assert requested.wait(WAIT)
    assert (harness.values(), _graphs(harness)) == ([1], ["a:old"])
    answering.set()
    assert (future.exception(WAIT) is None) == stored
    assert (harness.values(), _graphs(harness)) == (([4], []) if stored else ([1], ["a:old"]))
    assert harness.scheduler.close(WAIT)


def _graphs(harness: Harness) -> list[str]:
    result = harness.scheduler.query(QueryRequest("SELECT ?g { GRAPH ?g {} }")).result(WAIT)
    assert isinstance(result, Solutions)
    return [row[0].value for row in result.rows]  # type: ignore[union-attr]


def _noise(length: int) -> str:
    """Return a text that hardly compresses."""
    return random.Random(0).randbytes(length // 2).hex()


def _limit_pages(journal: Journal, pages: int) -> None:
    """Let SQLite report "database or disk is full" from this number of pages on. The writer is idle now."""
    journal.commit((), lambda connection: connection.execute(f"PRAGMA max_page_count = {pages}").fetchone())
