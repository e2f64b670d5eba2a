"""The outbox from outside: what waits to be sent to the history, read and acknowledged from any thread.

It has a connection of its own to the file of the gateway, read-only: nobody who reads holds up the engine's writer.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TypeVar

from edge.outbox import table
from edge.outbox.observation import Context
from edge.outbox.recorder import Recorder
from edge.outbox.table import Lost, Row

T = TypeVar("T")

Run = Callable[[Callable[[], None]], Future[None]]
"""Does something on the engine's writer thread, between two commits."""

_BUSY: float = 5.0
"""Seconds that a reader waits where the file is locked, as it is for a moment while it is moved out of the log."""

_AT_ONCE = 20_000
"""Observations that are forgotten in one commit at the most: the writer does nothing else meanwhile."""


class Outbox:
    """What waits. Numbers count observations from 1, without gaps."""

    def __init__(self, storing: Recorder, file: Path, run: Run) -> None:
        """`file`: the journal's. `run` gets to the writer."""
        self._storing = storing
        self._file = file
        self._run = run
        self._connection: sqlite3.Connection | None = None
        self._lock = threading.Lock()

    @property
    def gateway(self) -> str:
        """The gateway's name in the history."""
        return self._storing.head.gateway

    @property
    def epoch(self) -> str:
        """What this outbox is called, like no other."""
        return self._storing.head.epoch

    @property
    def acknowledged(self) -> int:
        """Up to which number all has arrived; 0: nothing has."""
        return self._storing.head.acknowledged

    @property
    def last(self) -> int:
        """The number of the last observation that may be sent; 0: there never was one.

        With `engine.durability` "interval" those of the last moment do not count: after a power cut others would have
        their numbers.
        """
        return self._storing.safe

    @property
    def oldest(self) -> int:
        """The number of the first one that is there; where nothing waits, of the next one that will be."""
        return self._storing.oldest

    @property
    def count(self) -> int:
        """Observations that wait."""
        return self._storing.count

    @property
    def bytes(self) -> int:
        """Bytes of them, as stored."""
        return self._storing.bytes

    @property
    def oldest_time(self) -> int | None:
        """When the first one that is there was made, microseconds since 1970; None: nothing waits."""
        for _, _, body in self.rows(self.oldest, 1):
            return int(body.partition("\t")[0])
        return None

    def rows(self, first: int, limit: int) -> Iterator[Row]:
        """Number, context and body of up to `limit` observations from this number on. Raises `Damaged`, `OSError`."""
        return iter(self._read(lambda select: list(table.read_rows(select, first, self.last, limit))))

    def contexts(self, ids: Iterable[int]) -> Mapping[int, Context]:
        """What these are. Raises as `rows` does."""
        return self._read(lambda select: dict(table.read_contexts(select, ids)))

    def lost(self) -> list[Lost]:
        """The ranges that were dropped and of which nobody has acknowledged to know, in order. Raises likewise."""
        return self._read(lambda select: list(table.read_lost(select)))

    def acknowledge(self, last: int) -> None:
        """Up to this number all has arrived: forget it. Waits for the writer. Raises `EdgeError`: it stays for now."""
        last = min(last, self.last)
        step = self.acknowledged
        while step < last:
            step = min(max(step, self.oldest - 1) + _AT_ONCE, last)
            self._run(partial(self._storing.forget, step)).result()

    @property
    def claimed(self) -> int:
        """The highest number that was ever about to be sent. Who has seen a higher one knows a later self of this."""
        return self._storing.head.claimed

    def claim(self, last: int) -> None:
        """To be called before numbers up to this one are sent. Waits for the writer. Raises `EdgeError`: do not."""
        if last > self.claimed:
            self._run(partial(self._storing.claim, last)).result()

    def begin_anew(self, acknowledged: int) -> None:
        """This outbox is an older copy of itself: the numbers that it gives next were given before.

        All but what is acknowledged is numbered anew in another epoch. So nothing is lost, and what the later self had
        sent and nobody had acknowledged is in the history twice. Waits for the writer. Raises `EdgeError`.
        """
        self.acknowledge(min(acknowledged, self.claimed))
        self._run(self._storing.begin_anew).result()

    def close(self) -> None:
        """Let go of the file. To be called before the engine closes it."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def _read(self, read: Callable[[table.Select], T]) -> T:
        with self._lock:
            try:
                if self._connection is None:
                    uri = f"{self._file.absolute().as_uri()}?mode=ro"
                    self._connection = sqlite3.connect(uri, uri=True, timeout=_BUSY, check_same_thread=False)
                return read(self._connection.execute)
            except sqlite3.Error as error:
                raise OSError(f"{self._file} cannot be read: {error}") from error
