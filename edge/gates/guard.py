"""Interface of authentication and authorization for the gates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from edge.protocol.access import ANYBODY, Access, Action
from edge.protocol.errors import EdgeError, Forbidden
from edge.protocol.messages import Message
from edge.protocol.topics import covers


class Guard(Protocol):
    """Authenticates clients for a gate. All methods are called on the event loop; they must be fast."""

    def access(self, authorization: str | None) -> Access:
        """Return the permissions of the client with this `authorization`: `Bearer <token>`, or the token alone.

        Raises `MissingAuthorization`, `InvalidGrant`, `InvalidClient`, all of them `Unauthorized` (401).
        """

    def watch(self, client: str, revoked: Callable[[], None]) -> Callable[[], None]:
        """Call `revoked` once on the event loop when permissions or tokens of a client may have changed or ended.

        Call this right after `access`, with its `client`. Returns a function that cancels the watch. If permissions
        have only changed, `access` returns the new ones for the same token.
        """


class TokenIssuer(Protocol):
    """Registers clients and issues tokens (OAuth 2.0 client credentials, RFC 6749, section 4.4)."""

    async def register(self, identity: str) -> dict[str, Any]:
        """Register a client. Returns `client_id`, `client_secret`, `signature` (a JWK). Raises `UnauthorizedClient`."""

    async def token(self, client_id: str, password: str) -> dict[str, Any]:
        """Issue a token. Returns `access_token`, `token_type`, `expires_in` (seconds). Raises `InvalidClient`."""


class _Open:
    def access(self, authorization: str | None) -> Access:
        return ANYBODY

    def watch(self, client: str, revoked: Callable[[], None]) -> Callable[[], None]:
        return _nothing


def _nothing() -> None:
    pass


OPEN_GUARD: Final[Guard] = _Open()
"""Guard without security: all clients have all permissions."""

_ACTIONS: Final[dict[str, Action]] = {
    "query": "query",
    "update": "update",
    "subscribe": "subscribe",
    "unsubscribe": "subscribe",
}

_TIMERS: Final = frozenset({"timers", "timer", "cancel"})


def permitted(guard: Guard, request: Message) -> Access:
    """Return the permissions of the client that sent this message.

    Raises `Unauthorized`, or `Forbidden` if the request is not among its permitted actions.
    """
    try:
        access = guard.access(request.authorization)
        if request.kind in _TIMERS:
            check_timers(access)
        else:
            check(access, _ACTIONS[request.kind])
    except EdgeError as error:
        raise error.with_alias(request.alias) from None
    return access


def check(access: Access, action: Action) -> None:
    """Raise `Forbidden` unless the client may perform this action."""
    if action not in access.actions:
        raise Forbidden(f'The client "{access.client}" may not {action}; the operator can allow it')


def check_everything(access: Access, why: str) -> None:
    """Raise `Forbidden` unless the client may do everything. `why`: what could reveal or change any data otherwise."""
    if not access.everything:
        raise Forbidden(f"{why}. So it takes a client with all actions, all graphs and all topics")


def check_publish(access: Access, topic: str) -> None:
    """Raise `Forbidden` unless the client may publish readings on this topic."""
    if access.publish is not None and not any(covers(given, topic) for given in access.publish):
        raise Forbidden(f'The client "{access.client}" may not publish on "{topic}"; the operator can allow it')


def check_timers(access: Access) -> None:
    """Raise `Forbidden` unless the client may access delayed updates, its own or those of others."""
    # Administrators may manage delayed updates without the permission to send updates.
    if not access.operates:
        check(access, "update")
