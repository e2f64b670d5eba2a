"""`edge-history demo`: a synthetic city, its history, and a report with charts."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import click

from spark_offload.cli.spark import Start, with_spark
from spark_offload.errors import OutputRefused


@click.command()
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    default="history-demo.html",
    show_default=True,
    help="File of the report; replaced if it exists.",
)
@click.option(
    "--keep",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Keep the landing zone and the table in this new directory.  [default: remove them]",
)
@click.option("--days", type=click.IntRange(1, 3650), default=365, show_default=True, help="Days of observations.")
@click.option("--seed", type=int, default=1, show_default=True, help="Equal seeds give equal observations.")
@with_spark("demo")
def demo(out: Path, keep: Path | None, days: int, seed: int, start: Start) -> None:
    """Show the history with synthetic data: no gateway, sensor or network is necessary.

    The command computes the observations of a city that does not exist, ingests them, asks six questions in SPARQL and
    writes a report with charts. A year takes one to three minutes on two processors.

    \b
    edge-history demo
    edge-history demo --keep demo --days 30
    edge-history query hot.rq --table demo/table
    """
    if keep is not None:
        _make(keep)
    _check(out)
    spark = start()
    # This module imports PySpark, which takes seconds: --help must not wait for it.
    from spark_offload.demo.run import run

    if keep is not None:
        text = run(spark, keep, days, seed, click.echo)
    else:
        with tempfile.TemporaryDirectory(prefix="edge-history-demo-") as folder:
            text = run(spark, Path(folder), days, seed, click.echo)
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OutputRefused(_unwritable(out, error)) from error
    click.echo(f"report: {out.absolute()}")
    if keep is not None:
        click.echo(f"table: {keep / 'table'} (synthetic data)")


def _check(out: Path) -> None:
    """Open the report for writing, before minutes of work. Raises `OutputRefused`."""
    there = os.path.lexists(out)
    try:
        out.open("ab").close()
        if not there:
            out.unlink()
    except OSError as error:
        raise OutputRefused(_unwritable(out, error)) from error


def _unwritable(out: Path, error: OSError) -> str:
    return f"{out} cannot be written: {error.strerror}"


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        occupied = any(folder.iterdir())
    except OSError as error:
        raise OutputRefused(f"{folder} cannot be written: {error.strerror}") from error
    if occupied:
        raise OutputRefused(f"{folder} has files: give a new directory for --keep")
