"""Work of the writer for clients: run updates, schedule delayed updates, and run the due ones.

Executing work changes memory only. Then it is committed together with other work, or all of it is undone. After that
the clients get their answers.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any, Generic, TypeVar

from edge.engine.admission.fair_share import GATEWAY
from edge.engine.engine import Engine
from edge.engine.executed import Executed
from edge.engine.faults import contained, without_frames
from edge.engine.journal.journal import JournalEntry
from edge.engine.requests import UpdateOutcome, UpdateRequest
from edge.engine.scheduling.compile_queue import LONG_TEXT, CompileQueue
from edge.engine.store.changes import NO_CHANGE
from edge.engine.timers.timer_table import PendingTimer, TimerRequest
from edge.engine.timers.timers import Timers
from edge.engine.updates.prepared_update import PreparedUpdate
from edge.engine.updates.update_attempt import LongUpdate, UpdateAttempt
from edge.protocol.access import Access, Priority
from edge.protocol.due_time import When
from edge.protocol.errors import EdgeError, NotReady, StorageFailed
from edge.protocol.timers import TimerConfirmation

T = TypeVar("T")

Rights = Callable[[Access], Access]
"""Maps the permissions that a client had at scheduling to the current ones. Raises `EdgeError` if it has none left."""

_log = logging.getLogger(__name__)

_TIMERS_OF = "\0timers of "
"""Prefix of a client's registration: its delayed updates take turns like a separate client."""


class LongText(Exception):
    """Another thread compiles the text of work. The work must be executed again afterwards."""

    def __init__(self, compiled: Future[Any]) -> None:
        super().__init__()
        self.compiled = compiled


class Work(ABC):
    """Work that can share a commit with other work."""

    updates = 1
    """Number of updates that count towards the limit of the queue."""
    source = GATEWAY
    """The client."""
    priority: Priority = "normal"
    executed: Sequence[Executed] = ()
    """Changes of the graph."""
    receipt = b""
    """Receipt that is stored with the changes."""
    queued_at = 0
    """Time at which it joined the queue, in microseconds of `Clock.steady`."""

    def __init__(self) -> None:
        self.attempt = UpdateAttempt()

    def prepared(self) -> Sequence[PreparedUpdate]:
        """Return its updates, if it raised `LongUpdate`."""
        return ()

    @property
    def staged(self) -> bool:
        """Whether its change is staged in pieces. The work and its commit then run separately from other work."""
        return self.attempt.staged is not None

    @property
    def ready(self) -> bool:
        """Whether it can be executed without waiting for another thread."""
        return True

    def when_ready(self, action: Callable[[], None]) -> None:
        """Call `action`, on any thread, once the work is ready."""
        action()

    @abstractmethod
    def execute(self, now: int) -> None:
        """Execute the work in memory. `now`: microseconds since 1970. If it raises, nothing has changed.

        Raises `LongUpdate` if it must be evaluated outside of the writer (`update_attempt`), and then executed again.
        """

    @abstractmethod
    def done(self) -> None:
        """Answer the client after the commit."""

    @abstractmethod
    def failed(self, error: Exception) -> None:
        """Answer the client with an error: the work was not executed, or was undone."""


class _Compiled(Generic[T]):
    """Work whose text another thread may compile. `T`: the compiled text."""

    _compiled: Future[T] | None = None
    """None: the text is compiled already, or when the work begins."""

    @property
    def ready(self) -> bool:
        """See `Work`."""
        return self._compiled is None or self._compiled.done()

    def when_ready(self, action: Callable[[], None]) -> None:
        """See `Work`."""
        if self._compiled is None:
            action()
        else:
            self._compiled.add_done_callback(lambda _: action())


class Updates(_Compiled[Sequence[PreparedUpdate]], Work):
    """Updates of one request."""

    def __init__(self, engine: Engine, requests: Sequence[UpdateRequest]) -> None:
        """`requests` belong to one client. Call `compile` or `compiled` before the work enters the queue."""
        super().__init__()
        self.updates = len(requests)
        if requests:
            self.source, self.priority = requests[0].source, requests[0].access.priority
        self.future: Future[list[UpdateOutcome]] = _begun()
        self._engine = engine
        self._prepared: Sequence[PreparedUpdate] = ()

    def compiled(self, updates: Sequence[PreparedUpdate]) -> None:
        """Set the compiled updates."""
        self._prepared = updates

    def compile(self) -> Future[Sequence[PreparedUpdate]]:
        """Return a future for the compiled updates. Another thread compiles long texts while the work waits."""
        self._compiled = Future()
        return self._compiled

    def execute(self, now: int) -> None:
        """Run them, all or none."""
        self.executed = self._engine.execute(self.prepared(), now, self.attempt)

    def prepared(self) -> Sequence[PreparedUpdate]:
        """See `Work`."""
        return self._prepared if self._compiled is None else self._compiled.result()

    def done(self) -> None:
        """Answer with the outcomes."""
        self.future.set_result([step.outcome for step in self.executed])

    def failed(self, error: Exception) -> None:
        """Answer with the error."""
        fail(self.future, error)


