"""Charges of requests and subscriptions in the byte quota of their clients."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any, Final

from edge.engine.admission.byte_quota import ByteQuota, Charge
from edge.engine.admission.fair_share import GATEWAY
from edge.engine.requests import QueryRequest, Sink, SubscribeFailed, SubscriberNotification, UpdateRequest
from edge.protocol.errors import TooManyRequests

_REQUEST: Final = 1024
"""Bytes of a request in addition to its texts."""
_SUBSCRIPTION: Final = 4
"""Factor from the bytes of a subscribe request to those of the subscription: text, plan and index entries."""
_TOKEN: Final = 300
"""Bytes of a token of a long list in a plan. A number of VALUES or IN takes 330, an IRI 210."""
_SHORT: Final = 100
"""Number of tokens up to which the charge of the text covers the plan."""


class RequestCharges:
    """Charges for data held for clients: requests until they are answered, subscriptions until they end."""

    def __init__(self, quota: ByteQuota) -> None:
        self._quota = quota
        self._subscriptions: dict[str, Charge] = {}
        """By spuid. Only the writer thread uses it."""

    def hold(
        self, future: Future[Any], source: str, requests: Iterable[UpdateRequest | QueryRequest]
    ) -> TooManyRequests | None:
        """Charge the client `source` until the future is done. Returns the error if the client holds too much."""
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
        """Charge for a subscription of the previous process, even beyond the limit. Returns the sink for notifications.

        Without security the client is the connection that owned it, until `transfer`.
        """
        charge = self._quota.charge(query.source)
        size = _SUBSCRIPTION * _size(query) + _plan(query.sparql)
        charge.set(size, check=False)
        subscription = SubscriptionCharge(self._subscriptions, charge, size, sink)
        subscription.begun(spuid)
        return subscription.sink

    def transfer(self, spuid: str, client: str) -> None:
        """Charge another client for a subscription, even beyond its limit. Must run on the writer thread."""
        if charge := self._subscriptions.get(spuid):
            charge.move(client, check=False)

    def forget(self, spuid: str) -> None:
        """Release the charge of a subscription that has ended. Must run on the writer thread."""
        charge = self._subscriptions.pop(spuid, None)
        if charge is not None:
            charge.release()


class SubscriptionCharge:
    """Charge of one subscribe request, and then of its subscription."""

    def __init__(self, subscriptions: dict[str, Charge], charge: Charge, size: int, sink: Sink) -> None:
        """`size`: bytes of the future subscription."""
        self._subscriptions = subscriptions
        self._charge = charge
        self._size = size
        self._sink = sink
        self._begun = False

    def begin(self) -> None:
        """Raise the charge to that of a subscription. Raises `TooManyRequests`."""
        self._charge.set(self._size)

    def begun(self, spuid: str) -> None:
        """Keep the charge until the subscription `spuid` ends."""
        self._begun = True
        self._subscriptions[spuid] = self._charge

    def done(self, _: Future[Any]) -> None:
        """Release the charge of a request that did not become a subscription."""
        if not self._begun:
            self._charge.release()

    def sink(self, item: SubscriberNotification | SubscribeFailed) -> None:
        """Pass on an item of the engine. A failed subscription has ended, so its charge is released."""
        if isinstance(item, SubscribeFailed):
            self._subscriptions.pop(item.spuid, None)
            self._charge.release()
        self._sink(item)


def _size(request: UpdateRequest | QueryRequest) -> int:
    """Return the bytes of a pending request."""
    graphs = (*(request.dataset.default_graphs or ()), *(request.dataset.named_graphs or ()))
    return _REQUEST + sys.getsizeof(request.sparql) + sum(map(sys.getsizeof, graphs))


def _plan(text: str) -> int:
    """Return approximately the bytes of a query plan beyond those charged for its text.

    Tokens are counted by their separators: tokenizing 1 MB would take too long, this takes 10 ms. Words in strings and
    comments count, too.
    """
    separated = sum(map(text.count, "<(,.;?$+-")) + (text.count('"') + text.count("'")) // 2
    return _TOKEN * max(0, max(len(text.split()), separated) - _SHORT)
