"""Active actuators: subscribes each one to its query and converts changes to commands."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from edge.adapters.desired_state import DesiredState
from edge.adapters.observations import AdapterEngine
from edge.backoff import Backoff, Retry
from edge.engine.requests import ActiveSubscription, QueryRequest, SubscribeFailed, SubscriberNotification
from edge.mapping.actuators import Actuator, Command
from edge.mapping.solution import Solution

_log = logging.getLogger(__name__)

_BACKOFF: Final = Backoff(1.0, 60.0)
"""Bounds of the back-off for failed subscriptions, in seconds."""

Post = Callable[[Callable[[], None]], None]
"""Runs a function on the thread that owns the rules."""


@dataclass(eq=False)
class _Rule:
    """One active actuator."""

    actuator: Actuator
    wanted: DesiredState
    subscription: _RuleSubscription | None = None
    failure: str = ""
    retry: Retry = field(default_factory=lambda: Retry(_BACKOFF))
    retry_at: float | None = None


@dataclass(eq=False)
class _RuleSubscription:
    """One subscription of a rule. Notifications of a replaced subscription are ignored."""

    rule: _Rule
    spuid: str = ""
    closed: bool = False


class ActuationRules:
    """Subscriptions of the actuators. All methods belong to one thread, except `_take` (engine thread) and `faults`."""

    def __init__(
        self,
        engine: AdapterEngine,
        post: Post,
        waiting: Callable[[], bool],
        send: Callable[[Actuator, Iterable[Command]], None],
        refuse: Callable[[Actuator, Solution, str], None],
    ) -> None:
        """`waiting`: whether the queue of notifications is full. `refuse`: receives solutions that give no valid
        command.
        """
        self._engine = engine
        self._post = post
        self._waiting = waiting
        self._send = send
        self._refuse = refuse
        self._rules: dict[str, _Rule] = {}

    def __len__(self) -> int:
        return len(self._rules)

    def follow(self, actuators: Iterable[Actuator]) -> list[str]:
        """Replace the actuators. Returns the names of removed and changed ones."""
        wanted = {actuator.name: actuator for actuator in actuators}
        gone = []
        for name, rule in list(self._rules.items()):
            actuator = wanted.get(name)
            if actuator is not None and rule.actuator.same(actuator):
                # The position in the file may have changed; messages must refer to the current one.
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
        """Return the complete desired state of each actuator."""
        return ((rule.actuator, rule.wanted.commands()) for rule in self._rules.values())

    def retry(self, now: float) -> None:
        """Subscribe again after failures whose pause is over."""
        for rule in self._rules.values():
            if rule.retry_at is not None and rule.retry_at <= now:
                self._subscribe(rule)

    def next_retry(self) -> float | None:
        """Return the time of the next retry; None without one."""
        return min((rule.retry_at for rule in self._rules.values() if rule.retry_at is not None), default=None)

    def close(self) -> None:
        """End all subscriptions."""
        for rule in self._rules.values():
            self._close(rule)
            rule.retry_at = None

    def faults(self) -> list[dict[str, object]]:
        """Actuators whose query fails: as `MappingFiles.faults`."""
        found = [
            replace(rule.actuator.place, reason=rule.failure, key="query")
            for rule in list(self._rules.values())
            if rule.failure
        ]
        return [
            {"file": each.file, "reason": str(each), "faults": [each.to_json()], "previous_version_applies": False}
            for each in found
        ]

    def _subscribe(self, rule: _Rule) -> None:
        self._close(rule)
        rule.retry_at = None
        subscription = rule.subscription = _RuleSubscription(rule)
        future = self._engine.subscribe(QueryRequest(rule.actuator.query), partial(self._take, subscription))
        future.add_done_callback(lambda done: self._post(partial(self._subscribed, subscription, done)))

    def _close(self, rule: _Rule) -> None:
        subscription, rule.subscription = rule.subscription, None
        if subscription is not None:
            subscription.closed = True
            if subscription.spuid:
                self._engine.unsubscribe(subscription.spuid)

    def _subscribed(self, subscription: _RuleSubscription, future: Future[ActiveSubscription]) -> None:
        if (error := future.exception()) is not None:
            self._failed(subscription, str(error))
            return
        subscription.spuid = future.result().spuid
        rule = subscription.rule
        if rule.subscription is not subscription:
            self._engine.unsubscribe(subscription.spuid)
            return
        rule.retry.succeeded()
        if rule.failure:
            rule.failure = ""
            _log.info("actuation.query_recovered", extra={"actuator": rule.actuator.name})

    def _failed(self, subscription: _RuleSubscription, reason: str) -> None:
        rule = subscription.rule
        if rule.subscription is not subscription:
            return
        rule.subscription = None
        if rule.failure != reason:
            _log.error("actuation.query_failed", extra={"actuator": rule.actuator.name, "reason": reason})
        rule.failure = reason
        rule.retry_at = time.monotonic() + rule.retry.failed()

    def _take(self, subscription: _RuleSubscription, event: SubscriberNotification | SubscribeFailed) -> None:
        """Queue a notification from the engine thread. If too many wait, drop the subscription and restart it later."""
        if subscription.closed:
            return
        if self._waiting():
            subscription.closed = True
            self._post(partial(self._fell_behind, subscription))
        else:
            self._post(partial(self._receive, subscription, event))

    def _fell_behind(self, subscription: _RuleSubscription) -> None:
        """Subscribe again, because notifications were dropped. The difference of the complete state is sent."""
        if subscription.rule.subscription is subscription:
            self._subscribe(subscription.rule)

    def _receive(self, subscription: _RuleSubscription, event: SubscriberNotification | SubscribeFailed) -> None:
        rule = subscription.rule
        if rule.subscription is not subscription:
            return
        if isinstance(event, SubscribeFailed):
            self._failed(subscription, event.description)
            return
        delta = event.delta
        if event.sequence == 0:
            commands = rule.wanted.replace(delta.variables, delta.added)
        else:
            commands = rule.wanted.apply(delta.variables, delta.added, delta.removed)
        self._send(rule.actuator, commands)
