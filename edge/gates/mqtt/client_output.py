"""The way to one client over the broker, as its session writes to it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

from edge.gates.mqtt.connection import BrokerConnection
from edge.gates.mqtt.correlation import Correlation
from edge.protocol.errors import EdgeError, ResultTooLarge, SubscriptionFailed

_WINDOW = 20
"""Messages to one client that the broker may have yet to acknowledge."""
_PATIENCE = 30.0
"""Seconds a broker may leave as many unacknowledged before the connection to it is given up."""


class MqttConnection:
    """The sending side of a client; a `Connection` of `edge.gates.outgoing`.

    What the broker has acknowledged counts as taken: how much it keeps for a client that is slow is for it to decide.
    """

    def __init__(
        self,
        wire: BrokerConnection,
        topic: str,
        correlation: Correlation,
        max_payload: int,
        *,
        on_close: Callable[[], None],
        on_too_large: Callable[[str], None],
    ) -> None:
        """`max_payload` in bytes. `on_too_large`: the spuid of a subscription that has more to tell."""
        self._wire = wire
        self._topic = topic
        self._correlation = correlation
        self._max_payload = max_payload
        self._on_close = on_close
        self._on_too_large = on_too_large
        self._unanswered = 0
        self._room = asyncio.Event()
        self._room.set()

    @property
    def writable(self) -> bool:
        """Whether the broker has acknowledged enough."""
        return self._room.is_set()

    @property
    def unsent(self) -> int:
        """None: the broker takes everything, or the connection to it is given up."""
        return 0

    def write(self, text: str) -> None:
        """Send without waiting. Nothing while the broker is away: sessions end with the connection to it."""
        if len(text.encode()) > self._max_payload:
            text = self._instead(text).to_json()
        found = self._correlation.take(text)
        if found is not None:
            text, reply = found
            sent = self._wire.publish(reply.topic, text.encode(), correlation=reply.correlation, done=self._taken)
        else:
            sent = self._wire.publish(self._topic, text.encode(), done=self._taken)
        if sent:
            self._unanswered += 1
            if self._unanswered >= _WINDOW:
                self._room.clear()

    async def write_and_wait(self, text: str) -> bool:
        """Send, and wait until the broker has acknowledged enough. False: the connection is lost."""
        self.write(text)
        return await self.taken()

    async def taken(self) -> bool:
        """Wait until the broker has acknowledged enough. False: the connection is lost."""
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._room.wait()
        except TimeoutError:
            self._wire.drop(f"messages were not acknowledged within {_PATIENCE:.0f} s")
            return False
        return self._wire.connected

    def close(self, code: int, reason: str) -> None:
        """The session has ended."""
        self._on_close()

    def abort(self) -> None:
        """There is nothing to abort: the broker has what was written."""

    def unlink(self) -> None:
        """Forget the client, which refers to this, as it has gone."""
        self._on_close = _nothing
        self._on_too_large = _ignore

    def _taken(self) -> None:
        self._unanswered -= 1
        if self._unanswered < _WINDOW:
            self._room.set()

    def _instead(self, text: str) -> EdgeError:
        """The error for a message that is too large. A subscription cannot leave one out, so it ends."""
        message = json.loads(text)
        kind, body = next(iter(message.items()))
        alias = (body if isinstance(body, dict) else message).get("alias")
        limit = f"is larger than {self._max_payload} bytes (mqtt_gate.max_result)"
        if kind != "notification":
            return ResultTooLarge(f"The answer {limit}; ask for less", alias=alias)
        self._on_too_large(body["spuid"])
        return SubscriptionFailed(
            f"A notification {limit}, so the subscription has ended; subscribe to less",
            alias=alias,
            spuid=body["spuid"],
        )


def _nothing() -> None:
    pass


def _ignore(_: str) -> None:
    pass
