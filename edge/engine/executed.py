"""Executed update that clients do not see yet, with the data for its commit, its undoing and its notifications."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from edge.engine.journal.codec import EncodedQuads
from edge.engine.performance import UNSPENT, Spent
from edge.engine.requests import UpdateOutcome
from edge.engine.store.changes import ChangeSet, Statement
from edge.engine.store.transaction import Transaction
from edge.engine.subscriptions.activation import Activation
from edge.protocol.access import ANYBODY, Access


@dataclass(slots=True)
class Executed:
    """An update that the live graph contains, but that is not yet visible to clients."""

    changes: ChangeSet
    activations: list[Activation] = field(default_factory=list)
    spent: Spent = UNSPENT
    ledger_statements: Sequence[Statement] = ()
    """Statements that it added to the graph of the ledger."""
    entries: int = 0
    """Number of entries that it wrote to the ledger."""
    growth: int = 0
    """Growth of the graph in bytes, as counted by its quota."""
    access: Access = ANYBODY
    transaction: Transaction | None = None
    """Its changes of the live graph; None if there are none."""
    encoded: EncodedQuads | None = None
    """Its quads in the encoding of the journal, if it was staged."""

    @property
    def outcome(self) -> UpdateOutcome:
        """Outcome for the client."""
        added, removed, created, dropped = self.changes.sizes
        return UpdateOutcome(added, removed, self.entries, created, dropped)
