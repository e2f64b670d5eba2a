"""`edge rules`: the rules of the gateway, and their dry run on recent values."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

import click

from edge.cli.bindings_table import columns, printable
from edge.cli.exit_codes import EXIT_CODES, USAGE, misused, refused
from edge.cli.http import send
from edge.cli.locate import data_dir_option, http_endpoint, timeout_option, url_option
from edge.cli.timers import local_time

_JSON: Final = {"Accept": "application/json"}


@click.group()
def rules() -> None:
    """Show the rules of the gateway, and try one on recent values.

    A rule is a file in DATA_DIR/rules: a situation in the graph, and the updates for its begin and its end.
    """


@rules.command("list", epilog=EXIT_CODES)
@click.option("--json", "as_json", is_flag=True, help="JSON, for programs.")
@url_option
@data_dir_option
@timeout_option
def list_(as_json: bool, url: str | None, data_dir: Path | None, timeout: float) -> None:
    """Show all rules: their state, and their activity since the start of the gateway.

    \b
    edge rules list
    """
    answer = send("GET", http_endpoint(url, data_dir, "api/rules"), None, _JSON, timeout)
    try:
        found = json.loads(answer.body)
        lines = [json.dumps(found)] if as_json else _as_table(found)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise _not_a_gateway() from None
    click.echo("\n".join(lines))


@rules.command(
    epilog="""\b
    Exit codes:
      0  tried
      1  the gateway refused the dry run, or an update of the rule failed
      2  wrong command line, or a faulty rule
      3  the gateway is unreachable
    """
)
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--hours", type=click.FloatRange(0, 744, min_open=True), default=24, show_default=True, help="Period.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")
@url_option
@data_dir_option
@timeout_option
def test(file: Path, hours: float, as_json: bool, url: str | None, data_dir: Path | None, timeout: float) -> None:
    """Check the rule in FILE, and show what it would have done with the recent values. Nothing is changed.

    \b
    edge rules test damp.toml
    edge rules test damp.toml --hours 168
    """
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise misused(f"{file} cannot be read: {error}") from None
    body = json.dumps({"name": file.stem, "text": text, "hours": hours}).encode()
    headers = {**_JSON, "Content-Type": "application/json"}
    found = send("POST", http_endpoint(url, data_dir, "api/rule-test"), body, headers, timeout).json()
    try:
        lines = [f"edge: {file}: {printable(fault['text'])}" for fault in found["faults"]]
        if as_json:
            click.echo(json.dumps(found))
        elif not lines:
            click.echo("\n".join(_as_lines(found)))
    except (KeyError, TypeError, ValueError):
        raise _not_a_gateway() from None
    if lines:
        click.echo("\n".join(lines), err=True)
        sys.exit(USAGE)
    if found["failure"]:
        raise refused(f"{found['failures']} updates of the rule failed: {printable(found['failure'])}")


def _as_table(found: list[dict[str, Any]]) -> list[str]:
    if not found:
        return ["(no rules)"]
    rows = [("rule", "state", "begun", "label")]
    problems = []
    for each in found:
        state = "faulty" if each["fault"] else "off" if not each["enabled"] else _state(each["active"], each["waiting"])
        rows.append((printable(each["file"]), state, str(each["begun"]), printable(each["label"])))
        if problem := each["fault"] or each["failure"]:
            problems.append(f"{printable(each['file'])}: {printable(problem)}")
    return [*columns(rows), *problems]


def _state(active: int, waiting: int) -> str:
    if active:
        return f"{active} active"
    return f"{waiting} waiting" if waiting else "watching"


def _as_lines(found: dict[str, Any]) -> list[str]:
    lines = []
    for each in found["occurrences"]:
        ended = "not ended" if each["ended"] is None else local_time(each["ended"])
        solution = ", ".join(f"{name}={value}" for name, value in each["solution"].items())
        lines.append(f"{local_time(each['began'])}  to  {ended}  {printable(solution)}")
    count, values = found["count"], found["values"]
    return [*lines, f"{count} situation{'' if count == 1 else 's'} with {values} value{'' if values == 1 else 's'}"]


def _not_a_gateway() -> Exception:
    return refused("the answer is not that of a gateway; is --url right?")
