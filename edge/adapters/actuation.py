"""Actuation: subscribes to the queries of actuators and sends commands when their results change."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Protocol

from edge.adapters import desired_values
from edge.adapters.actuation_outbox import ActuationQueue
from edge.adapters.actuation_rules import ActuationRules
from edge.adapters.observations import AdapterEngine
from edge.adapters.registry import BadValues
from edge.adapters.settings import ActuationSettings, MqttSettings
from edge.engine.requests import UpdateOutcome
from edge.mapping.actuators import Actuator, Command
from edge.mapping.solution import Solution

if TYPE_CHECKING:
    from paho.mqtt.client import Client

    from edge.adapters.mqtt_link import MqttLink

_log = logging.getLogger(__name__)

_PATIENCE = 30.0
"""Seconds without an acknowledgement after which the connection to the broker is dropped."""


class Ports(Protocol):
    """Interface of the serial ports, or of the Modbus devices, for commands. Thread-safe."""

    acknowledges: bool
    """Whether `Actuation.written` is called for each command that the device has accepted. Otherwise a command counts
    as sent when it is queued.
    """

    def takes(self, topic: str) -> bool:
        """Whether a port handles this topic."""

    def put(self, command: Command, interval: float) -> str:
        """Send a command; its topic then pauses for `interval` seconds. Returns the error; empty: accepted."""

    def withdraw(self, actuator: str) -> None:
        """Discard the waiting commands of a removed actuator."""


@dataclass(eq=False)
class _Sending:
    """The current connection, and the topics of its unacknowledged messages by packet identifier."""

    client: Client
    topics: dict[int, str] = field(default_factory=dict)


class Actuation:
    """All actuators of the gateway. One thread owns the state; events of other threads are queued for it.

    Commands are sent when a query result changes. After each connection to the broker, the complete state is sent.
    """

    def __init__(self, engine: AdapterEngine, settings: ActuationSettings, bad_values: BadValues) -> None:
        """`bad_values`: list for solutions that cannot be converted to a message."""
        self._engine = engine
        self._settings = settings
        self._bad_values = bad_values
        self._outbox = ActuationQueue(settings.rate, settings.max_queued)
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._rules = ActuationRules(
            engine,
            post=self._events.put,
            waiting=lambda: self._events.qsize() >= settings.max_queued,
            send=self._changed,
            refuse=self._refuse,
        )
        self._ports: list[Ports] = []
        self._link: MqttLink | None = None
        self._link_started = False
        self._sending: _Sending | None = None
        self._refused_commands: dict[str, Command] = {}
        """Commands that are not sent again from the complete state, by topic."""
        self._arrived: dict[str, Command] = {}
        """Desired values that were accepted. They stay in the graph for a moment, and must not be sent again."""
        self._deadline: float | None = None
        self._thread = threading.Thread(target=self._run, name="edge-actuation", daemon=True)
        self.sent = 0
        """Messages that the broker acknowledged. Serial ports count their own."""
        self.failed = 0
        """Messages that could not be built, found the queue full, or were refused by the broker."""

    @property
    def conflated(self) -> int:
        """Messages that a newer one with the same topic replaced before they were sent."""
        return self._outbox.conflated

    @property
    def queued(self) -> int:
        """Messages that wait or are not acknowledged."""
        return len(self._outbox)

    @property
    def alive(self) -> bool:
        """Whether its threads run."""
        connects = self._link is None or not self._link_started or self._link.alive
        return self._thread.is_alive() and connects

    @property
    def connected(self) -> bool:
        """Whether the broker is connected."""
        return self._sending is not None

    def start(self, connection: MqttSettings | None) -> None:
        """Start the threads. With the first actuator, connect to the broker, and retry forever.

        Without a `connection` there is no broker, and only serial ports receive commands.
        """
        if connection is not None:
            # Imported here: without MQTT, the gateway saves the memory and start-up time.
            from edge.adapters.mqtt_link import MqttLink

            self._link = MqttLink(
                connection,
                "actuation",
                "-out",
                on_up=lambda client: self._events.put(partial(self._up, client)),
                on_down=lambda: self._events.put(self._down),
                on_answer=lambda *answer: self._events.put(partial(self._answered, *answer)),
            )
        self._thread.start()

    def send_by(self, ports: Ports) -> None:
        """Route commands for topics of these ports to them instead of the broker. Call before `start`."""
        self._ports.append(ports)

    def written(self, command: Command) -> None:
        """Note that a device of a port has accepted a command."""
        self._events.put(partial(self._note_sent, command))

    def given_up(self, command: Command, refused: bool) -> None:
        """Note that a command for a port was given up; `refused`: its device would refuse it again."""
        self._events.put(partial(self._note_given_up, command, refused))

    def port_up(self, topic: str, done: Callable[[], None]) -> None:
        """Send the complete state of a port whose device has connected, then call `done`."""
        self._events.put(partial(self._port_up, topic, done))

    def follow(self, actuators: Iterable[Actuator]) -> None:
        """Replace the actuators. Changed actuators restart; unchanged ones continue."""
        self._events.put(partial(self._follow, tuple(actuators)))

    def settle(self, timeout: float = 5.0) -> None:
        """Wait until the actuators that were passed to `follow` are being subscribed, or for `timeout` seconds."""
        if not self._thread.is_alive():
            return
        done = threading.Event()
        self._events.put(done.set)
        done.wait(timeout)

    def stop(self, timeout: float = 3.0) -> None:
        """Ignore further changes, send waiting messages within `timeout` seconds, disconnect."""
        deadline = time.monotonic() + timeout

        def finish() -> None:
            # The last quarter is for the end of the connection.
            self._deadline = deadline - timeout / 4
            self._rules.close()

        self._events.put(finish)
        if self._thread.is_alive():
            self._thread.join(timeout)
        if self._link is not None and self._link_started:
            self._link.stop(max(0.1, deadline - time.monotonic()))

    def faults(self) -> list[dict[str, object]]:
        """Actuators whose query fails: as `MappingFiles.faults`."""
        return self._rules.faults()

    # Everything below runs on the actuation thread

    def _run(self) -> None:
        while not self._finished():
            try:
                self._rules.retry(time.monotonic())
                self._send()
                # Events are functions, so that they run on this thread and need no locks.
                self._events.get(timeout=self._pause())()
            except queue.Empty:
                continue
            except Exception:  # noqa: BLE001  a defect in one event must not end the thread
                _log.exception("actuation.fault")

    def _finished(self) -> bool:
        if self._deadline is None:
            return False
        return self._sending is None or not len(self._outbox) or time.monotonic() >= self._deadline

    def _pause(self) -> float | None:
        """Return the seconds until the next scheduled work; None: wait for an event."""
        if not self._events.empty():
            return 0.0
        now = time.monotonic()
        ends = []
        if (retry_at := self._rules.next_retry()) is not None:
            ends.append(retry_at - now)
        if self._sending is not None:
            if (wait := self._outbox.wait(now)) is not None:
                ends.append(wait)
            if (since := self._outbox.unanswered_since()) is not None:
                ends.append(since + _PATIENCE - now)
        if self._deadline is not None:
            ends.append(self._deadline - now)
        return max(0.0, min(ends)) if ends else None

    def _follow(self, actuators: tuple[Actuator, ...]) -> None:
        for name in self._rules.follow(actuators):
            self._outbox.withdraw(name)
            for ports in self._ports:
                ports.withdraw(name)
            self._refused_commands = {
                topic: each for topic, each in self._refused_commands.items() if each.actuator != name
            }
        if any(actuator.name != desired_values.NAME for actuator in actuators):
            self._connect()

    def _connect(self) -> None:
        """Connect to the broker, if there is one: with the first actuator, or the first desired value."""
        if self._link is not None and not self._link_started:
            self._link_started = True
            self._link.start()

    def _changed(self, actuator: Actuator, commands: Iterable[Command]) -> None:
        """Send commands because the result of a query changed."""
        commands = list(commands)
        for command in commands:
            self._arrived.pop(command.topic, None)
            self._refused_commands.pop(command.topic, None)
        self._put(actuator, commands)

    def _is_done(self, command: Command) -> bool:
        """Whether a command of the complete state was accepted or given up."""
        topic = command.topic
        return command in (self._arrived.get(topic), self._refused_commands.get(topic))

    def _put(self, actuator: Actuator, commands: Iterable[Command]) -> None:
        interval = 1 / (actuator.rate or self._settings.topic_rate)
        for command in commands:
            if (ports := self._port_of(command.topic)) is not None:
                if reason := ports.put(command, interval):
                    self._fail(command.topic, command.actuator, reason, command.payload)
                elif not ports.acknowledges:
                    self._note_sent(command)
                continue
            self._connect()
            if not self._outbox.put(command, interval):
                reason = f"{self._settings.max_queued} messages wait already (actuation.max_queued)"
                self._fail(command.topic, command.actuator, reason, command.payload)

    def _up(self, client: Client) -> None:
        self._sending = _Sending(client)
        for actuator, commands in self._rules.states():
            # Some brokers close the connection when they refuse a message. Sending it again would loop forever.
            broker = (each for each in commands if self._port_of(each.topic) is None)
            self._put(actuator, (each for each in broker if not self._is_done(each)))

    def _port_of(self, topic: str) -> Ports | None:
        return next((ports for ports in self._ports if ports.takes(topic)), None)

    def _port_up(self, topic: str, done: Callable[[], None]) -> None:
        try:
            for actuator, commands in self._rules.states():
                # The slash keeps "port/1" from matching "port/10".
                own = (each for each in commands if f"{each.topic}/".startswith(f"{topic}/"))
                self._put(actuator, (each for each in own if not self._is_done(each)))
        finally:
            done()

    def _down(self) -> None:
        self._sending = None
        for command in self._outbox.lost():
            self._refused_by_broker(command, "it ended the connection whenever this was sent")

    def _answered(self, client: Client, mid: int, refused: str) -> None:
        # An answer that was queued before the connection was lost; its packet identifier may have a new meaning.
        if self._sending is None or self._sending.client is not client:
            return
        topic = self._sending.topics.pop(mid, None)
        # The broker answered an identifier that is not in use.
        if topic is None:
            return
        command = self._outbox.done(topic)
        if not refused:
            self.sent += 1
            self._refused_commands.pop(topic, None)
            if command is not None:
                self._note_sent(command)
        elif command is not None:
            self._refused_by_broker(command, refused)

    def _note_sent(self, command: Command) -> None:
        """Delete a desired value from the graph, because its message has arrived, or its device refuses it."""
        if command.observation:
            self._arrived[command.topic] = command
            self._engine.update([desired_values.sent(command)]).add_done_callback(_log_failure)

    def _refused_by_broker(self, command: Command, reason: str) -> None:
        self._fail(command.topic, command.actuator, f"the broker refused it: {reason}", command.payload)
        self._note_given_up(command, refused=False)

    def _note_given_up(self, command: Command, refused: bool) -> None:
        if refused and command.observation:
            self._note_sent(command)
        # Bounded: topics come from query results, and a broker may refuse all of them.
        if len(self._refused_commands) < self._settings.max_queued:
            self._refused_commands[command.topic] = command

    def _send(self) -> None:
        sending, now = self._sending, time.monotonic()
        if sending is None:
            return
        since = self._outbox.unanswered_since()
        if since is not None and now - since >= _PATIENCE and self._link is not None:
            self._sending = None
            self._link.drop(f"a message was not acknowledged within {_PATIENCE:.0f} s")
            return
        # The clock is read for each command, because publishing takes time and rate limits depend on it.
        while (command := self._outbox.due(time.monotonic())) is not None:
            try:
                mid = sending.client.publish(command.topic, command.payload, command.qos, command.retain).mid
            except ValueError as error:
                self._outbox.done(command.topic)
                self._fail(command.topic, command.actuator, str(error), command.payload)
            else:
                sending.topics[mid] = command.topic

    def _refuse(self, actuator: Actuator, solution: Solution, reason: str) -> None:
        values = ", ".join(f"{name}={term.text}" for name, term in solution.terms.items())
        self._fail(actuator.added.topic.text, actuator.name, reason, values.encode("utf-8", "replace"))

    def _fail(self, topic: str, actuator: str, reason: str, payload: bytes) -> None:
        self.failed += 1
        self._bad_values.add(topic, actuator, reason, payload, datetime.now(UTC))


def _log_failure(future: Future[list[UpdateOutcome]]) -> None:
    """Log why a desired value could not be deleted; it is sent again at the next start."""
    if not future.cancelled() and (error := future.exception()) is not None:
        _log.warning("actuation.desired_value_stays", extra={"reason": str(error)})
