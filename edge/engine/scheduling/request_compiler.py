"""Compilation of the texts of requests: short ones on the caller's thread, long ones on those of the compile queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Final, TypeVar

from edge.engine.engine import Engine
from edge.engine.requests import QueryRequest, UpdateRequest
from edge.engine.scheduling.compile_queue import LONG_TEXT, CompileQueue
from edge.engine.scheduling.work import DeferredTask, Schedule, Updates, settle
from edge.engine.subscriptions.spu_manager import PreparedQuery
from edge.engine.updates.prepared_update import PreparedUpdate
from edge.protocol.errors import EdgeError

T = TypeVar("T")

_LONG_UPDATE: Final = 32_768
"""Characters from which an update is compiled on a separate thread, so that the caller's event loop continues."""


class RequestCompiler:
    """Compiles updates and subscribed queries before the writer takes them from its queue."""

    def __init__(self, engine: Engine, queue: CompileQueue, threaded: Callable[[], bool]) -> None:
        """`threaded`: whether the writer runs on a thread."""
        self._engine = engine
        self._queue = queue
        self._threaded = threaded

    def prepare(self, requests: Sequence[UpdateRequest]) -> Sequence[PreparedUpdate]:
        """Compile updates on this thread. Raises `ParsingFailed`, `Forbidden`, `UpdateFailed`."""
        return [self._engine.prepare(request) for request in requests]

    def compile_updates(self, work: Updates, requests: Sequence[UpdateRequest]) -> None:
        """Compile the updates of a request. Raises `EdgeError`."""
        if _length(requests) > _LONG_UPDATE:
            self._compile_later(work, work.compile(), lambda: self.prepare(requests))
            return
        updates = self.prepare(requests)
        # Filling the mirror takes long, so the writer thread must not do it.
        if self._engine.must_fill(updates) and self._threaded():
            self._compile_later(work, work.compile(), lambda: updates)
        else:
            work.compiled(updates)

    def compile_scheduled(
        self,
        work: Schedule,
        request: UpdateRequest,
        checked: Future[Sequence[PreparedUpdate]],
        check: Callable[[], Sequence[PreparedUpdate]],
    ) -> None:
        """Compile a delayed update by `check`, with `checked` as its outcome. Raises `EdgeError`."""
        if len(request.sparql) > _LONG_UPDATE:
            self._compile_later(work, checked, check)
        else:
            checked.set_result(check())

    def task(
        self, query: QueryRequest, action: Callable[[Callable[[T | Exception], None], PreparedQuery], None]
    ) -> DeferredTask[T]:
        """Return a task that compiles a query and uses it on the writer thread. It has failed if its future is done.

        A long text is compiled on another thread. `action` gets a function to call with its outcome.
        """

        def begin(ready: Callable[[T | Exception], None]) -> None:
            action(ready, self._engine.prepare_query(query) if compiled is None else compiled.result())

        compiled: Future[PreparedQuery] | None = Future() if len(query.sparql) > LONG_TEXT else None
        task: DeferredTask[T] = DeferredTask(begin, query.source, query.access.priority, compiled)
        if compiled is not None:
            try:
                self._queue.put(
                    query.source,
                    query.access.priority,
                    lambda: settle(compiled, lambda: self._engine.prepare_query(query), log=False),
                    compiled,
                )
            except EdgeError as error:
                task.failed(error)
        return task

    def _compile_later(
        self,
        work: Updates | Schedule,
        prepared: Future[Sequence[PreparedUpdate]],
        prepare: Callable[[], Sequence[PreparedUpdate]],
    ) -> None:
        """Prepare updates on a separate thread, while the writer executes other updates."""

        def compile_() -> Sequence[PreparedUpdate]:
            updates = prepare()
            if self._engine.must_fill(updates):
                self._engine.fill()
            return updates

        self._queue.put(work.source, work.priority, lambda: settle(prepared, compile_), work.future)


def _length(requests: Sequence[UpdateRequest]) -> int:
    """Return the characters of the texts of requests. Equal texts count once."""
    if len(requests) == 1:  # hashing a text of 6 MB takes milliseconds
        return len(requests[0].sparql)
    return sum(map(len, {request.sparql for request in requests}))
