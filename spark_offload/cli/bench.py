"""`edge-history bench`: measure the performance of the history on this machine."""

from __future__ import annotations

from typing import Final

import click

from spark_offload.errors import NotMeasured

PARTS: Final = ("ingest", "questions", "scaling")


@click.command()
@click.option(
    "--rows", type=click.IntRange(min=1000), default=4_000_000, show_default=True, help="Number of observations."
)
@click.option(
    "--runs", type=click.IntRange(min=1), default=5, show_default=True, help="Number of runs. Figures are medians."
)
@click.option("--only", type=click.Choice(PARTS), multiple=True, help="Measure only this part; repeatable.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def bench(rows: int, runs: int, only: tuple[str, ...], as_json: bool) -> None:
    """Measure ingestion and queries, compared with plain Spark in the same run. Run it on an idle machine.

    \b
    ingest     ingest segments of a hundred sensors; compared with copying the same rows from Parquet to Parquet
    questions  answer SPARQL queries; compared with hand-written queries on DataFrames
    scaling    ingest and query on a standalone cluster, with one worker and with two

    \b
    edge-history bench
    edge-history bench --only questions --rows 100000 --json
    """
    # These modules import PySpark, which other commands do without.
    from edge.bench.experiment import ExperimentError
    from spark_offload.bench.figures import to_json, to_text
    from spark_offload.bench.parts import measure

    try:
        figures = measure(only or PARTS, rows, runs)
    except ExperimentError as error:
        raise NotMeasured(str(error)) from None
    click.echo(to_json(figures) if as_json else to_text(figures))
