"""The scheduler on the real journal: shared commits, and the rollback of a failed one."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest
from scheduler_harness import WAIT, Client, House, commits, insert

from edge.engine.journal.journal import Journal
from edge.engine.requests import QueryRequest, Solutions, UpdateRequest
from edge.protocol.errors import (
    ParsingFailed,
    StorageFailed,
    UpdateFailed,
)
from tests.support.waiting import wait_for


def test_updates_that_waited_share_a_commit(open_house, tmp_path):
    house = open_house(tmp_path)
    house.busy()
    futures = [house.queue(insert(value)) for value in range(10)]
    house.door.set()
    for future in futures:
        assert future.result(WAIT)[0].added == 1
    assert commits(tmp_path) == 1
    wait_for(lambda: house.values() == list(range(10)))


def test_no_commit_is_larger_than_the_setting_and_no_list_is_split(open_house, tmp_path):
    house = open_house(tmp_path, max_batch=4)
    house.busy()
    futures = [house.queue(insert(value), insert(value + 100), insert(value + 200)) for value in range(3)]
    futures.append(house.queue(*(insert(value + 300) for value in range(9))))
    house.door.set()
    for future in futures:
        future.result(WAIT)
    assert commits(tmp_path) == 4


def test_an_update_that_fails_takes_none_of_its_neighbours_with_it(open_house, tmp_path):
    house = open_house(tmp_path)
    client = Client(house)
    house.busy()
    good, bad, last = house.queue(insert(1)), house.queue(insert(2), "DROP GRAPH <a:none>"), house.queue(insert(3))
    house.door.set()
    assert good.result(WAIT)[0].changed
    with pytest.raises(UpdateFailed):
        bad.result(WAIT)
    assert last.result(WAIT)[0].changed
    assert house.values() == [1, 3]
    house.update(insert(4))
    house.scheduler.unsubscribe(client.future.result(WAIT).spuid).result(WAIT)
    assert client.told() == [(0, [], []), (1, [1], []), (2, [3], []), (3, [4], [])]


def test_what_changes_nothing_is_not_stored(open_house, tmp_path):
    house = open_house(tmp_path)
    house.update(insert(1))
    before = house.scheduler.sequence
    (outcome,) = house.update(insert(1))
    assert not outcome.changed
    assert (house.scheduler.sequence, commits(tmp_path)) == (before, 1)


def test_wrong_text_is_refused_at_once_and_runs_nothing(open_house):
    house = open_house()
    house.busy()
    with pytest.raises(ParsingFailed):
        house.queue(insert(1), "INSERT DATA {").result(0)
    house.door.set()
    assert house.values() == []


def test_everything_is_there_after_a_restart(tmp_path):
    house = House(tmp_path)
    house.update(insert(1), "CREATE GRAPH <a:empty>", "INSERT DATA { GRAPH <a:g> { _:x <a:q> _:x , 'x'@EN , 1.50 } }")
    house.update("DELETE WHERE { ?s <a:p> 1 } ; INSERT DATA { <a:s> <a:p> 2 }")
    everything = QueryRequest("SELECT * { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } UNION { GRAPH ?g { } } }")
    before = house.scheduler.query(everything).result(WAIT)
    assert house.scheduler.close(WAIT)
    again = House(tmp_path)
    after = again.scheduler.query(everything).result(WAIT)
    assert again.scheduler.close(WAIT)
    assert isinstance(before, Solutions)
    assert isinstance(after, Solutions)
    assert set(before.rows) == set(after.rows)
    assert len(after.rows) == 6


def test_receipts_are_found_again(tmp_path):
    house = House(tmp_path)
    house.scheduler.update([UpdateRequest(insert(1))], receipt=b"one").result(WAIT)
    house.scheduler.update([UpdateRequest(insert(1))], receipt=b"nothing changed").result(WAIT)
    with pytest.raises(UpdateFailed):
        house.scheduler.update([UpdateRequest("DROP GRAPH <a:none>")], receipt=b"failed").result(WAIT)
    assert house.scheduler.receipts().result(WAIT) == b"onenothing changed"
    assert house.scheduler.close(WAIT)
    again = House(tmp_path)
    assert again.scheduler.receipts().result(WAIT) == b"onenothing changed"
    assert again.scheduler.close(WAIT)


# Failed commits


def test_what_could_not_be_stored_was_never_there(tmp_path):
    """The disk is full: updates are rolled back without notifications, and work again when there is space."""
    journal = Journal.open(tmp_path)
    house = House(journal=journal)
    house.update(insert(1))
    texts = [
        "SELECT ?o { ?s <a:p> ?o }",
        "SELECT (COUNT(*) AS ?n) { ?s ?p ?o }",
        "ASK { ?s <a:p> 2 }",
        "DESCRIBE ?x { ?x <a:p> 1 }",
    ]
    clients = [Client(house, text) for text in texts]
    for client in clients:
        client.future.result(WAIT)
        client.items.clear()
    _limit_pages(journal, 1)
    house.busy()
    futures = [
        house.queue(f"INSERT DATA {{ <a:s> <a:p> 2 ; <a:big> '{_noise(30_000)}' }}"),
        house.queue("CLEAR ALL"),
        house.queue(insert(3), "DROP GRAPH <a:none>"),
    ]
    house.door.set()
    assert [type(future.exception(WAIT)) for future in futures] == [StorageFailed, StorageFailed, UpdateFailed]
    assert house.values() == [1]
    assert [client.items for client in clients] == [[], [], [], []], "nobody was told"
    _limit_pages(journal, 1_000_000)
    house.update(insert(2))
    house.scheduler.unsubscribe(Client(house).future.result(WAIT).spuid).result(WAIT)
    wait_for(lambda: all(client.items for client in clients))  # evaluation threads run in parallel with the writer
    assert [[item.sequence for item in client.items] for client in clients] == [[1]] * 4  # type: ignore[union-attr]
    assert clients[0].told() == [(1, [2], [])]
    assert house.scheduler.close(WAIT)
    again = House(tmp_path)
    assert again.values() == [1, 2]
    assert again.scheduler.close(WAIT)


@pytest.mark.parametrize("stored", [True, False])
def test_the_first_query_waits_for_no_disk_and_sees_what_is_committed(tmp_path, monkeypatch, stored):
    journal = Journal.open(tmp_path)
    house = House(journal=journal)
    house.update(insert(1), "INSERT DATA { GRAPH <a:old> { <a:s> <a:q> 1 } }")
    answering, asked = threading.Event(), threading.Event()
    commit = journal.commit

    def slow(*args: Any) -> None:
        asked.set()
        assert answering.wait(WAIT)
        if not stored:
            raise StorageFailed("no")
        commit(*args)

    monkeypatch.setattr(journal, "commit", slow)
    future = house.queue(insert(2), "DELETE WHERE { ?s <a:p> 1 }", insert(3), "DROP ALL", insert(4))
    assert asked.wait(WAIT)
    assert (house.values(), _graphs(house)) == ([1], ["a:old"])
    answering.set()
    assert (future.exception(WAIT) is None) == stored
    assert (house.values(), _graphs(house)) == (([4], []) if stored else ([1], ["a:old"]))
    assert house.scheduler.close(WAIT)


def _graphs(house: House) -> list[str]:
    result = house.scheduler.query(QueryRequest("SELECT ?g { GRAPH ?g {} }")).result(WAIT)
    assert isinstance(result, Solutions)
    return [row[0].value for row in result.rows]  # type: ignore[union-attr]


def _noise(length: int) -> str:
    """Return a text that hardly compresses."""
    return random.Random(0).randbytes(length // 2).hex()


def _limit_pages(journal: Journal, pages: int) -> None:
    """Let SQLite report "database or disk is full" from this number of pages on. The writer is idle now."""
    journal.commit((), lambda connection: connection.execute(f"PRAGMA max_page_count = {pages}").fetchone())
