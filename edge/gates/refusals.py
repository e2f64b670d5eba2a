"""Log lines of refused requests, for all gates: an operator finds attacks, and clients with old tokens."""

from __future__ import annotations

import logging
from typing import Final

from edge.protocol.errors import EdgeError, Forbidden, MissingAuthorization, Unauthorized

_log: Final = logging.getLogger(__name__)


def log_refusal(error: EdgeError, gate: str, address: str, request: str) -> None:
    """Log a refused credential or a forbidden request. Other errors, and requests without a credential, are not logged.

    `address`: origin of the client. `request`: kind of the request, never its content. No token is logged. The handler
    of the log limits the rate of these lines (`edge.log_limit`).
    """
    if isinstance(error, Unauthorized | Forbidden) and not isinstance(error, MissingAuthorization):
        facts = {"gate": gate, "address": address, "request": request[:200]}
        _log.info("access.refused", extra={**facts, "error": error.error, "reason": error.description})
