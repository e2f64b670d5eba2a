"""The clients: which identities there are, what they may do, how they register."""

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
from edge.security.store import Store

State = Literal["allowed", "invited", "registered", "trusted", "revoked", "damaged"]
"""allowed: whoever says this name may register, once. invited: who has the code. trusted: it has another issuer.
damaged: its row in the file is not what was written; it is refused until it is revoked and allowed again."""

_log = logging.getLogger(__name__)

_IDENTITY: Final = re.compile(r"[\w.:@/+-]{1,200}", re.ASCII)
_LONGEST_NAME: Final = 200
_RIGHTS: Final = "actions, read, write, publish, receive, priority"
_SECRET: Final = row_checksums.COLUMNS["client"].index("secret")
_REMEDY: Final = "Revoke it (edge clients revoke), allow it again (edge clients allow), and have it register"


class NoSuchClient(EdgeError):
    """An identity that nobody has."""

    error: ClassVar[str] = "no_such_client"
    status_code: ClassVar[int] = 404


@dataclass(frozen=True, slots=True)
class Rights:
    """What a client may do.

    Actions; IRIs of the graphs it may see and change ("" is the default graph); filters of the MQTT topics it may
    publish to and hear. Where nothing is said of topics, they go with the default graph, where readings are.
    """

    actions: frozenset[Action] = ACTIONS - {"administer"}
    read: frozenset[str] | None = None
    """None: all graphs."""
    write: frozenset[str] | None = None
    publish: frozenset[str] | None = None
    """None: all topics, for who may update the default graph."""
    receive: frozenset[str] | None = None
    """None: all topics, for who may query the default graph or subscribe to it."""
    priority: Priority = "normal"
    """Whether its requests go before others that wait, or after them."""

    def topics(self) -> tuple[frozenset[str] | None, frozenset[str] | None]:
        """What it may publish to and hear; None: all."""
        publish, receive = self.publish, self.receive
        if publish is None and not ("update" in self.actions and _has_default(self.write)):
            publish = frozenset()
        if receive is None and not (self.actions & {"query", "subscribe"} and _has_default(self.read)):
            receive = frozenset()
        return publish, receive


@dataclass(frozen=True, slots=True)
class Client:
    """One identity."""

    identity: str
    state: State
    rights: Rights
    client_id: str | None
    since: int
    """When it got into this state, in microseconds since 1970."""

    def access(self, expires: int | None) -> Access:
        """Its rights as requests carry them, until `expires` (microseconds since 1970)."""
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


