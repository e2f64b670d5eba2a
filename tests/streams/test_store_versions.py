"""The file of streams: one of an earlier version is converted, one of a newer version is not touched."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from edge.protocol.access import ANYBODY
from edge.protocol.errors import StorageFailed
from edge.streams.encoding import encode_access
from edge.streams.settings import FILE_NAME
from edge.streams.store import StreamStore
from edge.streams.stored_rows import ReportRow, StoredQuery, StoredStream

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
