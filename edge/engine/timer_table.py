"""Delayed updates on disk: two tables of the journal's file, changed only in the journal's transactions.

`timers` holds those that wait, `timer_outcomes` what became of those that do no more, in the order in which that was
known. `due` is engine time (microseconds) where `relative` is 1, the machine's clock's where it is 0.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyoxigraph as ox

from edge.engine.journal import Journal
from edge.engine.journal_file import checksum
from edge.engine.requests import Dataset, UpdateRequest
from edge.engine.time_scale import Anchors
from edge.protocol.results import Term
from edge.protocol.timers import Timer

Statement = tuple[str, Sequence[object]]
"""SQL that changes something, and its parameters."""


class Waiting(NamedTuple):
    """One that waits. It sorts by its time, then by when it came."""

    due: int
    number: int
    id: str
    relative: bool


@dataclass(frozen=True, slots=True)
class Given:
    """A delayed update as it was given: at this engine time, when the machine's clock showed this."""

    request: UpdateRequest
    since: int
    scheduled: int


class TimerTable:
    """Reads the tables, and says what changes them."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def waiting(self) -> Iterator[tuple[Waiting, int]]:
        """All that wait, each with the engine time at which it was given. Raises `DataDirectoryRefused` on damage."""
        with contextlib.closing(self._journal.select("SELECT * FROM timers ORDER BY number")) as rows:
            for number, name, due, relative, since, scheduled, body, crc in rows:
                waiting = Waiting(due, number, name, bool(relative))
                if _checksum(waiting, since, scheduled, body) != crc:
                    self._journal.refuse(f"the delayed update {number} fails its checksum")
                yield waiting, since

    def latest(self) -> int:
        """The engine time at which the last of those that wait was given; 0: none waits."""
        ((since,),) = self._journal.select("SELECT coalesce(max(since), 0) FROM timers")
        return int(since)

    def given_before(self, since: int) -> set[int]:
        """The numbers of the delays that were given before this engine time."""
        rows = self._journal.select("SELECT number FROM timers WHERE relative AND since < ?", (since,))
        return {number for (number,) in rows}

    def given(self, numbers: Sequence[int]) -> Mapping[int, Given]:
        """What these are. Raises `StorageFailed`."""
        marks = ", ".join("?" * len(numbers))
        rows = self._journal.select(
            f"SELECT number, body, since, scheduled FROM timers WHERE number IN ({marks})",  # noqa: S608 - marks
            numbers,
        )
        return {number: Given(_decoded(body), since, scheduled) for number, body, since, scheduled in rows}

    def outcomes(self) -> Iterator[tuple[int, Timer]]:
        """What became of others, with the numbers of the outcomes, the oldest first."""
        rows = self._journal.select(
            "SELECT number, id, state, at, scheduled, finished, added, removed, error, description"
            " FROM timer_outcomes ORDER BY number"
        )
        for number, name, state, at, scheduled, finished, added, removed, error, description in rows:
            yield number, Timer(name, state, at, scheduled, None, finished, added, removed, error, description)

    def anchors(self) -> Anchors | None:
        """What was stored of engine time. Raises `DataDirectoryRefused` on damage."""
        for (value,) in self._journal.select("SELECT value FROM meta WHERE name = 'engine-time'"):
            try:
                return Anchors.from_json(value)
            except ValueError as error:
                self._journal.refuse(str(error))
        return None

    @staticmethod
    def add(waiting: Waiting, given: Given) -> Statement:
        """One more waits."""
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
        )
        return "INSERT INTO timers VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row

    @staticmethod
    def remove(waiting: Waiting) -> Statement:
        """One waits no more."""
        return "DELETE FROM timers WHERE number = ?", (waiting.number,)

    @staticmethod
    def finish(number: int, timer: Timer) -> Statement:
        """What became of one."""
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
        )
        return "INSERT INTO timer_outcomes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row

    @staticmethod
    def forget(number: int) -> Statement:
        """The outcomes up to this number are of no interest any more."""
        return "DELETE FROM timer_outcomes WHERE number <= ?", (number,)

    @staticmethod
    def anchor(anchors: Anchors) -> Statement:
        """What is to be known of engine time after a restart."""
        return "INSERT OR REPLACE INTO meta VALUES ('engine-time', ?)", (anchors.to_json(),)


_NODE: Final = "<urn:x-edge:some>"


def _checksum(waiting: Waiting, since: int, scheduled: int, body: bytes) -> int:
    head = f"{waiting.id} {waiting.relative:d} {since} {scheduled} "
    return checksum(head.encode() + body, waiting.number, waiting.due)


def _encoded(request: UpdateRequest) -> bytes:
    body: dict[str, object] = {"sparql": request.sparql}
    if request.dataset.given:
        body["dataset"] = [request.dataset.default_graphs, request.dataset.named_graphs]
    if request.bindings:
        body["bindings"] = {name: str(term) for name, term in request.bindings.items()}
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def _decoded(body: bytes) -> UpdateRequest:
    found: dict[str, Any] = json.loads(body)
    default, named = found.get("dataset", (None, None))
    dataset = Dataset(None if default is None else tuple(default), None if named is None else tuple(named))
    return UpdateRequest(found["sparql"], dataset, {n: _term(text) for n, text in found.get("bindings", {}).items()})


def _term(text: str) -> Term:
    quad: ox.Quad
    (quad,) = ox.parse(f"{_NODE} {_NODE} {text} .", ox.RdfFormat.N_TRIPLES, lenient=True)
    return quad.object
