"""Requests over a WebSocket, from when they are made to when they are answered."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

Message = dict[str, Any]


@dataclass(slots=True, eq=False)
class PendingRequest:
    """A request that waits for its answer, which is found by the request's alias."""

    number: int
    """Its place in the order in which requests are made."""
    text: str
    answer: asyncio.Future[Message]
    bound: bool
    """It makes sense on this connection only."""
    repeat: bool = False
    """It may be sent again on the next one, though it may have arrived."""
    sent: bool = False
    """It may have arrived."""
    reason: str = "the broker did not answer in time"
    """Why there is no answer yet."""

    def fail(self, error: Exception) -> None:
        """End it without an answer, unless there is one."""
        if not self.answer.done():
            self.answer.set_exception(error)
            self.answer.exception()  # nobody need ask for it: whoever made the request may be gone
