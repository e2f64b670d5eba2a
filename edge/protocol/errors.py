"""Errors that clients, operators and the log receive when a request is refused or fails.

Each class has a machine-readable name (`error`) and a status (`status_code`, with HTTP semantics on every transport).
The message form is the flat object of the SPARQL 1.1 Subscribe Language draft, "Error responses".
"""

from __future__ import annotations

import copy
import json
from typing import ClassVar, Self


class EdgeError(Exception):
    """A request was refused or failed; `description` names the problem and the remedy.

    `alias` is the client's own name for the subscription, `spuid` the engine's. Clients that share one socket use
    them to find the subscription of an error.
    """

    error: ClassVar[str] = "internal_error"
    status_code: ClassVar[int] = 500

    def __init__(self, description: str, *, alias: str | None = None, spuid: str | None = None) -> None:
        super().__init__(description)
        self.description = description
        self.alias = alias
        self.spuid = spuid

    def to_message(self) -> dict[str, str | int]:
        """Return the error as a protocol message (JSON object), with `alias` and `spuid` if they are known."""
        message: dict[str, str | int] = {
            "error": self.error,
            "error_description": self.description,
            "status_code": self.status_code,
        }
        if self.alias is not None:
            message["alias"] = self.alias
        if self.spuid is not None:
            message["spuid"] = self.spuid
        return message

    def with_alias(self, alias: str | None) -> Self:
        """Return the error with this alias. A copy if the alias differs: the error may go to several clients."""
        if alias is None or self.alias == alias:
            return self
        error = copy.copy(self)
        error.alias = alias
        return error

    def to_json(self) -> str:
        """Return the error as JSON text in ASCII, so that any quoted client text can be sent."""
        return json.dumps(self.to_message())


class InvalidRequest(EdgeError):
    """The message is malformed: not JSON, a missing member, or a member of the wrong type."""

    error = "invalid_request"
    status_code = 400


class ParsingFailed(EdgeError):
    """The SPARQL text is not valid SPARQL 1.1."""

    error = "parsing_failed"
    status_code = 400


class LimitExceeded(ParsingFailed):
    """The SPARQL text is nested too deeply, has too many joins, or is too large."""

    error = "limit_exceeded"


class UpdateFailed(EdgeError):
    """A valid update cannot be executed, e.g. CREATE of an existing graph. Nothing has changed."""

    error = "update_failed"
    status_code = 400


class Unauthorized(EdgeError):
    """The client is not authenticated (RFC 6749, section 5.2; RFC 6750, section 3.1). Subclasses define `error`."""

    error = "unauthorized"
    status_code = 401


class MissingAuthorization(Unauthorized):
    """The token is missing or cannot be parsed."""

    error = "invalid_request"


class InvalidGrant(Unauthorized):
    """The token is forged, expired, or not issued for this gateway."""

    error = "invalid_grant"


class InvalidClient(Unauthorized):
    """The client is unknown or revoked, or its secret is wrong."""

    error = "invalid_client"


class UnauthorizedClient(Unauthorized):
    """The identity may not register, or is registered already."""

    error = "unauthorized_client"


class Forbidden(EdgeError):
    """The client is not permitted to do this."""

    error = "forbidden"
    status_code = 403


class NotFound(EdgeError):
    """There is no such path, subscription or resource."""

    error = "not_found"
    status_code = 404


class MethodNotAllowed(EdgeError):
    """The path exists, but does not support the method."""

    error = "method_not_allowed"
    status_code = 405


class NotAcceptable(EdgeError):
    """The client accepts none of the available result formats."""

    error = "not_acceptable"
    status_code = 406


class RequestTimeout(EdgeError):
    """The request exceeded its time limit."""

    error = "timeout"
    status_code = 408


class UpdateConflict(EdgeError):
    """The data that an update reads keeps changing while the engine evaluates it."""

    error = "update_conflict"
    status_code = 409


class Gone(EdgeError):
    """The resource existed, and will not come back."""

    error = "gone"
    status_code = 410


class PreconditionFailed(EdgeError):
    """A condition of the request does not hold, such as `If-Match`. Nothing has changed."""

    error = "precondition_failed"
    status_code = 412


class TooLarge(EdgeError):
    """A body or message exceeds its size limit."""

    error = "payload_too_large"
    status_code = 413


class ResultTooLarge(EdgeError):
    """A result exceeds its size limit; its evaluation was aborted."""

    error = "result_too_large"
    status_code = 413


class UnsupportedMediaType(EdgeError):
    """The resource does not accept this content type."""

    error = "unsupported_media_type"
    status_code = 415


class UnsupportedEncoding(UnsupportedMediaType):
    """The gateway does not accept this content coding (`Content-Encoding`)."""


class UnprocessableContent(EdgeError):
    """The resource cannot apply the content, although the content is valid (RFC 9110, section 15.5.21)."""

    error = "unprocessable_content"
    status_code = 422


class UpgradeRequired(EdgeError):
    """The request does not open a WebSocket, on a port that accepts only WebSockets."""

    error = "upgrade_required"
    status_code = 426


class TooManyRequests(EdgeError):
    """A queue or a quota is full; try again later."""

    error = "too_many_requests"
    status_code = 429

    def __init__(
        self, description: str, *, alias: str | None = None, spuid: str | None = None, retry_after: int | None = None
    ) -> None:
        """`retry_after`: seconds after which a retry can succeed, if known."""
        super().__init__(description, alias=alias, spuid=spuid)
        self.retry_after = retry_after

    def to_message(self) -> dict[str, str | int]:
        """Return the error as a protocol message, with `retry_after` if it is known."""
        # HTTP has the header Retry-After, too. The other transports have only the message.
        message = super().to_message()
        if self.retry_after is not None:
            message["retry_after"] = self.retry_after
        return message


class NotReady(EdgeError):
    """The gateway is starting or stopping."""

    error = "not_ready"
    status_code = 503


class ReadOnly(EdgeError):
    """The journal file is damaged, so the gateway answers queries only."""

    error = "read_only"
    status_code = 503


class HeaderTooLarge(EdgeError):
    """The request line or the headers exceed their size limit."""

    error = "header_too_large"
    status_code = 431


class SubscriptionFailed(EdgeError):
    """The engine can no longer evaluate a subscribed query; the subscription has ended."""

    error = "subscription_failed"
    status_code = 500


class StorageFailed(EdgeError):
    """The update could not be made durable (disk full, I/O error) and was rolled back."""

    error = "storage_failed"
    status_code = 507
