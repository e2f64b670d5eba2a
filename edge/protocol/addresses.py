"""Checks of addresses: loopback hosts, and URLs to which a token can be sent safely."""

from __future__ import annotations

import ipaddress
from typing import Final
from urllib.parse import urlsplit

_ENCRYPTED: Final = frozenset({"https", "wss", "mqtts"})


def is_loopback(host: str) -> bool:
    """Whether an address is reachable only from this machine."""
    try:
        # RFC 6761, section 6.3, reserves "localhost" for loopback. Other names count as remote, without a DNS request.
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def keeps_secrets(url: str) -> bool:
    """Whether data sent to a URL is encrypted or stays on this machine (RFC 6750, section 5.3)."""
    try:
        parts = urlsplit(url)
        return parts.scheme in _ENCRYPTED or is_loopback(parts.hostname or "")
    except ValueError:
        return False
