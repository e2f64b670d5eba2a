"""The newest version of the table, whose statistics all queries share until the next commit."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

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
        self._newest: tuple[int, History] | None = None

    def newest(self) -> History:
        """Return the history at its newest version. Raises `TableRefused`."""
        version = history(self._spark, self._path, 1)[0]["version"]
        with self._lock:
            if self._newest is None or self._newest[0] < version:
                self._newest = version, History(self._spark, self._path, version, live=self._live)
            return self._newest[1]
