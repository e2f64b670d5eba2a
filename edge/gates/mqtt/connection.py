"""The connection to the broker as the event loop sees it: messages come, messages leave and are acknowledged."""

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
"""Messages that may wait for the event loop. Of QoS 1 the broker holds back what is beyond; of QoS 0 it is dropped."""


class IncomingMessage(NamedTuple):
    """A message from the broker. The last two are MQTT 5's; empty where the client gave none."""

    topic: str
    payload: bytes
    retained: bool
    """Whether it was said before this connection began."""
    response_topic: str
    correlation: bytes


class ConnectionThread(Protocol):
    """What keeps the connection up, on a thread of its own."""

    @property
    def alive(self) -> bool:
        """Whether the thread works."""

    def start(self) -> None:
        """Connect and stay connected. Returns at once."""

    def stop(self, timeout: float) -> None:
        """Disconnect."""

    def drop(self, reason: str) -> None:
        """Give this connection up, so that another is made."""


class Owner(Protocol):
    """What is told of the connection, on the event loop."""

    def up(self) -> None:
        """The broker sends what clients say, from now on."""

    def down(self) -> None:
        """The connection is lost, and what was not acknowledged with it."""

    def came(self, message: IncomingMessage) -> None:
        """A message."""


class BrokerConnection:
    """One broker. `prepare`, `opened`, `closed` and `answered` belong to the link's thread, all else to the loop."""

    def __init__(
        self,
        bridge: LoopDispatcher,
        owner: Owner,
        filters: Iterable[str],
        will: tuple[str, bytes],
        make_link: Callable[[BrokerConnection], ConnectionThread],
    ) -> None:
        """`filters`: what clients send. `will`: topic and payload of what the broker retains when we are gone."""
        self._bridge = bridge
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
        """Whether clients can be heard and answered."""
        return self._client is not None

    @property
    def alive(self) -> bool:
        """Whether the link's thread works."""
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
        """Send at QoS 1; `done` is called when the broker has it. False: there is no connection."""
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
        """Complete a client that is about to connect."""
        topic, payload = self._will
        client.will_set(topic, payload, qos=1, retain=True)
        client.on_message = self._message
        client.on_subscribe = self._subscribed

    def opened(self, client: Client) -> None:
        """The broker took the connection."""
        client.subscribe([(topic, 1) for topic in self._filters])

    def closed(self) -> None:
        """The connection is lost, or none came about."""
        self._bridge.put(self._down, None)

    def answered(self, client: Client, mid: int, refused: str) -> None:
        """The broker has a message, or refuses it."""
        if refused:
            _log.warning("mqtt_gate.refused", extra={"reason": refused})
        self._bridge.put(self._done, (client, mid))

    def _subscribed(self, client: Client, _: object, __: int, codes: list[ReasonCode], ___: Properties | None) -> None:
        if refused := [code for code in codes if code.is_failure]:
            _log.error("mqtt_gate.subscription_refused", extra={"reason": str(refused[0]), "topics": self._filters})
        else:
            self._bridge.put(self._up, client)

    def _message(self, client: Client, _: object, message: MQTTMessage) -> None:
        if message.qos or len(self._arrived) < _WAITING:
            self._arrived.append((client, message))
            self._bridge.put(self._came, None)

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
        if client is self._client:
            self._unanswered.pop(mid, _nothing)()

    def _came(self, _: None) -> None:
        client, message = self._arrived.popleft()
        if message.qos:
            # Only now: as long as the loop is busy, the broker keeps what is beyond its window.
            client.ack(message.mid, message.qos)
        if client is not self._client:
            return
        try:
            topic = message.topic
        except UnicodeDecodeError:
            return
        properties = message.properties
        response_topic = getattr(properties, "ResponseTopic", "")
        correlation = getattr(properties, "CorrelationData", b"")
        self._owner.came(IncomingMessage(topic, bytes(message.payload), message.retain, response_topic, correlation))


def _nothing() -> None:
    pass
