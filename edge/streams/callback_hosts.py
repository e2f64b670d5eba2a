"""URLs to which reports may be sent (`streams.callback_hosts`).

Anyone who may observe a query makes the gateway send requests. Without a check, a client could reach services of the
gateway's host and network that it cannot reach itself (server-side request forgery). URLs are checked by name when an
observer registers. Each connection is checked by the address that it goes to, because a name can resolve to another
address later (DNS rebinding).
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from typing import Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

from edge.protocol.errors import Forbidden, InvalidRequest

LONGEST_URL: Final = 2_000
"""Characters of the longest callback URL."""

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

_PORTS: Final = {"http": 80, "https": 443}
_URL: Final = re.compile(r"[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]+")
"""Characters of a URL (RFC 3986, section 2). A parser that removes others reads a different host than the check."""
_HOST_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?")
_NUMBERS: Final = re.compile(r"(0x[0-9a-f]*|[0-9]+)(\.(0x[0-9a-f]*|[0-9]+)){0,3}", re.IGNORECASE)
"""Forms in which `inet_aton` reads an IPv4 address, such as "127.1" and "0x7f000001"."""
_EMBEDDING: Final = tuple(map(ipaddress.IPv6Network, ("64:ff9b::/96", "64:ff9b:1::/48", "::ffff:0:0:0/96", "::/96")))
"""Networks whose last 32 bits are an IPv4 address: NAT64 (RFC 6052, RFC 8215), IPv4-translated addresses (RFC 2765),
and the obsolete form ::192.0.2.1 (RFC 4291, section 2.5.5.1).
"""
_GLOBAL_UNICAST: Final = ipaddress.IPv6Network("2000::/3")
"""Public addresses of IPv6 (RFC 4291, section 2.4). `is_global` also holds for site-local addresses (RFC 3879), and for
networks that are reserved, or were not known when Python was released.
"""
_REMEDY: Final = "Add its host to streams.callback_hosts, or use the URL of a public host"


class CallbackTarget(NamedTuple):
    """Parts of a callback URL."""

    scheme: str
    host: str
    """Name or address, in lower case, without brackets."""
    port: int
    authority: str
    """Value of the header `Host`."""
    path: str
    """Path and query, not empty."""


class CallbackHosts:
    """Hosts to which reports may be sent. Immutable.

    Listed hosts are always allowed. With security, others need a public address. Without security, the gateway serves
    clients of its own host only, and all addresses except multicast are allowed.
    """

    def __init__(self, listed: Iterable[str], *, security: bool) -> None:
        """`listed`: names, addresses and networks, the first two also with a port; "*" allows all. Raises
        `ValueError`.
        """
        self._security = security
        self._all = False
        self._names: set[tuple[str, int | None]] = set()
        self._networks: list[ipaddress.IPv4Network | ipaddress.IPv6Network] = []
        for entry in listed:
            self._add(entry.strip())

    def _add(self, entry: str) -> None:
        if entry == "*":
            self._all = True
        elif "/" in entry:
            try:
                self._networks.append(ipaddress.ip_network(entry))
            except ValueError as error:
                raise ValueError(f'"{entry}" is not a network such as "192.168.0.0/16": {error}') from None
        else:
            self._names.add(_host_and_port(entry))

    def check(self, url: str, name: str = "callback URL") -> CallbackTarget:
        """Return the parts of a URL. Raises `InvalidRequest`, or `Forbidden` if its host is not allowed.

        `name`: name of the URL in errors. Names of hosts are not resolved: `permits` checks the address of each
        connection.
        """
        target = target_of(url, name)
        address = literal(target.host)
        local = target.host == "localhost" or target.host.endswith(".localhost")  # RFC 6761, section 6.3
        if address is None and local:
            address = ipaddress.IPv4Address("127.0.0.1")
        if address is not None and not self.permits(target.host, target.port, address):
            raise Forbidden(f"reports may not be sent to {target.host}: {_kind(address)}. {_REMEDY}")
        return target

    def permits(self, host: str, port: int, address: IPAddress) -> bool:
        """Return whether reports may be sent to a URL with this host and port at this address."""
        if self._all or not self._names.isdisjoint({(host, None), (host, port)}):
            return True
        inner = _inner(address)
        candidates = {str(address), str(inner)}
        if any((text, which) in self._names for text in candidates for which in (None, port)):
            return True
        if any(each in network for network in self._networks for each in (address, inner)):
            return True
        if inner.is_multicast:
            return False
        return not self._security or (address.is_global and _is_public(inner))


def check(url: str, security: bool, listed: Iterable[str]) -> None:
    """Check a callback URL at the registration of an observer. Raises as `CallbackHosts.check`."""
    CallbackHosts(listed, security=security).check(url)


def target_of(url: str, name: str = "callback URL") -> CallbackTarget:
    """Return the parts of a URL of any host. `name`: its name in errors. Raises `InvalidRequest`."""
    if len(url) > LONGEST_URL:
        raise InvalidRequest(f"the {name} is longer than {LONGEST_URL:,} characters. Use a shorter one")
    if not _URL.fullmatch(url):
        raise InvalidRequest(f"the {name} has characters that a URL cannot have. Percent-encode them")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidRequest(f"the {name} is not valid: {error}. Use one such as {_EXAMPLE}") from None
    if parts.scheme not in _PORTS:
        raise InvalidRequest(f"the {name} is not an http or https URL. Use one such as {_EXAMPLE}")
    if "@" in parts.netloc:
        raise InvalidRequest(f"the {name} has credentials. Use a URL without them, such as one with a secret path")
    return CallbackTarget(parts.scheme, *_where(parts, port, name), _path(parts))


_EXAMPLE: Final = "https://example.org/reports"


def _where(parts: SplitResult, port: int | None, name: str) -> tuple[str, int, str]:
    host = (parts.hostname or "").lower()
    if "%" in host or port == 0 or not (_HOST_NAME.fullmatch(host) or _address(host)) or len(host) > 253:
        raise InvalidRequest(f"the {name} has no valid host and port. Use one such as {_EXAMPLE}")
    shown = f"[{host}]" if ":" in host else host
    usual = _PORTS[parts.scheme]
    return host.rstrip("."), port or usual, shown if port in (None, usual) else f"{shown}:{port}"


def _path(parts: SplitResult) -> str:
    path = parts.path or "/"
    return f"{path}?{parts.query}" if parts.query else path


def literal(host: str) -> IPAddress | None:
    """Return the address that a host in a URL is, in any form that resolvers accept; None: it is a name."""
    address = _address(host)
    if address is None and _NUMBERS.fullmatch(host):
        try:
            return ipaddress.IPv4Address(socket.inet_aton(host))
        except OSError:
            return None
    return address


def _address(host: str) -> IPAddress | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _host_and_port(entry: str) -> tuple[str, int | None]:
    host, colon, port = entry.rpartition(":")
    if not colon or _address(entry) is not None or entry.endswith("]"):
        host, port = entry, ""
    host = host.removeprefix("[").removesuffix("]").lower().rstrip(".")
    address = _address(host)
    valid = not colon or not port or (port.isascii() and port.isdigit() and 0 < int(port) < 65_536)
    if not valid or (entry.endswith(":") and address is None) or not (address or _HOST_NAME.fullmatch(host)):
        raise ValueError(f'"{entry}" is neither a host, such as "example.org" or "example.org:8080", nor a network')
    return str(address or host), int(port) if port else None


def _inner(address: IPAddress) -> IPAddress:
    """Return the IPv4 address that packets to an IPv6 address of a transition technology reach, else the address."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if any(address in network for network in _EMBEDDING):
        return ipaddress.IPv4Address(address.packed[-4:])
    return address


def _is_public(inner: IPAddress) -> bool:
    return inner.is_global and (isinstance(inner, ipaddress.IPv4Address) or inner in _GLOBAL_UNICAST)


def _kind(address: IPAddress) -> str:
    inner = _inner(address)
    if inner.is_loopback or inner.is_unspecified or address.is_loopback:
        return "it is the host of the gateway"
    if inner.is_multicast:
        return "it is a multicast address"
    if inner.is_link_local:
        return "it is a link-local address"
    return "it is a private address"
