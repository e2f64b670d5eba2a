"""Change sets: what one update really changed, and nothing that it left as it was."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyoxigraph as ox

from edge.engine.store.oxigraph_transaction import GraphName
from edge.protocol.results import Term

Statement = tuple[Term, Term, Term, GraphName | None]
"""Subject, predicate, object and graph (None: the default graph). A quad made of it costs more than all the rest."""


class ChangeSet:
    """The exact effect of one update request: quads that are new, quads that are gone, named graphs likewise.

    Disjoint and minimal: no quad is in both, none that was there is in `added`, none that was not is in `removed`.
    `created` and `dropped` are the named graphs that began or ceased to exist (an empty graph can exist).
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
        """The quads that are new."""
        return tuple(map(as_quad, self._added))

    @property
    def removed(self) -> tuple[ox.Quad, ...]:
        """The quads that are gone."""
        return tuple(map(as_quad, self._removed))

    @property
    def statements(self) -> tuple[Iterable[Statement], Iterable[Statement]]:
        """What was added and what was removed, without a quad being made of it."""
        return map(_statement, self._added), map(_statement, self._removed)

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """How many quads were added and removed, how many named graphs created and dropped."""
        return len(self._added), len(self._removed), len(self.created), len(self.dropped)

    def lines(self) -> Iterator[str]:
        """The quads that were added and then those that were removed, as lines of N-Quads."""
        for quads in (self._added, self._removed):
            for quad in quads:
                if isinstance(quad, tuple):
                    subject, predicate, object_, graph = quad
                    if graph is None:
                        yield f"{subject} {predicate} {object_} .\n"
                    else:
                        yield f"{subject} {predicate} {object_} {graph} .\n"
                else:
                    yield f"{quad} .\n"

    def inverse(self) -> ChangeSet:
        """The change set that undoes this one."""
        return ChangeSet(self._removed, self._added, self.dropped, self.created)

    def __bool__(self) -> bool:
        return bool(self._added or self._removed or self.created or self.dropped)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ChangeSet) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"ChangeSet(added={self.added}, removed={self.removed}, created={self.created}, dropped={self.dropped})"

    def _key(self) -> tuple[tuple[object, ...], ...]:
        return self.added, self.removed, self.created, self.dropped


def as_quad(quad: ox.Quad | Statement) -> ox.Quad:
    """A statement as a quad."""
    return ox.Quad(*quad) if isinstance(quad, tuple) else quad  # type: ignore[arg-type]


def _statement(quad: ox.Quad | Statement) -> Statement:
    if isinstance(quad, tuple):
        return quad
    name = quad.graph_name
    return quad.subject, quad.predicate, quad.object, None if isinstance(name, ox.DefaultGraph) else name


NO_CHANGE = ChangeSet()
