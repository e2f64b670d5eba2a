"""Read access to the outbox, and acknowledgements, from any thread.

The outbox has its own read-only connection to the journal file, so that readers do not block the engine's writer.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TypeVar

from edge.outbox import sqlite_tables
from edge.outbox.observation import ObservationContext
from edge.outbox.recorder import Recorder
from edge.outbox.sqlite_tables import Lost, Row

T = TypeVar("T")

Run = Callable[[Callable[[], None]], Future[None]]
"""Runs a function on the engine's writer thread, between two commits."""

_BUSY_TIMEOUT: float = 5.0
"""Seconds that a reader waits while the file is locked. SQLite locks it briefly during a checkpoint of the log."""

_DELETE_BATCH = 20_000
"""Observations deleted in one commit. The writer thread is blocked meanwhile."""


class Outbox:
    """Observations that wait to be shipped. They are numbered from 1 without gaps."""

    def __init__(self, recorder: Recorder, file: Path, run: Run) -> None:
        """`file`: the journal file. `run`: runs a function on the writer thread."""
        self._recorder = recorder
        self._file = file
        self._run = run
        self._connection: sqlite3.Connection | None = None
        self._lock = threading.Lock()

    @property
    def gateway(self) -> str:
        """Name of the gateway in the history."""
        return self._recorder.head.gateway

    @property
    def epoch(self) -> str:
        """Globally unique name of this outbox."""
        return self._recorder.head.epoch

    @property
    def acknowledged(self) -> int:
        """Number up to which all observations have arrived; 0 if none has."""
        return self._recorder.head.acknowledged

    @property
    def last(self) -> int:
        """Number of the last observation that may be sent; 0 without observations.

        With `engine.durability` "interval", observations that are not yet flushed do not count: after a power cut,
        their numbers would be assigned again.
        """
        return self._recorder.safe

    @property
    def oldest(self) -> int:
        """Number of the oldest stored observation; if nothing waits, the next number."""
        return self._recorder.oldest

    @property
    def count(self) -> int:
        """Number of waiting observations."""
        return self._recorder.count

    @property
    def bytes(self) -> int:
        """Size of the waiting observations in bytes, as stored."""
        return self._recorder.bytes

    @property
    def oldest_time(self) -> int | None:
        """Time of the oldest stored observation in microseconds since 1970; None if nothing waits."""
        for _, _, body in self.rows(self.oldest, 1):
            return int(body.partition("\t")[0])
        return None

    def rows(self, first: int, limit: int) -> Iterator[Row]:
        """Yield number, context and body of up to `limit` observations from `first` on.

        Raises `DamagedDatabase`, `OSError`.
        """
        return iter(self._read(lambda select: list(sqlite_tables.read_rows(select, first, self.last, limit))))

    def contexts(self, ids: Iterable[int]) -> Mapping[int, ObservationContext]:
        """Return the contexts with these ids. Raises `DamagedDatabase`, `OSError`."""
        return self._read(lambda select: dict(sqlite_tables.read_contexts(select, ids)))

    def lost(self) -> list[Lost]:
        """Return the dropped ranges that are not acknowledged, in order. Raises `DamagedDatabase`, `OSError`."""
        return self._read(lambda select: list(sqlite_tables.read_lost(select)))

    def acknowledge(self, last: int) -> None:
        """Delete all observations up to `last`, which have arrived. Waits for the writer.

        Raises `EdgeError`: then the observations stay for now.
        """
        last = min(last, self.last)
        step = self.acknowledged
        while step < last:
            step = min(max(step, self.oldest - 1) + _DELETE_BATCH, last)
            self._run(partial(self._recorder.forget, step)).result()

    @property
    def claimed(self) -> int:
        """The highest number that may ever have been sent. A landing zone with a higher one knows a later state of
        this outbox.
        """
        return self._recorder.head.claimed

    def claim(self, last: int) -> None:
        """Record that numbers up to `last` may be sent; call this first. Waits for the writer.

        Raises `EdgeError`: then they must not be sent.
        """
        if last > self.claimed:
            self._run(partial(self._recorder.claim, last)).result()

    def begin_epoch(self, acknowledged: int) -> None:
        """Continue in a new epoch, because this outbox is an older copy of itself and its next numbers are already in
        use.

        All observations that are not acknowledged are numbered again in the new epoch, so nothing is lost.
        Observations that the later state had sent without an acknowledgement occur twice in the history. Waits for
        the writer. Raises `EdgeError`.
        """
        self.acknowledge(min(acknowledged, self.claimed))
        self._run(self._recorder.begin_epoch).result()

    def close(self) -> None:
        """Close the file. Call this before the engine closes it."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def _read(self, read: Callable[[sqlite_tables.Select], T]) -> T:
        with self._lock:
            try:
                if self._connection is None:
                    uri = f"{self._file.absolute().as_uri()}?mode=ro"
                    self._connection = sqlite3.connect(uri, uri=True, timeout=_BUSY_TIMEOUT, check_same_thread=False)
                return read(self._connection.execute)
            except sqlite3.Error as error:
                raise OSError(f"{self._file} cannot be read: {error}") from error
