"""Time: windows slide, queries report, and graphs of reports become elements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from edge.streams.processor.advance_in_progress import AdvanceInProgress
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

_LARGEST_TURN: Final = 1_000
"""Work of a slide after which a turn ends: triples, evaluations of queries (see `WindowEngine.slide`), and reports."""
_REPORTS: Final = 1_000
"""Work of reports after which a turn may end."""
_ROWS: Final = 100
"""Rows of a report that take as long as another report."""


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
        self._present: tuple[int, Iterator[int]] | None = None
        """Time and further pieces of the slide in progress, or of the corrections up to that time."""
        self._is_correcting = False
        """Whether the pieces are those of corrections."""
        self._work = 0
        """Work that the last call did for the last slide."""
        engine.time = clock.time

    @property
    def is_advancing(self) -> bool:
        """Whether a slide or corrections are in progress, which further calls of `advance` continue.

        During a slide, the windows have slid already, and the calls make the reports. During corrections, no window
        slides.
        """
        return self._present is not None

    def due(self) -> int | None:
        """Return the time at which `advance` has something to do; None if nothing is due."""
        return self._engine.due()

    def advance(self, now: int) -> bool:
        """Let all windows slide up to and including `now`, and collect the reports.

        Returns whether that is done. With very many slides and reports, further calls continue it, also within a slide.
        """
        clock = self._clock
        clock.compare(now)
        now = max(now, clock.time)
        if now - clock.time > _PAUSE and not self.is_advancing:
            self._skip(now)
        slides = 0
        # After a slide in progress, the turn ends: before the next slide, its reports become durable, and requests come
        # that have waited. After corrections, the windows slide at once, because more late elements may have waited.
        work = _MANY if self.is_advancing and not self._is_correcting else 0
        last, is_done = clock.time, True
        while True:
            present = self._present or self._next(now)
            # Only between two times: windows that slide at the same time may belong to one report.
            if present is not None and self._present is None and work >= _MANY and present[0] > last:
                if slides >= _MANY:
                    self._skip(now)
                now, is_done, present = last, False, None
            if present is None:
                self._reach(now)
                if (pieces := self._elements.corrections()) is None:
                    break
                present, self._is_correcting = (now, pieces), True
            time, pieces = present
            self._present, last = present, max(last, time)
            slides += 1
            work += 1
            if not self._continue(pieces):
                self._pause(last)
                return False
            work = 0 if self._is_correcting else work + self._work
            self._present, self._is_correcting = None, False
        self._pending_changes.is_complete = True
        return is_done

    def _reach(self, now: int) -> None:
        """Note that all windows have slid up to `now`, and give them what was held meanwhile."""
        self._clock.time = self._engine.time = now
        self._pending_changes.take_elements()
        self._elements.take_held()

    def correct(self) -> None:
        """Begin the corrections for late elements that have come. Further calls of `advance` continue them."""
        if self._present is not None or (pieces := self._elements.corrections()) is None or self._continue(pieces):
            return
        self._present, self._is_correcting = (self._clock.time, pieces), True
        self._pause(self._clock.time)

    def _next(self, now: int) -> tuple[int, Iterator[int]] | None:
        time = self._engine.due()
        return None if time is None or time > now else (time, self._slide(time))

    def _continue(self, pieces: Iterator[int]) -> bool:
        """Continue a slide. Returns whether it is done: a large one needs several calls."""
        self._work = 0
        for done in pieces:
            self._work += done
            if self._work >= _LARGEST_TURN:
                return False
        return True

    def _pause(self, time: int) -> None:
        """Interrupt the slide of a time. Elements can come meanwhile: see `admit`."""
        self._clock.time = max(self._clock.time, time)
        self._pending_changes.is_complete = False

    def begin_time(self, now: int) -> int:
        """Let the windows slide up to `now`, and return the time from which a new query can report.

        During a slide or corrections, this is the time after them: the query takes no part, also if they are made again
        after a crash.
        """
        if self._present is None:
            self.advance(now)
        time = self._clock.time
        return time if self._present is None else max(time, self._present[0] + 1)

    def admit(self, now: int, first: int) -> bool:
        """Let elements come at a time, also during a slide or corrections, as if these were done.

        `first`: the earliest of their times. Returns whether windows get them after that, because some are late
        for it. Raises `AdvanceInProgress` if they have to wait for the end: other windows have to slide or to get
        results before they come.
        """
        if self._present is None:
            return False
        due = self._engine.due()
        is_next = due is None or due > now
        if not is_next or self._streams.has_chains:
            raise AdvanceInProgress
        self._clock.time = max(self._clock.time, now)
        return first <= self._present[0]

    def settle(self) -> None:
        """Let the windows slide that are due now because of elements that have come. To be called before others come.

        A window of counts can be due again at once, each time with a report.
        """
        while (time := self._engine.due()) is not None and time <= self._clock.time:
            for _ in self._slide(time):
                pass

    def _slide(self, time: int) -> Iterator[int]:
        """Let the windows slide that are due at a time. Yields the work of each piece: see `WindowEngine.slide`.

        Also yields the work of queries that report, after so many of them that a turn may end.
        """
        reporting = yield from self._engine.slide(time)
        # A query over several of these windows reports once; a dict, unlike a set, has the same order in each run.
        queries = {query: None for window in reporting for query in self._users.of(window)}
        work = 0
        for query in queries:
            work += 1
            if work >= _REPORTS:
                yield work
                work = 0
            # A window that several queries share may still have to slide for the time before the newest of them. Others
            # have ended since the windows have slid.
            if query.state != "running" or time < query.begun or not query.windows:
                continue
            report = query.report(time)
            query.mark(time)
            self._pending_changes.note_result(query)
            if report is not None:
                work += len(report.rows) // _ROWS
                self._pending_changes.add_report(query, report)
                if not query.is_subscription and (output := query.output_stream) is not None:
                    self._elements.derive(self._streams.by_iri[output], report)
        yield work

    def _skip(self, now: int) -> None:
        """Leave out the reports of windows that stayed empty while the process did not run."""
        for window in self._users.windows:
            skipped = window.window.skip_to(now)
            self._engine.schedule(window)
            for query in self._users.of(window) if skipped else ():
                query.skipped += skipped
