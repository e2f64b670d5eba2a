"""The one tree of errors: what a client, an operator or a log line is told when something is refused.

Each class knows its machine-readable name (`error`) and its status (`status_code`, HTTP semantics, used on every
transport). The message form is the flat object of the SPARQL 1.1 Subscribe Language draft, "Error responses".
"""

from __future__ import annotations

import copy
import json
from typing import ClassVar, Self


class EdgeError(Exception):
    """Something was refused or failed; `description` says what happened and what to do about it.

    `alias` is the client's own name for the subscription concerned, `spuid` the engine's: clients that share one socket
    find by them what an error is about.
    """

    error: ClassVar[str] = "internal_error"
    status_code: ClassVar[int] = 500

    def __init__(self, description: str, *, alias: str | None = None, spuid: str | None = None) -> None:
        super().__init__(description)
        self.description = description
        self.alias = alias
        self.spuid = spuid

    def to_message(self) -> dict[str, str | int]:
        """The error as a protocol message (JSON object), with `alias` and `spuid` where they are known."""
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
        """The error as one client is told it. A copy where it differs: an error may go to several clients."""
        if alias is None or self.alias == alias:
            return self
        told = copy.copy(self)
        told.alias = alias
        return told

    def to_json(self) -> str:
        """The error as JSON text, plain ASCII: a client's text that is quoted in it cannot make it unsendable."""
        return json.dumps(self.to_message())


class InvalidRequest(EdgeError):
    """The message itself is wrong: not JSON, a member missing, a member of the wrong type."""

    error = "invalid_request"
    status_code = 400


class ParsingFailed(EdgeError):
    """The SPARQL text is not legal SPARQL 1.1."""

    error = "parsing_failed"
    status_code = 400


class LimitExceeded(ParsingFailed):
    """The SPARQL text is nested deeper, joins more, or is larger than this gateway accepts."""

    error = "limit_exceeded"


class UpdateFailed(EdgeError):
    """A legal update that cannot be carried out as it stands (e.g. CREATE of a graph that exists). Nothing changed."""

    error = "update_failed"
    status_code = 400


class Unauthorized(EdgeError):
    """Nobody knows who asks (RFC 6749, section 5.2; RFC 6750, section 3.1). What `error` is, the classes below say."""

    error = "unauthorized"
    status_code = 401


class MissingAuthorization(Unauthorized):
    """No token came, or none that can be read."""

    error = "invalid_request"


class InvalidGrant(Unauthorized):
    """A token that is forged, expired or not for this gateway."""

    error = "invalid_grant"


class InvalidClient(Unauthorized):
    """A client that is not known, whose secret is wrong, or whose rights have ended."""

    error = "invalid_client"


class UnauthorizedClient(Unauthorized):
    """An identity that may not register, or has registered."""

    error = "unauthorized_client"


class Forbidden(EdgeError):
    """Understood, and not allowed here."""

    error = "forbidden"
    status_code = 403


class NotFound(EdgeError):
    """No such path, subscription or resource."""

    error = "not_found"
    status_code = 404


class MethodNotAllowed(EdgeError):
    """The path exists, the method does not apply to it."""

    error = "method_not_allowed"
    status_code = 405


class NotAcceptable(EdgeError):
    """None of the result formats that the client accepts can be given."""

    error = "not_acceptable"
    status_code = 406


class RequestTimeout(EdgeError):
    """The request took longer than it may."""

    error = "timeout"
    status_code = 408


class UpdateConflict(EdgeError):
    """What an update looks at keeps changing while it is evaluated."""

    error = "update_conflict"
    status_code = 409


class TooLarge(EdgeError):
    """A body or message beyond the configured limit."""

    error = "payload_too_large"
    status_code = 413


class ResultTooLarge(EdgeError):
    """A result beyond the configured limit: it was given up before it was whole."""

    error = "result_too_large"
    status_code = 413


class UnsupportedMediaType(EdgeError):
    """A content type that this resource does not take."""

    error = "unsupported_media_type"
    status_code = 415


class UnsupportedEncoding(UnsupportedMediaType):
    """A body in a content coding (`Content-Encoding`) that is not accepted."""


class UpgradeRequired(EdgeError):
    """A request that does not open a WebSocket, on a port that takes nothing else."""

    error = "upgrade_required"
    status_code = 426


class TooManyRequests(EdgeError):
    """A queue or a limit is full; try again later."""

    error = "too_many_requests"
    status_code = 429

    def __init__(
        self, description: str, *, alias: str | None = None, spuid: str | None = None, retry_after: int | None = None
    ) -> None:
        """`retry_after`: seconds until it is worth while, where that is known."""
        super().__init__(description, alias=alias, spuid=spuid)
        self.retry_after = retry_after

    def to_message(self) -> dict[str, str | int]:
        """See `EdgeError`; with `retry_after` where it is known."""
        message = super().to_message()
        if self.retry_after is not None:
            message["retry_after"] = self.retry_after
        return message


class NotReady(EdgeError):
    """The gateway is starting or stopping."""

    error = "not_ready"
    status_code = 503


class ReadOnly(EdgeError):
    """The journal file is damaged, so that nothing can be stored: queries are answered, nothing else."""

    error = "read_only"
    status_code = 503


class HeaderTooLarge(EdgeError):
    """A request line and header beyond the configured limit."""

    error = "header_too_large"
    status_code = 431


class SubscriptionFailed(EdgeError):
    """A subscribed query can no longer be evaluated; the subscription has ended."""

    error = "subscription_failed"
    status_code = 500


class StorageFailed(EdgeError):
    """The update could not be made durable (disk full, I/O error); it was undone."""

    error = "storage_failed"
    status_code = 507
