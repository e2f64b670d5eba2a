"""The file `edge.sqlite3`: its tables, and how it is created, verified before any write, and read.

Each row of `commits` is the body of one commit, with the sequence number of its first entry as key. `snapshot` has the
sequence number up to which the rows of `snapshot_chunks` contain the graph; commits start right after it. Every row has
a CRC-32 of its content and its key.
"""

from __future__ import annotations

import contextlib
import functools
import sqlite3
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from edge import durable
from edge.engine.journal import codec, write_ahead_log
from edge.engine.journal.data_directory import DATABASE_NAME, DataDamaged, DataDirectoryRefused

FILE_NAME = DATABASE_NAME

APPLICATION_ID = 0x45444745
"""SQLite's application_id of this file: "EDGE"."""

SCHEMA: tuple[str, ...] = (
    """
    CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
    CREATE TABLE commits (first INTEGER PRIMARY KEY, body BLOB NOT NULL, crc INTEGER NOT NULL) STRICT;
    CREATE TABLE snapshot (
        sequence INTEGER PRIMARY KEY, chunks INTEGER NOT NULL, receipts BLOB NOT NULL, crc INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE snapshot_chunks (number INTEGER PRIMARY KEY, body BLOB NOT NULL, crc INTEGER NOT NULL) STRICT;
    """,
    """
    CREATE TABLE timers (
        number INTEGER PRIMARY KEY, id TEXT NOT NULL, due INTEGER NOT NULL, relative INTEGER NOT NULL,
        since INTEGER NOT NULL, scheduled INTEGER NOT NULL, body BLOB NOT NULL, crc INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE timer_outcomes (
        number INTEGER PRIMARY KEY, id TEXT NOT NULL, state TEXT NOT NULL, at INTEGER NOT NULL,
        scheduled INTEGER NOT NULL, finished INTEGER NOT NULL, added INTEGER NOT NULL, removed INTEGER NOT NULL,
        error TEXT, description TEXT
    ) STRICT;
    """,
    """
    ALTER TABLE timers ADD COLUMN owner TEXT NOT NULL DEFAULT '';
    ALTER TABLE timer_outcomes ADD COLUMN owner TEXT NOT NULL DEFAULT '';
    ALTER TABLE timer_outcomes ADD COLUMN client TEXT NOT NULL DEFAULT '';
    """,
    """
    CREATE TABLE subscriptions (
        number INTEGER PRIMARY KEY, spuid TEXT NOT NULL, began INTEGER NOT NULL, body BLOB NOT NULL,
        crc INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE subscription_sequences (
        number INTEGER PRIMARY KEY, sequence INTEGER NOT NULL, crc INTEGER NOT NULL
    ) STRICT;
    """,
    """
    CREATE TABLE outbox (
        seq INTEGER PRIMARY KEY, context INTEGER NOT NULL, body TEXT NOT NULL, crc INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE outbox_contexts (id INTEGER PRIMARY KEY, body TEXT NOT NULL, crc INTEGER NOT NULL) STRICT;
    CREATE TABLE outbox_lost (
        first INTEGER PRIMARY KEY, last INTEGER NOT NULL, start INTEGER NOT NULL, "end" INTEGER NOT NULL,
        reason TEXT NOT NULL
    ) STRICT;
    """,
    """
    CREATE TABLE subscription_positions (
        number INTEGER PRIMARY KEY, journal INTEGER NOT NULL, sequence INTEGER NOT NULL, crc INTEGER NOT NULL
    ) STRICT;
    """,
    """
    -- Small bodies are compressed with a preset dictionary (`codec`), which earlier versions cannot read.
    """,
)
"""Scripts from each format version to the next. For a new table append a script; never change an existing one."""

FORMAT_VERSION = len(SCHEMA)

PAGE_SIZE = 1024
"""Bytes. A commit of one reading writes 5.5 KB to the disk with this size, 6.5 KB with 2 KiB, and 8.5 KB with 4 KiB.

With 512 bytes it would be 5.0 KB, but large commits and snapshots would take twice as many system calls.
"""

LOG_LIMIT = 4 * 1024 * 1024
"""Bytes of the write-ahead log. After a larger commit, SQLite shortens it to this size."""

