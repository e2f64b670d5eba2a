"""One HTTP request to the gateway, and messages for its errors."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from email.message import Message
from http.client import HTTPException
from typing import IO, Any, TypeVar
from urllib.parse import urlencode

import click

from edge.cli.failures import Failure, misused, refused, unreachable
from edge.cli.table import printable
from edge.cli.token import ADVICE, token_for

_Command = TypeVar("_Command", bound=Callable[..., Any])

_ADVICE = {
    400: "correct the request",
    401: ADVICE,
    404: "is --url the gateway's address?",
    406: "choose another --format",
    408: "make the query simpler, or raise engine.query_timeout",
    413: "send less at once, or raise http.max_body",
    429: "try again shortly",
    503: "the gateway is starting or stopping; try again shortly",
    507: "free space on the gateway's disk",
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
    if not url.startswith(("http://", "https://")):
        raise misused(f"{url} is not an HTTP address such as http://127.0.0.1:8000")
    if (token := token_for(url)) is not None:
        headers = {**headers, "Authorization": f"Bearer {token}"}
    request = urllib.request.Request(url, body, headers, method=method)  # noqa: S310 - the scheme is checked above
    # Gateways are on the local network, so proxy settings of the environment do not apply.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), NoRedirects)
    try:
        with opener.open(request, timeout=timeout) as response:
            return Answer(response.read(), response.headers.get_content_type())
    except urllib.error.HTTPError as error:
        with error:
            if (elsewhere := error.headers.get("Location")) is not None and 300 <= error.code < 400:
                raise refused(
                    f"{url} redirects to {printable(elsewhere)}; if this address is right, set it with --url"
                ) from None
            raise refusal(error.code, error.read()) from None
    except urllib.error.URLError as error:
        raise _no_answer(url, error.reason, timeout) from None
    except (OSError, HTTPException, ValueError) as error:
        raise _no_answer(url, error, timeout) from None


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """Does not follow redirects: requests carry a token for the gateway only."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> None:
        """Return None, which turns the redirect into an error."""


def _no_answer(url: str, reason: object, timeout: float) -> Failure:
    if isinstance(reason, TimeoutError):
        return unreachable(url, f"no answer within {timeout:g} s")
    return unreachable(url, reason)


def refusal(status: int, body: bytes | str) -> Failure:
    """Return the error for a refused request: the gateway's message and a remedy. Exit code 1."""
    description = describe(body)
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
        return add_default(add_named(command))

    return decorate
