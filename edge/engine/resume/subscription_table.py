"""Durable subscriptions on disk: three tables of the journal's file, changed only in the journal's transactions.

A row of `subscriptions` has the journal's sequence number at which the whole result was notification 0. A snapshot
drops the earlier changes, so `subscription_sequences` has the last notification of each subscription at the snapshot.
The later notifications follow from the change sets since then.

A re-evaluated subscription skips states when it falls behind, so its notifications do not follow from the change sets.
For these, `subscription_positions` has a sequence number of the journal and the notification reached there. It is
written with a later commit.
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
"""SQL statement that changes something, and its parameters."""


@dataclass(frozen=True, slots=True)
class DurableSubscription:
    """A subscription as it began: the journal's sequence number at that time, and the request."""

    number: int
    spuid: str
    began: int
    request: QueryRequest


class Start(NamedTuple):
    """Point from which a subscription can be replayed: its last notification at a sequence number of the journal."""

    journal: int
    sequence: int
    subscription: DurableSubscription


class Position(NamedTuple):
    """State of a re-evaluated subscription: its last notification at a sequence number of the journal."""

    journal: int
    sequence: int


class Origin(NamedTuple):
    """Conditions under which the rows were written. Only equal conditions reproduce the same notifications."""

    maker: str
    """Versions of the software, and the query rules."""
    boot: str
    """Id of the boot whose last commits a power cut may have lost; empty: the disk has everything that was notified."""


class SubscriptionTable:
    """Reads the tables, and returns the statements that change them."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def positions(self) -> dict[int, Position]:
        """Return the positions of re-evaluated subscriptions, by number. Raises `DataDirectoryRefused` on damage."""
        journal, found = self._journal, {}
        for number, at, sequence, crc in journal.select("SELECT * FROM subscription_positions"):
            if checksum(b"%d" % number, at, sequence) != crc:
                journal.refuse(f"the position of the subscription {number} fails its checksum")
            found[number] = Position(at, sequence)
        return found

    def starts(self) -> Iterator[Start]:
        """Yield all of them, in the order in which they began. Raises `DataDirectoryRefused` on damage.

        A re-evaluated one whose position is older than the snapshot cannot be replayed: its sequence is -1.
        """
        journal, snapshot = self._journal, self._journal.snapshot_sequence
        sequences = {}
        positions = self.positions()
        for number, sequence, crc in journal.select("SELECT * FROM subscription_sequences"):
            if checksum(b"", number, sequence) != crc:
                journal.refuse(f"the last notification of the subscription {number} fails its checksum")
            sequences[number] = sequence
        with contextlib.closing(journal.select("SELECT * FROM subscriptions ORDER BY number")) as rows:
            for number, spuid, began, body, crc in rows:
                if checksum(spuid.encode() + body, number, began) != crc:
                    journal.refuse(f"the subscription {number} fails its checksum")
                subscription = DurableSubscription(number, spuid, began, _decoded(body))
                position = positions.get(number)
                if position is not None:
                    yield Start(
                        position.journal, position.sequence if position.journal >= snapshot else -1, subscription
                    )
                elif began >= snapshot:
                    # Its changes since the beginning are all in the journal, so the replay starts from sequence 0.
                    yield Start(began, 0, subscription)
                elif number in sequences:
                    # The snapshot has removed earlier changes; it stored the sequence that was reached.
                    yield Start(snapshot, sequences[number], subscription)
                else:
                    journal.refuse(f"the last notification of the subscription {number} is missing")

    def origin(self) -> Origin | None:
        """Return the stored origin; None if there never were any rows. Raises `DataDirectoryRefused` on damage."""
        for (value,) in self._journal.select("SELECT value FROM meta WHERE name = ?", (_ORIGIN,)):
            try:
                return Origin(*map(str, json.loads(value)))
            except (ValueError, TypeError):
                self._journal.refuse("the origin of the subscriptions cannot be read")
        return None

    @staticmethod
    def add(subscription: DurableSubscription) -> Statement:
        """Return the statement that adds a subscription."""
        body = _encoded(subscription.request)
        crc = checksum(subscription.spuid.encode() + body, subscription.number, subscription.began)
        return "INSERT INTO subscriptions VALUES (?, ?, ?, ?, ?)", (
            subscription.number,
            subscription.spuid,
            subscription.began,
            body,
            crc,
        )

    @staticmethod
    def remove(number: int) -> Iterable[Statement]:
        """Return the statements that remove a subscription."""
        yield "DELETE FROM subscriptions WHERE number = ?", (number,)
        yield "DELETE FROM subscription_sequences WHERE number = ?", (number,)
        yield "DELETE FROM subscription_positions WHERE number = ?", (number,)

    @staticmethod
    def mark(sequences: Iterable[tuple[int, int]]) -> Iterable[Statement]:
        """Return the statements that store the progress at a snapshot.

        `sequences`: number and last notification of each subscription.
        """
        # All rows are replaced in the transaction of the snapshot, so a row is always as old as the snapshot.
        yield "DELETE FROM subscription_sequences", ()
        for number, sequence in sequences:
            row = (number, sequence, checksum(b"", number, sequence))
            yield "INSERT INTO subscription_sequences VALUES (?, ?, ?)", row

    @staticmethod
    def set_position(number: int, position: Position) -> Statement:
        """Return the statement that stores the position of a re-evaluated subscription."""
        crc = checksum(b"%d" % number, position.journal, position.sequence)
        return "INSERT OR REPLACE INTO subscription_positions VALUES (?, ?, ?, ?)", (number, *position, crc)

    @staticmethod
    def set_origin(origin: Origin) -> Statement:
        """Return the statement that stores the origin."""
        return "INSERT OR REPLACE INTO meta VALUES (?, ?)", (_ORIGIN, json.dumps(origin))


_ORIGIN: Final = "subscriptions"
_UNKNOWN: Final = "unknown"
"""Client of rows from earlier versions, which stored none."""
_RIGHTS: Final = ("read", "write", "publish", "receive")


def _encoded(request: QueryRequest) -> bytes:
    body: dict[str, object] = {"sparql": request.sparql}
    dataset, access = request.dataset, request.access
    if dataset.given:
        body["dataset"] = [dataset.default_graphs, dataset.named_graphs]
    if access != ANYBODY:
        limits = {right: sorted(some) for right in _RIGHTS if (some := getattr(access, right)) is not None}
        body["access"] = [access.client, access.registration, sorted(access.actions), limits]
    # With security, the client is part of `access`.
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
