"""Subscription processing unit (SPU): one query with its constants, and its subscribers.

There are two kinds. An incremental SPU is updated by the delta rules, and holds only the state of its stages. A
re-evaluated SPU is evaluated after each commit that matches its watches in the LUTT (see `reevaluation`), and holds its
last result as text.
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
    """One subscription: the sink of its notifications, and the number of the next one."""

    spuid: str
    alias: str | None
    sink: Sink
    sequence: int = 0
    client: str = GATEWAY
    """Client whose budget pays for evaluations; empty for the gateway itself."""

    def notify(self, delta: Delta) -> Exception | None:
        """Send the next notification. Return the error of the sink if the notification was lost."""
        lost = self._send(Notification(self.spuid, self.alias, self.sequence, delta))
        self.sequence += 1
        return lost

    def fail(self, description: str) -> None:
        """Notify the subscriber that the query could not be evaluated, and that the subscription ends."""
        lost = self._send(SubscribeFailed(self.spuid, self.alias, description))
        if lost is not None:
            _log.error("notification lost by a fault of its receiver", exc_info=lost)

    def _send(self, item: Notification | SubscribeFailed) -> Exception | None:
        try:
            self.sink(item)
        except BaseException as error:  # noqa: BLE001  a faulty sink must not affect the update or other subscribers
            return contained(error)
        return None


class Spu(ABC):
    """Subscriptions with an equal query and dataset. Their notifications are computed once."""

    __slots__ = ("charge", "failure", "faulty", "half_moved", "subscribers")

    def __init__(self, quota: ByteQuota) -> None:
        """`quota` is charged for the memory of the SPU."""
        self.subscribers: dict[str, Subscriber] = {}
        self.charge = ResultCharge(quota)
        self.failure = ""
        """Error of the last update, or empty. After an error it takes no further update, and ends with the commit."""
        self.faulty = False
        """Whether the error is a fault of the gateway."""
        self.half_moved = False
        """Whether a change has started. `take` sets it, and the caller clears it after recording the change. An error
        in between leaves the SPU in a state that matches no state of the graph, so the SPU must end."""

    @property
    @abstractmethod
    def variables(self) -> tuple[str, ...]:
        """The columns of the result."""

    @abstractmethod
    def end(self, world: World) -> None:
        """Release all resources."""

    @property
    def held(self) -> int:
        """Approximate bytes of memory."""
        return 0

    def account(self, *, check: bool = True) -> None:
        """Charge the clients for the current memory. Raises `TooManyRequests`. `check`: see `ByteQuota.add`."""
        self.charge.set(self.held, self._clients(), check=check)

    def _clients(self) -> Iterator[str]:
        return (subscriber.client for subscriber in self.subscribers.values())

    def leave(self, subscriber: Subscriber) -> None:
        """Remove a subscriber."""
        del self.subscribers[subscriber.spuid]
        self.charge.left(subscriber.client, self._clients())

    def transfer(self, subscriber: Subscriber, client: str) -> None:
        """Assign a subscriber to another client."""
        before, subscriber.client = subscriber.client, client
        self.charge.left(before, self._clients())

    @property
    @abstractmethod
    def kept(self) -> int:
        """Number of rows or groups in memory."""


class IncrementalSpu(Spu):
    """An SPU with incremental evaluation: a member of a plan group."""

    __slots__ = ("_stages", "_stateful", "beginnings", "begun", "ended", "group", "open", "query")

    def __init__(self, group: PlanGroup, open_: Row, world: World, query: Member, quota: ByteQuota) -> None:
        """`open_`: the constants that distinguish the members of the group. The SPU starts with `begin`."""
        super().__init__(quota)
        self.query = query
        self.group = group
        self.open = open_
        self._stages: Sequence[Stage] = ()
        self._stateful: Sequence[Stage] = ()
        """Stages with state."""
        self._follow(self.stages())
        self.begun = False
        """Whether the stages hold the result. Until then, the beginnings collect changed solutions."""
        self.ended = False
        self.beginnings: list[Beginning] = []
        """First results in progress for new subscribers."""
        retain(world.graph.dictionary, open_)

    @property
    def variables(self) -> tuple[str, ...]:
        """See `Spu`."""
        return self.group.plan.variables

    def delta(self, world: World, told: Weights) -> Delta:
        """Convert changed rows to terms."""
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
        """Return new stages."""
        return self.group.plan.stages(self.group.frame(0, self.open))

    def begin(self, world: World, steps: int | None = None) -> Weights:
        """Evaluate the query within a step budget. Return the whole result. Raises `ResultTooLarge`."""
        result = self._whole(self._stages, world, steps)
        self.begun = True
        return result

    def begin_outside(self, joining: Joining) -> Beginning:
        """Start to collect changes while another process evaluates the query in the current state."""
        beginning = Beginning(self, self.stages(), joining)
        self.beginnings.append(beginning)
        return beginning

    def begun_outside(self, world: World, beginning: Beginning) -> None:
        """Note that a beginning holds the result of the current state."""
        if self.begun:
            self.abandon(world, beginning)
            return
        self._release_stages()
        self._follow(beginning.stages)
        self.begun = True
        self.beginnings.remove(beginning)
        beginning.end(world)

    def abandon(self, world: World, beginning: Beginning) -> None:
        """Discard a beginning and its changes."""
        self.beginnings.remove(beginning)
        beginning.end(world)
        for stage in beginning.stages:
            stage.release()

    def _follow(self, stages: Sequence[Stage]) -> None:
        self._stages = stages
        self._stateful = [stage for stage in stages if not isinstance(stage, Columns)]

    def _release_stages(self) -> None:
        for stage in self._stages:
            stage.release()

    def result(self, world: World, steps: int | None = None) -> Weights:
        """Return the whole current result, for a new subscriber. Raises `EdgeError`."""
        stages = self.stages()
        try:
            return self._whole(stages, world, steps)
        finally:
            for stage in stages:
                stage.release()

    def _whole(self, stages: Sequence[Stage], world: World, steps: int | None) -> Weights:
        solutions = every_solution(self.group, self.open, world.rules, steps)
        if world.graph.dictionary.long:
            self._check_reading(solutions)
        rows = flow(stages, solutions, start=True)
        if world.graph.dictionary.long:
            _check_length(rows, world)
        return rows

    def move(self, world: World, weights: Weights) -> Weights:
        """Apply changed solutions, all or none. Return the changed rows.

        The limits of the evaluation are suspended, so an aggregate cannot stop half-way; the first violated limit is
        checked afterwards. Raises `ResultTooLarge`, `TooManyRequests`.
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
            if self._stateful:
                self.account()
        except (ResultTooLarge, TooManyRequests):
            # The rules are linear: the same solutions with the opposite sign restore the state.
            self.take(world, {row: -weight for row, weight in weights.items()})
            self.half_moved = False
            raise
        return told

    @property
    def held(self) -> int:
        """See `Spu`."""
        return sum([stage.held() for stage in self._stateful])

    def _check_reading(self, weights: Weights) -> None:
        """Check that aggregates can read all long texts of the solutions. Raises `ResultTooLarge`."""
        effort = self.group.effort
        reads = any(isinstance(stage, Groups) for stage in self._stages)
        if reads and effort.reading(long_texts(self.group.dictionary, weights)) > effort.most:
            raise effort.spent()

    def take(self, world: World, weights: Weights) -> Weights:
        """Apply changed solutions without a check of limits; also used to undo a change."""
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
    """Check that rows can be held as text. Raises `ResultTooLarge`."""
    if long_texts(world.graph.dictionary, rows) > world.rules.longest_result:
        raise too_long(world.rules)


