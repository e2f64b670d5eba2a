"""Elements and counts that no window and no correction needs any more, which leave the store and the memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from edge.streams.model import WindowDefinition, WindowKind
from edge.streams.processor.registered_queries import RegisteredQueries
from edge.streams.processor.registered_streams import RegisteredStreams
from edge.streams.processor.window_users import WindowUsers
from edge.streams.running_query import RunningQuery
from edge.streams.store import StreamStore
from edge.streams.stream import Stream
from edge.streams.window_graph import WindowGraph

_ALL: Final = -(2**62)
"""A time before all elements."""


class Cleaning(NamedTuple):
    """What can be removed from the store."""

    unneeded: dict[Stream, list[int]]
    """Numbers of elements."""
    counting: list[tuple[WindowGraph, int]]
    """Windows that begin to count at a later element."""
    marked: list[RunningQuery]
    """Queries with another first mark."""
    is_done: bool
    """Whether that is all: otherwise the next cleaning goes on."""

    def store(self, store: StreamStore) -> None:
        """Remove it from the store, in a transaction of the caller; `finish` follows it."""
        for stream, numbers in self.unneeded.items():
            store.remove(stream.id, numbers)
        for window, first in self.counting:
            store.put_window(window.key, window.begin, first)
        for query in self.marked:
            store.set_since(query.name, query.marks[0].time)

    def finish(self) -> None:
        """Remove it from the memory."""
        for stream, numbers in self.unneeded.items():
            stream.forget(numbers)
        for window, first in self.counting:
            window.first = first
        for query in self.marked:
            query.since = query.marks[0].time


NOTHING: Final = Cleaning({}, [], [], is_done=True)
_MOST: Final = 2_000
"""Elements of one cleaning. 50,000 in one transaction held up all requests for 0.2 s."""


def cleaning(streams: RegisteredStreams, queries: RegisteredQueries, users: WindowUsers, time: int) -> Cleaning:
    """Return what can be removed at a time, in microseconds."""
    marked = []
    for query in queries.all():
        if query.lateness and not query.is_subscription:
            query.forget_marks(time - query.lateness)
            if query.marks[0].time != query.since:
                marked.append(query)
    awaited = streams.awaited()
    unneeded: dict[Stream, list[int]] = {}
    room, is_done = _MOST, True
    for stream in streams.by_iri.values():
        needed, late = _needed_from(stream, users, time), awaited.get(stream.iri)
        if late is not None:
            earliest = _awaited_from(stream, late, time)
            needed = earliest if needed is None else min(needed, earliest)
        numbers = stream.unneeded(needed)
        unneeded[stream] = numbers[:room]
        is_done = is_done and len(numbers) <= room
        room -= len(unneeded[stream])
    counting = [
        (window, first)
        for window in users.windows
        if (first := window.needed_number()) is not None and first != window.first
    ]
    return Cleaning({stream: numbers for stream, numbers in unneeded.items() if numbers}, counting, marked, is_done)


def _awaited_from(stream: Stream, late: Sequence[WindowDefinition], time: int) -> int:
    """Return the time of the first element that windows need which have not begun since the start.

    Time windows begin with the content of their last slide. Without a limit, late queries could hold elements until all
    streams are full. Other windows and corrections can need any element.
    """
    if stream.lateness or any(each.kind is not WindowKind.TIME for each in late):
        return _ALL
    return min(time - each.size - max(each.step, each.period) for each in late)


def _needed_from(stream: Stream, users: WindowUsers, time: int) -> int | None:
    """Return the time of the first element that windows of time and corrections need; None: no element."""
    if not stream.lateness:
        return min((begin for each in stream.windows if (begin := each.needed_from()) is not None), default=None)
    earliest: list[int] = []
    for query in users.of_stream(stream):
        needed = query.earliest(time) if query.is_subscription else query.marks[0].earliest
        if needed is None:
            return _ALL
        if stream.iri in needed:
            earliest.append(needed[stream.iri])
    return min(earliest, default=None)
