"""Requests for streams and continuous queries, and options and output that their commands share."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from edge.cli.bindings_table import printable
from edge.cli.exit_codes import misused, refused
from edge.cli.http import expect_input, send
from edge.cli.locate import data_dir_option, http_endpoint, timeout_option, url_option
from edge.cli.source import read_payload


@dataclass(frozen=True)
class StreamGateway:
    """The gateway of a command. `timeout`: seconds for an answer. Paths are those of `path_of`."""

    url: str | None
    data_dir: Path | None
    timeout: float

    def show(self, path: str, as_lines: Callable[[Any], list[str]], *, as_json: bool) -> None:
        """Print what the gateway has at a path. Raises `Failure`, also if `as_lines` finds no answer of a gateway."""
        found = self._answer("GET", path)
        try:
            lines = [json.dumps(found)] if as_json else as_lines(found)
        except (LookupError, TypeError, ValueError, AttributeError):
            raise not_a_gateway() from None
        click.echo("\n".join(lines))

    def change(self, method: str, path: str, body: bytes | None = None, media_type: str = "") -> None:
        """Send a change, and print its confirmation. `media_type`: that of the body. Raises `Failure`."""
        found = self._answer(method, path, body, media_type)
        if not isinstance(found, str):
            raise not_a_gateway()
        click.echo(printable(found))

    def send_text(self, method: str, path: str, text: str, media_type: str) -> None:
        """Send the argument TEXT of a command as `change` does. Raises `Failure`."""
        expect_input(text, http_endpoint(self.url, self.data_dir, path), self.timeout)
        self.change(method, path, read_payload(text), media_type)

    def _answer(self, method: str, path: str, body: bytes | None = None, media_type: str = "") -> Any:  # noqa: ANN401
        """Return the JSON of the answer."""
        headers = {"Accept": "application/json"} | ({"Content-Type": media_type} if media_type else {})
        answer = send(method, http_endpoint(self.url, self.data_dir, path), body, headers, self.timeout)
        try:
            return json.loads(answer.body)
        except ValueError:
            raise not_a_gateway() from None


def gateway_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options for the address of the gateway, and for the timeout. The command gets a `StreamGateway`."""

    @functools.wraps(command)
    def run(*, url: str | None, data_dir: Path | None, timeout: float, **others: Any) -> None:  # noqa: ANN401
        command(gateway=StreamGateway(url, data_dir, timeout), **others)

    return url_option(data_dir_option(timeout_option(run)))


def json_option(command: Callable[..., None]) -> Callable[..., None]:
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
