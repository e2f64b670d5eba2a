"""The way back to the physical world: subscribes to the queries of actuators and sends what their changes ask for."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

from paho.mqtt.client import Client

from edge.adapters.actuation_link import Link
from edge.adapters.actuation_outbox import Outbox
from edge.adapters.actuation_wanted import Wanted
from edge.adapters.observations import Engine
from edge.adapters.registry import BadValues
from edge.adapters.settings import ActuationSettings, MqttSettings
from edge.engine.requests import Notification, QueryRequest, SubscribeFailed, Subscription
from edge.mapping.actuators import Actuator, Command
from edge.mapping.solution import Solution

_log = logging.getLogger(__name__)

_PATIENCE = 30.0
"""Seconds a broker may leave a message unacknowledged before the connection is given up."""
_RETRY_MIN, _RETRY_MAX = 1.0, 60.0
"""Seconds between attempts to subscribe to a query that failed."""


@dataclass(eq=False)
class _Rule:
    """One actuator in force."""

    actuator: Actuator
    wanted: Wanted
    feed: _Feed | None = None
    failure: str = ""
    wait: float = _RETRY_MIN
    retry_at: float | None = None


@dataclass(eq=False)
class _Feed:
    """One subscription of a rule; notifications of an earlier one mean nothing any more."""

    rule: _Rule
    spuid: str = ""
    closed: bool = False


@dataclass(eq=False)
class _Sending:
    """The connection of the moment, and the topics of the messages that it has not acknowledged."""

    client: Client
    topics: dict[int, str] = field(default_factory=dict)


class Actuation:
    """All actuators of the gateway. One thread owns everything; whatever happens elsewhere is handed to it.

    What the queries' results say is sent when it changes, and as a whole after every connection to the broker.
    """

    def __init__(self, engine: Engine, settings: ActuationSettings, bad_values: BadValues) -> None:
        """`bad_values`: where solutions are listed of which no message can be made."""
        self._engine = engine
        self._settings = settings
        self._bad_values = bad_values
        self._rules: dict[str, _Rule] = {}
        self._outbox = Outbox(settings.rate, settings.max_queued)
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._link: Link | None = None
        self._link_started = False
        self._sending: _Sending | None = None
        self._refused: dict[str, Command] = {}
        self._deadline: float | None = None
        self._thread = threading.Thread(target=self._run, name="edge-actuation", daemon=True)
        self.sent = 0
        """Messages that the broker took."""
        self.failed = 0
        """Messages that could not be made, found the queue full, or were refused by the broker."""

    @property
    def conflated(self) -> int:
        """Messages that a newer one for their topic replaced before their turn."""
        return self._outbox.conflated

    @property
    def queued(self) -> int:
        """Messages that wait or are not acknowledged."""
        return len(self._outbox)

    @property
    def connected(self) -> bool:
        """Whether the broker takes messages."""
        return self._sending is not None

    def start(self, connection: MqttSettings) -> None:
        """Begin. The broker is connected when there is an actuator; one that is away is tried again for ever."""
        self._link = Link(
            connection,
            on_up=lambda client: self._events.put(partial(self._up, client)),
            on_down=lambda: self._events.put(self._down),
            on_answer=lambda *answer: self._events.put(partial(self._answered, *answer)),
        )
        self._thread.start()

    def follow(self, actuators: Iterable[Actuator]) -> None:
        """These are the actuators from now on. One that is changed begins anew, one that is not goes on."""
        self._events.put(partial(self._follow, tuple(actuators)))

    def stop(self, timeout: float = 3.0) -> None:
        """Take in no more changes, send what waits if `timeout` seconds suffice, disconnect."""
        deadline = time.monotonic() + timeout

        def finish() -> None:
            self._deadline = deadline - timeout / 4
            for rule in self._rules.values():
                self._close(rule)

        self._events.put(finish)
        if self._thread.is_alive():
            self._thread.join(timeout)
        if self._link is not None and self._link_started:
            self._link.stop(max(0.1, deadline - time.monotonic()))

    def faults(self) -> list[dict[str, object]]:
        """Actuators whose query fails: `file`, `reason`, `previous_version_applies`."""
        return [
            {
                "file": rule.actuator.place.file,
                "reason": str(replace(rule.actuator.place, reason=rule.failure, key="query")),
                "previous_version_applies": False,
            }
            for rule in list(self._rules.values())
            if rule.failure
        ]

    # Everything below runs on the one thread, but for `_take`

    def _run(self) -> None:
        while not self._finished():
            self._retry()
            self._send()
            try:
                event = self._events.get(timeout=self._pause())
            except queue.Empty:
                continue
            try:
                event()
            except Exception:  # noqa: BLE001  a fault of ours must not end the way back for all that comes after
                _log.exception("actuation.fault")

    def _finished(self) -> bool:
        if self._deadline is None:
            return False
        return self._sending is None or not len(self._outbox) or time.monotonic() >= self._deadline

    def _pause(self) -> float | None:
        """Seconds for which there is nothing to do unless something happens."""
        if not self._events.empty():
            return 0.0
        now = time.monotonic()
        ends = [rule.retry_at - now for rule in self._rules.values() if rule.retry_at is not None]
        if self._sending is not None:
            if (wait := self._outbox.wait(now)) is not None:
                ends.append(wait)
            if (since := self._outbox.unanswered_since()) is not None:
                ends.append(since + _PATIENCE - now)
        if self._deadline is not None:
            ends.append(self._deadline - now)
        return max(0.0, min(ends)) if ends else None

    def _follow(self, actuators: tuple[Actuator, ...]) -> None:
        wanted = {actuator.name: actuator for actuator in actuators}
        for name, rule in list(self._rules.items()):
            actuator = wanted.get(name)
            if actuator is not None and rule.actuator.same(actuator):
                # The file changed around it: what is wrong with it must be told where it is now.
                rule.actuator = actuator
                continue
            del self._rules[name]
            self._close(rule)
            self._outbox.withdraw(name)
            self._refused = {topic: each for topic, each in self._refused.items() if each.actuator != name}
        for name, actuator in wanted.items():
            if name not in self._rules:
                rule = self._rules[name] = _Rule(actuator, Wanted(actuator, partial(self._refuse, actuator)))
                self._subscribe(rule)
        if self._rules and self._link is not None and not self._link_started:
            self._link_started = True
            self._link.start()

    def _subscribe(self, rule: _Rule) -> None:
        self._close(rule)
        rule.retry_at = None
        feed = rule.feed = _Feed(rule)
        future = self._engine.subscribe(QueryRequest(rule.actuator.query), partial(self._take, feed))
        future.add_done_callback(lambda done: self._events.put(partial(self._subscribed, feed, done)))

    def _close(self, rule: _Rule) -> None:
        feed, rule.feed = rule.feed, None
        if feed is not None:
            feed.closed = True
            if feed.spuid:
                self._engine.unsubscribe(feed.spuid)

    def _subscribed(self, feed: _Feed, future: Future[Subscription]) -> None:
        if (error := future.exception()) is not None:
            self._query_failed(feed, str(error))
            return
        feed.spuid = future.result().spuid
        if feed.closed:
            self._engine.unsubscribe(feed.spuid)
            return
        rule = feed.rule
        rule.wait = _RETRY_MIN
        if rule.failure:
            rule.failure = ""
            _log.info("actuation.query_recovered", extra={"actuator": rule.actuator.name})

    def _query_failed(self, feed: _Feed, reason: str) -> None:
        rule = feed.rule
        if rule.feed is not feed:
            return
        rule.feed = None
        if rule.failure != reason:
            _log.error("actuation.query_failed", extra={"actuator": rule.actuator.name, "reason": reason})
        rule.failure = reason
        rule.retry_at = time.monotonic() + rule.wait
        rule.wait = min(rule.wait * 2, _RETRY_MAX)

    def _retry(self) -> None:
        now = time.monotonic()
        for rule in self._rules.values():
            if rule.retry_at is not None and rule.retry_at <= now and self._deadline is None:
                self._subscribe(rule)

    def _take(self, feed: _Feed, event: Notification | SubscribeFailed) -> None:
        """On the engine's thread: hand a notification over, or give up following when too many wait."""
        if feed.closed:
            return
        if self._events.qsize() >= self._settings.max_queued:
            feed.closed = True
            self._events.put(partial(self._fell_behind, feed))
            return
        self._events.put(partial(self._told, feed, event))

    def _fell_behind(self, feed: _Feed) -> None:
        """Notifications were left out: the state is asked for as a whole, and differences are sent."""
        if feed.rule.feed is feed:
            self._subscribe(feed.rule)

    def _told(self, feed: _Feed, event: Notification | SubscribeFailed) -> None:
        if feed.rule.feed is not feed:
            return
        if isinstance(event, SubscribeFailed):
            self._query_failed(feed, event.description)
            return
        delta, wanted = event.delta, feed.rule.wanted
        if event.sequence == 0:
            commands = wanted.replace(delta.variables, delta.added)
        else:
            commands = wanted.apply(delta.variables, delta.added, delta.removed)
        self._put(feed.rule, commands)

    def _put(self, rule: _Rule, commands: Iterable[Command]) -> None:
        interval = 1 / (rule.actuator.rate or self._settings.topic_rate)
        for command in commands:
            if not self._outbox.put(command, interval):
                reason = f"{self._settings.max_queued} messages wait already (actuation.max_queued)"
                self._fail(command.topic, command.actuator, reason, command.payload)

    def _up(self, client: Client) -> None:
        self._sending = _Sending(client)
        for rule in self._rules.values():
            # Some brokers close the connection of who sends what they refuse: it would never end.
            self._put(rule, (each for each in rule.wanted.commands() if self._refused.get(each.topic) != each))

    def _down(self) -> None:
        self._sending = None
        for command in self._outbox.lost():
            self._refused_by_broker(command, "it ended the connection whenever this was sent")

    def _answered(self, client: Client, mid: int, refused: str) -> None:
        if self._sending is None or self._sending.client is not client:
            return
        topic = self._sending.topics.pop(mid, None)
        if topic is None:
            return
        command = self._outbox.done(topic)
        if not refused:
            self.sent += 1
            self._refused.pop(topic, None)
        elif command is not None:
            self._refused_by_broker(command, refused)

    def _refused_by_broker(self, command: Command, reason: str) -> None:
        self._fail(command.topic, command.actuator, f"the broker refused it: {reason}", command.payload)
        if len(self._refused) < self._settings.max_queued:
            self._refused[command.topic] = command

    def _send(self) -> None:
        sending, now = self._sending, time.monotonic()
        if sending is None:
            return
        since = self._outbox.unanswered_since()
        if since is not None and now - since >= _PATIENCE and self._link is not None:
            self._sending = None
            self._link.drop(f"a message was not acknowledged within {_PATIENCE:.0f} s")
            return
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
