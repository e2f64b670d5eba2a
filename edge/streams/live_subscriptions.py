"""Subscriptions on the live graph, whose changes come to the thread of the processor."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from typing import Final, Protocol

from edge.engine.requests import ActiveSubscription, QueryRequest, Sink, SubscribeFailed, SubscriberNotification
from edge.protocol.access import Access
from edge.protocol.errors import NotReady
from edge.protocol.results import Row

_log = logging.getLogger(__name__)
_ANSWER: Final = 30.0
"""Seconds in which the live graph has to answer."""


class LiveEngine(Protocol):
    """The engine of the live graph."""

    def subscribe(self, query: QueryRequest, sink: Sink, /) -> Future[ActiveSubscription]:
        """Subscribe. The sink gets the first result before the future is done."""

    def unsubscribe(self, spuid: str, /) -> Future[None]:
        """End a subscription."""


class LiveSubscriptions:
    """The live graph, for the processor."""

    def __init__(self, engine: LiveEngine, put: Callable[[Callable[[], None]], None], answer: float = _ANSWER) -> None:
        """`put` runs an action on the thread of the processor; raises `NotReady` if that has ended. `answer`: seconds
        in which the live graph has to answer.
        """
        self._engine = engine
        self._put = put
        self._answer = answer

    def follow(
        self,
        sparql: str,
        access: Access,
        changed: Callable[[Sequence[Row], Sequence[Row]], None],
        failed: Callable[[str], None],
    ) -> tuple[Sequence[Row], Callable[[], None]]:
        """See `edge.streams.live_data.LiveGraph`."""
        first: list[Sequence[Row]] = []
        is_abandoned = False

        def sink(notification: SubscriberNotification | SubscribeFailed) -> None:
            # On the thread of the engine.
            if isinstance(notification, SubscribeFailed):
                _log.error("streams.live_data_failed", extra={"reason": notification.description})
                if not is_abandoned:
                    with contextlib.suppress(NotReady):
                        self._put(lambda: failed(notification.description))
                return
            delta = notification.delta
            if not first:
                first.append(delta.added)
                return
            if is_abandoned:
                return
            with contextlib.suppress(NotReady):
                self._put(lambda: changed(delta.added, delta.removed))

        future = self._engine.subscribe(QueryRequest(sparql, access=access), sink)
        try:
            spuid = future.result(self._answer).spuid
        except TimeoutError:
            is_abandoned = True
            if not future.cancel():
                future.add_done_callback(self._end_late)
            raise NotReady("The live graph is busy; try again later") from None
        except CancelledError:
            raise NotReady("The gateway is stopping") from None

        def end() -> None:
            self._engine.unsubscribe(spuid)

        return first[0], end

    def _end_late(self, future: Future[ActiveSubscription]) -> None:
        """End a subscription that began after nobody waited for it any more."""
        if not future.cancelled() and future.exception() is None:
            self._engine.unsubscribe(future.result().spuid)
