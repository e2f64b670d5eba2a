"""Errors of the start and the shutdown of the gateway."""

from __future__ import annotations

from typing import ClassVar

from edge.protocol.errors import EdgeError


class StartError(EdgeError):
    """The gateway cannot start with these settings: a port is in use, or the data directory cannot be used."""

    error: ClassVar[str] = "start_refused"
    status_code: ClassVar[int] = 503


class StopError(EdgeError):
    """The gateway stopped before all pending work was done."""

    error: ClassVar[str] = "stop_failed"
