"""SQLite file in the data directory with clients and signing keys. Only its owner may read it.

The gateway and the `edge clients` command open it independently. Read access gives full control, so the file has no
password and cannot be reached over the network.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final

from edge.database_files import DatabaseFiles
from edge.protocol.errors import EdgeError, StorageFailed
from edge.security import row_checksums

NAME: Final = "clients.sqlite3"

_SCHEMA: Final = """
CREATE TABLE gateway (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE client (
    identity TEXT PRIMARY KEY,
    state TEXT NOT NULL,         -- allowed, invited, registered, revoked
    actions TEXT NOT NULL,       -- JSON array
    read TEXT,                   -- JSON array of graph IRIs; NULL: all
    write TEXT,
    publish TEXT,                -- JSON array of MQTT topic filters; NULL: as the actions and graphs are
    receive TEXT,
    priority TEXT NOT NULL,      -- high, normal, low
    client_id TEXT UNIQUE,       -- once it is registered
    secret BLOB,
    since INTEGER NOT NULL,      -- microseconds since 1970
    token_until INTEGER          -- the end of the last token that the operator handed out for it
) WITHOUT ROWID;
CREATE TABLE invitation (code BLOB PRIMARY KEY, identity TEXT NOT NULL, until INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE opening (
    actions TEXT NOT NULL, read TEXT, write TEXT, publish TEXT, receive TEXT, priority TEXT NOT NULL,
    until INTEGER NOT NULL
);
CREATE TABLE signing_key (
    kid TEXT PRIMARY KEY,
    private TEXT NOT NULL,       -- PEM
    created INTEGER NOT NULL,    -- microseconds since 1970
    needed INTEGER NOT NULL      -- until when tokens that live longer than others need it
) WITHOUT ROWID;
PRAGMA user_version = 4;
"""

_FROM_1: Final = """
ALTER TABLE client ADD COLUMN publish TEXT;
ALTER TABLE client ADD COLUMN receive TEXT;
ALTER TABLE opening ADD COLUMN publish TEXT;
ALTER TABLE opening ADD COLUMN receive TEXT;
PRAGMA user_version = 2;
"""
"""Migration from version 1, which had no topics."""

_FROM_2: Final = """
ALTER TABLE client ADD COLUMN priority TEXT NOT NULL DEFAULT 'normal';
ALTER TABLE opening ADD COLUMN priority TEXT NOT NULL DEFAULT 'normal';
PRAGMA user_version = 3;
"""
"""Migration from version 2, which had no priorities."""

_FROM_3: Final = """
ALTER TABLE client ADD COLUMN token_until INTEGER;
PRAGMA user_version = 4;
"""
"""Migration from version 3, which did not record issued tokens."""


_FROM_4: Final = """
CREATE TABLE IF NOT EXISTS oscore (
    number INTEGER PRIMARY KEY AUTOINCREMENT,  -- as bytes the client's Sender ID; no number comes twice
    client_id TEXT NOT NULL UNIQUE,            -- a registration: it ends when the client is revoked
    secret BLOB NOT NULL,
    salt BLOB NOT NULL,
    next INTEGER NOT NULL                      -- the gateway has used no sequence number from here on
);
PRAGMA user_version = 5;
"""
"""Migration from version 4, which had no checksums (`row_checksums`)."""

_REMEDY: Final = (
    "Restore a backup (edge restore). Without one move the file away; then no client is known, and each must be "
    "allowed (edge clients allow) and register again"
)


class StoreRefused(EdgeError):
    """The client file cannot be used."""

    error: ClassVar[str] = "clients_unusable"


_GONE: Final = "restart the gateway, and register the clients again or restore a backup"
"""What to do if the files were deleted under a running gateway."""


class ClientDatabase:
    """The open client file. Thread-safe."""

    def __init__(self, data_dir: Path) -> None:
        """Raises `StoreRefused`."""
        self.path = data_dir / NAME
        self._lock = threading.Lock()
        try:
            data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
            self.path.chmod(0o600)
            self._connection = sqlite3.connect(
                self.path, timeout=5.0, isolation_level=None, check_same_thread=False, cached_statements=64
            )
            row_checksums.connect(self._connection)
        except sqlite3.Error as error:
            raise StoreRefused(f"{self.path} cannot be used: {error}. {_REMEDY}") from error
        except OSError as error:
            raise StoreRefused(
                f"{self.path} cannot be used: {error.strerror}. It must be a file that this user may read and write"
            ) from error
        self._own = 0
        try:
            self._open()
            self._files = DatabaseFiles(self.path, _GONE)
        except StoreRefused:
            self._connection.close()
            raise
        except (sqlite3.Error, UnicodeDecodeError) as error:  # SQLite quotes the damaged value, which may not be text
            self._connection.close()
            raise StoreRefused(f"{self.path} cannot be used: {error}. {_REMEDY}") from error

    def _open(self) -> None:
        faults = [fault for (fault,) in self._connection.execute("PRAGMA quick_check(1)")]
        if faults != ["ok"]:
            raise StoreRefused(f"{self.path} is damaged: {faults[0]}. {_REMEDY}")
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        with self._transaction():
            (version,) = self._connection.execute("PRAGMA user_version").fetchone()
            if version == 0:
                self._run(_SCHEMA)
                self._connection.execute("INSERT INTO gateway VALUES ('issuer', ?)", [f"urn:uuid:{uuid.uuid4()}"])
                version = 4
            if version > row_checksums.VERSION:
                raise StoreRefused(f"{self.path} was written by a newer version of the gateway")
            for script in (_FROM_1, _FROM_2, _FROM_3, _FROM_4)[version - 1 :]:
                self._run(script)
            if version < row_checksums.VERSION:
                row_checksums.add(self._connection)

    def _run(self, script: str) -> None:
        for statement in script.split(";\n"):
            self._connection.execute(statement)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    @property
    def fault(self) -> str:
        """Why changes by other processes do not arrive, and own ones would be lost; empty if the file is in place."""
        return self._files.fault

    @property
    def version(self) -> tuple[int, int]:
        """Return a value that changes with each change by any process.

        It takes a few microseconds, so that every request may call it.
        """
        return self.rows("PRAGMA data_version")[0][0], self._own

    @property
    def issuer(self) -> str:
        """Issuer name of this gateway's tokens, created with the file."""
        rows = self.rows(f"{row_checksums.select('gateway')} WHERE name = 'issuer'")
        if not rows or not row_checksums.is_sound(rows[0]):
            raise StoreRefused(f"{self.path} is damaged: the name of the issuer is not what was written. {_REMEDY}")
        return str(rows[0][1])

    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the rows of a query. Raises `StorageFailed`."""
        try:
            with self._lock:
                return self._connection.execute(sql, values).fetchall()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise StorageFailed(f"{self.path} cannot be read: {error}") from error

    @contextmanager
    def change(self) -> Iterator[sqlite3.Connection]:
        """Context manager of a transaction: durable as a whole, or not executed. Raises `StorageFailed`."""
        with self._lock:
            try:
                with self._transaction():
                    yield self._connection
                    if fault := self.fault:
                        raise StorageFailed(f"Nothing was changed: {fault}")
            except sqlite3.Error as error:
                raise StorageFailed(f"{self.path} cannot be written: {error}") from error
            self._own += 1

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
