"""The outbox on disk: tables of the journal's file, changed only in the journal's transactions.

`outbox` holds the observations that nobody has acknowledged, in the order of their numbers with none left out,
`outbox_contexts` what many of them have in common, `outbox_lost` the ranges of numbers that were dropped. The name of
the gateway, the epoch and what is acknowledged are one row of `meta`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from edge.engine.journal.sqlite_schema import checksum
from edge.outbox.observation import Context
from edge.outbox.segment import told

Select = Callable[[str, Sequence[object]], Iterable[tuple[Any, ...]]]
"""Reads the file: of the journal, or of a connection."""

Row = tuple[int, int, str]
"""Number, context and body of an observation (`edge.outbox.segment.body`)."""


class Damaged(ValueError):
    """What is on disk is not what was written; the text says what."""


class Lost(NamedTuple):
    """A range of observations that were dropped."""

    first: int
    last: int
    start: int
    """The earliest time in it, microseconds since 1970."""
    end: int
    """The latest."""
    reason: str


class Head(NamedTuple):
    """Whose outbox it is, and how far it has come."""

    gateway: str
    epoch: str
    acknowledged: int = 0
    """Up to this number all has arrived."""
    claimed: int = 0
    """No higher number was ever sent."""


def read_head(select: Select) -> Head | None:
    """The row of `meta`; None: there never was one. Raises `Damaged`."""
    for (value,) in select("SELECT value FROM meta WHERE name = ?", (_HEAD,)):
        try:
            return Head(*json.loads(value))
        except (ValueError, TypeError):
            raise Damaged("it is not known whose its outbox is") from None
    return None


def write_head(connection: sqlite3.Connection, head: Head) -> None:
    """Put it in place."""
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_HEAD, json.dumps(head)))


def read_rows(select: Select, first: int, last: int, limit: int = -1) -> Iterator[Row]:
    """The observations with these numbers, in order, up to `limit` of them. Raises `Damaged`."""
    query = "SELECT seq, context, body, crc FROM outbox WHERE seq BETWEEN ? AND ? ORDER BY seq LIMIT ?"
    for seq, context, body, crc in select(query, (first, last, limit)):
        if checksum(body.encode(), seq, context) != crc:
            raise Damaged(f"the stored observation {seq} fails its checksum")
        yield seq, context, body


class Extent(NamedTuple):
    """What is stored, from afar."""

    observations: int
    size: int
    """Bytes of their bodies."""
    first: int
    last: int


def extent(select: Select, after: int) -> Extent:
    """Of the observations with higher numbers. Raises `Damaged`."""
    query = """
        SELECT count(*), sum(length(CAST(body AS BLOB))), min(seq), max(seq),
            min(CASE WHEN context NOT IN (SELECT id FROM outbox_contexts) THEN context END)
        FROM outbox WHERE seq > ?
    """
    ((count, size, first, last, stranger),) = select(query, (after,))
    if stranger is not None:
        raise Damaged(f"the context {stranger} of stored observations is missing")
    if count and count != last - first + 1:
        raise Damaged(f"of the stored observations {first} to {last} only {count} are there")
    return Extent(count, size or 0, first or 0, last or 0)


def read_contexts(select: Select, ids: Iterable[int] | None = None) -> Iterator[tuple[int, Context]]:
    """Contexts by their numbers, or all of them. Raises `Damaged`."""
    query = "SELECT id, body, crc FROM outbox_contexts"
    parameters: tuple[str, ...] = ()
    if ids is not None:
        query += " WHERE id IN (SELECT value FROM json_each(?))"
        parameters = (json.dumps(list(ids)),)
    for number, body, crc in select(query, parameters):
        if checksum(body.encode(), number) != crc:
            raise Damaged(f"the context {number} of stored observations fails its checksum")
        yield number, Context(**json.loads(body))


def read_lost(select: Select) -> Iterator[Lost]:
    """The ranges that were dropped, in order."""
    yield from map(Lost._make, select('SELECT first, last, start, "end", reason FROM outbox_lost', ()))


def add_rows(connection: sqlite3.Connection, rows: Iterable[Row]) -> None:
    """More observations."""
    connection.executemany(
        "INSERT INTO outbox VALUES (?, ?, ?, ?)",
        [(seq, context, body, checksum(body.encode(), seq, context)) for seq, context, body in rows],
    )


def add_contexts(connection: sqlite3.Connection, contexts: Iterable[tuple[int, Context]]) -> None:
    """More contexts."""
    for number, context in contexts:
        body = json.dumps(told(context), ensure_ascii=False, separators=(",", ":"))
        row = (number, body, checksum(body.encode(), number))
        connection.execute("INSERT INTO outbox_contexts VALUES (?, ?, ?)", row)


def add_lost(connection: sqlite3.Connection, lost: Lost) -> None:
    """One more range that was dropped."""
    connection.execute("INSERT INTO outbox_lost VALUES (?, ?, ?, ?, ?)", lost)


def remove(connection: sqlite3.Connection, last: int) -> tuple[int, int]:
    """Forget the observations up to this number. Returns how many these were, and the bytes of their bodies."""
    query = "SELECT count(*), coalesce(sum(length(CAST(body AS BLOB))), 0) FROM outbox WHERE seq <= ?"
    ((count, size),) = connection.execute(query, (last,))
    connection.execute("DELETE FROM outbox WHERE seq <= ?", (last,))
    return int(count), int(size)


def remove_lost(connection: sqlite3.Connection, last: int) -> None:
    """Forget the ranges up to this number, and of the one that it is amid the beginning."""
    connection.execute("DELETE FROM outbox_lost WHERE last <= ?", (last,))
    connection.execute("UPDATE outbox_lost SET first = ? WHERE first <= ?", (last + 1, last))


def renumber(connection: sqlite3.Connection, less: int) -> None:
    """Take so much from all numbers."""

    def crc(body: str, seq: int, context: int) -> int:
        return checksum(body.encode(), seq, context)

    connection.create_function("outbox_crc", 3, crc, deterministic=True)
    connection.execute("UPDATE outbox SET seq = seq - ?1, crc = outbox_crc(body, seq - ?1, context)", (less,))
    connection.execute("UPDATE outbox_lost SET first = first - ?1, last = last - ?1", (less,))


def remove_contexts(connection: sqlite3.Connection, ids: Sequence[int]) -> None:
    """Forget contexts."""
    connection.executemany("DELETE FROM outbox_contexts WHERE id = ?", [(number,) for number in ids])


_HEAD: Final = "outbox"
