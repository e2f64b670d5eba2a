"""Rescue mode: the gateway serves the readable data of a damaged journal file and does not write to it.

`edge rescue` makes a sound file of it.
"""

from __future__ import annotations

import contextlib
import sqlite3
import struct
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyoxigraph as ox
import pytest

from edge.config import Settings
from edge.engine.journal.data_directory import DataDamaged, DataDirectoryRefused
from edge.engine.journal.journal import Journal, snapshot_bodies
from edge.engine.journal.sqlite_schema import APPLICATION_ID, FILE_NAME, FORMAT_VERSION, checksum
from edge.engine.requests import QueryRequest, Solutions, UpdateRequest
from edge.engine.scheduling.scheduler import Scheduler
from edge.engine.settings import EngineSettings
from edge.engine.start import open_engine
from edge.gateway.rescue import rescue
from edge.outbox.recorder import Recorder
from edge.outbox.settings import OutboxSettings
from edge.protocol.due_time import After
from edge.protocol.errors import ReadOnly
from tests.support.waiting import PATIENCE

WAIT = PATIENCE
OPTIONS = EngineSettings()
NOW = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)


def ledger(journal: Journal) -> Recorder:
    return Recorder(journal, OutboxSettings())


def opened(directory: Path, *, rescuing: bool = False, settings: EngineSettings = OPTIONS) -> Scheduler:
    return open_engine(directory, settings, ledger=ledger, rescue=rescuing, max_durable=10)


def insert(number: int, graph: str = "") -> UpdateRequest:
    triple = f"<urn:s> <urn:p> {number}"
    return UpdateRequest(f"INSERT DATA {{ {f'GRAPH <{graph}> {{ {triple} }}' if graph else triple} }}")


def values(scheduler: Scheduler) -> list[int]:
    query = "SELECT ?o { { ?s <urn:p> ?o } UNION { GRAPH ?g { ?s <urn:p> ?o } } }"
    result = scheduler.query(QueryRequest(query)).result(WAIT)
    assert isinstance(result, Solutions)
    return sorted(int(row[0].value) for row in result.rows)  # type: ignore[union-attr]


def filled(directory: Path) -> None:
    """Write six updates, two delayed updates, a durable subscription and two observations for the history."""
    scheduler = opened(directory)
    for number in range(1, 7):
        scheduler.update([insert(number, "urn:g" if number % 2 else "")]).result(WAIT)
    for name in ("first", "second"):
        scheduler.schedule(insert(100), After(10**12), name).result(WAIT)
    query = QueryRequest("SELECT ?o { ?s <urn:p> ?o }")
    scheduler.subscribe(query, lambda _: None, keep=True).result(WAIT)
    for number in (1, 2):
        graph = OutboxSettings().graph
        text = f"INSERT DATA {{ GRAPH <{graph}> {{ <urn:s> <urn:q> {number} }} }}"
        scheduler.update([UpdateRequest(text)]).result(WAIT)
    assert scheduler.close(WAIT)


def with_snapshot(directory: Path) -> None:
    """Do the same, with a snapshot of all but two updates."""
    filled(directory)
    journal = Journal.open(directory)
    name, value = ox.NamedNode("urn:s"), ox.NamedNode("urn:p")
    assert journal.snapshot(snapshot_bodies([ox.Quad(name, value, ox.Literal(n)) for n in range(1, 12_001)], []))
    journal.close()
    scheduler = open_engine(directory, EngineSettings())
    scheduler.update([insert(20_001), insert(20_002)]).result(WAIT)
    assert scheduler.close(WAIT)


def sql(*statements: str) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
            for statement in statements:
                assert connection.execute(statement).rowcount > 0

    return damage


def unreadable(path: Path) -> None:
    """Write a triple term as older versions did: a commit with a valid checksum whose quads cannot be read."""
    text = b"<urn:s> <urn:p> <urn:a> <urn:b> <urn:c> .\n"
    body = b"r" + struct.pack("<IqIIIII", 1, 1, 1, 0, 0, 0, 0) + text
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE commits SET body = ?, crc = ? WHERE first = 4", (body, checksum(body, 4)))


