"""Elements that came too late for the reports: the newest ones of each stream are kept."""

from __future__ import annotations

import pytest

from edge.protocol.errors import StorageFailed
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
