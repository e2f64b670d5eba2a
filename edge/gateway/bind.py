"""Listening on addresses, and hosts in URLs."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

from edge.gateway.errors import StartError


async def listening(start: Callable[[], Any], key: str, host: str, port: int) -> int:
    """Start a server; returns its port. `key` is the setting of the port, for the message.

    Raises `StartError` if the address is not available.
    """
    try:
        return int(await start() or 0)
    except OSError as error:
        variable = f"EDGE__{key.replace('.', '__')}".upper()
        if error.errno == errno.EADDRINUSE:
            reason = f"{host}:{port} is in use by another program"
        elif error.errno == errno.EACCES:
            reason = f"{host}:{port} may not be used by this user"
        else:
            reason = f"cannot listen on {host}:{port}: {error.strerror or error}"
        raise StartError(f"{key}: {reason}; stop that, or set another port ({variable}=0: any free one)") from error


def url_host(host: str, name: str | None = None) -> str:
    """Format a host for a URL. `name` replaces a wildcard address: it is the name that remote clients use."""
    if host in ("0.0.0.0", "::"):  # noqa: S104 - every address is this machine's, too; localhost is in our certificates
        host = name or "localhost"
    return f"[{host}]" if ":" in host else host
