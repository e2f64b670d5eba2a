"""SPARQL queries over the table of the history, answered by DuckDB without Java."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from spark_offload.compat import connect_client
from spark_offload.embedded.session import connect_mode, embedded_session
from spark_offload.embedded.table_files import open_files
from spark_offload.history import History

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spark_offload.live import GatewayEndpoint


class EmbeddedHistory(History):
    """One version of the table of observations, in a directory of this machine. By default it is the newest one.

    Do not use Spark in another thread during a call of a method: PySpark has one mode for the whole process.
    """

    engine = "DuckDB"

    def __init__(
        self,
        table: str | os.PathLike[str] | DataFrame,
        version: int | None = None,
        *,
        live: Iterable[GatewayEndpoint] = (),
        wide: bool = True,
    ) -> None:
        """Open a table, or take rows of an embedded session. Raises `MissingPart`, `TableRefused`."""
        if isinstance(table, (str, os.PathLike)):
            session = embedded_session()
            rows = open_files(session, table, version)
        else:
            session, rows = table.sparkSession, table
        super().__init__(session, rows, live=live, wide=wide)

    def sparql(self, text: str) -> DataFrame:
        """Return the solutions of a SELECT. Raises `EngineRefused`, and the errors of `History.sparql`."""
        with connect_mode():
            return self._checked(super().sparql(text))

    def ask(self, text: str) -> bool:
        """Return the answer of an ASK. Raises `EngineRefused`, and the errors of `History.ask`."""
        with connect_mode():
            return super().ask(text)

    def construct(self, text: str) -> DataFrame:
        """Return the triples of a CONSTRUCT. Raises `EngineRefused`, and the errors of `History.construct`."""
        with connect_mode():
            return self._checked(super().construct(text))

    def explain(self, text: str) -> str:
        """Describe the evaluation of a query. Raises `EngineRefused`, and the errors of `History.explain`."""
        with connect_mode():
            return super().explain(text)

    def interrupt(self) -> None:
        """End the queries of this history, from another thread; they raise `EngineRefused`."""
        connect_client(self._spark).interrupt()

    def _checked(self, frame: DataFrame) -> DataFrame:
        """Refuse functions that DuckDB lacks before the first row is read."""
        connect_client(self._spark).translate(frame)
        return frame
