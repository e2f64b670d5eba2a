"""One query on a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import traceback
import uuid
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final

from spark_offload.errors import QueryCancelled
from spark_offload.history import History
from spark_offload.sparql_endpoint.output import QueryFailure, ResultOutput
from spark_offload.sparql_endpoint.query_engine import QueryEngine

_AGAIN: Final = 0.5
"""Seconds between two requests to cancel a query, which may begin further jobs meanwhile."""


class QueryRun:
    """A running query."""

    def __init__(
        self,
        engine: QueryEngine,
        output: ResultOutput,
        write: Callable[[History, ResultOutput], None],
        explain: Callable[[BaseException], QueryFailure],
    ) -> None:
        """`write` evaluates the query and writes its result, `explain` describes an error; both in the thread."""
        self._engine = engine
        self._output = output
        self._write = write
        self._explain = explain
        self._identifier = f"edge-history-{uuid.uuid4()}"

    def start(self, threads: Executor, ended: Callable[[], None]) -> None:
        """Start the query, and call `ended` in the event loop when its thread is free again."""
        self._ended = asyncio.get_running_loop().run_in_executor(threads, self._run)
        self._ended.add_done_callback(lambda _: ended())

    async def part(self) -> bytes | QueryFailure:
        """Return the next part of the result. An empty one is the end."""
        return await self._output.part()

    async def cancel(self) -> None:
        """Cancel the query, and wait until its thread is free."""
        self._output.cancel()
        while not self._ended.done():
            await asyncio.to_thread(self._engine.cancel, self._identifier)
            await asyncio.wait((self._ended,), timeout=_AGAIN)

    def _run(self) -> None:
        # The event loop may have ended, too.
        with contextlib.suppress(QueryCancelled, RuntimeError):
            self._output.end(self._failure())

    def _failure(self) -> QueryFailure | None:
        """Write the result. Returns the failure that ended it."""
        try:
            self._output.check()
            with self._engine.query(self._identifier) as history:
                self._output.check()
                self._write(history, self._output)
            self._output.deliver()
        except BaseException as error:  # noqa: BLE001  the event loop reports it
            # Objects of pyoxigraph in these frames must end in this thread.
            traceback.clear_frames(error.__traceback__)
            self._output.check()
            return self._explain(error)
        return None
