"""The processor of RDF streams: streams, windows, and continuous queries on an engine of its own.

It has no threads, no sockets and no clock. All methods are called on one thread, with the time as an argument, in
microseconds since 1970. What a method returns is durable, except reports: `store_reports` makes them so.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

import pyoxigraph as ox

from edge.engine.engine import Engine
from edge.engine.requests import Delta
from edge.engine.store.terms import problem
from edge.engine.subscriptions.explanation import Explanation
from edge.protocol.access import DEFAULT_GRAPH, Access
from edge.protocol.errors import EdgeError, Forbidden, InvalidRequest, NotFound, NotReady, TooLarge, TooManyRequests
from edge.streams.corrections import Late, corrections
from edge.streams.language import describe, parse
from edge.streams.live_data import LiveData, LiveGraph, live_patterns
from edge.streams.model import ContinuousQuery, Element, Kind, WindowDefinition
from edge.streams.model import Report as Policy
from edge.streams.names import check_name, stream_iri
from edge.streams.observations import OBSERVATIONS, Elements, Observations
from edge.streams.report import Report
from edge.streams.running_query import Mark, RunningQuery
from edge.streams.settings import StreamSettings
from edge.streams.store import TO_CORRECT, ReportRow, StoredElement, StoredQuery, StreamStore, serialized
from edge.streams.stream import Stream
from edge.streams.window_engine import WindowEngine
from edge.streams.window_graph import GRAPHS, WindowGraph, distance, ends_sessions, has_slid, is_aligned, window_key
from edge.streams.windows import affected, make_window

_log = logging.getLogger(__name__)
_SECOND: Final = 1_000_000
_PAUSE: Final = 60 * _SECOND
"""Time without a turn after which reports of windows that stayed empty are left out."""


_MANY: Final = 1_000
"""Slides and reports after which a turn ends: requests come before the next turn. After so many slides, reports of
windows that stayed empty are left out, too: the clock has jumped."""
_BEHIND: Final = 10 * _SECOND
"""Time by which a clock that was set back is not worth a message."""
_ALL: Final = -(2**62)
"""A time before all elements."""
_NAMED: Final = 5
"""Queries that an error message names."""
_CLEANING: Final = 10 * _SECOND
"""Time between two removals of elements that no window needs."""


class NewElement(NamedTuple):
    """An element as a client sends it."""

    triples: tuple[ox.Triple, ...]
    time: int | None = None
    """Application time; None: the time of its arrival."""


class Accepted(NamedTuple):
    """What became of the elements of a request."""

    elements: int
    late: int
    """Those that corrected earlier reports, or could have."""
    too_late: int
    """Those that came after the lateness of the stream: earlier reports stay as they are, later ones contain them."""


class _Cleaning(NamedTuple):
    """What can be removed from the store."""

    unneeded: dict[Stream, list[int]]
    """Numbers of elements."""
    counting: list[tuple[WindowGraph, int]]
    """Windows that begin to count at a later element."""
    marked: list[RunningQuery]
    """Queries with another first mark."""


class Processor:
    """All streams and queries of a gateway."""

    def __init__(
        self,
        settings: StreamSettings,
        store: StreamStore,
        engine: Callable[[], Engine],
        live: LiveGraph,
        rights: Callable[[Access], Access],
        waiting: Callable[[str, int], bool] = lambda _query, _size: False,
        observations: Observations | None = None,
    ) -> None:
        """`engine` returns a new engine in memory. `rights`: returns the current permissions of a client; raises
        `EdgeError` if it has none any more.
        `waiting`: gets a query and the size of its new report in bytes; returns whether it has to be stored.
        `observations`: source of the built-in stream of observations; None: there is none.
        """
        self._settings = settings
        self._store = store
        self._engine = WindowEngine(engine)
        self._live = LiveData(live, self._engine.change_for)
        self._rights = rights
        self._waiting = waiting
        self._streams: dict[str, Stream] = {}
        self._queries: dict[str, RunningQuery] = {}
        self._users: dict[WindowGraph, dict[RunningQuery, None]] = {}
        self._observations = observations
        self._unfollow: Callable[[], None] | None = None
        self.feeds: dict[str, set[str]] = {}
        """Streams whose elements are the reports of a query, besides its own, by the name of the query."""
        self._reports: list[Report] = []
        self._stored: list[Report] = []
        """Durable reports that `store_reports` has not returned."""
        self._derived: list[tuple[Stream, StoredElement]] = []
        self._fresh: dict[Stream, None] = {}
        """Streams with elements that came after the last slides."""
        self._changed: dict[Stream, None] = {}
        """Streams with elements that have come since reports were stored."""
        self._moved: dict[RunningQuery, None] = {}
        """Queries whose result at the last report is not stored."""
        self.behind = 0
        """Microseconds by which the clock of the machine was set back."""
        self.time = self._cleaned = self._engine.time = store.time
        """Time up to which all windows have reported."""

    # Start and end

    def restore(self, now: int) -> None:
        """Continue where the last process ended. A query that cannot go on is kept with the state "failed"."""
        for stored in self._store.streams():
            stream = self._streams[stored.iri] = Stream(stored)
            for element in self._store.elements(stored.id):
                stream.keep(element)
        if self._observations is not None and OBSERVATIONS not in self._streams:
            self._streams[OBSERVATIONS] = self._add_stream(OBSERVATIONS, "", 0, "")
        begins = self._store.windows()
        for stored_query in self._store.queries():
            try:
                query = RunningQuery(stored_query, _parse(stored_query.text, stored_query.begun))
            except EdgeError as error:
                # Another version may have accepted it.
                _log.error("streams.query_unreadable", extra={"query": stored_query.name, "reason": error.description})
                continue
            self._queries[query.name] = query
            try:
                self._check_rights(query)
                self._begin(query, begins)
            except EdgeError as error:
                query.failure, query.is_late = error.description, isinstance(error, NotReady)
                _log.warning("streams.query_failed", extra={"query": query.name, "reason": error.description})
        for stream in self._streams.values():
            if stream.taken < stream.number:
                self._fresh[stream] = None
            if stream.uncorrected:
                self._correct(stream, stream.uncorrected)
                self._changed[stream] = None
            self._enter_late(stream)
        self.advance(now)

    def close(self) -> None:
        """Release the engine. The store is closed by its owner."""
        self._engine.close()

    # Streams

    def put_stream(self, identifier: str, lateness: int | None, access: Access) -> bool:
        """Register a stream, or change its lateness (microseconds). Returns whether it is new.

        Raises `InvalidRequest`, `Forbidden`, `TooManyRequests`, `StorageFailed`.
        """
        iri = stream_iri(identifier)
        check_writes(access, iri)
        stream = self._streams.get(iri)
        wanted = round(self._settings.max_lateness * _SECOND) if lateness is None else lateness
        if not 0 <= wanted <= 86_400 * _SECOND:
            raise InvalidRequest("The lateness of a stream is at most a day (86400 seconds)")
        if stream is None:
            if len(self._streams) >= self._settings.max_streams:
                raise TooManyRequests("No further streams: the limit streams.max_streams is reached; end others first")
            self._streams[iri] = self._add_stream(iri, access.client, wanted, "")
            return True
        self._check_owner(stream.owner, access, "stream")
        if lateness is not None and not stream.source:
            with self._store.transaction():
                self._store.set_stream(stream.id, wanted)
            self._set_lateness(stream, wanted)
        return False

    def _set_lateness(self, stream: Stream, lateness: int) -> None:
        """Let elements be late. Reports that were made before stay as they are: their elements are not kept."""
        was, stream.lateness = stream.lateness, lateness
        for query in self._queries_of(stream):
            query.lateness = self._lateness(query)
            if not was:
                query.marks.clear()
                query.marks.append(Mark(self.time, self._earliest(query, self.time)))

    def _lateness(self, query: RunningQuery) -> int:
        return max((self._streams[window.definition.stream].lateness for window in query.windows), default=0)

    def _queries_of(self, stream: Stream) -> list[RunningQuery]:
        """Return the queries with a window on a stream."""
        return list(dict.fromkeys(query for window in stream.windows for query in self._users.get(window, ())))

    def _add_stream(self, iri: str, owner: str, lateness: int, query: str) -> Stream:
        with self._store.transaction():
            return Stream(self._store.put_stream(iri, owner, lateness, query))

    def drop_stream(self, identifier: str, access: Access) -> None:
        """End a stream. Raises `NotFound`, `Forbidden`, `InvalidRequest` if a query uses it."""
        stream = self.stream(identifier, access)
        self._check_owner(stream.owner, access, "stream")
        if stream.source:
            raise InvalidRequest(f"This stream has the elements of {stream.source}, and cannot be ended alone")
        if users := self._readers(stream, access):
            raise InvalidRequest(f"The stream is used by {users}; end these queries first")
        with self._store.transaction():
            self._store.drop_stream(stream.id)
        del self._streams[stream.iri]
        self._fresh.pop(stream, None)
        self._changed.pop(stream, None)

    def stream(self, identifier: str, access: Access) -> Stream:
        """Return a stream that the client may read. Raises `NotFound`, `InvalidRequest`."""
        iri = stream_iri(identifier)
        stream = self._streams.get(iri)
        if stream is None or not (_reads(access, iri) or may_write(access, iri)):
            raise NotFound(f"There is no stream {iri}; register it first: PUT /streams/{{id}}")
        return stream

    def streams(self, access: Access) -> list[Stream]:
        """Return the streams that the client may read."""
        return [stream for stream in self._streams.values() if _reads(access, stream.iri)]

    def _readers(self, stream: Stream, access: Access) -> str:
        """Name the queries that use a stream; empty for none. Those that the client may not see are only counted."""
        users = [
            query
            for query in self._queries.values()
            if any(window.definition.stream == stream.iri for window in query.query.windows)
        ]
        names = [query.name for query in users if not query.is_subscription and self._sees(query, access)][:_NAMED]
        if hidden := len(users) - len(names):
            names.append(f"{hidden} {'other ' if names else ''}{'query' if hidden == 1 else 'queries'}")
        return ", ".join(names)

    # Elements

    def add(self, identifier: str, elements: Sequence[NewElement], access: Access, now: int) -> Accepted:
        """Add elements to a stream; they are durable at the return. `advance` comes next.

        Raises `NotFound`, `Forbidden`, `InvalidRequest`, `TooLarge`, `TooManyRequests`, `StorageFailed`; then none is
        added.
        """
        stream = self.stream(identifier, access)
        check_writes(access, stream.iri)
        if stream.source:
            raise InvalidRequest(f"This stream has the elements of {stream.source}; post to another one")
        return self._add(stream, elements, max(now, self.time))

    def _add(self, stream: Stream, elements: Sequence[NewElement], now: int) -> Accepted:
        accepted = [
            self._read(new, self._time_of(new, now), number) for number, new in enumerate(elements, stream.number + 1)
        ]
        if stream.windows:
            self._check_room(sum(len(graph) for _, graph in accepted))
        stored = [StoredElement(each, graph, self._missing(stream, each)) for each, graph in accepted]
        last = stream.number + len(accepted)
        # With the time, so that after a restart it is still known which elements were late.
        self._store_all(lambda: self._store.add(stream.id, last, stored if stream.windows else ()))
        stream.number = last
        if not stream.windows:
            return Accepted(len(accepted), 0, 0)
        self._keep(stream, stored)
        late = {each.element.number for each in stored if each.missing == TO_CORRECT}
        if late:
            self._correct(stream, late)
        if too_late := sum(each.missing > 0 for each in stored):
            stream.too_late += too_late
            _log.warning("streams.too_late", extra={"stream": stream.iri, "elements": too_late})
        return Accepted(len(accepted), len(late), too_late)

    def _check_room(self, size: int) -> None:
        """Raise `TooManyRequests` if elements of `size` bytes exceed the limit of all windows."""
        if sum(each.size for each in self._streams.values()) + size > self._settings.max_bytes:
            raise TooManyRequests(
                f"The windows of all queries hold {self._settings.max_bytes:,} bytes of elements, the limit "
                "streams.max_bytes; use shorter windows or a higher limit"
            )

    def _missing(self, stream: Stream, element: Element) -> int:
        """Return `StoredElement.missing` of a new element."""
        if element.time >= self.time or not any(self._lacks(stream, window, element) for window in stream.windows):
            return 0
        return TO_CORRECT if element.time >= self.time - stream.lateness else self.time

    def _lacks(self, stream: Stream, window: WindowGraph, element: Element) -> bool:
        """Return whether a report of a window that was made would have contained an element, or would be another."""
        definition = window.definition
        if definition.kind is Kind.SESSION and definition.report is Policy.CHANGE:
            # It enters at once, unless the sessions are forgotten that it could extend.
            return element.time <= self.time - stream.lateness - definition.size
        if definition.kind is not Kind.SESSION:
            return bool(affected(definition, element, window.begin, self.time))
        if definition.report is Policy.PERIODIC or element.time + definition.size <= self.time:
            return True
        # Its session is open. It may extend one that has ended.
        earlier = [each.time for each in stream.between(element.time - definition.size + 1, element.time)]
        if not earlier:
            return False
        end = earlier[-1] + definition.size
        for each in stream.between(earlier[-1], self.time + 1):
            if each.time >= end:
                break
            end = each.time + definition.size
        return end <= self.time

    def _time_of(self, new: NewElement, now: int) -> int:
        time = now if new.time is None else new.time
        if time > now + self._settings.max_ahead * _SECOND:
            raise InvalidRequest(
                f"The time of an element is more than {self._settings.max_ahead:g} s in the future "
                "(streams.max_ahead); set the clock of its source"
            )
        return time

    def _read(self, new: NewElement, time: int, number: int) -> tuple[Element, bytes]:
        triples = tuple(dict.fromkeys(new.triples))
        for triple in triples:
            for term in (triple.subject, triple.object):
                if found := problem(term):
                    raise InvalidRequest(f"The term {str(term)[:100]} of the element {found}")
        graph = serialized(triples)
        self._check_size(graph)
        return Element(time, number, triples), graph

    def _check_size(self, graph: bytes) -> None:
        if len(graph) > self._settings.max_element:
            raise TooLarge(
                f"An element has {len(graph):,} bytes as N-Triples; the limit streams.max_element is "
                f"{self._settings.max_element:,}"
            )

    def _keep(self, stream: Stream, elements: Iterable[StoredElement]) -> None:
        for window in stream.windows:
            window.pass_time(self.time)
        for stored in elements:
            stream.keep(stored)
            stream.take((stored.element,))
        for window in stream.windows:
            self._engine.schedule(window)
        self._fresh[stream] = self._changed[stream] = None

    def _correct(self, stream: Stream, numbers: Collection[int]) -> None:
        """Report what late elements of a stream change in earlier reports. `numbers`: theirs."""
        late = Late(stream, [stream.element(number) for number in numbers])
        for query in self._queries_of(stream):
            if query.state != "running" or query.is_subscription:
                continue
            try:
                for time, change in corrections(query, self._engine, self._streams, late, self.time):
                    self._reports.append(query.correction(time, change))
            except EdgeError as error:
                _log.warning("streams.not_corrected", extra={"query": query.name, "reason": error.description})
            if query.unsaved:
                self._moved[query] = None
        self._enter_late(stream)

    def _enter_late(self, stream: Stream) -> None:
        """Let windows have late elements that are in their reports: other windows of a query may report next."""
        for window in stream.windows:
            self._engine.change(*window.enter_late())
            self._engine.schedule(window)

    # Queries

    def register(self, name: str, text: str, access: Access, now: int) -> RunningQuery:
        """Register a query and start it.

        Raises `ParsingFailed`, `InvalidRequest` (among others, if a stream is not registered), `Forbidden`,
        `TooManyRequests`, `StorageFailed`, and errors of the subscription.
        """
        check_name(name)
        self.advance(now)
        # Its first reports come after this time, also if the process ends at once.
        self._store_all()
        now = self.time
        parsed_query = _parse(text, now)
        self._check_registration(name, parsed_query, access)
        stored = StoredQuery(name, text, access, now, False, 0, now)
        query = RunningQuery(stored, parsed_query)
        derived = self._derived_iri(query)
        if derived is not None:
            check_writes(access, derived)
        if derived is not None and derived in self._streams:
            raise InvalidRequest(f"The stream {derived} exists already; end it first, or choose another name")
        self._begin(query, None)
        try:
            with self._store.transaction():
                self._store.put_query(stored)
                if derived is not None:
                    made = Stream(self._store.put_stream(derived, access.client, 0, name))
                for window in query.windows:
                    source = self._streams[window.definition.stream]
                    self._store.add(source.id, source.number, ())
                    self._store.put_window(window.key, window.begin, window.first)
                self._store.change_result(name, query.unsaved)
        except BaseException:
            self._end(query)
            raise
        query.unsaved.clear()
        if derived is not None:
            self._streams[derived] = made
        self._queries[name] = query
        return query

    def subscribe(self, text: str, access: Access, now: int) -> tuple[RunningQuery, Delta]:
        """Start a query for one subscriber, and return its first result. It ends with `unsubscribe`, or the process.

        Raises the errors of `register`.
        """
        self.advance(now)
        now = max(now, self.time)
        parsed_query = _parse(text, now)
        self._check_windows(parsed_query, access)
        name = f"urn:uuid:{uuid.uuid4()}"
        query = RunningQuery(StoredQuery(name, text, access, now, False, 0, now), parsed_query, is_subscription=True)
        self._queries[name] = query
        try:
            first = self._begin(query, None)
        except BaseException:
            del self._queries[name]
            raise
        return query, first

    def explain(self, text: str, access: Access, now: int) -> tuple[str, Explanation]:
        """Return a description of the windows of a query, and how it would be evaluated. Raises as `register`."""
        parsed_query = _parse(text, max(now, self.time))
        self._check_windows(parsed_query, access)
        query = RunningQuery(StoredQuery(parsed_query.name, text, access, now, False, 0, now), parsed_query)
        windows = [self._engine.find(window.definition) for window in parsed_query.windows]
        graphs = [f"{GRAPHS}{number}" if each is None else each.graph.value for number, each in enumerate(windows)]
        return describe(parsed_query), self._engine.explain(access.read, query.request(graphs))

    def unsubscribe(self, name: str) -> None:
        """End a query of one subscriber. Does nothing if it has ended."""
        query = self._queries.pop(name, None)
        if query is not None:
            self._end(query)
            self._forget_reports(name)

    def _check_registration(self, name: str, query: ContinuousQuery, access: Access) -> None:
        if query.name not in (name, stream_iri(name)):
            raise InvalidRequest(
                f'The query is called "{query.name}" in its text, and "{name}" in the request; use one'
            )
        if name in self._queries:
            raise InvalidRequest(f'The query "{name}" exists already; end it first: DELETE /queries/{name}')
        self._check_windows(query, access)

    def _check_windows(self, query: ContinuousQuery, access: Access) -> None:
        if len(self._queries) >= self._settings.max_queries:
            raise TooManyRequests("No further queries: the limit streams.max_queries is reached; end others first")
        for window in query.windows:
            stream = self._streams.get(window.definition.stream)
            if stream is None or not _reads(access, stream.iri):
                raise InvalidRequest(
                    f"The stream {window.definition.stream} is not registered; register it first: PUT /streams/{{id}}"
                )

    def check_feed(self, query: RunningQuery, identifier: str, access: Access) -> str:
        """Check that the reports of a query may become elements of a stream. Returns its IRI.

        Raises `InvalidRequest`, also if the query would then read its own results; `NotFound`, `Forbidden`.
        """
        stream = self.stream(identifier, access)
        check_writes(access, stream.iri)
        if not query.makes_graphs:
            raise InvalidRequest("Only a CONSTRUCT or DESCRIBE query can report to a stream")
        if stream.source:
            raise InvalidRequest(f"This stream has the elements of {stream.source}; report to another one")
        if stream.iri in self._sources(query):
            raise InvalidRequest(f"The query would read its own results, by the stream {stream.iri}")
        return stream.iri

    def _sources(self, query: RunningQuery) -> set[str]:
        """Return all streams on which the results of a query depend."""
        found: set[str] = set()
        waiting = [query]
        while waiting:
            for window in waiting.pop().query.windows:
                iri = window.definition.stream
                if iri not in found:
                    found.add(iri)
                    waiting += [each for each in self._queries.values() if iri in self._outputs(each)]
        return found

    def _outputs(self, query: RunningQuery) -> set[str]:
        """Return the streams that have the results of a query."""
        derived = self._derived_iri(query)
        return self.feeds.get(query.name, set()) | ({derived} if derived else set())

    @staticmethod
    def _derived_iri(query: RunningQuery) -> str | None:
        """Return the IRI of the stream of its results; None if they are not graphs."""
        return stream_iri(query.query.name) if query.makes_graphs else None

    def _begin(self, query: RunningQuery, begins: Mapping[str, tuple[int, int]] | None) -> Delta:
        """Start a query, and return its first result.

        `begins`: begins of windows in an earlier process; None: the query is new.

        Raises `EdgeError`; then it has no effect.
        """
        patterns = live_patterns(query.query)
        self._live.add(patterns, query.access)
        try:
            query.patterns = patterns
            for each in query.query.windows:
                window = self._use(each.definition, begins or {})
                window.users += 1
                self._users.setdefault(window, {})[query] = None
                query.windows += (window,)
            query.spuid = query.subscribe(self._engine, [window.graph.value for window in query.windows], query.sink)
            query.lateness = self._lateness(query)
            if begins is None:
                query.marks[0] = Mark(query.begun, self._earliest(query, query.begun))
                return query.settle()
            return query.resume(self._store.result(query.name))
        except BaseException:
            self._release(query)
            raise

    def _use(self, definition: WindowDefinition, begins: Mapping[str, tuple[int, int]]) -> WindowGraph:
        """Return the window with a definition. A new one begins now, or where it was in an earlier process."""
        window = self._engine.find(definition)
        if window is not None:
            return window
        stream = self._streams.get(definition.stream)
        if stream is None:
            raise InvalidRequest(f"The stream {definition.stream} is not registered any more")

        def make(number: int) -> WindowGraph:
            return _make(definition, stream, number, begins, self.time)

        if stream.iri == OBSERVATIONS:
            self._follow_observations(stream)  # first: it can fail
            begins = begins or self._fill(stream, definition)
        window = self._engine.add(make)
        stream.windows[window] = None
        stream.needed_again()
        self._engine.change(*window.move(window.window.content, ()))
        self._engine.schedule(window)
        return window

    def _fill(self, stream: Stream, definition: WindowDefinition) -> Mapping[str, tuple[int, int]]:
        """Add the observations of the recent history that a new time window contains, so that it starts full.

        Returns the begin of the window.
        """
        if self._observations is None or definition.kind is not Kind.TIME:
            return {}
        kept = [element.time for element in stream.elements]
        past = self._observations.past(self.time - definition.size, min(kept, default=self.time))
        first = stream.number + 1
        elements = [
            StoredElement(Element(self.time if time is None else time, number, triples), serialized(triples))
            for number, (triples, time) in enumerate(past, first)
        ]
        self._check_room(sum(len(element.graph) for element in elements))
        with self._store.transaction():
            self._store.add(stream.id, stream.number + len(elements), elements)
        stream.number += len(elements)
        stream.taken = stream.number
        self._changed[stream] = None
        for element in elements:
            stream.keep(element)
        # Also elements that other windows have kept. Numbers are in the order of arrival, and these came before.
        earliest = min((element.number for element in stream.elements), default=first)
        # As if it had begun before its last slide, so that it has content.
        begun = self.time - (distance(definition) if is_aligned(definition) else 1)
        return {window_key(definition): (begun, earliest)}

    def _follow_observations(self, stream: Stream) -> None:
        """Let the observations be elements while a window needs them."""
        if self._observations is None or self._unfollow is not None:
            return

        def added(elements: Elements) -> None:
            new = [NewElement(triples, time) for triples, time in elements if triples]
            if new and stream.windows:
                try:
                    self._add(stream, new, self.time)
                except EdgeError as error:
                    _log.warning("streams.observations_lost", extra={"reason": error.description, "number": len(new)})

        self._unfollow = self._observations.follow(added)

    def _release(self, query: RunningQuery) -> None:
        for window in query.windows:
            self._users.get(window, {}).pop(query, None)
            window.users -= 1
            if not window.users:
                self._users.pop(window, None)
                self._streams[window.definition.stream].windows.pop(window, None)
                self._engine.remove(window)
        if self._unfollow is not None and not self._streams[OBSERVATIONS].windows:
            self._unfollow()
            self._unfollow = None
            self._forget_observations()
        self._live.remove(query.patterns, query.access)
        query.windows, query.patterns = (), ()

    def _forget_observations(self) -> None:
        """Forget the elements of a stream without windows: a later window takes them from the recent history."""
        stream = self._streams[OBSERVATIONS]
        numbers = stream.unneeded(None)
        try:
            with self._store.transaction():
                self._store.remove(stream.id, numbers)
        except EdgeError as error:
            _log.warning("streams.not_removed", extra={"reason": error.description})
        else:
            stream.forget(numbers)

    def _end(self, query: RunningQuery) -> None:
        if query.spuid and not query.failure:
            self._engine.unsubscribe(query.spuid)
        self._release(query)

    def unregister(self, name: str, access: Access) -> None:
        """End a query, with its stream and its observers. Raises `NotFound`, `Forbidden`, `InvalidRequest`."""
        query = self.owned(name, access)
        derived = self._streams.get(self._derived_iri(query) or "")
        if derived is not None and (users := self._readers(derived, access)):
            raise InvalidRequest(f"Its results are used by {users}; end these queries first")
        windows = query.windows
        with self._store.transaction():
            self._store.drop_query(name)
            if derived is not None:
                self._store.drop_stream(derived.id)
            for window in windows:
                if window.users == windows.count(window):
                    self._store.drop_window(window.key)
        del self._queries[name]
        if derived is not None:
            del self._streams[derived.iri]
        self._end(query)
        self._forget_reports(name)
        self._moved.pop(query, None)
        if derived is not None:
            self._derived = [each for each in self._derived if each[0] is not derived]
            self._fresh.pop(derived, None)
            self._changed.pop(derived, None)

    def _forget_reports(self, name: str) -> None:
        self._reports = [report for report in self._reports if report.query != name]
        self._stored = [report for report in self._stored if report.query != name]

    def pause(self, name: str, access: Access, *, paused: bool) -> None:
        """Pause a query or let it go on. Raises `NotFound`, `Forbidden`, `StorageFailed`."""
        query = self.owned(name, access)
        with self._store.transaction():
            self._store.pause(name, paused=paused)
        query.paused = paused

    def query(self, name: str, access: Access) -> RunningQuery:
        """Return a query that the client may see: it may read all its streams. Raises `NotFound`."""
        query = self._queries.get(name)
        if query is None or query.is_subscription or not self._sees(query, access):
            raise NotFound(f'There is no query "{name}"; GET /queries lists them')
        return query

    def owned(self, name: str, access: Access) -> RunningQuery:
        """Return a query of the client, or any for administrators. Raises `NotFound`, `Forbidden`."""
        query = self.query(name, access)
        if not (access.operates or _owns(query, access)):
            raise _not_owner("query")
        return query

    def find(self, name: str) -> RunningQuery | None:
        """Return a query, for the gateway itself."""
        return self._queries.get(name)

    def all_queries(self) -> list[RunningQuery]:
        """Return all queries."""
        return list(self._queries.values())

    def queries(self, access: Access) -> list[RunningQuery]:
        """Return the queries that the client may see."""
        return [query for query in self._queries.values() if not query.is_subscription and self._sees(query, access)]

    @staticmethod
    def _sees(query: RunningQuery, access: Access) -> bool:
        if access.operates or _owns(query, access):
            return True
        # Its results can contain whatever its owner may read.
        return access.read is None or (query.access.read is not None and query.access.read <= access.read)

    @staticmethod
    def _check_owner(owner: str, access: Access, what: str) -> None:
        if owner != access.client and not access.operates:
            raise _not_owner(what)

    def review(self) -> list[RunningQuery]:
        """Fail the registered queries whose clients have lost permissions. Returns them.

        The gates end the subscriptions of such clients themselves, which need another action.
        """
        failed: list[RunningQuery] = []
        for query in self._queries.values():
            if query.is_late:
                self._begin_late(query)
            if query.failure or query.is_subscription:
                continue
            try:
                self._check_rights(query)
            except EdgeError as error:
                self._engine.unsubscribe(query.spuid)
                query.fail(error.description)
                failed.append(query)
        return failed

    def _begin_late(self, query: RunningQuery) -> None:
        """Begin a query that could not begin at the start, because the live graph was busy."""
        try:
            self._check_rights(query)
            self._begin(query, self._store.windows())
        except EdgeError as error:
            query.failure, query.is_late = error.description, isinstance(error, NotReady)
        else:
            query.failure, query.is_late = "", False

    def _check_rights(self, query: RunningQuery) -> None:
        """Raise `EdgeError` if the client of a query was revoked, or has lost permissions that the query needs."""
        now = self._rights(query.access)
        derived = self._derived_iri(query)
        if now.read != query.access.read or (derived is not None and not may_write(now, derived)):
            raise Forbidden("The permissions of its client have changed; register it again")

    def current(self, access: Access) -> Access:
        """Return the permissions that a client has now, at most these. Raises `EdgeError` if it was revoked."""
        return self._rights(access)

    # Time

    def due(self) -> int | None:
        """Return the time at which `advance` has something to do; None if nothing is due."""
        return self._engine.due()

    def advance(self, now: int) -> bool:
        """Let all windows slide up to and including `now`, and collect the reports.

        Returns whether that is done. With very many slides and reports, further calls continue it.
        """
        self._check_clock(now)
        now = max(now, self.time)
        if now - self.time > _PAUSE:
            self._skip(now)
        slides = work = 0
        last, is_done = self.time, True
        while (time := self._engine.due()) is not None and time <= now:
            if work >= _MANY and time > last:
                if slides >= _MANY:
                    self._skip(now)
                now, is_done = last, False
                break
            last = max(last, time)
            slides += 1
            work += 1 + self._slide(time)
        self.time = self._engine.time = now
        for stream in self._fresh:
            stream.taken = stream.number
            self._changed[stream] = None
        self._fresh.clear()
        return is_done

    def _slide(self, time: int) -> int:
        """Let the windows slide that are due at a time. Returns the number of queries that have reported."""
        reporting = self._engine.slide(time)
        queries = {query: None for window in reporting for query in self._users.get(window, ())}
        for query in queries:
            if query.state != "running" or time < query.begun:
                continue
            report = query.report(time)
            if query.lateness and not query.is_subscription:
                query.mark(time, query.lateness, partial(self._earliest, query, time))
            if query.unsaved:
                self._moved[query] = None
            if report is not None:
                self._reports.append(report)
                if query.makes_graphs and not query.is_subscription:
                    self._derive(query, report)
        return len(queries)

    def _earliest(self, query: RunningQuery, time: int) -> dict[str, int]:
        """Return the times of the first elements that the windows of a query need at a time, by stream."""
        found: dict[str, int] = {}
        for window in query.windows:
            definition = window.definition
            needed = window.needed_from()
            if definition.kind is Kind.SESSION:
                # A late element may start a session before all others.
                needed = min(time if needed is None else needed, time - query.lateness - definition.size)
            if needed is not None:
                found[definition.stream] = min(needed, found.get(definition.stream, needed))
        return found

    def _check_clock(self, now: int) -> None:
        """Log once that the clock of the machine was set back: the time of windows does not decrease."""
        was, self.behind = self.behind, max(self.time - now, 0)
        if self.behind <= _BEHIND:
            self.behind = 0
        elif not was:
            _log.warning("streams.clock_set_back", extra={"seconds": self.behind // _SECOND})

    @property
    def problem(self) -> str:
        """Why no window reports; empty if they do."""
        if not self.behind:
            return ""
        return (
            f"The clock of this machine was set back by {self.behind // _SECOND:,} s: windows on streams report again "
            "when it has caught up. Set the clock"
        )

    def _skip(self, now: int) -> None:
        """Leave out the reports of windows that stayed empty while the process did not run."""
        for window, queries in self._users.items():
            skipped = window.window.skip_to(now)
            self._engine.schedule(window)
            for query in queries if skipped else ():
                query.skipped += skipped

    def _derive(self, query: RunningQuery, report: Report) -> None:
        """Let the graph of a report be an element of the stream of its query."""
        stream = self._streams[stream_iri(query.query.name)]
        if not report.rows:
            return
        triples = tuple(ox.Triple(*row) for row in report.rows)  # type: ignore[arg-type]  # rows of a CONSTRUCT
        graph = serialized(triples)
        if stream.windows:
            try:
                self._check_size(graph)
                self._check_room(len(graph))
            except EdgeError as error:
                _log.warning("streams.result_dropped", extra={"stream": stream.iri, "reason": error.description})
                return
        stream.number += 1
        element = StoredElement(Element(report.time, stream.number, triples), graph)
        if stream.windows:
            self._derived.append((stream, element))
            self._keep(stream, [element])

    @property
    def unstored(self) -> int:
        """Number of reports that are not durable."""
        return len(self._reports)

    def store_reports(self) -> list[Report]:
        """Make the reports durable, and return them. Raises `StorageFailed`; then a later call returns them."""
        if self._reports or self.time >= self._cleaned + _CLEANING:
            self._store_all()
        reports, self._stored = self._stored, []
        return reports

    def _store_all(self, change: Callable[[], None] = lambda: None) -> None:
        """Make the reports and the state of this time durable, together with a further change."""
        is_cleaning = self.time >= self._cleaned + _CLEANING
        cleaning = self._cleaning() if is_cleaning else _Cleaning({}, [], [])
        late = [stream for stream in self._changed if stream.uncorrected]
        with self._store.transaction():
            self._store_state(late)
            self._store_cleaning(cleaning)
            change()
        for query in self._moved:
            query.unsaved.clear()
        for stream in late:
            stream.uncorrected.clear()
        self._moved.clear()
        self._changed.clear()
        self._clean(cleaning)
        if is_cleaning:
            self._cleaned = self.time
        self._stored += self._reports
        self._reports, self._derived = [], []

    def _store_state(self, late: Iterable[Stream]) -> None:
        """Store reports with the time, and all that has to have the state of this time after a restart."""
        for report in self._reports:
            if self._queries[report.query].is_subscription:
                continue
            stored = ReportRow(report.number, report.time, report.kind, 1, report.body())
            keep = self._waiting(report.query, len(stored.body))
            self._store.report(report.query, stored, keep=keep)
        for stream, element in self._derived:
            self._store.add(stream.id, element.element.number, [element])
        for stream in self._changed:
            self._store.set_taken(stream.id, stream.taken)
        for stream in late:
            self._store.corrected(stream.id, stream.uncorrected)
        for query in self._moved:
            self._store.change_result(query.name, query.unsaved)
        self._store.set_time(self.time)

    def _cleaning(self) -> _Cleaning:
        """Return what can be removed from the store."""
        marked = []
        for query in self._queries.values():
            if query.lateness and not query.is_subscription:
                query.forget_marks(self.time - query.lateness)
                if query.marks[0].time != query.since:
                    marked.append(query)
        unneeded = {stream: stream.unneeded(self._needed_from(stream)) for stream in self._streams.values()}
        counting = [
            (window, first)
            for window in self._users
            if (first := window.needed_number()) is not None and first != window.first
        ]
        return _Cleaning({stream: numbers for stream, numbers in unneeded.items() if numbers}, counting, marked)

    def _needed_from(self, stream: Stream) -> int | None:
        """Return the time of the first element that windows of time and corrections need; None: no element."""
        if not stream.lateness:
            return min((time for each in stream.windows if (time := each.needed_from()) is not None), default=None)
        earliest: list[int] = []
        for query in self._queries_of(stream):
            needed = self._earliest(query, self.time) if query.is_subscription else query.marks[0].earliest
            if needed is None:
                return _ALL
            if stream.iri in needed:
                earliest.append(needed[stream.iri])
        return min(earliest, default=None)

    def _store_cleaning(self, cleaning: _Cleaning) -> None:
        for stream, numbers in cleaning.unneeded.items():
            self._store.remove(stream.id, numbers)
        for window, first in cleaning.counting:
            self._store.put_window(window.key, window.begin, first)
        for query in cleaning.marked:
            self._store.set_since(query.name, query.marks[0].time)

    @staticmethod
    def _clean(cleaning: _Cleaning) -> None:
        for stream, numbers in cleaning.unneeded.items():
            stream.forget(numbers)
        for window, first in cleaning.counting:
            window.first = first
        for query in cleaning.marked:
            query.since = query.marks[0].time


def _make(
    definition: WindowDefinition, stream: Stream, number: int, begins: Mapping[str, tuple[int, int]], now: int
) -> WindowGraph:
    """Make a window that begins now, or with the elements that it had in an earlier process."""
    lateness = stream.lateness
    # For a pause longer than the lateness, sessions that elements can extend are known. See `WindowGraph.refuses`.
    kept = lateness + definition.size if definition.kind is Kind.SESSION else lateness
    probe = WindowGraph(make_window(definition, now, kept), number, now, stream.number + 1, lateness)
    earlier = begins.get(probe.key)
    if earlier is None:
        return probe
    begin, first = earlier
    elements = [
        element
        for element in stream.elements
        if element.number >= first and not probe.refuses(element, stream.missing.get(element.number, 0))
    ]
    taken = [element for element in elements if element.number <= stream.taken]
    counts = definition.kind in (Kind.COUNT, Kind.TRIPLES) and definition.report in (Policy.CLOSE, Policy.NON_EMPTY)
    if counts or ends_sessions(definition):
        # From an element with which a count began, so that the next report comes when it would have come.
        window = make_window(definition, begin, kept)
        for element in taken:
            window.take(element)
        for _ in window.slides(now):
            pass
    else:
        if not has_slid(definition, begin, now):
            taken = []
        window = make_window(definition, now, kept, taken)
    for element in elements[len(taken) :]:
        window.take(element)
    return WindowGraph(window, number, begin, first, lateness)


def _parse(text: str, now: int) -> ContinuousQuery:
    """Parse a query, and name its streams as they are registered. Raises `ParsingFailed`, `InvalidRequest`."""
    query = parse(text, now=now)
    windows = (
        replace(window, definition=replace(window.definition, stream=stream_iri(window.definition.stream)))
        for window in query.windows
    )
    return replace(query, windows=tuple(windows))


def _owns(query: RunningQuery, access: Access) -> bool:
    """Return whether a client has registered a query. A client with the name of a revoked one has not."""
    return (query.access.client, query.access.registration) == (access.client, access.registration)


def _not_owner(what: str) -> Forbidden:
    return Forbidden(f"The {what} belongs to another client; only that client and administrators can change it")


def _reads(access: Access, iri: str) -> bool:
    """Return whether a client may read a stream. Observations are values of the default graph."""
    return access.reads(DEFAULT_GRAPH if iri == OBSERVATIONS else iri)


def may_write(access: Access, iri: str) -> bool:
    """Return whether a client may update, and write the graph with the name of a stream."""
    return "update" in access.actions and _writes(access, iri)


def check_writes(access: Access, iri: str) -> None:
    """Raise `Forbidden` unless the client may update, and write the graph with the name of a stream."""
    if not may_write(access, iri):
        raise Forbidden(f'The client "{access.client}" may not write to {iri}; the operator can allow it')


def _writes(access: Access, iri: str) -> bool:
    return access.write is None or iri in access.write