@dataclass(slots=True)
class Usage:
    """Cost of the evaluations of one query so far."""

    evaluations: int = 0
    seconds: float = 0.0
    merged: int = 0
    """Committed states that were skipped, because a later commit came before the evaluation started."""
    delay: float = 0.0
    """Seconds from the last relevant commit to the start of its evaluation."""


Ready = Callable[[Subscription | Exception], None]
"""Called once on the writer thread: with the subscription after its notification 0, or with the error."""


@dataclass(frozen=True, slots=True)
class Joining:
    """A new subscriber that waits for the whole result."""

    subscriber: Subscriber
    ready: Ready
    silent: bool = False
    """Whether the subscriber has the result already, from the previous process of the gateway."""
    renewal: Renewal | None = None
    """If set, its subscribers receive the difference to their result, in place of `subscriber`."""


class ReevaluatedSpu(Spu):
    """An SPU without incremental evaluation: it is evaluated after commits that match its watches.

    The flags (`stale`, `busy`, `joining` and others) belong to `Reevaluation` and its lock. The known result belongs to
    the running evaluation.
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
        """The query with its incremental plan before the demotion; None if it never had one."""
        self.known = KnownResult(evaluator)
        self.depends = Dependencies((), graph_names=False)
        """Dependencies that are currently watched."""
        self.clients: Counter[str] = Counter()
        """Number of subscribers of each client."""
        self.waiting = 0
        """Number of new subscribers without a result."""
        self.usage = Usage()
        self.stale = False
        """Whether a committed update affects the result and no evaluation has started since."""
        self.at = 0
        """Engine time of that update."""
        self.marked_at = 0.0
        """Time at which it became stale, in seconds of the evaluation clock."""
        self.busy = False
        """Whether it is queued, is being evaluated, or has an outcome that is not delivered."""
        self.ended = False
        self.joining: list[Joining] = []

    @property
    def variables(self) -> tuple[str, ...]:
        """See `Spu`."""
        return self.known.variables

    def keys(self, world: World) -> list[Key]:
        """Return its keys in the LUTT."""
        return [watch.key(world.graph) for watch in self.depends.watches]

    @property
    def kept(self) -> int:
        """See `Spu`."""
        return len(self.known)

    def end(self, world: World) -> None:
        """See `Spu`."""
        self.ended = True
        self.charge.release()
