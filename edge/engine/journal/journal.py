"""The journal: durable storage of the engine, one SQLite file with the latest snapshot and all change sets since.

It uses no threads and no clock: only one caller at a time, which passes the times, except for `sync`. A file has the
durability of SQLite in WAL mode. In memory (no directory) it stores nothing and costs nothing.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NoReturn, Self

import pyoxigraph as ox

from edge.database_files import DatabaseFiles
from edge.engine.journal import codec, sqlite_schema
from edge.engine.journal.codec import JournalEntry
from edge.engine.journal.data_directory import DirectoryLock
from edge.engine.journal.receipt_log import ReceiptLog
from edge.engine.store.changes import NO_CHANGE, ChangeSet, Statement
from edge.engine.store.oxigraph_transaction import GraphName
from edge.engine.store.terms import size
from edge.protocol.errors import StorageFailed
from edge.protocol.results import Term

__all__ = ["Journal", "JournalEntry", "snapshot_bodies"]

Durability = Literal["commit", "interval"]

AlsoWrite = Callable[[sqlite3.Connection], None]
"""Writes data of other tables in the transaction of a commit. It must not end the transaction."""

RECEIPT_BYTES = 65_535 * 6
"""Bytes of retained receipts: one for each packet identifier of an MQTT session (`edge.adapters.redelivery`)."""

CHUNK_QUADS = 10_000
"""Upper bound of the quads in a chunk of a snapshot. A chunk is in memory twice while it is written or restored."""

CHUNK_CHARACTERS = 4_000_000
"""Limit of the characters in a chunk; the last quad may exceed it. 10,000 quads of a sensor network have 2 million."""

_REMEDY: Final = "export the data from the running gateway, then restart it"
"""What to do if the files were deleted under a running gateway."""

_log = logging.getLogger(__name__)


class Journal:
    """An open journal. Create it with `Journal.open`, and close it with `close`."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        contents: sqlite_schema.Contents,
        *,
        path: Path | None,
        lock: DirectoryLock | None,
        flush_interval: float | None,
        snapshot_min_bytes: int,
        snapshot_ratio: float,
        receipt_bytes: int,
    ) -> None:
        self.flush_interval = flush_interval
        """Seconds between calls of `flush`; None: every commit is durable when it returns."""
        self._connection = connection
        self._path = path
        self._files = None if path is None else DatabaseFiles(path, _REMEDY)
        self._lock = lock
        self._sequence = contents.sequence
        self._snapshot_sequence = contents.snapshot_sequence
        self._receipts = ReceiptLog(receipt_bytes, contents.receipts)
        self._journal_bytes = contents.journal_bytes
        self._snapshot_bytes = contents.snapshot_bytes
        self._snapshot_min_bytes = snapshot_min_bytes
        self._snapshot_ratio = snapshot_ratio
        self._snapshot_retry_bytes = 0
        self._unflushed = False
        self._log_unclean = False
        """Whether the write-ahead log may contain a rejected commit.

        Nothing may be written after it: a power cut during the next commit would then look like damage (see
        `write_ahead_log`).
        """
        self.last_at = 0
        """Time of the last update, in microseconds since 1970; 0 before the first one since the restored snapshot."""

    @classmethod
    def open(
        cls,
        directory: Path | None,
        *,
        durability: Durability = "commit",
        flush_interval: float = 1.0,
        snapshot_min_bytes: int = 4 * 1024 * 1024,
        snapshot_ratio: float = 2.0,
        receipt_bytes: int = RECEIPT_BYTES,
    ) -> Self:
        """Open the journal in a directory, which is created and locked, or in memory (None).

        `durability` "commit": a commit is on the medium when `commit` returns. "interval": a power cut, but not the end
        of the process, loses the commits since the last `flush`, which is due every `flush_interval` seconds. A
        snapshot is due when the journal is larger than `snapshot_min_bytes` and than `snapshot_ratio` times the last
        snapshot (bytes as stored). The last `receipt_bytes` bytes of receipts are retained.

        Raises `DataDirectoryRefused`, and writes nothing to the file, if the directory cannot be used or is in use, or
        if the file is damaged, belongs to another application or has a newer format.
        """
        lock = path = None
        contents = sqlite_schema.Contents()
        if directory is None:
            connection = _open_memory()
        else:
            path = directory / sqlite_schema.FILE_NAME
            lock = DirectoryLock(directory)
            try:
                if not path.exists():
                    sqlite_schema.create(path, durability)
                    lock.take_database()
                connection, contents = _open_file(path, durability)
            except BaseException:
                lock.release()
                raise
        return cls(
            connection,
            contents,
            path=path,
            lock=lock,
            flush_interval=None if path is None or durability == "commit" else flush_interval,
            snapshot_min_bytes=snapshot_min_bytes,
            snapshot_ratio=snapshot_ratio,
            receipt_bytes=receipt_bytes,
        )

    @classmethod
    def in_memory(cls, lock: DirectoryLock) -> Self:
        """Return a journal that stores nothing, but holds the lock of a directory until it is closed."""
        journal = cls.open(None)
        journal._lock = lock
        return journal

    @property
    def sequence(self) -> int:
        """Sequence number of the last committed entry; the first one ever is 1."""
        return self._sequence

    @property
    def snapshot_sequence(self) -> int:
        """Sequence number of the last entry in the snapshot."""
        return self._snapshot_sequence

    @property
    def journal_bytes(self) -> int:
        """Bytes of the entries since the snapshot, as stored."""
        return self._journal_bytes

    @property
    def snapshot_bytes(self) -> int:
        """Bytes of the snapshot, as stored."""
        return self._snapshot_bytes

    @property
    def fault(self) -> str:
        """Why no commit can succeed until an operator has put the file back; empty if it is in its place.

        Any thread may call it.
        """
        return "" if self._files is None else self._files.fault

    def receipts(self) -> bytes:
        """Return the last committed receipts, concatenated, oldest first."""
        return bytes(self._receipts)

    def restore(self) -> Iterator[ChangeSet]:
        """Yield the change sets from the empty graph to the current one: the snapshot in chunks, then every change set.

        Raises `DataDirectoryRefused` if the file turns out to be damaged.
        """
        return (entry.changes for _, entry in self.history())

    def history(self) -> Iterator[tuple[int, JournalEntry]]:
        """Yield the same as entries, each with its sequence number. Raises the errors of `restore`."""
        if self._path is None:
            return
        sequence = self._snapshot_sequence
        try:
            for body in sqlite_schema.read_snapshot(self._connection):
                yield from ((sequence, entry) for entry in codec.decode(body))
            for body in sqlite_schema.read_commits(self._connection):
                for entry in codec.decode(body):
                    sequence += 1
                    self.last_at = entry.at or self.last_at
                    yield sequence, entry
        except (ValueError, sqlite3.Error) as error:
            sqlite_schema.refuse_error(self._path, error)

    def commit(self, entries: Sequence[JournalEntry], also: AlsoWrite | None = None) -> int:
        """Store entries in one transaction, with the data that `also` writes. Returns the last sequence number.

        Raises `StorageFailed` (disk full, I/O error): nothing is stored, and a later commit can succeed. Other errors
        of `also` roll back the transaction as well, and are passed on.
        """
        body = self._encode(entries) if entries else b""
        try:
            if body or also is not None:
                self._store(body, also)
        except sqlite3.Error as error:
            self._clear_log(error)
            raise StorageFailed(
                f"The update could not be stored in {self._path or 'memory'} ({error}); it was undone."
                " Free space on that disk, or check it for errors; then send the update again."
            ) from error
        self._sequence += len(entries)
        self._journal_bytes += len(body)
        for entry in entries:
            self.last_at = entry.at or self.last_at
            if entry.receipt:
                self._receipts.append(entry.receipt)
        self._unflushed = True
        return self._sequence

    def _encode(self, entries: Sequence[JournalEntry]) -> bytes:
        """Return the body of a commit; empty in memory. Raises `StorageFailed`."""
        if self._path is None:
            return b""
        try:
            # A large change was encoded in pieces while it was prepared.
            if len(entries) == 1 and entries[0].quads is not None:
                return entries[0].quads.body(entries[0])
            return codec.encode(entries)
        except codec.NotRestorable as error:
            raise StorageFailed(
                f"The update was undone: it holds something that {self._path} could not give back after a restart"
                f" ({error}). This is a fault of the gateway: report it with the update, and change the update."
            ) from error

    def _store(self, body: bytes, also: AlsoWrite | None) -> None:
        connection = self._begin()
        try:
            if body:
                first = self._sequence + 1
                row = (first, body, sqlite_schema.checksum(body, first))
                connection.execute("INSERT INTO commits VALUES (?, ?, ?)", row)
            if also is not None:
                also(connection)
            # As late as possible: nothing may be acknowledged that a restart would not find.
            self._check_place()
            connection.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise

    def _check_place(self) -> None:
        """Raise `StorageFailed` if the file was renamed, deleted or replaced."""
        if fault := self.fault:
            raise StorageFailed(f"The update could not be stored: {fault}")

    def select(self, query: str, parameters: Sequence[object] = ()) -> Generator[tuple[Any, ...]]:
        """Read other tables of the file, row by row. Raises `StorageFailed`."""
        try:
            yield from self._connection.execute(query, parameters)
        except sqlite3.Error as error:
            raise StorageFailed(
                f"{self._path or 'Memory'} cannot be read ({error}). Check its disk for errors."
            ) from error

    def refuse(self, fault: str) -> NoReturn:
        """Raise `DataDamaged` for damaged data in another table of the file."""
        sqlite_schema.refuse_damage(self._path or Path(":memory:"), f"is damaged: {fault}")

    @property
    def unflushed(self) -> bool:
        """Whether there are commits that no flush includes, with the durability "interval"."""
        return self._unflushed and self.flush_interval is not None

    def flush(self) -> None:
        """Make all commits durable, with the durability "interval". Raises `StorageFailed`."""
        if not self.unflushed:
            return
        self.sync()
        self._unflushed = False

    def begin_flush(self) -> None:
        """Note that the commits so far are about to be flushed by `sync`."""
        self._unflushed = False

    def flush_failed(self) -> None:
        """Note that `sync` failed, so that the commits have to be flushed again."""
        self._unflushed = True

    def sync(self) -> None:
        """Flush the write-ahead log to the disk. Any thread may call it, also during a commit.

        Raises `StorageFailed`.
        """
        if fault := self.fault:
            raise StorageFailed(f"The last updates are not yet safe from a power cut: {fault}")
        try:
            # A checkpoint would also do, but writes every page a second time.
            descriptor = os.open(f"{self._path}-wal", os.O_RDONLY)
            try:
                os.fdatasync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise StorageFailed(
                f"The last updates are not yet safe from a power cut: {self._path} cannot be written"
                f" ({error.strerror}). Check its disk for errors."
            ) from error

    @property
    def snapshot_due(self) -> bool:
        """Whether the journal has grown enough for a snapshot, and enough since a failed one."""
        return self._journal_bytes > max(self._snapshot_threshold, self._snapshot_retry_bytes)

    def snapshot(self, bodies: Iterable[bytes], also: AlsoWrite | None = None) -> bool:
        """Replace the snapshot and all change sets by these bodies (`snapshot_bodies`): the state at `sequence`.

        `also` writes data that belongs to it. Returns False if it failed (disk full, I/O error); then nothing has
        changed. The failure is logged once. The next attempt is due after another quarter of the growth that makes a
        snapshot due.
        """
        if self._path is None:
            return True
        receipts = codec.encode([JournalEntry(0, NO_CHANGE, bytes(self._receipts))])
        try:
            size = self._replace_snapshot(bodies, receipts, also)
        except (sqlite3.Error, codec.NotRestorable, StorageFailed) as error:
            self.snapshot_failed(str(error))
            self._clear_log(error)
            return False
        if self._snapshot_retry_bytes:
            _log.info("journal.snapshot_recovered", extra={"file": str(self._path)})
        self._snapshot_retry_bytes = 0
        self._snapshot_sequence = self._sequence
        self._snapshot_bytes = size
        self._journal_bytes = 0
        self._unflushed = True
        self._shrink()
        return True

    def _replace_snapshot(self, bodies: Iterable[bytes], receipts: bytes, also: AlsoWrite | None) -> int:
        size = 0

        def replace(connection: sqlite3.Connection) -> None:
            nonlocal size
            size = sqlite_schema.replace_snapshot(connection, self._sequence, bodies, receipts)
            if also is not None:
                also(connection)

        self._store(b"", replace)
        return size

    def snapshot_failed(self, reason: str) -> None:
        """Log once that the snapshot failed, and postpone the next attempt."""
        if not self._snapshot_retry_bytes:
            _log.warning("journal.snapshot_failed", extra={"file": str(self._path), "reason": reason})
        self._snapshot_retry_bytes = self._journal_bytes + self._snapshot_threshold // 4

    def close(self) -> None:
        """Make all commits durable, move the write-ahead log into the file, and unlock the directory.

        Raises `StorageFailed` as `flush` does; it is closed even then.
        """
        lock, self._lock = self._lock, None
        try:
            self.flush()
        finally:
            self._connection.close()
            if lock is not None:
                lock.release()

    @property
    def _snapshot_threshold(self) -> int:
        return max(self._snapshot_min_bytes, int(self._snapshot_ratio * self._snapshot_bytes))

    def _begin(self) -> sqlite3.Connection:
        if self._log_unclean:
            self._empty_log()
        self._connection.execute("BEGIN IMMEDIATE")
        return self._connection

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _clear_log(self, error: Exception) -> None:
        """Empty the write-ahead log after a failed commit: it frees space, and removes the frames of that commit.

        SQLite ignores those frames. But if only their sync had failed, they would count after `kill -9`.
        """
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            # If the disk was full, the frame that completes the commit was never written.
            self._log_unclean = self._log_unclean or code == sqlite3.SQLITE_IOERR
            with contextlib.suppress(sqlite3.Error):
                self._empty_log()

    def _empty_log(self) -> None:
        """Move the write-ahead log into the file and truncate it."""
        ((busy, _, _),) = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        if not busy:
            self._log_unclean = False

    def _shrink(self) -> None:
        """Shrink the file if it has more free pages than the journal needs until the next snapshot."""
        with contextlib.suppress(sqlite3.Error):
            (free,) = self._connection.execute("PRAGMA freelist_count").fetchone()
            surplus = free - self._snapshot_threshold * 5 // 4 // sqlite_schema.PAGE_SIZE
            if surplus > 0:
                # `execute` would stop after one page, because each page is a row without columns.
                self._connection.executescript(f"PRAGMA incremental_vacuum({surplus})")
            # The log is not truncated: a file system writes three times as much when a commit extends the file.
            self._connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()


