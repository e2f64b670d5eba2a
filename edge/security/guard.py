"""Access control for the gates: permissions of a request, and the authorization watch."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from edge.protocol.access import Access, Action
from edge.protocol.errors import EdgeError, Forbidden, InvalidClient, MissingAuthorization
from edge.security.clients import ClientRegistry, RegisteredClient
from edge.security.issuer import Issuer
from edge.security.keys import SigningKey
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
        _ = tokens.ring  # read now, so that the log names a damaged key at the start
        self._watched: dict[str, list[_Watched]] = {}
        """By the identity of the client."""
        self._granted: tuple[RegisteredClient, SigningKey | None] | None = None
        """Client and signing key of the last access by a token."""

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
        self._granted = client, claims.key
        return client.access(claims.expires * _MICRO)

    def rights(self, given: Access, action: Action = "update") -> Access:
        """Return the current permissions for a delayed update, or another action that was asked for earlier, limited
        to those at its submission. Thread-safe.

        Raises `InvalidClient`, `Forbidden`.
        """
        identity = given.client
        # Identities of other issuers contain a space, which no registered identity can (`foreign`).
        client = self._foreign(identity) if " " in identity else self._clients.registered().get(given.registration)
        # The identity may have been revoked and registered again by another client.
        if client is None or client.client_id != given.registration:
            raise InvalidClient(f'The client "{given.client}" of this {action} was revoked')
        now = client.access(None)
        if action not in now.actions:
            raise Forbidden(f'The client "{given.client}" of this {action} may no longer {action}')
        return now.narrowed(given)

    def watch(self, client: str, revoked: Callable[[], None]) -> Callable[[], None]:
        """Call `revoked` once when permissions or tokens of a client may have ended.

        Called right after `access`, it watches the rights and the signing key that this access is based on, even if
        another process has changed or removed them meanwhile. Returns a function that cancels the watch.
        """
        granted, self._granted = self._granted, None
        standing, keys = self._standing([client])[client], self._tokens.ring
        if granted is not None and granted[0].identity == client:
            standing = granted[0], self._contexts.kid(granted[0].client_id)
            if granted[1] is not None:
                keys |= {granted[1]}
        all_watched = self._watched.setdefault(client, [])
        if not all_watched or (all_watched[-1].standing, all_watched[-1].keys) != (standing, keys):
            all_watched.append(_Watched(standing, keys))
        watched, key = all_watched[-1], object()
        watched.callbacks[key] = revoked

        def forget() -> None:
            watched.callbacks.pop(key, None)
            present = self._watched.get(client, [])
            if not watched.callbacks and watched in present:
                present.remove(watched)
                if not present:
                    del self._watched[client]

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
        """End the watches of clients whose permissions have changed since the watch began.

        If one of its signing keys was removed or replaced, a watch ends, too: its owner authenticates again, and so
        finds out whether its token is still valid.
        """
        if not self._watched:
            return
        # Keys are compared with those at the start of each watch, and not with those of the last check: a key may come
        # and go between two checks.
        now, ring = self._standing(self._watched), self._tokens.ring
        over: list[_Watched] = []
        for identity, all_watched in list(self._watched.items()):
            left = [each for each in all_watched if each.holds(now[identity], ring)]
            over += [each for each in all_watched if not each.holds(now[identity], ring)]
            # Before the callbacks: they may cancel watches, and watch the same client again.
            if left:
                self._watched[identity] = left
            else:
                del self._watched[identity]
        for watched in over:
            for key in list(watched.callbacks):
                if (revoked := watched.callbacks.pop(key, None)) is not None:
                    revoked()

    def _standing(self, identities: Iterable[str]) -> dict[str, _Standing]:
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


_Standing = tuple[RegisteredClient, bytes | None] | None
"""Client and name of its OSCORE context; None for a client without access."""


@dataclass(slots=True, eq=False)
class _Watched:
    """Watches of one client that began in the same state."""

    standing: _Standing
    keys: frozenset[SigningKey]
    callbacks: dict[object, Callable[[], None]] = field(default_factory=dict)

    def holds(self, standing: _Standing, keys: frozenset[SigningKey]) -> bool:
        """Return whether the client has the same permissions, and all keys of the start are in the ring."""
        return standing is not None and standing == self.standing and self.keys <= keys
