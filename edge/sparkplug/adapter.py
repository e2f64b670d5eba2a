"""Sparkplug adapter: the connection of the host application to the broker, its state, and the commands it sends."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from edge import durable
from edge.adapters.ingest import Ingest
from edge.adapters.messages import MessageQueue, MqttMessage
from edge.adapters.mqtt_link import MqttLink
from edge.adapters.settings import ActuationSettings, MqttSettings
from edge.adapters.writer_thread import WriterThread
from edge.mapping.actuators import Command
from edge.mapping.pack import MappingPack
from edge.mapping.settings import MappingLimits
from edge.sparkplug.births import NAMESPACE
from edge.sparkplug.commands import MetricCommands
from edge.sparkplug.datatypes import BadMetric
from edge.sparkplug.host import SparkplugHost, Values, rebirth
from edge.sparkplug.settings import SparkplugSettings

_log = logging.getLogger(__name__)

_LONGEST_WAIT: Final = 10.0
"""Seconds after which the thread looks for work without a wake-up."""
_PAUSE: Final = 0.2
"""Seconds from one declaration of observations, or one storage of births, to the next."""
_RETRY: Final = 30.0
"""Seconds to the next attempt to store births after a failure."""
_DRAIN: Final = 0.02
"""Seconds to the next look whether the engine has mapped the documents before a changed birth."""
_AGAIN: Final = 1.0
"""Seconds between two corrections of the state that somebody else has published."""
_KINDS: Final = (("NBIRTH", 1), ("NDATA", 1), ("NDEATH", 1), ("DBIRTH", 2), ("DDATA", 2), ("DDEATH", 2))
"""Types of messages of edge nodes, and the levels of their topics after it."""


class SparkplugAdapter:
    """The host application and its threads: one for the connection, and one for everything else."""

    acknowledges = True
    """A command counts as sent when it was passed to the broker: edge nodes acknowledge none."""
    subscribed = False
    """Whether the broker has confirmed the subscriptions."""
    received = 0
    """Messages of edge nodes."""
    dropped = 0
    """Messages that found the queue full."""
    sent = 0
    """Commands that were sent."""
    failed = 0
    """Commands that could not be encoded, because a rebirth has changed the metric."""
    _since = 0
    """Time of the will of this connection: milliseconds since 1970."""
    _state_is_wrong = False
    """Whether the broker has another state of this host, such as a will that has come late."""
    _corrected = 0.0
    """Time of the last correction of that state, in seconds of the monotonic clock."""

    def __init__(
        self,
        settings: SparkplugSettings,
        connection: MqttSettings,
        actuation: ActuationSettings,
        ingest: Ingest,
        limits: MappingLimits,
        file: Path,
        *,
        announce: Callable[[Sequence[MappingPack]], None],
        declare: Callable[[], None],
        up: Callable[[str, Callable[[], None]], None],
        written: Callable[[Command], None],
        given_up: Callable[[Command, bool], None],
    ) -> None:
        """`announce` receives the mappings, which apply to the next message; `declare` adds their observations to the
        graph. `up` is called with the topic of a node or device that is born, `written` for each sent
        command, and `given_up` for each one that cannot be sent.
        """
        self._settings = settings
        self._connection = connection
        self._ingest = ingest
        self._file = file
        self._announce = announce
        self._declare = declare
        self._on_written = written
        self._on_given_up = given_up
        self._state_topic = f"{NAMESPACE}/STATE/{settings.host_id}"
        self._inbox = MessageQueue(settings.max_queued, 16 * settings.max_payload)
        self._overflowed = False
        self._queue = MessageQueue(10 * settings.max_queued, 16 * settings.max_payload)
        """Documents for the engine."""
        self._later: list[MqttMessage] = []
        """Documents of births that are not announced. Those of earlier births are mapped before."""
        self._pack: MappingPack | None = None
        """Mappings to announce."""
        self._filters: list[str] = []
        self._writer = WriterThread(settings, ingest, self._queue, "sparkplug", self._work, self._before)
        self.host = SparkplugHost(
            settings,
            limits,
            emit=self._emit,
            refuse=self._refuse,
            born=lambda source: up(source.command_topic, _nothing),
        )
        self._commands = MetricCommands(self.host, actuation)
        self._client: Client | None = None
        self._undeclared = self._unstored = False
        self._declare_at = self._store_at = 0.0
        self._link = MqttLink(
            connection,
            "sparkplug",
            "-sparkplug",
            on_up=self._up,
            on_down=self._down,
            on_answer=lambda *_: None,
            prepare=self._prepare,
        )

    @property
    def alive(self) -> bool:
        """Whether its threads run."""
        return self._writer.alive and self._link.alive

    @property
    def queued(self) -> int:
        """Messages and documents that wait."""
        return len(self._inbox) + len(self._queue) + self._writer.taken + len(self._later)

    @property
    def written(self) -> int:
        """Documents that were processed."""
        return self._writer.written

    def start(self) -> None:
        """Restore the births, and connect. Failures are logged, and the connection is retried."""
        self._restore()
        self._link.start()
        self._writer.start()

    def stop(self, timeout: float = 3.0) -> None:
        """Publish that the host is offline, disconnect, and process waiting messages within `timeout` seconds."""
        deadline = time.monotonic() + timeout
        client = self._client
        if client is not None and self._settings.primary:
            self._publish_state(client, _milliseconds(), online=False)
        self._link.stop(timeout / 2)
        self._inbox.close()
        self._writer.stop(max(0.1, deadline - time.monotonic()))
        # Also if the thread still waits for the engine: without the births, a restart asks all nodes for them.
        self._unstored = self._unstored or self.host.changed or self._pack is not None
        self._store_at = 0.0
        try:
            self._store()
        except Exception:  # noqa: BLE001  a defect must not keep the gateway from stopping
            _log.exception("sparkplug.fault")

    # Commands: the thread of actuation

    def takes(self, topic: str) -> bool:
        """Whether a topic is one of Sparkplug."""
        return topic.startswith(f"{NAMESPACE}/")

    def put(self, command: Command, interval: float) -> str:
        """Send a command; its topic then pauses for `interval` seconds. Returns the error; empty: accepted."""
        reason = self._commands.put(command, interval)
        self._writer.wake()
        return reason

    def withdraw(self, actuator: str) -> None:
        """Discard the waiting commands of a removed actuator."""
        self._commands.withdraw(actuator)

    # The thread of the connection

    def _prepare(self, client: Client) -> None:
        client.on_message = self._message
        client.on_subscribe = self._confirmed
        self._since = _milliseconds()
        if self._settings.primary:
            # The birth has the same time as the will (Sparkplug 3.0, section 6.4.28).
            client.will_set(self._state_topic, _state(self._since, online=False), qos=1, retain=True)

    def _up(self, client: Client) -> None:
        groups = self._settings.groups or ("+",)
        filters = [f"{NAMESPACE}/{each}/{kind}{levels * '/+'}" for each in groups for kind, levels in _KINDS]
        if self._settings.primary:
            filters.append(self._state_topic)
        self._filters = filters
        client.subscribe([(each, 1) for each in filters])

    def _confirmed(self, client: Client, _: object, __: int, codes: list[ReasonCode], ___: Properties | None) -> None:
        if refused := [(each, code) for each, code in zip(self._filters, codes, strict=False) if code.is_failure]:
            remedy = f"permit the gateway to subscribe below {NAMESPACE}/ at the broker"
            facts = {"broker": self._connection.broker, "reason": str(refused[0][1]), "remedy": remedy}
            facts["filters"] = ", ".join(each for each, _ in refused)
            _log.error("sparkplug.subscription_refused", extra=facts)
            if {each for each in self._filters if each != self._state_topic} <= {each for each, _ in refused}:
                return
        # Before all messages of this connection: those of the time between are lost.
        self._inbox.put(MqttMessage("", b"", 0, False, 0, datetime.now(UTC), 0, b""))
        self._client, self.subscribed = client, True
        if self._settings.primary:
            self._publish_state(client, self._since, online=True)
        self._writer.wake()

    def _down(self) -> None:
        self._client, self.subscribed = None, False

    def _message(self, client: Client, _: object, message: MQTTMessage) -> None:
        if message.qos:
            client.ack(message.mid, message.qos)
        if message.topic == self._state_topic:
            self._state_is_wrong = not _is_online(bytes(message.payload))
            self._writer.wake()
            return
        self.received += 1
        # Of a payload that is too long, its length is enough for the fault.
        payload = bytes(message.payload[: self._settings.max_payload + 1])
        now = datetime.now(UTC)
        if not self._inbox.offer(MqttMessage(message.topic, payload, 0, message.retain, 0, now, 0, b"")):
            self.dropped += 1
            self._overflowed = True
        self._writer.wake()

    def _publish_state(self, client: Client, since: int, *, online: bool) -> None:
        client.publish(self._state_topic, _state(since, online=online), qos=1, retain=True)

    # The thread of the host

    def _work(self) -> float:
        try:
            return self._turn()
        except Exception:  # noqa: BLE001  a defect in one message must not end the thread
            _log.exception("sparkplug.fault")
            return _LONGEST_WAIT

    def _before(self) -> int:
        """Return the number of messages that are not documents in the queue yet."""
        return len(self._inbox) + len(self._later) + self.host.replaced

    def _turn(self) -> float:
        """Do what is due. Returns the seconds until the next call is necessary."""
        self._process()
        now = time.monotonic()
        self.host.tick(now, datetime.now(UTC), connected=self._client is not None)
        self._use_births()
        pause = self._writer.turn()
        if self._use_replaced():
            pause = self._writer.turn()
        self._send_rebirths()
        pause = min(pause, self._send_commands(), self._correct_state())
        now = time.monotonic()
        if self._undeclared and now >= self._declare_at:
            self._undeclared = False
            self._declare()
            self._declare_at = time.monotonic() + _PAUSE
        self._store()
        for waits, at in ((self._undeclared, self._declare_at), (self._unstored, self._store_at)):
            if waits:
                pause = min(pause, at - now)
        # Without a connection, requests for rebirths wait for the next one.
        pause = min(pause, self.host.pause(now)) if self._client is not None else min(pause, 1.0)
        if self.host.replaced:
            return _DRAIN
        return 0.0 if len(self._inbox) else max(0.0, pause)

    def _process(self) -> None:
        """Process waiting messages, up to a birth that replaces another one."""
        for _ in range(self._settings.max_batch):
            # The queue is closed when the inbox is empty, or when the time for it is over.
            if self.host.replaced or self._queue.closed or not (messages := self._inbox.take(1)):
                break
            (message,) = messages
            now = time.monotonic()
            if message.topic:
                self.host.take(message.topic, message.payload, message.received, now, retained=message.retain)
            else:
                self.host.lose(now)
            if not self.host.replaced:
                self._note_births()
                self._pass_on()
        if self._overflowed and not len(self._inbox):
            self._overflowed = False
            _log.warning("sparkplug.dropped", extra={"dropped": self.dropped, "remedy": "raise sparkplug.max_queued"})
            self.host.lose(time.monotonic())

    def _correct_state(self) -> float:
        """Publish the state again if it is wrong. Returns the seconds until the next call is necessary."""
        client = self._client
        if client is None or not self._state_is_wrong:
            return _LONGEST_WAIT
        # Another host with the same name would correct it, too.
        wait = self._corrected + _AGAIN - time.monotonic()
        if wait <= 0:
            self._state_is_wrong, self._corrected = False, time.monotonic()
            self._publish_state(client, self._since, online=True)
            return _LONGEST_WAIT
        return wait

    def _note_births(self) -> None:
        if self.host.changed:
            self.host.changed = False
            self._pack = self.host.births.pack()

    def _use_births(self) -> None:
        """Announce births, except for one that replaces another one."""
        if not self.host.replaced:
            self._note_births()
        if self._pack is not None:
            self._announce([self._pack])
            self._pack = None
            self._undeclared = self._unstored = True
        if not self.host.replaced:
            self._pass_on()

    def _use_replaced(self) -> bool:
        """Announce a birth that replaces another one, when all documents of the earlier one are mapped."""
        if not self.host.replaced or len(self._queue) or self._writer.taken:
            return False
        self.host.replaced = False
        self._use_births()
        return True

    def _pass_on(self) -> None:
        for message in self._later:
            self._queue.put(message)
        self._later.clear()

    def _emit(self, values: Values, received: datetime) -> bool:
        message = MqttMessage(values.topic, values.payload, 0, False, 0, received, 0, b"", historical=values.historical)
        if self._queue.closed:
            # Closed while this message is processed. It counts as processed or as left.
            self._queue.put(message)
            return True
        if not self.host.changed:
            return self._queue.offer(message)
        if len(self._queue) + len(self._later) >= 10 * self._settings.max_queued:
            return False
        self._later.append(message)
        return True

    def _refuse(self, topic: str, reason: str, payload: bytes, received: datetime) -> None:
        self._ingest.bad_values.add(topic, "sparkplug", reason, payload, received)

    def _send_rebirths(self) -> None:
        client = self._client
        if client is None:
            return
        for topic in self.host.due(time.monotonic()):
            client.publish(topic, rebirth(_milliseconds()), qos=0)

    def _send_commands(self) -> float:
        """Send the commands that are due. Returns the seconds until the next one is."""
        while (client := self._client) is not None:
            command, wait = self._commands.due()
            if command is None:
                return _LONGEST_WAIT if wait is None else wait
            try:
                message = self._commands.message(command, _milliseconds())
            except BadMetric as error:
                self.failed += 1
                self._refuse(command.topic, str(error), command.payload, datetime.now(UTC))
                self._on_given_up(command, True)
                continue
            if message is not None:
                client.publish(*message, qos=0)
                self.sent += 1
                self._on_written(command)
        return _LONGEST_WAIT

    # The births on the disk

    def _restore(self) -> None:
        try:
            document = json.loads(self._file.read_bytes())
            self.host.restore(document["births"], time.monotonic())
        except FileNotFoundError:
            return
        except (OSError, ValueError, LookupError, AttributeError, TypeError, ArithmeticError, RecursionError) as error:
            _log.error("sparkplug.unreadable", extra={"file": str(self._file), "reason": str(error)})
        self._use_births()

    def _store(self) -> None:
        """Store the births if they have changed."""
        if not self._unstored or time.monotonic() < self._store_at:
            return
        content = json.dumps({"births": self.host.births.dump()}, ensure_ascii=False).encode()
        try:
            durable.write(self._file, content)
        except OSError as error:
            self._store_at = time.monotonic() + _RETRY
            remedy = f"free space, or permit the gateway to write there; it tries again every {_RETRY:.0f} seconds"
            facts = {"file": str(self._file), "reason": str(error), "remedy": remedy}
            _log.error("sparkplug.not_stored", extra=facts)
        else:
            self._unstored = False
            self._store_at = time.monotonic() + _PAUSE


def _state(since: int, *, online: bool) -> bytes:
    return json.dumps({"online": online, "timestamp": since}).encode()


def _is_online(payload: bytes) -> bool:
    try:
        return json.loads(payload)["online"] is True
    except (ValueError, LookupError, TypeError, RecursionError):
        return False


def _milliseconds() -> int:
    return time.time_ns() // 1_000_000


def _nothing() -> None:
    pass
