"""Retained messages of the announcer at the broker: those that it wants, and those that it finds there."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from edge.adapters.actuation_outbox import WINDOW, ActuationQueue
from edge.adapters.mqtt_link import MqttLink
from edge.adapters.settings import MqttSettings
from edge.announce.following import Post
from edge.announce.refusals import QUIET, Refusals
from edge.announce.topics import OFFLINE, ONLINE, Place
from edge.mapping.actuators import Command

_log = logging.getLogger(__name__)

_PATIENCE: Final = 30.0
"""Seconds without an acknowledgement after which the connection to the broker is dropped."""
_LARGEST: Final = 64 * 1024
"""Bytes of a message that is read."""
_NAME: Final = "announce"
_WINDOW: Final = WINDOW - 2
"""Unacknowledged messages. Those about the end and to itself must not wait in the library for others."""
_PROVEN: Final = 5.0
"""Seconds that a connection must last until the wait before the next one is short again."""
_BETWEEN: Final = 10.0
"""Least seconds between two repetitions of all messages for a client of the broker."""
_DOWN: Final = 10.0
"""Seconds without a connection after which that is a fault."""

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
        places = [place, *former]
        self._beginnings = [*(f"{each.base}/" for each in places), *(f"{each.prefix}/" for each in places)]
        self._serves = serves
        self._post = post
        self._waiting = waiting
        self._received = received
        self._synced = synced
        self._rate = rate
        self._queue = self._new_queue()
        self._wanted: dict[str, tuple[bytes, float]] = {}
        self._again: dict[str, None] = {}
        """Topics whose messages are repeated. Others go before them."""
        self._repeat_at: float | None = None
        self._repeated_at = -math.inf
        self._refusals = Refusals()
        self._removals: dict[str, float] = {}
        """Pauses by refused topic whose message has to be removed."""
        self._logged = ""
        self._answered_at = -math.inf
        self._client: Client | None = None
        self._broker = connection.broker
        self._down_since = time.monotonic()
        self._sent: dict[int, str] = {}
        self._is_ending = False
        self._farewell: int | None = None
        """Packet identifier of the last message, until it is acknowledged."""
        self._subscription: int | None = None
        self.published = 0
        """Messages that the broker acknowledged."""
        self._link = MqttLink(
            connection,
            _NAME,
            f"-{_NAME}",
            on_up=lambda client: post(partial(self._up, client)),
            on_down=lambda: post(partial(self._down, time.monotonic())),
            on_answer=lambda *answer: post(partial(self._answered, time.monotonic(), *answer)),
            prepare=self._prepare,
            proven_after=_PROVEN,
        )

    def __len__(self) -> int:
        """Messages that wait or are not acknowledged."""
        return len(self._queue) + len(self._again) + (self._farewell is not None)

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

    @property
    def fault(self) -> str:
        """Why messages do not reach the broker; empty: no problem."""
        if self._refusals.fault:
            return self._refusals.fault
        down = 0.0 if self._client is not None else time.monotonic() - self._down_since
        return f"the broker {self._broker} is not connected" if down >= _DOWN else ""

    def start(self) -> None:
        """Connect, and stay connected."""
        self._down_since = time.monotonic()
        self._link.start()

    def online(self) -> None:
        """Report that the gateway runs: it takes commands from now on."""
        if self._serves:
            self.put(self._place.status, ONLINE, 0.01)

    def stop(self, timeout: float) -> None:
        """Disconnect. An orderly end has no will; without an acknowledged `goodbye`, the broker publishes it."""
        if self._serves and (not self._is_ending or self._farewell is not None):
            self._link.abort()
        self._link.stop(timeout)

    def goodbye(self) -> None:
        """Report at once that the gateway ends. Waiting states are of no use then, and nothing follows."""
        if not self._serves:
            return
        self._queue, self._is_ending = self._new_queue(), True
        self._again.clear()
        if self._client is not None:
            self._farewell = self._client.publish(self._place.status, OFFLINE, 1, retain=True).mid

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
        self._again = dict.fromkeys(self._wanted)
        status = self._wanted.get(self._place.status)
        if status is not None:  # first, because the broker has published the will
            self._enqueue(self._place.status, *status)

    def repeat_soon(self, now: float) -> None:
        """Publish everything again for a client that has started, not more often than the broker can bear."""
        if self._repeat_at is None:
            self._repeat_at = max(now, self._repeated_at + _BETWEEN)

    def send(self) -> None:
        """Send what is due."""
        client, now = self._client, time.monotonic()
        if client is None or self._is_ending:
            return
        self._release(now)
        if self._repeat_at is not None and now >= self._repeat_at:
            self._repeat_at, self._repeated_at = None, now
            self.repeat()
        since = self._queue.unanswered_since()
        if since is not None and now - since >= _PATIENCE:
            self._client, self._down_since = None, now
            self._link.drop(f"a message was not acknowledged within {_PATIENCE:.0f} s")
            return
        while self._may_send(now := time.monotonic()) and (command := self._due(now)) is not None:
            self._again.pop(command.topic, None)
            try:
                self._sent[client.publish(command.topic, command.payload, command.qos, command.retain).mid] = (
                    command.topic
                )
            except ValueError as error:
                self._queue.done(command.topic)
                _log.error("announce.not_sent", extra={"topic": command.topic, "reason": str(error)})

    def _due(self, now: float) -> Command | None:
        """Return the next message; a repeated one only if no other is ready."""
        command = self._queue.due(now)
        while command is None and self._again and not self._queue.is_ready:
            topic = next(iter(self._again))
            self._enqueue(topic, *self._wanted[topic])
            command = self._queue.due(now)
        return command

    def _may_send(self, now: float) -> bool:
        self._refusals.settle(now)
        if not self._refusals.is_careful(now):
            return len(self._sent) < _WINDOW
        return not self._sent and now - self._answered_at >= QUIET

    def _release(self, now: float) -> None:
        """Try messages again that the broker refused some time ago."""
        topics, groups = self._refusals.released(now)
        if topics or groups:
            tried = [each for each in self._wanted if each in topics or self._group(each) in groups]
            self._again.update(dict.fromkeys(tried))
            for topic, interval in list(self._removals.items()):
                self._enqueue(topic, b"", interval)

    def pause(self, now: float) -> float | None:
        """Return the seconds until the next message is due; None: that depends on an event."""
        if self._client is None:
            return None
        ends = [each for each in (self._queue.wait(now), self._refusals.wait(now)) if each is not None]
        if self._refusals.is_careful(now):
            ends += [0.0] if self._again else []
            ends = [] if self._sent else [max(each, self._answered_at + QUIET - now) for each in ends]
        elif len(self._sent) >= _WINDOW:
            ends = []
        if self._repeat_at is not None:
            ends.append(self._repeat_at - now)
        if (since := self._queue.unanswered_since()) is not None:
            ends.append(since + _PATIENCE - now)
        return max(0.0, min(ends)) if ends else None

    def _enqueue(self, topic: str, payload: bytes, interval: float) -> None:
        self._again.pop(topic, None)
        group = self._group(topic)
        self._removals.pop(topic, None)
        if self._refusals.holds(topic, group):
            if not payload:
                self._removals[topic] = interval
        elif not self._is_ending:
            self._queue.put(Command(group, topic, payload, 1, retain=True), interval)

    def _group(self, topic: str) -> str:
        """Return the beginning that a topic has in common with those that a broker permits together."""
        return next((each for each in self._beginnings if topic.startswith(each)), "")

    def _new_queue(self) -> ActuationQueue:
        return ActuationQueue(self._rate, limit=1_000_000)

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
        self._refusals.connected(time.monotonic())
        self._sent.clear()
        if self._is_ending:
            return
        # With QoS 0: brokers limit the messages of other qualities that wait for a client, and drop the rest.
        filters = [(each, 0) for each in self._filters]
        if self._serves:
            filters += [(each, 0) for each in self._place.announcements]
            filters += [(self._place.commands, 1), (self._place.online, 1)]
        _, self._subscription = client.subscribe([*filters, (self._place.sync, 1)])
        self.repeat()

    def _listening(self, client: Client, mid: int) -> None:
        sync = self._place.sync
        is_permitted = not self._refusals.holds(sync, self._group(sync))
        if client is self._client and mid == self._subscription and is_permitted:
            self._sent[client.publish(sync, b"", 1).mid] = sync

    def _take(self, client: Client, topic: str, payload: bytes, retained: bool) -> None:
        if client is not self._client:
            return
        if topic == self._place.sync:
            # From now on they would only be an echo of the own messages.
            client.unsubscribe([*self._filters, self._place.sync])
            self._synced()
        else:
            self._received(topic, payload, retained)

    def _down(self, now: float) -> None:
        if self._client is not None:
            self._down_since = now
        self._client = self._farewell = None
        self._refusals.lost([(each, self._group(each)) for each in self._sent.values()], now)
        self._sent.clear()
        for command in self._queue.lost():
            reason = "it closes the connection"
            self._refusals.refused(command.topic, command.actuator, reason, now)
        self._drop_refused()

    def _answered(self, now: float, client: Client, mid: int, refused: str) -> None:
        if client is not self._client:
            return
        if mid == self._farewell:
            self._farewell = None
        topic = self._sent.pop(mid, None)
        if topic is None:
            return
        self._queue.done(topic)
        self._answered_at = now
        if refused:
            self._refusals.refused(topic, self._group(topic), refused, now)
            self._drop_refused()
        else:
            self._refusals.acknowledged(topic, self._group(topic), now)
            self.published += topic != self._place.sync

    def _drop_refused(self) -> None:
        """Leave out what the broker refuses, and log that once."""
        for topic in self._refusals.topics:
            if self._queue.discard(topic) and topic not in self._wanted:
                self._removals[topic] = 0.01
        for group in self._refusals.groups:
            self._queue.withdraw(group)
        fault = self._refusals.fault
        if fault and fault != self._logged:
            self._logged = fault
            _log.error("announce.refused", extra={"reason": fault})
