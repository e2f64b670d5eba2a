"""The reports in the store are those of a simple model after any changes, failed transactions and restarts.

They take little memory, and few statements.
"""

from __future__ import annotations

import sqlite3
import tracemalloc
from contextlib import closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.protocol.errors import StorageFailed
from edge.streams.store import LAST, StreamStore
from edge.streams.stored_rows import ReportRow

QUERIES = ("a", "b")
CHANGE = st.tuples(st.sampled_from(("report", "drop", "replace")), st.sampled_from(QUERIES), st.integers(0, 12))
STEP = st.one_of(
    st.tuples(st.lists(CHANGE, max_size=6), st.booleans()),
    st.just("restart"),
)


class Failed(Exception):
    """The end of a transaction that fails."""


def change(store, model, last, kind, query, number):
    """Change the store and the model alike."""
    reports = model[query]
    if kind == "report":
        last[query] += 1
        row = ReportRow(last[query], number, "rows", 1, b"x" * number)
        store.report(query, row)
        reports.append(row)
    elif kind == "drop":
        store.drop_reports(query, number)
        reports[:] = [row for row in reports if row.number > number]
    else:
        merged = [row._replace(merged=2) for row in reports if row.number < number][-2:]
        store.replace_reports(query, merged, number)
        reports[:] = merged + [row for row in reports if row.number >= number]


def check(store, model):
    for query in QUERIES:
        assert store.reports(query, 0, -1) == model[query]
        for after, before in ((3, LAST), (0, 5), (2, 6)):
            found = [row for row in model[query] if after < row.number < before]
            assert store.reports(query, after, -1, before) == found
            assert store.reports(query, after, 2, before) == found[:2]
        assert store.report_bytes(query, 7) == sum(len(row.body) + 7 for row in model[query])


@given(st.lists(STEP, max_size=12))
def test_reports_are_those_of_a_model(steps):
    with TemporaryDirectory() as directory:
        store, model, last = StreamStore(Path(directory)), {query: [] for query in QUERIES}, dict.fromkeys(QUERIES, 0)
        for step in steps:
            if step == "restart":
                store.close()
                store = StreamStore(Path(directory))
            else:
                changes, fails = step
                changed, numbers = {query: list(rows) for query, rows in model.items()}, dict(last)
                with suppress(Failed), store.transaction():
                    for each in changes:
                        change(store, changed, numbers, *each)
                    if fails:
                        raise Failed
                if not fails:
                    model, last = changed, numbers
            check(store, model)
        with closing(store), store.transaction():
            store.drop_query("a")
            assert store.reports("a", 0, -1) == []


def test_the_start_needs_little_memory_for_each_report(tmp_path):
    count = 5_000
    with closing(StreamStore(tmp_path)) as store, store.transaction():
        for number in range(1, count + 1):
            store.report("a", ReportRow(number, 1, "rows", 1, b"x"))
    tracemalloc.start()
    try:
        with closing(StreamStore(tmp_path)):
            _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 60 * count


def test_reports_are_read_with_few_statements(tmp_path, monkeypatch):
    statements, original = [], sqlite3.connect

    def connect(*arguments, **options):
        connection = original(*arguments, **options)
        connection.set_trace_callback(statements.append)
        return connection

    monkeypatch.setattr(sqlite3, "connect", connect)
    with closing(StreamStore(tmp_path)) as store:
        with store.transaction():
            rows = [ReportRow(number, 1, "rows", 1, b"%d" % number) for number in range(1, 1_202)]
            for row in rows:
                store.report("a", row)
        statements.clear()
        assert store.reports("a", 0, -1) == rows
        assert len(statements) <= 3


def test_a_report_with_a_number_that_exists_is_refused():
    first = ReportRow(7, 1, "rows", 1, b"first")
    with closing(StreamStore(None)) as store:
        with store.transaction():
            store.report("a", first)
        for number in (6, 7):
            with (
                pytest.raises(StorageFailed, match=f"report 7 of a, and cannot store {number}"),
                store.transaction(),
            ):
                store.report("a", first._replace(number=number))
        assert store.reports("a", 0, -1) == [first]


def test_removed_reports_leave_no_memory_after_the_transaction():
    count = 20_000
    with closing(StreamStore(None)) as store:
        tracemalloc.start()
        try:
            with store.transaction():
                for number in range(1, count + 1):
                    store.report("a", ReportRow(number, 1, "rows", 1, b""))
            with store.transaction():
                store.drop_query("a")
            used, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert used < 12 * count
