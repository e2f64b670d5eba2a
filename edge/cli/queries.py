"""`edge queries`: continuous queries, and their reports."""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote, urlencode

import click

from edge.cli import bindings_table
from edge.cli.bindings_table import columns, printable
from edge.cli.exit_codes import EXIT_CODES, misused
from edge.cli.locate import data_dir_option
from edge.cli.stream_requests import (
    StreamGateway,
    gateway_options,
    json_option,
    members,
    named,
    not_a_gateway,
    path_of,
)
from edge.command_line import TEXT_OR_FILE

_FORM: Final = "application/x-www-form-urlencoded"


@click.group()
def queries() -> None:
    """Manage continuous queries over RDF streams, and follow their reports.

    NAME is the name in the text of the query: an identifier or an IRI.
    """


@queries.command("list", epilog=EXIT_CODES)
@json_option
@gateway_options
def list_(as_json: bool, gateway: StreamGateway) -> None:
    """Show all queries: their state, and the number of their reports.

    \b
    edge queries list
    """
    gateway.show("queries", _as_table, as_json=as_json)


@queries.command("show", epilog=EXIT_CODES)
@click.argument("name")
@json_option
@gateway_options
def show_(name: str, as_json: bool, gateway: StreamGateway) -> None:
    """Show a query: its text, state and streams.

    \b
    edge queries show warm
    """
    gateway.show(path_of("queries", name), _as_lines, as_json=as_json)


@queries.command(epilog=EXIT_CODES)
@click.argument("name")
@click.argument("action", required=False, type=click.Choice(["add", "end"]), metavar="[add|end]")
@click.argument("observer", required=False, metavar="[URL|ID]")
@click.option("--target", is_flag=True, help="With add: URL is a resource whose inbox gets the reports.")
@json_option
@gateway_options
def observers(
    name: str,
    action: str | None,
    observer: str | None,
    target: bool,
    as_json: bool,
    gateway: StreamGateway,
) -> None:
    """Show the observers of a query: the reports that each has, and its problem, if any. Or add one, or end one.

    With add, the gateway sends each report to URL with POST from now on, also after restarts. URL can name a stream of
    the gateway, such as /streams/rooms. With end, ID is that of the list, or the URL that add has
    printed.

    \b
    edge queries observers warm
    edge queries observers warm add http://192.168.0.7:8080/reports
    edge queries observers warm end 0f5c21a94b6f4cf0a1d3e5b7c9d1e3f5
    """
    if action is None:
        gateway.show(path_of("queries", name, "observers"), _observers, as_json=as_json)
        return
    _check_change(name, action, observer, target=target, as_json=as_json)
    if action == "add":
        form = {"target" if target else "callback": observer}
        gateway.change("POST", path_of("queries", name), urlencode(form).encode(), _FORM)
    else:
        # Of the URL that `add` prints, the id is the last part.
        id_ = unquote((observer or "").rpartition("/observers/")[2])
        gateway.change("DELETE", path_of("queries", name, "observers", quote(id_, safe="")))


def _check_change(name: str, action: str, observer: str | None, *, target: bool, as_json: bool) -> None:
    """Raise `Failure` if the arguments for a change of the observers do not fit together."""
    if not observer:
        example = "add URL" if action == "add" else "end ID"
        raise misused(f"`{action}` needs an observer: `edge queries observers {name} {example}`")
    if target and action != "add":
        raise misused("--target is for `add`; leave it out")
    if as_json:
        raise misused(f"--json is for the list of observers; leave it out with `{action}`")


@queries.command(epilog=EXIT_CODES)
@click.argument("name")
@click.argument("text", type=TEXT_OR_FILE)
@gateway_options
def put(name: str, text: str, gateway: StreamGateway) -> None:
    """Register a query in C-SPARQL or RSP-QL.

    NAME must be the name in the text. TEXT is the query itself, @FILE a file that contains it, - standard input.
    The query needs declarations of its prefixes.

    \b
    edge queries put warm @warm.rq
    """
    gateway.send_text("PUT", path_of("queries", name), text, "text/plain; charset=utf-8")


@queries.command(epilog=EXIT_CODES)
@click.argument("name")
@gateway_options
def delete(name: str, gateway: StreamGateway) -> None:
    """End a query, with its observers and the stream of its results.

    \b
    edge queries delete warm
    """
    gateway.change("DELETE", path_of("queries", name))


@queries.command(epilog=EXIT_CODES)
@click.argument("name")
@gateway_options
def pause(name: str, gateway: StreamGateway) -> None:
    """Pause a query: it makes no reports until `edge queries restart`.

    \b
    edge queries pause warm
    """
    _act("pause", name, gateway)


