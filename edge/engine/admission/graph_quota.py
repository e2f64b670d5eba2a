"""Graph quota: limits the bytes of the live graph, with a reserve for sensors and a share for each client."""

from __future__ import annotations

import os
from typing import Final

from edge.engine.admission.fair_share import GATEWAY
from edge.engine.journal.contributions import Contributions
from edge.engine.store.changes import ChangeSet
from edge.engine.store.graph import LiveGraph
from edge.protocol.access import Access
from edge.protocol.errors import UpdateFailed

_QUAD: Final = 450
"""Bytes of a quad in the index (measured)."""
_TERM: Final = 250
"""Bytes of a term in the dictionary (measured). Terms longer than 256 characters count their length in addition."""
_RESERVE: Final = 10
"""Percent of the limit that is reserved for the gateway's own readings and for administrators."""


def default_limit() -> int:
    """Return a quarter of the machine's memory: queries make up to two copies of the graph."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4


class GraphQuota:
    """Size limit of the live graph. Only the writer thread uses it.

    An update that does not add more quads than it removes always passes. So sensors can overwrite their values, and
    clients can delete data, even in a full graph.
    """

    def __init__(self, graph: LiveGraph, limit: int) -> None:
        """`limit` in bytes; 0: a quarter of the machine's memory."""
        self._graph = graph
        self.limit = limit or default_limit()
        self._slack = 0
        """Lower bound of the bytes that can still be added before the size must be computed again."""
        self.contributions = Contributions()
        """Contributions of clients, with security only."""

    @property
    def size(self) -> int:
        """Approximate bytes of the graph."""
        dictionary = self._graph.dictionary
        return len(self._graph) * _QUAD + len(dictionary) * _TERM + sum(dictionary.long.values())

    def take(self, changes: ChangeSet, access: Access, source: str, *, applied: bool = True) -> int:
        """Account for the changes of an update. Returns its bytes, for `give_back`.

        `applied`: whether the graph has the changes already; if not, only its dictionary has their terms. Raises
        `UpdateFailed` if the graph would be too large; the caller must then undo the changes.
        """
        added, removed, _, _ = changes.sizes
        long = max(self._graph.dictionary.longest - 256, 0)
        growth = (added - removed) * (_QUAD + _TERM)
        if growth > 0:
            growth += self._long_texts(changes) if long else 0
            # Each added quad can bring three new terms; the slack must cover the worst case.
            most = added * (_QUAD + 3 * _TERM) + growth
            self._slack -= most
            if self._slack < 0:
                self._check(growth, 0 if applied else (added - removed) * _QUAD, access, source)
        if access.registration:
            self.contributions.add(access.client, growth)
        return growth

    def give_back(self, growth: int, access: Access) -> None:
        """Undo the accounting of an update whose changes were undone."""
        if access.registration:
            self.contributions.add(access.client, -growth)
        self._slack = 0

    def _check(self, growth: int, ahead: int, access: Access, source: str) -> None:
        """Check the limits. `ahead`: bytes of changes that are not in the graph yet."""
        size = self.size + ahead
        privileged = access.operates if access.registration else source == GATEWAY
        usable = self.limit if privileged else self.limit * (100 - _RESERVE) // 100
        remedy = "Delete data, or have the operator raise engine.max_graph_bytes"
        if size > usable:
            reserve = "" if privileged else f", {_RESERVE} % of which are reserved for sensors and administrators"
            raise UpdateFailed(
                f"The graph would take {size} bytes; the limit is {self.limit} bytes (engine.max_graph_bytes)"
                f"{reserve}. {remedy}"
            )
        held = self.contributions.of(access.client) + growth
        if access.registration and not privileged and held > usable - (size - growth):
            raise UpdateFailed(
                f'The client "{access.client}" would have added {held} bytes to the graph, more than it leaves for '
                f"others. {remedy}"
            )
        # Clients that are limited by their share must be checked each time.
        self._slack = 0 if access.registration and not privileged else (usable - size) // 2

    def _long_texts(self, changes: ChangeSet) -> int:
        added, _ = changes.statements
        return sum(len(term.value) for _, _, term, _ in added if hasattr(term, "value") and len(term.value) > 256)
