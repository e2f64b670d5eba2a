"""The engines of the windows: engines in memory, in which each window is a named graph.

Clients with different permissions see different live data. So there is one engine for each set of readable graphs that
queries need, and all of them have the same windows.
"""

from __future__ import annotations

import contextlib
import heapq
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import count
from typing import Final

import pyoxigraph as ox

from edge.engine.engine import Engine
from edge.engine.requests import QueryRequest, Sink
from edge.engine.store.changes import ChangeSet
from edge.engine.subscriptions.explanation import Explanation
from edge.protocol.errors import NotFound
from edge.streams.live_data import Readers
from edge.streams.model import WindowDefinition
from edge.streams.slide_pieces import Move, SlidePieces
from edge.streams.window_graph import WindowGraph

_LARGEST_PIECE: Final = 1_000
"""Triples of a piece of a slide at most."""
_FIRST_PIECE: Final = 50
"""Triples of the first piece: each of them may concern all queries."""
_PIECE_STEPS: Final = 50_000
"""Steps of a piece, about: evaluations of a triple for a query. A request that needs the engine waits for them."""
_SMALLEST_PIECE: Final = 20
"""Triples of a piece that takes more steps. With fewer of them, the notifications of the queries take most time."""
_PART_STEPS: Final = 4_000
"""Steps of a part of a piece, about."""
_ORDERED: Final = 8
"""Elements whose ordering takes as long as a triple."""
_STEPS: Final = 5
"""Steps that take as long as a triple or a report."""


