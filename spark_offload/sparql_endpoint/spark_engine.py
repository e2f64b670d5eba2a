"""Queries in one session of Spark. They share the statistics of the table's newest version until the next commit."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import AnalysisException

from spark_offload import compat
from spark_offload.history import History
from spark_offload.positions import history
from spark_offload.table import location, open_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_offload.live import GatewayEndpoint


class SparkEngine:
    """Spark. The jobs of a query have a tag, so that they can be cancelled."""

    largest = 250
    """Maximum size of a query. A join of 100 patterns is planned for several seconds."""

    def __init__(self, spark: SparkSession, table: str, live: Iterable[GatewayEndpoint] = ()) -> None:
        """Open a table. Raises `TableRefused`."""
        self._spark = spark
        self._path = location(spark, table)
        open_table(spark, self._path)
        self._live = tuple(live)
        self._lock = threading.Lock()
        self._newest: tuple[tuple[int, object], History] | None = None
        """Version and time of the commit, by which another table at the same place differs, and its history."""

    def alive(self) -> bool:
        """Return whether Spark runs."""
        try:
            return not compat.is_stopped(self._spark)
        except (Py4JError, OSError):
            return False

    @contextlib.contextmanager
    def query(self, identifier: str) -> Iterator[History]:
        """Return the newest version of the history. Raises `TableRefused`."""
        context = self._spark.sparkContext
        try:
            context.addJobTag(identifier)
            context.setInterruptOnCancel(True)  # tasks that wait end at once, too
            # The pools of Spark's fair scheduler share its slots. The number of threads limits that of pools.
            context.setLocalProperty("spark.scheduler.pool", threading.current_thread().name)
            yield self.newest()
        finally:
            with contextlib.suppress(Py4JError, OSError):
                context.removeJobTag(identifier)

    def cancel(self, identifier: str) -> None:
        """End the jobs of a query."""
        # The session may have ended.
        with contextlib.suppress(Py4JError, OSError):
            self._spark.sparkContext.cancelJobsWithTag(identifier)

    def newest(self) -> History:
        """Return the newest version of the history. Raises `TableRefused`."""
        try:
            newest = history(self._spark, self._path, 1)[0]
        except (AnalysisException, Py4JJavaError):
            open_table(self._spark, self._path)  # it may have gone
            raise
        commit = newest["version"], newest["timestamp"]
        with self._lock:
            if self._newest is None or self._newest[0] != commit:
                self._newest = commit, History(self._spark, self._path, commit[0], live=self._live)
            return self._newest[1]
