"""Time: windows slide, queries report, and graphs of reports become elements."""

from __future__ import annotations

from typing import Final

from edge.streams.processor.elements import Elements
from edge.streams.processor.pending_changes import PendingChanges
from edge.streams.processor.registered_streams import RegisteredStreams
from edge.streams.processor.window_clock import WindowClock
from edge.streams.processor.window_users import WindowUsers
from edge.streams.window_engine import WindowEngine

_PAUSE: Final = 60_000_000
"""Microseconds without a turn after which reports of windows that stayed empty are left out."""
_MANY: Final = 1_000
"""Slides and reports after which a turn ends: requests come before the next turn. After so many slides, reports of
windows that stayed empty are left out, too: the clock has jumped."""


class WindowAdvance:
    """Lets all windows slide."""

    def __init__(
        self,
        engine: WindowEngine,
        streams: RegisteredStreams,
        users: WindowUsers,
        elements: Elements,
        pending_changes: PendingChanges,
        clock: WindowClock,
    ) -> None:
        self._engine = engine
        self._streams = streams
        self._users = users
        self._elements = elements
        self._pending_changes = pending_changes
        self._clock = clock
        engine.time = clock.time

    def due(self) -> int | None:
        """Return the time at which `advance` has something to do; None if nothing is due."""
        return self._engine.due()

    def advance(self, now: int) -> bool:
        """Let all windows slide up to and including `now`, and collect the reports.

        Returns whether that is done. With very many slides and reports, further calls continue it.
        """
        clock = self._clock
        clock.compare(now)
        now = max(now, clock.time)
        if now - clock.time > _PAUSE:
            self._skip(now)
        slides = work = 0
        last, is_done = clock.time, True
        while (time := self._engine.due()) is not None and time <= now:
            # Only between two times: windows that slide at the same time may belong to one report.
            if work >= _MANY and time > last:
                if slides >= _MANY:
                    self._skip(now)
                now, is_done = last, False
                break
            last = max(last, time)
            slides += 1
            work += 1 + self._slide(time)
        clock.time = self._engine.time = now
        self._pending_changes.take_elements()
        return is_done

    def settle(self) -> None:
        """Let the windows slide that are due now because of elements that have come. To be called before others come.

        A window of counts can be due again at once, each time with a report.
        """
        while (time := self._engine.due()) is not None and time <= self._clock.time:
            self._slide(time)

    def _slide(self, time: int) -> int:
        """Let the windows slide that are due at a time. Returns the number of queries that have reported."""
        reporting = self._engine.slide(time)
        # A query over several of these windows reports once; a dict, unlike a set, has the same order in each run.
        queries = {query: None for window in reporting for query in self._users.of(window)}
        for query in queries:
            # A window that several queries share may still have to slide for the time before the newest of them.
            if query.state != "running" or time < query.begun:
                continue
            report = query.report(time)
            query.mark(time)
            self._pending_changes.note_result(query)
            if report is not None:
                self._pending_changes.add_report(query, report)
                if not query.is_subscription and (output := query.output_stream) is not None:
                    self._elements.derive(self._streams.by_iri[output], report)
        return len(queries)

    def _skip(self, now: int) -> None:
        """Leave out the reports of windows that stayed empty while the process did not run."""
        for window in self._users.windows:
            skipped = window.window.skip_to(now)
            self._engine.schedule(window)
            for query in self._users.of(window) if skipped else ():
                query.skipped += skipped