WAL_PAGES = write_ahead_log.pages_of(LOG_LIMIT, PAGE_SIZE) - 100
"""Pages in the write-ahead log at which SQLite moves them to the file and begins the log again.

They fit into the limit with a usual commit that exceeds the number. Otherwise SQLite would shorten the log and extend
it again in each round.
"""

BUSY_TIMEOUT = 1.0
"""Seconds to wait for another program (a backup, a shell) that has locked the file."""

_KEY = struct.Struct("<qq")
_DAMAGE_CODES = (
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_FORMAT,
    sqlite3.SQLITE_MISMATCH,
    sqlite3.SQLITE_TOOBIG,
)


@dataclass
class Contents:
    """Contents of a verified file. Sequence numbers count entries from 1; sizes are bytes of bodies."""

    sequence: int = 0
    snapshot_sequence: int = 0
    snapshot_bytes: int = 0
    journal_bytes: int = 0
    receipts: list[bytes] = field(default_factory=list)


def checksum(body: bytes, *key: int) -> int:
    """Return the CRC-32 of a row: its body and up to two numbers that form its key."""
    return zlib.crc32(body, zlib.crc32(_KEY.pack(*key, *(0,) * (2 - len(key)))))


def create(path: Path, durability: str) -> None:
    """Create a new file with an empty graph, atomically. Raises `DataDirectoryRefused`."""
    wal = path.with_name(f"{path.name}-wal")
    draft = path.with_name(f"{path.name}.new")
    try:
        if wal.exists() and wal.stat().st_size:
            refuse(path, "is missing while its write-ahead log is there")
        draft.unlink(missing_ok=True)
        with contextlib.closing(sqlite3.connect(draft, isolation_level=None)) as connection:
            connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            upgrade(connection)
            connection.execute("INSERT INTO snapshot VALUES (0, 0, ?, ?)", (b"", checksum(b"", 0, 0)))
            connection.execute("INSERT INTO meta VALUES ('durability', ?)", (durability,))
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
        # The rename makes the file visible only after its content is durable.
        durable.sync_file(draft)
        draft.rename(path)
        durable.sync_directory(path.parent)
    except (OSError, sqlite3.Error) as error:
        raise DataDirectoryRefused(
            f"{path} cannot be created: {error}. The directory must be writable and on a disk with free space."
        ) from error


