"""Requests over a WebSocket, from their creation to their answer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

Message = dict[str, Any]


@dataclass(slots=True, eq=False)
class PendingRequest:
    """A request that waits for its answer. The alias of the request identifies the answer."""

    number: int
    """Position in the order of creation."""
    text: str
    answer: asyncio.Future[Message]
    bound: bool
    """Whether it is valid on this connection only."""
    repeat: bool = False
    """Whether it may be sent again on the next connection although it may have arrived."""
    sent: bool = False
    """Whether it may have arrived."""
    reason: str = "the broker did not answer in time"
    """Why the answer is still missing."""

    def fail(self, error: Exception) -> None:
        """End the request with an error, unless it is answered."""
        if not self.answer.done():
            self.answer.set_exception(error)
            self.answer.exception()  # mark the exception as retrieved: the caller may have been cancelled
