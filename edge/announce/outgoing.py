"""Retained messages of the announcer at the broker: those that it wants, and those that it finds there."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from edge.adapters.actuation_outbox import ActuationQueue
from edge.adapters.mqtt_link import MqttLink
from edge.adapters.settings import MqttSettings
from edge.announce.following import Post
from edge.announce.topics import OFFLINE, ONLINE, Place
from edge.mapping.actuators import Command

_log = logging.getLogger(__name__)

_PATIENCE: Final = 30.0
"""Seconds without an acknowledgement after which the connection to the broker is dropped."""
_LARGEST: Final = 64 * 1024
"""Bytes of a message that is read."""
_NAME: Final = "announce"

Received = Callable[[str, bytes, bool], None]
"""Topic, payload, and whether the broker had retained it."""


class Outgoing:
    """Publishes retained messages with QoS 1, within rate limits, and again after each connection.

    All methods belong to the announcer's thread, which `post` reaches from others. At each connection, the retained
    messages below the own topics come back from the broker, so that announcements before a restart are known.
    """

    def __init__(
        self,
        connection: MqttSettings,
        rate: float,
        place: Place,
        former: Iterable[Place],
        *,
        serves: bool,
        post: Post,
        waiting: Callable[[], bool],
        received: Received,
        synced: Callable[[], None],
    ) -> None:
        """`former`: other places whose messages have to go. `serves`: False if all messages have to go. `received`:
        called with each message; `synced`: after the retained ones of a connection.
        """
        self._place = place
        self._filters = [each for where in (place, *former) for each in where.retained]
        self._own = tuple(each for where in (place, *former) for each in where.own)
        self._serves = serves
        self._post = post
        self._waiting = waiting
        self._received = received
        self._synced = synced
        self._queue = ActuationQueue(rate, limit=1_000_000)
        self._wanted: dict[str, tuple[bytes, float]] = {}
        self._client: Client | None = None
        self._sent: dict[int, str] = {}
        self._subscription: int | None = None
        self.published = 0
        """Messages that the broker acknowledged."""
        self._link = MqttLink(
            connection,
            _NAME,
            f"-{_NAME}",
            on_up=lambda client: post(partial(self._up, client)),
            on_down=lambda: post(self._down),
            on_answer=lambda *answer: post(partial(self._answered, *answer)),
            prepare=self._prepare,
        )

    def __len__(self) -> int:
        """Messages that wait or are not acknowledged."""
        return len(self._queue)

    def __contains__(self, topic: str) -> bool:
        return topic in self._wanted

    @property
    def alive(self) -> bool:
        """Whether the thread of the connection runs."""
        return self._link.alive

    @property
    def connected(self) -> bool:
        """Whether the broker is connected."""
        return self._client is not None

    def start(self) -> None:
        """Connect, and stay connected."""
        self._link.start()

    def online(self) -> None:
        """Report that the gateway runs: it takes commands from now on."""
        if self._serves:
            self.put(self._place.status, ONLINE, 0.01)

    def stop(self, timeout: float) -> None:
        """Disconnect. An ordered end has no will, so `goodbye` comes before."""
        self._link.stop(timeout)

    def goodbye(self) -> None:
        """Report that the gateway ends. Waiting states are of no use then."""
        if self._serves:
            self.put(self._place.status, OFFLINE, 0.01)

    def put(self, topic: str, payload: bytes, interval: float) -> None:
        """Want a retained message; its topic then pauses for `interval` seconds. An empty payload removes it."""
        if payload:
            if self._wanted.get(topic) == (payload, interval):
                return
            self._wanted[topic] = (payload, interval)
        elif self._wanted.pop(topic, None) is None:
            return
        self._enqueue(topic, payload, interval)

    def clear(self, topic: str) -> None:
        """Remove a message from the broker, also one of an earlier run."""
        self._wanted.pop(topic, None)
        self._enqueue(topic, b"", 0.01)

    def repeat(self) -> None:
        """Publish everything again: the broker, or its client, may have lost it."""
        status = self._wanted.pop(self._place.status, None)
        if status is not None:  # first, because the broker has published the will
            self._wanted = {self._place.status: status, **self._wanted}
        for topic, (payload, interval) in self._wanted.items():
            self._enqueue(topic, payload, interval)

    def send(self) -> None:
        """Send what is due."""
        client, now = self._client, time.monotonic()
        if client is None:
            return
        since = self._queue.unanswered_since()
        if since is not None and now - since >= _PATIENCE:
            self._client = None
            self._link.drop(f"a message was not acknowledged within {_PATIENCE:.0f} s")
            return
        while (command := self._queue.due(time.monotonic())) is not None:
            try:
                self._sent[client.publish(command.topic, command.payload, command.qos, command.retain).mid] = (
                    command.topic
                )
            except ValueError as error:
                self._queue.done(command.topic)
                _log.error("announce.not_sent", extra={"topic": command.topic, "reason": str(error)})

    def pause(self, now: float) -> float | None:
        """Return the seconds until the next message is due; None: that depends on an event."""
        if self._client is None:
            return None
        ends = [each for each in (self._queue.wait(now),) if each is not None]
        if (since := self._queue.unanswered_since()) is not None:
            ends.append(since + _PATIENCE - now)
        return max(0.0, min(ends)) if ends else None

    def _enqueue(self, topic: str, payload: bytes, interval: float) -> None:
        self._queue.put(Command(_NAME, topic, payload, 1, retain=True), interval)

    # The thread of the connection

    def _prepare(self, client: Client) -> None:
        if self._serves:
            # Before CONNECT, of which the will is a part (MQTT 3.1.1, section 3.1.2.5).
            client.will_set(self._place.status, OFFLINE, qos=1, retain=True)
        client.on_message = self._message
        client.on_subscribe = self._subscribed

    def _message(self, client: Client, _: object, message: MQTTMessage) -> None:
        if message.qos:
            client.ack(message.mid, message.qos)
        try:
            topic = message.topic
        except UnicodeDecodeError:  # paho decodes the topic on access
            return
        # A flood of commands or announcements of others is not worth the memory.
        if self._waiting() and not (message.retain and topic.startswith(self._own)):
            return
        if len(message.payload) <= _LARGEST:
            self._post(partial(self._take, client, topic, bytes(message.payload), message.retain))

    def _subscribed(self, client: Client, _: object, mid: int, codes: list[ReasonCode], __: Properties | None) -> None:
        if refused := [code for code in codes if code.is_failure]:
            _log.error("announce.subscription_refused", extra={"reason": str(refused[0]), "topics": self._filters})
        self._post(partial(self._listening, client, mid))

    # The announcer's thread

    def _up(self, client: Client) -> None:
        self._client = client
        self._sent.clear()
        # With QoS 0: brokers limit the messages of other qualities that wait for a client, and drop the rest.
        filters = [(each, 0) for each in self._filters]
        if self._serves:
            filters += [(each, 0) for each in self._place.announcements]
            filters += [(self._place.commands, 1), (self._place.online, 1)]
        _, self._subscription = client.subscribe([*filters, (self._place.sync, 1)])
        self.repeat()

    def _listening(self, client: Client, mid: int) -> None:
        if client is self._client and mid == self._subscription:
            client.publish(self._place.sync, b"", 1)

    def _take(self, client: Client, topic: str, payload: bytes, retained: bool) -> None:
        if client is not self._client:
            return
        if topic == self._place.sync:
            # From now on they would only be an echo of the own messages.
            client.unsubscribe([*self._filters, self._place.sync])
            self._synced()
        else:
            self._received(topic, payload, retained)

    def _down(self) -> None:
        self._client = None
        for command in self._queue.lost():
            _log.error("announce.refused", extra={"topic": command.topic, "reason": "the broker ended the connection"})

    def _answered(self, client: Client, mid: int, refused: str) -> None:
        topic = self._sent.pop(mid, None) if client is self._client else None
        if topic is None:
            return
        self._queue.done(topic)
        if refused:
            _log.error("announce.refused", extra={"topic": topic, "reason": refused})
        else:
            self.published += 1
