"""`edge query` and `edge update`: SPARQL requests to the running gateway."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import click

from edge.cli import bindings_table
from edge.cli.exit_codes import EXIT_CODES, misused, refused
from edge.cli.http import Answer, dataset_options, expect_input, post
from edge.cli.locate import data_dir_option, http_endpoint, timeout_option, url_option
from edge.cli.prefixes import used_in
from edge.cli.source import SOURCE_HELP, read_source
from edge.cli.timers import local_time
from edge.command_line import TEXT_OR_FILE
from edge.protocol.due_time import read_when

_FORMATS: Final = {
    # The form of the query is not known here. The gateway chooses the format that fits its result.
    "table": "application/sparql-results+json, text/turtle;q=0.9",
    "json": "application/sparql-results+json, application/ld+json;q=0.9",
    "csv": "text/csv",
    "tsv": "text/tab-separated-values",
    "xml": "application/sparql-results+xml, application/rdf+xml;q=0.9",
    "turtle": "text/turtle",
    "ntriples": "application/n-triples",
    "jsonld": "application/ld+json",
}


@click.command(
    epilog=EXIT_CODES,
    help=f"""Send a SPARQL query to the running gateway. {SOURCE_HELP}

    \b
    edge query 'SELECT * WHERE {"{ ?s ?p ?o }"} LIMIT 5'
    edge query --format csv @report.rq > report.csv
    """,
)
@click.argument("text", type=TEXT_OR_FILE)
@click.option(
    "-f",
    "--format",
    "form",
    type=click.Choice(list(_FORMATS)),
    default="table",
    show_default=True,
    help="table, json, csv, tsv, xml for SELECT and ASK; turtle, ntriples, jsonld, xml for CONSTRUCT and DESCRIBE "
    "(table prints Turtle for these).",
)
@dataset_options("default-graph-uri", "named-graph-uri")
@url_option
@data_dir_option
@timeout_option
def query(
    text: str,
    form: str,
    default_graphs: tuple[str, ...],
    named_graphs: tuple[str, ...],
    url: str | None,
    data_dir: Path | None,
    timeout: float,
) -> None:
    """Send a query and print its results."""
    address = http_endpoint(url, data_dir, "query")
    expect_input(text, address, timeout)
    source = read_source(text)
    parameters = [("query", source.text)]
    parameters += [("default-graph-uri", graph) for graph in default_graphs]
    parameters += [("named-graph-uri", graph) for graph in named_graphs]
    with source.positions():
        answer = post(address, parameters, accept=_FORMATS[form], timeout=timeout)
    if form == "table" and answer.media_type.endswith("json"):
        click.echo("\n".join(_as_table(answer)))
        return
    body = _with_prefixes(answer.body) if answer.media_type == "text/turtle" else answer.body
    # Bytes: the formats define their encoding, and the terminal's may be another.
    sys.stdout.buffer.write(body if body.endswith(b"\n") else body + b"\n")
    sys.stdout.buffer.flush()


def _with_prefixes(turtle: bytes) -> bytes:
    """Return Turtle with the known prefixes that shorten it."""
    prefixes = used_in(turtle.decode("utf-8", "replace"))
    if not prefixes:
        return turtle
    import pyoxigraph as ox  # late: only Turtle needs it

    try:
        triples = [quad.triple for quad in ox.parse(turtle, format=ox.RdfFormat.TURTLE)]
    except (SyntaxError, ValueError):  # the answer of another server
        return turtle
    return ox.serialize(triples, format=ox.RdfFormat.TURTLE, prefixes=prefixes) or b""


@click.command(
    epilog=EXIT_CODES,
    help=f"""Change the graph of the running gateway with a SPARQL update. {SOURCE_HELP}

    \b
    edge update 'INSERT DATA {{ <urn:lamp> <urn:state> true }}'
    edge update @load.ru
    edge update --delay PT30S --id lamp-off @off.ru
    """,
)
@click.argument("text", type=TEXT_OR_FILE)
@click.option("--delay", metavar="DURATION", help="Run it after this time: PT30S, PT2H30M, P1DT12H, P2W.")
@click.option("--at", metavar="TIME", help="Run it at this time: 2030-01-31T12:00:00Z, or microseconds since 1970.")
@click.option(
    "--id", "name", metavar="ID", help="With --delay or --at: its id. Replaces a waiting update with this id."
)
@dataset_options("using-graph-uri", "using-named-graph-uri")
@url_option
@data_dir_option
@timeout_option
def update(
    text: str,
    delay: str | None,
    at: str | None,
    name: str | None,
    default_graphs: tuple[str, ...],
    named_graphs: tuple[str, ...],
    url: str | None,
    data_dir: Path | None,
    timeout: float,
) -> None:
    """Send an update and print its outcome."""
    try:
        # Checked before the request, so that a wrong option has exit code 2.
        read_when(delay, at, name)
    except ValueError as error:
        raise misused(str(error)) from None
    address = http_endpoint(url, data_dir, "update")
    expect_input(text, address, timeout)
    source = read_source(text)
    parameters = [("update", source.text)]
    parameters += [("using-graph-uri", graph) for graph in default_graphs]
    parameters += [("using-named-graph-uri", graph) for graph in named_graphs]
    parameters += [(key, value) for key, value in (("delay", delay), ("at", at), ("id", name)) if value is not None]
    with source.positions():
        answer = post(address, parameters, accept="application/json", timeout=timeout)
    outcome = answer.json()
    if "scheduled" in outcome:
        scheduled = outcome["scheduled"]
        click.echo(f"{scheduled['id']} runs at {local_time(scheduled['at'])}")
        return
    click.echo(f"{outcome.get('added', '?')} added, {outcome.get('removed', '?')} removed")


def _as_table(answer: Answer) -> list[str]:
    found = answer.json()
    if "boolean" in found:
        return ["true" if found["boolean"] else "false"]
    try:
        bindings = found["results"]["bindings"]
        lines = bindings_table.lines(found["head"]["vars"], bindings)
    except (KeyError, TypeError):
        raise refused("the answer is not a SPARQL result; is --url right?") from None
    count = len(bindings)
    return [*lines, f"({count} result{'' if count == 1 else 's'})"]
