"""The observations of the gateway as elements of their stream, while a window needs them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from edge.protocol.errors import EdgeError
from edge.streams.encoding import serialized
from edge.streams.model import Element, WindowDefinition, WindowKind
from edge.streams.observations import Elements as NewObservations
from edge.streams.observations import Observations
from edge.streams.processor.element_limits import NewElement
from edge.streams.processor.elements import Elements
from edge.streams.processor.pending_changes import PendingChanges
from edge.streams.processor.registered_streams import RegisteredStreams
from edge.streams.processor.window_advance import WindowAdvance
from edge.streams.processor.window_clock import WindowClock
from edge.streams.recorded_values import FilledValue, FilledValues, unknown
from edge.streams.store import StreamStore
from edge.streams.stored_rows import StoredElement
from edge.streams.stream import Stream
from edge.streams.window_graph import distance, is_aligned, window_key

_log = logging.getLogger(__name__)


class ObservationSource:
    """Adds new observations, and those of the recent history."""

    def __init__(
        self,
        observations: Observations | None,
        store: StreamStore,
        streams: RegisteredStreams,
        elements: Elements,
        window_advance: WindowAdvance,
        pending_changes: PendingChanges,
        clock: WindowClock,
    ) -> None:
        """`observations`: None: there are none."""
        self._observations = observations
        self._store = store
        self._streams = streams
        self._elements = elements
        self._window_advance = window_advance
        self._pending_changes = pending_changes
        self._clock = clock
        self._unfollow: Callable[[], None] | None = None
        self._filled = FilledValues()
        self._number = 0
        """Number of the subscription."""
        self.failure = ""
        """Why no new observations come; empty if they do, or no window needs them."""

    def follow(self, stream: Stream) -> None:
        """Let new observations be elements of a stream. Raises `EdgeError`."""
        if self._observations is None or (self._unfollow is not None and not self.failure):
            return
        self._end()
        number = self._number

        def added(elements: NewObservations) -> None:
            # Values of an ended subscription can arrive later.
            if number == self._number:
                self._add(stream, elements)

        def failed(reason: str) -> None:
            if number == self._number:
                self.failure = reason

        self._unfollow = self._observations.follow(added, failed)

    def _end(self) -> None:
        """End the subscription, if there is one."""
        self._number += 1
        if self._unfollow is not None:
            self._unfollow()
        self._unfollow, self.failure = None, ""

    def _add(self, stream: Stream, elements: NewObservations) -> None:
        new: list[NewElement] = []
        filled: dict[int, FilledValue] = {}
        """Values with which some windows have begun, by the number of the new element."""
        for triples, time in elements:
            known = self._filled.take(triples, self._clock.time) if triples else None
            if known is not None and all(window.key in known.windows for window in stream.windows):
                continue
            if triples:
                new.append(NewElement(triples, time))
                if known is not None:
                    filled[stream.number + len(new)] = known
        if not new or not stream.windows:
            return
        try:
            self._window_advance.settle()
            with stream.skipping({number: each.windows for number, each in filled.items()}):
                self._elements.add(stream, new, self._clock.time)
            self._window_advance.correct()
        except EdgeError as error:
            _log.warning("streams.observations_lost", extra={"reason": error.description, "number": len(new)})
            return
        self._replace(stream, [each.element.number for each in filled.values()])

    def _replace(self, stream: Stream, numbers: Sequence[int]) -> None:
        """Remove elements of the history that others have replaced. Windows that have them keep them."""
        kept = [number for number in numbers if stream.has(number)]
        if not kept:
            return
        try:
            with self._store.transaction():
                self._store.remove(stream.id, kept)
        except EdgeError as error:
            _log.warning("streams.not_removed", extra={"reason": error.description})
        else:
            stream.replace(kept)

    def fill(self, stream: Stream, definition: WindowDefinition) -> Mapping[str, tuple[int, int]]:
        """Add the observations of the recent history that a new time window contains, so that it starts full.

        Returns the begin of the window.
        """
        if self._observations is None or definition.kind is not WindowKind.TIME:
            return {}
        time = self._clock.time
        kept = [element.time for element in stream.elements]
        end = min(kept, default=time)
        begin = time - definition.size
        past = unknown(self._observations.past(begin, time + 1), stream.elements, end)
        first = stream.number + 1
        added = [
            StoredElement(Element(time if own is None else own, number, triples), serialized(triples))
            for number, (triples, own) in enumerate(past, first)
        ]
        self._add_past(stream, added)
        self._filled.note([each.element for each in added], window_key(definition), begin, time)
        # Also elements that other windows have kept. Numbers are in the order of arrival, and these came before.
        earliest = min((element.number for element in stream.elements), default=first)
        # As if it had begun before its last slide, so that it has content.
        begun = time - (distance(definition) if is_aligned(definition) else 1)
        return {window_key(definition): (begun, earliest)}

    def _add_past(self, stream: Stream, elements: Sequence[StoredElement]) -> None:
        self._streams.check_room(sum(len(element.graph) for element in elements))
        all_taken = stream.taken == stream.number
        with self._store.transaction():
            self._store.add(stream.id, stream.number + len(elements), elements)
        stream.number += len(elements)
        if all_taken:  # otherwise other windows have yet to take those before
            stream.taken = stream.number
        self._pending_changes.note_change(stream)
        for element in elements:
            stream.keep(element)

    def release(self, stream: Stream) -> None:
        """Stop if the stream has no window. A later one takes its elements from the recent history."""
        if self._unfollow is None or stream.windows:
            return
        self._end()
        self._filled = FilledValues()
        numbers = stream.unneeded(None)
        try:
            with self._store.transaction():
                self._store.remove(stream.id, numbers)
        except EdgeError as error:
            _log.warning("streams.not_removed", extra={"reason": error.description})
        else:
            stream.forget(numbers)
