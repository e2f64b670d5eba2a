"""Encode the live graph for a snapshot of the journal, on a thread of its own, while updates go on.

The bodies come from a `GraphCopy`. The last ones have the changes that were made meanwhile, so together the bodies are
the state at the commit after which `bodies` is called. They are compressed, about 9 bytes a quad, and in memory until
the journal stores them in one transaction. A crash before that leaves the last snapshot and the journal as they are.
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
"""How often it is encoded what was changed meanwhile, until that is little enough to be left to the writer."""


class BackgroundSnapshot:
    """A snapshot in the making."""

    def __init__(self, engine: Engine, done: Callable[[BackgroundSnapshot], None]) -> None:
        """Begin. `done` is called on the thread, with the snapshot, when `bodies` can be called or it failed."""
        self.error: Exception | None = None
        """Why it failed."""
        self._engine = engine
        self._done = done
        self._copy = engine.begin_copy()
        self._bodies: list[bytes] = []
        self._rounds = 0
        self._cancelled = False

    def start(self) -> None:
        """Encode on a thread."""
        threading.Thread(target=self.encode, name="snapshot").start()

    def encode(self) -> None:
        """Encode here. To be called again while it is `behind`."""
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
        """Whether so much was changed since it was encoded that `bodies` would take long, and `encode` would help."""
        return self._rounds < _MOST_ROUNDS and self._copy.behind(_PIECE)

    def bodies(self) -> Sequence[bytes]:
        """Return the bodies of the snapshot of the graph as it is now. To be called once, with nothing uncommitted.

        Raises `NotRestorable`.
        """
        changes = self._engine.end_copy(self._copy)
        return [*self._bodies, *change_bodies(changes, self._may_be_long)] if changes else self._bodies

    def _catch_up(self) -> bool:
        """Encode what was changed since the copy began, or since the last time. Returns whether it was little."""
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
