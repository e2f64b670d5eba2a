"""Fault isolation: limits a fault in incremental evaluation to the subscriptions that cause it.

One run evaluates all plan groups that an update hits. If the run raises an unexpected error, no subscription has
changed yet. The engine then evaluates each plan group separately, and the members of a failing group one by one. Those
that still fail are at fault.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from edge.engine.faults import contained
from edge.engine.operators.stages import Row, Weights
from edge.engine.queries.oxigraph_queries import QueryRules
from edge.engine.store.transaction import Transaction
from edge.engine.subscriptions.delta_evaluation import Changes, DeltaEvaluation
from edge.engine.subscriptions.incremental_spu import IncrementalSpu
from edge.engine.subscriptions.plan_group import GroupTrigger, PlanGroup

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Changed:
    """Effect of an update on the incremental subscriptions that it hits."""

    weights: dict[IncrementalSpu, Weights] = field(default_factory=dict)
    """Changed solutions of each subscription."""
    failures: dict[IncrementalSpu, str] = field(default_factory=dict)
    """Reasons of the subscriptions that exceed a limit."""
    faults: dict[IncrementalSpu, Exception] = field(default_factory=dict)
    """Unexpected errors, by subscription."""

    def add(self, evaluation: DeltaEvaluation) -> None:
        """Add the result of the evaluation of a part."""
        self.weights.update(evaluation.weights)
        self.failures.update(evaluation.failures)


class FaultIsolation:
    """Evaluation of all incremental subscriptions that one update hits."""

    def __init__(
        self,
        transaction: Transaction,
        rules: QueryRules,
        hits: Mapping[GroupTrigger[IncrementalSpu], Changes],
        everything: Collection[IncrementalSpu],
        steps: int | None = None,
        only: Mapping[Row, IncrementalSpu] | None = None,
    ) -> None:
        """`everything`: subscriptions to evaluate as a whole. `steps` and `only`: see `DeltaEvaluation`."""
        self._only = only
        self._steps = steps
        self._transaction = transaction
        self._rules = rules
        self._hits = hits
        self._everything = everything

    def run(self) -> Changed:
        """Evaluate. Errors of single subscriptions become part of the result."""
        evaluation = self._attempt(self._hits, self._everything, self._only)
        if isinstance(evaluation, DeltaEvaluation):  # nearly always
            return Changed(evaluation.weights, evaluation.failures)
        changed = Changed()
        groups = dict.fromkeys(entry.group for entry in self._hits)
        groups.update(dict.fromkeys(spu.group for spu in self._everything))
        for group in groups:
            self._run_group(group, changed)
        return changed

    def _run_group(self, group: PlanGroup[IncrementalSpu], changed: Changed) -> None:
        hits = {entry: changes for entry, changes in self._hits.items() if entry.group is group}
        everything = [spu for spu in self._everything if spu.group is group]
        group.forget()  # the failed run may have skipped the invalidation of some caches
        outcome = self._attempt(hits, everything, self._only)
        if isinstance(outcome, DeltaEvaluation):
            changed.add(outcome)
            return
        group.forget()
        members = list((group.members if self._only is None else self._only).values())
        for member in members:
            own = self._attempt(hits, [spu for spu in everything if spu is member], only={member.open: member})
            if isinstance(own, DeltaEvaluation):
                changed.add(own)
            else:
                changed.faults[member] = own
        group.forget()
        if not group.fault_logged and not any(member in changed.faults for member in members):
            group.fault_logged = True  # only once: every update that hits the group may fail like this
            _log.error("subscription.group_fault: its members were evaluated one by one", exc_info=outcome)

    def _attempt(
        self,
        hits: Mapping[GroupTrigger[IncrementalSpu], Changes],
        everything: Collection[IncrementalSpu],
        only: Mapping[Row, IncrementalSpu] | None = None,
    ) -> DeltaEvaluation | Exception:
        """Evaluate a part. Return the evaluation, or the error that it raised."""
        try:
            evaluation = DeltaEvaluation(self._transaction, self._rules, only, self._steps)
            evaluation.run(hits, everything)
        except BaseException as error:  # noqa: BLE001  `contained` raises again what must not be held back
            return contained(error)
        return evaluation
