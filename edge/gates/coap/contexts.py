"""Interface of OSCORE security contexts (RFC 8613) for the gate."""

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
    """Keys shared by a client and the gateway: an OSCORE security context (RFC 8613, section 3.1)."""

    @property
    def kid(self) -> bytes:
        """The client's Sender ID, which identifies the context."""

    @property
    def gateway_id(self) -> bytes:
        """The gateway's Sender ID."""

    @property
    def secret(self) -> bytes:
        """Master Secret."""

    @property
    def salt(self) -> bytes:
        """Master Salt."""


class SecurityContexts(Protocol):
    """The security contexts of all clients. All methods are called on the event loop; they must be fast."""

    def find(self, kid: bytes) -> SharedKeys | None:
        """Return the context with this id, unless it has ended."""

    def access(self, kid: bytes) -> Access:
        """Return the permissions of this context's client. Raises `InvalidClient`."""

    def reserve(self, kid: bytes, count: int) -> int:
        """Reserve `count` sequence numbers of the gateway on disk. Returns the first one.

        Raises `InvalidClient`, `StorageFailed`.
        """


class ContextGuard:
    """Guard of a gate with OSCORE: authenticates a client by the context that decrypted
    its request, or by its token.
    """

    def __init__(self, guard: Guard, contexts: SecurityContexts) -> None:
        self._guard = guard
        self.contexts = contexts
        self._secret = secrets.token_urlsafe(32)

    def authorization(self, kid: bytes) -> str:
        """Return the credential for requests of this context. It is never sent outside this process."""
        return f"{self._secret}.{kid.hex()}"

    def access(self, authorization: str | None) -> Access:
        """Return the client's permissions by context or token. Raises as `Guard.access` does."""
        secret, _, kid = (authorization or "").rpartition(".")
        # In constant time: the response time must not reveal the secret.
        if hmac.compare_digest(secret.encode(), self._secret.encode()):
            return self.contexts.access(bytes.fromhex(kid))
        if not authorization:
            raise MissingAuthorization(
                f"A token is needed, in the option {int(TOKEN)}; or keys: this request was not protected with OSCORE"
            )
        return self._guard.access(authorization)

    def watch(self, client: str, revoked: Callable[[], None]) -> Callable[[], None]:
        """Watch as `Guard.watch` does; the end of a context is a change of permissions."""
        return self._guard.watch(client, revoked)
