"""Queries at their begin and end: their windows, their live data, and their subscription on the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edge.engine.requests import Delta
from edge.protocol.errors import EdgeError, InvalidRequest
from edge.streams.live_data import LiveData, live_patterns
from edge.streams.model import WindowDefinition
from edge.streams.observations import OBSERVATIONS
from edge.streams.pattern_constants import constants_of
from edge.streams.processor.observation_source import ObservationSource
from edge.streams.processor.registered_streams import RegisteredStreams
from edge.streams.processor.window_begin import begin_window
from edge.streams.processor.window_clock import WindowClock
from edge.streams.processor.window_users import WindowUsers
from edge.streams.running_query import Mark, RunningQuery
from edge.streams.store import StreamStore
from edge.streams.stream import Stream
from edge.streams.window_engine import WindowEngine
from edge.streams.window_graph import WindowGraph, window_key


class QueryWindows:
    """Begins and ends queries."""

    def __init__(
        self,
        store: StreamStore,
        engine: WindowEngine,
        live: LiveData,
        streams: RegisteredStreams,
        users: WindowUsers,
        source: ObservationSource,
        clock: WindowClock,
    ) -> None:
        self._store = store
        self._engine = engine
        self._live = live
        self._streams = streams
        self._users = users
        self._source = source
        self._clock = clock

    def begin(self, query: RunningQuery, begins: Mapping[str, tuple[int, int]] | None) -> Delta:
        """Start a query, and return its first result.

        `begins`: begins of windows in an earlier process; None: the query is new.

        Raises `EdgeError`; then it has no effect.
        """
        patterns = live_patterns(query.query)
        self._live.add(patterns, query.access)
        try:
            query.patterns = patterns
            query.constants = constants_of(query.query)
            for each in query.query.windows:
                window = self._use(each.definition, begins, query.begun)
                self._users.add(window, query)
                query.windows += (window,)
            query.spuid = query.subscribe(self._engine, [window.graph.value for window in query.windows], query.sink)
            query.lateness = self._streams.lateness_of(query)
            if begins is None:
                query.marks[0] = Mark(query.begun, query.earliest(query.begun))
                return query.settle()
            self._store_begins([window for window in query.windows if window.key not in begins])
            return query.resume(self._store.result(query.name))
        except BaseException:
            self.end(query)
            raise

    def end(self, query: RunningQuery) -> None:
        """End a query, also one that has failed or has begun in part."""
        self._engine.unsubscribe(query.spuid)
        query.spuid = ""
        self._release(query)

    def asks_live_graph(self, query: RunningQuery) -> bool:
        """Return whether the begin of a query can wait for an answer of the live graph."""
        if any(window.definition.stream == OBSERVATIONS for window in query.query.windows):
            return True
        try:
            return bool(live_patterns(query.query))
        except EdgeError:
            return False  # `begin` raises it

    def depends_on_slide(self, query: RunningQuery) -> bool:
        """Return whether a new query needs the results of a slide in progress, so that it has to begin after it.

        - Live data that the query needs would enter the reports of the slide.
        - The graphs of reports that are not durable are numbered again after a crash, as elements that come later.
        - ISTREAM and DSTREAM compare with the result at the begin, which is that of a part of the slide.
        """
        streams = [self._streams.by_iri[window.definition.stream] for window in query.query.windows]
        if self.asks_live_graph(query) or any(stream.query for stream in streams):
            return True
        return query.compares and any(self._engine.find(each.definition) is not None for each in query.query.windows)

    def live_failures(self, query: RunningQuery) -> list[str]:
        """Return the live data of a query that do not change any more, with the reasons."""
        found = self._live.failures(query.patterns, query.access)
        if self._source.failure and any(each.definition.stream == OBSERVATIONS for each in query.windows):
            found.append(f"{OBSERVATIONS}: {self._source.failure}")
        return found

    def _use(
        self, definition: WindowDefinition, begins: Mapping[str, tuple[int, int]] | None, begun: int
    ) -> WindowGraph:
        """Return the window with a definition. A new one begins with its query, or where it was in an earlier process.

        `begins`: see `begin`. `begun`: time at which the query began; during a slide, it is after that of the slide.
        """
        stream = self._streams.by_iri.get(definition.stream)
        if stream is None:
            raise InvalidRequest(f"The stream {definition.stream} is not registered any more")
        if stream.iri == OBSERVATIONS:
            self._follow(stream)  # first: it can fail. Also for a window in use, which may not be followed any more
        window = self._engine.find(definition)
        if window is not None:
            return window

        now = self._clock.time if begins is not None else max(self._clock.time, begun)
        begins = begins or {}
        if stream.iri == OBSERVATIONS and window_key(definition) not in begins:
            begins = self._source.fill(stream, definition)

        def make(number: int) -> WindowGraph:
            return begin_window(definition, stream, number, begins, now)

        window = self._engine.add(make)
        stream.windows[window] = None
        stream.needed_again()
        self._engine.change(*window.move(window.window.content, ()))
        self._engine.schedule(window)
        return window

    def _follow(self, stream: Stream) -> None:
        failure = self._source.failure
        try:
            self._source.follow(stream)
        except BaseException:
            self._source.failure = failure  # for the queries that have a window already
            raise

    def _store_begins(self, windows: Sequence[WindowGraph]) -> None:
        """Store the begins of windows that begin again, because the window origin is another one."""
        if windows:
            with self._store.transaction():
                for window in windows:
                    self._store.put_window(window.key, window.begin, window.first)

    def _release(self, query: RunningQuery) -> None:
        for window in dict.fromkeys(query.windows):
            if self._users.remove(window, query):
                del self._streams.by_iri[window.definition.stream].windows[window]
                self._engine.remove(window)
        observations = self._streams.by_iri.get(OBSERVATIONS)
        if observations is not None and OBSERVATIONS not in self._streams.awaited():
            self._source.release(observations)  # which removes all elements
        self._live.remove(query.patterns, query.access)
        query.windows, query.patterns = (), ()
