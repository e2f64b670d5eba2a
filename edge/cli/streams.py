"""`edge streams`: RDF streams, and their elements."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlencode

import click

from edge.cli.bindings_table import columns, printable
from edge.cli.exit_codes import EXIT_CODES
from edge.cli.stream_requests import StreamGateway, gateway_options, json_option, members, path_of
from edge.command_line import TEXT_OR_FILE

_TYPES: Final = {
    "turtle": "text/turtle",
    "ntriples": "application/n-triples",
    "jsonld": "application/ld+json",
    "xml": "application/rdf+xml",
    "rdfjson": "application/rdf+json",
}


@click.group()
def streams() -> None:
    """Manage RDF streams, and add elements to them.

    A stream is a sequence of graphs with times. STREAM is a short name, such as rooms, or an IRI.
    """


@streams.command("list", epilog=EXIT_CODES)
@json_option
@gateway_options
def list_(as_json: bool, gateway: StreamGateway) -> None:
    """Show all streams.

    \b
    edge streams list
    """
    gateway.show("streams", _as_table, as_json=as_json)


@streams.command("show", epilog=EXIT_CODES)
@click.argument("stream")
@json_option
@gateway_options
def show_(stream: str, as_json: bool, gateway: StreamGateway) -> None:
    """Show a stream: its elements, late elements, and the query whose results it has.

    \b
    edge streams show rooms
    """
    gateway.show(path_of("streams", stream), members, as_json=as_json)


@streams.command(epilog=EXIT_CODES)
@click.argument("stream")
@json_option
@gateway_options
def late(stream: str, as_json: bool, gateway: StreamGateway) -> None:
    """Show the newest elements that came later than the lateness of the stream: earlier reports lack them.

    \b
    edge streams late rooms
    """
    gateway.show(path_of("streams", stream) + "?elements=late", _late, as_json=as_json)


@streams.command(epilog=EXIT_CODES)
@click.argument("stream")
@click.option("--lateness", metavar="DURATION", help="How late an element may be, such as PT10S; it corrects reports.")
@gateway_options
def put(stream: str, lateness: str | None, gateway: StreamGateway) -> None:
    """Register a stream, or change its lateness.

    \b
    edge streams put rooms
    edge streams put rooms --lateness PT10S
    """
    parameters = "" if lateness is None else "?" + urlencode({"lateness": lateness})
    gateway.change("PUT", path_of("streams", stream) + parameters, b"")


@streams.command(epilog=EXIT_CODES)
@click.argument("stream")
@gateway_options
def delete(stream: str, gateway: StreamGateway) -> None:
    """End a stream that no query uses.

    \b
    edge streams delete rooms
    """
    gateway.change("DELETE", path_of("streams", stream))


@streams.command(epilog=EXIT_CODES)
@click.argument("stream")
@click.argument("graph", type=TEXT_OR_FILE)
@click.option(
    "-f", "--format", "form", type=click.Choice(tuple(_TYPES)), default="turtle", show_default=True, help="Of GRAPH."
)
@click.option("--timestamp", metavar="TIME", help="Time of the element, such as 2030-01-31T12:00:00Z.")
@gateway_options
def add(stream: str, graph: str, form: str, timestamp: str | None, gateway: StreamGateway) -> None:
    """Add an element: a graph. GRAPH is the RDF itself, @FILE a file that contains it, - standard input.

    Without --timestamp, the element has the time of its arrival.

    \b
    edge streams add rooms '<urn:kitchen> <urn:temperature> 21.5 .'
    edge streams add rooms @element.jsonld --format jsonld
    """
    parameters = "" if timestamp is None else "?" + urlencode({"timestamp": timestamp})
    gateway.send_text("POST", path_of("streams", stream) + parameters, graph, _TYPES[form])


def _late(found: list[dict[str, Any]]) -> list[str]:
    lines = []
    for one in found:
        lines.append(f"#{one['number']}  {printable(one['time'])}, arrived {printable(one['arrived'])}")
        graph = one["graph"]
        lines += (
            ["  (too large to be kept)"] if graph is None else [f"  {printable(line)}" for line in graph.splitlines()]
        )
    return lines or ["(no late elements)"]


def _as_table(found: list[dict[str, Any]]) -> list[str]:
    rows = [("stream", "elements", "kept", "lateness", "too late", "query")]
    for one in found:
        query = "" if one["query"] is None else printable(one["query"])
        late = f"{one['lateness']:g} s"
        rows.append(
            (
                printable(one["iri"]),
                f"{one['elements']:,}",
                f"{one['kept_bytes']:,} B",
                late,
                f"{one['too_late']:,}",
                query,
            )
        )
    return columns(rows)
