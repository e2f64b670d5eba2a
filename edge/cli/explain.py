"""`edge explain`: the cost of a subscription to a query, and its reasons."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from edge.cli.bindings_table import printable
from edge.cli.exit_codes import EXIT_CODES, misused, refused
from edge.cli.http import dataset_options, expect_input, post
from edge.cli.locate import data_dir_option, http_endpoint, timeout_option, url_option
from edge.cli.source import SOURCE_HELP, read_source
from edge.command_line import TEXT_OR_FILE

_WIDEST: Final = 100
"""Most columns of a line: longer lines are hard to read."""

Explanation = dict[str, Any]


@click.command(
    epilog=EXIT_CODES,
    help=f"""Explain the cost of a subscription to a query. {SOURCE_HELP}

    The command neither subscribes nor evaluates the query. For each triple pattern it shows the work when a matching
    triple is added or removed, and the number of matching triples now.

    \b
    edge explain 'SELECT ?lamp ?state {{ ?lamp <urn:is> ?state }}'
    edge explain --json @lamps.rq | jq .kept

    A text that registers a query over streams (C-SPARQL, RSP-QL) is explained with its windows.

    With --code, TEXT is an update. The command prints the Python code that a gateway generates for it when it runs
    often, and needs no gateway.
    """,
)
@click.argument("text", type=TEXT_OR_FILE)
@click.option("--json", "as_json", is_flag=True, help="The JSON object, for programs.")
@click.option("--code", is_flag=True, help="Print the generated code of an update.")
@dataset_options("default-graph-uri", "named-graph-uri")
@url_option
@data_dir_option
@timeout_option
def explain(
    text: str,
    as_json: bool,
    code: bool,
    default_graphs: tuple[str, ...],
    named_graphs: tuple[str, ...],
    url: str | None,
    data_dir: Path | None,
    timeout: float,
) -> None:
    """Request an explanation and print it."""
    if code and as_json:
        raise misused("--code prints Python, and not JSON: omit --json")
    if code:
        source = read_source(text)
        with source.positions():
            _print_code(source.text)
        return
    address = http_endpoint(url, data_dir, "explain")
    expect_input(text, address, timeout)
    source = read_source(text)
    parameters = [("query", source.text)]
    parameters += [("default-graph-uri", graph) for graph in default_graphs]
    parameters += [("named-graph-uri", graph) for graph in named_graphs]
    with source.positions():
        answer = post(address, parameters, accept="application/json", timeout=timeout)
    found = answer.json()
    try:
        # Also for JSON: this detects another server before anything is printed.
        lines = list(_lines(found))
    except (KeyError, TypeError):
        raise refused("the answer is not that of a gateway; is --url right?") from None
    if as_json:
        click.echo(json.dumps(found))
        return
    for line, style in lines:
        click.secho(printable(line), **style)


def _print_code(text: str) -> None:
    # Here, because the other explanations do not need the engine in this process.
    from edge.gateway.explain_code import explain_code
    from edge.protocol.errors import EdgeError

    try:
        for part in explain_code(text):
            click.echo(part)
    except EdgeError as error:
        raise refused(error.description) from None


Line = tuple[str, dict[str, Any]]
"""A line and its style."""


def _lines(explanation: Explanation) -> Iterator[Line]:
    if windows := explanation.get("windows"):
        yield "Windows", {"underline": True}
        for line in windows:
            yield f"  {line}", {}
        yield "", {}
    yield from _paragraph(f"{explanation['form']}. {explanation['summary']}")
    if explanation["reason"]:
        yield from _paragraph(f"Why: {explanation['reason']}", color="yellow")
    parts = explanation["parts"]
    for number, part in enumerate(parts, 1):
        yield from _heading("Patterns" if len(parts) == 1 else f"Patterns, part {number} of {len(parts)}")
        for pattern in part:
            yield from _pattern(pattern)
    if len(parts) > 1:
        yield from _paragraph("A change that matches a pattern of one part leaves the other parts alone.", 2)
    if explanation["steps"]:
        yield from _heading("From the patterns to the result")
        for step in explanation["steps"]:
            yield from _paragraph(f"{step['name']}: {step['text']}.", 2)
    yield from _heading("In memory")
    now = (
        f" (now {_count(explanation['kept_rows'], 'row or group', 'rows or groups')})"
        if explanation["kept_rows"]
        else ""
    )
    yield from _paragraph(explanation["memory"] + now, 2)
    yield from _heading("Shared with other subscriptions")
    yield from _sharing(explanation["sharing"])
    if explanation["evaluations"]:
        yield from _heading("Evaluations so far")
        yield from _evaluations(explanation["evaluations"])
    if explanation["advice"]:
        yield from _heading("Good to know")
        for advice in explanation["advice"]:
            yield from _paragraph(f"- {advice}", 2, hanging=2)


def _pattern(pattern: Explanation) -> Iterator[Line]:
    inside = f"   in {pattern['inside']}" if pattern["inside"] else ""
    yield f"  {pattern['pattern']}{inside}", {"bold": True}
    if pattern["watched"] != pattern["pattern"]:
        yield from _paragraph(f"watches only {pattern['watched']}", 6)
    count = pattern["matches"]
    yield from _paragraph(f"now about {_count(count, 'triple')} {'matches' if count == 1 else 'match'}", 6)
    yield from _paragraph(pattern["text"], 6)
    if pattern["warning"]:
        yield from _paragraph(f"! {pattern['warning']}", 6, hanging=2, color="yellow")


def _evaluations(cost: Explanation) -> Iterator[Line]:
    yield from _paragraph(
        f"{_count(cost['count'], 'evaluation')}, {cost['seconds']:.3g} s, {cost['share']:.0%} of the time of all",
        2,
    )
    yield from _paragraph(
        f"{_count(cost['merged'], 'state')} skipped; the last evaluation began {cost['delay']:.3g} s after its commit",
        2,
    )


def _sharing(sharing: Explanation) -> Iterator[Line]:
    yield from _paragraph(sharing["text"], 2)
    if sharing["open"]:
        yield from _paragraph(f"open constants: {', '.join(sharing['open'])}", 2, hanging=2)
    if sharing["open"] and sharing["closed"]:
        yield from _paragraph(f"constants that must be the same: {', '.join(sharing['closed'])}", 2, hanging=2)
    now = f"now: {_count(sharing['subscribers'], 'subscription')} to this query"
    if sharing["open"]:
        now += f"; {_count(sharing['queries'], 'subscribed query', 'subscribed queries')} evaluated together"
    yield from _paragraph(now, 2)


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _heading(text: str) -> Iterator[Line]:
    yield "", {}
    yield text, {"underline": True}


def _paragraph(text: str, indent: int = 0, *, hanging: int = 0, color: str | None = None) -> Iterator[Line]:
    width = min(shutil.get_terminal_size((_WIDEST, 0)).columns, _WIDEST)
    for line in textwrap.wrap(
        text,
        max(width, 40),
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + hanging),
        break_long_words=False,
        break_on_hyphens=False,
    ):
        yield line, {"fg": color}
