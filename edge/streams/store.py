"""The file `streams.sqlite3`: streams, elements that windows still need, queries, observers and their reports.

All changes of a turn of the processor are one synced transaction. Nothing is acknowledged or sent before it.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from edge.database_files import DatabaseFiles
from edge.protocol.bag import Bag
from edge.protocol.errors import StorageFailed
from edge.protocol.results import Row
from edge.streams.encoding import decode_access, decode_row, encode_access, encode_row, parsed
from edge.streams.model import Element
from edge.streams.report_index import ReportIndex, StoredPlace
from edge.streams.settings import FILE_NAME
from edge.streams.stored_rows import LateElement, ReportRow, StoredElement, StoredObserver, StoredQuery, StoredStream

_APPLICATION_ID: Final = 0x45445354
"""SQLite's application_id of this file: "EDST"."""
_VERSION: Final = 4
_FROM_VERSION_1: Final = """
CREATE TABLE report_numbers (name TEXT PRIMARY KEY, number INTEGER NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO report_numbers SELECT name, number FROM queries;
ALTER TABLE queries DROP COLUMN number;
ALTER TABLE observers ADD COLUMN is_target INTEGER NOT NULL DEFAULT 0;
"""
"""The numbers change with each report. Next to the texts of the queries, each report rewrote a whole page."""
_FROM_VERSION_2: Final = """
CREATE TABLE followed_queries (name TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
ALTER TABLE queries ADD COLUMN identifier TEXT NOT NULL DEFAULT '';
UPDATE queries SET identifier = printf('%x', begun);
ALTER TABLE streams ADD COLUMN too_late INTEGER NOT NULL DEFAULT 0;
CREATE TABLE late_elements (
    stream INTEGER NOT NULL, number INTEGER NOT NULL, time INTEGER NOT NULL, arrived INTEGER NOT NULL,
    graph BLOB NOT NULL, PRIMARY KEY (stream, number)
) STRICT, WITHOUT ROWID;
"""
"""The followers of these versions have lost their reports anyway. The identifiers are those that they have."""
_REPORTS: Final = """
CREATE TABLE reports (
    row INTEGER PRIMARY KEY, query TEXT NOT NULL, number INTEGER NOT NULL, time INTEGER NOT NULL, kind TEXT NOT NULL,
    merged INTEGER NOT NULL, body BLOB NOT NULL
) STRICT;
"""
"""In the order of their insertion. See `ReportIndex`."""
_COPY_REPORTS: Final = """
INSERT INTO reports SELECT NULL, query, number, time, kind, merged, body FROM reports_by_query ORDER BY time, number;
DROP TABLE reports_by_query;
"""
_FROM_VERSION_3: Final = f"ALTER TABLE reports RENAME TO reports_by_query; {_REPORTS} {_COPY_REPORTS}"
_SCHEMA: Final = """
CREATE TABLE clock (one INTEGER PRIMARY KEY CHECK (one = 1), time INTEGER NOT NULL) STRICT;
INSERT INTO clock VALUES (1, 0);
CREATE TABLE streams (
    id INTEGER PRIMARY KEY, iri TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, lateness INTEGER NOT NULL,
    query TEXT NOT NULL, number INTEGER NOT NULL, taken INTEGER NOT NULL, too_late INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE late_elements (
    stream INTEGER NOT NULL, number INTEGER NOT NULL, time INTEGER NOT NULL, arrived INTEGER NOT NULL,
    graph BLOB NOT NULL, PRIMARY KEY (stream, number)
) STRICT, WITHOUT ROWID;
CREATE TABLE elements (
    stream INTEGER NOT NULL, number INTEGER NOT NULL, time INTEGER NOT NULL, graph BLOB NOT NULL,
    missing INTEGER NOT NULL, PRIMARY KEY (stream, number)
) STRICT, WITHOUT ROWID;
CREATE TABLE windows (key TEXT PRIMARY KEY, begin INTEGER NOT NULL, first INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE queries (
    name TEXT PRIMARY KEY, text TEXT NOT NULL, access TEXT NOT NULL, begun INTEGER NOT NULL, paused INTEGER NOT NULL,
    since INTEGER NOT NULL, identifier TEXT NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID;
CREATE TABLE report_numbers (name TEXT PRIMARY KEY, number INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE followed_queries (name TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
CREATE TABLE results (
    query TEXT NOT NULL, row TEXT NOT NULL, count INTEGER NOT NULL, PRIMARY KEY (query, row)
) STRICT, WITHOUT ROWID;
CREATE TABLE observers (
    id TEXT PRIMARY KEY, query TEXT NOT NULL, url TEXT NOT NULL, owner TEXT NOT NULL, acknowledged INTEGER NOT NULL,
    is_target INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
"""