@queries.command(epilog=EXIT_CODES)
@click.argument("name")
@gateway_options
def restart(name: str, gateway: StreamGateway) -> None:
    """Let a paused query go on.

    \b
    edge queries restart warm
    """
    _act("restart", name, gateway)


@queries.command(epilog=EXIT_CODES)
@click.argument("name")
@click.option(
    "--after",
    type=click.IntRange(0, 10**18 - 1),
    metavar="N",
    help="First show those after report N, if they are kept.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on each line, as over a WebSocket.")
@click.option("-n", "--count", type=click.IntRange(min=1), help="End after this many reports.")
@click.option("--reconnect", is_flag=True, help="When the connection breaks, reconnect and go on.")
@click.option(
    "--ws", envvar="EDGE_WS", metavar="URL", help="Address, e.g. ws://127.0.0.1:9000/subscribe.  [env: EDGE_WS]"
)
@data_dir_option
def follow(
    name: str,
    after: int | None,
    as_json: bool,
    count: int | None,
    reconnect: bool,
    ws: str | None,
    data_dir: Path | None,
) -> None:
    """Print the reports of a query as they are made. Ctrl-C ends it.

    \b
    edge queries follow warm
    edge queries follow warm --json --reconnect >> reports.jsonl
    """
    try:
        from edge.cli.reports import reports  # late: the client library is slow to import

        with contextlib.closing(reports(named("queries", name), after, ws, data_dir, reconnect=reconnect)) as received:
            for report in itertools.islice(received, count):
                click.echo(json.dumps(report, ensure_ascii=False) if as_json else "\n".join(_report(report)))
                # Each report at once, also if the output is a pipe.
                sys.stdout.flush()
    except KeyboardInterrupt:
        return


def _act(action: str, name: str, gateway: StreamGateway) -> None:
    gateway.change("POST", path_of("queries", name), urlencode({"action": action}).encode(), _FORM)


def _as_table(found: list[dict[str, Any]]) -> list[str]:
    if not found:
        return ["(no queries)"]
    rows = [("query", "state", "reports", "form", "streams")]
    problems = []
    for one in found:
        streams = ", ".join(map(printable, one["streams"]))
        rows.append((printable(one["name"]), one["state"], f"{one['reports']:,}", one["form"], streams))
        problems += [f"{printable(one['name'])}: {problem}" for problem in _problems(one)]
    return [*columns(rows), *problems]


def _problems(query: dict[str, Any]) -> list[str]:
    failures = [f"live data: {each}" for each in query["live_data_failures"]]
    return [printable(each) for each in (query["reason"], *failures) if each]


def _as_lines(query: dict[str, Any]) -> list[str]:
    return [*members(query, "text"), "", *map(printable, query["text"].splitlines())]


def _observers(found: list[dict[str, Any]]) -> list[str]:
    if not found:
        return ["(no observers)"]
    rows = [("observer", "to", "has", "failures", "problem")]
    for one in found:
        to = printable(one["target"] if "target" in one else one["callback"])
        state = str(one.get("failures", "")), printable(one.get("problem", ""))
        rows.append((one["id"], to, f"{one['acknowledged']:,}", *state))
    return columns(rows)


def _report(report: dict[str, Any]) -> list[str]:
    """Return a report as lines: its number and time, and its rows or triples. A correction has + and -."""
    correction = report.get("correction", False)
    notes = [f"merged from {report['merged']}"] if report["merged"] > 1 else []
    notes += [f"{report['missed']} missed before"] if report.get("missed") else []
    notes += ["correction"] if correction else []
    head = f"#{report['number']}  {report['time']}{''.join(f', {note}' for note in notes)}"
    found = report["content"]
    if isinstance(found, str):
        return [head, *(f"  {printable(line)}" for line in found.splitlines())]
    if "boolean" in found:
        return [head, f"  {str(found['boolean']).lower()}"]
    try:
        variables, rows = found["head"]["vars"], found["results"]["bindings"]
        removed = found["removed"]["bindings"] if "removed" in found else []
    except (LookupError, TypeError):
        raise not_a_gateway() from None
    if not rows and not removed:
        return [head, "  (no rows)"]
    names, rule, *lines = bindings_table.lines(variables, [*removed, *rows])
    marks = ["- "] * len(removed) + ["+ " if correction else "  "] * len(rows)
    return [head, f"  {names}", f"  {rule}", *(f"{mark}{line}" for mark, line in zip(marks, lines, strict=True))]
