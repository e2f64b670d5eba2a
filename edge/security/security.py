"""Facade of authentication for the gateway and for the commands that manage clients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from edge.protocol.errors import UnauthorizedClient
from edge.security.authority import Authority
from edge.security.client_database import ClientDatabase
from edge.security.clients import ClientRegistry, NoSuchClient, State
from edge.security.guard import TokenGuard
from edge.security.issuer import Issuer
from edge.security.keys import Keys
from edge.security.oscore import NoSuchContext, OscoreContexts, SharedContext
from edge.security.settings import IssuerSettings, SecuritySettings
from edge.security.tokens import Tokens

_WHY_NOT: Final[Mapping[State, str]] = {
    "invited": '"{0}" is invited; it has not registered yet. Once it has, with its code, it can have this',
    "damaged": 'The stored data of "{0}" are damaged: edge clients revoke {0}, then edge clients allow {0}',
    "revoked": '"{0}" was revoked; edge clients allow {0} gives it access again',
}


class Security:
    """Clients, keys and tokens of one data directory."""

    def __init__(self, data_dir: Path, settings: SecuritySettings, issuers: Iterable[IssuerSettings] = ()) -> None:
        """`issuers`: external authorization servers whose tokens are accepted.

        Raises `StoreRefused`. The first call creates a key, which takes up to a second."""
        self._store = store = ClientDatabase(data_dir)
        self.clients = ClientRegistry(store)
        self.keys = Keys(store, rotate_after=settings.key_rotation, lifetime=settings.token_lifetime)
        self.issuers = {one.url: Issuer(one, data_dir, lambda: self.tokens.forget_others()) for one in issuers}
        self.tokens = Tokens(
            self.keys,
            issuer=store.issuer,
            audience=settings.audience,
            lifetime=settings.token_lifetime,
            others=self.issuers,
        )
        self.contexts = OscoreContexts(store, self.clients)
        self.guard = TokenGuard(self.clients, self.tokens, self.contexts, self.issuers)
        self.authority = Authority(self.clients, self.keys, self.tokens)

    def token(self, identity: str, lifetime: int | None) -> str:
        """Return a token, valid for `lifetime` seconds, of a client that is registered or allowed to register.

        Raises `NoSuchClient`, `UnauthorizedClient`.
        """
        client_id = self._client_id(identity)
        issued = self.tokens.issue(client_id, lifetime)
        self.clients.note_token(client_id, issued.expires)
        return issued.token

    def share(self, identity: str) -> SharedContext:
        """Create a security context of such a client (OSCORE). It replaces an existing one.

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
            raise NoSuchClient(f'Client "{identity}" does not exist; `edge clients list` shows all')
        if client.client_id:
            return client.client_id
        if client.state != "allowed":
            raise UnauthorizedClient(_WHY_NOT[client.state].format(identity))
        client_id, _ = self.clients.register(identity)  # the secret is not disclosed
        return client_id

    @property
    def fault(self) -> str:
        """Why changes of the clients by commands do not arrive; empty if they do."""
        return f"Clients cannot be changed: {self._store.fault}" if self._store.fault else ""

    def close(self) -> None:
        """Close the file."""
        self._store.close()
