"""`edge-history query`: SPARQL over the history."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

import click

from spark_offload.cli.engines import ENGINES, embedded
from spark_offload.cli.spark import Start, with_spark
from spark_offload.errors import EngineRefused, OutputRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame

    from spark_offload.history import History
    from spark_offload.live import GatewayEndpoint

_FORMATS: Final = {
    "SELECT": ("table", "json", "xml", "csv", "tsv", "parquet"),
    "ASK": ("table", "json", "xml", "csv", "tsv"),
    "CONSTRUCT": ("turtle", "ntriples", "parquet"),
    "DESCRIBE": ("turtle", "ntriples", "parquet"),
}
"""Formats for each form of query. The first is the default on a terminal, the second elsewhere."""


@click.command()
@click.argument("source", metavar="FILE|-", type=click.File(encoding="utf-8"))
@click.option("--table", required=True, metavar="DIR", help="Table of the history.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json", "xml", "csv", "tsv", "parquet", "turtle", "ntriples"]),
    help="Format. The default follows the suffix of --out; without one, it is table (turtle) on a terminal and json"
    " (ntriples) elsewhere.",
)
@click.option("--out", type=click.Path(), metavar="FILE", help="Output file; for Parquet, a new directory.")
@click.option(
    "--engine",
    type=click.Choice(ENGINES),
    default="spark",
    show_default=True,
    help="Engine that answers. duckdb needs no Java. auto:"
    " DuckDB if it is installed, the table has up to 8 GiB on this machine and DuckDB"
    " supports the query; else Spark.",
)
@click.option("--explain", is_flag=True, help="Print the query plan instead of the answer.")
@click.option("--version", type=click.IntRange(0), metavar="N", help="Query this version of the table.")
@click.option(
    "--live", multiple=True, metavar="URL", help="Query endpoint of a gateway, for SERVICE <URL>; repeatable."
)
@with_spark("query")
def query(
    source: IO[str],
    table: str,
    form: str | None,
    out: str | None,
    engine: str,
    explain: bool,
    version: int | None,
    live: tuple[str, ...],
    start: Start,
) -> None:
    """Query the history with SPARQL: SELECT, ASK, CONSTRUCT or DESCRIBE, from FILE or from standard input (-).

    The command refuses features of SPARQL that are not supported, and names them. In Parquet each solution is a row
    and each variable a column of terms in N-Triples.

    SERVICE <URL> { ... } queries the live graph of a gateway, if --live names this gateway. For gateways that require
    a token, set EDGE_TOKEN.

    \b
    edge-history query hot.rq --table history
    edge-history query - --table history --format csv --out hot.csv < hot.rq
    edge-history query hot.rq --table history --explain
    edge-history query names.rq --table history --live http://localhost:8000/query
    """
    from spark_offload.history import History
    from spark_offload.live import GatewayEndpoint
    from spark_offload.services import unanswered
    from spark_offload.sparql.parsing import parse

    try:
        text = source.read()
    except UnicodeDecodeError as error:
        raise click.BadParameter(f"the query is not UTF-8: {error}", param_hint="FILE") from None
    # Before Spark starts, which takes seconds: a wrong query or format is reported at once.
    kind = parse(unanswered(text).text).form
    form = _format(kind, form, out)
    gateways = [GatewayEndpoint(url, token=os.environ.get("EDGE_TOKEN", "").strip()) for url in live]

    def asked(history: History) -> str | bool | DataFrame:
        if explain:
            return history.explain(text)
        if kind == "ASK":
            return history.ask(text)
        return history.sparql(text) if kind == "SELECT" else history.construct(text)

    answer = _embedded(asked, table, version, gateways, engine) if embedded(engine, table, form) else None
    if answer is None:
        answer = asked(History(start(), table, version, live=gateways))
    _write(answer, kind, form, out)


def _format(kind: str, form: str | None, out: str | None) -> str:
    """Return the output format for this form of query. Raises a usage error if the requested format does not fit."""
    known = _FORMATS[kind]
    if form is None:
        ending = Path(out or "").suffix[1:]
        form = {"ttl": "turtle", "nt": "ntriples"}.get(ending, ending)
        if form not in {name for forms in _FORMATS.values() for name in forms}:
            form = known[0 if out is None and sys.stdout.isatty() else 1]
    elif form == "table":
        form = known[0]
    if form not in known:
        raise click.UsageError(f"{form} is not a format for {kind}; choose one of {', '.join(known)}")
    if form == "parquet" and out is None:
        raise click.UsageError("--format parquet needs --out")
    return form


def _embedded(
    asked: Callable[[History], str | bool | DataFrame],
    table: str,
    version: int | None,
    gateways: list[GatewayEndpoint],
    engine: str,
) -> str | bool | DataFrame | None:
    """Ask DuckDB. Returns None if Spark must answer, and prints why."""
    from spark_offload.embedded.history import EmbeddedHistory

    try:
        return asked(EmbeddedHistory(table, version, live=gateways))
    except EngineRefused as refused:
        if engine == "duckdb":
            raise
        click.echo(f"edge-history: Spark answers: {refused}", err=True)
        return None


def _write(answer: str | bool | DataFrame, kind: str, form: str, out: str | None) -> None:
    from spark_offload import results

    if isinstance(answer, str):
        click.echo(answer)
    elif form == "parquet":
        from spark_offload.export import write_parquet

        assert out is not None  # noqa: S101  see _format
        assert not isinstance(answer, bool)  # noqa: S101  see _format
        write_parquet(answer, out)
    else:
        with output(out) as written:
            if isinstance(answer, bool):
                results.write_boolean(answer, form, written)
            else:
                (results.write_solutions if kind == "SELECT" else results.write_graph)(answer, form, written)


@contextmanager
def output(out: str | None) -> Iterator[IO[bytes]]:
    """Open the output: a file, or standard output. Raises `OutputRefused`."""
    if out is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        with Path(out).open("wb") as file:
            yield file
    except OSError as error:
        raise OutputRefused(f"{out} cannot be written: {error.strerror}") from error
