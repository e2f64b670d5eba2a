"""Exceptions of the client."""

from __future__ import annotations

import os
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


class NoConnection(NoAnswer):
    """A WebSocket could not be opened, or broke. `__cause__` is the reason; None: the broker closed it normally."""

    def __init__(
        self, url: str, reason: str, *, cause: Exception | None = None, lost: bool = False, close_reason: str = ""
    ) -> None:
        super().__init__(f"no connection to {url}: {reason}", sent=False)
        self.__cause__ = cause
        self.url = url
        self.reason = reason
        self.lost = lost
        """Whether the WebSocket was open before."""
        self.close_reason = close_reason
        """Reason in the broker's close frame (RFC 6455, section 5.5.1), "" if there is none."""


class BadAnswer(ClientError):
    """The answer is not valid, or does not match the request."""


class Unsupported(ClientError):
    """The broker does not support the request. It was not sent."""


class Closed(ClientError):
    """The client was closed."""


def _status(value: object, default: int) -> int:
    return value if isinstance(value, int) else default


def reason(error: BaseException) -> str:
    """Return why a request failed: the operating system's words if there are any, or those of the library."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, BaseExceptionGroup):
            cause = cause.exceptions[0]  # one for each address of the host
        elif isinstance(cause, ConnectionError) and cause.errno:
            return os.strerror(cause.errno)
        else:
            cause = cause.__cause__ or cause.__context__
    return str(error) or type(error).__name__
