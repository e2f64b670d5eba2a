"""Activation: the effect of one update on one SPU."""

from __future__ import annotations

from dataclasses import dataclass, field

from edge.engine.operators.stages import Weights
from edge.engine.subscriptions.demotion import OldResults
from edge.engine.subscriptions.spu import Spu
from edge.protocol.bag import Bag


@dataclass(slots=True)
class Activation:
    """Effect of one update on one SPU: changed rows, or the reason why its query could not be evaluated.

    A re-evaluated SPU has neither, because it is evaluated after the commit.
    """

    spu: Spu
    rows: Weights = field(default_factory=Bag)
    moved: Weights = field(default_factory=Bag)
    """The solutions that an incremental SPU has applied."""
    failure: str = ""
    at: int = 0
    """Engine time of the update."""
    exceeded: bool = False
    """Whether the update exceeds a limit of the query."""
    old: OldResults | None = None
    """Source of the result from before the update, if the SPU is demoted or refreshed."""
    number: int = 0
    """Index of its result there."""
    refreshes: bool = False
    """Whether an incremental SPU was detached, to be refreshed after the commit."""
