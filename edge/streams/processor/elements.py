"""The elements of streams: those that clients send, and those that queries derive."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import pyoxigraph as ox

from edge.protocol.access import Access
from edge.protocol.errors import EdgeError, Forbidden, InvalidRequest
from edge.streams.encoding import serialized
from edge.streams.model import Element, ReportPolicy, WindowKind
from edge.streams.processor.advance_in_progress import AdvanceInProgress
from edge.streams.processor.committer import Committer
from edge.streams.processor.corrector import Corrector
from edge.streams.processor.element_limits import NewElement, check_size, read_element
from edge.streams.processor.lateness import SessionEnds, is_lost, missing
from edge.streams.processor.pending_changes import PendingChanges
from edge.streams.processor.registered_streams import RegisteredStreams
from edge.streams.processor.rights import check_writes, reads
from edge.streams.processor.window_clock import WindowClock
from edge.streams.report import Report
from edge.streams.settings import StreamSettings
from edge.streams.store import StreamStore
from edge.streams.stored_rows import TO_CORRECT, LateElement, StoredElement
from edge.streams.stream import Stream
from edge.streams.window_engine import WindowEngine

_log = logging.getLogger(__name__)


class Accepted(NamedTuple):
    """What became of the elements of a request."""

    elements: int
    late: int
    """Those that corrected earlier reports, or could have."""
    too_late: int
    """Those that came after the lateness of the stream, or that a window on change may lack.

    Earlier reports stay as they are. Later windows contain the element if its time is in their span.
    """


class _Held(NamedTuple):
    """Elements of a request that windows get at the end of the slide or the corrections in progress."""

    stream: Stream
    elements: Sequence[StoredElement]
    late: Collection[int]
    """Numbers of those that correct earlier reports."""


class Elements:
    """Takes the elements of all streams."""

    def __init__(
        self,
        settings: StreamSettings,
        store: StreamStore,
        engine: WindowEngine,
        streams: RegisteredStreams,
        pending_changes: PendingChanges,
        committer: Committer,
        corrector: Corrector,
        clock: WindowClock,
    ) -> None:
        self._settings = settings
        self._store = store
        self._engine = engine
        self._streams = streams
        self._pending_changes = pending_changes
        self._committer = committer
        self._corrector = corrector
        self._clock = clock
        self._held: list[_Held] = []
        """In the order of arrival."""
        self._held_size = 0
        """Bytes of their graphs."""
        self._late: dict[Stream, list[int]] = {}
        """Numbers of elements that the windows have taken, and that are not corrected."""
        self._are_held = False
        """Whether the corrections in progress are for elements that were held."""

    def post(
        self, identifier: str, elements: Sequence[NewElement], access: Access, now: int, *, holds: bool = False
    ) -> Accepted:
        """Add elements of a client to a stream, which came at `now`; they are durable at the return.

        `holds`: a slide or corrections are in progress that some of them are late for, so windows get them after that.

        Raises `NotFound`, `Forbidden`, `InvalidRequest`, `TooLarge`, `TooManyRequests`, `StorageFailed`; then none is
        added.
        """
        stream = self._streams.get(identifier, access)
        check_writes(access, stream.iri)
        if stream.source:
            raise InvalidRequest(f"This stream has the elements of {stream.source}; post to another one")
        return self.add(stream, elements, now, holds=holds)

    def add(self, stream: Stream, elements: Sequence[NewElement], now: int, *, holds: bool = False) -> Accepted:
        """Add elements to any stream; they are durable at the return. Arguments and errors are those of `post`.

        Also raises `AdvanceInProgress` during a slide or corrections if a window depends on arrivals: its slides would
        follow each other without an end, and the time of an arrival is not durable before the slide. And for late
        elements while elements that were held are corrected: other requests may wait for the end.
        """
        time = max(now, self._clock.time)
        accepted = [
            read_element(new, number, time, self._settings) for number, new in enumerate(elements, stream.number + 1)
        ]
        size = sum(len(graph) for _, graph in accepted)
        is_needed = self._streams.needs(stream)
        if is_needed:
            self._streams.check_room(self._held_size + size)
        passed = self._clock.time
        ends = SessionEnds(stream, passed)
        stored = [StoredElement(each, graph, missing(stream, each, passed, now, ends)) for each, graph in accepted]
        late = {each.element.number for each in stored if each.missing == TO_CORRECT}
        ends = SessionEnds(stream, passed, [each for each, _ in accepted])
        too_late = [
            LateElement(each.number, each.time, time, graph)
            for each, graph, missing in stored
            if missing > 0 or is_lost(stream, each, passed, ends)
        ]
        if not self._pending_changes.is_complete:
            # Once elements are held, later ones of the stream are, too: windows get them in the order of their numbers.
            holds = bool(holds or late or too_late or stream.held)
            if _depends_on_arrivals(stream) or (holds and (self._are_held or _has_sessions(stream))):
                raise AdvanceInProgress
        last = stream.number + len(accepted)

        def store() -> None:
            self._store.add(stream.id, last, stored if is_needed else ())
            if too_late:
                self._store.add_late(stream.id, too_late, self._settings.max_late)

        # With the time, so that after a restart it is still known which elements were late.
        self._committer.commit(store)
        stream.number = last
        if not is_needed:
            return Accepted(len(accepted), 0, 0)
        if holds:
            stream.held = stream.held or stored[0].element.number
            self._held.append(_Held(stream, stored, late))
            self._held_size += size
        else:
            self._keep(stream, stored)
            if late:
                self._late.setdefault(stream, []).extend(late)
        if too_late:
            stream.too_late += len(too_late)
            _log.warning("streams.too_late", extra={"stream": stream.iri, "elements": len(too_late)})
        return Accepted(len(accepted), len(late), len(too_late))

    def restore(self) -> None:
        """Make the corrections that an earlier process has not stored."""
        for stream in self._streams.by_iri.values():
            if stream.taken < stream.number:
                self._pending_changes.note_elements(stream)
            if stream.uncorrected:
                self._pending_changes.note_change(stream)
            self._late[stream] = list(stream.uncorrected)
        for _ in self.corrections() or ():
            pass

    def take_held(self) -> None:
        """Give windows what came during a slide, or corrections, which are done."""
        held, self._held, self._held_size = self._held, [], 0
        self._are_held = bool(held)
        for stream, elements, late in held:
            if self._streams.by_iri.get(stream.iri) is not stream:
                continue  # it has ended meanwhile
            stream.held = 0
            self._keep(stream, elements)
            if late:
                self._late.setdefault(stream, []).extend(late)

    def corrections(self) -> Iterator[int] | None:
        """Return the pieces of the corrections for late elements that windows have taken; None: all are corrected."""
        if not self._late:
            self._are_held = False
            return None
        late, self._late = self._late, {}
        return self._correct(late)

    def _correct(self, late: Mapping[Stream, Collection[int]]) -> Iterator[int]:
        yield from self._corrector.correct(late)
        self._are_held = False

    def late(self, identifier: str, access: Access) -> list[LateElement]:
        """Return the newest elements of a stream that came too late, oldest first.

        Raises `NotFound`, `Forbidden`, `StorageFailed`.
        """
        stream = self._streams.get(identifier, access)
        if not reads(access, stream.iri):
            raise Forbidden(f'The client "{access.client}" may not read {stream.iri}; the operator can allow it')
        return self._store.late(stream.id)

    def derive(self, stream: Stream, report: Report) -> None:
        """Let the graph of a report be an element of the stream of its query, durable with the report."""
        if not report.rows:
            return
        triples = tuple(ox.Triple(*row) for row in report.rows)  # type: ignore[arg-type]  # rows of a CONSTRUCT
        graph = serialized(triples)
        is_needed = self._streams.needs(stream)
        if is_needed:
            try:
                check_size(graph, self._settings)
                self._streams.check_room(len(graph))
            except EdgeError as error:
                _log.warning("streams.result_dropped", extra={"stream": stream.iri, "reason": error.description})
                return
        stream.number += 1
        element = StoredElement(Element(report.time, stream.number, triples), graph)
        if is_needed:
            self._pending_changes.add_derived(stream, element)
            self._keep(stream, [element])

    def _keep(self, stream: Stream, elements: Iterable[StoredElement]) -> None:
        for window in stream.windows:
            window.pass_time(self._clock.time)
        for stored in elements:
            stream.keep(stored)
            stream.take((stored.element,))
        for window in stream.windows:
            self._engine.schedule(window)
        self._pending_changes.note_elements(stream)


def _has_sessions(stream: Stream) -> bool:
    return any(window.definition.kind is WindowKind.SESSION for window in stream.windows)


def _depends_on_arrivals(stream: Stream) -> bool:
    """Return whether an element can make a window report at once, whatever its time."""
    return any(
        window.definition.report is ReportPolicy.CHANGE
        or window.definition.kind in (WindowKind.COUNT, WindowKind.TRIPLES)
        for window in stream.windows
    )
