"""All of it put together: what the gateway opens, and the commands that look after clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edge.protocol.errors import UnauthorizedClient
from edge.security.authority import Authority
from edge.security.clients import Clients, NoSuchClient, State
from edge.security.guard import TokenGuard
from edge.security.issuer import Issuer
from edge.security.issuer_settings import IssuerSettings
from edge.security.keys import Keys
from edge.security.oscore import Contexts, NoSuchContext, SharedContext
from edge.security.store import Store
from edge.security.tokens import Tokens


@dataclass(frozen=True, slots=True)
class SecuritySettings:
    """What the operator decides."""

    token_lifetime: int = 3600
    """Seconds that a token is valid."""
    audience: str = "sepa-edge"
    """Whom tokens are for."""
    key_rotation: float = 30 * 86_400.0
    """Seconds that a key signs tokens; then there is a new one."""
    issuers: tuple[IssuerSettings, ...] = ()
    """Other authorisation servers whose tokens count."""


_WHY_NOT: Final[Mapping[State, str]] = {
    "invited": '"{0}" is invited; it has not registered yet. Once it has, with its code, it can have this',
    "damaged": 'What is stored of "{0}" is damaged: edge clients revoke {0}, then edge clients allow {0}',
    "revoked": '"{0}" was revoked; edge clients allow {0} lets it in again',
}


class Security:
    """Clients, keys and tokens of one data directory."""

    def __init__(self, data_dir: Path, settings: SecuritySettings) -> None:
        """Raises `StoreRefused`. The first time it makes a key, which takes up to a second."""
        self._store = store = Store(data_dir)
        self.clients = Clients(store)
        self.keys = Keys(store, rotate_after=settings.key_rotation, lifetime=settings.token_lifetime)
        self.issuers = {one.url: Issuer(one, data_dir, lambda: self.tokens.forget_others()) for one in settings.issuers}
        self.tokens = Tokens(
            self.keys,
            issuer=store.issuer,
            audience=settings.audience,
            lifetime=settings.token_lifetime,
            others=self.issuers,
        )
        self.contexts = Contexts(store, self.clients)
        self.guard = TokenGuard(self.clients, self.tokens, self.contexts, self.issuers)
        self.authority = Authority(self.clients, self.keys, self.tokens)

    def token(self, identity: str, lifetime: int | None) -> str:
        """A token, valid for so many seconds, of a client that is registered, or of one that is allowed to.

        Raises `NoSuchClient`, `UnauthorizedClient`.
        """
        client_id = self._client_id(identity)
        issued = self.tokens.issue(client_id, lifetime)
        self.clients.note_token(client_id, issued.expires)
        return issued.token

    def share(self, identity: str) -> SharedContext:
        """A new security context of such a client (OSCORE); the one that it has ends.

        Raises `NoSuchClient`, `UnauthorizedClient`.
        """
        return self.contexts.make(self._client_id(identity))

    def unshare(self, identity: str) -> None:
        """End the security context of a client. Raises `NoSuchContext`."""
        by_identity = {client.identity: client.client_id for client in self.clients.registered().values()}
        if not self.contexts.end(by_identity.get(identity) or ""):
            raise NoSuchContext(f'The client "{identity}" has no OSCORE keys')

    def _client_id(self, identity: str) -> str:
        client = next((one for one in self.clients.all() if one.identity == identity), None)
        if client is None:
            raise NoSuchClient(f'There is no client "{identity}"; `edge clients list` shows all')
        if client.client_id:
            return client.client_id
        if client.state != "allowed":
            raise UnauthorizedClient(_WHY_NOT[client.state].format(identity))
        client_id, _ = self.clients.register(identity)  # nobody is told the secret
        return client_id

    def close(self) -> None:
        """Close the file."""
        self._store.close()
