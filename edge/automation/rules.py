"""The rules that apply: subscribes to their queries and to their situations, and passes on their changes."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

import pyoxigraph as ox

from edge.automation.rule import END, SITUATIONS, Rule, iri_of, read_iri
from edge.automation.rule_actions import EngineActions, UpdateEngine
from edge.automation.runner import RuleActivity, RuleRunner, SituationListener, prefix
from edge.automation.settings import AutomationSettings
from edge.backoff import Backoff, Retry
from edge.engine.clock import Clock
from edge.engine.requests import (
    ActiveSubscription,
    QueryRequest,
    Sink,
    SubscribeFailed,
    SubscriberNotification,
    UpdateRequest,
)
from edge.protocol.errors import EdgeError
from edge.protocol.results import Row
from edge.protocol.timers import TimerRecord

_log = logging.getLogger(__name__)

_BACKOFF: Final = Backoff(1.0, 60.0)
_SECOND: Final = 1_000_000
_AT_ONCE: Final = 100
"""Situations that are deleted in one transaction."""

Event = SubscriberNotification | SubscribeFailed


class RuleEngine(UpdateEngine, Protocol):
    """Interface of the engine's scheduler for rules."""

    def pending_ids(self, prefix: str) -> Future[list[str]]:
        """Return the ids of pending updates."""

    def subscribe(self, query: QueryRequest, sink: Sink, *, awaited: bool = False) -> Future[ActiveSubscription]:
        """Send `sink` the result of a query, then each change."""

    def unsubscribe(self, spuid: str) -> Future[None]:
        """End a subscription."""


@dataclass(frozen=True, slots=True)
class RuleState:
    """State of a rule, for people."""

    waiting: int
    active: int
    tally: RuleActivity
    stopped: str
    """Why it does not run; empty if it does."""


@dataclass(eq=False)
class _RuleSubscription:
    """One subscription. Notifications of a replaced one are ignored."""

    spuid: str = ""
    closed: bool = False


@dataclass(eq=False)
class _Watched:
    """A rule that applies."""

    rule: Rule
    runner: RuleRunner
    subscription: _RuleSubscription | None = None
    failure: str = ""
    retry: Retry = field(default_factory=lambda: Retry(_BACKOFF))
    retry_at: int | None = None
    """Time of the steady clock."""