class Clients:
    """All clients of a gateway. What another process changes counts at once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: tuple[tuple[int, int] | None, dict[str, Client], dict[str, Client]] = None, {}, {}

    def ends(self) -> dict[str, int]:
        """Until when the code of an invited client is good, or the last token that was handed out for one.

        Microseconds since 1970, by identity.
        """
        found = (
            "SELECT identity, coalesce(until, token_until) AS ends FROM client LEFT JOIN invitation USING (identity)"
        )
        return dict(self._store.rows(f"{found} WHERE ends IS NOT NULL"))

    def note_token(self, client_id: str, until: int) -> None:
        """A token was handed out that is valid until then, in seconds since 1970."""
        with self._store.change() as connection:
            connection.execute(
                "UPDATE client SET token_until = max(coalesce(token_until, 0), ?) WHERE client_id = ?",
                [_micro(until), client_id],
            )

    def all(self) -> list[Client]:
        """Every client, by identity."""
        return [_client(row) for row in self._store.rows(f"{row_checksums.select('client')} ORDER BY identity")]

    def registered(self) -> dict[str, Client]:
        """Clients that can have tokens, by client id. Any thread."""
        return self._current()[0]

    def foreign(self, identity: str) -> Client | None:
        """What was said here of a client of another issuer; None: nothing."""
        return self._current()[1].get(identity)

    def _current(self) -> tuple[dict[str, Client], dict[str, Client]]:
        # What is known and as of when is one value, since several threads ask.
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

    def trust(self, issuer: str, name: str, rights: Rights) -> Client:
        """Let a client of another issuer in, or change what it may do. Its tokens are those of that issuer."""
        identity = foreign(issuer, name)
        with self._store.change() as connection:
            # The same as that of one about whom nothing is said, so that what this gave goes on; another one after the
            # client was revoked, so that it does not.
            client_id = identity if self._state(connection, identity) is None else uuid.uuid4().hex
            _put(connection, identity, "trusted", rights)
            connection.execute(
                "UPDATE client SET client_id = coalesce(client_id, ?) WHERE identity = ?", [client_id, identity]
            )
            return _one(connection, identity)

    def allow(self, identity: str, rights: Rights) -> Client:
        """Let an identity register; one that is registered gets these rights from now on."""
        _check_identity(identity)
        with self._store.change() as connection:
            state: State = "registered" if self._state(connection, identity) == "registered" else "allowed"
            _put(connection, identity, state, rights)
            connection.execute("DELETE FROM invitation WHERE identity = ?", [identity])
            return _one(connection, identity)

    def invite(self, identity: str, rights: Rights, seconds: float) -> str:
        """Let who has the code register as this identity, once and for so long. Returns the code.

        Raises `UnauthorizedClient` where it is registered.
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
        """Whether somebody may still register with that code."""
        found = self._store.rows(
            "SELECT 1 FROM invitation WHERE code = ? AND until > ?", secret.fingerprint(code), _now()
        )
        return bool(found)

    def open(self, rights: Rights, seconds: float) -> None:
        """Let every identity that nobody has register for so long; 0 ends that."""
        with self._store.change() as connection:
            connection.execute("DELETE FROM opening")
            if seconds > 0:
                connection.execute(
                    f"INSERT INTO opening ({_RIGHTS}, until) VALUES (?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
                    [*_written(rights), _now() + _micro(seconds)],
                )

    def revoke(self, identity: str) -> None:
        """End all rights of an identity, its tokens' and its secret's. Raises `NoSuchClient`."""
        with self._store.change() as connection:
            row = _row(connection, identity)
            if row is not None and not row_checksums.is_sound(row):
                connection.execute("DELETE FROM client WHERE identity = ?", [identity])
                _put(connection, identity, "revoked", Rights(frozenset()))
                return
            if row is None:
                if " " in identity:  # all clients of that issuer may come in, but this one
                    _put(connection, identity, "revoked", Rights(frozenset()))
                    return
                raise NoSuchClient(f'There is no client "{identity}"; `edge clients list` shows all')
            connection.execute(
                "UPDATE client SET state = 'revoked', client_id = NULL, secret = NULL, token_until = NULL, since = ? "
                "WHERE identity = ?",
                [_now(), identity],
            )
            connection.execute("DELETE FROM invitation WHERE identity = ?", [identity])

    def register(self, name: str) -> tuple[str, str]:
        """Register an identity, or the one for which `name` is the enrolment code. Returns client id and secret.

        Raises `UnauthorizedClient`: it is told alike whether a name is unknown, taken or revoked.
        """
        password, client_id = secret.new_secret(), uuid.uuid4().hex
        kept = secret.hashed(password)
        with self._store.change() as connection:
            identity = self._registering(connection, name)
            connection.execute(
                "UPDATE client SET state = 'registered', client_id = ?, secret = ?, since = ? WHERE identity = ?",
                [client_id, kept, _now(), identity],
            )
        return client_id, password

    def authenticate(self, client_id: str, password: str) -> Client:
        """The client with this secret. Raises `InvalidClient`."""
        found = self._store.rows(
            f"{row_checksums.select('client')} WHERE client_id = ? AND state = 'registered'", client_id
        )
        rows = list(filter(row_checksums.is_sound, found))
        kept = rows[0][_SECRET] if rows else secret.NOBODY
        if not secret.matches(password, kept) or not rows:
            raise InvalidClient("This client is not known, or its secret is wrong; register first")
        return _client(rows[0])

    def _registering(self, connection: sqlite3.Connection, name: str) -> str:
        invitation = connection.execute(
            "DELETE FROM invitation WHERE code = ? RETURNING code, identity, until, crc", [secret.fingerprint(name)]
        ).fetchone()
        if invitation is not None and row_checksums.is_sound(invitation) and invitation[2] > _now():
            self._state(connection, invitation[1])  # raises where the client is damaged
            return str(invitation[1])
        state = self._state(connection, name)
        if state == "allowed":
            return name
        opening = connection.execute(row_checksums.select("opening")).fetchone()
        if state is None and opening is not None and row_checksums.is_sound(opening) and opening[-2] > _now():
            _check_identity(name)
            _put(connection, name, "allowed", _rights(opening[:-2]))
            return name
        raise UnauthorizedClient(
            "This identity may not register: it is not allowed to, or it has done so before. Who runs the gateway can "
            "allow it: edge clients allow, edge clients invite"
        )

    def _state(self, connection: sqlite3.Connection, identity: str) -> State | None:
        """The state of a client; None: there is none. Raises `UnauthorizedClient` where it is damaged."""
        row = _row(connection, identity)
        if row is not None and not row_checksums.is_sound(row):
            raise UnauthorizedClient(f'What is stored of the client "{identity}" is damaged. {_REMEDY}')
        return None if row is None else row[1]


def foreign(issuer: str, name: str) -> str:
    """The identity of a client of another issuer. Nobody registers as one: identities have no space, nor have issuers.

    Raises `InvalidRequest`.
    """
    if not 0 < len(name) <= _LONGEST_NAME or not name.isprintable():
        raise InvalidRequest("The name of a client of another issuer is 1 to 200 printable characters")
    return f"{issuer} {name}"


def _put(connection: sqlite3.Connection, identity: str, state: State, rights: Rights) -> None:
    connection.execute(
        f"INSERT INTO client (identity, state, {_RIGHTS}, since) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) "  # noqa: S608
        "ON CONFLICT (identity) DO UPDATE SET state = excluded.state, actions = excluded.actions, "
        "read = excluded.read, write = excluded.write, publish = excluded.publish, receive = excluded.receive, "
        "priority = excluded.priority, "
        "since = CASE state WHEN excluded.state THEN since ELSE excluded.since END",
        [identity, state, *_written(rights), _now()],
    )


def _one(connection: sqlite3.Connection, identity: str) -> Client:
    row = _row(connection, identity)
    assert row is not None, "it was written just now"  # noqa: S101
    return _client(row)


def _row(connection: sqlite3.Connection, identity: str) -> tuple[Any, ...] | None:
    """All columns of a client, and the checksum."""
    query = f"{row_checksums.select('client')} WHERE identity = ?"
    row: tuple[Any, ...] | None = connection.execute(query, [identity]).fetchone()
    return row


def _client(row: tuple[Any, ...]) -> Client:
    if not row_checksums.is_sound(row):
        return Client(row_checksums.printable(row[0]), "damaged", Rights(frozenset()), None, 0)
    identity, state, *rights, client_id, _, since, _, _ = row
    return Client(identity, state, _rights(rights), client_id, since)


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
