"""HTTP requests to the gateway of a data directory, for diagnostic commands.

Unlike `edge.cli.http`, every response counts, including errors, and the timeout is short.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from edge import endpoints, http_client
from edge.cli.exit_codes import Failure
from edge.cli.token import token_for

if TYPE_CHECKING:
    from edge.doctor.context import Ask

PATIENCE: Final = 5.0
"""Timeout in seconds. A gateway that does not answer in this time does not answer its clients, either."""
LARGEST: Final = 4 * 1024 * 1024
"""Maximum bytes read of a response."""


def requests_to(data_dir: Path) -> Ask:
    """Return a function that sends a GET request to the gateway of this data directory.

    It takes a path and returns status and body, and raises `Unasked` without an answer. The token comes from the
    environment.
    """
    from edge.doctor.context import Unasked

    def ask(path: str) -> tuple[int, bytes]:
        try:
            # At each request: the file changes when the gateway restarts with other ports.
            url = f"{endpoints.read(data_dir)['http'].rstrip('/')}/{path}"
            token = token_for(url)
        except (OSError, ValueError, KeyError):
            raise Unasked(f"{endpoints.NAME} is missing or not readable, so its address is not known") from None
        except Failure as error:
            raise Unasked(error.message) from None
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            answer = http_client.request("GET", url, None, headers, PATIENCE, LARGEST)
        except http_client.NoResponse as error:
            raise Unasked(str(error)) from None
        return answer.status, answer.body

    return ask