class Rules:
    """The rules that apply. All methods belong to one thread, except `states`.

    Events of other threads are posted as functions for that thread.
    """

    def __init__(
        self,
        engine: RuleEngine,
        actions: EngineActions,
        settings: AutomationSettings,
        clock: Clock,
        post: Callable[[Callable[[], None]], None],
        crowded: Callable[[], bool] = lambda: False,
        listener: SituationListener | None = None,
    ) -> None:
        """`post` runs a function on the thread that owns the rules; `crowded`: whether too many wait there."""
        self._engine = engine
        self._wait = actions.wait
        self._actions = _SyncedActions(actions, self._drain)
        self._settings = settings
        self._clock = clock
        self._post = post
        self._crowded = crowded
        self._listener = listener
        self._rules: dict[str, _Watched] = {}
        self._situations: dict[str, str] = {}
        """Solutions of the situations in the graph, by IRI."""
        self._situations_subscription: _RuleSubscription | None = None
        self._marks: deque[tuple[_RuleSubscription, Event]] = deque()
        """Notifications of the situations. They are taken before all other events, and after each update of a rule:
        then the state of a rule is that of the graph.
        """

    @property
    def follows(self) -> bool:
        """Whether it is subscribed to the situations. If not, all rules begin again with the next `follow`."""
        return self._situations_subscription is not None

    def states(self) -> Mapping[str, RuleState]:
        """Return the states of the rules that apply, by name."""
        return {
            name: RuleState(**each.runner.counts, tally=each.runner.tally, stopped=each.failure or each.runner.stopped)
            for name, each in list(self._rules.items())
        }

    def follow(self, wanted: Iterable[Rule], names: Set[str]) -> None:
        """Apply these rules instead of the present ones.

        `names`: of all rules that exist. Those among them that do not apply, because their files have a mistake, keep
        their situations. Raises `EdgeError`; then it is to be called again.
        """
        if not self.follows:
            self._follow_situations()
        rules = {rule.name: rule for rule in wanted if rule.enabled}
        for name, each in list(self._rules.items()):
            if rules.get(name) != each.rule:
                self._close(each.subscription)
                del self._rules[name]
        ids = self._wait(self._engine.pending_ids(prefix()))
        pending = {name.removeprefix(prefix()).partition("/")[0] for name in ids}
        active = {found[0] for iri in self._situations if (found := read_iri(iri)) is not None}
        # Also what rules have left behind that were deleted while the gateway was stopped.
        for name in (pending | active) - names:
            self._withdraw(name)
        for name, rule in rules.items():
            if name not in self._rules:
                self._begin(rule)

    def close(self) -> None:
        """End all subscriptions. Delayed updates go on."""
        for each in self._rules.values():
            self._close(each.subscription)
        self._close(self._situations_subscription)

    def tick(self) -> None:
        """Do what is due."""
        for each in self._rules.values():
            if each.retry_at is not None and each.retry_at <= self._clock.steady():
                self._subscribe(each)
            each.runner.tick()

    def wait(self) -> float | None:
        """Return the seconds until `tick` has something to do; None: nothing waits."""
        now, times = self._clock.steady(), []
        for each in self._rules.values():
            if each.retry_at is not None:
                times.append((each.retry_at - now) / _SECOND)
            if (wait := each.runner.wait()) is not None:
                times.append(wait)
        return max(0.0, min(times)) if times else None

    def _begin(self, rule: Rule) -> None:
        settings, clock = self._settings, self._clock
        runner = RuleRunner(
            rule,
            self._actions,
            wall=clock.wall,
            steady=clock.steady,
            most=settings.max_situations,
            rate=settings.max_rate,
            listener=self._listener,
        )
        # In this order: a delayed update that runs in between is in the first and in the second.
        pending = self._wait(self._engine.pending_ids(prefix(rule.name)))
        self._drain()
        runner.restore(self._active(rule.name), pending)
        watched = self._rules[rule.name] = _Watched(rule, runner)
        self._subscribe(watched)

    def _active(self, name: str) -> dict[str, str]:
        """Return the solutions of a rule's situations in the graph, by digest."""
        return {
            found[1]: solution
            for iri, solution in self._situations.items()
            if (found := read_iri(iri)) is not None and found[0] == name
        }

    def _withdraw(self, name: str) -> None:
        """Delete the situations of a rule that is gone, and cancel its delayed updates."""
        for pending in self._wait(self._engine.pending_ids(prefix(name))):
            self._actions.cancel(pending)
        ends = [UpdateRequest(END, bindings={"_situation": iri_of(name, digest)}) for digest in self._active(name)]
        # In parts, so that the updates of other clients do not wait for one long transaction.
        for first in range(0, len(ends), _AT_ONCE):
            self._actions.perform(ends[first : first + _AT_ONCE])

    # Situations in the graph

    def _follow_situations(self) -> None:
        """Subscribe to the situations, and take those that are there."""
        subscription = self._situations_subscription = _RuleSubscription()
        first: list[Event] = []

        def take(event: Event) -> None:
            if first:
                self._marks.append((subscription, event))
                self._post(self._drain)
            else:
                first.append(event)

        try:
            # Awaited: a rule knows its own changes before the next notification of its query.
            subscribed = self._wait(self._engine.subscribe(QueryRequest(SITUATIONS), take, awaited=True))
        except BaseException:
            self._situations_subscription = None
            raise
        subscription.spuid = subscribed.spuid
        (event,) = first
        self._situations = {} if isinstance(event, SubscribeFailed) else dict(map(_situation, event.delta.added))

    def _drain(self) -> None:
        while self._marks:
            self._changed_situations(*self._marks.popleft())

    def _changed_situations(self, subscription: _RuleSubscription, event: Event) -> None:
        if self._situations_subscription is not subscription:
            return
        if isinstance(event, SubscribeFailed):
            # The effects of delayed updates are unknown from now on, so all rules begin again.
            _log.error("automation.situations_lost", extra={"reason": event.description})
            self.close()
            self._rules.clear()
            self._situations_subscription = None
            return
        added, removed = dict(map(_situation, event.delta.added)), dict(map(_situation, event.delta.removed))
        for iri in removed.keys() - added.keys():
            self._situations.pop(iri, None)
            if (found := self._runner_of(iri)) is not None:
                found[0].disappeared(found[1])
                found[0].settle(found[1])
        for iri, solution in added.items():
            self._situations[iri] = solution
            if (found := self._runner_of(iri)) is not None:
                found[0].appeared(found[1], solution)
                found[0].settle(found[1])

    def _runner_of(self, iri: str) -> tuple[RuleRunner, str] | None:
        found = read_iri(iri)
        watched = None if found is None else self._rules.get(found[0])
        return None if found is None or watched is None else (watched.runner, found[1])

    # Queries of the rules

    def _subscribe(self, watched: _Watched) -> None:
        self._close(watched.subscription)
        watched.retry_at = None
        subscription = watched.subscription = _RuleSubscription()
        future = self._engine.subscribe(QueryRequest(watched.rule.query), partial(self._take, watched, subscription))
        future.add_done_callback(lambda done: self._post(partial(self._subscribed, watched, subscription, done)))

    def _subscribed(
        self, watched: _Watched, subscription: _RuleSubscription, future: Future[ActiveSubscription]
    ) -> None:
        if future.cancelled():
            return
        if (error := future.exception()) is not None:
            self._failed(watched, subscription, error.description if isinstance(error, EdgeError) else str(error))
            return
        subscription.spuid = future.result().spuid
        if watched.subscription is subscription and not subscription.closed:
            watched.failure = ""
            watched.retry.succeeded()
        else:
            # Its identifier was not known yet when the subscription was replaced or closed.
            self._engine.unsubscribe(subscription.spuid)

    def _take(self, watched: _Watched, subscription: _RuleSubscription, event: Event) -> None:
        """Post a notification, on the engine's thread. A rule that falls behind gets its complete result again."""
        if subscription.closed:
            return
        if self._crowded():
            subscription.closed = True
            self._post(partial(self._fell_behind, watched, subscription))
        else:
            self._post(partial(self._receive, watched, subscription, event))

    def _fell_behind(self, watched: _Watched, subscription: _RuleSubscription) -> None:
        if watched.subscription is subscription:
            self._subscribe(watched)

    def _receive(self, watched: _Watched, subscription: _RuleSubscription, event: Event) -> None:
        if watched.subscription is not subscription or subscription.closed:
            return
        self._drain()
        runner = watched.runner
        if isinstance(event, SubscribeFailed):
            self._failed(watched, subscription, event.description)
        elif event.sequence == 0:
            runner.replace(event.delta.variables, event.delta.added)
        else:
            runner.apply(event.delta.variables, event.delta.added, event.delta.removed)
        if runner.stopped:
            _log.error("automation.stopped", extra={"rule": watched.rule.name, "reason": runner.stopped})
            self._close(watched.subscription)
            watched.subscription = None

    def _failed(self, watched: _Watched, subscription: _RuleSubscription, reason: str) -> None:
        if watched.subscription is not subscription:
            return
        watched.subscription = None
        if watched.failure != reason:
            _log.error("automation.query_failed", extra={"rule": watched.rule.name, "reason": reason})
        watched.failure = reason
        watched.retry_at = self._clock.steady() + int(watched.retry.failed() * _SECOND)

    def _close(self, subscription: _RuleSubscription | None) -> None:
        if subscription is not None:
            subscription.closed = True
            if subscription.spuid:
                self._engine.unsubscribe(subscription.spuid)


class _SyncedActions:
    """Requests of rules, after each of which the situations are those of the graph. See `RuleActions`."""

    def __init__(self, actions: EngineActions, drain: Callable[[], None]) -> None:
        self._actions = actions
        self._drain = drain

    def perform(self, requests: Sequence[UpdateRequest]) -> None:
        self._actions.perform(requests)
        self._drain()

    def schedule(self, request: UpdateRequest, delay: int, name: str) -> None:
        self._actions.schedule(request, delay, name)

    def cancel(self, name: str) -> bool:
        cancelled = self._actions.cancel(name)
        self._drain()
        return cancelled

    def outcome(self, name: str) -> TimerRecord | None:
        record = self._actions.outcome(name)
        self._drain()
        return record


def _situation(row: Row) -> tuple[str, str]:
    situation, solution = row
    return (
        situation.value if isinstance(situation, ox.NamedNode) else "",
        solution.value if isinstance(solution, ox.Literal) else "",
    )
