"""The process ends at any commit and starts again, or a commit fails: no report is lost, repeated or changed."""

from __future__ import annotations

import json
import logging
import sqlite3
from contextlib import contextmanager
from functools import partial

import pyoxigraph as ox
import pytest

from edge.engine.settings import EngineSettings
from edge.engine.start import make_engine
from edge.protocol.access import ANYBODY
from edge.protocol.errors import StorageFailed
from edge.streams.processor import NewElement, Processor
from edge.streams.report import Report
from edge.streams.settings import StreamSettings
from edge.streams.store import StreamStore

SECOND = 1_000_000
BEGIN = 1_000_000 * SECOND
QUERIES = {
    "average": "REGISTER QUERY average AS SELECT (AVG(?v) AS ?a) FROM STREAM <urn:edge:stream:s> [RANGE 6s STEP 3s] "
    "WHERE { ?s <urn:v> ?v }",
    "counted": "REGISTER RSTREAM <urn:edge:stream:counted> AS SELECT ?s ?v FROM NAMED WINDOW <urn:w> ON "
    "<urn:edge:stream:s> [ELEMENTS 4 STEP 3] WHERE { WINDOW <urn:w> { ?s <urn:v> ?v } }",
    "new": "REGISTER ISTREAM <urn:edge:stream:new> AS SELECT ?s ?v FROM NAMED WINDOW <urn:w> ON <urn:edge:stream:s> "
    "[RANGE PT6S STEP PT3S] WHERE { WINDOW <urn:w> { ?s <urn:v> ?v } }",
    "gone": "REGISTER DSTREAM <urn:edge:stream:gone> AS SELECT ?s ?v FROM NAMED WINDOW <urn:w> ON <urn:edge:stream:s> "
    "[RANGE PT4S STEP PT4S] NON EMPTY WHERE { WINDOW <urn:w> { ?s <urn:v> ?v } }",
    "hot": "REGISTER ISTREAM <urn:edge:stream:hot> AS CONSTRUCT { ?s <urn:hot> ?v } FROM NAMED WINDOW <urn:w> ON "
    "<urn:edge:stream:s> [RANGE PT6S STEP PT3S] WHERE { WINDOW <urn:w> { ?s <urn:v> ?v FILTER(?v > 2) } }",
    "chained": "REGISTER RSTREAM <urn:edge:stream:chained> AS SELECT * FROM NAMED WINDOW <urn:w> ON "
    "<urn:edge:stream:hot> [ELEMENTS 2 STEP 1] WHERE { WINDOW <urn:w> { ?s <urn:hot> ?v } }",
    "session": "REGISTER RSTREAM <urn:edge:stream:session> AS SELECT (COUNT(*) AS ?n) FROM NAMED WINDOW <urn:w> ON "
    "<urn:edge:stream:s> [SESSION PT3S] WHERE { WINDOW <urn:w> { ?s <urn:v> ?v } }",
}
TURNS = [
    *((now, now, now) for now in (1, 2, 3, 4, 5)),
    (6, None, None),
    (7, 4, 9),  # late, and no report is due
    (8, 8, 6),
    (9, None, None),
    ("pause", "gone", True),
    (13, 13, 7),
    (18, None, None),
    (19, 15, 8),  # late
    (20, 20, 5),
    ("pause", "gone", False),
    (30, None, None),
    (31, 31, 3),
    *((now, None, None) for now in range(33, 60, 3)),
]
"""Time of a turn, and time and value of an element; or a query that pauses, or goes on."""


REASONS = ("database or disk is full", "database is locked", "disk I/O error")


class Ended(BaseException):
    """The process has ended."""


class Faulty(StreamStore):
    """A store that has a fault at one commit."""

    def __init__(self, directory, at=-1, error=None, *, after=False):
        self.count, self.at, self.error, self.after = -1_000, at, error, after
        super().__init__(directory)

    @contextmanager
    def transaction(self):
        is_faulty = self.count == self.at
        self.count += 1
        with super().transaction():
            yield
            if is_faulty and not self.after:
                raise self.error
        if is_faulty:
            raise self.error


class NoLiveData:
    def follow(self, sparql, access, changed, failed):
        return [], lambda: None


