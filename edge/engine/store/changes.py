"""Change sets: the exact effect of one update on the live graph."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyoxigraph as ox

from edge.engine.store.oxigraph_transaction import GraphName
from edge.protocol.results import Term

Statement = tuple[Term, Term, Term, GraphName | None]
"""Subject, predicate, object and graph (None: the default graph). Creating an `ox.Quad` costs more than all other work.
"""


class ChangeSet:
    """Exact effect of one update request: added and removed quads, created and dropped named graphs.

    The sets are disjoint and minimal. `added` contains no quad that existed before, `removed` only quads that existed.
    `created` and `dropped` name the graphs that began or ceased to exist. A named graph can exist and be empty.
    """

    __slots__ = ("_added", "_removed", "created", "dropped")

    def __init__(
        self,
        added: Sequence[ox.Quad | Statement] = (),
        removed: Sequence[ox.Quad | Statement] = (),
        created: Sequence[GraphName] = (),
        dropped: Sequence[GraphName] = (),
    ) -> None:
        self._added = added
        self._removed = removed
        self.created = tuple(created)
        self.dropped = tuple(dropped)

    @property
    def added(self) -> tuple[ox.Quad, ...]:
        """Added quads."""
        return tuple(map(as_quad, self._added))

    @property
    def removed(self) -> tuple[ox.Quad, ...]:
        """Removed quads."""
        return tuple(map(as_quad, self._removed))

    @property
    def statements(self) -> tuple[Iterable[Statement], Iterable[Statement]]:
        """Added and removed statements. Creates no quads."""
        return map(_statement, self._added), map(_statement, self._removed)

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Numbers of added quads, removed quads, created graphs and dropped graphs."""
        return len(self._added), len(self._removed), len(self.created), len(self.dropped)

    def lines(self) -> list[str]:
        """Return the added quads, then the removed quads, as lines of N-Quads."""
        lines: list[str] = []
        for quad in (*self._added, *self._removed):
            if not isinstance(quad, tuple):
                lines.append(f"{quad} .\n")
                continue
            # Without `!s`, Python calls `__format__` of each term, which takes a quarter longer.
            s, p, o, g = quad
            lines.append(f"{s!s} {p!s} {o!s} .\n" if g is None else f"{s!s} {p!s} {o!s} {g!s} .\n")
        return lines

    def inverse(self) -> ChangeSet:
        """Return the change set that undoes this one."""
        return ChangeSet(self._removed, self._added, self.dropped, self.created)

    def __bool__(self) -> bool:
        return bool(self._added or self._removed or self.created or self.dropped)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ChangeSet) and self._key() == other._key()

    def __hash__(self) -> int:
        # By terms, because quads and statements of the same terms are equal changes.
        return hash(self._key())

    def __repr__(self) -> str:
        return f"ChangeSet(added={self.added}, removed={self.removed}, created={self.created}, dropped={self.dropped})"

    def _key(self) -> tuple[tuple[object, ...], ...]:
        return self.added, self.removed, self.created, self.dropped


def as_quad(quad: ox.Quad | Statement) -> ox.Quad:
    """Return a statement as a quad."""
    return ox.Quad(*quad) if isinstance(quad, tuple) else quad  # type: ignore[arg-type]


def _statement(quad: ox.Quad | Statement) -> Statement:
    if isinstance(quad, tuple):
        return quad
    name = quad.graph_name
    return quad.subject, quad.predicate, quad.object, None if isinstance(name, ox.DefaultGraph) else name


NO_CHANGE = ChangeSet()
