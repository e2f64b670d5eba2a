"""Which web pages may talk to the gateway (RFC 6454, "The Web Origin Concept"), and by which names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from edge.listener import is_local
from edge.protocol.errors import InvalidRequest

ANY: Final = "*"
LOOPBACK: Final = "loopback"
"""Among origins: all that are this machine's own, on any port."""


def origin_allowed(origin: str | None, host: str | None, allowed: Sequence[str]) -> bool:
    """Whether a request may be served as far as its page is concerned.

    `origin` is the header of that name: absent when no web page asks. `host` is the header `Host`: pages of the
    gateway's own host name may come from any of its ports. `allowed` are origins, `loopback`, or `*` for all.
    """
    if origin is None or ANY in allowed or origin in allowed:
        return True
    name = _name(origin)
    return bool(name) and ((LOOPBACK in allowed and _is_loopback(name)) or name == _name(f"//{host or ''}"))


def host_allowed(host: str | None, names: Sequence[str]) -> bool:
    """Whether a request without encryption may be served that says it is for this `Host`.

    A page may give its own name the address of this machine (DNS rebinding); to the browser the gateway is then its
    own server. `names` are those that the gateway has beside the machine's own, or `*` for all.
    """
    if host is None or ANY in names:
        return True
    name = _name(f"//{host}")
    return _is_loopback(name) or (bool(name) and name in names)


def wrong_hosts(count: int) -> InvalidRequest:
    """The error for an HTTP/1.1 request with another number of `Host` headers than one (RFC 9112, section 3.2)."""
    number = f"{count} headers" if count else "no header"
    return InvalidRequest(f'The request has {number} "Host"; send exactly one, with the name and port of this server')


def _name(url: str) -> str:
    """The host of a URL in lower case; empty where there is none."""
    try:
        return (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:
        return ""


def _is_loopback(name: str) -> bool:
    return name == "localhost" or name.endswith(".localhost") or is_local(name)
