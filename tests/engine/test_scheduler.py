"""The scheduler on the real journal: order, shared commits, limits, what is undone, and how it stops."""

from __future__ import annotations

import contextlib
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path

import pyoxigraph as ox
import pytest

from edge.engine import journal_file
from edge.engine.engine import Engine
from edge.engine.general import Rules
from edge.engine.journal import Journal
from edge.engine.requests import Notification, QueryRequest, Solutions, SubscribeFailed, UpdateOutcome, UpdateRequest
from edge.engine.scheduler import Scheduler
from edge.engine.settings import EngineSettings
from edge.engine.start import open_engine
from edge.protocol.errors import (
    NotFound,
    NotReady,
    ParsingFailed,
    StorageFailed,
    TooManyRequests,
    UpdateFailed,
)

WAIT = 30.0
"""Seconds after which something that should happen has not happened."""


class House:
    """A running engine, with a door that LOAD waits at: while it is shut the writer is busy."""

    def __init__(self, directory: Path | None = None, journal: Journal | None = None, **settings: object) -> None:
        self.door = threading.Event()
        self.at_the_door = threading.Event()
        self.settings = EngineSettings(allow_load=True, **settings)  # type: ignore[arg-type]
        if journal is None:
            self.scheduler = open_engine(directory, self.settings, load=self._load)
        else:
            engine = Engine(Rules(allow_load=True), self._load)
            self.scheduler = Scheduler(engine, journal, self.settings, lambda: 0)

    def _load(self, document: str) -> list[ox.Quad]:
        self.at_the_door.set()
        assert self.door.wait(WAIT)
        return []

    def busy(self) -> Future[list[UpdateOutcome]]:
        """Keep the writer busy until the door is opened."""
        self.door.clear()
        self.at_the_door.clear()
        future = self.scheduler.update([UpdateRequest("LOAD <http://example.org/door>")])
        assert self.at_the_door.wait(WAIT)
        return future

    def queue(self, *texts: str) -> Future[list[UpdateOutcome]]:
        return self.scheduler.update([UpdateRequest(text) for text in texts])

    def update(self, *texts: str) -> list[UpdateOutcome]:
        return self.queue(*texts).result(WAIT)

    def values(self) -> list[int]:
        result = self.scheduler.query(QueryRequest("SELECT ?o { ?s <a:p> ?o }")).result(WAIT)
        assert isinstance(result, Solutions)
        return sorted(int(row[0].value) for row in result.rows)  # type: ignore[union-attr]


def commits(directory: Path) -> int:
    """How many commits the journal in a directory has."""
    with contextlib.closing(sqlite3.connect(directory / journal_file.FILE_NAME)) as connection:
        return int(connection.execute("SELECT count(*) FROM commits").fetchone()[0])


def insert(value: int) -> str:
    return f"INSERT DATA {{ <a:s> <a:p> {value} }}"


@pytest.fixture
def open_house() -> Iterator[Callable[..., House]]:
    houses: list[House] = []

    def open_(directory: Path | None = None, **settings: object) -> House:
        houses.append(House(directory, **settings))
        return houses[-1]

    yield open_
    for house in houses:
        house.door.set()
        assert house.scheduler.close(WAIT)


class Client:
    def __init__(self, house: House, text: str = "SELECT ?o { ?s <a:p> ?o }") -> None:
        self.items: list[Notification | SubscribeFailed] = []
        self.future = house.scheduler.subscribe(QueryRequest(text), self.items.append)

    def told(self) -> list[tuple[int, list[int], list[int]]]:
        """Sequence, values added, values removed of every notification."""
        return [
            (
                n.sequence,
                sorted(int(r[0].value) for r in n.delta.added),
                sorted(int(r[0].value) for r in n.delta.removed),
            )
            for n in self.items
            if isinstance(n, Notification)
        ]


# Order


def test_requests_are_carried_out_in_the_order_in_which_they_came(open_house):
    house = open_house()
    house.busy()
    first = house.queue(insert(1))
    early = Client(house)
    second = house.queue("DELETE { ?s ?p 1 } INSERT { ?s ?p 2 } WHERE { ?s ?p 1 }")
    late = Client(house)
    third = house.queue("DELETE { ?s ?p 2 } INSERT { ?s ?p 3 } WHERE { ?s ?p 2 }")
    assert not any(future.done() for future in (first, early.future, second, late.future, third))
    house.door.set()
    third.result(WAIT)
    house.scheduler.unsubscribe(late.future.result(WAIT).spuid).result(WAIT)
    house.update(insert(4))
    house.scheduler.unsubscribe(early.future.result(WAIT).spuid).result(WAIT)
    assert early.told() == [(0, [1], []), (1, [2], [1]), (2, [3], [2]), (3, [4], [])]
    assert late.told() == [(0, [2], []), (1, [3], [2])]


