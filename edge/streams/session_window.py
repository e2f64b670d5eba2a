"""Session windows: the content is elements without a long pause between them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter

from edge.streams.element_queue import ElementQueue
from edge.streams.model import Element, WindowDefinition
from edge.streams.slide import Slide

_first = attrgetter("first")
_last = attrgetter("last")


@dataclass(eq=False, slots=True)
class ElementSession:
    """Elements without a pause between them."""

    first: int
    """Time of its first element."""
    last: int
    """Time of its last element."""
    waiting: list[Element]
    """Its elements that are not in the content."""


class ElementSessions:
    """Sessions in the order of time, and one of them that is the content, or was when it had fewer elements.

    Sessions only grow: an element joins a session, or starts one, or makes two sessions one.
    """

    def __init__(self, pause: int) -> None:
        """`pause`: shortest span without an element that ends a session, in microseconds."""
        self._pause = pause
        self._sessions: list[ElementSession] = []
        self._shown: ElementSession | None = None
        self._inside: dict[int, Element] = {}

    @property
    def elements(self) -> Collection[Element]:
        """Elements in the content, in the order in which they entered."""
        return self._inside.values()

    def end(self, session: ElementSession) -> int:
        """Return the time at which a session ends, unless a further element arrives."""
        return session.last + self._pause

    def add(self, element: Element) -> None:
        """Let an element join its session, or start one."""
        time, sessions = element.time, self._sessions
        index = bisect_right(sessions, time, key=_first)
        # An element at the very end of a session starts a new one, because a pause of this length ends a session.
        before = sessions[index - 1] if index and self.end(sessions[index - 1]) > time else None
        after = sessions[index] if index < len(sessions) and sessions[index].first - time < self._pause else None
        if before and after:
            sessions[index - 1 : index + 1] = [self._join(before, after)]
        if session := before or after:
            session.waiting.append(element)
            session.first, session.last = min(session.first, time), max(session.last, time)
        else:
            sessions.insert(index, ElementSession(time, time, [element]))

    def _join(self, before: ElementSession, after: ElementSession) -> ElementSession:
        """Make two sessions one. Costs the shorter of the lists of waiting elements."""
        if len(before.waiting) < len(after.waiting):
            before.waiting, after.waiting = after.waiting, before.waiting
        before.waiting += after.waiting
        before.last = after.last
        if self._shown is after:
            self._shown = before
        return before

    def show(self, session: ElementSession | None) -> tuple[list[Element], list[Element]]:
        """Make a session the content, and return the elements that enter and those that leave."""
        leaving: list[Element] = []
        if session is not self._shown:
            leaving = list(self._inside.values())
            if self._shown:
                self._shown.waiting += leaving
            self._inside.clear()
            self._shown = session
        if session is None:
            return [], leaving
        entering = sorted(session.waiting)
        session.waiting = []
        self._inside.update((element.number, element) for element in entering)
        return entering, leaving

    def is_shown(self, session: ElementSession | None) -> bool:
        """Whether a session is the content, with all its elements. None: whether the content is empty."""
        return session is self._shown and not (session and session.waiting)

    def ending_after(self, time: int) -> ElementSession | None:
        """Return the first session that ends after `time`, if any."""
        index = bisect_right(self._sessions, time - self._pause, key=_last)
        return self._sessions[index] if index < len(self._sessions) else None

    def ended(self, time: int) -> ElementSession | None:
        """Return the last session that ended at or before `time`, if any."""
        index = bisect_right(self._sessions, time - self._pause, key=_last)
        return self._sessions[index - 1] if index else None

    def forget(self, time: int) -> None:
        """Delete the sessions that ended at or before `time`, except the content."""
        index = bisect_right(self._sessions, time - self._pause, key=_last)
        kept = [session for session in self._sessions[:index] if session is self._shown]
        if len(kept) < index:
            self._sessions[:index] = kept

    def needed_from(self) -> int | None:
        """Return the time of the first element, if any."""
        return self._sessions[0].first if self._sessions else None


class SessionContent:
    """The elements of the session that is open just before the end, as far as it has come; else none."""

    def __init__(self, pause: int, end: int, lateness: int) -> None:
        """`end`: the first end, to which the first move is made. `lateness`: span for which ended sessions are kept,
        because a late element may extend them, in microseconds.
        """
        self._sessions = ElementSessions(pause)
        self._end = end
        self._lateness = lateness
        self._pending = ElementQueue()

    @property
    def elements(self) -> Collection[Element]:
        """Elements in the content, in the order in which they entered."""
        return self._sessions.elements

    def take(self, element: Element) -> None:
        """Take an element."""
        if element.time < self._end:
            self._sessions.add(element)
        else:
            self._pending.push(element)

    def move(self, end: int) -> tuple[list[Element], list[Element]]:
        """Move the end, and return the elements that enter and those that leave."""
        self._end = end
        for element in self._pending.pop_before(end):
            self._sessions.add(element)
        change = self._sessions.show(self._open())
        self._sessions.forget(end - 1 - self._lateness)
        return change

    def _open(self) -> ElementSession | None:
        """Return the session that is open just before the end."""
        return self._sessions.ending_after(self._end - 1)

    def next_change(self) -> int | None:
        """Return the time at which the next element enters or the open session ends."""
        session = self._open()
        if not self._sessions.is_shown(session):
            return self._end - 1
        pending = self._pending.first()
        times = [pending.time] if pending else []
        if session:
            times.append(self._sessions.end(session))
        return min(times, default=None)

    def needed_from(self) -> int | None:
        """Return the time of the first element of the sessions that are kept."""
        pending = self._pending.first()
        first = self._sessions.needed_from()
        return first if first is not None else pending.time if pending else None


class SessionWindow:
    """The last session that has ended, with a report at its end.

    A late element that connects the last session with the next one makes them one session.
    """

    def __init__(self, definition: WindowDefinition, begin: int, lateness: int, history: Iterable[Element]) -> None:
        """`lateness`: span for which ended sessions are kept, because a late element may extend them, in microseconds.
        `history`: elements that arrived until `begin`.
        """
        self.definition = definition
        self._sessions = ElementSessions(definition.size)
        self._time = begin
        self._lateness = lateness
        for element in history:
            self._sessions.add(element)
        self._sessions.show(self._sessions.ended(begin))
        self._sessions.forget(begin - lateness)

    @property
    def content(self) -> Collection[Element]:
        """Elements of the session, in the order of time."""
        return self._sessions.elements

    def due(self) -> int | None:
        """Return the end of the next session."""
        session = self._sessions.ending_after(self._time)
        return self._sessions.end(session) if session else None

    def take(self, element: Element) -> None:
        """Take an element."""
        self._sessions.add(element)

    def slides(self, now: int) -> Iterator[Slide]:
        """Yield the reports of the sessions that end up to and including `now`."""
        while (session := self._sessions.ending_after(self._time)) and (end := self._sessions.end(session)) <= now:
            entering, leaving = self._sessions.show(session)
            self._pass(end)
            yield Slide(end, entering, leaving, True)
        self._pass(now)

    def _pass(self, time: int) -> None:
        """Let time pass, and forget sessions that no late element can extend."""
        self._time = max(self._time, time)
        self._sessions.forget(self._time - self._lateness)

    def enter_late(self, begin: int) -> tuple[list[Element], list[Element]]:
        """Show the last session that has ended since `begin`, as late elements have made it."""
        session = self._sessions.ended(self._time)
        return self._sessions.show(session if session and self._sessions.end(session) > begin else None)

    def skip_to(self, time: int) -> int:
        """Return 0: a report of this window has an element."""
        return 0

    def needed_from(self) -> int | None:
        """Return the time of the first element of the sessions that are kept."""
        return self._sessions.needed_from()
