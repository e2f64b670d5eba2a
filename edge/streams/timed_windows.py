"""Windows whose slides depend on time and on the change of their content, whatever the content is."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from edge.streams.model import Element, ReportPolicy, WindowDefinition
from edge.streams.slide import Slide, WindowContent


class AlignedWindow:
    """A window that slides at times of equal distance."""

    def __init__(self, definition: WindowDefinition, content: WindowContent, first: int, step: int) -> None:
        """`first`: time of the first slide. `step`: distance of the slides, in microseconds."""
        self.definition = definition
        self._content = content
        self._next = first
        self._step = step
        self._non_empty_only = definition.report is ReportPolicy.NON_EMPTY

    @property
    def content(self) -> Collection[Element]:
        """Elements in the content."""
        return self._content.elements

    def due(self) -> int | None:
        """Return the time of the next slide: the next end of the window at which it reports or an element enters."""
        if self._non_empty_only and not self.content:
            change = self._content.next_change()
            return None if change is None else max(self._next, self._end_after(change))
        return self._next

    def _end_after(self, time: int) -> int:
        """Return the first end of the window after `time`."""
        return self._next + ((time - self._next) // self._step + 1) * self._step

    def take(self, element: Element) -> None:
        """Take an element."""
        self._content.take(element)

    def slides(self, now: int) -> Iterator[Slide]:
        """Yield the slides up to and including `now`."""
        while (time := self.due()) is not None and time <= now:
            entering, leaving = self._content.move(time)
            self._next = time + self._step
            report = not self._non_empty_only or bool(self.content)
            if report or leaving:
                yield Slide(time, entering, leaving, report)
        if self._non_empty_only:
            # An element that is taken from now on is not in a report of the past.
            self.skip_to(now)

    def enter_late(self, begin: int) -> tuple[Sequence[Element], Sequence[Element]]:
        """Let late elements enter the content of the last slide, if it was after `begin`."""
        if self._next - self._step <= begin:
            return (), ()
        return self._content.move(self._next - self._step)

    def skip_to(self, time: int) -> int:
        """Leave out the next slides up to and including `time` whose content is empty. Returns the number of reports
        that are left out.
        """
        if self.content:
            return 0
        change = self._content.next_change()
        last = self._end_after(time if change is None else min(time, change)) - self._step
        if last < self._next:
            return 0
        count = (last - self._next) // self._step + 1
        self._content.move(last)
        self._next = last + self._step
        return 0 if self._non_empty_only else count

    def needed_from(self) -> int | None:
        """Return the time of the earliest element that is needed."""
        return self._content.needed_from()


class ChangingWindow:
    """A window that slides and reports when its content changes. All changes of one instant are one slide."""

    def __init__(self, definition: WindowDefinition, content: WindowContent, begin: int) -> None:
        """`begin`: time from which it reports. The content is that of this time."""
        self.definition = definition
        self._content = content
        self._time = begin

    @property
    def content(self) -> Collection[Element]:
        """Elements in the content."""
        return self._content.elements

    def due(self) -> int | None:
        """Return the time of the next change. A late element changes the content at the latest time of slides."""
        return self._content.next_change()

    def take(self, element: Element) -> None:
        """Take an element."""
        self._content.take(element)

    def slides(self, now: int) -> Iterator[Slide]:
        """Yield the changes up to and including `now`."""
        while (time := self.due()) is not None and time <= now:
            self._time = time
            entering, leaving = self._content.move(time + 1)
            yield Slide(time, entering, leaving, True)
        # Nothing changes by that, but elements that are taken from now on do not enter earlier.
        self._time = max(self._time, now)
        self._content.move(self._time + 1)

    def enter_late(self, begin: int) -> tuple[Sequence[Element], Sequence[Element]]:
        """Return nothing: late elements enter with the next slide."""
        return (), ()

    def skip_to(self, time: int) -> int:
        """Return 0: each slide of this window changes its content."""
        return 0

    def needed_from(self) -> int | None:
        """Return the time of the earliest element that is needed."""
        return self._content.needed_from()
