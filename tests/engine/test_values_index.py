"""Long VALUES are indexed on the compile thread, so that no update waits for an index."""

from __future__ import annotations

import threading
from collections import Counter

import pytest
from scheduler_harness import WAIT, Client, Harness, evaluated

from edge.engine.operators.values_index import ValuesIndex

ROWS = 2_000
ONE = f"VALUES ?s {{ {' '.join(f'<a:s{number}>' for number in range(ROWS))} }}"
TWO = f"VALUES (?s ?o) {{ {' '.join(f'(<a:s{number}> {number})' for number in range(ROWS))} }}"
LABELS = f"VALUES (?s ?l) {{ {' '.join(f'(<a:s{number}> {number})' for number in range(ROWS))} }}"
PARTIAL = f"VALUES (?s ?l) {{ (UNDEF 'any') {' '.join(f'(<a:s{number}> UNDEF)' for number in range(ROWS))} }}"
PATTERNS = {
    "one column": f"{ONE} ?s <a:p> ?o",
    "two columns of one pattern": f"{TWO} ?s <a:p> ?o",
    "two columns of two patterns": f"{TWO} ?s <a:q> ?x . ?y <a:p> ?o",
    "a column of its own": f"{LABELS} ?s <a:p> ?o",
    "UNDEF": f"{PARTIAL} ?s <a:p> ?o",
    "several patterns": f"{ONE} ?s <a:p> ?o ; <a:q> ?x",
    "OPTIONAL": f"?s <a:p> ?o OPTIONAL {{ {LABELS} }}",
    "OPTIONAL with a pattern": f"?s <a:p> ?o OPTIONAL {{ ?s <a:q> ?x {LABELS} }}",
    "MINUS": f"?s <a:p> ?o MINUS {{ {ONE} }}",
    "EXISTS": f"?s <a:p> ?o FILTER EXISTS {{ ?s <a:q> ?x {LABELS.replace('?s', '?x')} }}",
    "UNION": f"{{ {ONE} ?s <a:p> ?o }} UNION {{ ?s <a:q> ?o {ONE} }}",
    "a sub-query": f"?s <a:p> ?o {{ SELECT ?s (COUNT(*) AS ?n) {{ {ONE} ?s <a:q> ?x }} GROUP BY ?s }}",
}


@pytest.fixture
def indexed(monkeypatch):
    """Return the number of indexed rows, by the name of the thread."""
    rows: Counter[str] = Counter()
    build = ValuesIndex._indexed

    def counted(table, *arguments):
        rows[threading.current_thread().name] += len(table._rows)
        return build(table, *arguments)

    monkeypatch.setattr(ValuesIndex, "_indexed", counted)
    return rows


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS.keys())
def test_the_writer_builds_no_index_of_a_long_list(indexed, pattern):
    harness = Harness()
    try:
        harness.update(" ; ".join(f"INSERT DATA {{ <a:s{number}> <a:p> {number} }}" for number in range(20)))
        client = Client(harness, f"SELECT * {{ {pattern} }}")
        client.future.result(WAIT)
        harness.update("INSERT DATA { <a:s3> <a:q> 5 . <a:s3> <a:p> 4 }")
        harness.update("DELETE DATA { <a:s3> <a:p> 3 }")
        harness.update("INSERT DATA { <a:s4> <a:q> 5 }")
        harness.update("DELETE DATA { <a:s3> <a:q> 5 }")
        evaluated(harness.scheduler)
        assert client.items
        assert indexed["writer"] == 0, indexed
        assert indexed, "it is indexed elsewhere"
    finally:
        assert harness.scheduler.close(WAIT)


def test_an_update_with_a_long_list_finds_its_index(indexed):
    harness = Harness()
    try:
        harness.update("INSERT DATA { <a:s3> <a:p> 3 . <a:other> <a:p> 4 }")
        long = "VALUES ?s { " + " ".join(f"<a:s{number}>" for number in range(5_000)) + " }"
        (outcome,) = harness.update(f"INSERT {{ ?s <a:found> ?o }} WHERE {{ ?s <a:p> ?o {long} }}")
        assert outcome.added == 1
        assert indexed["writer"] == 0, indexed
    finally:
        assert harness.scheduler.close(WAIT)
