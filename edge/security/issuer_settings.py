"""Settings of an external authorization server whose tokens the gateway accepts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edge.protocol.access import Action

_ALL: Final = "all"


@dataclass(frozen=True, slots=True)
class IssuerSettings:
    """What the operator decides."""

    url: str = ""
    """Its name, as in `iss` of its tokens."""
    jwks_url: str = ""
    jwks_file: Path | None = None
    """Where its keys are: one of the two."""
    ca_file: Path | None = None
    """Authorities that may have signed its certificate, PEM; None: those of the machine."""
    audience: str = "sepa-edge"
    """Whom its tokens must be for."""
    claim: str = "sub"
    """The claim that names the client."""
    algorithms: tuple[str, ...] = ("RS256", "ES256")
    leeway: float = 10.0
    """Seconds by which its clock and ours may differ."""
    refresh: float = 300.0
    """Seconds between two fetches of its keys."""
    keys_for: float = 604_800.0
    """Seconds that keys are used after they were fetched last, or the gateway began with them."""
    actions: tuple[Action, ...] = ()
    """What all its clients may do; none: only those come in that were allowed one by one."""
    read: tuple[str, ...] = (_ALL,)
    write: tuple[str, ...] = (_ALL,)
    """Graphs that they may see and change; "default" is the one without a name."""
