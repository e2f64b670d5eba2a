"""Clients: identities, permissions, registration."""

from __future__ import annotations

import json
import logging
import re
import sqlite3
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

from edge.protocol.access import ACTIONS, DEFAULT_GRAPH, Access, Action, Priority
from edge.protocol.errors import EdgeError, InvalidClient, InvalidRequest, UnauthorizedClient
from edge.security import row_checksums, secret
from edge.security.client_database import ClientDatabase

State = Literal["allowed", "invited", "registered", "trusted", "revoked", "damaged"]
"""State of a client.

allowed: the first client with this name may register, once. invited: the holder of the code may register. trusted: an
external issuer authenticates it. damaged: its row does not match its checksum; it is refused until it is revoked and
allowed again.
"""

_log = logging.getLogger(__name__)

_IDENTITY: Final = re.compile(r"[\w.:@/+-]{1,200}", re.ASCII)
_LONGEST_NAME: Final = 200
_RIGHTS: Final = "actions, read, write, publish, receive, priority"
_SECRET: Final = row_checksums.COLUMNS["client"].index("secret")
_REMEDY: Final = "Revoke it (edge clients revoke), allow it again (edge clients allow), and have it register"


class NoSuchClient(EdgeError):
    """The identity does not exist."""

    error: ClassVar[str] = "no_such_client"
    status_code: ClassVar[int] = 404


@dataclass(frozen=True, slots=True)
class Rights:
    """Permissions of a client.

    Actions; IRIs of the graphs that it may read and write ("" is the default graph); filters of the MQTT topics that it
    may publish to and receive. Without topic filters the permissions for topics follow those for the default graph,
    which contains the readings.
    """

    actions: frozenset[Action] = ACTIONS - {"administer"}
    read: frozenset[str] | None = None
    """None: all graphs."""
    write: frozenset[str] | None = None
    publish: frozenset[str] | None = None
    """None: all topics if it may update the default graph."""
    receive: frozenset[str] | None = None
    """None: all topics if it may query or subscribe to the default graph."""
    priority: Priority = "normal"
    """Priority of its requests in the queues."""

    def topics(self) -> tuple[frozenset[str] | None, frozenset[str] | None]:
        """Return the topic filters for publishing and receiving; None: all."""
        publish, receive = self.publish, self.receive
        if publish is None and not ("update" in self.actions and _has_default(self.write)):
            publish = frozenset()
        if receive is None and not (self.actions & {"query", "subscribe"} and _has_default(self.read)):
            receive = frozenset()
        return publish, receive


@dataclass(frozen=True, slots=True)
class RegisteredClient:
    """A client with its state and permissions."""

    identity: str
    state: State
    rights: Rights
    client_id: str | None
    since: int
    """Time of its last change of state, in microseconds since 1970."""

    def access(self, expires: int | None) -> Access:
        """Return its permissions as requests carry them, valid until `expires` (microseconds since 1970)."""
        rights = self.rights
        publish, receive = rights.topics()
        return Access(
            self.identity,
            rights.actions,
            rights.read,
            rights.write,
            publish,
            receive,
            expires,
            self.client_id or "",
            rights.priority,
        )


