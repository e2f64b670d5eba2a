"""Subscription processing unit (SPU): one query with its constants, and its subscribers.

There are two kinds. An incremental SPU is updated by the delta rules (`incremental_spu`). A re-evaluated SPU is
evaluated after each commit that matches its watches in the LUTT (`reevaluated_spu`).
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from edge.engine.admission.byte_quota import ByteQuota
from edge.engine.admission.fair_share import GATEWAY
from edge.engine.admission.result_charge import ResultCharge
from edge.engine.faults import contained
from edge.engine.queries.evaluator import World
from edge.engine.requests import Delta, Sink, SubscribeFailed, SubscriberNotification

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
        number, self.sequence = self.sequence, self.sequence + 1
        try:  # as `_send`, without its call
            self.sink(SubscriberNotification(self.spuid, self.alias, number, delta))
        except BaseException as error:  # noqa: BLE001  a faulty sink must not affect the update or other subscribers
            return contained(error)
        return None

    def fail(self, description: str) -> None:
        """Notify the subscriber that the query could not be evaluated, and that the subscription ends."""
        lost = self._send(SubscribeFailed(self.spuid, self.alias, description))
        if lost is not None:
            _log.error("notification lost by a fault of its receiver", exc_info=lost)

    def _send(self, item: SubscriberNotification | SubscribeFailed) -> Exception | None:
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
