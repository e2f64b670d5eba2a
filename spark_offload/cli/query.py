"""`edge-history query`: SPARQL over the history."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

import click

from spark_offload.cli import engines
from spark_offload.cli.engines import attempted, embedded, engine_option
from spark_offload.cli.output import output
from spark_offload.cli.spark import Start, with_spark
from spark_offload.errors import OutputRefused

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from spark_offload.embedded.history import EmbeddedHistory
    from spark_offload.history import History

    Answer = str | bool | DataFrame

_FORMATS: Final = {
    "SELECT": ("table", "json", "xml", "csv", "tsv", "parquet"),
    "ASK": ("table", "json", "xml", "csv", "tsv"),
    "CONSTRUCT": ("turtle", "ntriples", "json", "xml", "parquet"),
    "DESCRIBE": ("turtle", "ntriples", "json", "xml", "parquet"),
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
    " (ntriples) elsewhere. For CONSTRUCT and DESCRIBE, json is JSON-LD, and xml is RDF/XML.",
)
@click.option("--out", type=click.Path(), metavar="FILE", help="Output file; for Parquet, a new directory.")
@engine_option
@click.option("--explain", is_flag=True, help="Print the query plan instead of the answer.")
@click.option("--version", type=click.IntRange(0, 2**63 - 1), metavar="N", help="Query this version of the table.")
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

    def opened() -> EmbeddedHistory:
        from spark_offload.embedded.history import EmbeddedHistory

        return EmbeddedHistory(table, version, live=gateways)

    write = partial(_write, kind=kind, form=form)
    if embedded(engine, table) and _embedded(opened, asked, write, form, None if explain else out, engine):
        return
    _finish(asked(History(start(), table, version, live=gateways)), write, form, out)


def _format(kind: str, form: str | None, out: str | None) -> str:
    """Return the output format for this form of query. Raises a usage error if the requested format does not fit."""
    known = _FORMATS[kind]
    if form is None:
        ending = Path(out or "").suffix[1:]
        form = {"ttl": "turtle", "nt": "ntriples", "jsonld": "json", "rdf": "xml"}.get(ending, ending)
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
    opened: Callable[[], EmbeddedHistory],
    asked: Callable[[History], Answer],
    write: Callable[[bool | DataFrame, IO[bytes]], None],
    form: str,
    out: str | None,
    engine: str,
) -> bool:
    """Ask DuckDB, and write the answer. Returns False if Spark must answer."""

    def answered(written: IO[bytes], history: EmbeddedHistory) -> Answer:
        answer = asked(history)
        if isinstance(answer, str):
            return answer
        if form != "parquet":
            write(answer, written)
            return ""
        return answer if isinstance(answer, bool) else answer.localCheckpoint()

    def interrupt(history: EmbeddedHistory) -> None:
        history.interrupt()

    def attempt(written: IO[bytes]) -> Answer | None:
        return attempted(engine, opened, partial(answered, written), interrupt, engines.TIME_LIMIT)

    if engine == "duckdb" and form != "parquet":
        with output(out) as written:
            answer = attempt(written)
    else:
        # Nothing is written before the last row, because Spark may have to answer.
        is_whole = False
        try:
            with tempfile.TemporaryFile() as whole:
                answer = attempt(whole)
                whole.seek(0)
                is_whole = True
                if answer == "":
                    with output(out) as written:
                        shutil.copyfileobj(whole, written)
        except OSError as error:
            if is_whole:  # the reader of standard output has ended, for example
                raise
            raise OutputRefused(
                f"the answer cannot be stored in {tempfile.gettempdir()} until it is whole ({error.strerror}): set"
                " TMPDIR to a directory with more space, or use --engine duckdb"
            ) from error
    if answer is not None and answer != "":
        _finish(answer, write, form, out)
    return answer is not None


def _finish(answer: Answer, write: Callable[[bool | DataFrame, IO[bytes]], None], form: str, out: str | None) -> None:
    """Write an answer, or print an explanation."""
    if isinstance(answer, str):
        click.echo(answer)
    elif form == "parquet":
        from spark_offload.export import write_parquet

        assert out is not None  # noqa: S101  see _format
        assert not isinstance(answer, bool)  # noqa: S101  see _format
        write_parquet(answer, out)
    else:
        with output(out) as written:
            write(answer, written)


def _write(answer: bool | DataFrame, written: IO[bytes], *, kind: str, form: str) -> None:
    from spark_offload import results

    if isinstance(answer, bool):
        results.write_boolean(answer, form, written)
    else:
        (results.write_solutions if kind == "SELECT" else results.write_graph)(answer, form, written)
