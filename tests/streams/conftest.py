"""Stores in memory, which end with their test."""

from __future__ import annotations

import pytest

from edge.streams.store import StreamStore


@pytest.fixture(autouse=True)
def _stores_in_memory_are_closed():
    """Close what processors of a test leave open. Python 3.13 warns about each open database that is collected."""
    opened = []
    begin = StreamStore.__init__

    def opened_in_memory(store, directory):
        begin(store, directory)
        if directory is None:
            opened.append(store)

    # Not with the fixture, whose changes a test may undo.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StreamStore, "__init__", opened_in_memory)
        yield
    for store in opened:
        store.close()
