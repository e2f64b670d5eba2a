"""Requests for streams and continuous queries, and options and output that their commands share."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, TypeVar
from urllib.parse import quote

import click

from edge.cli.bindings_table import printable
from edge.cli.exit_codes import misused, refused
from edge.cli.http import Answer
from edge.cli.locate import data_dir_option, timeout_option, url_option

_Command = TypeVar("_Command", bound=Callable[..., Any])

JSON: Final = {"Accept": "application/json"}


def gateway_options(command: _Command) -> _Command:
    """Add the options for the address of the gateway, and for the timeout."""
    return url_option(data_dir_option(timeout_option(command)))


def json_option(command: _Command) -> _Command:
    """Add the option for JSON."""
    return click.option("--json", "as_json", is_flag=True, help="JSON, for programs.")(command)


def path_of(collection: str, name: str, *rest: str) -> str:
    """Return the path of a stream, a query or its observers. Also the slashes of an IRI are percent-encoded.

    Raises `Failure` if the name is empty.
    """
    return "/".join((collection, quote(named(collection, name), safe=""), *rest))


def named(collection: str, name: str) -> str:
    """Return the name of a stream or query. Raises `Failure` if it is empty: the path would be that of the list."""
    if not name:
        raise misused(f"the name is empty; `edge {collection} list` shows the names")
    return name


def content(answer: Answer) -> Any:  # noqa: ANN401 - JSON
    """Return the JSON of an answer. Raises `Failure`."""
    try:
        return json.loads(answer.body)
    except ValueError:
        raise not_a_gateway() from None


def confirm(answer: Answer) -> None:
    """Print the text with which the gateway confirms a change."""
    found = content(answer)
    if not isinstance(found, str):
        raise not_a_gateway()
    click.echo(printable(found))


def show(found: object, as_table: Callable[[Any], list[str]], *, as_json: bool) -> None:
    """Print an answer. Raises `Failure` if `as_table` finds that it is not that of a gateway."""
    try:
        lines = [json.dumps(found)] if as_json else as_table(found)
    except (LookupError, TypeError, ValueError, AttributeError):
        raise not_a_gateway() from None
    click.echo("\n".join(lines))


def members(found: dict[str, Any], *left_out: str) -> list[str]:
    """Return one line for each member of a description. Empty ones are left out."""
    lines = []
    for name, value in found.items():
        if name in left_out or value in ("", [], None):
            continue
        text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        lines.append(f"{printable(name.replace('_', ' ')):<19} {printable(text)}")
    return lines


def not_a_gateway() -> Exception:
    """Return the error for an answer that is not that of a gateway."""
    return refused("the answer is not that of a gateway; is --url right?")
