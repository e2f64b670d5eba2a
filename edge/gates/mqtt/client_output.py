"""Sending side of one MQTT client for its session."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

from edge.gates.mqtt.connection import BrokerConnection
from edge.gates.mqtt.correlation import Correlation
from edge.protocol.errors import EdgeError, ResultTooLarge, SubscriptionFailed

_WINDOW = 20
"""Maximum number of unacknowledged messages to one client."""
_PATIENCE = 30.0
"""Seconds after which the connection is dropped if the broker acknowledges none of them."""


class MqttConnection:
    """Sending side of a client; implements `ClientConnection` of `edge.gates.outgoing`.

    Messages count as accepted when the broker has acknowledged them. The broker limits the queue of a slow client.
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
        """`max_payload`: bytes. `on_too_large`: called with the spuid of a subscription whose notification is too
        large.
        """
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
        """Whether the broker has acknowledged enough messages."""
        return self._room.is_set()

    @property
    def unsent(self) -> int:
        """Zero: the broker accepts everything, or its connection is dropped."""
        return 0

    def write(self, text: str) -> None:
        """Send without waiting. Ignored without a connection: sessions end with it."""
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

    async def room(self) -> bool:
        """Wait until one more message may be sent. False: the connection is lost.

        Several may wait for the same client. All of them wake at once, and the first ones take the room.
        """
        while not self.writable:
            if not await self.taken():
                return False
        return self._wire.connected

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
        """End the session."""
        self._on_close()

    def abort(self) -> None:
        """Do nothing: the broker has all written messages."""

    def unlink(self) -> None:
        """Break the reference cycle with the client, which has ended."""
        self._on_close = _nothing
        self._on_too_large = _ignore

    def _taken(self) -> None:
        self._unanswered -= 1
        if self._unanswered < _WINDOW:
            self._room.set()

    def _instead(self, text: str) -> EdgeError:
        """Return the error for a message that is too large. A subscription cannot omit one, so it ends."""
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