class WindowEngine:
    """Windows in use, in the order of their next slides."""

    def __init__(self, make: Callable[[], Engine]) -> None:
        """`make` returns a new engine."""
        self._make = make
        self._engines: dict[Readers, Engine] = {}
        self._subscriptions: dict[str, Readers] = {}
        self._users: Counter[Readers] = Counter()
        """Of each engine: its subscriptions, and the quads of live data in it."""
        self._windows: dict[WindowDefinition, WindowGraph] = {}
        self._due: list[tuple[int, int, WindowGraph]] = []
        self._numbers = count(1)
        self._entries = count()
        self._piece = _FIRST_PIECE
        """Triples of the next piece of a slide: fewer, if each of them concerns many queries."""
        self._parts: Iterator[int] = iter(())
        """Parts of the present piece that are not evaluated. All engines have its triples already."""
        self._steps = 0
        """Steps of the parts that are."""
        self._is_unsettled = False
        """Whether a change has left queries without delta rules to a later one."""
        self.time = 0
        """Time of the last change, in microseconds since 1970."""

    def find(self, definition: WindowDefinition) -> WindowGraph | None:
        """Return the window with this definition, if a query uses it."""
        return self._windows.get(definition)

    def add(self, make: Callable[[int], WindowGraph]) -> WindowGraph:
        """Add a window. `make`: gets a unique number."""
        window = make(next(self._numbers))
        self._windows[window.definition] = window
        return window

    def remove(self, window: WindowGraph) -> None:
        """Remove a window that no query uses."""
        del self._windows[window.definition]
        self._due = [entry for entry in self._due if entry[2] is not window]
        heapq.heapify(self._due)
        self._finish()
        self.change((), window.empty(), settle=not self._is_unsettled)

    def schedule(self, window: WindowGraph) -> None:
        """Note when a window slides next. Call this when it has taken elements or has slid."""
        due = window.window.due()
        if due is not None and due != window.scheduled:
            window.scheduled = due
            heapq.heappush(self._due, (due, next(self._entries), window))

    def due(self) -> int | None:
        """Return the time of the next slide; None if there is none."""
        # A window that was scheduled again has outdated entries: a heap cannot remove them from its middle.
        while self._due and self._due[0][0] != self._due[0][2].scheduled:
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else None

    def slide(self, time: int) -> Generator[int, None, list[WindowGraph]]:
        """Let each window slide once that is due at `time`. Return those that report.

        A window of counts may then be due again at this time: each of its slides has a report.

        A slide of many elements changes the graphs in pieces, which are evaluated in parts. This yields the work of
        each part: 1 for each triple that changes, and 1 for `_STEPS` steps of the engine.
        """
        moves: list[Move] = []
        reporting: list[WindowGraph] = []
        slid: set[WindowGraph] = set()
        while (due := self.due()) is not None and due <= time and self._due[0][2] not in slid:
            window = heapq.heappop(self._due)[2]
            slid.add(window)
            window.scheduled = None
            slide = window.slide(time)
            if slide is not None:
                moves.append(Move(window, slide.entering, slide.leaving))
                if slide.report:
                    reporting.append(window)
            self.schedule(window)
        self.time = max(self.time, time)
        # One change for all windows, so that a query over several of them is evaluated once.
        # The elements of the last slide may have concerned fewer queries.
        self._piece = min(self._piece, _FIRST_PIECE, _LARGEST_PIECE)
        pieces = SlidePieces(moves, self._piece)
        if pieces.is_large:
            for ordered in pieces.order():
                yield ordered // _ORDERED
        in_turn = 0
        while not pieces.is_done:
            size, moved = pieces.take(min(self._piece, _LARGEST_PIECE - in_turn))
            in_turn = (in_turn + size) % _LARGEST_PIECE
            self._parts = parts = self._evaluated(*self._moved(moved), settle=pieces.is_done)
            self._steps, work = 0, size
            for each in parts:
                yield work + max(each // _STEPS, 1)
                work = 0
            yield work
            if size:
                wanted = max(size * _PIECE_STEPS // max(self._steps, 1), _SMALLEST_PIECE)
                self._piece = min(wanted, 2 * self._piece, _LARGEST_PIECE)
        return reporting

    def _moved(self, moves: Iterable[Move]) -> tuple[list[ox.Quad], list[ox.Quad]]:
        """Let the windows have the elements of a piece. Returns the added quads, and the removed ones."""
        added: list[ox.Quad] = []
        removed: list[ox.Quad] = []
        for window, entering, leaving in moves:
            if self._windows.get(window.definition) is not window:
                continue  # its last query has ended during the slide
            came, went = window.move(entering, leaving)
            added += came
            removed += went
        return added, removed

    def change(self, added: Iterable[ox.Quad], removed: Iterable[ox.Quad], *, settle: bool = True) -> None:
        """Change the windows, and notify the queries. The quads are not there yet, or are there, respectively.

        `settle`: see `Engine.replay_in_parts`.
        """
        self._finish()
        for _ in self._evaluated(added, removed, settle=settle):
            pass

    def _evaluated(self, added: Iterable[ox.Quad], removed: Iterable[ox.Quad], *, settle: bool) -> Iterator[int]:
        """Change the windows, and notify the queries part by part. Yields the steps of each part."""
        changes = ChangeSet(tuple(added), tuple(removed))
        if not changes and not (settle and self._is_unsettled):
            return
        self._is_unsettled = not settle
        for engine in self._engines.values():
            for steps in engine.replay_in_parts(changes, self.time, _PART_STEPS, settle=settle):
                self._steps += steps
                yield steps

    def _finish(self) -> None:
        """Evaluate what is left of the present piece of a slide, before something else uses the engines."""
        for _ in self._parts:
            pass

    def change_for(self, readers: Readers, added: Sequence[ox.Quad], removed: Sequence[ox.Quad]) -> None:
        """Change the live data that only the queries of some clients see, as `change` does."""
        self._finish()
        changes = ChangeSet(added, removed)
        if changes:
            self._engine(readers).replay(changes, self.time)
            self._users[readers] += len(added) - len(removed)
            self._drop_unused(readers)

    def subscribe(self, readers: Readers, request: QueryRequest, sink: Sink) -> str:
        """Subscribe to a query. Returns its id. Raises `EdgeError`."""
        self._finish()
        engine = self._engine(readers)
        self._users[readers] += 1
        try:
            spuid = engine.subscribe(request, sink, None, self.time).spuid
        except BaseException:
            self._users[readers] -= 1
            self._drop_unused(readers)
            raise
        self._subscriptions[spuid] = readers
        return spuid

    def explain(self, readers: Readers, request: QueryRequest) -> Explanation:
        """Explain how a query is, or would be, evaluated. Raises `EdgeError`."""
        self._finish()
        try:
            return self._engine(readers).explain(request)
        finally:
            self._drop_unused(readers)

    def unsubscribe(self, spuid: str) -> None:
        """End a subscription. Does nothing if it has ended."""
        if spuid not in self._subscriptions:
            return
        self._finish()
        readers = self._subscriptions.pop(spuid)
        with contextlib.suppress(NotFound):  # it failed, which has ended it
            self._engines[readers].unsubscribe(spuid)
        self._users[readers] -= 1
        self._drop_unused(readers)

    def close(self) -> None:
        """Release the engines."""
        for engine in self._engines.values():
            engine.close()

    def _drop_unused(self, readers: Readers) -> None:
        """Release an engine without queries and live data: each element would be copied into it."""
        if not self._users[readers]:
            del self._users[readers]
            self._engines.pop(readers).close()

    def _engine(self, readers: Readers) -> Engine:
        engine = self._engines.get(readers)
        if engine is None:
            engine = self._engines[readers] = self._make()
            # A new engine starts with the content that the engines of other readers have received one by one.
            quads = tuple(quad for window in self._windows.values() for quad in window.quads())
            if quads:
                engine.replay(ChangeSet(quads), self.time)
        return engine
