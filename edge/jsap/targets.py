"""Endpoints of the updates and queries of a profile (Listings 13 and 14).

Defaults are those of the reference engine: localhost, http at port 8000 with /query and /update, ws at port 9000 with
/subscribe. A protocol member without a port means the port of its scheme.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from edge.jsap.findings import Findings
from edge.jsap.members import Members
from edge.jsap.names import meant, shown
from edge.jsap.nodes import Node, merged

Method = Literal["GET", "POST", "URLENCODED_POST"]
"""Request form (SPARQL 1.1 Protocol, sections 2.1 and 2.2): in the URL, as the body, as a form."""

Kind = Literal["update", "query"]
Gate = Literal["ws", "wss"]

_METHODS: Final[Mapping[Kind, Mapping[str, Method]]] = {
    "query": {
        "GET": "GET",
        "POST": "POST",
        "URLENCODED_POST": "URLENCODED_POST",
        "URL_ENCODED_POST": "URLENCODED_POST",
    },
    "update": {"POST": "POST", "URLENCODED_POST": "URLENCODED_POST", "URL_ENCODED_POST": "URLENCODED_POST"},
}
_FORMATS: Final[Mapping[Kind, Mapping[str, str]]] = {
    "query": {name: name for name in ("JSON", "XML", "CSV", "TSV")},
    "update": {name: name for name in ("JSON", "HTML")},
}
_GATES: Final[Mapping[str, Gate]] = {"ws": "ws", "wss": "wss"}
# Names, IPv4 addresses, and IPv6 addresses with and without brackets.
_HOST: Final = re.compile(r"[A-Za-z0-9._~-]+|\[[0-9A-Fa-f:.]+\]|[0-9A-Fa-f]*:[0-9A-Fa-f:.]+")
_PATH: Final = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})*")


@dataclass(frozen=True, slots=True)
class Authentication:
    """An OAuth service: URLs for registration and tokens, and the credentials for them."""

    register: str | None = None
    token_request: str | None = None
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    initial_token: str | None = field(default=None, repr=False)
    """Token that permits the registration."""
    username: str | None = None
    """Identity to register."""


@dataclass(frozen=True, slots=True)
class Sparql11Target:
    """A SPARQL 1.1 Protocol endpoint for one update or query."""

    url: str
    method: Method = "POST"
    format: str = "JSON"
    """Format of the answer: JSON, XML, CSV or TSV for queries, JSON or HTML for updates."""
    authentication: Authentication | None = None
    """None: the profile has none for this host."""


@dataclass(frozen=True, slots=True)
class SubscribeTarget:
    """A SPARQL 1.1 Subscribe endpoint."""

    protocol: Gate
    url: str
    reconnect: bool = True
    """Whether to reconnect after a lost connection."""
    authentication: Authentication | None = None
    """None: the profile has none for this host."""


@dataclass(frozen=True, slots=True)
class Targets:
    """Defaults of a profile for all its entries: hosts, protocols and authentication."""

    host: str
    sparql11: Node | None
    sparql11se: Node | None
    authentication: Authentication | None

    @classmethod
    def of(cls, profile: Members, findings: Findings) -> Targets:
        """Parse and check the members of Listing 12."""
        host = _host(profile, "localhost")
        sparql11, sparql11se = profile.node("sparql11protocol"), profile.node("sparql11seprotocol")
        security = Members(sparql11se, findings).node("security")
        oauth = profile.node("oauth")
        targets = cls(host, sparql11, sparql11se, _authentication(security or oauth, findings))
        nothing = Members(None, findings)
        # Resolve the targets without an entry: problems of the common members are reported even if no entry uses them.
        targets.sparql11_of("query", nothing, findings)
        targets.sparql11_of("update", nothing, findings)
        targets.subscribe_of(nothing, findings)
        return targets

    def sparql11_of(self, kind: Kind, entry: Members, findings: Findings) -> Sparql11Target:
        """Return the endpoint of an update or query, with the overrides of its entry."""
        own = entry.node("sparql11protocol")
        members = Members(merged(self.sparql11, own), findings)
        usual = _host(Members(self.sparql11, findings), self.host)
        host = _host(Members(own, findings), _host(entry, usual))
        members.node("host")
        scheme = members.choice("protocol", {"http": "http", "https": "https"}) or "http"
        port = members.port() or (8000 if self.sparql11 is None else None)
        request = members.object(kind)
        url = _url(scheme, host, port, _path(request, f"/{kind}"))
        method: Method = request.choice("method", _METHODS[kind]) or "POST"
        form = request.choice("format", _FORMATS[kind]) or "JSON"
        request.rest()
        # The members of both kinds are known here; each request reads only one of them.
        members.node("query", "update")
        members.rest()
        return Sparql11Target(url, method, form, self._authentication(entry, host == usual, findings))

    def subscribe_of(self, entry: Members, findings: Findings) -> SubscribeTarget:
        """Return the endpoint for subscriptions to a query, with the overrides of its entry."""
        own = entry.node("sparql11seprotocol")
        node = merged(self.sparql11se, own)
        members = Members(node, findings)
        protocol = _protocol(members, node, findings)
        usual = _gate_host(self.sparql11se, protocol, self.host, findings)
        host = _gate_host(own, protocol, _host(entry, usual), findings)
        gate = members.object("availableProtocols").object(protocol)
        scheme = gate.choice("scheme", _GATES) or _GATES.get(protocol)
        if scheme is None:
            members.wrong("protocol", f"{shown(protocol)} does not name a gate; the gates are: {', '.join(_GATES)}")
            scheme = "ws"
        port = gate.port() or (9000 if node is None else None)
        url = _url(scheme, host, port, _path(gate, "/subscribe"))
        reconnect = members.flag("reconnect")
        # These members are read elsewhere; marking them as known keeps `rest` from reporting them.
        for each, known in ((gate, "host"), (members, "host"), (members, "security")):
            each.node(known)
        gate.rest()
        members.rest()
        return SubscribeTarget(
            scheme, url, reconnect is not False, self._authentication(entry, host == usual, findings)
        )

    def _authentication(self, entry: Members, usual: bool, findings: Findings) -> Authentication | None:
        """Return the profile's credentials for its own hosts. Another host gets only those of the entry."""
        own = _authentication(entry.node("authentication"), findings)
        return own or (self.authentication if usual else None)


