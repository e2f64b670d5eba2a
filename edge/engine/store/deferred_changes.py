"""Change sets that wait to be taken in, in pieces: to take in a large one in one go would hold up the writer."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import chain, islice, repeat
from typing import Final

from edge.engine.store.changes import ChangeSet, Statement

LARGE: Final = 1_000
"""Quads from which a change is taken in later."""


class DeferredChanges:
    """The quads of change sets, in order. It belongs to whoever holds its owner's lock."""

    def __init__(self) -> None:
        self._waiting: deque[Iterator[tuple[Statement, bool]]] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def defers(self, changes: ChangeSet) -> bool:
        """Whether a change must wait: it is large, or others wait that come before it."""
        return bool(self._waiting) or sum(changes.sizes) >= LARGE

    def put(self, changes: ChangeSet) -> None:
        """Add the quads of a change."""
        added, removed = changes.statements
        self._waiting.append(chain(zip(removed, repeat(False)), zip(added, repeat(True))))

    def take(self, most: int | None = None) -> Iterator[tuple[Statement, bool]]:
        """The next quads, at most so many (None: all), each with whether it came or went."""
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
        """Forget all."""
        self._waiting.clear()