LATE_OVERHEAD: Final = 100
"""Approximate bytes of a kept element that came too late, without its graph."""
_LARGEST_PART: Final = 4
"""The graph of an element that came too late has at most one of so many parts of the bytes of its stream."""
_OMITTED: Final = b"\0"
"""Stands for a graph that is not kept. It is not N-Triples."""
LAST: Final = 2**62
"""A number above those of all reports."""
_CHUNK: Final = 500
"""Reports that one statement reads: one for each takes three times as long. Old SQLite permits 999 parameters."""
_GONE: Final = "restart the gateway; its streams are lost"
"""Remedy if the files were deleted under a running gateway."""
_DAMAGE: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_RESTORE: Final = (
    "Restore a backup (edge restore), or stop the gateway and move the file away (with "
    f"{FILE_NAME}-wal, where there is one): the streams and queries in it are then lost"
)
"""Remedy if the file is damaged."""


class StreamStore:
    """The file. One thread uses it. All methods raise `StorageFailed`."""

    def __init__(self, directory: Path | None) -> None:
        """Open or create the file; None keeps all in memory. Raises `StorageFailed`."""
        self._path = Path(":memory:") if directory is None else directory / FILE_NAME
        self.damage = ""
        """Damage of the file that was found, and the remedy; empty: none."""
        self._undo: list[Callable[[], object]] = []
        """Actions that restore the state of the memory if the present transaction fails."""
        with self._storing():
            self._connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
            try:
                self._prepare()
                self._report_index = ReportIndex(self._report_places(), self.undo_with)
            except BaseException:
                self._connection.close()
                raise
        self._files = None if directory is None else DatabaseFiles(self._path, _GONE)
        self._late_sizes: dict[int, int] = {}
        """Bytes of the kept elements that came too late, by stream, as far as they are known."""

    def _prepare(self) -> None:
        connection = self._connection
        connection.execute("PRAGMA page_size = 1024")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        ((version,),) = connection.execute("PRAGMA user_version")
        ((application,),) = connection.execute("PRAGMA application_id")
        if version > _VERSION or (version and application != _APPLICATION_ID):
            raise StorageFailed(
                f"{self._path} is from a newer version of sepa-edge, or not its file. "
                "Install that version, or move the file away"
            )
        if version < _VERSION:
            changes = (
                "".join((_FROM_VERSION_1, _FROM_VERSION_2, _FROM_VERSION_3)[version - 1 :])
                if version
                else _SCHEMA + _REPORTS
            )
            connection.executescript(
                f"BEGIN; {changes} PRAGMA application_id = {_APPLICATION_ID}; PRAGMA user_version = {_VERSION}; COMMIT;"
            )

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Make the changes within durable together; undo them after an exception."""
        with self._storing():
            self._connection.execute("BEGIN IMMEDIATE")
            self._undo.clear()
            try:
                yield
                if self._files is not None and (fault := self._files.fault):
                    raise StorageFailed(f"Streams cannot be stored: {fault}")
                self._connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                for action in reversed(self._undo):
                    action()
                raise
            finally:
                # The actions hold what they restore, such as the places of removed reports.
                self._undo.clear()

    def undo_with(self, action: Callable[[], object]) -> None:
        """Call an action if the present transaction fails, which restores the state in memory."""
        self._undo.append(action)

    @property
    def time(self) -> int:
        """Time up to which all windows have reported, in microseconds since 1970; 0 for a new file."""
        ((time,),) = self._select("SELECT time FROM clock")
        return int(time)

    def set_time(self, time: int) -> None:
        """Store the time up to which all windows have reported."""
        self._run("UPDATE clock SET time = ?", time)

    # Streams and elements

    def streams(self) -> list[StoredStream]:
        """Return all streams."""
        return [StoredStream(*row) for row in self._select("SELECT * FROM streams ORDER BY id")]

    def put_stream(self, iri: str, owner: str, lateness: int, query: str) -> StoredStream:
        """Add a stream."""
        self._run("INSERT INTO streams VALUES (NULL, ?, ?, ?, ?, 0, 0, 0)", iri, owner, lateness, query)
        ((id_,),) = self._select("SELECT id FROM streams WHERE iri = ?", iri)
        return StoredStream(id_, iri, owner, lateness, query, 0)

    def set_stream(self, id_: int, lateness: int) -> None:
        """Change the properties of a stream."""
        self._run("UPDATE streams SET lateness = ? WHERE id = ?", lateness, id_)

    def drop_stream(self, id_: int) -> None:
        """Remove a stream with its elements."""
        for table in ("elements", "late_elements"):
            self._run(f"DELETE FROM {table} WHERE stream = ?", id_)  # noqa: S608 - names of this module
        self._run("DELETE FROM streams WHERE id = ?", id_)
        self._late_sizes.pop(id_, None)

    def elements(self, stream: int) -> Iterator[StoredElement]:
        """Yield the stored elements of a stream in the order of their arrival."""
        rows = self._select(
            "SELECT time, number, graph, missing FROM elements WHERE stream = ? ORDER BY number", stream
        )
        for time, number, graph, missing in rows:
            yield StoredElement(Element(time, number, parsed(graph)), graph, missing)

    def add(self, stream: int, last: int, elements: Iterable[StoredElement]) -> None:
        """Add elements. `last`: number of the last element of the stream, stored or not."""
        rows = [(stream, each.number, each.time, graph, missing) for each, graph, missing in elements]
        with self._storing():
            self._connection.executemany("INSERT INTO elements VALUES (?, ?, ?, ?, ?)", rows)
        self._run("UPDATE streams SET number = ? WHERE id = ?", last, stream)

    def add_late(self, stream: int, late: Iterable[LateElement], most: int) -> None:
        """Count elements that came too late, and keep the newest ones of the stream: those of `most` bytes.

        Of a large one only number and times, so that it does not take the place of all others.
        """
        rows: list[tuple[int, int, int, int, bytes]] = []
        added = 0
        for number, time, arrived, graph in late:
            if graph is None or len(graph) + LATE_OVERHEAD > most // _LARGEST_PART:
                graph = _OMITTED
            rows.append((stream, number, time, arrived, graph))
            added += len(graph) + LATE_OVERHEAD
        self._run("UPDATE streams SET too_late = too_late + ? WHERE id = ?", len(rows), stream)
        self._undo.append(lambda: self._late_sizes.pop(stream, None))
        if stream not in self._late_sizes:
            statement = "SELECT coalesce(sum(length(graph) + ?), 0) FROM late_elements WHERE stream = ?"
            ((self._late_sizes[stream],),) = self._select(statement, LATE_OVERHEAD, stream)
        with self._storing():
            self._connection.executemany("INSERT INTO late_elements VALUES (?, ?, ?, ?, ?)", rows)
        self._late_sizes[stream] += added
        if self._late_sizes[stream] > most:
            self._drop_oldest_late(stream, most)

    def _drop_oldest_late(self, stream: int, most: int) -> None:
        """Remove the oldest elements that came too late beyond `most` bytes. Reads these only."""
        statement = "SELECT number, length(graph) FROM late_elements WHERE stream = ? ORDER BY number"
        last = 0
        with self._storing(), contextlib.closing(self._connection.execute(statement, (stream,))) as oldest:
            while self._late_sizes[stream] > most:
                last, length = next(oldest)
                self._late_sizes[stream] -= length + LATE_OVERHEAD
        self._run("DELETE FROM late_elements WHERE stream = ? AND number <= ?", stream, last)

    def late(self, stream: int) -> list[LateElement]:
        """Return the kept elements of a stream that came too late, in the order of their arrival."""
        rows = self._select(
            "SELECT number, time, arrived, graph FROM late_elements WHERE stream = ? ORDER BY number", stream
        )
        return [
            LateElement(number, time, arrived, None if graph == _OMITTED else graph)
            for number, time, arrived, graph in rows
        ]

    def set_taken(self, stream: int, number: int) -> None:
        """Store the number of the last element that the windows have."""
        self._run("UPDATE streams SET taken = ? WHERE id = ?", number, stream)

    def corrected(self, stream: int, numbers: Iterable[int]) -> None:
        """Record that the corrections for late elements are stored."""
        self.set_missing(stream, numbers, 0)

    def set_missing(self, stream: int, numbers: Iterable[int], missing: int) -> None:
        """Change `StoredElement.missing` of elements."""
        rows = [(missing, stream, number) for number in numbers]
        with self._storing():
            self._connection.executemany("UPDATE elements SET missing = ? WHERE stream = ? AND number = ?", rows)

    def remove(self, stream: int, numbers: Iterable[int]) -> None:
        """Remove elements that no window needs any more."""
        with self._storing():
            self._connection.executemany(
                "DELETE FROM elements WHERE stream = ? AND number = ?", [(stream, number) for number in numbers]
            )

    # Windows

    def windows(self) -> dict[str, tuple[int, int]]:
        """Return the begin of each window, and the number of the first element that it counts, by its key."""
        return {key: (begin, first) for key, begin, first in self._select("SELECT * FROM windows")}

    def put_window(self, key: str, begin: int, first: int) -> None:
        """Add or replace the begin of a window."""
        self._run("INSERT OR REPLACE INTO windows VALUES (?, ?, ?)", key, begin, first)

    def drop_window(self, key: str) -> None:
        """Remove a window that no query uses any more."""
        self._run("DELETE FROM windows WHERE key = ?", key)

    # Queries

    def queries(self) -> list[StoredQuery]:
        """Return all queries in the order of their registration."""
        found = self._select(
            "SELECT name, text, access, begun, paused, number, since, identifier "
            "FROM queries JOIN report_numbers USING (name) ORDER BY begun, name"
        )
        return [
            StoredQuery(name, text, decode_access(access), begun, bool(paused), number, since, identifier)
            for name, text, access, begun, paused, number, since, identifier in found
        ]

    def put_query(self, query: StoredQuery) -> None:
        """Add a query."""
        access = encode_access(query.access)
        self._run(
            "INSERT INTO queries VALUES (?, ?, ?, ?, ?, ?, ?)",
            query.name,
            query.text,
            access,
            query.begun,
            int(query.paused),
            query.since,
            query.identifier,
        )
        self._run("INSERT INTO report_numbers VALUES (?, ?)", query.name, query.number)

    def renew_identifiers(self) -> None:
        """Give all queries other identifiers."""
        self._run("UPDATE queries SET identifier = lower(hex(randomblob(16)))")

    def pause(self, name: str, *, paused: bool) -> None:
        """Store whether a query is paused."""
        self._run("UPDATE queries SET paused = ? WHERE name = ?", int(paused), name)

    def set_since(self, name: str, since: int) -> None:
        """Store the time from which all elements are kept that the windows of a query have contained."""
        self._run("UPDATE queries SET since = ? WHERE name = ?", since, name)

    def result(self, query: str) -> Bag[Row]:
        """Return the result of a query at its last report, if its reports are changes of the result."""
        found = self._select("SELECT row, count FROM results WHERE query = ?", query)
        return Bag({decode_row(row): count for row, count in found})

    def change_result(self, query: str, change: Mapping[Row, int]) -> None:
        """Add to the counts of the rows of a stored result."""
        rows = [(query, encode_row(row), count) for row, count in change.items()]
        with self._storing():
            self._connection.executemany(
                "INSERT INTO results VALUES (?, ?, ?) "
                "ON CONFLICT (query, row) DO UPDATE SET count = count + excluded.count",
                rows,
            )
            self._connection.executemany(
                "DELETE FROM results WHERE query = ? AND row = ? AND count = 0", [row[:2] for row in rows]
            )

    def drop_query(self, name: str) -> None:
        """Remove a query with its reports and observers."""
        self.drop_reports(name, LAST)
        for table in ("observers", "results"):
            self._run(f"DELETE FROM {table} WHERE query = ?", name)  # noqa: S608 - names of this module
        for table in ("report_numbers", "followed_queries", "queries"):
            self._run(f"DELETE FROM {table} WHERE name = ?", name)  # noqa: S608 - names of this module

    # Reports, followers and observers

    def set_numbers(self, numbers: Mapping[str, int]) -> None:
        """Store the numbers of the last reports of queries."""
        with self._storing():
            rows = [(number, query) for query, number in numbers.items()]
            self._connection.executemany("UPDATE report_numbers SET number = ? WHERE name = ?", rows)

    def report(self, query: str, report: ReportRow) -> None:
        """Store the newest report of a query for its observers and followers. Its number must be new."""
        self._report_index.add(query, self._insert_report(query, report))

    def _insert_report(self, query: str, report: ReportRow) -> StoredPlace:
        with self._storing():
            statement = "INSERT INTO reports VALUES (NULL, ?, ?, ?, ?, ?, ?)"
            row = self._connection.execute(statement, (query, *report)).lastrowid
        assert row is not None  # noqa: S101 - an INSERT has one
        return StoredPlace(report.number, row, len(report.body))

    def _report_places(self) -> Iterator[tuple[str, StoredPlace]]:
        """Yield query and place of all reports in the order of their rows: SQLite would have to sort other orders."""
        with self._storing():
            for query, number, row, size in self._connection.execute(
                "SELECT query, number, row, length(body) FROM reports ORDER BY row"
            ):
                yield query, StoredPlace(number, row, size)

    def reports(self, query: str, after: int, most: int, before: int = LAST) -> list[ReportRow]:
        """Return stored reports of a query with numbers above `after` and below `before`, in order.

        `most`: number of reports at most; -1: all.
        """
        rows = self._report_index.rows(query, after, before)
        found: list[ReportRow] = []
        if most >= 0:
            rows = rows[:most]
        for begin in range(0, len(rows), _CHUNK):
            some = rows[begin : begin + _CHUNK]
            marks = ",".join("?" * len(some))
            columns = "number, time, kind, merged, body"
            statement = f"SELECT {columns} FROM reports WHERE row IN ({marks}) ORDER BY number"  # noqa: S608 - marks
            found += (ReportRow(*values) for values in self._select(statement, *some))
        return found

    def reports_of_followed(self) -> dict[str, list[tuple[int, int, int]]]:
        """Return number, time and size of the content of each report of the followed queries, in order."""
        found: dict[str, list[tuple[int, int, int]]] = {}
        rows = self._select(
            "SELECT query, number, time, length(body) FROM reports JOIN followed_queries ON query = name "
            "WHERE merged = 1 ORDER BY query, number"
        )
        for query, *row in rows:
            found.setdefault(query, []).append((row[0], row[1], row[2]))
        return found

    def followed_queries(self) -> set[str]:
        """Return the names of the followed queries."""
        return {name for (name,) in self._select("SELECT name FROM followed_queries")}

    def mark_followed(self, query: str) -> None:
        """Store that a query has followers, or had one until now."""
        self._run("INSERT OR IGNORE INTO followed_queries VALUES (?)", query)

    def unmark_followed(self, query: str) -> None:
        """Store that a query has had no followers for a while."""
        self._run("DELETE FROM followed_queries WHERE name = ?", query)

    def report_bytes(self, query: str, overhead: int) -> int:
        """Return the size of the stored reports of a query. `overhead`: bytes of a report in addition to its body."""
        return self._report_index.size(query, overhead)

    def drop_reports(self, query: str, until: int) -> None:
        """Remove the reports of a query with numbers up to `until`."""
        self._delete_reports(query, until + 1)

    def _delete_reports(self, query: str, before: int) -> None:
        rows = [(row,) for row in self._report_index.remove(query, before)]
        with self._storing():
            self._connection.executemany("DELETE FROM reports WHERE row = ?", rows)

    def replace_reports(self, query: str, reports: Iterable[ReportRow], before: int = LAST) -> None:
        """Replace all reports of a query with numbers below `before`."""
        self._delete_reports(query, before)
        self._report_index.put_first(query, [self._insert_report(query, report) for report in reports])

    def observers(self) -> list[StoredObserver]:
        """Return all observers."""
        found = self._select(
            "SELECT id, query, url, owner, acknowledged, is_target, coalesce(identifier, '') "
            "FROM observers LEFT JOIN queries ON query = name"
        )
        return [StoredObserver(*row)._replace(is_target=bool(row[5])) for row in found]

    def put_observer(self, observer: StoredObserver) -> None:
        """Add an observer."""
        self._run("INSERT INTO observers VALUES (?, ?, ?, ?, ?, ?)", *observer[:6])

    def acknowledge(self, observer: str, number: int) -> None:
        """Store the number of the last report that an observer has."""
        self._run("UPDATE observers SET acknowledged = ? WHERE id = ?", number, observer)

    def drop_observer(self, observer: str) -> None:
        """Remove an observer."""
        self._run("DELETE FROM observers WHERE id = ?", observer)

    def _select(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with self._storing():
            return self._connection.execute(statement, values).fetchall()

    def _run(self, statement: str, *values: object) -> None:
        with self._storing():
            self._connection.execute(statement, values)

    @contextlib.contextmanager
    def _storing(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            # The lowest byte is the primary code (https://www.sqlite.org/rescode.html). Errors of Python have none.
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGE:
                self.damage = f"{self._path} is damaged: {error}. {_RESTORE}"
                raise StorageFailed(self.damage) from error
            raise StorageFailed(
                f"{self._path} cannot be used: {error}. Check the disk (edge doctor), then try again"
            ) from error