def upgrade(connection: sqlite3.Connection) -> None:
    """Upgrade the tables to the current format version, from an older one or from none, in one transaction."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if scripts := "".join(SCHEMA[version:]):
        connection.executescript(f"BEGIN IMMEDIATE; {scripts} PRAGMA user_version = {len(SCHEMA)}; COMMIT;")


def connect(path: Path, durability: str) -> sqlite3.Connection:
    """Open a verified file for writing."""
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw",
        uri=True,
        isolation_level=None,
        timeout=BUSY_TIMEOUT,
        check_same_thread=False,
    )
    # A change of durability must itself be durable, because `verify` judges the log by it after a power cut.
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES}").fetchall()
    connection.execute(f"PRAGMA journal_size_limit = {LOG_LIMIT}").fetchall()
    # Some builds of SQLite overwrite deleted data with zeros, which wears out flash storage. Some sort in temporary
    # files.
    connection.execute("PRAGMA secure_delete = OFF").fetchall()
    connection.execute("PRAGMA temp_store = MEMORY")
    upgrade(connection)
    if _durability(connection) != durability:
        connection.execute("UPDATE meta SET value = ? WHERE name = 'durability'", (durability,))
    connection.execute(f"PRAGMA synchronous = {'FULL' if durability == 'commit' else 'NORMAL'}")
    return connection


def empty_log(connection: sqlite3.Connection) -> None:
    """Move the write-ahead log into the file and truncate it, if there is space.

    A power cut during a commit leaves frames in the log that SQLite ignores and overwrites only in part. They have the
    same salts as newer frames, so SQLite cannot distinguish them. A second power cut during a later commit would then
    look like two damaged commits (see `write_ahead_log`), and an intact log would be refused.
    """
    with contextlib.suppress(sqlite3.Error):  # the disk is full: the next start tries again
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def verify(path: Path) -> Contents:
    """Read the whole file and its log without writing. Raises `DataDirectoryRefused` if anything is wrong."""
    wal = path.with_name(f"{path.name}-wal")
    try:
        connection = open_for_reading(path)
        with contextlib.closing(connection):
            connection.execute("BEGIN")
            verify_identity(path, connection)
            _verify_pages(path, connection)
            contents = _verify_snapshot(path, connection)
            _verify_commits(path, connection, contents)
            if _durability(connection) == "commit" and (fault := write_ahead_log.fault(wal)) is not None:
                refuse_damage(path, f"has lost updates: its write-ahead log is damaged, {fault}")
        _verify_versions(path)
        return contents
    except (OSError, sqlite3.Error, UnicodeDecodeError) as error:
        # SQLite quotes the damaged content, which may not be text.
        refuse_error(path, error)


def open_for_reading(path: Path) -> sqlite3.Connection:
    """Open a file and its log strictly read-only. Raises `OSError`, `sqlite3.Error`."""
    wal = path.with_name(f"{path.name}-wal")
    # Without a log nothing can change during the read, so SQLite does not need to create files of its own.
    mode = "mode=ro" if wal.exists() and wal.stat().st_size else "mode=ro&immutable=1"
    uri = f"{path.absolute().as_uri()}?{mode}"
    return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)


def read_snapshot(connection: sqlite3.Connection) -> Iterator[bytes]:
    """Yield the chunks of the snapshot. Raises `ValueError` if a checksum is wrong."""
    (sequence,) = connection.execute("SELECT sequence FROM snapshot").fetchone()
    for number, body, crc in connection.execute("SELECT number, body, crc FROM snapshot_chunks ORDER BY number"):
        if checksum(body, sequence, number) != crc:
            raise ValueError(f"chunk {number} of the snapshot fails its checksum")
        yield body


def read_commits(connection: sqlite3.Connection) -> Iterator[bytes]:
    """Yield the commits since the snapshot. Raises `ValueError` if a checksum is wrong."""
    for first, body, crc in connection.execute("SELECT first, body, crc FROM commits ORDER BY first"):
        if checksum(body, first) != crc:
            raise ValueError(f"the commit of update {first} fails its checksum")
        yield body


def replace_snapshot(connection: sqlite3.Connection, sequence: int, bodies: Iterable[bytes], receipts: bytes) -> int:
    """Replace the old snapshot and all commits by a new snapshot. Must be called in a transaction.

    Returns the bytes of its bodies. The deletions come first, so that their pages are reused.
    """
    connection.execute("DELETE FROM snapshot_chunks")
    connection.execute("DELETE FROM commits")
    connection.execute("DELETE FROM snapshot")
    size = number = 0
    for number, body in enumerate(bodies, 1):
        row = (number, body, checksum(body, sequence, number))
        connection.execute("INSERT INTO snapshot_chunks VALUES (?, ?, ?)", row)
        size += len(body)
    header = (sequence, number, receipts, checksum(receipts, sequence, number))
    connection.execute("INSERT INTO snapshot VALUES (?, ?, ?, ?)", header)
    return size


def refuse(path: Path, fault: str) -> NoReturn:
    """Raise `DataDirectoryRefused` for a file that does not belong to this gateway."""
    raise DataDirectoryRefused(
        f"{path} {fault}. Nothing was changed. Restore a backup of it (edge restore), or start empty by moving it away"
        f" (with {path.name}-wal, where there is one)."
    )


def refuse_damage(path: Path, fault: str) -> NoReturn:
    """Raise `DataDamaged` for a damaged file of this gateway."""
    error = DataDamaged(
        f"{path} {fault}. Nothing was changed. Restore a backup of it (edge restore), keep what can be read of it"
        f" (edge rescue), or start empty by moving it away (with {path.name}-wal, where there is one)."
    )
    error.fault = f"{path} {fault}."
    raise error


def refuse_error(path: Path, error: Exception) -> NoReturn:
    """Raise `DataDirectoryRefused` for an error while the file was read: damage, or no access to the file."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is not None and code & 0xFF == sqlite3.SQLITE_NOTADB:
        refuse(path, "is not an SQLite database, or its beginning is damaged")
    if isinstance(error, OSError) or (code is not None and code & 0xFF not in _DAMAGE_CODES):
        raise DataDirectoryRefused(
            f"{path} cannot be opened: {error}. Nothing was changed. Check its owner and mode, the free space on its"
            " disk, and other programs that use it."
        ) from error
    refuse_damage(path, f"is damaged: {error}")


