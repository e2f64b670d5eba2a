"""Queue of change sets that are processed in pieces, because a large one at once would block the writer."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import chain, islice, repeat
from typing import Final

from edge.engine.store.changes import ChangeSet, Statement

LARGE: Final = 1_000
"""Number of quads from which a change set is deferred."""


class DeferredChanges:
    """Quads of deferred change sets, in order. Not thread-safe: the owner's lock protects it."""

    def __init__(self) -> None:
        self._waiting: deque[Iterator[tuple[Statement, bool]]] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def defers(self, changes: ChangeSet) -> bool:
        """Return whether a change set must wait: it is large, or earlier ones still wait."""
        return bool(self._waiting) or sum(changes.sizes) >= LARGE

    def put(self, changes: ChangeSet) -> None:
        """Append the quads of a change set."""
        added, removed = changes.statements
        self._waiting.append(chain(zip(removed, repeat(False)), zip(added, repeat(True))))

    def take(self, most: int | None = None) -> Iterator[tuple[Statement, bool]]:
        """Yield the next quads, at most `most` (None: all), each with True if added and False if removed."""
        left = most
        while self._waiting and left != 0:
            number = 0
            for number, change in enumerate(islice(self._waiting[0], left), 1):  # noqa: B007  counts
                yield change
            if left is None or number < left:
                self._waiting.popleft()
            if left is not None:
                left -= number

    def clear(self) -> None:
        """Discard all waiting changes."""
        self._waiting.clear()
