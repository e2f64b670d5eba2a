"""An update that is evaluated outside of the writer: what it read, what it found, whether it still holds.

The writer gives an update `FIRST_STEPS` steps. One that needs more is undone, evaluated in a forked process on the
state as it is then, and applied when that process has its result, unless an update that was applied meanwhile has
changed something that it read. Then it is evaluated again, and in the end on the writer, with `LAST_STEPS` steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import islice
from typing import Final

import pyoxigraph as ox

from edge.engine.queries.lutt import Key
from edge.engine.store.changes import ChangeSet, Statement
from edge.engine.updates.staged_change import StagedChange
from edge.engine.updates.update_plan import Quads
from edge.protocol.errors import UpdateConflict

FIRST_STEPS: Final = 5_000
"""Steps that an update may take on the writer's thread: about 5 ms, half as long as to fork a process."""
LAST_STEPS: Final = 50_000
"""The same for one that was evaluated `MOST_TRIES` times, because what it reads keeps changing: about 50 ms."""
FIRST_QUADS: Final = 2_000
"""Quads that it may change there: that takes about 15 ms."""
MOST_TRIES: Final = 3
"""How often an update is evaluated elsewhere while what it read keeps changing."""

Documents = Mapping[int, Sequence[ox.Quad]]
"""What the documents of LOAD hold, by the numbers of the operations."""


class Mode(Enum):
    """Where an update is evaluated."""

    FIRST = auto()
    """On the writer's thread, while others wait: for `FIRST_STEPS` and no longer."""
    LAST = auto()
    """The same for `LAST_STEPS`."""
    OUTSIDE = auto()
    """In a forked process."""
    WHOLE = auto()
    """On the caller's thread, to its end."""


ON_WRITER: Final = {Mode.FIRST: FIRST_STEPS, Mode.LAST: LAST_STEPS}
"""Steps of an update while others wait."""


class LongUpdate(Exception):
    """An update takes longer than it may on the writer's thread. Nothing has changed."""


class LargeUpdate(LongUpdate):
    """An update changes more quads than it may on the writer's thread, and it may not have been evaluated to its end.

    Nothing has changed.
    """


class Unfinished(LongUpdate):
    """An update was prepared a bit further; execute it again after others. Nobody sees anything of it yet."""


@dataclass(slots=True)
class Recorded:
    """What the operations of one update remove and add, on its way from a forked process."""

    sizes: list[tuple[int, int] | None] = field(default_factory=list)
    """Quads that each operation adds and removes; None: it is carried out again, on the state as it is then."""
    steps: int = 0
    """Steps that the update took."""
    lines: list[str] = field(default_factory=list)
    """N-Quads: added and removed ones of the first operation, of the second, and so on."""

    def note(self, removed: Sequence[Statement], added: Sequence[Statement]) -> None:
        """Note an operation that was evaluated."""
        self.sizes.append((len(added), len(removed)))
        self.lines += ChangeSet(added, removed).lines()

    def note_other(self) -> None:
        """Note an operation that does not depend on what was read."""
        self.sizes.append(None)

    def quads(self) -> list[Quads | None]:
        """What each operation removes and adds, as terms."""
        quads = iter(ox.parse("".join(self.lines).encode(), ox.RdfFormat.N_QUADS, lenient=True))
        found: list[Quads | None] = []
        for sizes in self.sizes:
            if sizes is None:
                found.append(None)
            else:
                # Not `list`, which holds the lock of Python's threads to its end.
                added, removed = ([quad for quad in islice(quads, size)] for size in sizes)  # noqa: C416
                found.append((removed, added))
        return found


@dataclass(eq=False, slots=True)
class Attempt:
    """The evaluations of one piece of work outside of the writer."""

    steps: int = 0
    """Steps that it took, here and outside, and that were not charged yet; a quad that it changes is one, too."""
    tries: int = 0
    keys: Sequence[Key] = ()
    """The patterns of the quads that it read."""
    graph_names: bool = False
    """Whether it also depends on which named graphs exist."""
    conflict: bool = False
    """Whether something that it read has changed since it was begun."""
    needed: int = 0
    """Steps that the last evaluation took."""
    found: Sequence[Sequence[Quads | None]] | None = None
    """What each of its updates does; None: not known yet."""
    error: Exception | None = None
    """Why it could not be evaluated."""
    documents: Sequence[Documents] | None = None
    """The documents that each of its updates loads; None: not fetched."""
    staged: StagedChange | None = None
    """Its change, which is prepared in pieces; None: it is not, or not yet."""
    large: bool = False
    """Whether it turned out to change many quads: it is staged even if its text does not name so many."""
    unstaged: bool = False
    """Whether its change cannot be prepared in pieces."""

    @property
    def over(self) -> bool:
        """Whether an evaluation has ended and was not taken in yet."""
        return self.found is not None or self.error is not None

    def take(self) -> Sequence[Sequence[Quads | None]]:
        """Return the result once.

        Raises `LongUpdate` where it has to be evaluated again, `UpdateConflict` where that was done often enough, and
        what the evaluation raised.
        """
        found, error, conflict = self.found, self.error, self.conflict
        self.found, self.error, self.conflict = None, None, False
        if conflict and self.tries < MOST_TRIES:
            raise LongUpdate
        if conflict:
            raise UpdateConflict(
                f"The update takes long, and what its WHERE clause looks at changed during each of {MOST_TRIES} "
                "evaluations; nothing of it was done. Send it again, narrow its WHERE clause, or change it in parts"
            )
        if error is not None:
            raise error
        assert found is not None, "over"  # noqa: S101
        return found