def in_no_graph(path: Path) -> None:
    """Write a commit that adds to a graph that does not exist."""
    text = b"<urn:s> <urn:p> <urn:a> <urn:nowhere> .\n"
    body = b"r" + struct.pack("<IqIIIII", 1, 1, 1, 0, 0, 0, 0) + text
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE commits SET body = ?, crc = ? WHERE first = 4", (body, checksum(body, 4)))


ALL = [1, 2, 3, 4, 5, 6]
KEPT = {"timers": 2, "subscriptions": 1, "outbox": 2}
CASES = {
    "a commit": (sql("UPDATE commits SET body = x'7a00' WHERE first = 4"), [1, 2, 3], {"subscriptions": 0}),
    "a commit is gone": (sql("DELETE FROM commits WHERE first = 4"), [1, 2, 3], {"subscriptions": 0}),
    "the last commit": (sql("UPDATE commits SET crc = 1 WHERE first = 6"), [1, 2, 3, 4, 5], {"subscriptions": 0}),
    "a commit of an older version": (unreadable, [1, 2, 3], {"subscriptions": 0}),
    "a commit into no graph": (in_no_graph, [1, 2, 3], {"subscriptions": 0}),
    "the head of the snapshot": (sql("UPDATE snapshot SET crc = crc + 1"), [], {"subscriptions": 0}),
    "a delayed update": (sql("UPDATE timers SET body = x'7b7d' WHERE id = 'first'"), ALL, {"timers": 1}),
    "its time": (sql("UPDATE timers SET due = due + 1 WHERE id = 'first'"), ALL, {"timers": 1}),
    "a subscription": (sql("UPDATE subscriptions SET body = x'7b7d'"), ALL, {"subscriptions": 0}),
    "what observations share": (sql("UPDATE outbox_contexts SET crc = crc + 1"), ALL, {"outbox": 0}),
    "an observation is gone": (sql("DELETE FROM outbox WHERE seq = 1"), ALL, {"outbox": 0}),
    "engine time": (sql("UPDATE meta SET value = '[' WHERE name = 'engine-time'"), ALL, {}),
    "two": (
        sql("UPDATE timers SET crc = 1", "UPDATE commits SET crc = 1 WHERE first = 2"),
        [1],
        {"timers": 0, "subscriptions": 0},
    ),
}


def content(directory: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in directory.glob(f"{FILE_NAME}*") if not file.name.endswith("-shm")}


def settings_of(directory: Path) -> Settings:
    return Settings(data_dir=directory)


@pytest.mark.parametrize("case", CASES)
def test_readable_data_is_served_and_then_continued_from(tmp_path, case):
    damage, expected, kept = CASES[case]
    filled(tmp_path)
    damage(tmp_path / FILE_NAME)
    before = content(tmp_path)
    with pytest.raises(DataDamaged):
        opened(tmp_path)
    scheduler = opened(tmp_path, rescuing=True)
    assert values(scheduler) == expected
    assert "edge rescue" in scheduler.read_only
    for refused in (
        scheduler.update([insert(7)]),
        scheduler.schedule(insert(7), After(0)),
        scheduler.cancel("second"),
    ):
        with pytest.raises(ReadOnly, match="rescue mode"):
            refused.result(WAIT)
    with pytest.raises(DataDirectoryRefused, match="in use"):
        rescue(settings_of(tmp_path), drop=True)
    assert scheduler.close(WAIT)
    report = rescue(settings_of(tmp_path), drop=False)
    assert report.fault
    assert report.copy is None
    assert content(tmp_path) == before

    report = rescue(settings_of(tmp_path), drop=True, now=NOW)
    assert report.copy == tmp_path / f"{FILE_NAME}.damaged-20300102T030405Z"
    assert report.copy.read_bytes() == before[FILE_NAME]
    wanted = KEPT | kept
    assert {table: report.kept[table] for table in wanted} == wanted
    assert rescue(settings_of(tmp_path), drop=True).fault == ""
    scheduler = opened(tmp_path)
    assert values(scheduler) == expected
    assert scheduler.pending_timers == wanted["timers"]
    assert scheduler.sequence == (len(expected) if report.graph_fault else 6)
    scheduler.update([insert(7)]).result(WAIT)
    assert scheduler.close(WAIT)
    scheduler = opened(tmp_path)
    assert values(scheduler) == [*expected, 7]
    assert scheduler.close(WAIT)


