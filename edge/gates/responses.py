"""Responses of one session: sent, counted, and bounded together with the pending requests.

Requests are passed to the engine as they arrive, so pipelined requests do not cost a round trip each. Responses and
notifications of the engine arrive through one dispatcher, so the client receives them in engine order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from edge.gates.outgoing import ClientConnection, Outgoing
from edge.gates.rate_limit import outgoing
from edge.gates.refusals import log_refusal
from edge.gates.sessions import Sessions
from edge.protocol.errors import EdgeError


class Responses:
    """Responses of one session. All methods are called on the event loop; only `room` waits."""

    def __init__(
        self, shared: Sessions, connection: ClientConnection, peer: str, on_overflow: Callable[[], None]
    ) -> None:
        """`peer`: origin of the connection. `on_overflow`: see `Outgoing`."""
        self.shared = shared
        self.peer = peer
        limits = shared.limits
        self.outgoing = Outgoing(
            connection,
            limits.max_pending_answers,
            limits.max_unmerged,
            on_overflow,
            shared.merged.inc,
            self._go_on,
            merge_after=limits.merge_after,
            kept=shared.resume_registry.max_sent,
            charge=shared.rate_limit.bytes.charge(outgoing(peer)),
        )
        self._closed = False
        self._pending = 0
        self._queries = 0
        """Number of queries that are being evaluated."""
        self._held: deque[Callable[[], None]] = deque()
        """Functions that start the waiting queries."""
        self._room = asyncio.Event()

    def refuse(self, error: EdgeError, primitive: str, started: float) -> None:
        """Send an error, and count it."""
        log_refusal(error, self.shared.gate, self.peer, primitive)
        self.outgoing.send(error.to_json())
        self.shared.answered(primitive, error.status_code, started)

    def begun(self) -> None:
        """Count a request that the engine has accepted."""
        self._pending += 1

    def done(self) -> None:
        """Count a request that the engine has answered."""
        self._pending -= 1
        self._room.set()

    def evaluate(self, begin: Callable[[], None]) -> None:
        """Start a query as soon as there is room for its result next to those of running
        queries and waiting answers.
        """
        self.begun()
        self._held.append(begin)
        self._go_on()

    def evaluated(self) -> None:
        """Count a finished query, whose answer is sent or waits."""
        self._queries -= 1
        self.done()
        self._go_on()

    async def room(self) -> None:
        """Wait until the session accepts another message.

        It does not while too many of its requests are pending, or too many answers or bytes wait for a client that
        does not read.
        """
        limits = self.shared.limits
        while not self._closed:
            answers, size = self.outgoing.waiting
            if max(self._pending, answers) < limits.max_pending_requests and size < limits.max_waiting:
                return
            self._room.clear()
            await self._room.wait()

    def close(self) -> None:
        """Discard the waiting queries and messages, and stop sending."""
        self._closed = True
        self._held.clear()
        self.outgoing.close()

    def _go_on(self) -> None:
        """Start waiting queries for which there is room now."""
        limits = self.shared.limits
        if self.outgoing.gone:
            self._held.clear()
        while self._held and self._queries * limits.max_result + self.outgoing.waiting[1] < limits.max_waiting:
            self._queries += 1
            self._held.popleft()()
        self._room.set()
