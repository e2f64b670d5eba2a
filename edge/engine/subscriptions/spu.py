"""The subscription processing unit (SPU): one query with its constants, and those who subscribed to it.

There are two kinds. A boosted one is moved by the delta rules and keeps nothing but what its stages need; the other
is evaluated again after commits that hit the LUTT (see `reevaluation`), and keeps its last result as text.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edge.engine.admission.byte_quota import ByteQuota
from edge.engine.admission.result_charge import ResultCharge
from edge.engine.admission.slots import GATEWAY
from edge.engine.faults import contained
from edge.engine.operators.stages import Columns, Groups, Row, Stage, Weights, flow, long_texts, release, retain
from edge.engine.queries.evaluator import Evaluator, World
from edge.engine.queries.lutt import Dependencies, Key
from edge.engine.queries.oxigraph_queries import too_long, too_many
from edge.engine.queries.query_plans import Member, Singular
from edge.engine.requests import Delta, Notification, Sink, SubscribeFailed, Subscription
from edge.engine.subscriptions.beginning import Beginning
from edge.engine.subscriptions.known_result import KnownResult
from edge.engine.subscriptions.plan_group import PlanGroup, every_solution
from edge.protocol import results
from edge.protocol.errors import ResultTooLarge, TooManyRequests

if TYPE_CHECKING:
    from edge.engine.subscriptions.renewal import Renewal

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Subscriber:
    """One subscription: where its notifications go, and how many it has had."""

    spuid: str
    alias: str | None
    sink: Sink
    sequence: int = 0
    client: str = GATEWAY
    """Client whose budget pays for evaluations; empty: the gateway itself."""

    def notify(self, delta: Delta) -> Exception | None:
        """Send the next notification. Returns the error of the sink if the notification is lost by it."""
        lost = self._send(Notification(self.spuid, self.alias, self.sequence, delta))
        self.sequence += 1
        return lost

    def fail(self, description: str) -> None:
        """Say that the query could not be evaluated."""
        lost = self._send(SubscribeFailed(self.spuid, self.alias, description))
        if lost is not None:
            _log.error("notification lost by a fault of its receiver", exc_info=lost)

    def _send(self, item: Notification | SubscribeFailed) -> Exception | None:
        try:
            self.sink(item)
        except BaseException as error:  # noqa: BLE001  the fault of one sink: the update is done, others are to be told
            return contained(error)
        return None


class Spu(ABC):
    """Equal query and dataset, one SPU: what it tells is computed once, whoever asked for it."""

    __slots__ = ("charge", "failure", "faulty", "half_moved", "subscribers")

    def __init__(self, quota: ByteQuota) -> None:
        """`quota` is charged for what it keeps."""
        self.subscribers: dict[str, Subscriber] = {}
        self.charge = ResultCharge(quota)
        self.failure = ""
        """Why it has not taken in an update; empty: it has. It takes in no later one, and ends with the commit."""
        self.faulty = False
        """Whether that is a fault of ours."""
        self.half_moved = False
        """Whether it began to move. `take` sets it, and whoever noted the move clears it: an error in between leaves it
        in no state of the graph, so it must end."""

    @property
    @abstractmethod
    def variables(self) -> tuple[str, ...]:
        """The columns of the result."""

    @abstractmethod
    def end(self, world: World) -> None:
        """Let go of everything."""

    @property
    def held(self) -> int:
        """Bytes that it keeps, about."""
        return 0

    def account(self, *, check: bool = True) -> None:
        """Charge the clients for what it keeps by now. Raises `TooManyRequests`. `check`: see `ByteQuota.add`."""
        self.charge.set(self.held, self._clients(), check=check)

    def _clients(self) -> Iterator[str]:
        return (subscriber.client for subscriber in self.subscribers.values())

    def leave(self, subscriber: Subscriber) -> None:
        """One of its subscribers has left."""
        del self.subscribers[subscriber.spuid]
        self.charge.left(subscriber.client, self._clients())

    def transfer(self, subscriber: Subscriber, client: str) -> None:
        """One of its subscribers is another client from now on."""
        before, subscriber.client = subscriber.client, client
        self.charge.left(before, self._clients())

    @property
    @abstractmethod
    def kept(self) -> int:
        """How many rows or groups it keeps."""


class IncrementalSpu(Spu):
    """A member of a family."""

    __slots__ = ("_keeping", "_stages", "beginnings", "begun", "ended", "family", "open", "query")

    def __init__(self, family: PlanGroup, open_: Row, world: World, query: Member, quota: ByteQuota) -> None:
        """`open_`: the constants that the family leaves open. The SPU begins with `begin`."""
        super().__init__(quota)
        self.query = query
        self.family = family
        self.open = open_
        self._stages: Sequence[Stage] = ()
        self._keeping: Sequence[Stage] = ()
        """Those that keep anything."""
        self._follow(self.stages())
        self.begun = False
        """Whether the stages have its result. Until then it has beginnings, which collect changed solutions."""
        self.ended = False
        self.beginnings: list[Beginning] = []
        """First results for new subscribers that are on their way."""
        retain(world.graph.dictionary, open_)

    @property
    def variables(self) -> tuple[str, ...]:
        """See `Spu`."""
        return self.family.plan.variables

    def delta(self, world: World, told: Weights) -> Delta:
        """Changed rows as terms."""
        terms = world.graph.dictionary.terms
        added: list[results.Row] = []
        removed: list[results.Row] = []
        for row, weight in told.items():
            decoded = tuple([None if cell is None else terms[cell] for cell in row])
            if weight > 0:
                added += (decoded,) * weight
            else:
                removed += (decoded,) * -weight
        return Delta(self.variables, tuple(added), tuple(removed))

    def stages(self) -> Sequence[Stage]:
        """New stages."""
        return self.family.plan.stages(self.family.frame(0, self.open))

    def begin(self, world: World, steps: int | None = None) -> Weights:
        """Evaluate the query, in so many steps. Returns the whole result. Raises `ResultTooLarge`."""
        result = self._whole(self._stages, world, steps)
        self.begun = True
        return result

    def begin_outside(self, joining: Joining) -> Beginning:
        """Begin to collect what changes: the query is evaluated elsewhere, in the state of now."""
        beginning = Beginning(self, self.stages(), joining)
        self.beginnings.append(beginning)
        return beginning

    def begun_outside(self, world: World, beginning: Beginning) -> None:
        """Note that a beginning has the result of now."""
        if self.begun:
            self.abandon(world, beginning)
            return
        self._release_stages()
        self._follow(beginning.stages)
        self.begun = True
        self.beginnings.remove(beginning)
        beginning.end(world)

    def abandon(self, world: World, beginning: Beginning) -> None:
        """Collect no more changes for a beginning."""
        self.beginnings.remove(beginning)
        beginning.end(world)
        for stage in beginning.stages:
            stage.release()

    def _follow(self, stages: Sequence[Stage]) -> None:
        self._stages = stages
        self._keeping = [stage for stage in stages if not isinstance(stage, Columns)]

    def _release_stages(self) -> None:
        for stage in self._stages:
            stage.release()

    def result(self, world: World, steps: int | None = None) -> Weights:
        """The whole result as it is: what a new subscriber is told. Raises `EdgeError`."""
        stages = self.stages()
        try:
            return self._whole(stages, world, steps)
        finally:
            for stage in stages:
                stage.release()

    def _whole(self, stages: Sequence[Stage], world: World, steps: int | None) -> Weights:
        solutions = every_solution(self.family, self.open, world.rules, steps)
        if world.graph.dictionary.long:
            self._check_reading(solutions)
        rows = flow(stages, solutions, start=True)
        if world.graph.dictionary.long:
            _check_length(rows, world)
        return rows

    def move(self, world: World, weights: Weights) -> Weights:
        """Take in changed solutions, or none of them. Returns the changed rows.

        Nothing can stop it half way: the limits of the evaluation are lifted. Raises `ResultTooLarge`,
        `TooManyRequests`.
        """
        long, effort = world.graph.dictionary.long, world.graph.effort
        if long:
            self._check_reading(weights)
        effort.refusal = None
        told = self.take(world, weights)
        try:
            if effort.refusal is not None:
                raise effort.refusal
            if any(stage.size() > world.rules.max_solutions for stage in self._stages):
                raise too_many(world.rules)
            if long:
                _check_length(told, world)
            if self._keeping:
                self.account()
        except (ResultTooLarge, TooManyRequests):
            self.take(world, {row: -weight for row, weight in weights.items()})
            self.half_moved = False
            raise
        return told

    @property
    def held(self) -> int:
        """See `Spu`."""
        return sum([stage.held() for stage in self._keeping])

    def _check_reading(self, weights: Weights) -> None:
        """Whether all long texts of the solutions can be read, as aggregates do. Raises `ResultTooLarge`."""
        effort = self.family.effort
        reads = any(isinstance(stage, Groups) for stage in self._stages)
        if reads and effort.reading(long_texts(self.family.dictionary, weights)) > effort.most:
            raise effort.spent()

    def take(self, world: World, weights: Weights) -> Weights:
        """Take in changed solutions, however many are kept then: also to take back what was taken in."""
        self.half_moved = True
        for beginning in self.beginnings:
            beginning.change(world, weights)
        return flow(self._stages, weights, start=False) if self.begun else {}

    @property
    def kept(self) -> int:
        """See `Spu`."""
        return sum(stage.size() for stage in self._stages)

    def end(self, world: World) -> None:
        """See `Spu`."""
        self.ended = True
        self._release_stages()
        release(world.graph.dictionary, self.open)
        self.charge.release()


def _check_length(rows: Weights, world: World) -> None:
    """Whether rows can be held as text. Raises `ResultTooLarge`."""
    if long_texts(world.graph.dictionary, rows) > world.rules.longest_result:
        raise too_long(world.rules)


@dataclass(slots=True)
class Usage:
    """What the evaluations of one query have cost so far."""

    evaluations: int = 0
    seconds: float = 0.0
    merged: int = 0
    """Committed states that were skipped, because a later one came before the evaluation began."""
    delay: float = 0.0
    """Seconds from the last commit that concerned the query to the evaluation that it caused."""


Ready = Callable[[Subscription | Exception], None]
"""Told once that a subscription has begun, after its notification 0, or why it could not. On the writer thread."""


@dataclass(frozen=True, slots=True)
class Joining:
    """A new subscriber that waits for the whole result."""

    subscriber: Subscriber
    ready: Ready
    silent: bool = False
    """Whether the subscriber has the result already, from the process before."""
    renewal: Renewal | None = None
    """Whose subscribers are to be told the difference to what they have, in place of `subscriber`."""


class ReevaluatedSpu(Spu):
    """A query without a delta rule, or one that is not to be boosted: evaluated after commits that concern it.

    The marks (`stale`, `busy`, `joining` and the like) belong to `Reevaluation`, under its lock; the known result
    belongs to the evaluation that runs.
    """

    __slots__ = (
        *("at", "busy", "clients", "depends", "ended", "evaluator", "joining", "known", "marked_at", "query"),
        *("demoted", "stale", "usage", "waiting"),
    )

    def __init__(self, query: Singular, evaluator: Evaluator, quota: ByteQuota) -> None:
        super().__init__(quota)
        self.query = query
        self.evaluator = evaluator
        self.demoted: Member | None = None
        """The query as it was kept up to date before; None: it was always re-evaluated."""
        self.known = KnownResult(evaluator)
        self.depends = Dependencies((), graph_names=False)
        """What it is watched for."""
        self.clients: Counter[str] = Counter()
        """Clients of the subscribers."""
        self.waiting = 0
        """New subscribers that do not have the result yet."""
        self.usage = Usage()
        self.stale = False
        """Whether a committed update concerns it that no evaluation has begun to look at."""
        self.at = 0
        """Engine time of that update."""
        self.marked_at = 0.0
        """Time at which it became stale, in seconds of the clock of evaluations."""
        self.busy = False
        """Whether it is queued, is being evaluated, or has an outcome that is not delivered."""
        self.ended = False
        self.joining: list[Joining] = []

    @property
    def variables(self) -> tuple[str, ...]:
        """See `Spu`."""
        return self.known.variables

    def keys(self, world: World) -> list[Key]:
        """Under what it stands in the LUTT."""
        return [watch.key(world.graph) for watch in self.depends.watches]

    @property
    def kept(self) -> int:
        """See `Spu`."""
        return len(self.known)

    def end(self, world: World) -> None:
        """See `Spu`."""
        self.ended = True
        self.charge.release()
