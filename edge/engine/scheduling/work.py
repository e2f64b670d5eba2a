"""What the writer does for those who asked: run updates, keep delayed ones for later, run these when they are due.

Work changes memory when it is executed. Then it is committed, together with other work, or all of it is undone; then
those who asked are told.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any, Generic, TypeVar

from edge.engine.admission.slots import GATEWAY
from edge.engine.engine import Engine, Executed, PreparedUpdate
from edge.engine.faults import contained, without_frames
from edge.engine.journal.journal import JournalEntry
from edge.engine.requests import UpdateOutcome, UpdateRequest
from edge.engine.scheduling.compile_queue import LONG_TEXT, CompileQueue
from edge.engine.store.changes import NO_CHANGE
from edge.engine.timers.timer_table import PendingTimer, TimerRequest
from edge.engine.timers.timers import Timers
from edge.engine.updates.attempt import Attempt, LongUpdate
from edge.protocol.access import Access, Priority
from edge.protocol.errors import EdgeError, NotReady, StorageFailed
from edge.protocol.moments import When
from edge.protocol.timers import Scheduled

T = TypeVar("T")

Rights = Callable[[Access], Access]
"""From the rights with which an update was given to those with which it runs. Raises `EdgeError`: there are none."""

_log = logging.getLogger(__name__)

_TIMERS_OF = "\0timers of "
"""Before the registration of a client: its delayed updates take turns like a client of their own."""


class LongText(Exception):
    """The text of work is compiled on another thread. It is to be executed again when that is done."""

    def __init__(self, compiled: Future[Any]) -> None:
        super().__init__()
        self.compiled = compiled


class Work(ABC):
    """What may share a commit."""

    updates = 1
    """Updates that wait in the queue, as limits count them."""
    source = GATEWAY
    """Who asked."""
    priority: Priority = "normal"
    executed: Sequence[Executed] = ()
    """What it did to the graph."""
    receipt = b""
    """To be stored with what it did."""
    queued_at = 0
    """When it was put into the queue, in microseconds of `Clock.steady`."""

    def __init__(self) -> None:
        self.attempt = Attempt()

    def prepared(self) -> Sequence[PreparedUpdate]:
        """Its updates, where it raised `LongUpdate`."""
        return ()

    @property
    def staged(self) -> bool:
        """Whether its change is prepared in pieces: that, and its commit, are done apart from other work."""
        return self.attempt.staged is not None

    @property
    def ready(self) -> bool:
        """Whether it can be carried out without waiting for another thread."""
        return True

    def when_ready(self, action: Callable[[], None]) -> None:
        """Call something, on any thread, once it is ready."""
        action()

    @abstractmethod
    def execute(self, now: int) -> None:
        """Do it, in memory. `now` in microseconds since 1970. Whatever it raises, nothing has changed.

        Raises `LongUpdate` if it is to be evaluated outside of the writer (`attempt`), and then executed again.
        """

    @abstractmethod
    def done(self) -> None:
        """It is committed: tell who asked."""

    @abstractmethod
    def failed(self, error: Exception) -> None:
        """It is not done, or undone: tell who asked."""


class Updates(Work):
    """Updates that were given at once."""

    def __init__(
        self,
        engine: Engine,
        requests: Sequence[UpdateRequest],
        prepared: Future[Sequence[PreparedUpdate]],
        receipt: bytes,
    ) -> None:
        """`requests` are one client's. `prepared`: long texts are compiled while they wait for their turn."""
        super().__init__()
        self.updates = len(requests)
        if requests:
            self.source, self.priority = requests[0].source, requests[0].access.priority
        self.receipt = receipt
        self.future: Future[list[UpdateOutcome]] = _begun()
        self._engine = engine
        self._prepared = prepared

    @property
    def ready(self) -> bool:
        """Whether they are compiled."""
        return self._prepared.done()

    def when_ready(self, action: Callable[[], None]) -> None:
        """See `Work`."""
        self._prepared.add_done_callback(lambda _: action())

    def execute(self, now: int) -> None:
        """Run them, all or none."""
        self.executed = self._engine.execute(self._prepared.result(), now, self.attempt)

    def prepared(self) -> Sequence[PreparedUpdate]:
        """See `Work`."""
        return self._prepared.result()

    def done(self) -> None:
        """With the outcomes."""
        self.future.set_result([step.outcome for step in self.executed])

    def failed(self, error: Exception) -> None:
        """With the error."""
        fail(self.future, error)


class Schedule(Work):
    """An update to be run later."""

    def __init__(
        self, timers: Timers, request: UpdateRequest, when: When, name: str, checked: Future[Sequence[PreparedUpdate]]
    ) -> None:
        """A delay begins now. `checked`: long texts are compiled, to see that they are legal, while they wait."""
        super().__init__()
        self._checked = checked
        self.source, self.priority = request.source, request.access.priority
        self.future: Future[Scheduled] = _begun()
        self._timers = timers
        self._request = request
        self._when = when
        self._name = name
        self._arrival = timers.arrival()
        self._scheduled: Scheduled

    @property
    def ready(self) -> bool:
        """Whether its text is checked."""
        return self._checked.done()

    def when_ready(self, action: Callable[[], None]) -> None:
        """See `Work`."""
        self._checked.add_done_callback(lambda _: action())

    def execute(self, now: int) -> None:
        """Store it."""
        self._checked.result()
        self._scheduled = self._timers.schedule(self._request, self._when, self._name, self._arrival)

    def done(self) -> None:
        """With its id and time."""
        self.future.set_result(self._scheduled)

    def failed(self, error: Exception) -> None:
        """With the error."""
        fail(self.future, error)


