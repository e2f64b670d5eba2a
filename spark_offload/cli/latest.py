"""`edge-history latest`: print the newest observation of each series."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import click

from spark_offload.cli.engines import embedded, engine_option, stored
from spark_offload.cli.spark import Start, with_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FORMATS: Final = ("table", "csv", "json")
_COLUMNS: Final = ("series", "sensor", "feature", "property", "ts", "value_text", "unit", "gateway")


@click.command()
@click.option("--table", required=True, metavar="DIR", help="Table of the history.")
@click.option("--sensor", "sensors", multiple=True, metavar="IRI", help="Only this sensor or series; repeatable.")
@click.option("--property", "properties", multiple=True, metavar="IRI", help="Only this property; repeatable.")
@click.option("--version", type=click.IntRange(0, 2**63 - 1), metavar="N", help="Read this version of the table.")
@click.option("--format", "form", type=click.Choice(FORMATS), default="table", show_default=True, help="Format.")
@engine_option
@with_spark("latest")
def latest(
    table: str,
    sensors: tuple[str, ...],
    properties: tuple[str, ...],
    version: int | None,
    form: str,
    engine: str,
    start: Start,
) -> None:
    """Print the newest observation of each series and property.

    Observations with another structure, which are stored quad by quad, are not included. Of observations with the same
    time, the last one is printed. Times in the future count, too.

    Spark reads the newest rows that the ingester keeps next to the table, or else the whole table. DuckDB reads the
    whole table.

    \b
    edge-history latest --table history
    edge-history latest --table history --property http://example.org/temperature --format csv
    """
    # These modules import PySpark, which takes seconds: --help must not wait for it.
    from spark_offload.analyses.numeric_rows import chosen
    from spark_offload.analyses.output import WRITERS
    from spark_offload.latest import latest as newest
    from spark_offload.latest import latest_of

    def result(rows: DataFrame) -> DataFrame:
        found = chosen(rows, sensors=sensors, properties=properties)
        return found.select(*_COLUMNS).orderBy("series", "sensor", "feature", "property")

    found = stored(engine, table, lambda rows: result(latest_of(rows)), version) if embedded(engine, table) else None
    if found is None:
        WRITERS[form](result(newest(start(), table, version)), sys.stdout)
        return
    from spark_offload.embedded.session import connect_mode

    with connect_mode():
        WRITERS[form](found, sys.stdout)
