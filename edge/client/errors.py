"""Exceptions of the client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

RETRY_LATER: Final = 503
"""Status of a broker that starts or stops. It has not executed the request."""

UNAUTHORIZED: Final = 401


class ClientError(Exception):
    """Base class of all exceptions of the client, except `ValueError` and `TypeError` for wrong arguments."""


class Refused(ClientError):
    """The broker refused the request, or failed. The three attributes are those of the protocol."""

    def __init__(self, error: str, description: str, status_code: int) -> None:
        super().__init__(f"{description} ({error}, {status_code})")
        self.error = error
        self.description = description
        self.status_code = status_code

    @classmethod
    def of(cls, message: Mapping[str, Any], status_code: int = 500) -> Refused:
        """Parse an error message: the flat format, or the older one, `{"error": {"body": "..", "code": 500}}`."""
        error = message.get("error")
        if isinstance(error, Mapping):
            return cls("error", str(error.get("body", "")), _status(error.get("code"), status_code))
        description = message.get("error_description") or message.get("body") or error
        return cls(str(error or "error"), str(description), _status(message.get("status_code"), status_code))


class NoAnswer(ClientError, ConnectionError):
    """No answer arrived in time. `sent`: whether the broker may have received and executed the request."""

    def __init__(self, reason: str, *, sent: bool) -> None:
        super().__init__(reason)
        self.sent = sent


class BadAnswer(ClientError):
    """The answer is not valid, or does not match the request."""


class Unsupported(ClientError):
    """The broker does not support the request. It was not sent."""


class Closed(ClientError):
    """The client was closed."""


def _status(value: object, default: int) -> int:
    return value if isinstance(value, int) else default
