"""Remedies for failures of requests, for the users of programs."""

from __future__ import annotations

from typing import Final

from edge.client.errors import UNAUTHORIZED, NoAnswer, NoConnection, Refused

_FORBIDDEN: Final = 403
_REMEDIES: Final = {
    UNAUTHORIZED: "Set EDGE_TOKEN to a token: `edge clients token NAME` on the gateway prints one",
    _FORBIDDEN: "An administrator of the gateway permits it: `edge clients allow NAME --help`",
}
_NOT_RUNNING: Final = "Is the gateway running (`edge run`)? EDGE_URL sets its address"
_NOT_TRUSTED: Final = "Set SSL_CERT_FILE to a copy of DATA_DIR/tls/ca.pem of the gateway"


def remedy(error: Exception) -> str:
    """Return what the user of a program can do about a failure; "" if nothing general helps."""
    if isinstance(error, Refused):
        return _REMEDIES.get(error.status_code, "")
    if isinstance(error, NoConnection) and isinstance(error.__cause__, Refused):
        return remedy(error.__cause__)
    if not isinstance(error, NoAnswer) or error.sent or (isinstance(error, NoConnection) and error.lost):
        return ""
    return _NOT_TRUSTED if "CERTIFICATE_VERIFY_FAILED" in str(error) else _NOT_RUNNING


def explain(error: Exception) -> str:
    """Return the error with a remedy on one line, for the user of a program."""
    return ". ".join(filter(None, (" ".join(str(error).split()).rstrip("."), remedy(error))))


def trying_again(error: Exception) -> str:
    """Return the log line for a failure after which the client tries again."""
    return ". ".join(filter(None, (f"{error}; trying again", remedy(error))))
