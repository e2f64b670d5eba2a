"""Access control for the gates: permissions of a request, and the authorization watch."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from edge.protocol.access import Access
from edge.protocol.errors import EdgeError, Forbidden, InvalidClient, MissingAuthorization
from edge.security.clients import ClientRegistry, RegisteredClient
from edge.security.issuer import Issuer
from edge.security.oscore import OscoreContexts
from edge.security.tokens import Tokens

_BEARER: Final = re.compile(r"(?:bearer\s+)?([\w.+/=-]+)", re.IGNORECASE | re.ASCII)
_LOOK: Final = 0.2
"""Seconds between two checks for revoked clients."""
_MICRO: Final = 1_000_000

_log = logging.getLogger(__name__)


class TokenGuard:
    """Guard that authenticates by tokens. Used on the event loop."""

    def __init__(
        self, clients: ClientRegistry, tokens: Tokens, contexts: OscoreContexts, issuers: Mapping[str, Issuer]
    ) -> None:
        self._clients = clients
        self._tokens = tokens
        self._contexts = contexts
        self._issuers = issuers
        self._watchers: dict[str, _Watched] = {}
        self._ring = tokens.ring

    def access(self, authorization: str | None) -> Access:
        """Return the permissions of the client with `Bearer <token>`, or with the bare token.

        Raises `MissingAuthorization`, `InvalidGrant`, `InvalidClient`.
        """
        if not authorization:
            raise MissingAuthorization("A token is needed: authorization: Bearer <token>, from /oauth/token")
        match = _BEARER.fullmatch(authorization.strip())
        if match is None:
            raise MissingAuthorization("The authorization must be: Bearer <token>")
        claims = self._tokens.verify(match[1])
        known = self._foreign if claims.foreign else self._clients.registered().get
        client = known(claims.client_id)
        if client is None:
            raise InvalidClient("The client of this token is not known, or its rights have ended; register again")
        return client.access(claims.expires * _MICRO)

    def rights(self, given: Access) -> Access:
        """Return the current permissions for a delayed update, limited to those at its submission. Thread-safe.

        Raises `InvalidClient`, `Forbidden`.
        """
        identity = given.client
        # Identities of other issuers contain a space, which no registered identity can (`foreign`).
        client = self._foreign(identity) if " " in identity else self._clients.registered().get(given.registration)
        # The identity may have been revoked and registered again by another client.
        if client is None or client.client_id != given.registration:
            raise InvalidClient(f'The client "{given.client}" of this update was revoked')
        now = client.access(None)
        if "update" not in now.actions:
            raise Forbidden(f'The client "{given.client}" of this update may no longer update')
        return now.narrowed(given)

    def watch(self, client: str, revoked: Callable[[], None]) -> Callable[[], None]:
        """Call `revoked` once when permissions or tokens of a client may have ended.

        Returns a function that cancels the watch.
        """
        watched = self._watchers.get(client)
        if watched is None:
            watched = self._watchers[client] = _Watched(self._standing([client])[client])
        watched.callbacks.append(revoked)

        def forget() -> None:
            if revoked in watched.callbacks:
                watched.callbacks.remove(revoked)
            if not watched.callbacks and self._watchers.get(client) is watched:
                del self._watchers[client]

        return forget

    async def run(self) -> None:
        """Check forever for changed permissions."""
        while True:
            await asyncio.sleep(_LOOK)
            try:
                self.look()
            except EdgeError as error:  # requests in the meantime are refused
                _log.error("clients.unreadable", extra={"reason": error.description})

    def look(self) -> None:
        """Notify the watchers of clients whose permissions have changed since the watch began.

        If a signing key was removed, notify all: they authenticate again and so find out whether their token is still
        valid.
        """
        # Even without watchers: a key removed before a watch begins must not notify it.
        lost, self._ring = self._ring - self._tokens.ring, self._tokens.ring
        if not self._watchers:
            return
        now = self._standing(self._watchers)
        for identity, watched in list(self._watchers.items()):
            if lost or now[identity] is None or now[identity] != watched.client:
                # Before the callbacks: they may watch the same client again.
                del self._watchers[identity]
                for revoked in watched.callbacks:
                    revoked()

    def _standing(self, identities: Iterable[str]) -> dict[str, tuple[RegisteredClient, bytes | None] | None]:
        """Return client and OSCORE context name of each identity; None for an identity without access.

        The context may end while the client remains.
        """
        known = {client.identity: client for client in self._clients.registered().values()}
        found = {name: self._foreign(name) if " " in name else known.get(name) for name in identities}
        return {name: None if one is None else (one, self._contexts.kid(one.client_id)) for name, one in found.items()}

    def _foreign(self, identity: str) -> RegisteredClient | None:
        """Return a client of another issuer with access, by its own entry or by the default for that issuer."""
        issuer, said = self._issuers.get(identity.partition(" ")[0]), self._clients.foreign(identity)
        if issuer is None or (said is not None and said.state != "trusted"):
            return None
        return said or issuer.usual(identity)


@dataclass(slots=True)
class _Watched:
    client: tuple[RegisteredClient, bytes | None] | None
    """State at the start of the watch."""
    callbacks: list[Callable[[], None]] = field(default_factory=list)
