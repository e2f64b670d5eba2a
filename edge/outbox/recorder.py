"""The writer's side of the outbox: observations get numbers without gaps, in the commits of their updates.

What an update stores is taken in when it is executed, written with its commit, given back when it is undone. Where
there is no room for more the oldest go, and it is remembered which; or the update is refused. One caller at a time.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, cast

from edge.engine.journal.journal import Journal
from edge.engine.store.changes import Statement
from edge.outbox import table
from edge.outbox.observation import EPOCH_LENGTH, Cells, Context
from edge.outbox.row_encoding import observations
from edge.outbox.segment import body
from edge.outbox.settings import OutboxSettings
from edge.outbox.table import Head, Lost, Row
from edge.protocol.errors import StorageFailed

_SPARE: Final = 128
"""At the cap, one part in so many is dropped in one go: few ranges to remember, and nobody waits for long."""

_KEPT_CONTEXTS: Final = 4096
"""Contexts beyond which those go that no observation needs."""


class _Dropped(NamedTuple):
    """What a commit drops, if it succeeds."""

    rows: int
    size: int


class Recorder:
    """What the engine's writer does with the outbox. Its counts may be read from any thread."""

    def __init__(self, journal: Journal, settings: OutboxSettings) -> None:
        """Looks at what is stored, not at each of it. Raises `DataDirectoryRefused` where it is damaged."""
        self.graph = settings.graph
        self._journal = journal
        self._max_bytes = settings.max_bytes
        self._refuses = settings.when_full == "refuse"
        self._fresh: list[Row] = []
        self._fresh_contexts: dict[int, Context] = {}
        self._dropped: _Dropped | None = None
        self.count = 0
        """Observations that nobody has acknowledged."""
        self.bytes = 0
        """Bytes of their bodies."""
        self._last_use: dict[int, int] = {}
        try:
            self._load(settings.gateway)
        except table.Damaged as damaged:
            journal.refuse(str(damaged))

    def _load(self, gateway: str) -> None:
        """What is there, and that nothing of it is missing."""
        select = self._journal.select
        head = table.read_head(select)
        self._head_stored = head is not None and gateway in ("", head.gateway)
        if head is None:
            head = Head(gateway or f"edge-{secrets.token_hex(4)}", _new_epoch())
        self.head = head._replace(gateway=gateway or head.gateway)
        last = self.head.acknowledged
        for lost in table.read_lost(select):
            last = self._after(last, lost.first, lost.last)
        self.count, self.bytes, first, end = table.extent(select, last)
        if self.count:
            last = self._after(last, first, end)
        contexts = dict(table.read_contexts(select))
        # Which of them are needed by what is stored is not worth looking at all of it.
        self._last_use = dict.fromkeys(contexts, last)
        self._contexts = {context: number for number, context in contexts.items()}
        self._last_context = max(contexts, default=0)
        self.last = self.safe = last

    @staticmethod
    def _after(last: int, first: int, end: int) -> int:
        if first != last + 1:
            raise table.Damaged(f"the stored observation {last + 1} is missing")
        return end

    @property
    def oldest(self) -> int:
        """The number of the first observation that is stored, or else of the next one."""
        return self.last + 1 - self.count

    def take(self, notes: Sequence[object], quads: Sequence[Statement], now: int) -> int:
        """Number what an update stores: notes begin with `Context` and `Cells`. Raises `StorageFailed`."""
        found = [(note[0], note[1]) for note in cast("Sequence[tuple[Context, Cells]]", notes)]
        if quads:
            found += observations(quads, self.graph, f"{self.head.epoch}:{self.last + 1}", now)
        bodies = [body(cells) for _, cells in found]
        size = sum(len(text.encode()) for text in bodies)
        if self._refuses and self.bytes + size > self._max_bytes:
            raise StorageFailed(
                f"The outbox is full (outbox.max_bytes is {self._max_bytes}): {self.count} observations wait to be sent"
                " to the history. See why they are not acknowledged (edge outbox status); then send the update again."
            )
        for (context, _), text in zip(found, bodies, strict=True):
            self.last += 1
            self._fresh.append((self.last, self._number(context), text))
        self.count += len(bodies)
        self.bytes += size
        return len(bodies)

    def _number(self, context: Context) -> int:
        number = self._contexts.get(context)
        if number is None:
            self._last_context = number = self._last_context + 1
            self._contexts[context] = number
            self._fresh_contexts[number] = context
        self._last_use[number] = self.last
        return number

    def give_back(self, entries: int) -> None:
        """The last observations are not stored after all; others get their numbers."""
        if entries:
            taken = self._fresh[-entries:]
            del self._fresh[-entries:]
            self.last -= entries
            self.count -= entries
            self.bytes -= sum(len(text.encode()) for _, _, text in taken)

    @property
    def changed(self) -> bool:
        """Whether there is something to write."""
        return bool(self._fresh)

    def write(self, connection: sqlite3.Connection) -> None:
        """Write what was taken in, and drop the oldest where it does not fit."""
        if not self._head_stored:
            table.write_head(connection, self.head)
        table.add_contexts(connection, self._fresh_contexts.items())
        table.add_rows(connection, self._fresh)
        self._dropped = self._make_room(connection) if self.bytes > self._max_bytes else None

    def _make_room(self, connection: sqlite3.Connection) -> _Dropped | None:
        """Drop the oldest of those that were stored before, and remember which they were and of which time."""
        surplus = self.bytes - self._max_bytes + self._max_bytes // _SPARE
        seqs: list[int] = []
        times: list[int] = []
        size = 0
        for seq, _, text in table.read_rows(connection.execute, self.oldest, self._fresh[0][0] - 1):
            seqs.append(seq)
            size += len(text.encode())
            times.append(int(text.partition("\t")[0]))
            if size >= surplus:
                break
        if not seqs:
            return None
        table.remove(connection, seqs[-1])
        table.add_lost(connection, Lost(seqs[0], seqs[-1], min(times), max(times), "the outbox was full"))
        return _Dropped(len(seqs), size)

    def written(self) -> None:
        """What was taken in is stored."""
        if self._dropped is not None:
            self.count -= self._dropped.rows
            self.bytes -= self._dropped.size
            self._dropped = None
        self._fresh.clear()
        self._fresh_contexts.clear()
        self._head_stored = True
        if self._journal.flush_interval is None:
            self.flushed()

    def flushed(self) -> None:
        """What is stored survives a power cut: it may be sent, for no other observation will ever have its number."""
        self.safe = self.last

    def claim(self, last: int) -> None:
        """Numbers up to this one are about to be sent. Raises `StorageFailed`: they must not be."""
        if last > self.head.claimed:
            self._put_head(self.head._replace(claimed=last))

    def begin_anew(self) -> None:
        """What waits gets numbers from 1 on, in another epoch: in this one others had them. Raises `StorageFailed`."""
        less = self.head.acknowledged
        head = Head(self.head.gateway, _new_epoch())
        self._put_head(head, lambda connection: table.renumber(connection, less))
        self.last -= less
        self.safe -= less
        self._last_use = {number: max(0, use - less) for number, use in self._last_use.items()}

    def _put_head(self, head: Head, also: Callable[[sqlite3.Connection], None] = lambda _: None) -> None:
        def write(connection: sqlite3.Connection) -> None:
            also(connection)
            table.write_head(connection, head)

        self._journal.commit([], write)
        self.head = head
        self._head_stored = True

    def forget(self, last: int) -> None:
        """Up to this number all is acknowledged: it is not needed any more. Raises `StorageFailed`: it stays."""
        last = min(last, self.safe)
        if last <= self.head.acknowledged:
            return
        unused = [number for number, use in self._last_use.items() if use <= last]
        if len(self._contexts) <= _KEPT_CONTEXTS:
            unused = []
        count = size = 0

        def write(connection: sqlite3.Connection) -> None:
            nonlocal count, size
            count, size = table.remove(connection, last)
            table.remove_lost(connection, last)
            table.remove_contexts(connection, unused)

        self._put_head(self.head._replace(acknowledged=last), write)
        self.count -= count
        self.bytes -= size
        for number in unused:
            del self._last_use[number]
            self._fresh_contexts.pop(number, None)
        if unused:
            gone = set(unused)
            self._contexts = {context: number for context, number in self._contexts.items() if number not in gone}


def _new_epoch() -> str:
    return secrets.token_hex(EPOCH_LENGTH // 2)
