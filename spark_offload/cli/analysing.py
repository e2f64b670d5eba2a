"""Common parts of the `edge-history analyse` subcommands: options, choice of rows, output to a file or a plot."""

from __future__ import annotations

import csv
import functools
import io
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from spark_offload.cli.engines import embedded, engine_option, stored
from spark_offload.cli.kinds import Timestamp
from spark_offload.cli.output import output
from spark_offload.cli.spark import Start, with_spark
from spark_offload.errors import HistoryError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from pyspark.sql import DataFrame, SparkSession

FORMATS: Final = ("table", "csv", "json", "parquet")
MOST_DRAWN: Final = 200_000
"""Upper bound of the rows of a plot."""


@dataclass(frozen=True, slots=True)
class AnalysisOptions:
    """Values of the common options. The names of the attributes are those of the click parameters."""

    start: Start
    table: str
    since: datetime | None
    until: datetime | None
    sensors: tuple[str, ...]
    properties: tuple[str, ...]
    form: str | None
    out: Path | None
    plot: Path | None
    engine: str


_OPTIONS: Final = (
    click.option("--table", required=True, metavar="DIR", help="Table of the history."),
    click.option("--from", "since", type=Timestamp(), help="From this time on. A date begins at midnight, UTC."),
    click.option("--to", "until", type=Timestamp(), help="Before this time.  [default: now]"),
    click.option("--sensor", "sensors", multiple=True, metavar="IRI", help="Only this sensor or series; repeatable."),
    click.option("--property", "properties", multiple=True, metavar="IRI", help="Only this property; repeatable."),
    click.option(
        "--format", "form", type=click.Choice(FORMATS), help="Format.  [default: from the suffix of --out, or table]"
    ),
    click.option("--out", type=click.Path(path_type=Path), help="Output file; for Parquet, a new directory."),
    click.option(
        "--plot",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Plot the result into FILE.png, FILE.svg or FILE.pdf.",
    ),
    engine_option,
)


def common(command: Callable[..., None]) -> Callable[..., None]:
    """Add the common options to a command, which receives them as one `AnalysisOptions`."""

    @with_spark("analyse")
    @functools.wraps(command)
    def called(**given: Any) -> None:  # noqa: ANN401  values parsed by click
        options = AnalysisOptions(**{name: given.pop(name) for name in AnalysisOptions.__slots__})
        _check(options)
        command(options, **given)

    # Decorators apply from the inside out, and help lists the outermost option first.
    for option in reversed(_OPTIONS):
        called = option(called)
    return called


def _check(options: AnalysisOptions) -> None:
    """Raise a usage error if options contradict each other."""
    if options.since and options.until and options.since >= options.until:
        raise click.UsageError("--from is not before --to")
    if options.form == "parquet" and options.out is None:
        raise click.UsageError("--format parquet needs --out")
    if options.plot and options.plot.suffix not in {".png", ".svg", ".pdf"}:
        raise click.BadParameter("the file name must end in .png, .svg or .pdf", param_hint="--plot")


def run(
    options: AnalysisOptions,
    analysis: Callable[[DataFrame, DataFrame], DataFrame],
    order: tuple[str, ...],
    name: str,
    *,
    before: timedelta = timedelta(0),
) -> None:
    """Run an analysis on the chosen rows and write its result, sorted by the columns `order`.

    `analysis` receives the chosen rows and the whole table. The chosen rows begin `before` earlier than `--from`.
    `name` is that of the function in `spark_offload.analyses.plots`. Raises `HistoryError`.
    """
    from spark_offload.analyses.numeric_rows import chosen
    from spark_offload.table import open_table

    def result(table: DataFrame) -> DataFrame:
        rows = chosen(
            table,
            start=options.since and options.since - before,
            # Observations of the future come from wrong clocks.
            end=options.until or datetime.now(UTC),
            sensors=options.sensors,
            properties=options.properties,
        )
        return analysis(rows, table).orderBy(*order)

    form = _format(options.form, options.out)
    if embedded(options.engine, options.table):
        found = stored(options.engine, options.table, result)
        if found is not None:
            from spark_offload.embedded.session import connect_mode

            with connect_mode():
                _output(options, form, found, name)
            return
    # The plot and the output both read the result; without the cache Spark would run the analysis twice.
    found = result(open_table(options.start(), options.table)).persist()
    _output(options, form, found, name)
    found.unpersist()


def _format(form: str | None, out: Path | None) -> str:
    """Return the requested format, or that of the file's suffix."""
    ending = out.suffix.removeprefix(".") if out else ""
    return form or (ending if ending in FORMATS else "table")


def _output(options: AnalysisOptions, form: str, found: DataFrame, name: str) -> None:
    if options.plot:
        _plot(found, name, options.plot)
    if options.out or options.form or not options.plot:
        _write(found, form, options.out)


def _write(found: DataFrame, form: str, out: Path | None) -> None:
    from spark_offload.analyses.output import WRITERS

    if out is None:
        WRITERS[form](found, sys.stdout)
        return
    if form == "parquet":
        if out.exists():
            raise HistoryError(f"{out} already exists: remove it, or choose another name")
        # Spark would resolve a relative path in its default file system, which may be that of a cluster.
        found.write.parquet(str(out.absolute()))
        return
    with output(str(out)) as written:
        # Without translation of line ends, as the `csv` module requires: it writes those of RFC 4180.
        file = io.TextIOWrapper(written, encoding="utf-8", newline="")
        WRITERS[form](found, file)
        file.flush()
        file.detach()


def _plot(found: DataFrame, name: str, path: Path) -> None:
    """Plot the result into a file. Raises `HistoryError` for more than `MOST_DRAWN` rows."""
    from spark_offload.analyses import plots

    draw: Callable[[pd.DataFrame], Figure] = getattr(plots, name)
    # One row more than the limit tells that there are more, without a count of all.
    drawn = found.limit(MOST_DRAWN + 1).toPandas()
    if len(drawn) > MOST_DRAWN:
        raise HistoryError(
            f"the result has more than {MOST_DRAWN} rows, too many to plot: choose fewer sensors, or a wider --window"
        )
    try:
        plots.save(draw, drawn, path)
    except OSError as error:
        raise HistoryError(f"{path} cannot be written: {error.strerror}") from error
    # Standard output may contain the result.
    click.echo(f"plotted: {path}", err=True)


def read_lamps(spark: SparkSession, path: Path) -> DataFrame:
    """Read the CSV file of lamps: columns sensor, watts and optionally street. Raises `HistoryError`."""
    from pyspark.sql.types import DoubleType, StringType, StructField, StructType

    from spark_offload.local_rows import local_frame

    with path.open(encoding="utf-8-sig", newline="") as file:  # spreadsheets write a byte order mark
        lines = csv.DictReader(file)
        try:
            if not {"sensor", "watts"} <= set(lines.fieldnames or ()):
                raise HistoryError(f"{path} has no columns sensor and watts: name them in its first line")
            lamps = {line["sensor"]: (float(line["watts"]), line.get("street") or None) for line in lines}
        except UnicodeDecodeError:
            raise HistoryError(f"{path} is not UTF-8: save it in this encoding") from None
        except (TypeError, ValueError):
            raise HistoryError(f"{path}, line {lines.line_num}: watts is not a number") from None
    schema = StructType(
        [StructField("sensor", StringType()), StructField("watts", DoubleType()), StructField("street", StringType())]
    )
    return local_frame(spark, [(sensor, *rated) for sensor, rated in lamps.items()], schema)
