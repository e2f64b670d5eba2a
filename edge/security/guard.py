"""What the gates ask: who sends this, and when do its rights end?"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from edge.protocol.access import Access
from edge.protocol.errors import EdgeError, Forbidden, InvalidClient, MissingAuthorization
from edge.security.clients import Client, Clients
from edge.security.issuer import Issuer
from edge.security.oscore import Contexts
from edge.security.tokens import Tokens

_BEARER: Final = re.compile(r"(?:bearer\s+)?([\w.+/=-]+)", re.IGNORECASE | re.ASCII)
_LOOK: Final = 0.2
"""Seconds between two looks whether a client was revoked."""
_MICRO: Final = 1_000_000

_log = logging.getLogger(__name__)


class TokenGuard:
    """A guard by tokens. Called on the event loop."""

    def __init__(self, clients: Clients, tokens: Tokens, contexts: Contexts, issuers: Mapping[str, Issuer]) -> None:
        self._clients = clients
        self._tokens = tokens
        self._contexts = contexts
        self._issuers = issuers
        self._watchers: dict[str, _Watched] = {}
        self._ring = tokens.ring

    def access(self, authorization: str | None) -> Access:
        """What the client may do that sent `Bearer <token>`, or the token alone.

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
        """What may be done now by who gave an update that runs later, and no more than it might then. Any thread.

        Raises `InvalidClient`, `Forbidden`.
        """
        identity = given.client
        client = self._foreign(identity) if " " in identity else self._clients.registered().get(given.registration)
        if client is None or client.client_id != given.registration:
            raise InvalidClient(f'The client "{given.client}", who gave this update, was revoked')
        now = client.access(None)
        if "update" not in now.actions:
            raise Forbidden(f'The client "{given.client}", who gave this update, may not update any more')
        return now.narrowed(given)

    def watch(self, client: str, revoked: Callable[[], None]) -> Callable[[], None]:
        """Have `revoked` called, once, when rights or tokens of an identity may have ended. Returns what undoes it."""
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
        """Look, for ever, whether rights have changed."""
        while True:
            await asyncio.sleep(_LOOK)
            try:
                self.look()
            except EdgeError as error:  # what is asked meanwhile is refused
                _log.error("clients.unreadable", extra={"reason": error.description})

    def look(self) -> None:
        """Tell those who watch a client whose rights have changed since they began to.

        All of them where a signing key is gone: they ask again, and see whether it was their token's.
        """
        lost, self._ring = self._ring - self._tokens.ring, self._tokens.ring
        if not self._watchers:
            return
        now = self._standing(self._watchers)
        for identity, watched in list(self._watchers.items()):
            if lost or now[identity] is None or now[identity] != watched.client:
                del self._watchers[identity]
                for revoked in watched.callbacks:
                    revoked()

    def _standing(self, identities: Iterable[str]) -> dict[str, tuple[Client, bytes | None] | None]:
        """Of each, the client and the name of its security context, which may end alone; None: it may not come in."""
        known = {client.identity: client for client in self._clients.registered().values()}
        found = {name: self._foreign(name) if " " in name else known.get(name) for name in identities}
        return {name: None if one is None else (one, self._contexts.kid(one.client_id)) for name, one in found.items()}

    def _foreign(self, identity: str) -> Client | None:
        """A client of another issuer that may come in: as was said here, or as all of that issuer."""
        issuer, said = self._issuers.get(identity.partition(" ")[0]), self._clients.foreign(identity)
        if issuer is None or (said is not None and said.state != "trusted"):
            return None
        return said or issuer.usual(identity)


@dataclass(slots=True)
class _Watched:
    client: tuple[Client, bytes | None] | None
    """As it was when it was first watched."""
    callbacks: list[Callable[[], None]] = field(default_factory=list)
