"""The processor: all streams and queries of a gateway.

It has no threads, no sockets and no clock. All methods are called on one thread, with the time as an argument, in
microseconds since 1970. The results of a method are durable, except reports: `store_reports` makes them so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from edge.engine.engine import Engine
from edge.engine.requests import Delta
from edge.engine.subscriptions.explanation import Explanation
from edge.protocol.access import Access
from edge.streams.live_data import LiveData, LiveGraph
from edge.streams.observations import Observations
from edge.streams.processor.committer import Committer
from edge.streams.processor.continuation import Continuation
from edge.streams.processor.corrector import Corrector
from edge.streams.processor.dependencies import Feeds, check_feed
from edge.streams.processor.element_limits import NewElement
from edge.streams.processor.elements import Accepted, Elements
from edge.streams.processor.observation_source import ObservationSource
from edge.streams.processor.pending_changes import PendingChanges
from edge.streams.processor.query_windows import QueryWindows
from edge.streams.processor.registered_queries import RegisteredQueries
from edge.streams.processor.registered_streams import RegisteredStreams
from edge.streams.processor.registration import QueryRegistration
from edge.streams.processor.rights import check_writes
from edge.streams.processor.window_advance import WindowAdvance
from edge.streams.processor.window_clock import WindowClock
from edge.streams.processor.window_users import WindowUsers
from edge.streams.report import Report
from edge.streams.running_query import RunningQuery
from edge.streams.settings import StreamSettings
from edge.streams.store import StreamStore
from edge.streams.stored_rows import LateElement
from edge.streams.stream import Stream
from edge.streams.window_engine import WindowEngine


class Processor:
    """All streams and queries of a gateway."""

    def __init__(
        self,
        settings: StreamSettings,
        store: StreamStore,
        engine: Callable[[], Engine],
        live: LiveGraph,
        rights: Callable[[Access], Access],
        waiting: Callable[[Report], bytes | None] = lambda _: None,
        observations: Observations | None = None,
    ) -> None:
        """`engine` returns a new engine in memory. `rights`: returns the current permissions of a client; raises
        `EdgeError` if it has none any more.
        `waiting`: returns the content of a new report if an observer waits for it.
        `observations`: source of the built-in stream of observations; None: there is none.
        """
        self._has_observations = observations is not None
        self._rights = rights
        self._clock = clock = WindowClock(store.time)
        self._engine = windows = WindowEngine(engine)
        self._queries = queries = RegisteredQueries(settings.max_queries)
        users, self._pending_changes = WindowUsers(), PendingChanges(waiting)
        pending_changes = self._pending_changes
        self._streams = streams = RegisteredStreams(settings, store, queries, users, pending_changes, clock)
        self._committer = committer = Committer(store, streams, queries, users, pending_changes, clock)
        corrector = Corrector(windows, streams, users, pending_changes, clock)
        self._elements = elements = Elements(
            settings, store, windows, streams, pending_changes, committer, corrector, clock
        )
        self._window_advance = WindowAdvance(windows, streams, users, elements, pending_changes, clock)
        source = ObservationSource(observations, store, streams, elements, self._window_advance, pending_changes, clock)
        live_data = LiveData(live, windows.change_for)
        self._running = running = QueryWindows(store, windows, live_data, streams, users, source, clock)
        self._continuation = Continuation(store, windows, queries, running, rights, settings.origin)
        self._registration = QueryRegistration(
            settings, store, windows, queries, streams, users, running, committer, self._window_advance, clock
        )

    def restore(self, now: int) -> None:
        """Continue where the last process ended. A query that cannot go on is kept with the state "failed"."""
        self._streams.restore(has_observations=self._has_observations)
        self._continuation.restore()
        self._elements.restore()
        self.advance(now)

    def close(self) -> None:
        """Release the engine. The store is closed by its owner."""
        self._engine.close()

    # Time and reports

    @property
    def time(self) -> int:
        """Time up to which all windows have reported."""
        return self._clock.time

    @property
    def problem(self) -> str:
        """Why no window reports; empty if they do."""
        return self._clock.problem

    @property
    def behind(self) -> int:
        """Microseconds by which the clock of the machine was set back; 0 if it is not worth a message."""
        return self._clock.behind

    def due(self) -> int | None:
        """Return the time at which `advance` or `store_reports` has something to do; None if nothing is due."""
        if self.is_advancing or self._committer.is_cleaning:
            return self.time
        return self._window_advance.due()

    def advance(self, now: int) -> bool:
        """Let all windows slide up to and including `now`, and collect the reports. See `WindowAdvance.advance`."""
        return self._window_advance.advance(now)

    @property
    def is_advancing(self) -> bool:
        """Whether a slide or corrections are in progress, which further calls of `advance` continue.

        Methods raise `AdvanceInProgress` if they have to wait for the end. Changes of live data have to wait, too.
        """
        return self._window_advance.is_advancing

    @property
    def pending_changes(self) -> int:
        """Number of reports that are not durable."""
        return self._pending_changes.number

    def store_reports(self) -> list[Report]:
        """Make the reports durable, and return them. Raises `StorageFailed`; then a later call returns them."""
        return self._committer.take_reports()

    def commit(self) -> None:
        """Make the reports durable; `store_reports` returns them. Raises `StorageFailed`."""
        if self._pending_changes.number:
            self._committer.commit()

    def durable_number(self, query: RunningQuery) -> int:
        """Return the number of the last durable report of a query."""
        return self._pending_changes.durable_number(query)

    # Streams

    def put_stream(self, identifier: str, lateness: int | None, access: Access) -> bool:
        """Register a stream, or change its lateness. See `RegisteredStreams.put`."""
        return self._streams.put(identifier, lateness, access)

    def drop_stream(self, identifier: str, access: Access) -> None:
        """End a stream. See `RegisteredStreams.drop`."""
        self._streams.drop(identifier, access)

    def stream(self, identifier: str, access: Access) -> Stream:
        """Return a stream that the client may read. Raises `NotFound`, `InvalidRequest`."""
        return self._streams.get(identifier, access)

    def streams(self, access: Access) -> list[Stream]:
        """Return the streams that the client may read."""
        return self._streams.visible(access)

    def add(self, identifier: str, elements: Sequence[NewElement], access: Access, now: int) -> Accepted:
        """Add elements of a client to a stream, which came at `now`. `advance` comes next. See `Elements.post`."""
        time = max(now, self.time)
        times = [time if each.time is None else each.time for each in elements]
        holds = self._window_advance.admit(time, min(times, default=time))
        self._window_advance.settle()
        accepted = self._elements.post(identifier, elements, access, now, holds=holds)
        self._window_advance.correct()
        return accepted

    def late(self, identifier: str, access: Access) -> list[LateElement]:
        """Return the newest elements of a stream that came too late. See `Elements.late`."""
        return self._elements.late(identifier, access)

    # Queries

    def register(self, name: str, text: str, access: Access, now: int) -> RunningQuery:
        """Register a query and start it. See `QueryRegistration.register`."""
        return self._registration.register(name, text, access, now)

    def unregister(self, name: str, access: Access) -> None:
        """End a query, with its stream and its observers. See `QueryRegistration.unregister`."""
        self._registration.unregister(name, access)

    def subscribe(self, text: str, access: Access, now: int) -> tuple[RunningQuery, Delta]:
        """Start a query for one subscriber, and return its first result. See `QueryRegistration.subscribe`."""
        return self._registration.subscribe(text, access, now)

    def unsubscribe(self, name: str) -> None:
        """End a query of one subscriber. Does nothing if it has ended."""
        self._registration.unsubscribe(name)

    def explain(self, text: str, access: Access, now: int) -> tuple[str, Explanation]:
        """Return a description of the windows of a query, and how it would be evaluated."""
        return self._registration.explain(text, access, now)

    def pause(self, name: str, access: Access, *, paused: bool) -> None:
        """Pause a query or let it go on. Raises `NotFound`, `Forbidden`, `StorageFailed`."""
        self._registration.pause(name, access, paused=paused)

    def query(self, name: str, access: Access) -> RunningQuery:
        """Return a query that the client may see: it may read all its streams. Raises `NotFound`."""
        return self._queries.get(name, access)

    def owned(self, name: str, access: Access) -> RunningQuery:
        """Return a query of the client, or any for administrators. Raises `NotFound`, `Forbidden`."""
        return self._queries.owned(name, access)

    def live_failures(self, query: RunningQuery) -> list[str]:
        """Return the live data of a query that do not change any more, with the reasons."""
        return self._running.live_failures(query)

    def find(self, name: str) -> RunningQuery | None:
        """Return a query, for the gateway itself."""
        return self._queries.find(name)

    def all_queries(self) -> list[RunningQuery]:
        """Return all queries."""
        return self._queries.all()

    def queries(self, access: Access) -> list[RunningQuery]:
        """Return the queries that the client may see."""
        return self._queries.visible(access)

    def check_feed(self, query: RunningQuery, identifier: str, access: Access, feeds: Feeds) -> None:
        """Check that the reports of a query may become elements of a stream. `feeds`: what observers feed so far.

        Raises `InvalidRequest`, also if the query would then read its own results; `NotFound`, `Forbidden`.
        """
        stream = self._streams.get(identifier, access)
        check_writes(access, stream.iri)
        check_feed(query, stream, self._queries.all(), feeds)

    def review(self) -> list[RunningQuery]:
        """Fail the registered queries whose clients have lost permissions. Returns them."""
        return self._continuation.review()

    def current(self, access: Access) -> Access:
        """Return the permissions that a client has now, at most these. Raises `EdgeError` if it was revoked."""
        return self._rights(access)
