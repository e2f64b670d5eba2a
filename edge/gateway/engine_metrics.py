"""Metrics of the engine."""

from __future__ import annotations

from edge.engine.performance import Figures
from edge.engine.scheduling.scheduler import Scheduler
from edge.metrics import Costs, Metrics


def watch_engine(engine: Scheduler, metrics: Metrics) -> None:
    """Add the metrics of an engine."""
    metrics.watch_engine(
        triples=lambda: engine.quads,
        pending_updates=lambda: engine.pending_updates,
        journal_sequence=lambda: engine.sequence,
        spus=lambda: engine.spus,
        pending_timers=lambda: engine.pending_timers,
        subscription_faults=lambda: engine.subscription_faults,
    )
    metrics.watch_evaluations(
        pending=lambda: engine.pending_evaluations,
        count=lambda: engine.evaluations.evaluations,
        seconds=lambda: engine.evaluations.seconds,
        merged=lambda: engine.evaluations.merged,
    )
    metrics.watch_costs(lambda: _costs(engine.figures))


def _costs(figures: Figures) -> Costs:
    """Convert the figures of the performance model to metrics, in seconds."""
    phases = {
        "update": figures.update,
        "lutt": figures.lutt,
        "booster": figures.booster,
        "notify": figures.notify,
        "total": figures.total,
    }
    return Costs({name: (phase.count, phase.total / 1e9) for name, phase in phases.items()}, figures.hits)
