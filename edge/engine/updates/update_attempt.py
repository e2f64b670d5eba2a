"""Attempts to evaluate an update outside of the writer thread: its reads, its result, and whether the result is valid.

The writer gives an update `FIRST_STEPS` steps. If it needs more, it is undone and evaluated in a forked process on the
current state. The writer applies the result, unless another update has changed something that the evaluation read. Then
the update is evaluated again, and finally on the writer with `LAST_STEPS` steps. This is optimistic concurrency
control.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import Final

import pyoxigraph as ox

from edge.engine.queries.subscription_index import Key
from edge.engine.store.changes import ChangeSet, Statement
from edge.engine.updates.staged_change import StagedChange
from edge.engine.updates.update_plan import Quads
from edge.protocol.errors import UpdateConflict

FIRST_STEPS: Final = 5_000
"""Steps that an update may take on the writer's thread: about 5 ms, half the time of a fork."""
LAST_STEPS: Final = 50_000
"""The same after `MOST_TRIES` evaluations with conflicts: about 50 ms."""
FIRST_QUADS: Final = 2_000
"""Quads that an update may change on the writer's thread: about 15 ms."""
MOST_TRIES: Final = 3
"""Limit of evaluations in a forked process that end in a conflict."""

Documents = Mapping[int, Sequence[ox.Quad]]
"""Quads of the documents of LOAD, by the number of the operation."""


class Mode(Enum):
    """Place and limit of an evaluation."""

    FIRST = (1, FIRST_STEPS)
    """On the writer's thread, with at most `FIRST_STEPS` steps, because other updates wait."""
    LAST = (2, LAST_STEPS)
    """On the writer's thread, with at most `LAST_STEPS` steps."""
    OUTSIDE = (3, None)
    """In a forked process."""
    WHOLE = (4, None)
    """On the caller's thread, without interruption."""

    # Attributes, because a table with the modes as keys would call `Enum.__hash__`, which is slow, for each update.
    def __init__(self, _: int, steps: int | None) -> None:
        self.steps = steps
        """Step budget of a mode in which other updates wait; None: the default limit."""
        self.on_writer = steps is not None
        """Whether other updates wait."""


class LongUpdate(Exception):
    """An update exceeds its step budget on the writer's thread. Nothing has changed."""


class LargeUpdate(LongUpdate):
    """An update changes too many quads for the writer's thread. Its evaluation may be incomplete.

    Nothing has changed.
    """


class Unfinished(LongUpdate):
    """An update was prepared a bit further, invisibly to clients. Execute it again after other updates."""


@dataclass(slots=True)
class Recorded:
    """Removed and added quads of the operations of one update, in a form for transfer from a forked process."""

    sizes: list[tuple[int, int] | None] = field(default_factory=list)
    """Numbers of quads that each operation adds and removes. None: the operation is to be executed on the writer."""
    steps: int = 0
    """Steps that the evaluation took."""
    lines: list[str] = field(default_factory=list)
    """N-Quads: the added and removed quads of the first operation, of the second, and so on."""

    def note(self, removed: Sequence[Statement], added: Sequence[Statement]) -> None:
        """Add an evaluated operation."""
        self.sizes.append((len(added), len(removed)))
        self.lines += ChangeSet(added, removed).lines()

    def note_other(self) -> None:
        """Add an operation whose effect does not depend on the reads."""
        self.sizes.append(None)

    def quads(self) -> list[Quads | None]:
        """Return the removed and added quads of each operation, as terms."""
        quads = iter(ox.parse("".join(self.lines).encode(), ox.RdfFormat.N_QUADS, lenient=True))
        found: list[Quads | None] = []
        for sizes in self.sizes:
            if sizes is None:
                found.append(None)
            else:
                # Not `list`, which would hold the GIL until all quads are parsed.
                added, removed = ([quad for quad in islice(quads, size)] for size in sizes)  # noqa: C416
                found.append((removed, added))
        return found


@dataclass(eq=False, slots=True)
class UpdateAttempt:
    """State of an update, or a group of them, that is evaluated outside of the writer thread."""

    steps: int = 0
    """Steps taken so far, here and outside, that are not yet charged to the client. A changed quad counts as one."""
    tries: int = 0
    keys: Sequence[Key] = ()
    """Patterns of the quads that the evaluation reads."""
    graph_names: bool = False
    """Whether it also depends on the set of named graphs."""
    conflict: bool = False
    """Whether something that it read has changed since the start of the evaluation."""
    needed: int = 0
    """Steps of the last evaluation."""
    found: Sequence[Sequence[Quads | None]] | None = None
    """Effects of each of its updates; None while unknown."""
    error: Exception | None = None
    """Error of the evaluation."""
    documents: Sequence[Documents] | None = None
    """Documents that each of its updates loads; None while they are not fetched."""
    staged: StagedChange | None = None
    """The staged change; None if the change is not staged, or not yet."""
    large: bool = False
    """Whether the evaluation found that it changes many quads. It is then staged, even if its text names few."""
    unstaged: bool = False
    """Whether its change cannot be prepared in pieces."""

    @property
    def over(self) -> bool:
        """Whether an evaluation has ended whose outcome was not taken yet."""
        return self.found is not None or self.error is not None

    def take(self) -> Sequence[Sequence[Quads | None]]:
        """Take the result. A second call needs a new evaluation.

        Raises `LongUpdate` if the update must be evaluated again, `UpdateConflict` after the last conflict, and the
        error of the evaluation.
        """
        found, error, conflict = self.found, self.error, self.conflict
        # Reset first, so that the next evaluation starts clean even if this call raises.
        self.found, self.error, self.conflict = None, None, False
        # Also if the evaluation failed: its error may come from a state that is over.
        if conflict and self.tries < MOST_TRIES:
            raise LongUpdate
        if conflict:
            raise UpdateConflict(
                f"The update takes long, and the data that its WHERE clause reads changed during each of {MOST_TRIES} "
                "evaluations; nothing was changed. Send it again, narrow its WHERE clause, or change the data in parts"
            )
        if error is not None:
            raise error
        assert found is not None, "over"  # noqa: S101
        return found
