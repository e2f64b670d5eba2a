"""Token of the environment, which authenticates commands at the gateway. It is sent to no other server."""

from __future__ import annotations

import os
import re
from typing import Final

from edge.cli.exit_codes import Failure, misused
from edge.protocol.addresses import keeps_secrets

TOKEN: Final = "EDGE_TOKEN"  # noqa: S105 - the name of the environment variable that holds it
ADVICE: Final = f"edge clients token IDENTITY, on the gateway, prints a token; set the variable {TOKEN} to it"


def token_for(url: str) -> str | None:
    """Return the token to send to a URL. Raises `Failure` for an unencrypted connection or an invalid token."""
    found = token()
    if found and not keeps_secrets(url):
        raise unencrypted(TOKEN, url)
    return found


def token() -> str | None:
    """Return the token of the environment, if any. Raises `Failure` if it is not valid."""
    found = os.environ.get(TOKEN, "").strip()
    # Also a guard for the header: a line break would begin another header field. RFC 6750, section 2.1, allows even
    # fewer characters. The message does not repeat the value, which may be another secret.
    if not re.fullmatch(r"[!-~]*", found):
        raise misused(f"the value of {TOKEN} is not a token; {ADVICE}")
    return found or None


def unencrypted(variable: str, url: str) -> Failure:
    """Return the error for a secret that would be sent unencrypted: exit code 2."""
    scheme = url.partition(":")[0]
    return misused(
        f"{url} is not encrypted: others could read {variable} on the way; use {scheme}s, or unset the variable"
    )
