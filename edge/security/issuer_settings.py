"""Settings of an external authorization server whose tokens the gateway accepts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edge.protocol.access import Action

_ALL: Final = "all"


@dataclass(frozen=True, slots=True)
class IssuerSettings:
    """Settings of the operator."""

    url: str = ""
    """Issuer identifier, as in `iss` of its tokens."""
    jwks_url: str = ""
    jwks_file: Path | None = None
    """Source of its keys: this file or `jwks_url`."""
    ca_file: Path | None = None
    """Authorities that may sign its certificate, PEM; None: the system's."""
    audience: str = "sepa-edge"
    """Required audience of its tokens."""
    claim: str = "sub"
    """Claim that names the client."""
    algorithms: tuple[str, ...] = ("RS256", "ES256")
    leeway: float = 10.0
    """Accepted clock difference in seconds."""
    refresh: float = 300.0
    """Seconds between two fetches of its keys."""
    keys_for: float = 604_800.0
    """Seconds that keys are used after the last fetch, or after the start of the gateway."""
    actions: tuple[Action, ...] = ()
    """Permissions of all its clients; none: only clients with an entry of their own have access."""
    read: tuple[str, ...] = (_ALL,)
    write: tuple[str, ...] = (_ALL,)
    """Graphs that they may read and write; "default" is the default graph."""
