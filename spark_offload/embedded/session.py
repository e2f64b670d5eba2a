"""A session of PySpark whose queries DuckDB answers in this process.

PySpark's side of Spark Connect makes plans (Protocol Buffers) without Java. DuckDB evaluates them instead of a server
of Spark, so both engines share the SPARQL translation.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from spark_offload import compat
from spark_offload.embedded.client import Client, missing, new_database

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from pyspark.sql import SparkSession

_MODE: Final = "SPARK_CONNECT_MODE_ENABLED"
"""Variable that makes PySpark's functions create expressions of Spark Connect."""


def embedded_session(database: DuckDBPyConnection | None = None) -> SparkSession:
    """Return a session on a connection, or on a new database in memory. Raises `MissingPart`."""
    try:
        import deltalake  # noqa: F401
        import pyspark.sql.connect.session  # noqa: F401
    except ImportError as error:
        raise missing(error) from error
    client = Client(database or new_database())
    client.session = compat.connect_session(client)
    return client.session


@contextmanager
def connect_mode() -> Iterator[None]:
    """Let PySpark's functions make expressions of Spark Connect, in all threads of this process."""
    before = os.environ.get(_MODE)
    os.environ[_MODE] = "1"
    try:
        yield
    finally:
        if before is None:
            leave_connect_mode()
        else:
            os.environ[_MODE] = before


def leave_connect_mode() -> None:
    """Let PySpark's functions make expressions of a JVM again, even if a call in another thread did not end."""
    os.environ.pop(_MODE, None)
