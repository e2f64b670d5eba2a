"""Delayed updates on disk: two tables of the journal's file, changed only in the journal's transactions.

`timers` holds the pending ones. `timer_outcomes` holds the outcomes of finished ones, in the order of their end. `due`
is engine time (microseconds) if `relative` is 1, and wall clock time if it is 0. `owner` is the registration of the
client, which is the namespace of its ids. The body contains the client's permissions.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyoxigraph as ox

from edge.engine.journal.journal import Journal
from edge.engine.journal.sqlite_schema import checksum
from edge.engine.requests import Dataset, UpdateRequest
from edge.engine.store.terms import problem
from edge.engine.timers.engine_time import Anchors
from edge.protocol.access import ANYBODY, Access
from edge.protocol.errors import UpdateFailed
from edge.protocol.results import Term
from edge.protocol.timers import TimerRecord

Statement = tuple[str, Sequence[object]]
"""SQL statement that changes something, and its parameters."""


ROW_OVERHEAD: Final = 200
"""Bytes of a row in addition to the text."""


class PendingTimer(NamedTuple):
    """A delayed update that waits. Sorts by due time, then by arrival."""

    due: int
    number: int
    key: str
    """Owner and id in one string, to save memory: there can be a hundred thousand of them."""
    relative: bool
    size: int = 0
    """Approximate bytes of its text on disk."""

    @property
    def owner(self) -> str:
        """Registration of the client; empty without security."""
        return self.key.rpartition(_SEPARATOR)[0]

    @property
    def id(self) -> str:
        """Id, unique for its owner."""
        return self.key.rpartition(_SEPARATOR)[2]


_SEPARATOR: Final = "\0"
"""Separates owner and id; neither contains it."""


def key_of(owner: str, name: str) -> str:
    """Return the key of an owner's delayed update."""
    return f"{owner}{_SEPARATOR}{name}" if owner else name


def named(key: str, name: str) -> bool:
    """Return whether a key has this id, for any owner."""
    return key == name or key.endswith(_SEPARATOR + name)


def owned(key: str, owner: str) -> bool:
    """Return whether a key belongs to this owner."""
    return key.startswith(owner + _SEPARATOR) if owner else _SEPARATOR not in key


@dataclass(frozen=True, slots=True)
class TimerRequest:
    """A delayed update as it was scheduled: at engine time `since`, and wall clock time `scheduled`."""

    request: UpdateRequest
    since: int
    scheduled: int


def check_storable(request: UpdateRequest, name: str) -> None:
    """Check that a delayed update can be written, and read again when it is due. Raises `UpdateFailed`.

    An unwritable one would fail the commit that it shares with updates of other clients.
    """
    for variable, term in request.bindings.items():
        if (fault := problem(term)) is not None:
            raise UpdateFailed(f"The delayed update cannot be stored: the value of ?{variable} {fault}")
    try:
        name.encode()
        _encoded(request)
    except UnicodeEncodeError:
        raise UpdateFailed(
            "The delayed update cannot be stored: its id, text or dataset holds a lone surrogate (half of a UTF-16 "
            "pair, U+D800 to U+DFFF); remove it"
        ) from None


def is_sound(row: tuple[Any, ...]) -> bool:
    """Return whether a row of `timers` is intact. May raise any exception if the row is damaged."""
    number, name, due, relative, since, scheduled, body, crc, owner = row
    _decoded(body, owner)
    return bool(
        _checksum(PendingTimer(due, number, key_of(owner, name), bool(relative)), since, scheduled, body) == crc
    )


