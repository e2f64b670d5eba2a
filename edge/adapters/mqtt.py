"""MQTT adapter: converts messages to observations, and acknowledges them after their updates are durable."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from itertools import groupby

from paho.mqtt.client import (
    Client,
    ConnectFlags,
    DisconnectFlags,
    MQTTMessage,
    error_string,
    topic_matches_sub,
)
from paho.mqtt.enums import MQTTErrorCode
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from edge.adapters.ingest import Ingest
from edge.adapters.messages import Inbox, MqttMessage
from edge.adapters.mqtt_client import close_sockets, make_client, subscribe, why_lost
from edge.adapters.receipts import NEW_SESSION, Receipts, receipt_of
from edge.adapters.settings import MqttSettings
from edge.adapters.writer import ReadingWriter
from edge.backoff import Backoff, Retry

_log = logging.getLogger(__name__)

_LOOP = 1.0
"""Maximum seconds that the connection's thread sleeps without events."""


class MqttAdapter:
    """One connection to one broker: a thread that receives and acknowledges, and one that writes.

    A message of QoS 1 or 2 is acknowledged after the commit of its updates, even if it has none. While the engine
    accepts no updates, messages stay unacknowledged. When too many wait, the adapter stops reading and drops messages
    of QoS 0. Reconnects forever.
    """

    def __init__(
        self,
        settings: MqttSettings,
        intake: Ingest,
        receipts: bytes = b"",
        own: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`receipts`: receipts in the journal. `own`: called with the topics of messages on `settings.own_topics`.

        Raises `OSError` (including ssl.SSLError) for an unusable certificate file.
        """
        self._own = own
        self._settings = settings
        self._intake = intake
        self._client = make_client(settings)
        self._client.on_connect = self._on_connect
        self._client.on_disconnect = self._on_disconnect
        self._client.on_subscribe = self._on_subscribe
        self._client.on_message = self._on_message
        self._inbox = Inbox(settings.max_queued, settings.max_queued_bytes)
        self._lock = threading.Lock()
        self._receipts = Receipts(receipts)
        self._replaying = False
        """Whether no new message has arrived over this connection with an existing session."""
        self._forgetting = False
        """Whether the receipts belong to a session that has ended."""
        self._pending: dict[bytes, MqttMessage] = {}
        self._connection = 0
        self._extra: frozenset[str] = frozenset()
        self._greeted = True
        """Whether the broker has answered the last connection request that it may have received."""
        self._unconfirmed: set[int | None] = set()
        """Packet identifiers of unanswered subscribe requests."""
        self._confirmed = False
        """Whether all subscribe requests are answered, so that the session has the subscriptions."""
        self._stopping = threading.Event()
        self._reason = ""
        self._down_since: float | None = None
        self._retry = Retry(Backoff(settings.reconnect_min, settings.reconnect_max))
        self._look_again = 0.0
        writer = ReadingWriter(settings, intake, self._stopping)
        self._threads = [
            threading.Thread(target=self._stay_connected, name="edge-mqtt", daemon=True),
            threading.Thread(target=self._write, args=(writer,), name="edge-mqtt-write", daemon=True),
        ]
        self.connected = False
        self.subscribed = False
        """Whether the broker is connected."""
        self.received = 0
        """Received messages."""
        self.dropped = 0
        """Messages of QoS 0 that found the queue full."""
        self.duplicates = 0
        """Repeated messages that were processed before."""
        self.written = 0
        """Processed messages."""
        self.acknowledged = 0

    @property
    def alive(self) -> bool:
        """Whether its threads run."""
        return all(thread.is_alive() for thread in self._threads)

    @property
    def queued(self) -> int:
        """Messages that wait in the adapter."""
        return len(self._inbox)

    def start(self) -> None:
        """Connect and stay connected. Returns at once; failures are logged, and the connection is retried."""
        for thread in self._threads:
            thread.start()

    def stop(self, timeout: float = 3.0) -> None:
        """Stop receiving, process waiting messages within `timeout` seconds, disconnect."""
        deadline = time.monotonic() + timeout
        connection, writing = self._threads
        self._inbox.close()
        if writing.is_alive():
            writing.join(max(0.0, timeout - 0.5))
        self._stopping.set()
        self._client.disconnect()
        for thread in (writing, connection):
            if thread.is_alive():
                thread.join(max(0.0, deadline - time.monotonic()))
        close_sockets(self._client)

    def _stay_connected(self) -> None:
        while not self._stopping.is_set():
            with self._lock:
                self._connection += 1
            self._reason = ""
            try:
                self._client.reconnect()
                self._greeted = False
                self._serve()
            except Exception as error:  # noqa: BLE001  no packet of a broker may end this thread
                self._reason = self._reason or str(error)
            if self._stopping.is_set():
                return
            # The missing answer may have reported a new session.
            self._confirmed = self._confirmed and self._greeted
            self._note_down()
            self._stopping.wait(self._retry.failed())

    def _serve(self) -> None:
        """Run the connection until it is lost."""
        while (code := self._client.loop(_LOOP)) == MQTTErrorCode.MQTT_ERR_SUCCESS:
            if self.connected and "#" not in self._settings.topics and time.monotonic() >= self._look_again:
                self._look_again = time.monotonic() + _LOOP / 2
                self._follow_declared_topics()
        self._reason = self._reason or error_string(code)

    def _note_down(self) -> None:
        if self._down_since is None:
            self._down_since = time.monotonic()
            _log.warning("mqtt.down", extra={"broker": self._settings.broker, "reason": self._reason})

    def _note_up(self) -> None:
        self._retry.succeeded()
        down = 0.0 if self._down_since is None else time.monotonic() - self._down_since
        self._down_since = None
        _log.info("mqtt.up", extra={"broker": self._settings.broker, "down_seconds": round(down, 1)})

    def _on_connect(
        self, client: Client, _: object, flags: ConnectFlags, reason: ReasonCode, __: Properties | None
    ) -> None:
        if reason.is_failure:
            self._reason = f"the broker refused the connection: {reason}"
            return
        self._greeted = True
        self._replaying = flags.session_present
        self._confirmed = self._confirmed and flags.session_present
        self._forgetting = self._forgetting or (not flags.session_present and bool(self._receipts or self._pending))
        if self._forgetting and not self._forget_session():
            self._reason = self._reason or "the gateway could not store in time that another session has begun"
            client.disconnect()
            return
        self.connected = True
        self._note_up()
        self._unconfirmed.clear()
        if self._confirmed:
            self.subscribed = True
        else:
            self._extra = frozenset()
            self._subscribe(self._settings.topics)

    def _subscribe(self, topics: Iterable[str]) -> None:
        """Subscribe. Until the broker answers, its session may not have the subscription."""
        self._confirmed = False
        self._unconfirmed.add(subscribe(self._client, topics, self._settings))

    def _forget_session(self) -> bool:
        """Wait until all messages of the previous session are processed, then invalidate their receipts, also on
        disk.

        The client has not subscribed yet, so no message of the new session can arrive before. False: it takes longer
        than the broker's keep-alive allows.
        """
        mark = MqttMessage("", b"", 0, False, 0, datetime.now(UTC), self._connection, NEW_SESSION, threading.Event())
        if not self._inbox.put(mark):
            return False
        assert mark.started is not None  # noqa: S101
        self._forgetting = not mark.started.wait(self._settings.keepalive)
        return not self._forgetting

    def _on_disconnect(
        self, _: Client, __: object, flags: DisconnectFlags, reason: ReasonCode, ___: Properties | None
    ) -> None:
        self.connected = self.subscribed = False
        self._reason = self._reason or why_lost(flags, reason)

    def _on_subscribe(self, _: Client, __: object, mid: int, reasons: list[ReasonCode], ___: Properties | None) -> None:
        self._unconfirmed.discard(mid)
        self._confirmed = not self._unconfirmed
        for reason in reasons:
            if not reason.is_failure:
                self.subscribed = True
            else:
                _log.error("mqtt.subscription_refused", extra={"broker": self._settings.broker, "reason": str(reason)})

    def _follow_declared_topics(self) -> None:
        """Subscribe to the topics of observations in the graph too, even if the
        configured filters do not cover them.
        """
        wanted = frozenset(
            topic
            for topic in self._intake.declared_topics
            if not _has_wildcard(topic) and not any(topic_matches_sub(known, topic) for known in self._settings.topics)
        )
        if wanted == self._extra:
            return
        if new := wanted - self._extra:
            self._subscribe(new)
        if old := self._extra - wanted:
            self._client.unsubscribe(list(old))
        self._extra = wanted

    def _on_message(self, _: Client, __: object, came: MQTTMessage) -> None:
        self.received += 1
        try:
            topic = came.topic
        except UnicodeDecodeError:
            topic = came._topic.decode("utf-8", errors="replace")  # paho has no public access to it
        if self._settings.own_topics and topic.startswith(self._settings.own_topics):
            self._client.acknowledge(came.mid, came.qos)
            self._own(topic)
            return
        payload = bytes(came.payload)
        receipt = receipt_of(came.mid, topic, payload) if came.qos else b""
        message = MqttMessage(
            topic, payload, came.qos, came.retain, came.mid, datetime.now(UTC), self._connection, receipt
        )
        if not came.qos:
            if not self._inbox.offer(message):
                self.dropped += 1
            return
        if not self._is_known(message, came.dup):
            self._inbox.put(message)

    def _is_known(self, message: MqttMessage, again: bool) -> bool:
        """Whether a message was processed or is waiting; if not, it counts as waiting now. `again`: its DUP flag."""
        receipt = message.receipt
        with self._lock:
            if (again and receipt in self._receipts) or (self._replaying and self._receipts.repeats(receipt)):
                self.duplicates += 1
                self._client.acknowledge(message.mid, message.qos)
                return True
            if (again or self._replaying) and (waiting := self._pending.get(receipt)):
                waiting.connection = message.connection
                return True
            self._replaying = self._replaying and again
            self._pending[receipt] = message
            return False

    def _write(self, writer: ReadingWriter) -> None:
        while batch := self._inbox.take(self._settings.max_batch):
            for is_mark, messages in groupby(batch, lambda message: message.started is not None):
                if not (self._begin_session if is_mark else self._carry_out)(writer, list(messages)):
                    return

    def _carry_out(self, writer: ReadingWriter, batch: list[MqttMessage]) -> bool:
        if not writer.write(batch):
            return False
        self.written += len(batch)
        self._acknowledge([message for message in batch if message.qos])
        return True

    def _begin_session(self, writer: ReadingWriter, marks: list[MqttMessage]) -> bool:
        if not writer.remember(NEW_SESSION):
            return False
        with self._lock:
            self._receipts.clear()
        for mark in marks:
            if mark.started is not None:
                mark.started.set()
        return True

    def _acknowledge(self, messages: list[MqttMessage]) -> None:
        with self._lock:
            self._receipts.add(message.receipt for message in messages)
            for message in messages:
                if self._pending.get(message.receipt) is message:
                    del self._pending[message.receipt]
                if message.connection == self._connection and self.connected:
                    self._client.acknowledge(message.mid, message.qos)
                    self.acknowledged += 1


def _has_wildcard(topic: str) -> bool:
    return "+" in topic or "#" in topic
