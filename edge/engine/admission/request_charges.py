"""What requests and subscriptions count for in the account of their clients."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any, Final

from edge.engine.admission.byte_quota import ByteQuota, Charge
from edge.engine.admission.slots import GATEWAY
from edge.engine.requests import Notification, QueryRequest, Sink, SubscribeFailed, UpdateRequest
from edge.protocol.errors import TooManyRequests

_REQUEST: Final = 1024
"""Bytes that a request counts beside its texts."""
_SUBSCRIPTION: Final = 4
"""Times the bytes of its request that a subscription counts: its text, its plan and its place among the others."""
_TOKEN: Final = 300
"""Bytes that a token of a long list takes in a plan: a number of VALUES or IN takes 330, an IRI 210."""
_SHORT: Final = 100
"""Tokens of a query whose plan is covered by what its text counts."""


class RequestCharges:
    """Charges of what the engine holds for clients: requests until they are answered, subscriptions until they end."""

    def __init__(self, quota: ByteQuota) -> None:
        self._quota = quota
        self._subscriptions: dict[str, Charge] = {}
        """By spuid. It belongs to the writer's thread."""

    def hold(
        self, future: Future[Any], source: str, requests: Iterable[UpdateRequest | QueryRequest]
    ) -> TooManyRequests | None:
        """Charge the client `source` until the future is done. Returns the error if too much is held for it."""
        if source == GATEWAY:
            return None
        try:
            charge = self._quota.charge(source, sum(map(_size, requests)))
        except TooManyRequests as error:
            return error
        future.add_done_callback(lambda _: charge.release())
        return None

    def subscription(self, query: QueryRequest, alias: str | None, sink: Sink) -> SubscriptionCharge:
        """Charge for a subscribe request. Raises `TooManyRequests`."""
        size, plan = _size(query) + sys.getsizeof(alias), _plan(query.sparql)
        charge = self._quota.charge(query.source, size + plan)
        return SubscriptionCharge(self._subscriptions, charge, _SUBSCRIPTION * size + plan, sink)

    def restored(self, spuid: str, query: QueryRequest, sink: Sink) -> Sink:
        """Charge for a subscription of the process before, whatever its client holds. Returns where to send to.

        Without security the client is the connection that had it, until `transfer`.
        """
        charge = self._quota.charge(query.source)
        size = _SUBSCRIPTION * _size(query) + _plan(query.sparql)
        charge.set(size, check=False)
        subscription = SubscriptionCharge(self._subscriptions, charge, size, sink)
        subscription.begun(spuid)
        return subscription.sink

    def transfer(self, spuid: str, client: str) -> None:
        """Count a subscription for another client, whatever that holds. To be called on the writer's thread."""
        if charge := self._subscriptions.get(spuid):
            charge.move(client, check=False)

    def forget(self, spuid: str) -> None:
        """A subscription has ended. To be called on the writer's thread."""
        charge = self._subscriptions.pop(spuid, None)
        if charge is not None:
            charge.release()


class SubscriptionCharge:
    """The charge of one subscribe request, and of the subscription that it becomes."""

    def __init__(self, subscriptions: dict[str, Charge], charge: Charge, size: int, sink: Sink) -> None:
        """`size`: bytes that the subscription will count."""
        self._subscriptions = subscriptions
        self._charge = charge
        self._size = size
        self._sink = sink
        self._begun = False

    def begin(self) -> None:
        """It is about to become a subscription, which takes more. Raises `TooManyRequests`."""
        self._charge.set(self._size)

    def begun(self, spuid: str) -> None:
        """It is one now, and counts until it ends."""
        self._begun = True
        self._subscriptions[spuid] = self._charge

    def done(self, _: Future[Any]) -> None:
        """The request is answered, or nobody waits for the answer."""
        if not self._begun:
            self._charge.release()

    def sink(self, item: Notification | SubscribeFailed) -> None:
        """Hand over what the engine sends; a subscription that failed has ended."""
        if isinstance(item, SubscribeFailed):
            self._subscriptions.pop(item.spuid, None)
            self._charge.release()
        self._sink(item)


def _size(request: UpdateRequest | QueryRequest) -> int:
    """Bytes that a request takes while it is held."""
    graphs = (*(request.dataset.default_graphs or ()), *(request.dataset.named_graphs or ()))
    return _REQUEST + sys.getsizeof(request.sparql) + sum(map(sys.getsizeof, graphs))


def _plan(text: str) -> int:
    """Bytes that the plan of a query takes beyond what its text counts, about.

    Its tokens are counted by what separates them, since that takes 10 ms for 1 MB. Words of strings and comments count,
    too.
    """
    separated = sum(map(text.count, "<(,.;?$+-")) + (text.count('"') + text.count("'")) // 2
    return _TOKEN * max(0, max(len(text.split()), separated) - _SHORT)
