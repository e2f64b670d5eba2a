"""Encode the live graph for a snapshot of the journal, on its own thread, while updates continue.

A `GraphCopy` provides the bodies. The last ones contain the changes that were made meanwhile, so all bodies together
are the state at the commit after which `bodies` is called. They are compressed, about 9 bytes a quad, and stay in
memory until the journal stores them in one transaction. After a crash before that, the previous snapshot and the
journal are still valid.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from edge.engine.engine import Engine
from edge.engine.journal.journal import change_bodies, snapshot_bodies
from edge.engine.store.changes import Statement
from edge.engine.store.terms import SHORT

_PIECE: Final = 500
"""Quads that are copied at a time. Updates wait for one piece, less than a millisecond."""

_MOST_ROUNDS: Final = 10
"""Rounds of encoding the changes made meanwhile, until they are few enough for the writer thread."""


class BackgroundSnapshot:
    """A snapshot that is being encoded."""

    def __init__(self, engine: Engine, done: Callable[[BackgroundSnapshot], None]) -> None:
        """Start to copy. `done` is called on the encoding thread when `bodies` is available or the encoding failed."""
        self.error: Exception | None = None
        """Error of the encoding, or None."""
        self._engine = engine
        self._done = done
        self._copy = engine.begin_copy()
        self._bodies: list[bytes] = []
        self._rounds = 0
        self._cancelled = False

    def start(self) -> None:
        """Encode on a new thread."""
        threading.Thread(target=self.encode, name="snapshot").start()

    def encode(self) -> None:
        """Encode on this thread. Must be called again while `behind` is true."""
        try:
            if not self._bodies:
                for body in snapshot_bodies(self._quads(), self._copy.named_graphs, self._may_be_long):
                    self._bodies.append(body)
            while self._rounds < _MOST_ROUNDS:
                self._rounds += 1
                if self._catch_up():
                    break
        except Exception as error:  # noqa: BLE001  the caller reports it
            self.error = error
        if not self._cancelled:
            self._done(self)

    def cancel(self) -> None:
        """Stop encoding; `done` is not called."""
        self._cancelled = True
        self._engine.end_copy(self._copy)

    @property
    def behind(self) -> bool:
        """Whether so many changes are not encoded that `bodies` would take long, and another `encode` would help."""
        return self._rounds < _MOST_ROUNDS and self._copy.behind(_PIECE)

    def bodies(self) -> Sequence[bytes]:
        """Return the bodies of the snapshot of the current graph. Must be called once, with nothing uncommitted.

        Raises `NotRestorable`.
        """
        changes = self._engine.end_copy(self._copy)
        return [*self._bodies, *change_bodies(changes, self._may_be_long)] if changes else self._bodies

    def _catch_up(self) -> bool:
        """Encode the changes since the last call, or since the copy began. Returns whether they were few."""
        with self._engine.writing:
            if self._cancelled:
                return True
            make = self._copy.detach_changes()
        changes = make()
        if changes:
            self._bodies += change_bodies(changes, self._may_be_long)
        return sum(changes.sizes) < _PIECE

    def _may_be_long(self) -> bool:
        return self._engine.graph.dictionary.longest > SHORT

    def _quads(self) -> Iterator[Statement]:
        while not self._cancelled:
            with self._engine.writing:
                piece = self._copy.take(_PIECE)
            if not piece:
                return
            yield from piece
