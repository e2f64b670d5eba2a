"""What a client's request can end in, instead of an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

RETRY_LATER: Final = 503
"""The status of a broker that starts or stops: surely nothing was done."""

UNAUTHORIZED: Final = 401


class ClientError(Exception):
    """The root of all that the client raises, but for wrong arguments (`ValueError`, `TypeError`)."""


class Refused(ClientError):
    """The broker understood and refused, or failed. The three members are those of the protocol."""

    def __init__(self, error: str, description: str, status_code: int) -> None:
        super().__init__(f"{description} ({error}, {status_code})")
        self.error = error
        self.description = description
        self.status_code = status_code

    @classmethod
    def of(cls, message: Mapping[str, Any], status_code: int = 500) -> Refused:
        """From an error message: our flat form, and the older one, `{"error": {"body": "..", "code": 500}}`."""
        error = message.get("error")
        if isinstance(error, Mapping):
            return cls("error", str(error.get("body", "")), _status(error.get("code"), status_code))
        description = message.get("error_description") or message.get("body") or error
        return cls(str(error or "error"), str(description), _status(message.get("status_code"), status_code))


class NoAnswer(ClientError, ConnectionError):
    """No answer came, in time or at all. `sent` tells whether the broker may have got the request, and done it."""

    def __init__(self, reason: str, *, sent: bool) -> None:
        super().__init__(reason)
        self.sent = sent


class BadAnswer(ClientError):
    """An answer that nothing can be made of, or another one than was asked for."""


class Unsupported(ClientError):
    """The broker cannot do this. Nothing was sent to it."""


class Closed(ClientError):
    """The client was closed."""


def _status(value: object, default: int) -> int:
    return value if isinstance(value, int) else default
