"""Where the updates and queries of a profile go (Listings 13 and 14)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Method = Literal["GET", "POST", "URLENCODED_POST"]
"""How a request is sent (SPARQL 1.1 Protocol, sections 2.1 and 2.2): in the URL, as the body itself, as a form."""


@dataclass(frozen=True, slots=True)
class Authentication:
    """An OAuth service: where a client registers, where it asks for tokens, and what it shows there."""

    register: str | None = None
    token_request: str | None = None
    client_id: str | None = None
    client_secret: str | None = None
    initial_token: str | None = None
    """What a client shows to be allowed to register."""
    username: str | None = None
    """The identity that it registers."""


@dataclass(frozen=True, slots=True)
class Sparql11Target:
    """A SPARQL 1.1 Protocol endpoint for one update or query."""

    url: str
    method: Method = "POST"
    format: str = "JSON"
    """JSON, XML, CSV or TSV for queries, JSON or HTML for updates: what the answer should be."""
    authentication: Authentication | None = None
    """None: the profile describes none for this host."""


@dataclass(frozen=True, slots=True)
class SubscribeTarget:
    """A SPARQL 1.1 Subscribe endpoint."""

    protocol: Literal["ws", "wss"]
    url: str
    reconnect: bool = True
    """Whether a connection that broke should be made anew."""
    authentication: Authentication | None = None
    """None: the profile describes none for this host."""
