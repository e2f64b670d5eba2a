"""Defects in the work of the announcer: repeated after a back-off, and logged once."""

from __future__ import annotations

import logging
from typing import Final

from edge.backoff import Backoff, Retry

_log = logging.getLogger(__name__)

_BACKOFF: Final = Backoff(1.0, 60.0)
"""Bounds of the wait after a failure, in seconds."""
_MOST: Final = 100
"""Different errors that are logged."""


class WorkFaults:
    """Failures of work that is repeated. Not thread-safe. It reads no clock: `now` is passed in seconds."""

    def __init__(self) -> None:
        self.fault = ""
        """The present failure; empty: none."""
        self.retry_at = 0.0
        """Time from which on the work is repeated."""
        self._retry = Retry(_BACKOFF)
        self._logged: set[str] = set()

    def failed(self, error: Exception, now: float) -> None:
        """Note a failure of the work."""
        self.fault = f"an internal error ({error!r:.200}); the log has announce.fault"
        self.retry_at = now + self._retry.failed()
        self.log(error)

    def succeeded(self) -> None:
        """Note that the work succeeded."""
        self.fault = ""
        self._retry.succeeded()

    def log(self, error: Exception) -> None:
        """Log an error, unless an equal one was logged before."""
        text = repr(error)
        if text not in self._logged and len(self._logged) < _MOST:
            self._logged.add(text)
            _log.error("announce.fault", exc_info=error)