class Cancel(Work):
    """A delayed update that is not wanted any more."""

    def __init__(self, timers: Timers, name: str, who: Access, client: str | None) -> None:
        super().__init__()
        self.future: Future[None] = _begun()
        self.source, self.priority = who.client, who.priority
        self._timers = timers
        self._asked = name, who, client

    def execute(self, now: int) -> None:
        """Take it out."""
        self._timers.cancel(*self._asked)

    def done(self) -> None:
        """It will not be run."""
        self.future.set_result(None)

    def failed(self, error: Exception) -> None:
        """With the error."""
        fail(self.future, error)


class Fire(Work):
    """A delayed update whose time has come. That it waits no more is committed with what it changes."""

    updates = 0

    def __init__(
        self, engine: Engine, timers: Timers, rights: Rights, waiting: PendingTimer, compiler: CompileQueue | None
    ) -> None:
        """`compiler`: where a long text is compiled; None: on the writer's thread."""
        super().__init__()
        self._compiler = compiler
        self._compiled: Future[Sequence[PreparedUpdate]] | None = None
        """Of a long text."""
        self._begun = False
        self._engine = engine
        self._timers = timers
        self._rights = rights
        self._waiting = waiting
        self._prepared: Sequence[PreparedUpdate] = ()
        self.source = f"{_TIMERS_OF}{waiting.owner}"

    def execute(self, now: int) -> None:
        """Run it, unless it was cancelled or replaced meanwhile, or is too late. An error is what becomes of it."""
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
        ):  # nobody knows who may do what, or the gateway stops: it waits for better times
            raise
        except EdgeError as error:
            timers.finish(waiting, given, "failed", error=error)
        except BaseException as error:  # noqa: BLE001  logged here; it must not stop the others
            _log.error("timer.fault", extra={"id": waiting.id}, exc_info=contained(error))
            timers.finish(waiting, given, "failed", error=EdgeError("Internal error: the gateway's log tells more"))
        else:
            outcome = self.executed[0].outcome
            changes = bool(self.executed[0].changes or self.executed[0].entries)
            timers.finish(waiting, given, "done" if changes else "unchanged", (outcome.added, outcome.removed))

    def done(self) -> None:
        """Nobody waits for it; who wants to know asks for its outcome."""
        self._timers.end()

    def failed(self, error: Exception) -> None:
        """It is still due."""
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
        """Raises `LongText` the first time, where that is done on another thread."""
        if self._compiled is not None:
            compiled, self._compiled = self._compiled, None
            return compiled.result()
        if self._compiler is None or len(request.sparql) <= LONG_TEXT:
            return [self._engine.prepare(request)]
        future: Future[Sequence[PreparedUpdate]] = Future()
        compile_ = partial(settle, future, lambda: [self._engine.prepare(request)], tell=False)
        self._compiler.put(self.source, self.priority, compile_, future)
        self._compiled = future
        raise LongText(future)


class Task(Generic[T]):
    """Something else for the writer thread, which is not committed."""

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
        """Do it, unless whoever asked has gone."""
        if self.future.set_running_or_notify_cancel():
            settle(self.future, self._action)

    def when_ready(self, action: Callable[[], None]) -> None:
        """See `Work`."""
        action()

    def failed(self, error: Exception) -> None:
        """It was not done."""
        if self.future.set_running_or_notify_cancel():
            fail(self.future, error)


class Begin(Task[T]):
    """A task whose outcome comes later: its action gets a function that takes the outcome, or an error."""

    def __init__(
        self,
        action: Callable[[Callable[[T | Exception], None]], None],
        source: str,
        priority: Priority,
        compiled: Future[Any] | None = None,
    ) -> None:
        """`compiled`: what has to be done first; None: nothing."""
        super().__init__(_never, source, priority)
        self._begin = action
        self._compiled = compiled

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

    def run(self) -> None:
        """Begin, unless the caller has gone."""
        if self.future.set_running_or_notify_cancel():
            try:
                self._begin(self._settle)
            except Exception as error:  # noqa: BLE001  a fault of ours must not stop the writer; the caller learns of it
                fail(self.future, error)

    def _settle(self, outcome: T | Exception) -> None:
        if isinstance(outcome, Exception):
            fail(self.future, outcome)
        else:
            self.future.set_result(outcome)


def _never() -> Any:  # noqa: ANN401 - of a `Begin`, which has another action
    raise NotImplementedError


def entries(work: Work, now: int) -> list[JournalEntry]:
    """What is to be stored of work: its changes, and the receipt with the last of them."""
    steps = [step for step in work.executed if step.changes]
    if not steps:
        return [JournalEntry(now, NO_CHANGE, work.receipt)] if work.receipt else []
    receipts = [b""] * (len(steps) - 1) + [work.receipt]
    return [
        JournalEntry(now, step.changes, receipt, step.encoded) for step, receipt in zip(steps, receipts, strict=True)
    ]


def settle(future: Future[T], action: Callable[[], T], *, tell: bool = True) -> None:
    """Do something, tell what came of it. `tell`: whether to log a fault of ours; else whoever has the future does."""
    try:
        future.set_result(action())
    except BaseException as error:  # noqa: BLE001  a fault of ours must not stop the writer; the caller learns of it
        if tell:
            fail(future, contained(error))
        else:
            future.set_exception(without_frames(contained(error)))


def fail(future: Future[Any], error: Exception) -> None:
    """Hand an error over to another thread."""
    if not isinstance(error, EdgeError):
        _log.exception("request.failed")
    future.set_exception(without_frames(error))


def _begun() -> Future[Any]:
    """A future that cannot be cancelled: what is asked for is done."""
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
    return future
