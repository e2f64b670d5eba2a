"""Parts of a change: sets of plan groups, or of members of one group, whose evaluation takes a bounded number of steps.

A change of a thousand triples that concerns a thousand queries is a million evaluations of a triple for a query. The
engine evaluates them part by part, and its caller serves others in between.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby, islice
from operator import attrgetter
from typing import Final, NamedTuple

from edge.engine.operators.stages import Row
from edge.engine.subscriptions.delta_evaluation import Changes
from edge.engine.subscriptions.incremental_spu import IncrementalSpu
from edge.engine.subscriptions.plan_group import GroupTrigger, PlanGroup

EVALUATION_STEPS: Final = 2_000
"""Steps of a query without delta rules, about: how long it takes depends on the query."""
_EACH: Final = 10
"""Steps of a query in addition to those of the triples: its notification takes as long."""

Hits = Mapping[GroupTrigger[IncrementalSpu], Changes]


class Part(NamedTuple):
    """A part of the evaluation of a change. See `DeltaEvaluation` for `hits`, `everything` and `only`."""

    hits: Hits
    everything: Sequence[IncrementalSpu]
    only: Mapping[Row, IncrementalSpu] | None
    steps: int
    """Evaluations of a changed triple for a query, about."""


def divided(hits: Hits, everything: Collection[IncrementalSpu], most: int) -> Iterator[Part]:
    """Divide the evaluation of a change into parts of about `most` steps.

    Members of a plan group that are evaluated together stay together: divided, each part would take as many steps as
    the whole.
    """
    groups: dict[PlanGroup[IncrementalSpu], tuple[dict[GroupTrigger[IncrementalSpu], Changes], list[IncrementalSpu]]]
    groups = {}
    for entry, changes in hits.items():
        groups.setdefault(entry.group, ({}, []))[0][entry] = changes
    for spu in everything:
        groups.setdefault(spu.group, ({}, []))[1].append(spu)
    open_hits: dict[GroupTrigger[IncrementalSpu], Changes] = {}
    open_everything: list[IncrementalSpu] = []
    steps = 0
    for group, (own_hits, own_everything) in groups.items():
        for part in _parts_of(group, own_hits, own_everything, most):
            if part.only is not None:
                yield part
                continue
            open_hits.update(part.hits)
            open_everything += part.everything
            steps += part.steps
            if steps >= most:
                yield Part(open_hits, open_everything, None, steps)
                open_hits, open_everything, steps = {}, [], 0
    if open_hits or open_everything:
        yield Part(open_hits, open_everything, None, steps)


def _parts_of(
    group: PlanGroup[IncrementalSpu], hits: Hits, everything: Sequence[IncrementalSpu], most: int
) -> Iterator[Part]:
    """Yield the parts of one plan group."""
    size = sum(len(changes) for changes in hits.values()) + len(everything)
    members = group.members
    alternatives = [list(entries) for _, entries in groupby(hits, key=attrgetter("number"))]
    if all(map(_is_common, alternatives)):
        yield Part(hits, everything, None, size + _EACH * min(size, len(members)))
        return
    each = size + _EACH
    width = max(most // each, 1)
    if len(members) <= width:
        yield Part(hits, everything, None, each * len(members))
        return
    left = iter(dict(members).items())
    while only := dict(islice(left, width)):
        yield Part(hits, [spu for spu in everything if spu.open in only], only, each * len(only))


def _is_common(entries: Sequence[GroupTrigger[IncrementalSpu]]) -> bool:
    """Return whether the triggers of one alternative are evaluated once for all members, or for one each.

    See `DeltaEvaluation`.
    """
    if all(entry.complete for entry in entries):
        return True
    if any(entry.complete or not entry.connected for entry in entries):
        return False
    return len(entries) > 1 or not entries[0].trigger.exact or entries[0].simple