def test_unsubscribed_means_silent(open_house):
    house = open_house()
    client = Client(house)
    spuid = client.future.result(WAIT).spuid
    house.busy()
    gone = house.scheduler.unsubscribe(spuid)
    update = house.queue(insert(1))
    house.door.set()
    gone.result(WAIT)
    update.result(WAIT)
    house.scheduler.query(QueryRequest("ASK {}")).result(WAIT)
    assert client.told() == [(0, [], [])]
    with pytest.raises(NotFound):
        house.scheduler.unsubscribe(spuid).result(WAIT)


def test_sequence_0_comes_before_the_subscription_is_acknowledged(open_house):
    house = open_house()
    for _ in range(20):
        client = Client(house)
        client.future.result(WAIT)
        assert client.told() == [(0, [], [])]


def test_many_threads_lose_nothing(open_house):
    house = open_house()
    client = Client(house)

    def publish(start: int) -> None:
        for value in range(start, start + 50):
            house.queue(insert(value)).result(WAIT)

    threads = [threading.Thread(target=publish, args=(start,)) for start in (0, 100, 200, 300)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    expected = sorted(value for start in (0, 100, 200, 300) for value in range(start, start + 50))
    assert house.values() == expected
    house.scheduler.unsubscribe(client.future.result(WAIT).spuid).result(WAIT)
    told = client.told()
    assert [sequence for sequence, _, _ in told] == list(range(201))
    assert sorted(value for _, added, _ in told for value in added) == expected
    assert house.scheduler.quads == 200


# Commits


def test_updates_that_waited_share_a_commit(open_house, tmp_path):
    house = open_house(tmp_path)
    house.busy()
    futures = [house.queue(insert(value)) for value in range(10)]
    house.door.set()
    for future in futures:
        assert future.result(WAIT)[0].added == 1
    assert commits(tmp_path) == 1
    _until(lambda: house.values() == list(range(10)))


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
    assert house.scheduler.close(WAIT)
    again = House(tmp_path)
    assert again.scheduler.receipts() == (b"one", b"nothing changed")
    assert again.scheduler.close(WAIT)


# A commit that fails


def test_what_could_not_be_stored_was_never_there(tmp_path):
    """The disk is full: the updates are undone, nobody is told, and all goes on once there is room again."""
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
    assert [[item.sequence for item in client.items] for client in clients] == [[1]] * 4  # type: ignore[union-attr]
    assert clients[0].told() == [(1, [2], [])]
    assert house.scheduler.close(WAIT)
    again = House(tmp_path)
    assert again.values() == [1, 2]
    assert again.scheduler.close(WAIT)


def _noise(length: int) -> str:
    """Text that hardly compresses."""
    return random.Random(0).randbytes(length // 2).hex()


def _limit_pages(journal: Journal, pages: int) -> None:
    """SQLite's own "database or disk is full" from that many pages on. The writer has nothing to do now."""
    journal.commit((), lambda connection: connection.execute(f"PRAGMA max_page_count = {pages}").fetchone())


# Limits


def test_more_pending_updates_than_the_setting_are_refused(open_house):
    house = open_house(max_pending_updates=3)
    house.busy()
    waiting = [house.queue(insert(1)), house.queue(insert(2))]
    with pytest.raises(TooManyRequests, match="max_pending_updates"):
        house.queue(insert(3)).result(0)
    with pytest.raises(TooManyRequests):
        house.queue(insert(3), insert(4)).result(0)
    subscription = Client(house)
    house.door.set()
    for future in waiting:
        future.result(WAIT)
    subscription.future.result(WAIT)
    _until(lambda: house.scheduler.pending_updates == 0)
    house.update(insert(5))
    assert house.values() == [1, 2, 5]


def test_more_pending_queries_than_the_setting_are_refused(open_house):
    house = open_house(max_pending_queries=2, query_workers=1)
    door = threading.Event()
    reading = [house.scheduler.read(QueryRequest("ASK {}"), lambda answer: door.wait(WAIT)) for _ in range(2)]
    with pytest.raises(TooManyRequests, match="max_pending_queries"):
        house.scheduler.query(QueryRequest("ASK {}")).result(0)
    door.set()
    assert all(future.result(WAIT) for future in reading)
    _until(lambda: house.scheduler.pending_queries == 0)
    assert house.scheduler.query(QueryRequest("ASK {}")).result(WAIT) is True


def test_a_query_that_was_cancelled_in_time_is_not_answered(open_house):
    house = open_house(query_workers=1)
    door = threading.Event()
    first = house.scheduler.read(QueryRequest("ASK {}"), lambda answer: door.wait(WAIT))
    second = house.scheduler.query(QueryRequest("ASK {}"))
    assert second.cancel()
    door.set()
    assert first.result(WAIT)
    _until(lambda: house.scheduler.pending_queries == 0)


def test_pending_updates_are_counted_exactly(open_house):
    house = open_house()

    def publish() -> None:
        futures = [house.queue("INSERT DATA { }") for _ in range(300)]
        for future in futures:
            future.result(WAIT)

    threads = [threading.Thread(target=publish) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    _until(lambda: house.scheduler.pending_updates == 0)


# Queries and updates beside each other


def test_queries_do_not_wait_for_an_update(open_house):
    house = open_house()
    house.update(insert(1))
    _until(lambda: house.values() == [1])
    running = house.scheduler.update([UpdateRequest(f"{insert(2)} ; LOAD <http://example.org/door> ; {insert(3)}")])
    assert house.at_the_door.wait(WAIT)
    house.queue(insert(4))
    assert house.values() == [1], "what is committed, and nothing of what is running"
    assert not running.done()
    house.door.set()
    running.result(WAIT)
    _until(lambda: house.values() == [1, 2, 3, 4])


def test_a_query_sees_what_was_acknowledged_before_it(open_house):
    house = open_house()
    for value in range(50):
        house.update(insert(value))
        # The publisher is told after the commit, a moment before readers can see it.
        _until(lambda expected=value: house.values() == list(range(expected + 1)))


# Faults of others


def test_a_sink_that_fails_harms_nobody_else(open_house, caplog):
    house = open_house()

    def broken(item: Notification | SubscribeFailed) -> None:
        raise RuntimeError("broken sink")

    spuid = house.scheduler.subscribe(QueryRequest("SELECT ?o { ?s <a:p> ?o }"), broken).result(WAIT).spuid
    client = Client(house)
    house.update(insert(1))
    house.update(insert(2))
    house.scheduler.unsubscribe(spuid).result(WAIT)
    assert client.told() == [(0, [], []), (1, [1], []), (2, [2], [])]
    assert house.scheduler.ready
    assert "notification lost" in caplog.text


def test_a_loader_that_fails_in_an_unforeseen_way_stops_nothing(open_house):
    def load(document: str) -> list[ox.Quad]:
        raise ZeroDivisionError

    scheduler = open_engine(None, EngineSettings(allow_load=True), load=load)
    try:
        update = UpdateRequest(f"{insert(1)} ; LOAD <http://example.org/x>")
        with pytest.raises(ZeroDivisionError):
            scheduler.update([update]).result(WAIT)
        scheduler.update([UpdateRequest(insert(2))]).result(WAIT)
        assert scheduler.quads == 1
    finally:
        assert scheduler.close(WAIT)


# The end


def test_close_carries_out_what_waits(tmp_path):
    house = House(tmp_path)
    house.busy()
    client = Client(house)
    futures = [house.queue(insert(value)) for value in range(20)]
    closing = threading.Thread(target=house.scheduler.close, args=(WAIT,))
    closing.start()
    _until(lambda: not house.scheduler.ready)
    house.door.set()
    closing.join(WAIT)
    assert all(future.result(0) for future in futures)
    assert len(client.told()) == 21
    again = House(tmp_path)
    assert again.values() == list(range(20))
    assert again.scheduler.close(WAIT)


def test_close_refuses_what_cannot_be_carried_out_in_time(tmp_path):
    house = House(tmp_path)
    running = house.busy()
    waiting = [house.queue(insert(value)) for value in range(3)]
    subscription = Client(house)
    assert house.scheduler.close(0.2) is False
    for future in (*waiting, subscription.future):
        assert isinstance(future.exception(0), NotReady)
    house.door.set()
    running.result(WAIT)
    assert house.scheduler.close(WAIT)
    again = House(tmp_path)
    assert again.values() == []
    assert again.scheduler.close(WAIT)


def test_nothing_is_taken_after_close(open_house):
    house = open_house()
    house.update(insert(1))
    assert house.scheduler.close(WAIT)
    for future in (
        house.queue(insert(2)),
        house.scheduler.query(QueryRequest("ASK {}")),
        house.scheduler.subscribe(QueryRequest("ASK {}"), lambda item: None),
        house.scheduler.unsubscribe("sepa://subscription/x"),
        house.scheduler.update([UpdateRequest("#" + "x" * 100_000)]),
    ):
        assert isinstance(future.exception(WAIT), NotReady)
    assert not house.scheduler.ready
    assert house.scheduler.close(WAIT), "closing twice does no harm"


def test_queries_that_wait_at_close_are_answered_or_refused(open_house):
    house = open_house(query_workers=1)
    door = threading.Event()
    first = house.scheduler.read(QueryRequest("ASK {}"), lambda answer: door.wait(WAIT))
    waiting = [house.scheduler.query(QueryRequest("ASK {}")) for _ in range(3)]
    closing = threading.Thread(target=house.scheduler.close, args=(WAIT,))
    closing.start()
    _until(lambda: not house.scheduler.ready)
    door.set()
    closing.join(WAIT)
    assert first.result(WAIT)
    for future in waiting:
        assert isinstance(future.exception(WAIT), NotReady | None)


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)