def _protocol(members: Members, node: Node | None, findings: Findings) -> str:
    """Return the name of the selected protocol. Both members are mandatory (section 5.3)."""
    if node is None:
        return "ws"
    for name in ("protocol", "availableProtocols"):
        if members.node(name) is None:
            findings.problem(node.problem(f'the member "{name}" is missing'))
    protocol = members.text("protocol")
    available = dict(members.items("availableProtocols"))
    if protocol is None or members.node("availableProtocols") is None:
        return "ws"
    if protocol not in available:
        members.wrong("protocol", f"{shown(protocol)} is not one of the availableProtocols{meant(protocol, available)}")
        return "ws"
    return protocol


def _gate_host(node: Node | None, protocol: str, default: str, findings: Findings) -> str:
    members = Members(node, findings)
    return _host(members.object("availableProtocols").object(protocol), _host(members, default))


def _host(members: Members, default: str) -> str:
    host = members.text("host")
    if host is None:
        return default
    if _HOST.fullmatch(host) is None:
        members.wrong("host", f"{shown(host)} is not a host name or address (protocol, port and path are members)")
        return default
    return host


def _path(members: Members, default: str) -> str:
    path = members.text("path")
    if path is None:
        return default
    if _PATH.fullmatch(path) is None:
        members.wrong("path", f"{shown(path)} is not a path of a URL")
        return default
    return path if path.startswith("/") else f"/{path}"


def _url(scheme: str, host: str, port: int | None, path: str) -> str:
    address = f"[{host}]" if ":" in host and not host.startswith("[") else host
    return f"{scheme}://{address}{'' if port is None else f':{port}'}{path}"


def _authentication(node: Node | None, findings: Findings) -> Authentication | None:
    """Parse `security` (Listing 14), or `oauth` or `authentication` of the reference engine's clients."""
    members = Members(node, findings)
    if node is None or members.flag("enable") is False:
        return None
    registration, token = members.object("registration"), members.object("authentication")
    return Authentication(
        register=members.text("register") or registration.text("endpoint"),
        token_request=members.text("tokenRequest") or token.text("endpoint"),
        client_id=members.text("client_id") or token.text("client_id"),
        client_secret=members.text("client_secret") or token.text("client_secret"),
        initial_token=registration.text("initialAccessToken"),
        username=registration.text("username", "client_id"),
    )
