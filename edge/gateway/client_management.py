"""Clients and their permissions, as administrators manage them over the HTTP interface."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from edge.protocol.access import Access
from edge.protocol.errors import Forbidden, InvalidRequest, NotFound, UnauthorizedClient
from edge.security import certificates, rights_json
from edge.security.clients import NoSuchClient, RegisteredClient, Rights, foreign
from edge.security.security import Security

_log = logging.getLogger(__name__)

_HERE: Final = "`edge clients` on the gateway can"


class ClientManagement:
    """The clients of a gateway with security. Any thread may call it; one call at a time.

    An administrator manages only clients that may do no more than itself, and cannot shut itself out. Each change is
    logged with the administrator's name. Errors are those of `Security`, `InvalidRequest` and `Forbidden`.
    """

    def __init__(self, security: Security, certificate: Path, authority: Path | None, root: str) -> None:
        """`certificate`: the gateway's own. `authority`: that of its local authority, if that signed it. `root`: root
        of the topics of the MQTT gate.
        """
        self._security = security
        self._certificate = certificate
        self._authority = authority
        self._root = root

    def listed(self) -> Mapping[str, object]:
        """Return `clients`, each with its `rights`, and `opening`: permissions and end of open registration."""
        clients, contexts = self._security.clients, self._security.contexts
        ends, opening, now = clients.ends(), clients.opening(), time.time_ns() // 1000
        return {
            "clients": [
                {
                    "identity": client.identity,
                    "state": "expired" if _is_late(client, ends, now) else client.state,
                    "since": client.since,
                    "until": ends.get(client.identity),
                    "oscore": contexts.kid(client.client_id) is not None,
                    "rights": rights_json.to_json(client.rights),
                }
                for client in clients.all()
            ],
            "opening": opening and {"rights": rights_json.to_json(opening[0]), "until": opening[1]},
        }

    def allow(self, identity: str, rights: object, by: Access) -> None:
        """Allow a client to register, or change the permissions of a client."""
        wanted = self._grantable(rights, by)
        self._check_manageable(identity, by)
        if identity == by.client and "administer" not in wanted.actions:
            raise InvalidRequest(f"You cannot take the right to administer from yourself; {_HERE}")
        issuer, _, name = identity.partition(" ")
        if name:
            self._security.clients.trust(issuer, name, wanted)
        else:
            self._security.clients.allow(identity, wanted)
        _log.info("clients.allowed", extra={"identity": identity, "by": by.client})

    def invite(self, identity: str, rights: object, seconds: int, by: Access) -> str:
        """Return an invitation code, with which a client can register as `identity` once within `seconds`."""
        wanted = self._grantable(rights, by)
        self._check_manageable(identity, by)
        try:
            code = self._security.clients.invite(identity, wanted, seconds)
        except UnauthorizedClient as error:  # for its own requests; the administrator is authorized
            raise InvalidRequest(error.description) from None
        _log.info("clients.invited", extra={"identity": identity, "by": by.client})
        return code

    def open(self, rights: object, seconds: int, by: Access) -> None:
        """Let all new clients register for `seconds`, with these permissions; 0 ends this."""
        opening = self._security.clients.opening()
        if opening is not None and (missing := rights_json.exceeding(opening[0], by, self._root)):
            raise Forbidden(
                f"Registration is open with more than you may do ({missing}), so you cannot end it; {_HERE}"
            )
        self._security.clients.open(self._grantable(rights, by), seconds)
        _log.info("clients.opened", extra={"seconds": seconds, "by": by.client})

    def revoke(self, identity: str, by: Access) -> None:
        """Revoke a client: its tokens, secret, subscriptions, delayed updates and invitation code end."""
        if identity == by.client:
            raise InvalidRequest(f"You cannot revoke yourself; another administrator, or {_HERE}")
        self._check_manageable(identity, by)
        try:
            self._security.clients.revoke(identity)
        except NoSuchClient:
            raise _missing(identity) from None
        _log.info("clients.revoked", extra={"identity": identity, "by": by.client})

    def token(self, identity: str, seconds: int, by: Access) -> str:
        """Return a token of another client, valid for `seconds`."""
        if identity == by.client:
            # A stolen token could make itself a longer one.
            raise InvalidRequest(f"You cannot issue a token for yourself: request one with your secret; {_HERE}")
        self._check_manageable(identity, by)
        try:
            token = self._security.token(identity, seconds)
        except UnauthorizedClient as error:
            raise InvalidRequest(error.description) from None
        except NoSuchClient:
            raise _missing(identity) from None
        _log.info("clients.token_issued", extra={"identity": identity, "seconds": seconds, "by": by.client})
        return token

    def certificate(self) -> Mapping[str, object]:
        """Return the gateway's certificate, and as PEM that of the authority that clients have to trust."""
        authority = None if self._authority is None else self._authority.read_text(encoding="ascii")
        return {**certificates.describe(self._certificate), "authority": authority}

    def _grantable(self, rights: object, by: Access) -> Rights:
        """Return the permissions that the administrator may grant."""
        wanted = rights_json.from_json(rights)
        if missing := rights_json.exceeding(wanted, by, self._root):
            raise Forbidden(f"You can grant only what you may do yourself, not {missing}; {_HERE}")
        return wanted

    def _check_manageable(self, identity: str, by: Access) -> None:
        """Raise an error unless the administrator may manage this client, existing or not."""
        known = next((client for client in self._security.clients.all() if client.identity == identity), None)
        if known is None and " " in identity:
            known = self._usual(identity)
        if known is not None and (missing := rights_json.exceeding(known.rights, by, self._root)):
            raise Forbidden(f'"{identity}" may do more than you ({missing}), so you cannot change it; {_HERE}')

    def _usual(self, identity: str) -> RegisteredClient | None:
        """Return a client of another issuer without an entry, if all its clients have access."""
        issuer, _, name = identity.partition(" ")
        if issuer not in self._security.issuers:
            raise InvalidRequest(f'"{issuer[:100]}" is not the URL of the authorization server (issuer.url)')
        return self._security.issuers[issuer].usual(foreign(issuer, name))


def _missing(identity: str) -> NotFound:
    return NotFound(f'The gateway has no client "{identity[:200]}"; /api/clients lists all')


def _is_late(client: RegisteredClient, ends: Mapping[str, int], now: int) -> bool:
    """Return whether an invitation was not used in time."""
    return client.state == "invited" and ends.get(client.identity, now + 1) <= now
