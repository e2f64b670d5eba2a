"""Connection to the broker for the event loop: received messages, and published messages with acknowledgements."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from edge.gates.loop_dispatcher import LoopDispatcher

_log = logging.getLogger(__name__)

_WAITING = 1000
"""Maximum number of messages that wait for the event loop. Beyond it, QoS 1 waits at the broker, QoS 0 is dropped."""


class IncomingMessage(NamedTuple):
    """A message from the broker. The last two members are MQTT 5 properties, empty if missing."""

    topic: str
    payload: bytes
    retained: bool
    """Whether the broker sent it as a retained message."""
    response_topic: str
    correlation: bytes


class ConnectionThread(Protocol):
    """Keeps the connection alive on its own thread."""

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""

    def start(self) -> None:
        """Connect and stay connected. Returns at once."""

    def stop(self, timeout: float) -> None:
        """Disconnect."""

    def drop(self, reason: str) -> None:
        """Drop this connection, so that a new one is made."""


class ConnectionOwner(Protocol):
    """Receiver of connection events, on the event loop."""

    def up(self) -> None:
        """The connection is established and subscribed."""

    def down(self) -> None:
        """The connection is lost, with all unacknowledged messages."""

    def received(self, message: IncomingMessage) -> None:
        """A message has arrived."""


class BrokerConnection:
    """Connection to one broker. `prepare`, `opened`, `closed` and `answered` run on the link's thread, the rest on
    the loop.
    """

    def __init__(
        self,
        dispatcher: LoopDispatcher,
        owner: ConnectionOwner,
        filters: Iterable[str],
        will: tuple[str, bytes],
        make_link: Callable[[BrokerConnection], ConnectionThread],
    ) -> None:
        """`filters`: topic filters to subscribe to. `will`: topic and payload that the broker retains when the gate
        is gone.
        """
        self._dispatcher = dispatcher
        self._owner = owner
        self._filters = tuple(filters)
        self._will = will
        self._client: Client | None = None
        self._arrived: deque[tuple[Client, MQTTMessage]] = deque()
        self._unanswered: dict[int, Callable[[], None]] = {}
        self._link = make_link(self)
        self.start = self._link.start
        self.stop = self._link.stop
        self.drop = self._link.drop

    @property
    def connected(self) -> bool:
        """Whether the connection is established."""
        return self._client is not None

    @property
    def alive(self) -> bool:
        """Whether the link's thread runs."""
        return self._link.alive

    def publish(
        self,
        topic: str,
        payload: bytes,
        *,
        retain: bool = False,
        correlation: bytes = b"",
        done: Callable[[], None] = lambda: None,
    ) -> bool:
        """Publish with QoS 1; `done` is called after the acknowledgement. False without a connection."""
        client = self._client
        if client is None:
            return False
        properties: Properties | None = None
        if correlation:
            properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
            properties.CorrelationData = correlation
        self._unanswered[client.publish(topic, payload, 1, retain, properties).mid] = done
        return True

    # The link's thread

    def prepare(self, client: Client) -> None:
        """Configure a client that is about to connect."""
        topic, payload = self._will
        # Before CONNECT, of which the will is a part (MQTT 3.1.1, section 3.1.2.5).
        client.will_set(topic, payload, qos=1, retain=True)
        client.on_message = self._message
        client.on_subscribe = self._subscribed

    def opened(self, client: Client) -> None:
        """Subscribe: the broker accepted the connection."""
        client.subscribe([(topic, 1) for topic in self._filters])

    def closed(self) -> None:
        """Report that the connection is lost, or failed."""
        self._dispatcher.put(self._down, None)

    def answered(self, client: Client, mid: int, refused: str) -> None:
        """Report that the broker acknowledged or refused a message."""
        if refused:
            _log.warning("mqtt_gate.refused", extra={"reason": refused})
        self._dispatcher.put(self._done, (client, mid))

    def _subscribed(self, client: Client, _: object, __: int, codes: list[ReasonCode], ___: Properties | None) -> None:
        # The gate serves from SUBACK on: earlier requests would not reach it.
        if refused := [code for code in codes if code.is_failure]:
            _log.error("mqtt_gate.subscription_refused", extra={"reason": str(refused[0]), "topics": self._filters})
        else:
            self._dispatcher.put(self._up, client)

    def _message(self, client: Client, _: object, message: MQTTMessage) -> None:
        if message.qos or len(self._arrived) < _WAITING:
            self._arrived.append((client, message))
            self._dispatcher.put(self._came, None)

    # The event loop

    def _up(self, client: Client) -> None:
        self._client = client
        self._owner.up()

    def _down(self, _: None) -> None:
        self._unanswered.clear()
        if self._client is not None:
            self._client = None
            self._owner.down()

    def _done(self, answer: tuple[Client, int]) -> None:
        client, mid = answer
        # Message ids belong to a connection: a late answer of the previous one could have the id of a new message.
        if client is self._client:
            self._unanswered.pop(mid, _nothing)()

    def _came(self, _: None) -> None:
        client, message = self._arrived.popleft()
        if message.qos:
            # Acknowledged here and not on arrival: while the loop is busy, the broker's window limits the queue.
            client.ack(message.mid, message.qos)
        if client is not self._client:
            return
        try:
            topic = message.topic
        # paho decodes the topic on access.
        except UnicodeDecodeError:
            return
        properties = message.properties
        response_topic = getattr(properties, "ResponseTopic", "")
        correlation = getattr(properties, "CorrelationData", b"")
        self._owner.received(
            IncomingMessage(topic, bytes(message.payload), message.retain, response_topic, correlation)
        )


def _nothing() -> None:
    pass
