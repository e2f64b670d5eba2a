"""One observer of a resource (RFC 7641): it confirms each notification before it gets the next one."""

from __future__ import annotations

from typing import Any

from aiocoap import Code, Message, Reliable
from aiocoap.pipe import Pipe

from edge.gates.coap.blocks import Blocks
from edge.gates.coap.formats import answer
from edge.gates.coap.transfers import BlockTransfer
from edge.gates.coap.transport import Endpoint

_NUMBERS = 1 << 24
"""Observe numbers have 24 bits (RFC 7641, section 3.4)."""
_DAY = 86_400
"""Max-Age of notifications in seconds. A notification reports a change, which does not become stale."""


class Notifier:
    """Socket, blocks and numbers of all observers."""

    def __init__(self, endpoint: Endpoint, blocks: Blocks, ping: float) -> None:
        """`ping`: seconds between two checks for an observer."""
        self.endpoint = endpoint
        self.blocks = blocks
        self.ping = ping
        self._number = 0

    def number(self) -> int:
        """Return the next observe number. Numbers increase over all observers, so that a new registration gets a
        larger one.
        """
        self._number = (self._number + 1) % _NUMBERS
        return self._number


class Observer:
    """One observer.

    A blockwise notification counts as accepted when its last block was requested: the acknowledgement is for the
    first.
    """

    def __init__(self, notifier: Notifier, pipe: Pipe) -> None:
        self.pipe = pipe
        self._notifier = notifier
        self._request: Message = pipe.request
        self._transfer: BlockTransfer | None = None
        """The last notification, if it is blockwise."""

    @property
    def free(self) -> bool:
        """Whether no message is in flight to the observer, and it has received the last notification completely."""
        moving = self._notifier.blocks.transfer(self._request)
        return not (
            self._notifier.endpoint.busy(self._request.remote)
            or (moving is not None and moving.moves)
            or (self._transfer is not None and not self._transfer.whole)
        )

    async def freed(self) -> bool:
        """Wait until the observer is free. False: it stopped requesting blocks, or they are not stored any more."""
        await self._notifier.endpoint.free(self._request.remote)
        moving = self._notifier.blocks.transfer(self._request)
        if moving is not None:
            await moving.end()
        return self._transfer is None or await self._transfer.end()

    def notify(self, content: dict[str, Any]) -> None:
        """Send a notification. Raises `TooManyRequests` if the client has too many blocks."""
        message = answer(self._request, content, Code.CONTENT)
        # Ordered by this number; the sequence of a subscription is in the payload.
        message.opt.observe = self._notifier.number()
        message.opt.max_age = _DAY
        message = self._notifier.blocks.first(self._request, message)
        self._transfer = None if message.opt.block2 is None else self._notifier.blocks.transfer(self._request)
        # Confirmable: a lost notification would leave a gap in the deltas (RFC 7641 allows either kind).
        message.transport_tuning = Reliable()
        self.pipe.add_response(message, is_last=False)

    def ping(self) -> None:
        """Check whether the observer is reachable."""
        # A message in flight proves reachability by itself: its acknowledgement or timeout comes anyway.
        if not self._notifier.endpoint.busy(self._request.remote):
            self._notifier.endpoint.ping(self._request.remote)

    def leave(self) -> None:
        """Forget the blocks of an observer that is gone, or does not request them."""
        if self._transfer is not None:
            self._transfer.forget()
            self._transfer = None
