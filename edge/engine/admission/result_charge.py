"""Charge for the retained result of a query, in the byte quota of one of its subscribers.

Equal queries share one result, so it counts once: for the first subscriber whose quota has room. The other subscribers
use it for free until that one leaves.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from edge.engine.admission.byte_quota import ByteQuota
from edge.engine.admission.fair_share import GATEWAY
from edge.protocol.errors import TooManyRequests

STEP: Final = 16 * 1024
"""Granularity of the charge in bytes. The charge of a subscription's text covers less than one step."""


class ResultCharge:
    """Charge for one result. Only the writer thread uses it."""

    __slots__ = ("_charge",)

    def __init__(self, quota: ByteQuota) -> None:
        self._charge = quota.charge(GATEWAY)

    def set(self, size: int, clients: Iterable[str], *, check: bool = True) -> None:
        """Change the size. `clients`: those of the subscribers, in order.

        Raises `TooManyRequests` if none of them has room; nothing changes then. `check`: see `ByteQuota.add`.
        """
        charge = self._charge
        size -= size % STEP
        if size == charge.size:
            return
        if not charge.size:
            charge.move(next(iter(clients), GATEWAY))  # an empty charge always fits
        try:
            charge.set(size, check=check)
        except TooManyRequests:
            if not self._move(size, clients):
                raise

    def _move(self, size: int, clients: Iterable[str]) -> bool:
        """Move the charge to another client that has room. Returns False if no client has."""
        charge, own = self._charge, self._charge.client
        for client in dict.fromkeys(clients):
            if client == own:
                continue
            before = charge.size
            charge.move(client, check=False)
            try:
                charge.set(size)
            except TooManyRequests:
                charge.move(own, check=False)
                assert charge.size == before  # noqa: S101
            else:
                return True
        return False

    def left(self, client: str, clients: Iterable[str]) -> None:
        """Note that a subscriber of `client` left. `clients`: those of the remaining ones; the first takes over the
        charge.
        """
        if self._charge.size and self._charge.client == client:
            self._charge.move(next(iter(clients), GATEWAY), check=False)

    def release(self) -> None:
        """Release the charge: the result is not retained any more."""
        self._charge.release()
