"""One HTTP request to the gateway, and messages for its errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlencode

import click

from edge import http_client
from edge.cli.bindings_table import printable
from edge.cli.exit_codes import Failure, misused, refused, unreachable
from edge.cli.token import ADVICE, token_for

_Command = TypeVar("_Command", bound=Callable[..., Any])

_ADVICE = {
    400: "correct the request",
    401: ADVICE,
    404: "is --url the gateway's address?",
    406: "choose another --format",
    408: "make the query simpler, or raise engine.query_timeout",
    413: "send less at once, or raise http.max_message",
    429: "try again shortly",
    503: "the gateway is starting or stopping; try again shortly",
    507: "the gateway cannot write: free space on its disk, or see `edge doctor`",
}


@dataclass(frozen=True)
class Answer:
    """A successful response: its body and media type (without parameters)."""

    body: bytes
    media_type: str

    def json(self) -> dict[str, Any]:
        """Return the body as an object. Raises `Failure` if it is not a JSON object."""
        try:
            found = json.loads(self.body)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise refused("the answer is not that of a gateway; is --url right?")
        return found


def post(url: str, form: list[tuple[str, str]], *, accept: str, timeout: float) -> Answer:
    """Send a form (SPARQL 1.1 Protocol) and return the response. Raises as `send`."""
    headers = {"Accept": accept, "Content-Type": "application/x-www-form-urlencoded"}
    return send("POST", url, urlencode(form).encode("ascii"), headers, timeout)


def send(method: str, url: str, body: bytes | None, headers: dict[str, str], timeout: float) -> Answer:
    """Send a request and return the response. `timeout` is in seconds.

    Raises `Failure`: refused (exit code 1) with the gateway's message, or unreachable (3).
    """
    _check(url)
    if (token := token_for(url)) is not None:
        headers = {**headers, "Authorization": f"Bearer {token}"}
    try:
        response = http_client.request(method, url, body, headers, timeout)
    except http_client.NoResponse as error:
        raise unreachable(url, error) from None
    if 200 <= response.status < 300:
        return Answer(response.body, response.headers.get_content_type())
    # Not followed: the token is for this address only.
    if (elsewhere := response.headers.get("Location")) is not None and 300 <= response.status < 400:
        raise refused(f"{url} redirects to {printable(elsewhere)}; if this address is right, set it with --url")
    raise refusal(response.status, describe(response.body))


def expect_input(text: str, url: str, timeout: float) -> None:
    """If an argument stands for standard input, look for the gateway before it is read. Raises as `send`."""
    if text != "-":
        return
    _check(url)
    try:
        with closing(http_client.HttpConnection(url, timeout)) as connection:
            connection.connect()
    except http_client.NoResponse as error:
        raise unreachable(url, error) from None


def _check(url: str) -> None:
    if not url.startswith(("http://", "https://")):
        raise misused(f"{url} is not an HTTP address such as http://127.0.0.1:8000")


def refusal(status: int, description: str) -> Failure:
    """Return the error for a refused request: the gateway's description, if any, and a remedy. Exit code 1."""
    message = description or f"the gateway answered {status}"
    # An error message in the gateway's format shows that the address is right.
    advice = None if description and status == 404 else _ADVICE.get(status)
    return refused(f"{message} ({advice})" if advice else message)


def describe(body: bytes | str) -> str:
    """Return the `error_description` of an error message on one line, or "" for any other body."""
    try:
        error: Any = json.loads(body)
    except ValueError:
        return ""
    description = error.get("error_description") if isinstance(error, dict) else None
    return " ".join(str(description).split()) if description else ""


def dataset_options(default: str, named: str) -> Callable[[_Command], _Command]:
    """Return a decorator with the options for the RDF dataset; `default` and `named` are the protocol's parameters."""

    def decorate(command: _Command) -> _Command:
        add_named = click.option(
            "--named-graph", "named_graphs", multiple=True, metavar="IRI", help=f"{named} of the request; may repeat."
        )
        add_default = click.option(
            "--default-graph",
            "default_graphs",
            multiple=True,
            metavar="IRI",
            help=f"{default} of the request; may repeat.",
        )
        # Decorators apply from the inside out, so help lists the default graph first.
        return add_default(add_named(command))

    return decorate
