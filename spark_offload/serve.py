"""Spark Connect server for notebooks: Delta Lake, and the history as the table `observations` in every session.

Spark Connect requires a token but does not encrypt. It therefore listens on loopback only; remote clients connect
through SSH or through a proxy with a certificate. Clients with the token have full access to the table.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError

from spark_offload import compat
from spark_offload.errors import ListenRefused, SparkEnded
from spark_offload.listen import Address
from spark_offload.session import session
from spark_offload.table import location, open_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME: Final = "observations"
TOKEN: Final = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105  the name of a variable, not a token
_LOOKED: Final = 5.0
"""Seconds between two checks whether Spark is still running."""


def serve(table: str, address: Address, master: str, ready: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT, and call `ready` with the URL for clients once the server listens.

    The token comes from the environment. Without one the server creates a token and includes it in the URL. Raises
    `ListenRefused`, `TableRefused`, `SparkEnded`.
    """
    _check(address)
    given = os.environ.get(TOKEN)
    # Not a setting of the session: settings are arguments of the Java process, which every local user can read.
    os.environ[TOKEN] = given or secrets.token_urlsafe(32)
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    with tempfile.TemporaryDirectory(prefix="edge-history-") as folder:
        settings = {
            "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
            "spark.connect.grpc.binding.address": address.host,
            "spark.connect.grpc.binding.port": str(address.port),
            # Other tables that clients create last as long as the server.
            "spark.sql.warehouse.dir": folder,
        }
        spark = session(master, name="edge-history serve", settings=settings)
        try:
            publish(spark, table)
            # Spark's client requires TLS for a token, except for the host name localhost.
            url = f"sc://localhost:{_port(spark)}/"
            ready(url if given else f"{url};token={os.environ[TOKEN]}")
            while not ended.wait(_LOOKED):
                _port(spark)
        finally:
            with contextlib.suppress(Py4JError, OSError):  # a signal to the process group also ends the JVM
                spark.stop()


def publish(spark: SparkSession, table: str | os.PathLike[str]) -> None:
    """Add the history to the catalog, which all sessions of this Spark share. Raises `TableRefused`."""
    path = location(spark, table)
    open_table(spark, path)
    place = path if ":" in path else str(Path(path).absolute())
    quoted = place.replace("\\", "\\\\").replace("'", "\\'")
    spark.sql(f"CREATE TABLE {NAME} USING delta LOCATION '{quoted}'")


def _check(address: Address) -> None:
    """Check the address first: Spark would report the same problem in a hundred lines. Raises `ListenRefused`."""
    if not address.loopback:
        raise ListenRefused(
            f"Spark Connect does not encrypt, and its token could be read on the way to {address}: listen on 127.0.0.1,"
            f" and connect with `ssh -L {address.port}:localhost:{address.port} HOST` or through a proxy with TLS"
        )
    try:
        socket.create_server(address, family=socket.AF_INET6 if ":" in address.host else socket.AF_INET).close()
    except OSError as error:
        raise ListenRefused(f"{address} cannot be listened on ({error}): give another address by --listen") from None


def _port(spark: SparkSession) -> int:
    """Return the port on which Spark Connect listens. Raises `SparkEnded` if Spark no longer runs."""
    try:
        return compat.connect_port(spark)
    except (Py4JError, OSError) as error:
        raise SparkEnded(f"Spark has ended ({error}): see its messages above, and restart the server") from None
