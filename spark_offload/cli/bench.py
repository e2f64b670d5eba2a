"""`edge-history bench`: what the history costs on the machine at hand."""

from __future__ import annotations

from typing import Final

import click

from spark_offload.errors import NotMeasured

PARTS: Final = ("ingest", "questions", "scaling")


@click.command()
@click.option("--rows", type=click.IntRange(min=1000), default=4_000_000, show_default=True, help="Observations.")
@click.option(
    "--runs", type=click.IntRange(min=1), default=5, show_default=True, help="Runs; the figures are their medians."
)
@click.option("--only", type=click.Choice(PARTS), multiple=True, help="Measure this part; may be given several times.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")
def bench(rows: int, runs: int, only: tuple[str, ...], as_json: bool) -> None:
    """Measure ingesting and asking, against plain Spark doing the same in the same run. Give it a quiet machine.

    \b
    ingest     segments of a hundred sensors into the table; against copying the same rows from Parquet to Parquet
    questions  in SPARQL; against the same by hand on DataFrames
    scaling    ingesting and a question on a standalone cluster of one worker and of two

    \b
    edge-history bench
    edge-history bench --only questions --rows 100000 --json
    """
    # With PySpark, which other commands do without.
    from edge.bench.experiment import ExperimentError
    from spark_offload.bench.figures import to_json, to_text
    from spark_offload.bench.parts import measure

    try:
        figures = measure(only or PARTS, rows, runs)
    except ExperimentError as error:
        raise NotMeasured(str(error)) from None
    click.echo(to_json(figures) if as_json else to_text(figures))
