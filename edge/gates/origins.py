"""Checks of the request headers `Origin` (RFC 6454, "The Web Origin Concept") and `Host`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from edge.listener import is_local
from edge.protocol.errors import InvalidRequest

ANY: Final = "*"
LOOPBACK: Final = "loopback"
"""Among origins: all origins on this machine, with any port."""

_HOST: Final = re.compile(r"(?:\[[0-9A-Fa-f:.]+(?:%[\w.~%-]+)?\]|[\w.~%!$&'()*+,;=-]+)(?::[0-9]{0,5})?", re.ASCII)
"""A host and perhaps a port (RFC 9112, section 3.2, and RFC 3986, section 3.2.2)."""


def origin_allowed(origin: str | None, host: str | None, allowed: Sequence[str]) -> bool:
    """Whether requests from a page of this origin are allowed.

    `origin` is the header of that name, which only browsers send. `host` is the header `Host`: pages from the
    gateway's own host name are allowed on any port. `allowed`: origins, `loopback`, or `*` for all.
    """
    if origin is None or ANY in allowed or origin in allowed:
        return True
    name = _name(origin)
    # An opaque origin ("null", RFC 6454) has no name, and is refused.
    return bool(name) and ((LOOPBACK in allowed and _is_loopback(name)) or name == _name(f"//{host or ''}"))


def host_allowed(host: str | None, names: Sequence[str]) -> bool:
    """Whether an unencrypted request for this `Host` is allowed.

    A page can assign this machine's address to its own name (DNS rebinding); the browser then treats the gateway as
    the page's own server. `names`: further names of the gateway, or `*` for all.
    """
    if host is None or ANY in names:
        return True
    name = _name(f"//{host}")
    return _is_loopback(name) or (bool(name) and name in names)


def wrong_hosts(hosts: Sequence[str], *, needed: bool = True) -> InvalidRequest | None:
    """Return the error for a request without exactly one valid `Host` header (RFC 9112, section 3.2), if it is one.

    `hosts`: the values of all of them. `needed`: HTTP/1.0 may omit it. A user name or a list is not valid: programs
    disagree on the host in them.
    """
    if len(hosts) == 1:
        if _HOST.fullmatch(hosts[0].strip(" \t")):
            return None
        return InvalidRequest(
            'The header "Host" is not a host name or address, with or without a port; send the name and port of this '
            "server"
        )
    if not hosts and not needed:
        return None
    number = f"{len(hosts)} headers" if hosts else "no header"
    return InvalidRequest(f'The request has {number} "Host"; send exactly one, with the name and port of this server')


def _name(url: str) -> str:
    """Return the host of a URL in lower case; empty without a host."""
    try:
        return (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:
        return ""


def _is_loopback(name: str) -> bool:
    return name == "localhost" or name.endswith(".localhost") or is_local(name)
