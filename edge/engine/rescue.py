"""Rescue mode: reads the intact part of a damaged journal file without writing to it, and builds a sound file from it.

It handles only damage. A file of another application, of a newer version, or in use is rejected as usual. The graph is
read up to the first unreadable row, because later rows would lead to a state that never existed.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

import pyoxigraph as ox

from edge import durable
from edge.engine.journal import codec, sqlite_schema
from edge.engine.journal.codec import JournalEntry
from edge.engine.journal.data_directory import DataDirectoryRefused, DirectoryLock
from edge.engine.journal.sqlite_schema import checksum
from edge.engine.store.oxigraph_transaction import GraphName
from edge.engine.timers.timer_table import is_sound as is_sound_timer

UNREADABLE: Final = (ValueError, TypeError, LookupError, MemoryError, struct.error, sqlite3.Error)
"""Errors that reading a damaged row can raise."""

_Row = tuple[Any, ...]


class DamagedJournal:
    """A damaged journal file, open for reading only. It returns the graph commit by commit."""

    def __init__(self, path: Path) -> None:
        """Raises `DataDirectoryRefused` if the file cannot be identified."""
        self.path = path
        self.fault = ""
        """Place of the first unreadable row of the graph; empty if none was found so far."""
        self.sequence = 0
        """Number of the last update that was read."""
        self.chunks = 0
        """Number of chunks of the snapshot that were read."""
        self.commits = 0
        """Number of commits after the snapshot that were read."""
        self._graphs: set[GraphName] = set()
        self.connection = sqlite_schema.open_for_reading(path)
        try:
            self.connection.execute("BEGIN")
            sqlite_schema.verify_identity(path, self.connection)
        except (sqlite3.Error, OSError) as error:
            self.connection.close()
            sqlite_schema.refuse(path, f"is damaged so that nothing of it can be read: {error}")
        except BaseException:
            self.connection.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self.connection.close()

    def units(self) -> Iterator[list[JournalEntry]]:
        """Yield the entries up to the last readable state, grouped by commit. Afterwards see `fault`."""
        where = "the head of the snapshot"
        try:
            ((sequence, chunks, receipts, crc),) = self.connection.execute(
                "SELECT sequence, chunks, receipts, crc FROM snapshot"
            )
            _expect(checksum(receipts, sequence, chunks) == crc)
            self.sequence = sequence
            for number in range(1, chunks + 1):
                where = f"part {number} of {chunks} of the snapshot"
                row = self.connection.execute("SELECT body, crc FROM snapshot_chunks WHERE number = ?", (number,))
                ((body, crc),) = row
                _expect(checksum(body, sequence, number) == crc)
                yield self._checked(body)
                self.chunks = number
            where = f"update {sequence + 1}"
            for first, body, crc in self.connection.execute("SELECT first, body, crc FROM commits ORDER BY first"):
                where = f"update {self.sequence + 1}"
                _expect(first == self.sequence + 1 and checksum(body, first) == crc)
                entries = self._checked(body)
                yield entries
                self.sequence += len(entries)
                self.commits += 1
        except UNREADABLE as error:
            detail = f": {error}" if str(error) else ""
            self.fault = f"{where} cannot be read{detail}"

    def rows(self, table: str, columns: str = "*") -> Iterator[_Row]:
        """Yield the rows of another table, up to the first one that SQLite cannot read."""
        with contextlib.suppress(sqlite3.Error):
            yield from self.connection.execute(f"SELECT {columns} FROM {table}")  # noqa: S608 - constants

    def _checked(self, body: bytes) -> list[JournalEntry]:
        """Return the entries of a body, and check that their graphs exist. Raises one of `UNREADABLE`."""
        entries = list(codec.decode(body))
        for entry in entries:
            changes = entry.changes
            self._graphs.update(changes.created)
            for quad in changes.added:
                _expect(isinstance(quad.graph_name, ox.DefaultGraph) or quad.graph_name in self._graphs)
            self._graphs.difference_update(changes.dropped)
        return entries


def _expect(true: bool) -> None:
    if not true:
        raise ValueError("it is missing, or differs from the written data")


@dataclass
class RescueReport:
    """Content of a damaged file."""

    fault: str = ""
    """Reason why the gateway cannot use the file as it is; empty if it can."""
    graph_fault: str = ""
    """Place where the graph ends early; empty if it is complete."""
    sequence: int = 0
    quads: int = 0
    kept: dict[str, int] = field(default_factory=dict)
    """Readable rows by table, without the tables of the graph."""
    dropped: dict[str, int] = field(default_factory=dict)
    copy: Path | None = None
    """Path of the copy of the damaged file."""


TABLES: Final = ("timers", "timer_outcomes", "subscriptions", "outbox")
"""Tables whose rows a report counts."""


def rebuild(directory: Path, check: Callable[[Path], None], *, suffix: str, drop: bool) -> RescueReport:
    """Report the readable content of a directory's journal file. With `drop`, replace the file by this content.

    `check` raises `DataDirectoryRefused` if the gateway could not use a data directory. A copy of the damaged file
    stays next to the new one, as FILE.`suffix`. If the file is sound, or an error occurs, nothing changes. Raises
    `DataDirectoryRefused`.
    """
    path = directory / sqlite_schema.FILE_NAME
    if not path.exists():
        raise DataDirectoryRefused(f"{path} does not exist. Name the data directory with --data-dir.")
    lock = DirectoryLock(directory)
    draft = directory / "rescue.tmp"
    try:
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(mode=0o700)
        damaged = DamagedJournal(path)
        try:
            report = _rebuild(damaged, draft / sqlite_schema.FILE_NAME)
        finally:
            damaged.close()
        report.fault = _fault(path, check, draft) or report.graph_fault
        if drop and report.fault:
            check(draft)  # a gateway must be able to start on the new file
            report.copy = _exchange(path, draft / sqlite_schema.FILE_NAME, suffix)
        return report
    except (OSError, sqlite3.Error) as error:
        _failed(path, error)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        lock.release()


def _failed(path: Path, error: Exception) -> NoReturn:
    raise DataDirectoryRefused(
        f"{path} could not be rescued: {error}. The damaged file is unchanged. The disk needs free space for three"
        " copies of it."
    ) from error


def _fault(path: Path, check: Callable[[Path], None], draft: Path) -> str:
    """Return the reason why a gateway would not use this file, or an empty text. The check uses a copy."""
    trial = draft / "trial"
    trial.mkdir()
    for name in (path.name, f"{path.name}-wal"):
        if path.with_name(name).exists():
            shutil.copyfile(path.with_name(name), trial / name)
    try:
        check(trial)
    except DataDirectoryRefused as error:
        return error.description.replace(str(trial), str(path.parent))
    return ""


def _exchange(path: Path, new: Path, suffix: str) -> Path:
    """Replace the content of the damaged file by that of the new one, in one transaction. Return the path of a copy."""
    copy = path.with_name(f"{path.name}.{suffix}")
    for end in ("-wal", ""):
        source = path.with_name(path.name + end)
        if source.exists():
            target = path.with_name(copy.name + end)
            shutil.copyfile(source, target)
            target.chmod(0o600)
            durable.sync_file(target)
    try:
        # SQLite overwrites all pages in one transaction and handles its WAL. A renamed file could meet the old WAL.
        with contextlib.closing(sqlite3.connect(new)) as source_, contextlib.closing(sqlite3.connect(path)) as target_:
            target_.execute("PRAGMA synchronous = FULL")
            source_.backup(target_)
    except sqlite3.DatabaseError:
        # Its own pages are damaged. Without the WAL the gateway still rejects the file, so the deletion is safe.
        for end in ("-wal", "-shm"):
            path.with_name(path.name + end).unlink(missing_ok=True)
        new.replace(path)
        durable.sync_file(path)
        durable.sync_directory(path.parent)
    sqlite_schema.verify(path)
    return copy


def _rebuild(damaged: DamagedJournal, new: Path) -> RescueReport:
    """Build a file from the readable content."""
    report = RescueReport()
    quads: set[ox.Quad] = set()
    for unit in damaged.units():
        for entry in unit:
            quads.difference_update(entry.changes.removed)
            quads.update(entry.changes.added)
    report.graph_fault, report.sequence, report.quads = damaged.fault, damaged.sequence, len(quads)
    meta = dict(_pairs(damaged.rows("meta")))
    durability = meta.get("durability")
    sqlite_schema.create(new, durability if durability in ("commit", "interval") else "commit")
    with contextlib.closing(sqlite3.connect(new, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        _copy_graph(damaged, connection)
        _copy_others(damaged, connection, meta, report)
        connection.execute("COMMIT")
    return report


def _pairs(rows: Iterator[_Row]) -> Iterator[tuple[str, str]]:
    return ((name, value) for name, value in rows if isinstance(name, str) and isinstance(value, str))


def _copy_graph(damaged: DamagedJournal, connection: sqlite3.Connection) -> None:
    with contextlib.suppress(*UNREADABLE):
        ((sequence, chunks, receipts, crc),) = damaged.connection.execute("SELECT * FROM snapshot")
        if checksum(receipts, sequence, chunks) == crc:
            header = (sequence, damaged.chunks, receipts, checksum(receipts, sequence, damaged.chunks))
            connection.execute("UPDATE snapshot SET sequence = ?, chunks = ?, receipts = ?, crc = ?", header)
    _copy(damaged, connection, "snapshot_chunks", "number", damaged.chunks)
    _copy(damaged, connection, "commits", "first", damaged.commits)


def _copy(damaged: DamagedJournal, connection: sqlite3.Connection, table: str, order: str, count: int) -> None:
    """Copy the first rows of a table. Without the limit, SQLite could read the damaged page after them."""
    query = f"SELECT * FROM {table} ORDER BY {order} LIMIT {count}"  # noqa: S608 - constants and a number
    for row in damaged.connection.execute(query) if count else ():
        connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)  # noqa: S608


def _copy_others(
    damaged: DamagedJournal, connection: sqlite3.Connection, meta: dict[str, str], report: RescueReport
) -> None:
    rows = {table: list(damaged.rows(table)) for table in TABLES}
    good: dict[str, list[_Row]] = {
        "timers": [row for row in rows["timers"] if _holds(is_sound_timer, row)],
        "timer_outcomes": [row for row in rows["timer_outcomes"] if None not in row[:8]],
    }
    sequences = [row for row in damaged.rows("subscription_sequences") if _holds(_sound_sequence, row)]
    known = {row[0] for row in sequences}
    if not damaged.fault:  # if the graph ends early, the state that subscribers have seen is unknown
        start = next(damaged.connection.execute("SELECT sequence FROM snapshot"))[0]
        good["subscriptions"] = [
            row
            for row in rows["subscriptions"]
            if _holds(_sound_subscription, row) and (row[2] >= start or row[0] in known)
        ]
        good["subscription_sequences"] = sequences
    contexts, lost = list(damaged.rows("outbox_contexts")), list(damaged.rows("outbox_lost"))
    if _holds(_sound_outbox, (meta.get("outbox"), rows["outbox"], contexts, lost)):
        good |= {"outbox": rows["outbox"], "outbox_contexts": contexts, "outbox_lost": lost}
    else:
        meta["outbox"] = _fresh_outbox(meta.get("outbox"))
    for name, value in meta.items():
        if name != "durability" and _holds(json.loads, value):
            connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))
    for table, found in good.items():
        for row in found:
            connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)  # noqa: S608
    for table in TABLES:
        report.kept[table] = len(good.get(table, ()))
        report.dropped[table] = len(rows[table]) - report.kept[table]


def _holds(test: Callable[[Any], object], value: object) -> bool:
    try:
        return test(value) is not False
    except UNREADABLE:
        return False


def _sound_sequence(row: _Row) -> bool:
    number, sequence, crc = row
    return bool(checksum(b"", number, sequence) == crc)


def _sound_subscription(row: _Row) -> bool:
    number, spuid, began, body, crc = row
    return checksum(spuid.encode() + body, number, began) == crc and isinstance(json.loads(body), dict)


def _sound_outbox(parts: tuple[str | None, list[_Row], list[_Row], list[_Row]]) -> bool:
    """Return whether all rows are intact and their numbers have no gap (`edge.outbox.recorder`)."""
    head, rows, contexts, lost = parts
    if head is None:
        return not rows
    last = int(json.loads(head)[2])
    for first, end, *_ in lost:
        if first != last + 1:
            return False
        last = end
    for seq, context, body, crc in rows:
        if seq != last + 1 or checksum(body.encode(), seq, context) != crc:
            return False
        last = seq
    for number, body, crc in contexts:
        if checksum(body.encode(), number) != crc or not isinstance(json.loads(body), dict):
            return False
    return {row[1] for row in rows} <= {row[0] for row in contexts}


def _fresh_outbox(head: str | None) -> str:
    """Return the head of an empty outbox of the same gateway. Its numbers start again, as after a restore."""
    with contextlib.suppress(*UNREADABLE):
        gateway, epoch, *_ = json.loads(head or "")
        return json.dumps([gateway, epoch, 0, 0])
    return ""
