"""Change sets: what one update really changed, and nothing that it left as it was."""

from __future__ import annotations

from dataclasses import dataclass

import pyoxigraph as ox


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """The exact effect of one update request: quads that are new, quads that are gone, named graphs likewise.

    Disjoint and minimal: no quad is in both, none that was there is in `added`, none that was not is in `removed`.
    `created` and `dropped` are the named graphs that began or ceased to exist (an empty graph can exist).
    """

    added: tuple[ox.Quad, ...] = ()
    removed: tuple[ox.Quad, ...] = ()
    created: tuple[ox.NamedNode | ox.BlankNode, ...] = ()
    dropped: tuple[ox.NamedNode | ox.BlankNode, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.created or self.dropped)

    def inverse(self) -> ChangeSet:
        """The change set that undoes this one."""
        return ChangeSet(self.removed, self.added, self.dropped, self.created)


NO_CHANGE = ChangeSet()
