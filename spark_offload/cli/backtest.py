"""`edge-history backtest`: a query or a rule on the observations of the past."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from spark_offload.cli.kinds import Timestamp
from spark_offload.cli.output import output
from spark_offload.cli.spark import Start, with_spark
from spark_offload.errors import BacktestRefused

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyoxigraph as ox

    from edge.backtest.program import Program

_FORMATS: Final = ("table", "json", "xml", "csv", "tsv", "parquet")
_RULE: Final = ".toml"


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--table", required=True, metavar="DIR", help="Table of the history.")
@click.option("--gateway", "gateways", multiple=True, metavar="NAME", help="Only this gateway; repeatable.")
@click.option("--from", "since", type=Timestamp(), required=True, help="From this time on. A date begins at midnight.")
@click.option("--to", "until", type=Timestamp(), help="Before this time.  [default: now]")
@click.option(
    "--context",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="RDF that is in the graph from the begin on, such as descriptions (.ttl, .trig, .nt, .nq, .rdf).",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(_FORMATS),
    help="Format.  [default: from the suffix of --out; else table on a terminal, json elsewhere]",
)
@click.option("--out", type=click.Path(), metavar="FILE", help="Output file; for Parquet, a new directory.")
@with_spark("backtest")
def backtest(
    file: Path,
    table: str,
    gateways: tuple[str, ...],
    since: datetime,
    until: datetime | None,
    context: Path | None,
    form: str | None,
    out: str | None,
    start: Start,
) -> None:
    """Print what a gateway would have reported in the past.

    FILE is a SPARQL query, whose notifications are printed; a window query in C-SPARQL or RSP-QL on the stream of
    observations, whose reports are printed; or a rule (.toml), whose situations are printed with their begin and end.
    The stored observations of each gateway are played through the engine of a gateway, with their times.

    Each line has the columns ?_gateway, ?_time, ?_number (of the notification, report or situation; 0: the result at
    --from) and ?_change (added, removed, reported, began, ended, failed), then the variables.

    \b
    edge-history backtest alarm.rq --table history --gateway street-7 --from 2026-01-01 --to 2027-01-01
    edge-history backtest silence.toml --table history --from 2026-01-01 --format csv --out alarms.csv
    """
    until = until or datetime.now(UTC)
    if since >= until:
        raise click.UsageError("--from is not before --to")
    form = _format(form, out)
    # Before Spark starts, which takes seconds: a wrong query is reported at once.
    program = _program(file)
    quads = () if context is None else _context(context)

    from spark_offload.backtest import as_terms, result_variables
    from spark_offload.backtest import backtest as played
    from spark_offload.export import write_parquet
    from spark_offload.results import write_solutions

    result_variables(program)
    found = played(start(), table, program, since, until, gateways=gateways, context=quads)
    if form == "parquet":
        assert out is not None  # noqa: S101  see _format
        write_parquet(found, out)
        return
    with output(out) as target:
        write_solutions(as_terms(found), form, target)


def _format(form: str | None, out: str | None) -> str:
    """Return the output format. Raises a usage error for Parquet on standard output."""
    ending = Path(out or "").suffix[1:]
    if form is None:
        form = ending if ending in _FORMATS else "table" if out is None and sys.stdout.isatty() else "json"
    if form == "parquet" and out is None:
        raise click.UsageError("--format parquet needs --out")
    return form


def _program(file: Path) -> Program:
    """Read a query or a rule. Raises `BacktestRefused`."""
    from edge.backtest.program import read_program
    from edge.protocol.errors import EdgeError

    try:
        return read_program(file.read_text("utf-8-sig"), _name(file), is_rule=file.suffix.lower() == _RULE)
    except EdgeError as error:
        raise BacktestRefused(f"{file}: {error.description}") from None
    except UnicodeDecodeError as error:
        raise BacktestRefused(f"{file} is not UTF-8: {error}") from None


def _name(file: Path) -> str:
    """Return the name of a rule: that of its file, with the characters that names may have."""
    return "".join(char if char.isascii() and (char.isalnum() or char in "-_") else "_" for char in file.stem)


def _context(file: Path) -> Sequence[ox.Quad]:
    """Parse a file of RDF. Raises `BacktestRefused`."""
    import pyoxigraph as ox

    form = ox.RdfFormat.from_extension(file.suffix[1:].lower())
    if form is None:
        raise BacktestRefused(f"{file} has no suffix of RDF: name it .ttl, .trig, .nt, .nq or .rdf")
    try:
        return list(ox.parse(file.read_bytes(), form, base_iri=file.absolute().as_uri()))
    except SyntaxError as error:
        raise BacktestRefused(f"{file}: {error.msg}") from None
