"""The token in the environment: it tells the gateway who asks, and is sent to nobody else."""

from __future__ import annotations

import os
import re
from typing import Final

from edge.cli.failures import Failure, misused
from edge.protocol.addresses import keeps_secrets

TOKEN: Final = "EDGE_TOKEN"  # noqa: S105 - the name of the environment variable that holds it
ADVICE: Final = f"edge clients token IDENTITY, on the gateway, prints a token; put it into the variable {TOKEN}"


def token_for(url: str) -> str | None:
    """The token to send to a URL. Raises `Failure` where others would read it on the way, and where it is none."""
    found = token()
    if found and not keeps_secrets(url):
        raise unencrypted(TOKEN, url)
    return found


def token() -> str | None:
    """The token, if there is one. Raises `Failure` where what is there is none."""
    found = os.environ.get(TOKEN, "").strip()
    if not re.fullmatch(r"[!-~]*", found):
        raise misused(f"what is in {TOKEN} is no token; {ADVICE}")
    return found or None


def unencrypted(variable: str, url: str) -> Failure:
    """A secret of the environment is not sent there: exit code 2."""
    scheme = url.partition(":")[0]
    return misused(
        f"{url} is not encrypted: others would read what is in {variable} on the way; use {scheme}s, or unset it"
    )
