"""An update that has been checked and compiled, as it waits for its execution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edge.engine.requests import Precondition
from edge.engine.updates.update_plan import UpdatePlan
from edge.protocol.access import Access
from edge.protocol.results import Term


@dataclass(slots=True)  # frozen, it would take three times as long to make, and so would the next
class PreparedUpdate:
    """A legal, compiled update."""

    plan: UpdatePlan
    constants: Sequence[Term]
    """Values of the plan's parameters."""
    bindings: Mapping[str, Term]
    access: Access
    spent: int = 0
    """Nanoseconds of the compilation."""
    notes: Sequence[object] = ()
    """Entries for the ledger."""
    to_ledger: bool = False
    """Whether all inserted quads go to the ledger, too. Then nothing else is allowed."""
    source: str = ""
    """Client, for quotas and rate limits."""
    condition: Precondition | None = None
    """Condition for the update."""
