"""Elements that came too late for the reports: the newest ones of each stream are kept."""

from __future__ import annotations

from functools import partial

import pyoxigraph as ox
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.engine.settings import EngineSettings
from edge.engine.start import make_engine
from edge.protocol.access import ANYBODY
from edge.protocol.errors import StorageFailed
from edge.streams.processor import NewElement, Processor
from edge.streams.settings import StreamSettings
from edge.streams.store import LATE_OVERHEAD, StreamStore
from edge.streams.stored_rows import LateElement

SIZE = 28 + LATE_OVERHEAD


@pytest.fixture
def store(tmp_path):
    store = StreamStore(tmp_path)
    for name in ("urn:a", "urn:b"):
        store.put_stream(name, "", 0, "")
    yield store
    store.close()


def add(store, stream, *numbers, most=4 * SIZE):
    with store.transaction():
        store.add_late(stream, [LateElement(number, 1, 2, b"x" * 28) for number in numbers], most)


def kept(store, stream):
    return [element.number for element in store.late(stream)]


def counted(store):
    return [stream.too_late for stream in store.streams()]


def test_the_newest_elements_of_each_stream_are_kept_and_all_are_counted(store):
    for number in range(1, 8):
        add(store, 1, number)
    add(store, 2, 3, 9)
    assert (kept(store, 1), kept(store, 2), counted(store)) == ([4, 5, 6, 7], [3, 9], [7, 2])
    assert store.late(2)[0] == LateElement(3, 1, 2, b"x" * 28)
    add(store, 1, *range(8, 20))
    assert (kept(store, 1), counted(store)) == ([16, 17, 18, 19], [19, 2])


def test_of_a_large_element_number_and_times_are_kept_next_to_the_others(store):
    add(store, 1, 1, 2)
    with store.transaction():
        store.add_late(1, [LateElement(3, 5, 6, b"x" * 10 * SIZE)], 4 * SIZE)
    assert [each.graph for each in store.late(1)] == [b"x" * 28, b"x" * 28, None]
    assert store.late(1)[-1] == LateElement(3, 5, 6, None)


def test_adding_an_element_reads_only_those_that_it_replaces(store):
    add(store, 1, *range(1, 5))
    read = []
    store._connection.set_trace_callback(read.append)
    add(store, 1, 5, most=5 * SIZE)
    assert not [each for each in read if each.startswith("SELECT")]
    store._connection.set_trace_callback(None)


def test_a_failed_transaction_does_not_count(store):
    add(store, 1, 1, 2)
    with pytest.raises(StorageFailed):
        add(store, 1, 3, 3)
    add(store, 1, 4, 5)
    assert kept(store, 1) == [1, 2, 4, 5]


def test_without_bytes_elements_are_counted_only(store):
    add(store, 1, 1, 2, most=0)
    assert (kept(store, 1), counted(store)) == ([], [2, 0])


def test_elements_end_with_their_stream(store):
    add(store, 1, 1)
    add(store, 2, 1)
    store.drop_stream(1)
    assert (kept(store, 1), kept(store, 2)) == ([], [1])


# The processor

SECOND = 1_000_000
BEGIN = 1_000_000 * SECOND
WINDOWS = [
    f"{window}{report}"
    for window in ("[RANGE PT6S STEP PT2S]", "[RANGE PT2S STEP PT3S]", "[SESSION PT3S]", '[LANDMARK "{}" STEP PT3S]')
    for report in ("", " NON EMPTY", " ON CHANGE", " EVERY PT4S")
    # There, reports may lack an element because another one is late: the session would have been open for longer.
    if not (window.startswith("[SESSION") and "EVERY" in report)
]


class NoLiveData:
    def follow(self, sparql, access, changed, failed):
        return [], lambda: None


def reported(lateness, windows, arrivals):
    """Return the values in the reports of each window, and the values that came too late. `arrivals`: (time, now)."""
    engine = partial(make_engine, EngineSettings())
    settings = StreamSettings(max_lateness=lateness)
    processor = Processor(settings, StreamStore(None), engine, NoLiveData(), lambda access: access)
    processor.advance(BEGIN)
    processor.put_stream("s", None, ANYBODY)
    for number, window in enumerate(windows):
        source = f"FROM NAMED WINDOW <urn:w> ON <urn:edge:stream:s> {window.format('1970-01-12T13:46:41Z')}"
        text = f"REGISTER RSTREAM <urn:q{number}> AS SELECT ?v {source} WHERE {{ WINDOW <urn:w> {{ ?s <urn:v> ?v }} }}"
        processor.register(f"urn:q{number}", text, ANYBODY, BEGIN)
    for value, (time, now) in arrivals:
        processor.advance(BEGIN + now * SECOND)
        triples = (ox.Triple(ox.NamedNode("urn:s"), ox.NamedNode("urn:v"), ox.Literal(value)),)
        processor.add("s", [NewElement(triples, BEGIN + time * SECOND)], ANYBODY, BEGIN + now * SECOND)
    processor.advance(BEGIN + 90 * SECOND)
    found = {f"urn:q{number}": set() for number in range(len(windows))}
    for report in processor.store_reports():
        found[report.query] |= {int(row[0].value) for row in report.rows}
    late = {int(each.graph.split(b'"')[1]) for each in processor.late("s", ANYBODY)}
    assert processor.stream("s", ANYBODY).too_late == len(late)
    processor.close()
    return found, late


@given(
    st.sampled_from([0, 0, 4, 12]),
    st.lists(st.sampled_from(WINDOWS), min_size=1, max_size=2, unique=True),
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5)), min_size=1, max_size=8),
)
def test_a_late_element_that_no_report_gets_is_kept(lateness, windows, pauses):
    now, arrivals = 0, []
    for delay, pause in pauses:
        now += pause
        arrivals.append((max(now - delay, 1), now))
    found, late = reported(lateness, windows, list(enumerate(arrivals)))
    in_time = sorted(((time, time), value) for value, (time, _) in enumerate(arrivals))
    wanted, none = reported(lateness, windows, [(value, times) for times, value in in_time])
    assert not none
    for query, values in wanted.items():
        assert values - found[query] <= late, query