class ClientRegistry:
    """All clients of a gateway. Changes by other processes apply at once."""

    def __init__(self, store: ClientDatabase) -> None:
        self._store = store
        self._known: tuple[tuple[int, int] | None, dict[str, RegisteredClient], dict[str, RegisteredClient]] = (
            None,
            {},
            {},
        )

    def ends(self) -> dict[str, int]:
        """Return the expiry of each invitation, or of the last token issued by an operator, by identity.

        In microseconds since 1970.
        """
        found = (
            "SELECT identity, coalesce(until, token_until) AS ends FROM client LEFT JOIN invitation USING (identity)"
        )
        return dict(self._store.rows(f"{found} WHERE ends IS NOT NULL"))

    def note_token(self, client_id: str, until: int) -> None:
        """Record a token issued by an operator, valid until then, in seconds since 1970."""
        with self._store.change() as connection:
            connection.execute(
                "UPDATE client SET token_until = max(coalesce(token_until, 0), ?) WHERE client_id = ?",
                [_micro(until), client_id],
            )

    def all(self) -> list[RegisteredClient]:
        """Return all clients, by identity."""
        return [_client(row) for row in self._store.rows(f"{row_checksums.select('client')} ORDER BY identity")]

    def registered(self) -> dict[str, RegisteredClient]:
        """Return the clients that can have tokens, by client id. Thread-safe."""
        return self._current()[0]

    def foreign(self, identity: str) -> RegisteredClient | None:
        """Return the local entry of a client of another issuer, or None."""
        return self._current()[1].get(identity)

    def _current(self) -> tuple[dict[str, RegisteredClient], dict[str, RegisteredClient]]:
        # Content and version are one value, because several threads read them.
        version, known = self._store.version, self._known
        if version != known[0]:
            clients = self.all()
            can = [one for one in clients if one.state in ("registered", "trusted")]
            registered = {one.client_id: one for one in can if one.client_id}
            for one in clients:
                if one.state == "damaged":
                    _log.error("security.client_damaged", extra={"client": one.identity, "remedy": _REMEDY})
            self._known = known = version, registered, {one.identity: one for one in clients if " " in one.identity}
        return known[1:]

    def trust(self, issuer: str, name: str, rights: Rights) -> RegisteredClient:
        """Give a client of another issuer access, or change its permissions. That issuer provides its tokens."""
        identity = foreign(issuer, name)
        with self._store.change() as connection:
            # The client id is that of a client without an entry, so that its subscriptions and timers continue. After
            # a revocation it is another one, so that they do not.
            client_id = identity if self._state(connection, identity) is None else uuid.uuid4().hex
            _put(connection, identity, "trusted", rights)
            connection.execute(
                "UPDATE client SET client_id = coalesce(client_id, ?) WHERE identity = ?", [client_id, identity]
            )
            return _one(connection, identity)

    def allow(self, identity: str, rights: Rights) -> RegisteredClient:
        """Allow an identity to register, or change the permissions of a registered one."""
        _check_identity(identity)
        with self._store.change() as connection:
            # A registered client keeps its secret and tokens when only its permissions change.
            state: State = "registered" if self._state(connection, identity) == "registered" else "allowed"
            _put(connection, identity, state, rights)
            connection.execute("DELETE FROM invitation WHERE identity = ?", [identity])
            return _one(connection, identity)

    def invite(self, identity: str, rights: Rights, seconds: float) -> str:
        """Create an invitation code, with which a client may register once as this identity. Returns the code.

        The code is valid for `seconds`. Raises `UnauthorizedClient` if the identity is registered.
        """
        _check_identity(identity)
        code = secret.new_code()
        with self._store.change() as connection:
            if self._state(connection, identity) == "registered":
                raise UnauthorizedClient(f'"{identity}" is registered; revoke it first')
            _put(connection, identity, "invited", rights)
            connection.execute("DELETE FROM invitation WHERE identity = ?", [identity])
            connection.execute(
                "INSERT INTO invitation (code, identity, until) VALUES (?, ?, ?)",
                [secret.fingerprint(code), identity, _now() + _micro(seconds)],
            )
        return code

    def awaits(self, code: str) -> bool:
        """Return whether the code is still valid."""
        found = self._store.rows(
            "SELECT 1 FROM invitation WHERE code = ? AND until > ?", secret.fingerprint(code), _now()
        )
        return bool(found)

    def open(self, rights: Rights, seconds: float) -> None:
        """Allow all new identities to register for `seconds`; 0 ends this."""
        with self._store.change() as connection:
            connection.execute("DELETE FROM opening")
            if seconds > 0:
                connection.execute(
                    f"INSERT INTO opening ({_RIGHTS}, until) VALUES (?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
                    [*_written(rights), _now() + _micro(seconds)],
                )

    def opening(self) -> tuple[Rights, int] | None:
        """Return with which permissions all new identities may register, and until when; None: they may not.

        The time is in microseconds since 1970.
        """
        return _opening(self._store.rows(row_checksums.select("opening")))

    def revoke(self, identity: str) -> None:
        """Revoke an identity with its tokens and its secret. Raises `NoSuchClient`."""
        with self._store.change() as connection:
            row = _row(connection, identity)
            # A damaged row cannot be trusted in any column, so it is replaced as a whole.
            if row is not None and not row_checksums.is_sound(row):
                connection.execute("DELETE FROM client WHERE identity = ?", [identity])
                _put(connection, identity, "revoked", Rights(frozenset()))
                return
            if row is None:
                if " " in identity:  # all clients of that issuer have access, except this one
                    _put(connection, identity, "revoked", Rights(frozenset()))
                    return
                raise NoSuchClient(f'Client "{identity}" does not exist; `edge clients list` shows all')
            connection.execute(
                "UPDATE client SET state = 'revoked', client_id = NULL, secret = NULL, token_until = NULL, since = ? "
                "WHERE identity = ?",
                [_now(), identity],
            )
            connection.execute("DELETE FROM invitation WHERE identity = ?", [identity])

    def register(self, name: str) -> tuple[str, str]:
        """Register an identity, or the one of an invitation code. Returns client id and secret.

        Raises `UnauthorizedClient`, with the same message for unknown, taken and revoked names, so that names cannot be
        probed.
        """
        # A new client id for each registration: tokens and timers of a revoked one never match it.
        password, client_id = secret.new_secret(), uuid.uuid4().hex
        kept = secret.hashed(password)
        with self._store.change() as connection:
            identity = self._registering(connection, name)
            connection.execute(
                "UPDATE client SET state = 'registered', client_id = ?, secret = ?, since = ? WHERE identity = ?",
                [client_id, kept, _now(), identity],
            )
        return client_id, password

    def authenticate(self, client_id: str, password: str) -> RegisteredClient:
        """Return the client with this secret. Raises `InvalidClient`."""
        found = self._store.rows(
            f"{row_checksums.select('client')} WHERE client_id = ? AND state = 'registered'", client_id
        )
        rows = list(filter(row_checksums.is_sound, found))
        # Hash also for unknown clients: the response time must not reveal which ids exist.
        kept = rows[0][_SECRET] if rows else secret.NOBODY
        if not secret.matches(password, kept) or not rows:
            raise InvalidClient("This client is not known, or its secret is wrong; register first")
        return _client(rows[0])

    def _registering(self, connection: sqlite3.Connection, name: str) -> str:
        invitation = connection.execute(
            # Deleted by the same statement that reads it, so two clients cannot use one code.
            "DELETE FROM invitation WHERE code = ? RETURNING code, identity, until, crc",
            [secret.fingerprint(name)],
        ).fetchone()
        if invitation is not None and row_checksums.is_sound(invitation) and invitation[2] > _now():
            self._state(connection, invitation[1])  # raises for a damaged client
            return str(invitation[1])
        state = self._state(connection, name)
        if state == "allowed":
            return name
        opening = _opening(connection.execute(row_checksums.select("opening")).fetchall())
        if state is None and opening is not None:
            _check_identity(name)
            _put(connection, name, "allowed", opening[0])
            return name
        raise UnauthorizedClient(
            "This identity may not register: it is not allowed to, or it has done so before. The gateway's operator "
            "can allow it: edge clients allow, edge clients invite"
        )

    def _state(self, connection: sqlite3.Connection, identity: str) -> State | None:
        """Return the state of a client, or None. Raises `UnauthorizedClient` for a damaged one."""
        row = _row(connection, identity)
        if row is not None and not row_checksums.is_sound(row):
            raise UnauthorizedClient(f'The stored data of the client "{identity}" are damaged. {_REMEDY}')
        return None if row is None else row[1]


