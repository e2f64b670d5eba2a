"""Late elements: they enter the windows, and earlier reports are corrected."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from edge.protocol.errors import EdgeError
from edge.streams.corrections import corrections
from edge.streams.processor.pending_changes import PendingChanges
from edge.streams.processor.registered_streams import RegisteredStreams
from edge.streams.processor.window_clock import WindowClock
from edge.streams.processor.window_users import WindowUsers
from edge.streams.stream import Stream
from edge.streams.window_engine import WindowEngine

_log = logging.getLogger(__name__)


class Corrector:
    """Corrects the reports of all queries."""

    def __init__(
        self,
        engine: WindowEngine,
        streams: RegisteredStreams,
        users: WindowUsers,
        pending_changes: PendingChanges,
        clock: WindowClock,
    ) -> None:
        self._engine = engine
        self._streams = streams
        self._users = users
        self._pending_changes = pending_changes
        self._clock = clock

    def restore(self) -> None:
        """Make the corrections that an earlier process has not stored."""
        streams = self._streams.by_iri.values()
        for stream in streams:
            if stream.taken < stream.number:
                self._pending_changes.note_elements(stream)
            if stream.uncorrected:
                self._pending_changes.note_change(stream)
        self.correct({stream: stream.uncorrected for stream in streams if stream.uncorrected})
        for stream in streams:
            self._enter_late(stream)

    def correct(self, late: Mapping[Stream, Collection[int]]) -> None:
        """Report what late elements change in earlier reports. `late`: their numbers, by stream.

        Together, because a query over several of the streams has to be evaluated once without and once with all.
        """
        elements = {stream.iri: {n: stream.element(n) for n in numbers} for stream, numbers in late.items()}
        for query in dict.fromkeys(query for stream in late for query in self._users.of_stream(stream)):
            # Subscribers have no history of reports that could be corrected.
            if query.state != "running" or query.is_subscription:
                continue
            try:
                for time, change in corrections(query, self._engine, self._streams.by_iri, elements, self._clock.time):
                    self._pending_changes.add_report(query, query.correction(time, change))
            except EdgeError as error:
                _log.warning("streams.not_corrected", extra={"query": query.name, "reason": error.description})
            self._pending_changes.note_result(query)
        for stream in late:
            self._enter_late(stream)

    def _enter_late(self, stream: Stream) -> None:
        """Let windows have late elements that are in their reports: other windows of a query may report next."""
        for window in stream.windows:
            self._engine.change(*window.enter_late())
            # A late element may have changed the time of the next slide.
            self._engine.schedule(window)
