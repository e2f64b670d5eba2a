"""Services that all gates share to serve clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from edge.gates.engine_interface import SessionEngine
from edge.gates.guard import Guard
from edge.gates.rate_limit import RateLimit
from edge.gates.resume import ResumeRegistry

if TYPE_CHECKING:
    from edge.security.tls import Tls


@dataclass(frozen=True)
class ClientServices:
    """The engine of client sessions, permissions, rate limits, suspended subscriptions, and TLS."""

    sessions: SessionEngine
    guard: Guard
    rate_limit: RateLimit
    resume_registry: ResumeRegistry
    tls: Tls | None
    """Certificate of the secure ports; None without security."""
