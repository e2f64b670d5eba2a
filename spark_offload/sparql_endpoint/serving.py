"""The server of the endpoint: an engine, and HTTP until a signal."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError

from spark_offload import compat
from spark_offload.embedded.session import connect_mode
from spark_offload.errors import SparkEnded
from spark_offload.gateways import Gateways
from spark_offload.http_server import listener, serve, tls_context
from spark_offload.listen import Address
from spark_offload.live import GatewayEndpoint
from spark_offload.session import session
from spark_offload.sparql_endpoint.duckdb_engine import DuckDbEngine
from spark_offload.sparql_endpoint.endpoint import PATH, EndpointLimits, SparqlEndpoint
from spark_offload.sparql_endpoint.query_engine import QueryEngine
from spark_offload.sparql_endpoint.spark_engine import SparkEngine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOKED: Final = 5.0
"""Seconds between two checks whether Spark is still running."""


@dataclass(frozen=True, slots=True)
class EndpointSettings:
    """Settings of the server."""

    address: Address
    tokens: Path | None = None
    tls: tuple[Path, Path] | None = None
    """Certificate chain and key (PEM)."""
    connections: int = 500
    origins: Sequence[str] = ()
    limits: EndpointLimits = field(default_factory=EndpointLimits)
    live: Sequence[GatewayEndpoint] = ()


def serve_sparql(table: str, settings: EndpointSettings, master: str | None, ready: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT, and call `ready` with the URL of the endpoint once the server listens.

    `master`: URL of the Spark master, or None for DuckDB. Raises `ListenRefused`, `TableRefused`, `EngineRefused`,
    `MissingPart`, `SparkEnded`, `GatewayRefused` for a damaged file of tokens.
    """
    clients = None if settings.tokens is None else Gateways(settings.tokens)
    if clients is not None:
        clients.all()
    tls = None if settings.tls is None else tls_context(*settings.tls)
    listener(settings.address).close()  # an address in use is reported before Spark starts
    with _duckdb(table, settings) if master is None else _spark(table, settings, master) as engine:
        endpoint = SparqlEndpoint(engine, settings.limits, clients, settings.origins)
        serve(
            endpoint.app(),
            settings.address,
            connections=settings.connections,
            tls=tls,
            ready=lambda url: ready(url + PATH),
        )


@contextlib.contextmanager
def _duckdb(table: str, settings: EndpointSettings) -> Iterator[QueryEngine]:
    with connect_mode():
        yield DuckDbEngine(table, settings.live)


@contextlib.contextmanager
def _spark(table: str, settings: EndpointSettings, master: str) -> Iterator[QueryEngine]:
    # Otherwise a long query has all of Spark until its end.
    spark = session(master, name="edge-history serve --sparql", settings={"spark.scheduler.mode": "FAIR"})
    try:
        engine = SparkEngine(spark, table, settings.live)
        with _watched(engine):
            yield engine
    finally:
        _stop(spark)


@contextlib.contextmanager
def _watched(engine: QueryEngine) -> Iterator[None]:
    """End the server when Spark ends. Raises `SparkEnded`."""
    ended, failed = threading.Event(), threading.Event()

    def watch() -> None:
        while not ended.wait(_LOOKED):
            if not engine.alive():
                failed.set()
                os.kill(os.getpid(), signal.SIGTERM)
                return

    thread = threading.Thread(target=watch, name="Spark watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
    if failed.is_set():
        raise SparkEnded("Spark has ended: see its messages above, and restart the server")


def _stop(spark: SparkSession) -> None:
    with contextlib.suppress(Py4JError, OSError):  # a signal to the process group also ends the JVM
        spark.stop()
    # Otherwise this process would wait for a query that Spark still plans.
    compat.end_jvm()