def test_a_part_of_the_snapshot_ends_the_graph(tmp_path):
    with_snapshot(tmp_path)
    sql("UPDATE snapshot_chunks SET crc = 1 WHERE number = 3")(tmp_path / FILE_NAME)
    scheduler = opened(tmp_path, rescuing=True)
    assert len(values(scheduler)) == 10_000
    assert "part 3 of 3" in scheduler.read_only
    assert scheduler.close(WAIT)
    assert rescue(settings_of(tmp_path), drop=True).quads == 10_000
    scheduler = opened(tmp_path)
    assert len(values(scheduler)) == 10_000
    assert scheduler.close(WAIT)


def test_any_damaged_page_leads_to_rescue_mode_or_a_clear_refusal(tmp_path):
    filled(tmp_path)
    whole = (tmp_path / FILE_NAME).read_bytes()
    served = 0
    for number, start in enumerate(range(1024, len(whole), 1024)):
        directory = tmp_path / str(number)
        directory.mkdir()
        damaged = whole[:start] + b"\xa5" * 1024 + whole[start + 1024 :]
        (directory / FILE_NAME).write_bytes(damaged)
        try:
            scheduler = opened(directory, rescuing=True)
        except DataDirectoryRefused:
            continue
        served += 1
        assert set(values(scheduler)) <= set(ALL)
        read_only = scheduler.read_only
        assert scheduler.close(WAIT)
        if read_only:
            assert content(directory) == {FILE_NAME: damaged}
            rescue(settings_of(directory), drop=True)
            scheduler = opened(directory)
            scheduler.update([insert(7)]).result(WAIT)
            assert scheduler.close(WAIT)
    assert served > 5


def test_the_log_is_left_as_it_is(tmp_path):
    """The gateway was killed, and a commit in its write-ahead log cannot be read."""
    filled(tmp_path)
    alive = opened(tmp_path)
    for number in (7, 8, 9):
        alive.update([insert(number)]).result(WAIT)
    other = tmp_path / "copy"
    other.mkdir()
    for name in (FILE_NAME, f"{FILE_NAME}-wal"):
        (other / name).write_bytes((tmp_path / name).read_bytes())
    assert alive.close(WAIT)
    log = bytearray((other / f"{FILE_NAME}-wal").read_bytes())
    log[-3 * len(log) // 4] ^= 1
    (other / f"{FILE_NAME}-wal").write_bytes(log)
    before = content(other)
    scheduler = opened(other, rescuing=True)
    assert "write-ahead log" in scheduler.read_only
    assert set(values(scheduler)) >= set(ALL)
    assert scheduler.close(WAIT)
    assert content(other) == before
    report = rescue(settings_of(other), drop=True, now=NOW)
    assert {name: before[name] for name in (FILE_NAME, f"{FILE_NAME}-wal")} == {
        FILE_NAME: report.copy.read_bytes(),
        f"{FILE_NAME}-wal": report.copy.with_name(f"{report.copy.name}-wal").read_bytes(),
    }
    scheduler = opened(other)
    assert scheduler.read_only == ""
    assert scheduler.close(WAIT)


def test_a_foreign_file_is_refused_in_rescue_mode(tmp_path):
    filled(tmp_path)
    for pragma, value, wanted in (
        ("application_id", 1, "another application"),
        ("user_version", FORMAT_VERSION + 1, "newer version"),
    ):
        with contextlib.closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection:
            connection.execute(f"PRAGMA {pragma} = {value}")
        for way in (lambda: opened(tmp_path, rescuing=True), lambda: rescue(settings_of(tmp_path), drop=True)):
            with pytest.raises(DataDirectoryRefused, match=wanted):
                way()
        with contextlib.closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection:
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
    scheduler = opened(tmp_path)
    assert scheduler.close(WAIT)