class TimerTable:
    """Reads the tables, and returns the statements that change them."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def waiting(self) -> Iterator[tuple[PendingTimer, int]]:
        """Yield the pending ones with the engine time of their scheduling. Raises `DataDirectoryRefused` on damage."""
        with contextlib.closing(self._journal.select("SELECT * FROM timers ORDER BY number")) as rows:
            for number, name, due, relative, since, scheduled, body, crc, owner in rows:
                waiting = PendingTimer(due, number, key_of(owner, name), bool(relative), len(body) + ROW_OVERHEAD)
                if _checksum(waiting, since, scheduled, body) != crc:
                    self._journal.refuse(f"the delayed update {number} fails its checksum")
                yield waiting, since

    def latest(self) -> int:
        """Return the engine time at which the newest pending one was scheduled; 0 if none is pending."""
        ((since,),) = self._journal.select("SELECT coalesce(max(since), 0) FROM timers")
        return int(since)

    def given_before(self, since: int) -> set[int]:
        """Return the numbers of the delays that were scheduled before this engine time."""
        rows = self._journal.select("SELECT number FROM timers WHERE relative AND since < ?", (since,))
        return {number for (number,) in rows}

    def given(self, numbers: Sequence[int]) -> Mapping[int, TimerRequest]:
        """Return the requests of these numbers. Raises `StorageFailed`."""
        marks = ", ".join("?" * len(numbers))
        rows = self._journal.select(
            f"SELECT number, body, since, scheduled, owner FROM timers WHERE number IN ({marks})",  # noqa: S608 - marks
            numbers,
        )
        return {row[0]: TimerRequest(_decoded(row[1], row[4]), row[2], row[3]) for row in rows}

    def outcomes(self) -> Iterator[tuple[int, str, TimerRecord]]:
        """Yield number, key and outcome of finished ones, oldest first."""
        rows = self._journal.select(
            "SELECT number, owner, id, state, at, scheduled, client, finished, added, removed, error, description"
            " FROM timer_outcomes ORDER BY number"
        )
        for number, owner, name, state, at, scheduled, client, *rest in rows:
            # Interned: many outcomes belong to few clients.
            yield number, key_of(owner, name), TimerRecord(name, state, at, scheduled, None, sys.intern(client), *rest)

    def anchors(self) -> Anchors | None:
        """Return the stored anchors of engine time. Raises `DataDirectoryRefused` on damage."""
        for (value,) in self._journal.select("SELECT value FROM meta WHERE name = 'engine-time'"):
            try:
                return Anchors.from_json(value)
            except ValueError as error:
                self._journal.refuse(str(error))
        return None

    @staticmethod
    def add(waiting: PendingTimer, given: TimerRequest) -> Statement:
        """Return the statement that adds a pending one."""
        body = _encoded(given.request)
        crc = _checksum(waiting, given.since, given.scheduled, body)
        row = (
            waiting.number,
            waiting.id,
            waiting.due,
            waiting.relative,
            given.since,
            given.scheduled,
            body,
            crc,
            waiting.owner,
        )
        return "INSERT INTO timers VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row

    @staticmethod
    def remove(waiting: PendingTimer) -> Statement:
        """Return the statement that removes a pending one."""
        return "DELETE FROM timers WHERE number = ?", (waiting.number,)

    @staticmethod
    def finish(number: int, owner: str, timer: TimerRecord) -> Statement:
        """Return the statement that adds an outcome."""
        row = (
            number,
            timer.id,
            timer.state,
            timer.at,
            timer.scheduled,
            timer.finished,
            timer.added,
            timer.removed,
            timer.error,
            timer.error_description,
            owner,
            timer.client,
        )
        return "INSERT INTO timer_outcomes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row

    @staticmethod
    def forget(number: int) -> Statement:
        """Return the statement that deletes the outcomes up to this number."""
        return "DELETE FROM timer_outcomes WHERE number <= ?", (number,)

    @staticmethod
    def anchor(anchors: Anchors) -> Statement:
        """Return the statement that stores the anchors of engine time."""
        return "INSERT OR REPLACE INTO meta VALUES ('engine-time', ?)", (anchors.to_json(),)


_NODE: Final = "<urn:x-edge:some>"


def _checksum(waiting: PendingTimer, since: int, scheduled: int, body: bytes) -> int:
    head = f"{waiting.key} {waiting.relative:d} {since} {scheduled} "
    return checksum(head.encode() + body, waiting.number, waiting.due)


def _encoded(request: UpdateRequest) -> bytes:
    body: dict[str, object] = {"sparql": request.sparql}
    if request.dataset.given:
        body["dataset"] = [request.dataset.default_graphs, request.dataset.named_graphs]
    if request.bindings:
        body["bindings"] = {name: str(term) for name, term in request.bindings.items()}
    if request.to_ledger:
        body["beside"] = True
    access = request.access
    if access.client:
        body["client"] = access.client
    for right, graphs in (("read", access.read), ("write", access.write)):
        if graphs is not None:
            body[right] = sorted(graphs)
    # Without escapes, which take two to three times the bytes that are charged.
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def _decoded(body: bytes, owner: str) -> UpdateRequest:
    found: dict[str, Any] = json.loads(body)
    default, named = found.get("dataset", (None, None))
    dataset = Dataset.of(default, named)
    bindings = {name: _term(text) for name, text in found.get("bindings", {}).items()}
    return UpdateRequest(
        found["sparql"], dataset, bindings, _access(found, owner), to_ledger=found.get("beside", False)
    )


def _access(body: dict[str, Any], owner: str) -> Access:
    """Return the graph permissions that the client had when it scheduled the update."""
    if not owner and body.keys().isdisjoint(("client", "read", "write")):
        return ANYBODY
    read, write = (frozenset(body[right]) if right in body else None for right in ("read", "write"))
    return Access(body.get("client", ""), read=read, write=write, registration=owner)


def _term(text: str) -> Term:
    quad: ox.Quad
    (quad,) = ox.parse(f"{_NODE} {_NODE} {text} .", ox.RdfFormat.N_TRIPLES, lenient=True)
    return quad.object
