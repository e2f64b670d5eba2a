"""Who is known by keys: the security contexts of clients (OSCORE, RFC 8613), as the gate sees them."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from typing import Protocol

from edge.gates.coap.requests import TOKEN
from edge.gates.guard import Guard
from edge.protocol.access import Access
from edge.protocol.errors import MissingAuthorization


class SharedKeys(Protocol):
    """What a client and the gateway share to protect messages: an OSCORE security context (RFC 8613, section 3.1)."""

    @property
    def kid(self) -> bytes:
        """The client's Sender ID: it names the context."""

    @property
    def gateway_id(self) -> bytes:
        """The gateway's Sender ID."""

    @property
    def secret(self) -> bytes:
        """Master Secret."""

    @property
    def salt(self) -> bytes:
        """Master Salt."""


class Contexts(Protocol):
    """What knows the security contexts of clients. All methods are called on the event loop, and are quick."""

    def find(self, kid: bytes) -> SharedKeys | None:
        """The context of this name, unless it has ended."""

    def access(self, kid: bytes) -> Access:
        """What the client of this context may do. Raises `InvalidClient`."""

    def reserve(self, kid: bytes, count: int) -> int:
        """Store that so many sequence numbers of the gateway are used. Returns the first of them.

        Raises `InvalidClient`, `StorageFailed`.
        """


class ContextGuard:
    """The guard of a gate that takes protected requests, too: which context opened one says what its client may do."""

    def __init__(self, guard: Guard, contexts: Contexts) -> None:
        self._guard = guard
        self.contexts = contexts
        self._secret = secrets.token_urlsafe(32)

    def authorization(self, kid: bytes) -> str:
        """What stands for a token in requests that this context opened. It never leaves this process."""
        return f"{self._secret}.{kid.hex()}"

    def access(self, authorization: str | None) -> Access:
        """What the client may do: by its context, or else by its token. Raises what `Guard.access` does."""
        secret, _, kid = (authorization or "").rpartition(".")
        if hmac.compare_digest(secret.encode(), self._secret.encode()):
            return self.contexts.access(bytes.fromhex(kid))
        if not authorization:
            raise MissingAuthorization(
                f"A token is needed, in the option {int(TOKEN)}; or keys: this request was not protected with OSCORE"
            )
        return self._guard.access(authorization)

    def watch(self, client: str, revoked: Callable[[], None]) -> Callable[[], None]:
        """As `Guard.watch`; a context that ends is a change of rights."""
        return self._guard.watch(client, revoked)
