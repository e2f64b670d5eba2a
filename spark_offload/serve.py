"""A Spark Connect server for notebooks: Delta Lake, and the history as the table `observations` of every session.

Spark Connect asks for a token, and encrypts nothing: it is for this machine, and for who comes by SSH or through a
proxy that has a certificate. Who has the token can do with the table what this program can.
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
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError

from spark_offload.errors import ListenRefused, SparkEnded
from spark_offload.listen import Address
from spark_offload.session import session
from spark_offload.table import open_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME: Final = "observations"
TOKEN: Final = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105  where Spark and its clients look for the token
_LOOKED: Final = 5.0
"""Seconds between two looks whether Spark is still there."""


def serve(table: str, address: Address, master: str, ready: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT. `ready` is told the URL for clients, with the token if the server made it up.

    The token is that of the environment, else a new one. Raises `ListenRefused`, `TableRefused`, `SparkEnded`.
    """
    _check(address)
    given = os.environ.get(TOKEN)
    # Not a setting of the session: these are arguments of the Java process, which everybody on this machine can read.
    os.environ[TOKEN] = given or secrets.token_urlsafe(32)
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    with tempfile.TemporaryDirectory(prefix="edge-history-") as folder:
        settings = {
            "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
            "spark.connect.grpc.binding.address": address.host,
            "spark.connect.grpc.binding.port": str(address.port),
            # Tables that clients make beside the history last as long as the server.
            "spark.sql.warehouse.dir": folder,
        }
        spark = session(master, name="edge-history serve", settings=settings)
        try:
            publish(spark, table)
            # With any other name of this machine Spark's client insists on TLS as soon as there is a token.
            url = f"sc://localhost:{_port(spark)}/"
            ready(url if given else f"{url};token={os.environ[TOKEN]}")
            while not ended.wait(_LOOKED):
                _port(spark)
        finally:
            with contextlib.suppress(Py4JError, OSError):  # who ends this program may have ended Spark as well
                spark.stop()


def publish(spark: SparkSession, table: str) -> None:
    """Make the history a table of the catalog, which all sessions of this Spark share. Raises `TableRefused`."""
    open_table(spark, table)
    place = table if ":" in table else str(Path(table).absolute())
    quoted = place.replace("\\", "\\\\").replace("'", "\\'")
    spark.sql(f"CREATE TABLE {NAME} USING delta LOCATION '{quoted}'")


def _check(address: Address) -> None:
    """Spark would say the same in a hundred lines."""
    if not address.loopback:
        raise ListenRefused(
            f"Spark Connect encrypts nothing, and others would read its token on {address}: listen on 127.0.0.1, and"
            f" come by `ssh -L {address.port}:localhost:{address.port} HOST` or through a proxy that has a certificate"
        )
    try:
        socket.create_server(address, family=socket.AF_INET6 if ":" in address.host else socket.AF_INET).close()
    except OSError as error:
        raise ListenRefused(f"{address} cannot be listened on ({error}): give another address by --listen") from None


def _port(spark: SparkSession) -> int:
    """The one that the server has. Raises `SparkEnded`."""
    try:
        jvm: Any = spark.sparkContext._jvm
        service: Any = getattr(jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
        return int(getattr(service, "MODULE$").localPort())
    except (Py4JError, OSError) as error:
        raise SparkEnded(f"Spark has ended ({error}): its last words are above; start the server again") from None