class Write(Work):
    """Updates of the gateway itself, whose sender is called instead of a future."""

    def __init__(
        self,
        engine: Engine,
        prepared: Sequence[PreparedUpdate],
        receipt: bytes,
        done: Callable[[Exception | None], None],
    ) -> None:
        super().__init__()
        self.updates = len(prepared)
        self.receipt = receipt
        self._engine = engine
        self._prepared = prepared
        self._done = done

    def execute(self, now: int) -> None:
        """Run them, all or none."""
        self.executed = self._engine.execute(self._prepared, now, self.attempt)

    def prepared(self) -> Sequence[PreparedUpdate]:
        """See `Work`."""
        return self._prepared

    def done(self) -> None:
        """Report the commit."""
        self._done(None)

    def failed(self, error: Exception) -> None:
        """Report the error."""
        self._done(error)


class Schedule(_Compiled[Sequence[PreparedUpdate]], Work):
    """An update to be run later."""

    def __init__(
        self, timers: Timers, request: UpdateRequest, when: When, name: str, checked: Future[Sequence[PreparedUpdate]]
    ) -> None:
        """A delay begins now. `checked`: long texts are compiled as a syntax check while the work waits."""
        super().__init__()
        self._checked = self._compiled = checked
        self.source, self.priority = request.source, request.access.priority
        self.future: Future[TimerConfirmation] = _begun()
        self._timers = timers
        self._request = request
        self._when = when
        self._name = name
        self._arrival = timers.arrival()
        self._scheduled: TimerConfirmation

    def execute(self, now: int) -> None:
        """Store the delayed update."""
        self._checked.result()
        self._scheduled = self._timers.schedule(self._request, self._when, self._name, self._arrival)

    def done(self) -> None:
        """Answer with its id and time."""
        self.future.set_result(self._scheduled)

    def failed(self, error: Exception) -> None:
        """Answer with the error."""
        fail(self.future, error)


class Cancel(Work):
    """Cancellation of a delayed update."""

    def __init__(self, timers: Timers, name: str, access: Access, client: str | None) -> None:
        super().__init__()
        self.future: Future[None] = _begun()
        self.source, self.priority = access.client, access.priority
        self._timers = timers
        self._asked = name, access, client

    def execute(self, now: int) -> None:
        """Remove the delayed update."""
        self._timers.cancel(*self._asked)

    def done(self) -> None:
        """Answer that it will not run."""
        self.future.set_result(None)

    def failed(self, error: Exception) -> None:
        """Answer with the error."""
        fail(self.future, error)


class RunTimer(Work):
    """A due delayed update. Its removal is committed together with its changes."""

    updates = 0

    def __init__(
        self, engine: Engine, timers: Timers, rights: Rights, waiting: PendingTimer, compiler: CompileQueue | None
    ) -> None:
        """`compiler`: compiles long texts; None: they are compiled on the writer thread."""
        super().__init__()
        self._compiler = compiler
        self._compiled: Future[Sequence[PreparedUpdate]] | None = None
        """Future of a long text."""
        self._begun = False
        self._engine = engine
        self._timers = timers
        self._rights = rights
        self._waiting = waiting
        self._prepared: Sequence[PreparedUpdate] = ()
        self.source = f"{_TIMERS_OF}{waiting.owner}"

    def execute(self, now: int) -> None:
        """Run it, unless it was cancelled or replaced, or is too late. An error becomes its outcome."""
        timers, waiting = self._timers, self._waiting
        if not self._begun:
            self._begun = True
            timers.begin(waiting)
        if not timers.is_waiting(waiting):
            self._engine.abandon(self.attempt)
            return
        given = timers.given([waiting])[waiting.number]
        if timers.too_late(waiting):
            self._engine.abandon(self.attempt)
            timers.finish(waiting, given, "missed")
            return
        try:
            self.executed = self._run(given, now)
        except (
            StorageFailed,
            NotReady,
            LongUpdate,
            LongText,
        ):  # the permissions are unknown or the gateway stops: the update stays due
            raise
        except EdgeError as error:
            timers.finish(waiting, given, "failed", error=error)
        except BaseException as error:  # noqa: BLE001  logged here, and must not stop other work
            _log.error("timer.fault", extra={"id": waiting.id}, exc_info=contained(error))
            timers.finish(waiting, given, "failed", error=EdgeError("Internal error: see the gateway's log"))
        else:
            outcome = self.executed[0].outcome
            changes = bool(self.executed[0].changes or self.executed[0].entries)
            timers.finish(waiting, given, "done" if changes else "unchanged", (outcome.added, outcome.removed))

    def done(self) -> None:
        """Release its slot. No client waits for an answer; the outcome can be requested."""
        self._timers.end()

    def failed(self, error: Exception) -> None:
        """Return it to the due ones."""
        self._timers.give_back(self._waiting)

    def prepared(self) -> Sequence[PreparedUpdate]:
        """See `Work`."""
        return self._prepared

    def _run(self, given: TimerRequest, now: int) -> Sequence[Executed]:
        if not self._prepared:
            access = given.request.access
            request = replace(given.request, access=self._rights(access)) if access.registration else given.request
            self._prepared = self._compile(request)
        return self._engine.execute(self._prepared, now, self.attempt)

    def _compile(self, request: UpdateRequest) -> Sequence[PreparedUpdate]:
        """Compile the update. Raises `LongText` the first time if another thread compiles it."""
        if self._compiled is not None:
            compiled, self._compiled = self._compiled, None
            return compiled.result()
        if self._compiler is None or len(request.sparql) <= LONG_TEXT:
            return [self._engine.prepare(request)]
        future: Future[Sequence[PreparedUpdate]] = Future()
        compile_ = partial(settle, future, lambda: [self._engine.prepare(request)], log=False)
        self._compiler.put(self.source, self.priority, compile_, future)
        self._compiled = future
        raise LongText(future)


