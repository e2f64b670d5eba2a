"""Byte quota: accounts for the bytes held for each client, with a limit for one client and for all clients together."""

from __future__ import annotations

import threading
from typing import Final

from edge.engine.admission.fair_share import GATEWAY, FairShare
from edge.protocol.errors import TooManyRequests

MIB: Final = 1024 * 1024
MAX_CLIENT_BYTES: Final = 32 * MIB
"""Default limit for one client."""
MAX_TOTAL_BYTES: Final = 128 * MIB
"""Default limit for all clients together; it fits a machine with 1 GB."""


class ByteQuota:
    """Bytes held for each client. Thread-safe.

    One client may hold as much as it leaves for others, up to `max_client`: one greedy client leaves half of the total,
    two leave a third, and a new client always finds room. The gateway's own data does not count.
    """

    def __init__(self, max_client: int = MAX_CLIENT_BYTES, max_total: int = MAX_TOTAL_BYTES) -> None:
        self.max_client = max_client
        self.max_total = max_total
        self._share = FairShare(max_total)
        self._lock = threading.Lock()

    @property
    def total(self) -> int:
        """Bytes held for all clients."""
        return self._share.total

    def held(self, client: str) -> int:
        """Bytes held for one client."""
        return self._share.held(client)

    def heaviest(self) -> tuple[str, int]:
        """Return the client that holds most, and its bytes; the gateway and 0 if no client holds any."""
        with self._lock:
            return self._share.heaviest()

    def charge(self, client: str, size: int = 0) -> Charge:
        """Open a charge for a client. Raises `TooManyRequests` if the client or all clients together hold too much."""
        charge = Charge(self, client)
        charge.set(size)
        return charge

    def add(self, client: str, size: int, *, check: bool = True) -> None:
        """Charge a client with more bytes, or with less if `size` is negative.

        Raises `TooManyRequests` and changes nothing if a limit is exceeded. `check=False`: the bytes are held already,
        so they count even beyond a limit.
        """
        if client == GATEWAY:
            return
        with self._lock:
            if size > 0 and check:
                self._check(client, size)
            self._share.add(client, size)

    def _check(self, client: str, size: int) -> None:
        share, before = self._share, self._share.held(client)
        held = before + size
        if held > self.max_client:
            raise TooManyRequests(
                f"The gateway would hold {held} bytes for this client (requests, subscriptions and their results, "
                f"unread and missed notifications); the limit is {self.max_client} bytes (limits.max_client_bytes). "
                "Wait for answers, read faster, or unsubscribe"
            )
        if size > share.room(client):
            raise TooManyRequests(
                f"The gateway holds {share.total} bytes for all clients, of {share.limit} bytes "
                f"(limits.max_total_bytes), {before} of them for this client, which may have as much as it leaves "
                "to others. Try again later, read faster, or unsubscribe",
                retry_after=1,
            )


class Charge:
    """Bytes held for a client on one purpose. The size may change until the charge is released."""

    __slots__ = ("_client", "_quota", "_size")

    def __init__(self, quota: ByteQuota, client: str) -> None:
        self._quota = quota
        self._client = client
        self._size = 0

    @property
    def size(self) -> int:
        """Number of charged bytes."""
        return self._size

    @property
    def client(self) -> str:
        """Client that is charged."""
        return self._client

    def set(self, size: int, *, check: bool = True) -> None:
        """Change the size. Raises `TooManyRequests` if it would grow too much; the size then stays as it was."""
        if size != self._size:
            self._quota.add(self._client, size - self._size, check=check)
            self._size = size

    def move(self, client: str, *, check: bool = True) -> None:
        """Charge another client instead. Raises `TooManyRequests` if that one holds too much; nothing changes then."""
        # The new client first: if it refuses, the old one still has the charge.
        self._quota.add(client, self._size, check=check)
        self._quota.add(self._client, -self._size)
        self._client = client

    def release(self) -> None:
        """Release the bytes. Idempotent."""
        self.set(0)
