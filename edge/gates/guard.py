"""Who may come in: what the gates ask for each message, whatever knows the clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from edge.protocol.access import ANYBODY, Access, Action
from edge.protocol.errors import EdgeError, Forbidden
from edge.protocol.messages import Message
from edge.protocol.topics import covers


class Guard(Protocol):
    """What knows the clients, as a gate sees it. All methods are called on the event loop, and are quick."""

    def access(self, authorization: str | None) -> Access:
        """What the client may do who sent this `authorization`: `Bearer <token>`, or the token alone.

        Raises `MissingAuthorization`, `InvalidGrant`, `InvalidClient`, all of them `Unauthorized` (401).
        """

    def watch(self, client: str, revoked: Callable[[], None]) -> Callable[[], None]:
        """Have `revoked` called on the event loop, once, when a client's rights or tokens may have changed or ended.

        To be called right after `access`, with its `client`. Returns what takes it back. Where rights have only
        changed, `access` of the same token gives the new ones.
        """


class Authority(Protocol):
    """What registers clients and gives them tokens (OAuth 2.0 client credentials, RFC 6749, section 4.4)."""

    async def register(self, identity: str) -> dict[str, Any]:
        """Members `client_id`, `client_secret`, `signature` (a JWK). Raises `UnauthorizedClient`."""

    async def token(self, client_id: str, password: str) -> dict[str, Any]:
        """Members `access_token`, `token_type`, `expires_in` (seconds). Raises `InvalidClient`."""


class _Open:
    def access(self, authorization: str | None) -> Access:
        return ANYBODY

    def watch(self, client: str, revoked: Callable[[], None]) -> Callable[[], None]:
        return _nothing


def _nothing() -> None:
    pass


OPEN_GUARD: Final[Guard] = _Open()
"""Where there is no security: everybody may do everything."""

_ACTIONS: Final[dict[str, Action]] = {
    "query": "query",
    "update": "update",
    "subscribe": "subscribe",
    "unsubscribe": "subscribe",
}

_TIMERS: Final = frozenset({"timers", "timer", "cancel"})


def permitted(guard: Guard, request: Message) -> Access:
    """The access of the client that sent this message.

    Raises `Unauthorized`, and `Forbidden` where what it asks for is not among its actions.
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
    """Raises `Forbidden` where a client may not do this."""
    if action not in access.actions:
        raise Forbidden(f'The client "{access.client}" may not {action}; who runs the gateway can allow it')


def check_publish(access: Access, topic: str) -> None:
    """Raises `Forbidden` where a client may not publish readings on this topic."""
    if access.publish is not None and not any(covers(given, topic) for given in access.publish):
        raise Forbidden(f'The client "{access.client}" may not publish on "{topic}"; who runs the gateway can allow it')


def check_timers(access: Access) -> None:
    """Raises `Forbidden` where a client has no delayed updates to look after: neither its own nor those of others."""
    if not access.operates:
        check(access, "update")