def foreign(issuer: str, name: str) -> str:
    """Return the identity of a client of another issuer. No client can register with it, because it contains a space.

    Raises `InvalidRequest`.
    """
    if not 0 < len(name) <= _LONGEST_NAME or not name.isprintable():
        raise InvalidRequest("The name of a client of another issuer is 1 to 200 printable characters")
    return f"{issuer} {name}"


def _opening(rows: Sequence[tuple[Any, ...]]) -> tuple[Rights, int] | None:
    """Return permissions and end of the time in which all may register; None: it is over, or not sound."""
    if not rows or not row_checksums.is_sound(rows[0]):
        return None
    *rights, until, _ = rows[0]
    return (_rights(rights), until) if until > _now() else None


def _put(connection: sqlite3.Connection, identity: str, state: State, rights: Rights) -> None:
    connection.execute(
        f"INSERT INTO client (identity, state, {_RIGHTS}, since) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) "  # noqa: S608
        "ON CONFLICT (identity) DO UPDATE SET state = excluded.state, actions = excluded.actions, "
        "read = excluded.read, write = excluded.write, publish = excluded.publish, receive = excluded.receive, "
        "priority = excluded.priority, "
        "since = CASE state WHEN excluded.state THEN since ELSE excluded.since END",
        [identity, state, *_written(rights), _now()],
    )


def _one(connection: sqlite3.Connection, identity: str) -> RegisteredClient:
    row = _row(connection, identity)
    assert row is not None, "it was written just now"  # noqa: S101
    return _client(row)


def _row(connection: sqlite3.Connection, identity: str) -> tuple[Any, ...] | None:
    """Return all columns of a client, and the checksum."""
    query = f"{row_checksums.select('client')} WHERE identity = ?"
    row: tuple[Any, ...] | None = connection.execute(query, [identity]).fetchone()
    return row


def _client(row: tuple[Any, ...]) -> RegisteredClient:
    if not row_checksums.is_sound(row):
        return RegisteredClient(row_checksums.printable(row[0]), "damaged", Rights(frozenset()), None, 0)
    identity, state, *rights, client_id, _, since, _, _ = row
    return RegisteredClient(identity, state, _rights(rights), client_id, since)


def _rights(row: Sequence[Any]) -> Rights:
    actions, *limits, priority = row
    read, write, publish, receive = map(_limit, limits)
    return Rights(frozenset(json.loads(actions)), read, write, publish, receive, priority)


def _limit(text: str | None) -> frozenset[str] | None:
    return None if text is None else frozenset(json.loads(text))


def _written(rights: Rights) -> list[str | None]:
    limits = (rights.read, rights.write, rights.publish, rights.receive)
    return [json.dumps(sorted(rights.actions)), *map(_as_text, limits), rights.priority]


def _as_text(limit: Iterable[str] | None) -> str | None:
    return None if limit is None else json.dumps(sorted(limit))


def _has_default(graphs: frozenset[str] | None) -> bool:
    return graphs is None or DEFAULT_GRAPH in graphs


def _check_identity(identity: str) -> None:
    if not _IDENTITY.fullmatch(identity):
        raise InvalidRequest("A client identity is 1 to 200 letters, digits and . : @ / + - _")


def _now() -> int:
    return time.time_ns() // 1000


def _micro(seconds: float) -> int:
    return int(seconds * 1_000_000)