def _open_memory() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    sqlite_schema.upgrade(connection)
    return connection


def _open_file(path: Path, durability: Durability) -> tuple[sqlite3.Connection, sqlite_schema.Contents]:
    contents = sqlite_schema.verify(path)
    try:
        connection = sqlite_schema.connect(path, durability)
        sqlite_schema.empty_log(connection)
        return connection, contents
    except sqlite3.Error as error:
        sqlite_schema.refuse_error(path, error)


def snapshot_bodies(
    quads: Iterable[ox.Quad | Statement], graphs: Iterable[GraphName], long: Callable[[], bool] = lambda: True
) -> Iterator[bytes]:
    """Yield the bodies of a snapshot: the named graphs first, because quads need them.

    `long`: returns whether the following quads may have terms of more than `edge.engine.store.terms.SHORT` characters.
    """
    yield codec.encode([JournalEntry(0, ChangeSet(created=tuple(graphs)))])
    for chunk in _chunks(quads, long):
        yield codec.encode([JournalEntry(0, ChangeSet(added=chunk))])


def change_bodies(changes: ChangeSet, long: Callable[[], bool]) -> Iterator[bytes]:
    """Yield the bodies of changes that were made after those of `snapshot_bodies`."""
    added, removed = changes.statements
    yield codec.encode([JournalEntry(0, ChangeSet(created=changes.created))])
    for chunk in _chunks(removed, long):
        yield codec.encode([JournalEntry(0, ChangeSet(removed=chunk))])
    for chunk in _chunks(added, long):
        yield codec.encode([JournalEntry(0, ChangeSet(added=chunk))])
    yield codec.encode([JournalEntry(0, ChangeSet(dropped=changes.dropped))])


def _chunks(quads: Iterable[ox.Quad | Statement], long: Callable[[], bool]) -> Iterator[Sequence[ox.Quad | Statement]]:
    """Yield quads in chunks of limited number and length."""
    chunk: list[ox.Quad | Statement] = []
    characters = 0
    for quad in quads:
        chunk.append(quad)
        if long():
            characters += _length(*quad)
        if len(chunk) == CHUNK_QUADS or characters >= CHUNK_CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


def _length(subject: Term, predicate: Term, object_: Term, graph: GraphName | ox.DefaultGraph | None) -> int:
    """Return the characters of a quad's terms."""
    named = 0 if graph is None or isinstance(graph, ox.DefaultGraph) else len(graph.value)
    return size(subject) + size(predicate) + size(object_) + named
