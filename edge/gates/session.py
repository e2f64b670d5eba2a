"""Session of one client, independent of the transport: parses messages, manages subscriptions, sends responses."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable

from edge.gates.engine_interface import SessionEngine
from edge.gates.guard import Guard, permitted
from edge.gates.loop_dispatcher import LoopDispatcher
from edge.gates.outgoing import Connection, Outgoing
from edge.gates.pending_requests import ask
from edge.gates.rate_limit import RateLimit, client_of, outgoing
from edge.gates.resume import ResumeRegistry, suspended
from edge.gates.settings import LimitSettings, SessionLimits
from edge.gates.subscriptions import Subscribe, Unsubscribe
from edge.metrics import Metrics
from edge.protocol.access import Access
from edge.protocol.errors import EdgeError, InvalidRequest, NotFound, SubscriptionFailed, TooLarge, TooManyRequests
from edge.protocol.messages import MAX_ALIAS, SubscribeMessage, UnsubscribeMessage, parse_message


class Sessions:
    """Shared state of a gate's sessions: engine, dispatcher for engine threads, limits and metrics."""

    def __init__(
        self,
        engine: SessionEngine,
        bridge: LoopDispatcher,
        metrics: Metrics,
        *,
        guard: Guard,
        gate: str,
        limits: SessionLimits,
        rate_limit: RateLimit | None = None,
        resume_registry: ResumeRegistry | None = None,
        section: str = "",
        another: str = "open another connection",
        max_alias: int = MAX_ALIAS,
    ) -> None:
        """`rate_limit`: shared by all gates; None: one with default limits.

        `resume_registry`: holds subscriptions of lost connections; None: they end. `section`: the section of the
        settings with the limits, by default named like the gate. `another`: how a client gets one more session, for
        messages. `max_alias`: maximum length of an alias in characters.
        """
        self.engine = engine
        self.bridge = bridge
        self.metrics = metrics
        self.guard = guard
        self.gate = gate
        self.section = section or gate
        self.another = another
        self.max_alias = max_alias
        self.limits = limits
        self.rate_limit = rate_limit or RateLimit(LimitSettings())
        self.resume_registry = resume_registry or ResumeRegistry(engine, guard, metrics.parked_subscriptions)
        self.notifications = metrics.notifications.labels(gate)
        self.merged = metrics.merged_notifications.labels(gate)
        self.active = metrics.subscriptions.labels(gate)

    def answered(self, primitive: str, status: int, started: float) -> None:
        """Count the response to a request that arrived at `started` (`time.perf_counter`, seconds)."""
        self.metrics.answered(self.gate, primitive, status, time.perf_counter() - started)


