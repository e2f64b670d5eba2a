"""One query on a thread of its own. Its Spark jobs have a tag, so that they can be cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import traceback
import uuid
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError

from spark_offload.errors import QueryCancelled
from spark_offload.sparql_endpoint.output import QueryFailure, ResultOutput

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_AGAIN: Final = 0.5
"""Seconds between two requests to cancel the jobs of a query, which may begin others meanwhile."""


class QueryRun:
    """A running query."""

    def __init__(
        self,
        spark: SparkSession,
        output: ResultOutput,
        write: Callable[[ResultOutput], None],
        explain: Callable[[BaseException], QueryFailure],
    ) -> None:
        """`write` evaluates the query and writes its result, `explain` describes an error; both in the thread."""
        self._spark = spark
        self._output = output
        self._write = write
        self._explain = explain
        self._tag = f"edge-history-{uuid.uuid4()}"

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
            # The session may have ended.
            with contextlib.suppress(Py4JError, OSError):
                await asyncio.to_thread(self._spark.sparkContext.cancelJobsWithTag, self._tag)
            await asyncio.wait((self._ended,), timeout=_AGAIN)

    def _run(self) -> None:
        # The event loop may have ended, too.
        with contextlib.suppress(QueryCancelled, RuntimeError):
            self._output.end(self._failure())

    def _failure(self) -> QueryFailure | None:
        """Write the result. Returns the failure that ended it."""
        context = self._spark.sparkContext
        try:
            context.addJobTag(self._tag)
            context.setInterruptOnCancel(True)  # tasks that wait end at once, too
            # The pools of Spark's fair scheduler share its slots. The number of threads limits that of pools.
            context.setLocalProperty("spark.scheduler.pool", threading.current_thread().name)
            self._output.check()
            self._write(self._output)
            self._output.deliver()
        except BaseException as error:  # noqa: BLE001  the event loop reports it
            # Objects of pyoxigraph in these frames must end in this thread.
            traceback.clear_frames(error.__traceback__)
            self._output.check()
            return self._explain(error)
        finally:
            with contextlib.suppress(Py4JError, OSError):
                context.removeJobTag(self._tag)
        return None
