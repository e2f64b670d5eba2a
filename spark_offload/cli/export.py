"""`edge-history export`: write the history as RDF or as Parquet."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

import click

from spark_offload.cli.engines import done, embedded, engine_option
from spark_offload.cli.kinds import Timestamp
from spark_offload.cli.spark import Start, with_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FORMATS: Final = ("nquads", "parquet", "triples")


@click.command()
@click.option("--table", required=True, metavar="DIR", help="Table of the history.")
@click.option(
    "--out", required=True, type=click.Path(), metavar="FILE|DIR", help="FILE.nq, FILE.nq.gz, or a new directory."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="nquads",
    show_default=True,
    help="nquads: the stored RDF; parquet: the rows of the table; triples: the RDF as Parquet, one row a triple.",
)
@click.option("--from", "since", type=Timestamp(), help="From this time on. A date begins at midnight, UTC.")
@click.option("--to", "before", type=Timestamp(), help="Before this time.")
@click.option("--gateway", "gateways", multiple=True, metavar="NAME", help="Only this gateway; repeatable.")
@click.option("--version", type=click.IntRange(0, 2**63 - 1), metavar="N", help="Read this version of the table.")
@engine_option
@with_spark("export")
def export(
    table: str,
    out: str,
    form: str,
    since: datetime | None,
    before: datetime | None,
    gateways: tuple[str, ...],
    version: int | None,
    engine: str,
    start: Start,
) -> None:
    """Export the history as RDF, without loss, or as Parquet.

    A directory gets files of gzipped N-Quads or Parquet: one from DuckDB, one for each task of Spark. The directory
    must not exist. --from and --to refer to the times of the observations.

    \b
    edge-history export --table history --out history.nq.gz
    edge-history export --table history --out january --format parquet --from 2026-01-01 --to 2026-02-01
    """
    if since and before and since >= before:
        raise click.UsageError("--from is not before --to")
    from spark_offload import export as exporting
    from spark_offload.analyses.numeric_rows import chosen
    from spark_offload.table import open_table
    from spark_offload.triples import triples

    def write(table: DataFrame) -> None:
        rows = chosen(table, start=since, end=before)
        if gateways:
            rows = rows.where(rows["gateway"].isin(*gateways))
        if form == "nquads":
            exporting.write_nquads(rows, out)
        else:
            exporting.write_parquet(rows if form == "parquet" else triples(rows), out)

    if not (embedded(engine, table) and done(engine, table, write, version)):
        write(open_table(start(), table, version))
    click.echo(f"written: {out}", err=True)