class Session:
    """Session of one client. All methods are called on the event loop; only `room` waits.

    Requests are passed to the engine as they arrive, so pipelined requests do not cost a round trip each. Responses
    and notifications of the engine arrive through one dispatcher, so the client receives them in engine order.
    """

    def __init__(self, shared: Sessions, connection: Connection, peer: str) -> None:
        """`peer`: origin of the connection; it identifies the client until authentication (`rate_limit`)."""
        self.shared = shared
        self.peer = peer
        limits = shared.limits
        self.outgoing = Outgoing(
            connection,
            limits.max_pending_answers,
            limits.max_unmerged,
            self._overflow,
            shared.merged.inc,
            self._go_on,
            merge_after=limits.merge_after,
            kept=shared.resume_registry.max_sent,
            charge=shared.rate_limit.bytes.charge(outgoing(peer)),
        )
        self.subscriptions: dict[str, Subscribe] = {}
        self.closed = False
        self.authorized = False
        """Whether an authorized message has arrived."""
        self._opening: set[Subscribe] = set()
        self._pending = 0
        self._queries = 0
        """Number of queries that are being evaluated."""
        self._held: deque[Callable[[], None]] = deque()
        """Functions that start the waiting queries."""
        self._room = asyncio.Event()

    def receive(self, message: str | bytes) -> None:
        """Process a message of the client. Every problem with it is answered with an error."""
        started = time.perf_counter()
        primitive, counted = "message", False
        try:
            if isinstance(message, bytes):
                raise InvalidRequest("Binary messages are not understood: send JSON as text")
            if _size(message) > self.shared.limits.max_message:
                limit = f"{self.shared.limits.max_message} bytes ({self.shared.section}.max_message)"
                raise TooLarge(f"The message is longer than {limit}; send a shorter one")
            request = parse_message(message, self.shared.max_alias)
            primitive = request.kind
            access = permitted(self.shared.guard, request)
            counted = self.authorized = True
            self._count(client_of(access, self.peer), request.alias)
            if isinstance(request, SubscribeMessage):
                self._subscribe(request, access, started)
            elif isinstance(request, UnsubscribeMessage):
                self._unsubscribe(request, access, started)
            else:
                ask(self, request, access, started)
        except EdgeError as error:
            self.refuse(error if counted else self._counted(error), primitive, started)

    async def room(self) -> None:
        """Wait until the session accepts another message.

        It does not while too many of its requests are pending, or too many answers or bytes wait for a client that
        does not read.
        """
        limits = self.shared.limits
        while not self.closed:
            answers, size = self.outgoing.waiting
            if max(self._pending, answers) < limits.max_pending_requests and size < limits.max_waiting:
                return
            self._room.clear()
            await self._room.wait()

    def close(self, *, lost: bool = False) -> None:
        """End the session because the client is gone, with all its subscriptions and those that are about to start.

        `lost`: the client did not close the connection properly, so it may resume its subscriptions.
        """
        if self.closed:
            return
        self.closed = True
        unread = self.outgoing.unread() if lost else {}
        self._held.clear()
        self.outgoing.close()
        for call in self._opening:
            call.drop()
        for spuid, call in list(self.subscriptions.items()):
            self.forget(spuid)
            if lost and call.resumable and not call.ending:
                self.shared.resume_registry.park(call, unread.get(spuid, []))
            else:
                call.release()
                self.end(spuid)

    def refuse(self, error: EdgeError, primitive: str, started: float) -> None:
        """Send an error, and count it."""
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

    def keep(self, spuid: str, call: Subscribe) -> None:
        """Register a subscription that has started or was resumed."""
        self._opening.discard(call)
        self.subscriptions[spuid] = call
        call.watch()
        self.shared.active.inc()
        if call.resumable:
            self.outgoing.remember(spuid)
            self.shared.resume_registry.note(call)

    def forget(self, spuid: str) -> Subscribe | None:
        """Remove a subscription that has ended for the client."""
        call = self.subscriptions.pop(spuid, None)
        if call is not None:
            call.unwatch()
            self.shared.active.dec()
            self.shared.rate_limit.unsubscribe(call.who)
            if call.resumable:
                self.outgoing.forget(spuid)
                self.shared.resume_registry.forget(call)
        return call

    def end(self, spuid: str) -> None:
        """End a subscription in the engine that has no client any more."""
        with contextlib.suppress(EdgeError):  # the client is gone, and a stopping engine ends all subscriptions itself
            self.shared.engine.unsubscribe(spuid)

    def opened(self, call: Subscribe) -> None:
        """Count a subscribe request that was answered."""
        if call in self._opening:
            self._opening.discard(call)
            self.shared.rate_limit.unsubscribe(call.who)

    def _subscribe(self, request: SubscribeMessage, access: Access, started: float) -> None:
        call = Subscribe(self, request, access, started)
        try:
            self._begin(call)
        except EdgeError:
            call.release()
            raise

    def _begin(self, call: Subscribe) -> None:
        request = call.request
        if request.spuid is not None:
            self._park_living(request.spuid, request.sequence, call)
        limit = self.shared.limits.max_subscriptions
        if len(self.subscriptions) + len(self._opening) >= limit:
            raise TooManyRequests(
                f"This connection has {limit} subscriptions, which is the most it may have "
                f"({self.shared.section}.max_subscriptions); unsubscribe some or {self.shared.another}",
                alias=request.alias,
            )
        try:
            self.shared.rate_limit.subscribe(call.who)
        except TooManyRequests as error:
            raise error.with_alias(request.alias) from None
        self._opening.add(call)
        if request.spuid is not None and self._resume(call):
            return
        try:
            call.start()
        except EdgeError:
            self.opened(call)
            raise

    def _park_living(self, spuid: str, sequence: int | None, again: Subscribe) -> None:
        """Suspend a subscription that is resumed here while its old connection still seems alive.

        Not if it cannot be resumed from this sequence number: then the old connection may well be alive.
        """
        living = self.shared.resume_registry.living(spuid, again.query)
        if living is not None and sequence is not None and living.session.told_since(living, sequence):
            living.session.hand_over(living, self)

    def _resume(self, again: Subscribe) -> bool:
        """Resume a suspended subscription. False: it has ended, its query differs, or changes since then are not
        available.
        """
        request, resume_registry = again.request, self.shared.resume_registry
        assert request.spuid is not None  # noqa: S101
        assert request.sequence is not None  # noqa: S101
        parked = resume_registry.claim(request.spuid, again.query)
        if parked is None:
            return False
        missed = parked.since(again.alias, request.sequence)
        if missed is None:
            self.end(parked.spuid)
            return False
        again.go_on(parked, missed)
        return True

    def told_since(self, call: Subscribe, sequence: int) -> bool:
        """Whether a client that has received everything up to `sequence` can get the changes since then."""
        return suspended(call, self.outgoing.unread().get(call.spuid, [])).since(None, sequence) is not None

    def hand_over(self, call: Subscribe, heir: Session) -> None:
        """Suspend a subscription that is resumed on another connection: this connection is probably lost."""
        unread = self.outgoing.unread().get(call.spuid, [])
        self.outgoing.withdraw(call.spuid)
        self.forget(call.spuid)
        self.shared.resume_registry.park(call, unread)
        if heir is not self:
            reason = "The subscription goes on on another connection, which has resumed it"
            self.refuse(SubscriptionFailed(reason, alias=call.alias, spuid=call.spuid), "notify", time.perf_counter())

    def _unsubscribe(self, request: UnsubscribeMessage, access: Access, started: float) -> None:
        call = self.subscriptions.get(request.spuid)
        if call is None or call.ending or call.access.client != access.client:
            raise NotFound(
                f'This connection has no subscription "{request.spuid}"; give the spuid of its notifications, on the '
                "connection on which it was subscribed",
                alias=request.alias,
                spuid=request.spuid,
            )
        Unsubscribe(self, call, request, started).start()

    def _count(self, who: str, alias: str | None) -> None:
        """Count a request. Raises `TooManyRequests`."""
        try:
            self.shared.rate_limit.request(who, time.monotonic())
        except TooManyRequests as error:
            raise error.with_alias(alias) from None

    def _counted(self, wrong: EdgeError) -> EdgeError:
        """Count an invalid request too. Returns the error to send."""
        try:
            self._count(self.peer, wrong.alias)
        except TooManyRequests as error:
            return error
        return wrong

    def _go_on(self) -> None:
        """Start waiting queries for which there is room now."""
        limits = self.shared.limits
        if self.outgoing.gone:
            self._held.clear()
        while self._held and self._queries * limits.max_result + self.outgoing.waiting[1] < limits.max_waiting:
            self._queries += 1
            self._held.popleft()()
        self._room.set()

    def _overflow(self) -> None:
        self.shared.metrics.slow_clients.labels(self.shared.gate).inc()
        self.close(lost=True)


def _size(text: str) -> int:
    """Return the length of the text in bytes of UTF-8."""
    return len(text) if text.isascii() else len(text.encode())
