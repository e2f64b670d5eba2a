"""Durable subscriptions: those that survive a restart, and their data that is not on disk yet.

Notifications are not written, because they follow from the journal. A subscription is one row, written when it begins
and removed with another commit when it ends. Only re-evaluated subscriptions also have a position, which is written
with other commits. Not thread-safe: only the writer calls it.
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

import pyoxigraph as ox

from edge import __version__
from edge.engine.journal.journal import Journal
from edge.engine.queries.function_calls import at_time
from edge.engine.queries.oxigraph_queries import QueryRules
from edge.engine.requests import QueryRequest
from edge.engine.resume.subscription_table import (
    DurableSubscription,
    Origin,
    Position,
    Start,
    Statement,
    SubscriptionTable,
)
from edge.protocol.errors import EdgeError
from edge.protocol.syntax import closing, tokenize
from edge.sparql.tokens import Token

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")

_OTHER_EACH_TIME: Final = frozenset({"NOW", "RAND", "UUID", "STRUUID", "BNODE", "SERVICE"})
_BY_ORDER: Final = frozenset({"LIMIT", "OFFSET", "REDUCED", "SUM", "AVG", "MIN", "MAX", "SAMPLE", "GROUP_CONCAT"})
"""Keywords whose value may depend on the order of the triples, which a restart changes."""


def repeatable(sparql: str, *, incremental: bool) -> bool:
    """Return whether a query has exactly one result for each state of the graph, also after a restart.

    `incremental`: the query is evaluated incrementally. The delta rules support no query whose result changes by itself
    or depends on an order.
    """
    tokens = tokenize(sparql)
    if _makes_blank_nodes(tokens):
        return False
    words = {token.word() for token in tokens}
    return incremental or (not words & (_OTHER_EACH_TIME | _BY_ORDER) and not any(at_time(sparql, tokens, "", 0)))


def _makes_blank_nodes(tokens: Sequence[Token]) -> bool:
    """Return whether the CONSTRUCT template has blank nodes. A restart would give them other labels."""
    words = [token.word() for token in tokens]
    if "CONSTRUCT" not in words:
        return False
    opening = next(i for i in range(words.index("CONSTRUCT"), len(tokens)) if tokens[i].text == "{")
    return any(
        token.kind == "blank" or token.text in ("[", "(") for token in tokens[opening : closing(tokens, opening)]
    )


class DurableSubscriptions:
    """The durable subscriptions, and their changes that are not on disk yet."""

    def __init__(self, journal: Journal, rules: QueryRules, most: int) -> None:
        """Load the stored ones. At most `most` survive a restart. Raises `DataDirectoryRefused` on damage."""
        boot = _this_boot()
        maker = f"sepa-edge {__version__}, Oxigraph {ox.__version__}, {rules}"
        self._journal = journal
        self._table = SubscriptionTable(journal)
        self._most = most
        self._origin = Origin(maker, "" if journal.flush_interval is None else boot)
        self._stored_origin = self._table.origin()
        self._numbers: dict[str, int] = {}
        self._fresh: dict[int, DurableSubscription] = {}
        self._gone: list[int] = []
        self._wanted: dict[str, QueryRequest] = {}
        """Re-evaluated ones, by spuid, that have not reached a journal position yet."""
        self._positions: dict[int, Position] = {}
        """Positions of re-evaluated ones, by number."""
        self._unwritten: set[int] = set()
        """Numbers whose positions are not on disk."""
        self._last = 0
        self.urgent = False
        """Whether new ones wait for their first attempt to be written."""
        self.starts = self._load(boot)
        """Stored ones when the process began, in the order in which they began."""

    def _load(self, boot: str) -> list[Start]:
        found = list(self._table.starts())
        self._numbers = {start.subscription.spuid: start.subscription.number for start in found}
        self._last = max(self._numbers.values(), default=0)
        self._positions = self._table.positions()
        for start in found:
            if start.sequence < 0:
                self.remove(start.subscription.spuid)
        found = [start for start in found if start.sequence >= 0]
        # Without a sync at every commit, only rows of this boot are certain to include all notified changes.
        usable = self._stored_origin in (Origin(self._origin.maker, ""), Origin(self._origin.maker, boot))
        # The newest ones, if there are more than the limit.
        left = found[-self._most :] if self._most and usable and self._claim(found) else []
        for start in found[: len(found) - len(left)]:
            self.remove(start.subscription.spuid)
        return left

    def _claim(self, found: list[Start]) -> bool:
        """Write the origin under which the rows continue, before any client is notified. Returns False on failure."""
        if not found or self._stored_origin == self._origin:
            return True
        try:
            self._journal.commit([], lambda connection: _execute(connection, [self._table.set_origin(self._origin)]))
            self._journal.flush()
        except EdgeError:
            return False
        self._stored_origin = self._origin
        return True

    def add(self, spuid: str, request: QueryRequest, *, reevaluated: bool = False) -> None:
        """Add a subscription that has begun. Notification 0 was its result as it is now.

        `reevaluated`: add it later, when `reached` names its journal position.
        """
        if not self._most:
            return
        if reevaluated:
            self._wanted[spuid] = request
            return
        self._last += 1
        self._numbers[spuid] = self._last
        self._fresh[self._last] = DurableSubscription(self._last, spuid, self._journal.sequence, request)
        self.urgent = True

    def reached(self, spuid: str, sequence: int) -> None:
        """Note that with this notification a re-evaluated subscription has the result of the last commit.

        The position is not written at once: one commit for each notification would wear out flash storage. Until it is
        on disk, the recovery finds the state again if only one change was notified, and gives up if the history is
        ambiguous.
        """
        request = self._wanted.pop(spuid, None)
        if request is not None:
            self.add(spuid, request)
        number = self._numbers.get(spuid)
        if number is not None:
            before = self._positions.get(number)
            lost = before is not None and before.journal < self._journal.snapshot_sequence
            if lost:  # the snapshot has replaced the changes since then
                self.urgent = True
            if before is None or lost or before.sequence != sequence:
                self._positions[number] = Position(self._journal.sequence, sequence)
                self._unwritten.add(number)

    def remove(self, spuid: str) -> None:
        """Remove a subscription that has ended, durable or not."""
        self._wanted.pop(spuid, None)
        number = self._numbers.pop(spuid, None)
        if number is None:
            return
        self._positions.pop(number, None)
        self._unwritten.discard(number)
        if self._fresh.pop(number, None) is None:
            self._gone.append(number)

    @property
    def changed(self) -> bool:
        """Whether there are changes to write."""
        return bool(self._fresh or self._gone or self._unwritten)

    def write(self, connection: sqlite3.Connection) -> None:
        """Write the changes, in a transaction of the journal."""
        if self._fresh and self._stored_origin != self._origin:
            _execute(connection, [self._table.set_origin(self._origin)])
        for number in self._gone:
            _execute(connection, self._table.remove(number))
        _execute(connection, map(self._table.add, self._fresh.values()))
        _execute(connection, [self._table.set_position(number, self._positions[number]) for number in self._unwritten])

    def write_snapshot(
        self,
        connection: sqlite3.Connection,
        sequence: Callable[[str], int | None],
        current: Callable[[str], bool],
    ) -> None:
        """Write the changes with a snapshot.

        `sequence`: returns the last notification of an active subscription, or None. `current`: returns whether that
        notification has the result of the last commit.
        """
        found = {spuid: sequence(spuid) for spuid in self._numbers}
        for spuid in [spuid for spuid, last in found.items() if last is None]:
            self.remove(spuid)
        for spuid, number in self._numbers.items():
            if number in self._positions and current(spuid):
                self._positions[number] = Position(self._journal.sequence, found[spuid] or 0)
                self._unwritten.add(number)
        self.write(connection)
        marks = [(self._numbers[spuid], last) for spuid, last in found.items() if last is not None]
        _execute(connection, self._table.mark(marks))

    def written(self) -> None:
        """Note that the written changes are committed."""
        self.urgent = False
        if self._fresh:
            self._stored_origin = self._origin
        self._fresh.clear()
        self._gone.clear()
        self._unwritten.clear()

    def close(self) -> None:
        """Write the remaining changes, and note that the disk is complete. Raises `StorageFailed`."""
        whole = Origin(self._origin.maker, "")

        def write_changes_and_origin(connection: sqlite3.Connection) -> None:
            self.write(connection)
            if self._numbers:
                _execute(connection, [self._table.set_origin(whole)])

        if self.changed or (self._numbers and self._origin != whole):
            self._journal.commit([], write_changes_and_origin)


def _execute(connection: sqlite3.Connection, statements: Iterable[Statement]) -> None:
    for statement, parameters in statements:
        connection.execute(statement, parameters)


def _this_boot() -> str:
    """Return an id of the current boot. Data written since then is readable, synced or not."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return str(uuid.uuid4())
