"""SQLite files that can be opened again where the disk is full."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path


def close(connection: sqlite3.Connection) -> None:
    """Close a file's last connection, and leave its write-ahead log where it is, with the index of the log.

    SQLite removes both when the last connection is closed, and needs room to make them again. So a gateway that was
    stopped would not start where something else has filled the disk up since. All that was committed is in the file
    itself, too, as long as that has room.
    """
    last = _reader(connection)
    try:
        connection.close()
    finally:
        if last is not None:
            last.close()


def _reader(connection: sqlite3.Connection) -> sqlite3.Connection | None:
    """A connection that may only read, and so cannot remove anything (https://sqlite.org/wal.html); None: no need."""
    with contextlib.suppress(sqlite3.Error):
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        (_, _, file) = connection.execute("PRAGMA database_list").fetchone()
        if not file:
            return None
        reader = sqlite3.connect(f"{Path(file).as_uri()}?mode=ro", uri=True)
        try:
            reader.execute("SELECT 1 FROM sqlite_schema").fetchall()
        except sqlite3.Error:
            reader.close()
            raise
        return reader
    return None
