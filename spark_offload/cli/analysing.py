"""What all analyses of `edge-history analyse` have in common: their options, and from the table to a file or a plot."""

from __future__ import annotations

import csv
import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from spark_offload.cli.kinds import Moment
from spark_offload.cli.spark import Start, with_spark
from spark_offload.errors import HistoryError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from pyspark.sql import DataFrame, SparkSession

FORMATS: Final = ("table", "csv", "json", "parquet")
MOST_DRAWN: Final = 200_000
"""Rows that are drawn."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What all analyses are told: of what, and where to."""

    start: Start
    table: str
    since: datetime | None
    until: datetime | None
    sensors: tuple[str, ...]
    properties: tuple[str, ...]
    form: str | None
    out: Path | None
    plot: Path | None


_OPTIONS: Final = (
    click.option("--table", required=True, metavar="DIR", help="The history."),
    click.option("--from", "since", type=Moment(), help="From this time on. A date begins at midnight, UTC."),
    click.option("--to", "until", type=Moment(), help="Before this time; by default: now."),
    click.option("--sensor", "sensors", multiple=True, metavar="IRI", help="Of it alone (or of a series); repeatable."),
    click.option("--property", "properties", multiple=True, metavar="IRI", help="Of it alone; repeatable."),
    click.option("--format", "form", type=click.Choice(FORMATS), help="By default what --out ends in, or a table."),
    click.option("--out", type=click.Path(path_type=Path), help="File; of Parquet: a directory that is not there."),
    click.option(
        "--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw it: FILE.png, FILE.svg, FILE.pdf."
    ),
)


def common(command: Callable[..., None]) -> Callable[..., None]:
    """Options of all analyses, given to the command as one object."""

    @with_spark("analyse")
    @functools.wraps(command)
    def called(**given: Any) -> None:  # noqa: ANN401  what click read
        asked = Asked(**{name: given.pop(name) for name in Asked.__slots__})
        _check(asked)
        command(asked, **given)

    for option in reversed(_OPTIONS):
        called = option(called)
    return called


def _check(asked: Asked) -> None:
    """Fails the command line where options do not go together."""
    if asked.since and asked.until and asked.since >= asked.until:
        raise click.UsageError("--from is not before --to")
    if asked.form == "parquet" and asked.out is None:
        raise click.UsageError("--format parquet needs --out")
    if asked.plot and asked.plot.suffix not in {".png", ".svg", ".pdf"}:
        raise click.BadParameter("it ends in .png, .svg or .pdf", param_hint="--plot")


def run(
    asked: Asked,
    analysis: Callable[[DataFrame, DataFrame], DataFrame],
    order: tuple[str, ...],
    name: str,
    *,
    before: timedelta = timedelta(0),
) -> None:
    """Analyse the rows that were asked for, from `before` earlier on, and write what was found.

    The analysis is given these rows, and all of the table.
    """
    from spark_offload.analyses.measured import chosen
    from spark_offload.table import open_table

    table = open_table(asked.start(), asked.table)
    rows = chosen(
        table,
        start=asked.since and asked.since - before,
        end=asked.until or datetime.now(UTC),
        sensors=asked.sensors,
        properties=asked.properties,
    )
    found = analysis(rows, table).orderBy(*order).persist()
    if asked.plot:
        _plot(found, name, asked.plot)
    if asked.out or asked.form or not asked.plot:
        _write(found, asked.form, asked.out)
    found.unpersist()


def _write(found: DataFrame, form: str | None, out: Path | None) -> None:
    """Write it in the format that was asked for, or that the file's name says."""
    from spark_offload.analyses.written import WRITERS

    ending = out.suffix.removeprefix(".") if out else ""
    form = form or (ending if ending in FORMATS else "table")
    if out is None:
        WRITERS[form](found, sys.stdout)
        return
    if form == "parquet":
        if out.exists():
            raise HistoryError(f"{out} is there already: remove it, or write elsewhere")
        found.write.parquet(str(out.absolute()))
        return
    try:
        with out.open("w", encoding="utf-8", newline="") as file:
            WRITERS[form](found, file)
    except OSError as error:
        raise HistoryError(f"{out} cannot be written: {error.strerror}") from error


def _plot(found: DataFrame, name: str, path: Path) -> None:
    """Draw it."""
    from spark_offload.analyses import plots

    draw: Callable[[pd.DataFrame], Figure] = getattr(plots, name)
    drawn = found.limit(MOST_DRAWN + 1).toPandas()
    if len(drawn) > MOST_DRAWN:
        raise HistoryError(
            f"more than {MOST_DRAWN} rows are too many to draw: choose fewer sensors, or a wider --window"
        )
    try:
        plots.save(draw, drawn, path)
    except OSError as error:
        raise HistoryError(f"{path} cannot be written: {error.strerror}") from error
    click.echo(f"drawn: {path}", err=True)


def read_lamps(spark: SparkSession, path: Path) -> DataFrame:
    """The table of lamps: sensor, watts, and street where it is not the feature of interest."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = csv.DictReader(file)
        if not {"sensor", "watts"} <= set(lines.fieldnames or ()):
            raise HistoryError(f"{path} has no columns sensor and watts in its first line")
        try:
            lamps = {line["sensor"]: (float(line["watts"]), line.get("street") or None) for line in lines}
        except (TypeError, ValueError):
            raise HistoryError(f"{path}, line {lines.line_num}: watts is no number") from None
    schema = "sensor string, watts double, street string"
    return spark.createDataFrame([(sensor, *rated) for sensor, rated in lamps.items()], schema)
