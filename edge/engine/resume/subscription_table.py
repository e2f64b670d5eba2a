"""Subscriptions that outlive the process, on disk: two tables of the journal's file, changed only in its transactions.

A row of `subscriptions` is one of them, with the sequence number that the journal had when its result was told as a
whole, as notification 0. A snapshot forgets the changes before it: `subscription_sequences` has the notification at
which each was then. What goes on from there follows from the change sets since.

A subscription that is re-evaluated skips states when it falls behind, so its notifications do not follow from the
change sets. `subscription_positions` has a pair for it, a number of the journal and the notification that it had
reached then, written with a commit soon after.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from edge.engine.journal.journal import Journal
from edge.engine.journal.sqlite_schema import checksum
from edge.engine.requests import Dataset, QueryRequest
from edge.protocol.access import ANYBODY, Access

Statement = tuple[str, Sequence[object]]
"""SQL that changes something, and its parameters."""


@dataclass(frozen=True, slots=True)
class DurableSubscription:
    """A subscription as it began: the journal's sequence number then, and what was asked."""

    number: int
    spuid: str
    began: int
    request: QueryRequest


class Start(NamedTuple):
    """From where a subscription can be told again: at this number of the journal it had had this notification."""

    journal: int
    sequence: int
    kept: DurableSubscription


class Position(NamedTuple):
    """A state that a re-evaluated subscription had: at this number of the journal this was its last notification."""

    journal: int
    sequence: int


class Origin(NamedTuple):
    """Under what the rows were written. Only the same tells the same again."""

    maker: str
    """Which version of what, and with which rules."""
    boot: str
    """The run of the machine that its disk may not have outlived; empty: the disk has all that anybody was told."""


class SubscriptionTable:
    """Reads the tables, and says what changes them."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def positions(self) -> dict[int, Position]:
        """The positions of the re-evaluated ones, by number. Raises `DataDirectoryRefused` on damage."""
        journal, found = self._journal, {}
        for number, at, sequence, crc in journal.select("SELECT * FROM subscription_positions"):
            if checksum(b"%d" % number, at, sequence) != crc:
                journal.refuse(f"the position of the subscription {number} fails its checksum")
            found[number] = Position(at, sequence)
        return found

    def starts(self) -> Iterator[Start]:
        """All of them, in the order in which they began. Raises `DataDirectoryRefused` on damage.

        A re-evaluated one whose position is older than the snapshot cannot be told again: its sequence is -1.
        """
        journal, snapshot = self._journal, self._journal.snapshot_sequence
        sequences = {}
        positions = self.positions()
        for number, sequence, crc in journal.select("SELECT * FROM subscription_sequences"):
            if checksum(b"", number, sequence) != crc:
                journal.refuse(f"what the subscription {number} was told fails its checksum")
            sequences[number] = sequence
        with contextlib.closing(journal.select("SELECT * FROM subscriptions ORDER BY number")) as rows:
            for number, spuid, began, body, crc in rows:
                if checksum(spuid.encode() + body, number, began) != crc:
                    journal.refuse(f"the subscription {number} fails its checksum")
                kept = DurableSubscription(number, spuid, began, _decoded(body))
                position = positions.get(number)
                if position is not None:
                    yield Start(position.journal, position.sequence if position.journal >= snapshot else -1, kept)
                elif began >= snapshot:
                    yield Start(began, 0, kept)
                elif number in sequences:
                    yield Start(snapshot, sequences[number], kept)
                else:
                    journal.refuse(f"it is not known what the subscription {number} was told")

    def origin(self) -> Origin | None:
        """Under what the rows were written; None: there never were any. Raises `DataDirectoryRefused` on damage."""
        for (value,) in self._journal.select("SELECT value FROM meta WHERE name = ?", (_ORIGIN,)):
            try:
                return Origin(*map(str, json.loads(value)))
            except (ValueError, TypeError):
                self._journal.refuse("it is not known under what subscriptions were kept")
        return None

    @staticmethod
    def add(kept: DurableSubscription) -> Statement:
        """One more."""
        body = _encoded(kept.request)
        crc = checksum(kept.spuid.encode() + body, kept.number, kept.began)
        return "INSERT INTO subscriptions VALUES (?, ?, ?, ?, ?)", (kept.number, kept.spuid, kept.began, body, crc)

    @staticmethod
    def remove(number: int) -> Iterable[Statement]:
        """One less."""
        yield "DELETE FROM subscriptions WHERE number = ?", (number,)
        yield "DELETE FROM subscription_sequences WHERE number = ?", (number,)
        yield "DELETE FROM subscription_positions WHERE number = ?", (number,)

    @staticmethod
    def mark(sequences: Iterable[tuple[int, int]]) -> Iterable[Statement]:
        """How far each is at a snapshot: its number, and its last notification."""
        yield "DELETE FROM subscription_sequences", ()
        for number, sequence in sequences:
            row = (number, sequence, checksum(b"", number, sequence))
            yield "INSERT INTO subscription_sequences VALUES (?, ?, ?)", row

    @staticmethod
    def place(number: int, position: Position) -> Statement:
        """The position of a re-evaluated one."""
        crc = checksum(b"%d" % number, position.journal, position.sequence)
        return "INSERT OR REPLACE INTO subscription_positions VALUES (?, ?, ?, ?)", (number, *position, crc)

    @staticmethod
    def set_origin(origin: Origin) -> Statement:
        """Under what the rows are written."""
        return "INSERT OR REPLACE INTO meta VALUES (?, ?)", (_ORIGIN, json.dumps(origin))


_ORIGIN: Final = "subscriptions"
_UNKNOWN: Final = "unknown"
"""Client of rows of earlier versions that have none."""
_RIGHTS: Final = ("read", "write", "publish", "receive")


def _encoded(request: QueryRequest) -> bytes:
    body: dict[str, object] = {"sparql": request.sparql}
    dataset, access = request.dataset, request.access
    if dataset.given:
        body["dataset"] = [dataset.default_graphs, dataset.named_graphs]
    if access != ANYBODY:
        limits = {right: sorted(some) for right in _RIGHTS if (some := getattr(access, right)) is not None}
        body["access"] = [access.client, access.registration, sorted(access.actions), limits]
    if not access.client:
        body["source"] = request.source
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def _decoded(body: bytes) -> QueryRequest:
    found: dict[str, Any] = json.loads(body)
    default, named = (None if graphs is None else tuple(graphs) for graphs in found.get("dataset", (None, None)))
    access = ANYBODY
    if "access" in found:
        client, registration, actions, limits = found["access"]
        rights: dict[str, Any] = {right: frozenset(some) for right, some in limits.items()}
        access = Access(client, frozenset(actions), registration=registration, **rights)
    source = access.client or found.get("source", _UNKNOWN)
    return QueryRequest(found["sparql"], Dataset(default, named), access, source)
