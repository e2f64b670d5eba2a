"""Tables of the outbox in the journal file, changed only in transactions of the journal.

`outbox` holds the observations that are not acknowledged, with consecutive numbers. `outbox_contexts` holds the
values that observations of one sensor share, and `outbox_lost` the ranges of numbers that were dropped. One row of
`meta` holds the gateway name, the epoch and the acknowledged number.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from edge.engine.journal.sqlite_schema import checksum
from edge.outbox.observation import ObservationContext
from edge.outbox.segment import context_members

Select = Callable[[str, Sequence[object]], Iterable[tuple[Any, ...]]]
"""Runs a SELECT, on the journal or on another connection."""

Row = tuple[int, int, str]
"""Number, context and body of an observation (`edge.outbox.segment.body`)."""


class DamagedDatabase(ValueError):
    """The stored data is damaged; the text names the problem."""


class Lost(NamedTuple):
    """A range of dropped observations."""

    first: int
    last: int
    start: int
    """The earliest time in it, in microseconds since 1970."""
    end: int
    """The latest time in it."""
    reason: str


class Head(NamedTuple):
    """Identity and progress of the outbox."""

    gateway: str
    epoch: str
    acknowledged: int = 0
    """Number up to which all observations have arrived."""
    claimed: int = 0
    """The highest number that may ever have been sent."""


def read_head(select: Select) -> Head | None:
    """Read the row of `meta`; None if it does not exist. Raises `DamagedDatabase`."""
    for (value,) in select("SELECT value FROM meta WHERE name = ?", (_HEAD,)):
        try:
            return Head(*json.loads(value))
        except (ValueError, TypeError):
            raise DamagedDatabase("it is not known whose its outbox is") from None
    return None


def write_head(connection: sqlite3.Connection, head: Head) -> None:
    """Store the row of `meta`."""
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_HEAD, json.dumps(head)))


def read_rows(select: Select, first: int, last: int, limit: int = -1) -> Iterator[Row]:
    """Yield the observations `first` to `last` in order, at most `limit`. Raises `DamagedDatabase`."""
    query = "SELECT seq, context, body, crc FROM outbox WHERE seq BETWEEN ? AND ? ORDER BY seq LIMIT ?"
    for seq, context, body, crc in select(query, (first, last, limit)):
        if checksum(body.encode(), seq, context) != crc:
            raise DamagedDatabase(f"the stored observation {seq} fails its checksum")
        yield seq, context, body


class Extent(NamedTuple):
    """Summary of the stored observations."""

    observations: int
    size: int
    """Size of their bodies in bytes."""
    first: int
    last: int


def extent(select: Select, after: int) -> Extent:
    """Summarise the observations with numbers above `after`, without reading their bodies. Raises `DamagedDatabase`."""
    query = """
        SELECT count(*), sum(length(CAST(body AS BLOB))), min(seq), max(seq),
            min(CASE WHEN context NOT IN (SELECT id FROM outbox_contexts) THEN context END)
        FROM outbox WHERE seq > ?
    """
    ((count, size, first, last, missing),) = select(query, (after,))
    if missing is not None:
        raise DamagedDatabase(f"the context {missing} of stored observations is missing")
    # Numbers are assigned without gaps, so a gap is damage.
    if count and count != last - first + 1:
        raise DamagedDatabase(f"of the stored observations {first} to {last} only {count} are there")
    return Extent(count, size or 0, first or 0, last or 0)


def read_contexts(select: Select, ids: Iterable[int] | None = None) -> Iterator[tuple[int, ObservationContext]]:
    """Yield contexts with their numbers: those in `ids`, or all. Raises `DamagedDatabase`."""
    query = "SELECT id, body, crc FROM outbox_contexts"
    parameters: tuple[str, ...] = ()
    if ids is not None:
        query += " WHERE id IN (SELECT value FROM json_each(?))"
        parameters = (json.dumps(list(ids)),)
    for number, body, crc in select(query, parameters):
        if checksum(body.encode(), number) != crc:
            raise DamagedDatabase(f"the context {number} of stored observations fails its checksum")
        yield number, ObservationContext(**json.loads(body))


def read_lost(select: Select) -> Iterator[Lost]:
    """Yield the dropped ranges in order."""
    yield from map(Lost._make, select('SELECT first, last, start, "end", reason FROM outbox_lost', ()))


def add_rows(connection: sqlite3.Connection, rows: Iterable[Row]) -> None:
    """Insert observations."""
    connection.executemany(
        "INSERT INTO outbox VALUES (?, ?, ?, ?)",
        [(seq, context, body, checksum(body.encode(), seq, context)) for seq, context, body in rows],
    )


def add_contexts(connection: sqlite3.Connection, contexts: Iterable[tuple[int, ObservationContext]]) -> None:
    """Insert contexts."""
    for number, context in contexts:
        body = json.dumps(context_members(context), ensure_ascii=False, separators=(",", ":"))
        row = (number, body, checksum(body.encode(), number))
        connection.execute("INSERT INTO outbox_contexts VALUES (?, ?, ?)", row)


def add_lost(connection: sqlite3.Connection, lost: Lost) -> None:
    """Insert a dropped range."""
    connection.execute("INSERT INTO outbox_lost VALUES (?, ?, ?, ?, ?)", lost)


def remove(connection: sqlite3.Connection, last: int) -> tuple[int, int]:
    """Delete the observations up to `last`. Returns their number and the size of their bodies in bytes."""
    query = "SELECT count(*), coalesce(sum(length(CAST(body AS BLOB))), 0) FROM outbox WHERE seq <= ?"
    ((count, size),) = connection.execute(query, (last,))
    connection.execute("DELETE FROM outbox WHERE seq <= ?", (last,))
    return int(count), int(size)


def remove_lost(connection: sqlite3.Connection, last: int) -> None:
    """Delete the dropped ranges up to `last`; shorten a range that contains it."""
    connection.execute("DELETE FROM outbox_lost WHERE last <= ?", (last,))
    # After the DELETE only a range that extends beyond `last` can match.
    connection.execute("UPDATE outbox_lost SET first = ? WHERE first <= ?", (last + 1, last))


def renumber(connection: sqlite3.Connection, offset: int) -> None:
    """Subtract `offset` from all numbers."""

    def crc(body: str, seq: int, context: int) -> int:
        return checksum(body.encode(), seq, context)

    # The checksum covers the number, so it has to be computed again for each row.
    connection.create_function("outbox_crc", 3, crc, deterministic=True)
    by = {"offset": offset}
    connection.execute("UPDATE outbox SET seq = seq - :offset, crc = outbox_crc(body, seq - :offset, context)", by)
    connection.execute("UPDATE outbox_lost SET first = first - :offset, last = last - :offset", by)


def remove_contexts(connection: sqlite3.Connection, ids: Sequence[int]) -> None:
    """Delete contexts."""
    connection.executemany("DELETE FROM outbox_contexts WHERE id = ?", [(number,) for number in ids])


_HEAD: Final = "outbox"
