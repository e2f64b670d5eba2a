"""MQTT adapter: converts messages to observations, and acknowledges them after their updates are durable."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Protocol

from paho.mqtt.client import Client, topic_matches_sub
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from edge.adapters.connection_loop import ConnectionLoop
from edge.adapters.ingest import Ingest
from edge.adapters.messages import MessageQueue, MqttMessage, decode
from edge.adapters.paho_client import make_client, read_credentials, subscribe
from edge.adapters.redelivery import NEW_SESSION, Receipts, receipt_of
from edge.adapters.settings import MqttSettings
from edge.adapters.writer import ReadingWriter
from edge.compat.paho import AcknowledgingClient, Packet, close_socket

_log = logging.getLogger(__name__)

_LOOK = 0.5
"""Seconds between two checks for declared topics."""
_TICK = timedelta(microseconds=1)


class Announcements(Protocol):
    """Announcements of devices, which become mappings."""

    @property
    def prefix(self) -> str:
        """Beginning of their topics."""

    def take(self, topic: str, payload: bytes) -> bool:
        """Note a message. False: it is not an announcement."""

    def apply(self) -> None:
        """Apply what was taken to the messages that are mapped next."""


class MqttAdapter:
    """One connection to one broker, and the thread that receives, maps and submits its messages.

    A message of QoS 1 or 2 is acknowledged after the commit of its updates, even if it has none. The engine's writer
    thread does that itself, so that the thread of the connection sleeps unless more messages wait. While the engine
    accepts no updates, messages stay unacknowledged. When too many wait, the adapter stops reading and drops messages
    of QoS 0; pings continue. Reconnects forever.
    """

    connected = False
    """Whether the broker is connected."""
    subscribed = False
    """Whether the broker has accepted all filters of `mqtt.topics`."""
    received = 0
    """Received messages."""
    dropped = 0
    """Messages of QoS 0 that found the queue full."""
    duplicates = 0
    """Repeated messages that were processed before."""
    written = 0
    """Processed messages."""
    acknowledged = 0
    """Messages of QoS 1 and 2 that were acknowledged."""

    def __init__(
        self,
        settings: MqttSettings,
        ingest: Ingest,
        receipts: bytes = b"",
        own: Callable[[str], None] = lambda _: None,
        own_topics: tuple[str, ...] = (),
        announcements: Announcements | None = None,
    ) -> None:
        """`receipts`: receipts in the journal. `own`: called with the topics of messages whose topics begin with one
        of `own_topics`: those of the gateway, which hold no readings.

        Raises `UnusableFile` for an unusable password or TLS file.
        """
        self._own = own
        self._own_topics = own_topics
        self._announcements = announcements
        prefix = "" if announcements is None else announcements.prefix
        self._set_aside = (*own_topics, prefix) if prefix else own_topics
        """Beginnings of topics whose messages are not mapped, or perhaps not."""
        self._settings = settings
        self._ingest = ingest
        self._client = make_client(settings)
        self._client.on_subscribe = self._on_subscribe
        self._client.on_publishes = self._on_publishes
        self._five = settings.version == "5"
        self._held: list[Packet] = []
        """Received packets that wait for room in the queue. Until they have it, the socket is not read."""
        self._queue = MessageQueue(settings.max_queued, settings.max_queued_bytes)
        self._lock = threading.Lock()
        """Guards what the engine's writer thread uses too: receipts, pending messages, the current connection."""
        self._receipts = Receipts(receipts)
        self._replaying = False
        """Whether no new message has arrived over this connection with an existing session."""
        self._forgetting = False
        """Whether the receipts belong to a session that has ended."""
        self._pending: dict[bytes, MqttMessage] = {}
        self._connection = 0
        self._requested = False
        """Whether the subscriptions of this connection are requested."""
        self._extra: frozenset[str] = frozenset()
        self._greeted = True
        """Whether the broker has answered the last connection request that it may have received."""
        self._unconfirmed: dict[int | None, tuple[str, ...]] = {}
        """Filters of unanswered subscribe requests, by packet identifier."""
        self._refused: set[str] = set()
        """Filters that the broker has refused. The next connection requests them again."""
        self._confirmed = False
        """Whether the broker has accepted all filters, so that the session has the subscriptions."""
        self._look_again = 0.0
        self._loop = ConnectionLoop(
            settings, "mqtt", connect=self._connect, on_up=self._up, on_down=self._down, work=self._work
        )
        self._loop.attach(self._client)
        self._writer = ReadingWriter(settings, ingest, self._queue, "mqtt", done=self._finish, wake=self._loop.wake)
        self._drained = threading.Event()
        """Set when the queue is closed and all its messages are processed."""

    @property
    def alive(self) -> bool:
        """Whether its thread runs."""
        return self._loop.alive

    @property
    def queued(self) -> int:
        """Messages that wait in the adapter."""
        return len(self._queue)

    def start(self) -> None:
        """Connect and stay connected. Returns at once; failures are logged, and the connection is retried."""
        self._loop.start()

    def stop(self, timeout: float = 3.0) -> None:
        """Stop receiving, process waiting messages within `timeout` seconds, disconnect."""
        deadline = time.monotonic() + timeout
        self._queue.close()
        self._loop.wake()
        if self._loop.alive:
            # First the messages: their acknowledgements still need the connection.
            self._drained.wait(max(0.0, timeout - 0.5))
        self._loop.stop(max(0.0, deadline - time.monotonic()))
        close_socket(self._client)

    # The thread of the connection

    def _connect(self) -> AcknowledgingClient:
        with self._lock:
            # Acknowledgements of an earlier connection are recognised by this number.
            self._connection += 1
        read_credentials(self._client, self._settings)
        self._client.reconnect()
        self._greeted = False
        return self._client

    def _up(self, _: Client, session_present: bool) -> None:
        self._greeted = True
        self._replaying = session_present
        self._confirmed = self._confirmed and session_present
        if not (session_present or self._forgetting) and (self._receipts or self._pending):
            # Its turn comes when all messages of the previous session are processed. Until then no message of the new
            # one is read.
            self._forgetting = True
            self._queue.put(MqttMessage("", b"", 0, False, 0, datetime.now(UTC), self._connection, NEW_SESSION))
        self._requested = False
        self.connected = True
        self._loop.works()

    def _down(self) -> None:
        self.connected = self.subscribed = False
        # The broker repeats those with an acknowledgement.
        self._held.clear()
        self._client.reading = True
        # The missing answer may have reported a new session.
        self._confirmed = self._confirmed and self._greeted

    def _work(self) -> float:
        """Submit what has arrived. Returns the seconds until the next call is necessary."""
        pause = self._turn()
        if self._held:
            self._queue_held()
            pause = self._turn()
        if self._queue.closed and self._writer.idle:
            self._drained.set()
        if self.connected and not self._forgetting:
            if not self._requested:
                self._requested = True
                self._begin()
            if "#" not in self._settings.topics:
                pause = min(pause, _LOOK)
                if time.monotonic() >= self._look_again:
                    self._look_again = time.monotonic() + _LOOK
                    self._follow_declared_topics()
        return pause

    def _turn(self) -> float:
        # First: the values of a device come after its announcements, often at once.
        if self._announcements is not None:
            self._announcements.apply()
        return self._writer.turn()

    def _begin(self) -> None:
        # Answers to requests of the previous connection will not arrive any more.
        self._unconfirmed.clear()
        if self._confirmed:
            self.subscribed = True
        else:
            self._extra = frozenset()
            self._refused.clear()
            self._subscribe(self._settings.topics)

    def _subscribe(self, topics: Iterable[str]) -> None:
        """Subscribe. Until the broker accepts the filters, its session may not have the subscription."""
        self._confirmed = False
        requested = tuple(topics)
        self._unconfirmed[subscribe(self._client, requested, self._settings)] = requested

    def _on_subscribe(self, _: Client, __: object, mid: int, reasons: list[ReasonCode], ___: Properties | None) -> None:
        # The answer has one reason code for each filter, in their order (MQTT 5.0, section 3.9.3).
        requested = self._unconfirmed.pop(mid, ())
        for topic, reason in zip(requested, reasons, strict=False):
            if reason.is_failure:
                self._refused.add(topic)
                _log.error(
                    "mqtt.subscription_refused",
                    extra={"broker": self._settings.broker, "topic": topic, "reason": str(reason)},
                )
        # A broker that answers for fewer filters has not accepted the others.
        self._refused.update(requested[len(reasons) :])
        self._confirmed = not self._unconfirmed and not self._refused
        if requested == self._settings.topics:
            self.subscribed = self._refused.isdisjoint(requested)

    def _follow_declared_topics(self) -> None:
        """Subscribe to the topics of observations in the graph too, even if the
        configured filters do not cover them.
        """
        wanted = frozenset(
            topic
            for topic in self._ingest.declared_topics
            if not _has_wildcard(topic) and not any(topic_matches_sub(known, topic) for known in self._settings.topics)
        )
        # Called about twice a second; almost always nothing has changed.
        if wanted == self._extra:
            return
        if new := wanted - self._extra:
            self._subscribe(new)
        if old := self._extra - wanted:
            self._client.unsubscribe(list(old))
            self._refused -= old
        self._extra = wanted

    def _on_publishes(self, packets: list[Packet]) -> None:
        self._held += packets
        self._queue_held()

    def _queue_held(self) -> None:
        """Put packets into the queue, as far as it has room."""
        now = datetime.now(UTC)
        taken = 0
        confirmed: list[tuple[int, int]] = []
        while taken < len(self._held) and not self._forgetting and not self._queue.closed:
            first, content = self._held[taken]
            message, again = decode(first, content, now, self._connection, five=self._five)
            if not self._take(message, again, confirmed):
                break
            taken += 1
            # They came with one read of the socket. Distinct times keep their order in the history.
            now += _TICK
        self.received += taken
        del self._held[:taken]
        self._client.reading = not self._held
        if confirmed:
            self._client.acknowledge(confirmed)

    def _take(self, message: MqttMessage, again: bool, confirmed: list[tuple[int, int]]) -> bool:
        """Queue a message unless it was processed before. False: the queue has no room for it. `again`: its DUP flag.

        `confirmed` receives identifier and QoS of a message to be acknowledged at once.
        """
        if self._set_aside and message.topic.startswith(self._set_aside) and self._take_uncommitted(message):
            if message.qos:
                confirmed.append((message.mid, message.qos))
            return True
        if not message.qos:
            # QoS 0 has no acknowledgement, so the broker cannot be slowed down: the message is dropped.
            if not self._queue.offer(message):
                self.dropped += 1
            return True
        message.receipt = receipt = receipt_of(message.mid, message.topic, message.payload)
        with self._lock:
            if (again and receipt in self._receipts) or (self._replaying and self._receipts.repeats(receipt)):
                self.duplicates += 1
                confirmed.append((message.mid, message.qos))
                return True
            if (again or self._replaying) and (waiting := self._pending.get(receipt)):
                # The waiting message is acknowledged over the new connection, with the same identifier.
                waiting.connection = message.connection
                return True
            if self._receipts.partial and self._receipts.continues(receipt, again=again, replaying=self._replaying):
                message.committed = self._receipts.committed
            if not self._queue.offer(message):
                return False
            # The first message without DUP ends the repetition: the broker sends new messages from here on.
            self._replaying = self._replaying and again
            self._pending[receipt] = message
            return True

    def _take_uncommitted(self, message: MqttMessage) -> bool:
        """Take a message that needs no commit: one of the gateway itself, or an announcement."""
        if self._own_topics and message.topic.startswith(self._own_topics):
            self._own(message.topic)
            return True
        return self._announcements is not None and self._announcements.take(message.topic, message.payload)

    # The engine's writer thread, or that of the connection for messages without readings

    def _finish(self, messages: Sequence[MqttMessage]) -> None:
        """Acknowledge processed messages."""
        if messages[0].receipt == NEW_SESSION:
            with self._lock:
                self._receipts.clear()
            self._forgetting = False
            self._loop.wake()
            return
        self.written += len(messages)
        messages = [message for message in messages if message.qos]
        with self._lock:
            self._receipts.add([message.receipt for message in messages])
            for message in messages:
                if self._pending.get(message.receipt) is message:
                    del self._pending[message.receipt]
            current = self._connection if self.connected else -1
            confirmed = [(message.mid, message.qos) for message in messages if message.connection == current]
            if confirmed:
                self._client.acknowledge(confirmed)
                self.acknowledged += len(confirmed)


def _has_wildcard(topic: str) -> bool:
    return "+" in topic or "#" in topic
