"""Interfaces of windows, and their slides: changes of the content while time passes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple, Protocol

from edge.streams.model import Element, WindowDefinition


class Slide(NamedTuple):
    """A change of the content of a window, a report, or both."""

    time: int
    """Time of the report or of the change, in microseconds."""
    entering: Sequence[Element]
    """Elements that enter the content. Without those that enter and leave within the same slide."""
    leaving: Sequence[Element]
    """Elements that leave the content."""
    report: bool
    """Whether the window reports at this time."""


class Window(Protocol):
    """The content of a window while time passes.

    The window has no clock: the caller passes the time. The times that the caller passes do not decrease. Each element
    is taken once, and its number differs from those of all others.
    """

    definition: WindowDefinition

    @property
    def content(self) -> Collection[Element]:
        """Elements in the content as of the last slide. The collection changes with the next slide."""
        ...

    def due(self) -> int | None:
        """Return the time of the next slide that happens without a further arrival. None: nothing is due."""
        ...

    def take(self, element: Element) -> None:
        """Take an element that has arrived.

        Its time may be earlier than the times of elements that arrived before it. It is late if its time is before the
        last `now` of `slides`: then it enters with the next slide if it is inside at that time. So call `slides` with
        the present time first, also if no slide is due.
        """
        ...

    def slides(self, now: int) -> Iterator[Slide]:
        """Yield all slides up to and including `now`, in the order of time. Several may have the same time.

        Each slide is made when the caller asks for it. A caller that stops earlier gets the others with the next call.
        """
        ...

    def enter_late(self, begin: int) -> tuple[Sequence[Element], Sequence[Element]]:
        """Make the content that of the last slide with all elements that have come since, as if they had come in time.

        Returns the elements that enter and those that leave. Does nothing if no slide was due since `begin`, and for
        windows whose slides depend on arrivals.
        """
        ...

    def skip_to(self, time: int) -> int:
        """Leave out the next slides up to and including `time` whose content is empty, as it is already before them.

        Returns the number of reports that are left out. Does nothing if the content has an element. May be called while
        an iterator of `slides` is in use.
        """
        ...

    def needed_from(self) -> int | None:
        """Return the time of the earliest element that the present content or a future slide needs. Elements with an
        earlier time can be deleted. None: no element that has arrived is needed.
        """
        ...


class WindowContent(Protocol):
    """Elements in a window that depend on time alone, not on the reports."""

    @property
    def elements(self) -> Collection[Element]:
        """Elements in the content as of the last move."""
        ...

    def take(self, element: Element) -> None:
        """Take an element that has arrived."""
        ...

    def move(self, end: int) -> tuple[Sequence[Element], Sequence[Element]]:
        """Make this the content just before `end`, and return the elements that enter and those that leave. `end` does
        not decrease.
        """
        ...

    def next_change(self) -> int | None:
        """Return the time of the next change that happens without a further arrival, at the earliest that of the last
        move. None: nothing changes. A change at `time` takes effect with `move(time + 1)`.
        """
        ...

    def needed_from(self) -> int | None:
        """Return the time of the earliest element that the present content or a future one needs. None: no element."""
        ...
