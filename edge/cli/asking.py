"""The gateway of a data directory, asked by who looks after it: whatever it answers counts, and soon."""

from __future__ import annotations

import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Final

from edge import endpoints
from edge.cli.failures import Failure
from edge.cli.http import Nowhere
from edge.cli.token import token_for

if TYPE_CHECKING:
    from edge.doctor.context import Ask

PATIENCE: Final = 5.0
"""Seconds: one that does not answer in that time does not answer its clients, either."""
LARGEST: Final = 4 * 1024 * 1024
"""Bytes of an answer that are read."""


def asked(data_dir: Path) -> Ask:
    """How to ask the gateway of this data directory, with the token in the environment."""
    from edge.doctor.context import Unasked

    def ask(path: str) -> tuple[int, bytes]:
        try:
            url = f"{endpoints.read(data_dir)['http'].rstrip('/')}/{path}"
            token = token_for(url)
        except (OSError, ValueError, KeyError):
            raise Unasked(f"there is no {endpoints.NAME} that says where it listens") from None
        except Failure as error:
            raise Unasked(error.message) from None
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})  # noqa: S310 - the gateway wrote it
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), Nowhere)
        try:
            with opener.open(request, timeout=PATIENCE) as answer:
                return answer.status, answer.read(LARGEST)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read(LARGEST)
        except (OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            waited = isinstance(reason, TimeoutError)
            raise Unasked(f"no answer within {PATIENCE:g} s" if waited else str(reason)) from None

    return ask
