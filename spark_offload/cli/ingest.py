"""`edge-history ingest`: move segments from the landing zone into the table, once or periodically."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spark_offload import compat
from spark_offload.cli.kinds import Length
from spark_offload.cli.spark import Start, with_spark
from spark_offload.errors import HistoryError, SparkEnded
from spark_offload.landing import LandingZone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_offload.ingest import IngestRound
    from spark_offload.metrics import IngestCounters, Problems

_WAIT = 60.0
"""Seconds to wait for a step of maintenance before a round."""


@click.command()
@click.option("--landing", required=True, type=click.Path(path_type=Path), metavar="DIR", help="Landing zone.")
@click.option("--table", required=True, metavar="DIR", help="Table of the history; created if it does not exist.")
@click.option("--every", type=Length(), help="Run forever and check for segments at this interval.  [default: once]")
@click.option(
    "--keep", type=Length(), default="1d", show_default=True, help="How long to keep segments that are in the table."
)
@click.option(
    "--max-rows", type=click.IntRange(1), default=5_000_000, show_default=True, help="Approximate rows of a commit."
)
@click.option(
    "--metrics",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write Prometheus metrics to this file after each round.",
)
@with_spark("ingest")
def ingest(
    landing: Path,
    table: str,
    every: timedelta | None,
    keep: timedelta,
    max_rows: int,
    metrics: Path | None,
    start: Start,
) -> None:
    """Ingest the segments of gateways: each observation exactly once, even if segments come twice, late or damaged.

    The ingester acknowledges the observations in the table, and gateways then delete them. It moves damaged segments
    to quarantine; their gateways send them again. Segments after a gap wait until the gap is filled.

    While edge-history maintain runs, the ingester commits between its steps. --metrics replaces a file for Prometheus,
    such as one in the textfile directory of node_exporter.

    Workers of a cluster must see the landing zone and the table under the same paths. SIGTERM ends the command after
    the current round. It can be killed at any time without loss or duplicates.

    \b
    edge-history ingest --landing landing --table history
    edge-history ingest --landing landing --table history --every 5m
    edge-history ingest --landing /mnt/landing --table hdfs://store/history --master spark://store:7077
    """
    ended = threading.Event()
    zone = LandingZone(landing)
    spark = start()
    # This module imports PySpark, which takes seconds: --help must not wait for it.
    from spark_offload.metrics import IngestCounters, Problems

    counters, known = IngestCounters(), Problems()
    of_rounds, waiting = Problems(), Problems()

    def report() -> None:
        if metrics is not None:
            for problem in known.new(_write_metrics(spark, zone, table, counters, metrics)):
                click.echo(f"edge-history: {problem}", err=True)

    def run() -> None:
        try:
            done = None
            for done in _run(spark, zone, table, keep, max_rows, ended, of_rounds, idle=every is None):
                counters.add(done, time.time())
                report()
            if done is not None:
                _report_waiting(done, waiting)
        except HistoryError:
            counters.failed_runs += 1
            report()
            raise

    before = signal.signal(signal.SIGTERM, lambda *_: ended.set())
    try:
        _go_on(run, spark, every, ended)
    finally:
        signal.signal(signal.SIGTERM, before)


def _go_on(run: Callable[[], None], spark: SparkSession, every: timedelta | None, ended: threading.Event) -> None:
    """Run once, or forever at an interval. An error that repeats in consecutive runs is reported once."""
    reported = ""
    while True:
        try:
            run()
            reported = ""
        except HistoryError as error:
            # Without Spark each further attempt would fail in the same way.
            if every is None or _is_over(spark):
                raise
            if str(error) != reported:
                click.echo(f"edge-history: {error}; next try in {every}", err=True)
            reported = str(error)
        # Returns at once after SIGTERM.
        if every is None or ended.wait(every.total_seconds()):
            return


def _run(
    spark: SparkSession,
    landing: LandingZone,
    table: str,
    keep: timedelta,
    most: int,
    ended: threading.Event,
    known: Problems,
    *,
    idle: bool,
) -> Iterator[IngestRound]:
    """Ingest the waiting segments, report and yield each round; with `idle`, report also a round without segments.

    A problem that repeats is reported once.
    """
    # This module imports PySpark, which takes seconds: --help must not wait for it.
    from spark_offload.ingest import rounds

    for done in rounds(spark, landing, table, keep=keep.total_seconds(), most=most, wait=_WAIT):
        if done.segments or (idle and not done.more):
            click.echo(str(done))
        for segment in done.damaged:
            name = f"{segment.outbox}/{segment.stem}"
            click.echo(f"edge-history: {name} is damaged and in quarantine: {segment.reason}", err=True)
        for problem in known.new(done.problems):
            click.echo(f"edge-history: {problem}", err=True)
        yield done
        if ended.is_set():
            break


def _write_metrics(
    spark: SparkSession, landing: LandingZone, table: str, counters: IngestCounters, path: Path
) -> list[str]:
    """Write the metrics of this process, and those of the table if it can be read. Returns the problems."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from spark_offload.metrics import text, write_metrics
    from spark_offload.spark_errors import first_line
    from spark_offload.status import status

    found, problems = None, []
    # None of these may end the ingester.
    expected = (HistoryError, OSError, Py4JError, PySparkException)
    try:
        # Counting the rows after each run would cost more than the run.
        if not _is_over(spark):
            found = status(spark, table, landing, count=False)
    except expected as error:
        problems.append(f"the metrics {path} lack those of the table: {first_line(error)}")
    try:
        write_metrics(path, text(found, counters))
    except expected as error:
        problems.append(first_line(error))
    return problems


def _report_waiting(done: IngestRound, known: Problems) -> None:
    """Report gaps and outboxes of a newer schema, each once until it has ended: a gap also has a time, which grows."""
    found = {f"{gap.outbox} {gap.first}": str(gap) for gap in done.gaps}
    for outbox in sorted({segment.outbox for segment in done.newer}):
        found[str(outbox)] = f"{outbox} sends segments of a newer schema, which must wait: update this program"
    for key in known.new(found):
        click.echo(f"edge-history: {found[key]}", err=True)


def _is_over(spark: SparkSession) -> bool:
    """Return whether the Spark session has stopped. Raises `SparkEnded` if its JVM has ended."""
    from py4j.protocol import Py4JError

    try:
        return compat.is_stopped(spark)
    except (OSError, Py4JError) as error:  # the JVM has ended
        raise SparkEnded("Spark has ended: start edge-history ingest again") from error
