"""The file of streams: one of an earlier version is converted, one of a newer version is not touched.

A conversion that fails, or whose process is killed, changes nothing.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from edge.protocol.access import ANYBODY
from edge.protocol.errors import StorageFailed
from edge.streams.encoding import encode_access
from edge.streams.settings import FILE_NAME
from edge.streams.store import StreamStore
from edge.streams.stored_rows import LateElement, ReportRow, StoredObserver, StoredQuery, StoredStream

VERSION_1 = """
CREATE TABLE queries (
    name TEXT PRIMARY KEY, text TEXT NOT NULL, access TEXT NOT NULL, begun INTEGER NOT NULL, paused INTEGER NOT NULL,
    number INTEGER NOT NULL, since INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE streams (
    id INTEGER PRIMARY KEY, iri TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, lateness INTEGER NOT NULL,
    query TEXT NOT NULL, number INTEGER NOT NULL, taken INTEGER NOT NULL
) STRICT;
CREATE TABLE reports (
    query TEXT NOT NULL, number INTEGER NOT NULL, time INTEGER NOT NULL, kind TEXT NOT NULL, merged INTEGER NOT NULL,
    body BLOB NOT NULL, PRIMARY KEY (query, number)
) STRICT, WITHOUT ROWID;
CREATE TABLE observers (query TEXT) STRICT;
CREATE TABLE results (query TEXT) STRICT;
"""


def version_1(directory: Path) -> None:
    with closing(sqlite3.connect(directory / FILE_NAME)) as file:
        file.executescript(f"{VERSION_1} PRAGMA application_id = {0x45445354}; PRAGMA user_version = 1;")
        file.execute("INSERT INTO streams VALUES (1, 'urn:s', '', 2, '', 7, 6)")
        file.execute("INSERT INTO queries VALUES ('q', 'text', ?, 5, 1, 17, 4)", (encode_access(ANYBODY),))
        file.executemany("INSERT INTO reports VALUES (?, ?, 9, 'rows', 1, ?)", [("q", 17, b"b"), ("q", 16, b"a")])
        file.commit()


VERSION_2 = """
CREATE TABLE queries (
    name TEXT PRIMARY KEY, text TEXT NOT NULL, access TEXT NOT NULL, begun INTEGER NOT NULL, paused INTEGER NOT NULL,
    since INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE report_numbers (name TEXT PRIMARY KEY, number INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE streams (
    id INTEGER PRIMARY KEY, iri TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, lateness INTEGER NOT NULL,
    query TEXT NOT NULL, number INTEGER NOT NULL, taken INTEGER NOT NULL
) STRICT;
CREATE TABLE reports (
    query TEXT NOT NULL, number INTEGER NOT NULL, time INTEGER NOT NULL, kind TEXT NOT NULL, merged INTEGER NOT NULL,
    body BLOB NOT NULL, PRIMARY KEY (query, number)
) STRICT, WITHOUT ROWID;
CREATE TABLE results (
    query TEXT NOT NULL, row TEXT NOT NULL, count INTEGER NOT NULL, PRIMARY KEY (query, row)
) STRICT, WITHOUT ROWID;
CREATE TABLE observers (
    id TEXT PRIMARY KEY, query TEXT NOT NULL, url TEXT NOT NULL, owner TEXT NOT NULL, acknowledged INTEGER NOT NULL,
    is_target INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
INSERT INTO streams VALUES (1, 'urn:s', '', 2, '', 7, 6);
INSERT INTO report_numbers VALUES ('p', 2), ('q', 17);
INSERT INTO reports VALUES ('p', 2, 8, 'rows', 1, x'63');
INSERT INTO reports VALUES ('q', 16, 7, 'rows', 1, x'61'), ('q', 17, 9, 'rows', 2, x'62');
INSERT INTO observers VALUES ('o', 'q', 'http://h/', '', 16, 1);
"""
VERSION_3 = """
ALTER TABLE queries ADD COLUMN identifier TEXT NOT NULL DEFAULT '';
UPDATE queries SET identifier = 'i' || name;
CREATE TABLE followed_queries (name TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
INSERT INTO followed_queries VALUES ('q');
ALTER TABLE streams ADD COLUMN too_late INTEGER NOT NULL DEFAULT 0;
UPDATE streams SET too_late = 1;
CREATE TABLE late_elements (
    stream INTEGER NOT NULL, number INTEGER NOT NULL, time INTEGER NOT NULL, arrived INTEGER NOT NULL,
    graph BLOB NOT NULL, PRIMARY KEY (stream, number)
) STRICT, WITHOUT ROWID;
INSERT INTO late_elements VALUES (1, 7, 3, 4, x'67');
"""


def write(directory: Path, version: int) -> None:
    """Write a file of version 2 or 3."""
    with closing(sqlite3.connect(directory / FILE_NAME)) as file:
        file.executescript(f"{VERSION_2} PRAGMA application_id = {0x45445354}; PRAGMA user_version = {version};")
        rows = [(name, encode_access(ANYBODY)) for name in ("p", "q")]
        file.executemany("INSERT INTO queries VALUES (?, 'text', ?, 5, 1, 4)", rows)
        file.commit()
        if version == 3:
            file.executescript(VERSION_3)


def check(directory: Path, version: int) -> None:
    """Check that nothing of the file is lost, and that it is usable."""
    identifiers = ("ip", "iq") if version == 3 else ("5", "5")
    with closing(StreamStore(directory)) as store:
        assert store.queries() == [
            StoredQuery(name, "text", ANYBODY, 5, True, number, 4, identifier)
            for name, number, identifier in zip("pq", (2, 17), identifiers, strict=True)
        ]
        assert store.followed_queries() == ({"q"} if version == 3 else set())
        assert store.reports("p", 0, -1) == [ReportRow(2, 8, "rows", 1, b"c")]
        assert store.reports("q", 0, -1) == [ReportRow(16, 7, "rows", 1, b"a"), ReportRow(17, 9, "rows", 2, b"b")]
        assert store.streams() == [StoredStream(1, "urn:s", "", 2, "", 7, 6, int(version == 3))]
        assert store.late(1) == ([LateElement(7, 3, 4, b"g")] if version == 3 else [])
        assert store.observers() == [StoredObserver("o", "q", "http://h/", "", 16, True, identifiers[1])]
        with store.transaction():
            store.report("p", ReportRow(3, 10, "rows", 1, b"d"))
            store.drop_query("q")
    with closing(StreamStore(directory)) as store:
        assert [row.number for row in store.reports("p", 0, -1)] == [2, 3]
        assert store.observers() == []


@pytest.mark.parametrize("version", [2, 3])
def test_a_file_with_data_is_converted(tmp_path: Path, version: int) -> None:
    write(tmp_path, version)
    check(tmp_path, version)


STEPS = ("ALTER TABLE reports", "INSERT INTO reports SELECT", "DROP TABLE", "PRAGMA user_version = ", "COMMIT")


Prepare = Callable[[sqlite3.Connection], object]


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> Callable[[Prepare], AbstractContextManager[None]]:
    """Return a function whose context passes each new connection to its argument."""
    original = sqlite3.connect

    @contextmanager
    def preparing(prepare: Prepare) -> Iterator[None]:
        def connect(*arguments: Any, **options: Any) -> sqlite3.Connection:
            connection = original(*arguments, **options)
            prepare(connection)
            return connection

        with monkeypatch.context() as patch:
            patch.setattr(sqlite3, "connect", connect)
            yield

    return preparing


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("step", STEPS)
def test_a_conversion_that_is_killed_begins_again(tmp_path: Path, prepared, version: int, step: str) -> None:
    """The files before each step are those that a kill leaves."""
    directory, killed = tmp_path / "directory", tmp_path / "killed"
    directory.mkdir()
    write(directory, version)

    def copy(statement: str) -> None:
        if statement.lstrip().startswith(step):
            shutil.copytree(directory, killed)

    with prepared(lambda connection: connection.set_trace_callback(copy)):
        StreamStore(directory).close()
    (killed / f"{FILE_NAME}-shm").unlink()  # its locks are those of the living process
    check(killed, version)


@pytest.mark.parametrize("version", [2, 3])
def test_a_conversion_that_fails_begins_again(tmp_path: Path, prepared, version: int) -> None:
    write(tmp_path, version)

    def permit(action: int, *_: object) -> int:
        return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_DROP_TABLE else sqlite3.SQLITE_OK

    with (
        prepared(lambda connection: connection.set_authorizer(permit)),
        pytest.raises(StorageFailed, match="not authorized"),
    ):
        StreamStore(tmp_path)
    check(tmp_path, version)


@pytest.mark.parametrize("opened", [1, 2])
def test_a_file_of_version_1_is_converted(tmp_path: Path, opened: int) -> None:
    version_1(tmp_path)
    for _ in range(opened):
        with closing(StreamStore(tmp_path)) as store:
            assert store.queries() == [StoredQuery("q", "text", ANYBODY, 5, True, 17, 4, "5")]
            assert store.followed_queries() == set()
            assert store.reports("q", 0, -1) == [ReportRow(16, 9, "rows", 1, b"a"), ReportRow(17, 9, "rows", 1, b"b")]
            assert store.streams() == [StoredStream(1, "urn:s", "", 2, "", 7, 6, 0)]
    with closing(StreamStore(tmp_path)) as store:
        store.set_numbers({"q": 18})
        assert store.queries()[0].number == 18
        store.drop_query("q")
        assert store.queries() == store.reports("q", 0, -1) == []
        store.put_query(StoredQuery("q", "text", ANYBODY, 5, False, 0, 4))
        assert store.queries()[0].number == 0


def test_a_file_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    version_1(tmp_path)
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as file:
        file.execute("PRAGMA user_version = 5")
    with pytest.raises(StorageFailed, match="newer version"):
        StreamStore(tmp_path)
