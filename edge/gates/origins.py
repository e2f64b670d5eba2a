"""Which web pages may talk to the gateway (RFC 6454, "The Web Origin Concept")."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit


def origin_allowed(origin: str | None, host: str | None, allowed: Sequence[str]) -> bool:
    """Whether a request may be served as far as its page is concerned.

    `origin` is the header of that name: absent when no web page asks. `host` is the header `Host`: pages of the
    gateway's own host name may come from any of its ports. `allowed` are origins, or `*` for all.
    """
    if origin is None or "*" in allowed or origin in allowed:
        return True
    try:
        name = urlsplit(origin).hostname
        return name is not None and host is not None and name == urlsplit(f"//{host}").hostname
    except ValueError:
        return False
