"""What the result that a query keeps counts for in the account of one of its subscribers.

Equal queries share one result, so it counts once: for the first of its subscribers whose account has room. The other
subscribers have it for nothing, until that one leaves.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from edge.engine.admission.byte_quota import ByteQuota
from edge.engine.admission.slots import GATEWAY
from edge.protocol.errors import TooManyRequests

STEP: Final = 16 * 1024
"""Bytes in which a result counts. Less than one step is covered by what the text of a subscription counts."""


class ResultCharge:
    """The charge of one result. It belongs to the writer's thread."""

    __slots__ = ("_charge",)

    def __init__(self, quota: ByteQuota) -> None:
        self._charge = quota.charge(GATEWAY)

    def set(self, size: int, clients: Iterable[str], *, check: bool = True) -> None:
        """Change the size. `clients` of the subscribers, the first one first.

        Raises `TooManyRequests` if none of them has room; then it is as before. `check`: see `ByteQuota.add`.
        """
        charge = self._charge
        size -= size % STEP
        if size == charge.size:
            return
        if not charge.size:
            charge.move(next(iter(clients), GATEWAY))  # of nothing
        try:
            charge.set(size, check=check)
        except TooManyRequests:
            if not self._move(size, clients):
                raise

    def _move(self, size: int, clients: Iterable[str]) -> bool:
        """Whether another client has room."""
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
        """A subscriber of `client` has left. `clients` of those who stay: the first one has the result from now on."""
        if self._charge.size and self._charge.client == client:
            self._charge.move(next(iter(clients), GATEWAY), check=False)

    def release(self) -> None:
        """The result is not kept any more."""
        self._charge.release()
