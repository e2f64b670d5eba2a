"""Security contexts that the gateway shares with clients to protect CoAP messages (OSCORE, RFC 8613, section 3).

The keys are symmetric: both sides need them in plain text, so they cannot be stored as hashes. Only the owner of the
client file can read them.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

from edge.protocol.access import Access
from edge.protocol.errors import EdgeError, InvalidClient
from edge.security import row_checksums
from edge.security.client_database import ClientDatabase
from edge.security.clients import ClientRegistry

_log = logging.getLogger(__name__)

_SECRET: Final = 16
_SALT: Final = 8
"""Bytes."""
GATEWAY_ID: Final = b"\0"
"""Sender ID of the gateway in all contexts. Those of clients begin with 1."""


_RATE: Final = 256
"""Sequence numbers a second that no device exceeds on average: 2^40 of them last for 136 years."""
_SINCE: Final = 1_735_689_600
"""2025-01-01, in seconds since 1970."""


class NoSuchContext(EdgeError):
    """The client has no security context."""

    error: ClassVar[str] = "no_such_context"
    status_code: ClassVar[int] = 404


@dataclass(frozen=True, slots=True)
class SharedContext:
    """A security context with the default algorithms of RFC 8613."""

    client_id: str
    kid: bytes
    """Sender ID of the client, which identifies the context."""
    secret: bytes
    salt: bytes
    gateway_id: bytes = GATEWAY_ID


class OscoreContexts:
    """Security contexts of all clients, at most one for each. Changes by other processes apply at once."""

    def __init__(self, store: ClientDatabase, clients: ClientRegistry) -> None:
        self._store = store
        self._clients = clients
        self._version: tuple[int, int] | None = None
        self._by_kid: dict[bytes, SharedContext] = {}
        self._kids: dict[str, bytes] = {}

    def make(self, client_id: str) -> SharedContext:
        """Create a context for a registered client. It replaces an existing one at once."""
        secret, salt = secrets.token_bytes(_SECRET), secrets.token_bytes(_SALT)
        with self._store.change() as connection:
            connection.execute("DELETE FROM oscore WHERE client_id NOT IN (SELECT client_id FROM client "
                               "WHERE client_id IS NOT NULL) OR client_id = ?", [client_id])  # fmt: skip
            (number,) = connection.execute(
                "INSERT INTO oscore (client_id, secret, salt, next) VALUES (?, ?, ?, 0) RETURNING number",
                [client_id, secret, salt],
            ).fetchone()
        return _context((number, client_id, secret, salt))

    def end(self, client_id: str) -> bool:
        """End a client's context. Returns whether there was one."""
        with self._store.change() as connection:
            ended = connection.execute("DELETE FROM oscore WHERE client_id = ?", [client_id]).rowcount
        return ended > 0

    def find(self, kid: bytes) -> SharedContext | None:
        """Return the context with this name, if its client has access."""
        self._load()
        found = self._by_kid.get(kid)
        return found if found is not None and found.client_id in self._clients.registered() else None

    def access(self, kid: bytes) -> Access:
        """Return the permissions of the client of this context. Raises `InvalidClient`."""
        found = self.find(kid)
        if found is None:
            raise InvalidClient(
                "This security context is not known, or has ended; ask the gateway's operator for another"
            )
        return self._clients.registered()[found.client_id].access(None)

    def kid(self, client_id: str | None) -> bytes | None:
        """Return the name of the context of a client."""
        self._load()
        return self._kids.get(client_id or "")

    def reserve(self, kid: bytes, count: int) -> int:
        """Reserve sequence numbers of the gateway on disk before they are used (RFC 8613, appendix B.1.1).

        Returns the first of `count`. Raises `InvalidClient`, `StorageFailed`.
        """
        with self._store.change() as connection:
            row = connection.execute(
                "UPDATE oscore SET next = next + ? WHERE number = ? RETURNING next", [count, int.from_bytes(kid, "big")]
            ).fetchone()
        if row is None:
            raise InvalidClient("This security context has ended")
        return int(row[0]) - count

    def _load(self) -> None:
        version = self._store.version
        if version == self._version:
            return
        found = []
        for row in self._store.rows(row_checksums.select("oscore")):
            if row_checksums.is_sound(row):
                found.append(_context(row[:4]))
            else:
                _log.error("security.oscore_key_damaged", extra={"number": row_checksums.printable(row[0])})
        self._by_kid = {context.kid: context for context in found}
        self._kids = {context.client_id: context.kid for context in found}
        self._version = version


def leap(file: Path, now: float | None = None) -> None:
    """Advance the gateway's sequence numbers in a client file that is an older copy, so that none is used again.

    Reuse of a number with one key breaks the encryption of both messages (RFC 8613, section 7.2). The new numbers
    follow from `now`, in seconds since 1970. If the clock is certainly wrong, the contexts end. Raises `sqlite3.Error`.
    """
    least = int(((time.time() if now is None else now) - _SINCE) * _RATE)
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as connection:
        row_checksums.connect(connection)
        if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'oscore'").fetchone():
            return
        if least < 0:
            connection.execute("DELETE FROM oscore")
        else:
            connection.execute("UPDATE oscore SET next = max(next, ?)", [least])


def _context(row: tuple[Any, ...]) -> SharedContext:
    number, client_id, secret, salt = row
    return SharedContext(client_id, number.to_bytes((number.bit_length() + 7) // 8, "big"), secret, salt)