class Run:
    """Turns of a processor, as the thread of the service makes them."""

    def __init__(self, directory, at=-1, error=None, *, after=False):
        self.directory = directory
        self.store = Faulty(directory, at, error, after=after)
        self.error = error
        self.after = after
        self.processor = self.make()
        self.faults = 0

    def make(self):
        settings = StreamSettings(max_lateness=8)
        engine = partial(make_engine, EngineSettings())
        return Processor(settings, self.store, engine, NoLiveData(), lambda access: access, Report.body)

    def again(self, now):
        """Start again on the same file."""
        self.processor.close()
        self.store.close()
        self.store = Faulty(self.directory)
        self.processor = self.make()
        self.processor.restore(now)

    def attempt(self, action, now):
        """Run an action. A client repeats a request that was refused."""
        try:
            action()
        except Ended:
            self.faults += 1
            self.again(now)
            if not self.after:
                action()
        except StorageFailed:
            self.faults += 1
            action()

    def prepare(self):
        processor = self.processor
        processor.advance(BEGIN)
        processor.put_stream("s", None, ANYBODY)
        for name, text in QUERIES.items():
            processor.register(name, text, ANYBODY, BEGIN)
        self.store.count = 0

    def all(self):
        self.prepare()
        now = BEGIN
        for first, second, value in TURNS:
            if first == "pause":
                self.attempt(lambda name=second, paused=value: self.processor.pause(name, ANYBODY, paused=paused), now)
                continue
            now = BEGIN + first * SECOND
            self.processor.advance(now)
            if second is not None:
                element = triple(value), BEGIN + second * SECOND
                self.attempt(lambda new=element, at=now: self.add(new, at), now)
            self.processor.advance(now)
            self.attempt(lambda: self.processor.store_reports(), now)
            self.processor.advance(now)
        self.processor.store_reports()
        return {name: [content(row) for row in self.store.reports(name, 0, -1)] for name in QUERIES}

    def add(self, new, now):
        self.processor.advance(now)
        self.processor.add("s", [NewElement(*new)], ANYBODY, now)

    def end(self):
        self.processor.close()
        self.store.close()


def triple(value):
    return (ox.Triple(ox.NamedNode("urn:a"), ox.NamedNode("urn:v"), ox.Literal(value)),)


def content(row):
    text = row.body.decode()
    rows = json.loads(text) if text.startswith("{") else {"lines": text.splitlines()}
    bags = {key: sorted(map(str, each["bindings"])) for key, each in rows.items() if "bindings" in each}
    return row.number, (row.time - BEGIN) // SECOND, row.kind, bags or sorted(map(str, rows.get("lines", ())))


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The reports of a run without faults, and the number of its commits."""
    run = Run(tmp_path_factory.mktemp("expected"))
    try:
        reports, commits = run.all(), run.store.count
    finally:
        run.end()
    for rows in reports.values():
        assert [row[0] for row in rows] == list(range(1, len(rows) + 1))
        assert rows
    assert any(row[2] == "select-correction" for row in reports["average"])
    return reports, commits


@pytest.fixture(autouse=True)
def quiet():
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_restart_at_any_commit_changes_no_report(expected, tmp_path, after):
    reports, commits = expected
    for at in range(int(after), commits, 2):
        directory = tmp_path / str(at)
        directory.mkdir()
        run = Run(directory, at, Ended(), after=after)
        try:
            found = run.all()
            assert run.faults == 1, f"commit {at}"
            for name in QUERIES:
                assert found[name] == reports[name], f"{name}, commit {at}"
        finally:
            run.end()


def test_a_failed_commit_loses_nothing_and_adds_nothing(expected, tmp_path):
    reports, commits = expected
    for at in range(commits):
        reason = REASONS[at % len(REASONS)]
        directory = tmp_path / str(at)
        directory.mkdir()
        run = Run(directory, at, sqlite3.OperationalError(reason))
        try:
            found = run.all()
            assert run.faults == 1, f"commit {at}"
            for name in QUERIES:
                assert found[name] == reports[name], f"{name}, commit {at}"
            before = state(run.processor)
            run.again(run.processor.time)
            assert state(run.processor) == before, f"commit {at}"
        finally:
            run.end()


def test_elements_that_were_refused_are_not_in_windows(tmp_path):
    run = Run(tmp_path)
    run.prepare()
    run.store.at, run.store.error = 0, sqlite3.OperationalError("database or disk is full")
    with pytest.raises(StorageFailed):
        run.processor.add("s", [NewElement(triple(1), BEGIN)], ANYBODY, BEGIN)
    run.processor.advance(BEGIN + 3 * SECOND)
    assert [report.rows for report in run.processor.store_reports() if report.query == "average"] == [
        ((ox.Literal("0", datatype=ox.NamedNode("http://www.w3.org/2001/XMLSchema#integer")),),)
    ]
    run.end()


def state(processor):
    """What memory has of streams, windows and queries."""
    return {
        "streams": [
            (stream.iri, sorted(element.number for element in stream.elements)) for stream in streams(processor)
        ],
        "queries": sorted(
            (query.name, query.number, query.state, [sorted(e.number for e in w.window.content) for w in query.windows])
            for query in processor.all_queries()
        ),
    }


def streams(processor):
    return sorted(processor.streams(ANYBODY), key=lambda stream: stream.iri)
