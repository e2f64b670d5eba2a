"""The newest version of the table, whose statistics all queries share until the next commit."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException

from spark_offload.history import History
from spark_offload.positions import history
from spark_offload.table import location, open_table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import SparkSession

    from spark_offload.live import GatewayEndpoint


class HistoryVersions:
    """Histories of the newest version."""

    def __init__(self, spark: SparkSession, table: str, live: Iterable[GatewayEndpoint] = ()) -> None:
        """Open a table. Raises `TableRefused`."""
        self._spark = spark
        self._path = location(spark, table)
        open_table(spark, self._path)
        self._live = tuple(live)
        self._lock = threading.Lock()
        self._newest: tuple[tuple[int, object], History] | None = None
        """Version and time of the commit, by which another table at the same place differs, and its history."""

    def newest(self) -> History:
        """Return the history at its newest version. Raises `TableRefused`."""
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
