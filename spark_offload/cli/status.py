"""`edge-history status`: report the content of the table and the state of the landing zone."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spark_offload.cli.spark import Start, with_spark
from spark_offload.landing import LandingZone

if TYPE_CHECKING:
    from spark_offload.status import HistoryStatus, OutboxStatus


@click.command()
@click.option("--table", required=True, metavar="DIR", help="Table of the history.")
@click.option("--landing", type=click.Path(path_type=Path), metavar="DIR", help="Landing zone.")
@click.option(
    "--metrics", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Also write Prometheus metrics."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_spark("status")
def status(table: str, landing: Path | None, metrics: Path | None, as_json: bool, start: Start) -> None:
    """Report the observations of each gateway in the table, and waiting, missing or damaged segments.

    The numbers come from the log of the table. Its rows are counted only if another program has changed them, or if
    observations were deleted since the last maintenance. --metrics replaces a file for Prometheus, such as one in the
    textfile directory of node_exporter.

    \b
    edge-history status --table history --landing landing
    """
    zone = None if landing is None else LandingZone(landing)
    spark = start()
    # This module imports PySpark, which takes seconds: --help must not wait for it.
    from spark_offload.metrics import text, write_metrics
    from spark_offload.status import status as collect

    found = collect(spark, table, zone)
    if metrics is not None:
        write_metrics(metrics, text(found))
    click.echo(json.dumps(_as_json(found)) if as_json else "\n".join(_as_lines(found)))


def _as_json(found: HistoryStatus) -> dict[str, Any]:
    return {
        "table_version": found.version,
        "outboxes": [_outbox(one) for one in found.outboxes],
        "quarantined": [
            {**one.outbox._asdict(), "segment": one.stem, "reason": one.reason} for one in found.quarantined
        ],
    }


def _outbox(one: OutboxStatus) -> dict[str, Any]:
    return {
        **one.outbox._asdict(),
        "last": one.last,
        "observations": one.observations,
        "lost": one.lost,
        "oldest": one.oldest and _iso_time(one.oldest),
        "newest": one.newest and _iso_time(one.newest),
        "acknowledged": one.acknowledged,
        "waiting": one.waiting,
        "lag": one.lag,
        "gap": one.gap and {name: getattr(one.gap, name) for name in ("first", "last", "held", "seconds")},
    }


def _as_lines(found: HistoryStatus) -> list[str]:
    rows = [("gateway", "epoch", "last", "observations", "lost", "oldest", "newest", "waiting")]
    rows += [
        (
            *one.outbox,
            f"{one.last:,}",
            f"{one.observations:,}",
            f"{one.lost:,}",
            _iso_time(one.oldest) if one.oldest else "-",
            _iso_time(one.newest) if one.newest else "-",
            "-" if one.acknowledged is None else f"{one.waiting:,}",
        )
        for one in found.outboxes
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines += [f"gap: {one.gap}" for one in found.outboxes if one.gap]
    lines += [f"quarantine: {one.outbox}/{one.stem}: {one.reason}" for one in found.quarantined]
    return [*lines, f"table version {found.version}"]


def _iso_time(time: datetime) -> str:
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
