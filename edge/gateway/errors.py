"""Why a gateway does not start, or did not end well."""

from __future__ import annotations

from typing import ClassVar

from edge.protocol.errors import EdgeError


class StartError(EdgeError):
    """The gateway cannot start as it is set up: a port in use, a data directory that cannot be used."""

    error: ClassVar[str] = "start_refused"
    status_code: ClassVar[int] = 503


class StopError(EdgeError):
    """The gateway ended, and not everything that waited was done."""

    error: ClassVar[str] = "stop_failed"
