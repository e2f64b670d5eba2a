"""The actuators in force: each is subscribed to its query, and what changes becomes messages to send."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from edge.adapters.desired_state import DesiredState
from edge.adapters.observations import Engine
from edge.backoff import Backoff, Retry
from edge.engine.requests import Notification, QueryRequest, SubscribeFailed, Subscription
from edge.mapping.actuators import Actuator, Command
from edge.mapping.solution import Solution

_log = logging.getLogger(__name__)

_BACKOFF: Final = Backoff(1.0, 60.0)
"""Seconds between attempts to subscribe to a query that failed."""

Post = Callable[[Callable[[], None]], None]
"""Has something done on the thread that owns the rules."""


@dataclass(eq=False)
class _Rule:
    """One actuator in force."""

    actuator: Actuator
    wanted: DesiredState
    feed: _Feed | None = None
    failure: str = ""
    retry: Retry = field(default_factory=lambda: Retry(_BACKOFF))
    retry_at: float | None = None


@dataclass(eq=False)
class _Feed:
    """One subscription of a rule; notifications of an earlier one mean nothing any more."""

    rule: _Rule
    spuid: str = ""
    closed: bool = False


class ActuationRules:
    """Belongs to one thread, but for `_take`, which the engine calls on its own, and `faults`."""

    def __init__(
        self,
        engine: Engine,
        post: Post,
        waiting: Callable[[], bool],
        send: Callable[[Actuator, Iterable[Command]], None],
        refuse: Callable[[Actuator, Solution, str], None],
    ) -> None:
        """`waiting`: whether as many notifications wait as may. `refuse`: told of what no message can be made of."""
        self._engine = engine
        self._post = post
        self._waiting = waiting
        self._send = send
        self._refuse = refuse
        self._rules: dict[str, _Rule] = {}

    def __len__(self) -> int:
        return len(self._rules)

    def follow(self, actuators: Iterable[Actuator]) -> list[str]:
        """These are the actuators from now on. Returns the names of those that are no more, or begin anew."""
        wanted = {actuator.name: actuator for actuator in actuators}
        gone = []
        for name, rule in list(self._rules.items()):
            actuator = wanted.get(name)
            if actuator is not None and rule.actuator.same(actuator):
                # The file changed around it: what is wrong with it must be told where it is now.
                rule.actuator = actuator
                continue
            self._close(rule)
            del self._rules[name]
            gone.append(name)
        for name, actuator in wanted.items():
            if name not in self._rules:
                rule = self._rules[name] = _Rule(actuator, DesiredState(actuator, partial(self._refuse, actuator)))
                self._subscribe(rule)
        return gone

    def states(self) -> Iterator[tuple[Actuator, Iterable[Command]]]:
        """What each actuator wants, as a whole."""
        return ((rule.actuator, rule.wanted.commands()) for rule in self._rules.values())

    def retry(self, now: float) -> None:
        """Subscribe again where that failed and it is time."""
        for rule in self._rules.values():
            if rule.retry_at is not None and rule.retry_at <= now:
                self._subscribe(rule)

    def next_retry(self) -> float | None:
        """When `retry` has something to do."""
        return min((rule.retry_at for rule in self._rules.values() if rule.retry_at is not None), default=None)

    def close(self) -> None:
        """End all subscriptions."""
        for rule in self._rules.values():
            self._close(rule)
            rule.retry_at = None

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

    def _subscribe(self, rule: _Rule) -> None:
        self._close(rule)
        rule.retry_at = None
        feed = rule.feed = _Feed(rule)
        future = self._engine.subscribe(QueryRequest(rule.actuator.query), partial(self._take, feed))
        future.add_done_callback(lambda done: self._post(partial(self._subscribed, feed, done)))

    def _close(self, rule: _Rule) -> None:
        feed, rule.feed = rule.feed, None
        if feed is not None:
            feed.closed = True
            if feed.spuid:
                self._engine.unsubscribe(feed.spuid)

    def _subscribed(self, feed: _Feed, future: Future[Subscription]) -> None:
        if (error := future.exception()) is not None:
            self._failed(feed, str(error))
            return
        feed.spuid = future.result().spuid
        rule = feed.rule
        if rule.feed is not feed:
            self._engine.unsubscribe(feed.spuid)
            return
        rule.retry.succeeded()
        if rule.failure:
            rule.failure = ""
            _log.info("actuation.query_recovered", extra={"actuator": rule.actuator.name})

    def _failed(self, feed: _Feed, reason: str) -> None:
        rule = feed.rule
        if rule.feed is not feed:
            return
        rule.feed = None
        if rule.failure != reason:
            _log.error("actuation.query_failed", extra={"actuator": rule.actuator.name, "reason": reason})
        rule.failure = reason
        rule.retry_at = time.monotonic() + rule.retry.failed()

    def _take(self, feed: _Feed, event: Notification | SubscribeFailed) -> None:
        """On the engine's thread: hand a notification over, or give up following when too many wait."""
        if feed.closed:
            return
        if self._waiting():
            feed.closed = True
            self._post(partial(self._fell_behind, feed))
        else:
            self._post(partial(self._told, feed, event))

    def _fell_behind(self, feed: _Feed) -> None:
        """Notifications were left out: the state is asked for as a whole, and what differs is sent."""
        if feed.rule.feed is feed:
            self._subscribe(feed.rule)

    def _told(self, feed: _Feed, event: Notification | SubscribeFailed) -> None:
        rule = feed.rule
        if rule.feed is not feed:
            return
        if isinstance(event, SubscribeFailed):
            self._failed(feed, event.description)
            return
        delta = event.delta
        if event.sequence == 0:
            commands = rule.wanted.replace(delta.variables, delta.added)
        else:
            commands = rule.wanted.apply(delta.variables, delta.added, delta.removed)
        self._send(rule.actuator, commands)
