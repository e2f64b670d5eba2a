"""Late elements: they enter the windows, and earlier reports are corrected."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from edge.protocol.errors import EdgeError
from edge.streams.corrections import affected_span, corrections, elements_read
from edge.streams.processor.pending_changes import PendingChanges
from edge.streams.processor.registered_streams import RegisteredStreams
from edge.streams.processor.window_clock import WindowClock
from edge.streams.processor.window_users import WindowUsers
from edge.streams.stream import Stream
from edge.streams.window_engine import WindowEngine

_log = logging.getLogger(__name__)
_UNAFFECTED: Final = 1
"""Work of a look at a query that late elements do not change."""


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

    def correct(self, late: Mapping[Stream, Collection[int]]) -> Iterator[int]:
        """Report what late elements change in earlier reports, and let windows have them. `late`: numbers, by stream.

        Together, because a query over several of the streams has to be evaluated once without and once with all.
        Yields the work after each query. No window may slide before the end.
        """
        until = self._clock.time
        elements = {stream.iri: {n: stream.element(n) for n in numbers} for stream, numbers in late.items()}
        for query in dict.fromkeys(query for stream in late for query in self._users.of_stream(stream)):
            # Subscribers have no history of reports that could be corrected.
            if query.state != "running" or query.is_subscription:
                continue
            span = affected_span(query, elements, until)
            if span is None:
                yield _UNAFFECTED
                continue
            try:
                for time, change in corrections(query, self._engine, self._streams.by_iri, elements, span):
                    self._pending_changes.add_report(query, query.correction(time, change))
            except EdgeError as error:
                _log.warning("streams.not_corrected", extra={"query": query.name, "reason": error.description})
            self._pending_changes.note_result(query)
            yield elements_read(query, self._streams.by_iri, span)
        for stream in late:
            self._enter_late(stream)

    def _enter_late(self, stream: Stream) -> None:
        """Let windows have late elements that are in their reports: other windows of a query may report next."""
        for window in stream.windows:
            self._engine.change(*window.enter_late())
            # A late element may have changed the time of the next slide.
            self._engine.schedule(window)
