"""Continuous queries: published to MQTT topics, as a retained complete result and as deltas."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from concurrent.futures import Future
from functools import partial
from typing import Final

from edge.backoff import Backoff, Retry
from edge.engine.requests import ActiveSubscription, QueryRequest, SubscribeFailed, SubscriberNotification
from edge.gates.conflation import MergedDelta
from edge.gates.engine_interface import SessionEngine
from edge.gates.loop_dispatcher import LoopDispatcher
from edge.gates.mqtt.connection import BrokerConnection
from edge.gates.mqtt.topics import Topics
from edge.protocol.errors import EdgeError, ResultTooLarge, SubscriptionFailed
from edge.protocol.results import Row, results_to_json

_BACKOFF: Final = Backoff(1.0, 60.0)
"""Bounds of the back-off for failed subscriptions, in seconds."""

_log = logging.getLogger(__name__)


class ContinuousQueries:
    """All continuous queries. All methods are called on the event loop."""

    def __init__(
        self,
        engine: SessionEngine,
        dispatcher: LoopDispatcher,
        connection: BrokerConnection,
        topics: Topics,
        *,
        interval: float,
        max_payload: int,
    ) -> None:
        """`interval`: minimum seconds between two results of a query. `max_payload`: maximum bytes of a message."""
        self.engine = engine
        self.dispatcher = dispatcher
        self.connection = connection
        self.topics = topics
        self.interval = interval
        self.max_payload = max_payload
        self._queries: dict[str, ContinuousQuery] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._queries

    def follow(self, texts: Mapping[str, str]) -> None:
        """Replace the queries, by name. Changed queries restart; unchanged ones continue."""
        for name, query in list(self._queries.items()):
            if texts.get(name) != query.text:
                query.close()
                del self._queries[name]
                # A changed query keeps its last result until the next one replaces it.
                if name not in texts:
                    self.clear(name)
        for name, text in texts.items():
            if name not in self._queries:
                self._queries[name] = ContinuousQuery(name, text, self)

    def clear(self, name: str) -> None:
        """Delete a retained result from the broker."""
        self.connection.publish(self.topics.result(name), b"", retain=True)

    def up(self) -> None:
        """Publish all results again: a new connection may be to a broker that lost its state."""
        for query in self._queries.values():
            query.up()

    def close(self) -> None:
        """End all queries. The retained results stay at the broker."""
        for query in self._queries.values():
            query.close()
        self._queries.clear()

    def failures(self) -> dict[str, str]:
        """Return the queries that cannot be evaluated, with the reason."""
        return {name: query.failure.description for name, query in self._queries.items() if query.failure is not None}


class ContinuousQuery:
    """One continuous query. It stores its result, to publish it as a whole after each change.

    A message is sent after the previous one is acknowledged and the interval has passed; changes meanwhile are
    merged.
    """

    def __init__(self, name: str, text: str, shared: ContinuousQueries) -> None:
        self.text = text
        self.failure: EdgeError | None = None
        """Why there is no result; None: there is one, or it is being evaluated."""
        self._name = name
        self._shared = shared
        self._spuid = ""
        self._closed = False
        self._variables: tuple[str, ...] | None = None
        """None before the first result."""
        self._rows: dict[Row, int] = {}
        self._changes: MergedDelta | None = None
        self._whole = True
        """Whether the complete result must be sent, because no delta leads from the retained result to it."""
        self._sequence = -1
        self._busy = False
        self._free_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._retry_timer: asyncio.TimerHandle | None = None
        self._retry = Retry(_BACKOFF)
        self._subscribe()

    def up(self) -> None:
        """Publish the result again after a new connection to the broker."""
        # The acknowledgements of the old connection will not come.
        self._whole, self._busy, self._free_at = True, False, 0.0
        self._plan()

    def close(self) -> None:
        """Stop publishing."""
        self._closed = True
        for timer in (self._timer, self._retry_timer):
            if timer is not None:
                timer.cancel()
        if self._spuid:
            self._end(self._spuid)

    def _end(self, spuid: str) -> None:
        with contextlib.suppress(EdgeError):  # a stopping engine ends all subscriptions itself
            self._shared.engine.unsubscribe(spuid)

    def _subscribe(self) -> None:
        sink = partial(self._shared.dispatcher.put, self._receive)
        try:
            future = self._shared.engine.subscribe(QueryRequest(self.text), sink)
        except EdgeError as error:
            self._failed(error)
        else:
            future.add_done_callback(partial(self._shared.dispatcher.put, self._subscribed))

    def _subscribed(self, future: Future[ActiveSubscription]) -> None:
        failure = future.exception()
        if failure is not None:
            self._failed(failure if isinstance(failure, EdgeError) else EdgeError(str(failure)))
        # Closed while the subscription was being evaluated.
        elif self._closed:
            self._end(future.result().spuid)
        else:
            self._spuid = future.result().spuid
            self._retry.succeeded()

    def _receive(self, item: SubscriberNotification | SubscribeFailed) -> None:
        if self._closed:
            return
        if isinstance(item, SubscribeFailed):
            self._spuid = ""
            self._failed(SubscriptionFailed(item.description))
            return
        if item.sequence == 0:
            self.failure, self._variables, self._rows = None, item.delta.variables, {}
            self._changes, self._whole = None, True
        elif self._changes is None:
            self._changes = MergedDelta(item)
        else:
            self._changes.add(item)
        self._count(item)
        self._plan()

    def _count(self, notification: SubscriberNotification) -> None:
        rows = self._rows
        for row in notification.delta.removed:
            left = rows[row] - 1
            if left:
                rows[row] = left
            else:
                del rows[row]
        for row in notification.delta.added:
            rows[row] = rows.get(row, 0) + 1

    def _failed(self, error: EdgeError) -> None:
        if self._closed:
            return
        if self.failure is None or self.failure.description != error.description:
            _log.error("mqtt_gate.query_failed", extra={"query": self._name, "reason": error.description})
            self._whole = True
        self.failure, self._variables, self._changes = error, None, None
        self._retry_timer = asyncio.get_running_loop().call_later(self._retry.failed(), self._subscribe)
        self._plan()

    def _plan(self) -> None:
        """Schedule the next message as soon as it is allowed."""
        if self._timer is None and not self._busy and not self._closed and self._shared.connection.connected:
            self._timer = asyncio.get_running_loop().call_at(self._free_at, self._send)

    def _send(self) -> None:
        self._timer = None
        changes, self._changes = self._changes, None
        if self._whole:
            if self._variables is None and self.failure is None:
                return
            self._whole = False
            self._sequence += 1
        elif changes is not None:
            delta = changes.notification().delta
            if not delta.added and not delta.removed:
                return
            self._sequence += 1
            added, removed = delta.json
            text = f'{{"sequence":{self._sequence},"addedResults":{added},"removedResults":{removed}}}'
            self._publish(self._shared.topics.delta(self._name), text, retain=False)
        else:
            return
        self._free_at = asyncio.get_running_loop().time() + self._shared.interval
        self._busy = self._publish(self._shared.topics.result(self._name), self._result(), retain=True)

    def _result(self) -> str:
        if self.failure is not None:
            return self.failure.to_json()
        rows = (row for row, count in self._rows.items() for _ in range(count))
        return f'{{"sequence":{self._sequence},{results_to_json(self._variables or (), rows)[1:]}'

    def _publish(self, topic: str, text: str, *, retain: bool) -> bool:
        payload = text.encode()
        if len(payload) > self._shared.max_payload:
            limit = f"{self._shared.max_payload} bytes (mqtt_gate.max_result)"
            payload = ResultTooLarge(f"The message is larger than {limit}; ask for less").to_json().encode()
        return self._shared.connection.publish(topic, payload, retain=retain, done=self._taken if retain else _nothing)

    def _taken(self) -> None:
        self._busy = False
        if self._whole or self._changes is not None:
            self._plan()


def _nothing() -> None:
    pass
