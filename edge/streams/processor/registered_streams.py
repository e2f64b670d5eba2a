"""The registered streams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from edge.engine.admission.fair_share import FairShare
from edge.protocol.access import Access
from edge.protocol.errors import InvalidRequest, NotFound, TooManyRequests
from edge.streams.model import WindowDefinition
from edge.streams.names import stream_iri
from edge.streams.observations import OBSERVATIONS
from edge.streams.processor.advance_in_progress import AdvanceInProgress
from edge.streams.processor.pending_changes import PendingChanges
from edge.streams.processor.registered_queries import RegisteredQueries
from edge.streams.processor.rights import check_owner, check_writes, may_write, reads
from edge.streams.processor.window_clock import WindowClock
from edge.streams.processor.window_users import WindowUsers
from edge.streams.quota import check_quota
from edge.streams.running_query import Mark, RunningQuery
from edge.streams.settings import StreamSettings
from edge.streams.store import StreamStore
from edge.streams.stream import Stream

_SECOND: Final = 1_000_000


class RegisteredStreams:
    """The streams by IRI."""

    def __init__(
        self,
        settings: StreamSettings,
        store: StreamStore,
        queries: RegisteredQueries,
        users: WindowUsers,
        pending_changes: PendingChanges,
        clock: WindowClock,
    ) -> None:
        self._settings = settings
        self._store = store
        self._queries = queries
        self._users = users
        self._pending_changes = pending_changes
        self._clock = clock
        self._streams: dict[str, Stream] = {}
        self._shares = FairShare(settings.max_streams)

    def restore(self, *, has_observations: bool) -> None:
        """Read the streams of an earlier process, with their elements."""
        for stored in self._store.streams():
            stream = Stream(stored)
            self.enter(stream)
            for element in self._store.elements(stored.id):
                stream.keep(element)
            self._include(stream)
        if has_observations and OBSERVATIONS not in self._streams:
            self._add(OBSERVATIONS, "", 0)

    def _include(self, stream: Stream) -> None:
        """Let a slide that was in progress contain the elements that were too late for it: it is made again."""
        time = self._clock.time
        found = [number for number, missing in stream.missing.items() if missing > time]
        if found:
            with self._store.transaction():
                self._store.set_missing(stream.id, found, time)
            stream.missing |= dict.fromkeys(found, time)

    @property
    def by_iri(self) -> Mapping[str, Stream]:
        """All streams."""
        return self._streams

    @property
    def has_chains(self) -> bool:
        """Whether a query reads the results of another one."""
        return any(stream.query and stream.windows for stream in self._streams.values())

    def awaited(self) -> dict[str, list[WindowDefinition]]:
        """Return the windows of the queries that have not begun since the start, by the IRIs of their streams."""
        found: dict[str, list[WindowDefinition]] = {}
        for query in self._queries.all() if self._queries.are_late else ():
            for window in query.query.windows if query.is_late else ():
                found.setdefault(window.definition.stream, []).append(window.definition)
        return found

    def needs(self, stream: Stream) -> bool:
        """Return whether a window of a stream exists, or is going to begin."""
        return bool(stream.windows) or stream.iri in self.awaited()

    def put(self, identifier: str, lateness: int | None, access: Access) -> bool:
        """Register a stream, or change its lateness (microseconds). Returns whether it is new.

        Raises `InvalidRequest`, `Forbidden`, `TooManyRequests`, `StorageFailed`. Raises `AdvanceInProgress` if the
        lateness has to wait for the end of a slide or corrections: it decides which elements are late for them.
        """
        iri = stream_iri(identifier)
        check_writes(access, iri)
        stream = self._streams.get(iri)
        wanted = round(self._settings.max_lateness * _SECOND) if lateness is None else lateness
        if not 0 <= wanted <= 86_400 * _SECOND:
            raise InvalidRequest("The lateness of a stream is at most a day (86400 seconds)")
        if stream is None:
            check_quota(self._shares, access.client, "streams", "streams.max_streams")
            self._add(iri, access.client, wanted)
            return True
        check_owner(stream.owner, access)
        if lateness is not None and not stream.source and wanted != stream.lateness:
            if not self._pending_changes.is_complete:
                raise AdvanceInProgress
            with self._store.transaction():
                self._store.set_stream(stream.id, wanted)
            self._set_lateness(stream, wanted)
        return False

    def _set_lateness(self, stream: Stream, lateness: int) -> None:
        """Let elements be late. Reports that were made before stay as they are: their elements are not kept."""
        was, stream.lateness = stream.lateness, lateness
        for query in self._users.of_stream(stream):
            query.lateness = self.lateness_of(query)
            if not was:
                query.marks.clear()
                query.marks.append(Mark(self._clock.time, query.earliest(self._clock.time)))

    def lateness_of(self, query: RunningQuery) -> int:
        """Return the greatest lateness of the streams of a query."""
        return max((self._streams[window.definition.stream].lateness for window in query.windows), default=0)

    def _add(self, iri: str, owner: str, lateness: int) -> None:
        with self._store.transaction():
            stored = self._store.put_stream(iri, owner, lateness, "")
        self.enter(Stream(stored))

    def drop(self, identifier: str, access: Access) -> None:
        """End a stream. Raises `NotFound`, `Forbidden`, `InvalidRequest` if a query uses it."""
        stream = self.get(identifier, access)
        check_owner(stream.owner, access)
        if stream.source:
            raise InvalidRequest(f"This stream has the elements of {stream.source}, and cannot be ended alone")
        if users := self._queries.readers(stream, access):
            raise InvalidRequest(f"The stream is used by {users}; end these queries first")
        with self._store.transaction():
            self._store.drop_stream(stream.id)
        self.leave(stream)

    def enter(self, stream: Stream) -> None:
        """Add a stream that the store has."""
        self._streams[stream.iri] = stream
        self._shares.add(stream.owner, 1)

    def leave(self, stream: Stream) -> None:
        """Remove a stream that the store has not any more."""
        del self._streams[stream.iri]
        self._shares.add(stream.owner, -1)
        self._pending_changes.forget_stream(stream)

    def get(self, identifier: str, access: Access) -> Stream:
        """Return a stream that the client may read. Raises `NotFound`, `InvalidRequest`."""
        iri = stream_iri(identifier)
        stream = self._streams.get(iri)
        if stream is None or not (reads(access, iri) or may_write(access, iri)):
            raise NotFound(f"There is no stream {iri}; register it first: PUT /streams/{{id}}")
        return stream

    def visible(self, access: Access) -> list[Stream]:
        """Return the streams that the client may read."""
        return [stream for stream in self._streams.values() if reads(access, stream.iri)]

    def check_room(self, size: int) -> None:
        """Raise `TooManyRequests` if elements of `size` bytes exceed the limit of all windows."""
        if sum(each.size for each in self._streams.values()) + size > self._settings.max_bytes:
            raise TooManyRequests(
                f"The windows of all queries hold {self._settings.max_bytes:,} bytes of elements, the limit "
                "streams.max_bytes; use shorter windows or a higher limit"
            )
