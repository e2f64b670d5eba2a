"""The engine of client sessions: the scheduler, with continuous queries over streams among the subscriptions."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final, TypeVar

from edge.engine.requests import ActiveSubscription, Answer, QueryRequest, Sink, UpdateOutcome, UpdateRequest
from edge.engine.resume.recovery import RestoredSubscription
from edge.engine.scheduling.scheduler import Scheduler
from edge.protocol.access import Access
from edge.protocol.due_time import When
from edge.protocol.timers import TimerConfirmation, TimerRecord, TimerState

if TYPE_CHECKING:
    from edge.gateway.streams import RunningStreams

T = TypeVar("T")

_REGISTER: Final = re.compile("register", re.IGNORECASE)


class StreamsInUse:
    """The streams, which are made when a client or the data of an earlier process needs them: they take memory."""

    def __init__(self, make: Callable[[], RunningStreams] | None) -> None:
        """`make`: None if the gateway has no streams."""
        self._make = make
        self.opened: RunningStreams | None = None
        """The streams; None if nobody has needed them yet."""

    def open(self) -> RunningStreams | None:
        """Return the streams; None if the gateway has none. Call this on the event loop."""
        if self.opened is None and self._make is not None:
            self.opened = self._make()
        return self.opened

    async def stop(self) -> None:
        """Stop them, if they were made."""
        self._make = None
        if self.opened is not None:
            await self.opened.stop()


class StreamingEngine:
    """See `edge.gates.engine_interface.SessionEngine`. A text that registers a query is a subscription to a window."""

    def __init__(self, engine: Scheduler, streams: StreamsInUse) -> None:
        self._engine = engine
        self._streams = streams

    def update(self, requests: list[UpdateRequest], /) -> Future[list[UpdateOutcome]]:
        """Run updates."""
        return self._engine.update(requests)

    def read(self, request: QueryRequest, read: Callable[[Answer], T], /) -> Future[T]:
        """Evaluate a query."""
        return self._engine.read(request, read)

    def schedule(self, request: UpdateRequest, when: When, name: str | None, /) -> Future[TimerConfirmation]:
        """Schedule a delayed update."""
        return self._engine.schedule(request, when, name)

    def cancel(self, name: str, who: Access, client: str | None, /) -> Future[None]:
        """Cancel a delayed update."""
        return self._engine.cancel(name, who, client)

    def timer(self, name: str, who: Access, client: str | None, /) -> Future[TimerRecord]:
        """Return the state of a delayed update."""
        return self._engine.timer(name, who, client)

    def timers(self, state: TimerState | None, limit: int, who: Access, /) -> Future[list[TimerRecord]]:
        """Return delayed updates."""
        return self._engine.timers(state, limit, who)

    def subscribe(
        self, query: QueryRequest, sink: Sink, /, alias: str | None = None, *, keep: bool = False
    ) -> Future[ActiveSubscription]:
        """Subscribe to a query, or to a window. The latter does not survive a restart."""
        # Most subscriptions are to the graph, and the front ends of the other languages take memory.
        streams = None if _REGISTER.search(query.sparql) is None else self._streams.open()
        if streams is not None and streams.registers(query.sparql):
            return streams.subscribe(query, sink, alias)
        return self._engine.subscribe(query, sink, alias, keep=keep)

    def take_over(self, sink: Callable[[str], Sink], /) -> Future[list[RestoredSubscription]]:
        """Return the subscriptions that survived a restart."""
        return self._engine.take_over(sink)

    def transfer(self, spuid: str, client: str, /) -> Future[None]:
        """Charge a subscription to another client."""
        return self._engine.transfer(spuid, client)

    def unsubscribe(self, spuid: str, /) -> Future[None]:
        """End a subscription."""
        streams = self._streams.opened
        ended = None if streams is None else streams.unsubscribe(spuid)
        return self._engine.unsubscribe(spuid) if ended is None else ended
