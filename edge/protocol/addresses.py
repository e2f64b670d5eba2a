"""Addresses: what stays on this machine, and where a token can be sent that nobody else reads on the way."""

from __future__ import annotations

import ipaddress
from typing import Final
from urllib.parse import urlsplit

_ENCRYPTED: Final = frozenset({"https", "wss", "mqtts"})


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def keeps_secrets(url: str) -> bool:
    """Whether what is sent to a URL is encrypted, or stays on this machine (RFC 6750, section 5.3)."""
    try:
        parts = urlsplit(url)
        return parts.scheme in _ENCRYPTED or is_loopback(parts.hostname or "")
    except ValueError:
        return False