class Task(Generic[T]):
    """Other work for the writer thread, which is not committed."""

    updates = 0
    queued_at = 0

    def __init__(self, action: Callable[[], T], source: str = GATEWAY, priority: Priority = "normal") -> None:
        self.future: Future[T] = Future()
        self.source = source
        self.priority = priority
        self._action = action

    @property
    def ready(self) -> bool:
        """See `Work`."""
        return True

    def run(self) -> None:
        """Run it, unless the caller has cancelled it."""
        if self.future.set_running_or_notify_cancel():
            settle(self.future, self._action)

    def when_ready(self, action: Callable[[], None]) -> None:
        """See `Work`."""
        action()

    def failed(self, error: Exception) -> None:
        """Answer with the error."""
        if self.future.set_running_or_notify_cancel():
            fail(self.future, error)


class DeferredTask(_Compiled[Any], Task[T]):
    """A task whose outcome comes later. Its action gets a function to call with the outcome or an error."""

    def __init__(
        self,
        action: Callable[[Callable[[T | Exception], None]], None],
        source: str,
        priority: Priority,
        compiled: Future[Any] | None = None,
    ) -> None:
        """`compiled`: future that must be done first, or None."""
        super().__init__(_never, source, priority)
        self._begin = action
        self._compiled = compiled

    def run(self) -> None:
        """Begin, unless the caller has cancelled it."""
        if self.future.set_running_or_notify_cancel():
            try:
                self._begin(self._settle)
            except Exception as error:  # noqa: BLE001  a bug must not stop the writer; the caller gets the error
                fail(self.future, error)

    def _settle(self, outcome: T | Exception) -> None:
        if isinstance(outcome, Exception):
            fail(self.future, outcome)
        else:
            self.future.set_result(outcome)


def _never() -> Any:  # noqa: ANN401  a `DeferredTask` has a different action
    raise NotImplementedError


def entries(work: Work, now: int) -> list[JournalEntry]:
    """Return the journal entries of work: its changes, and the receipt with the last of them."""
    steps = [step for step in work.executed if step.changes]
    if not steps:
        return [JournalEntry(now, NO_CHANGE, work.receipt)] if work.receipt else []
    receipts = [b""] * (len(steps) - 1) + [work.receipt]
    return [
        JournalEntry(now, step.changes, receipt, step.encoded) for step, receipt in zip(steps, receipts, strict=True)
    ]


def settle(future: Future[T], action: Callable[[], T], *, log: bool = True) -> None:
    """Settle a future with the result of `action`. `log`: log a bug here, and not in the owner of the future."""
    try:
        future.set_result(action())
    except BaseException as error:  # noqa: BLE001  a bug must not stop the writer; the caller gets the error
        if log:
            fail(future, contained(error))
        else:
            future.set_exception(without_frames(contained(error)))


def fail(future: Future[Any], error: Exception) -> None:
    """Settle a future with an error, on another thread."""
    if not isinstance(error, EdgeError):
        _log.exception("request.failed")
    future.set_exception(without_frames(error))


def _begun() -> Future[Any]:
    """Return a future that cannot be cancelled, because accepted work is always carried out."""
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
    return future