def verify_identity(path: Path, connection: sqlite3.Connection) -> None:
    """Check that a file belongs to this gateway and its format is not newer. Raises `DataDirectoryRefused`."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        refuse(path, "is not a file of this gateway: it belongs to another application, or its beginning is damaged")
    if version > FORMAT_VERSION:
        refuse(
            path,
            f"was written by a newer version of sepa-edge (format {version}, this one knows up to {FORMAT_VERSION}):"
            " use that version",
        )
    if version < 1:
        refuse(path, f"is damaged: format version {version} does not exist")


def _verify_pages(path: Path, connection: sqlite3.Connection) -> None:
    faults = [fault for (fault,) in connection.execute("PRAGMA quick_check(1)")]
    if faults != ["ok"]:
        refuse_damage(path, f"is damaged: {faults[0]}")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if _tables(connection) != _tables_of_version(version):
        refuse_damage(path, f"is damaged: its tables are not those of format {version}")


def _verify_versions(path: Path) -> None:
    """Check that the header has the format versions of WAL mode. SQLite would write a file with others differently."""
    with path.open("rb") as file:
        versions = file.read(20)[18:]
    if versions != b"\x02\x02":
        refuse_damage(path, f"is damaged: its header has the file format versions {versions.hex(' ')}")


def _tables(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    # Ignore tables that SQLite creates itself, such as statistics.
    query = "SELECT name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
    return list(connection.execute(query))


@functools.cache
def _tables_of_version(version: int) -> list[tuple[str, str]]:
    """Return name and definition of each table of a format version, as SQLite stores them."""
    with contextlib.closing(sqlite3.connect(":memory:")) as model:
        model.executescript("".join(SCHEMA[:version]))
        return _tables(model)


def _verify_snapshot(path: Path, connection: sqlite3.Connection) -> Contents:
    headers = list(connection.execute("SELECT sequence, chunks, receipts, crc FROM snapshot"))
    if len(headers) != 1:
        refuse_damage(path, f"is damaged: it has {len(headers)} snapshots")
    ((sequence, chunks, receipts, crc),) = headers
    if checksum(receipts, sequence, chunks) != crc:
        refuse_damage(path, "is damaged: the head of the snapshot fails its checksum")
    contents = Contents(sequence, sequence)
    contents.receipts = _receipts(path, receipts) if receipts else []
    number = 0
    rows = connection.execute("SELECT number, body, crc FROM snapshot_chunks ORDER BY number")
    for number, (found, body, crc) in enumerate(rows, 1):
        if found != number or checksum(body, sequence, number) != crc:
            refuse_damage(path, f"is damaged: chunk {number} of the snapshot is missing or fails its checksum")
        contents.snapshot_bytes += len(body)
    if number != chunks:
        refuse_damage(path, f"is damaged: the snapshot has {number} chunks of {chunks}")
    return contents


def _verify_commits(path: Path, connection: sqlite3.Connection, contents: Contents) -> None:
    for first, body, crc in connection.execute("SELECT first, body, crc FROM commits ORDER BY first"):
        if first != contents.sequence + 1:
            refuse_damage(path, f"is damaged: update {contents.sequence + 1} is missing")
        if checksum(body, first) != crc:
            refuse_damage(path, f"is damaged: the commit of update {first} fails its checksum")
        receipts = _receipts(path, body)
        contents.sequence += len(receipts)
        contents.journal_bytes += len(body)
        contents.receipts += filter(None, receipts)


def _receipts(path: Path, body: bytes) -> list[bytes]:
    try:
        return codec.receipts(body)
    except ValueError as error:
        refuse_damage(path, f"is damaged: {error}")


def _durability(connection: sqlite3.Connection) -> str | None:
    row = connection.execute("SELECT value FROM meta WHERE name = 'durability'").fetchone()
    return None if row is None else str(row[0])
