"""Checksums of the rows in the client file, so that a flipped bit is noticed and affects one row only.

Triggers update the column `crc` for every statement. An update of a damaged row leaves NULL there, so that the damage
stays visible. The checksums detect accidents, not attacks.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

COLUMNS: Final = {
    "gateway": ("name", "value"),
    "client": (
        *("identity", "state", "actions", "read", "write", "publish", "receive", "priority", "client_id", "secret"),
        *("since", "token_until"),
    ),
    "invitation": ("code", "identity", "until"),
    "opening": ("actions", "read", "write", "publish", "receive", "priority", "until"),
    "signing_key": ("kid", "private", "created", "needed"),
    "oscore": ("number", "client_id", "secret", "salt", "next"),
}
"""Columns of each table. The first one is the key, except in `opening`, which has at most one row."""

_NAMES: Final = {
    "gateway": "the name of the issuer",
    "client": "the client",
    "invitation": "an invitation of",
    "opening": "the open registration",
    "signing_key": "the signing key",
    "oscore": "the OSCORE key",
}


def connect(connection: sqlite3.Connection) -> None:
    """Register the functions that the triggers need.

    Text that is not UTF-8 is read unchanged, so that its row can be named.
    """
    connection.text_factory = _text
    connection.execute("PRAGMA trusted_schema = ON")
    connection.create_function("row_crc", -1, row_crc, deterministic=True)


def add(connection: sqlite3.Connection) -> None:
    """Add the column and its triggers to all tables. Existing rows count as sound."""
    for table, columns in COLUMNS.items():
        key = "rowid" if table == "opening" else columns[0]
        old, new, own = (_arguments(columns, prefix) for prefix in ("OLD.", "NEW.", ""))
        write = f"UPDATE {table} SET crc ="  # noqa: S608
        connection.execute(f"ALTER TABLE {table} ADD COLUMN crc INTEGER")
        connection.execute(f"{write} row_crc({own})")
        connection.execute(
            f"CREATE TRIGGER {table}_inserted AFTER INSERT ON {table} BEGIN "
            f"{write} row_crc({new}) WHERE {key} = NEW.{key}; END"
        )
        connection.execute(
            f"CREATE TRIGGER {table}_updated AFTER UPDATE OF {', '.join(columns)} ON {table} BEGIN "
            f"{write} CASE OLD.crc WHEN row_crc({old}) THEN row_crc({new}) END WHERE {key} = NEW.{key}; END"
        )


def select(table: str) -> str:
    """Return the query of all columns of a table, with the checksum at the end: see `is_sound`."""
    return f"SELECT {', '.join(COLUMNS[table])}, crc FROM {table}"  # noqa: S608 - constants


def is_sound(row: Sequence[Any]) -> bool:
    """Return whether a row matches its checksum. `row`: all columns in their order, and the checksum."""
    return bool(row_crc(*row[:-1]) == row[-1])


def row_crc(*values: object) -> int:
    """Return the checksum of a row. In SQL all values are cast to BLOB."""
    crc = 0
    for value in values:
        content = b"" if value is None else value if isinstance(value, bytes) else _bytes(value)
        crc = zlib.crc32(b"\0" if value is None else b"%d:" % len(content), crc)
        crc = zlib.crc32(content, crc)
    return crc


def damaged_rows(connection: sqlite3.Connection) -> Iterator[str]:
    """Yield the names of damaged rows. Raises `sqlite3.Error` if the file itself is damaged."""
    connect(connection)
    for (fault,) in connection.execute("PRAGMA quick_check"):
        if fault != "ok":
            raise sqlite3.DatabaseError(fault)
    if connection.execute("PRAGMA user_version").fetchone()[0] < VERSION:
        return  # the gateway adds the checksums at its next start
    for table in COLUMNS:
        shown = 1 if table == "invitation" else 0
        for row in connection.execute(select(table)):
            if not is_sound(row):
                yield _NAMES[table] if table == "opening" else f'{_NAMES[table]} "{printable(row[shown])}"'


def damage(file: Path) -> list[str]:
    """Return the names of the damaged rows of a file, without writing to it. Raises `sqlite3.Error`."""
    connection = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
    try:
        return list(damaged_rows(connection))
    finally:
        connection.close()


def printable(text: object) -> str:
    """Return a value of a damaged row in readable form."""
    return _bytes(text).decode("utf-8", "backslashreplace")


VERSION: Final = 5
"""First version of the file with checksums."""


def _arguments(columns: Sequence[str], prefix: str) -> str:
    return ", ".join(f"CAST({prefix}{column} AS BLOB)" for column in columns)


def _bytes(value: object) -> bytes:
    return str(value).encode("utf-8", "surrogateescape")


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")
