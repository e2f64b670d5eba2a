"""Settings of the engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from edge.engine.clock import Trust
from edge.engine.sparql.size_limits import MAX_JOINED
from edge.engine.store.step_budget import MAX_STEPS, MAX_TEXT

Booster = Literal["delta", "re-evaluate"]
"""Evaluation of subscribed queries after an update: incremental where possible, or re-evaluation of all of them."""

Processing = Literal["sequential", "parallel"]
"""Number of concurrent re-evaluations: one, or several."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Limits and policies, with their defaults."""

    durability: Literal["commit", "interval"] = "commit"
    """"commit": no answer before the update is on disk. "interval": the disk is written every `flush_interval`."""
    flush_interval: float = 1.0
    """Seconds."""
    max_pending_updates: int = 10_000
    max_batch: int = 256
    """Limit of waiting updates that share one commit."""
    max_batch_time: float = 0.05
    """Seconds after which a batch takes no more updates and is committed."""
    trust_clock: Trust = "auto"
    """Whether the wall clock is right when the machine starts."""
    max_pending_timers: int = 200_000
    """Limit of delayed updates that wait."""
    max_timer_bytes: int = 64 * 1024 * 1024
    """Limit of bytes of their texts on disk."""
    max_lateness: float = 0.0
    """Seconds after its time until which a delayed update still runs; 0 for no limit."""
    timer_outcomes_for: float = 86_400.0
    """Seconds for which the outcome of a delayed update is stored."""
    max_timer_outcomes: int = 10_000
    """Limit of stored outcomes of delayed updates."""
    query_workers: int = 2
    max_pending_queries: int = 100
    query_timeout: float = 30.0
    """Seconds after which a query is stopped."""
    max_changes: int = 1_000_000
    """Limit of quads that the operations of one update may name."""
    update_workers: int = 2
    """Number of concurrent processes that evaluate long updates."""
    update_timeout: float = 60.0
    """Time limit of such an evaluation in seconds."""
    evaluation_timeout: float = 10.0
    """Time limit in seconds of Oxigraph for a WHERE clause or a re-evaluated query."""
    max_query_memory: int = 256 * 1024 * 1024
    """Limit of bytes for such an evaluation, or for a query, in a forked process."""
    booster: Booster = "delta"
    processing: Processing = "parallel"
    """It can change while the engine runs."""
    spu_workers: int = 0
    """Threads for parallel processing; 0 for one per processor."""
    evaluation_budget: float = 0.5
    """Evaluation budget of the re-evaluated subscriptions of one client, in seconds per second; 0 for no limit."""
    base_iri: str = "http://localhost/"
    default_graph_as_union: bool = False
    allow_load: bool = False
    allow_service: bool = False
    max_solutions: int = 500_000
    """Limit of solutions of an update's WHERE and of a subscribed query."""
    max_steps: int = MAX_STEPS
    """Step budget for finding them: see `StepBudget`."""
    max_graph_bytes: int = 0
    """Limit of bytes of the live graph; 0 for a quarter of the machine's memory."""
    client_steps: int = 1_000_000
    """Steps per second for the updates of one client, with bursts up to `max_steps`; 0 for no limit."""
    max_text: int = MAX_TEXT
    """Limit of characters of a text that a function creates."""
    max_remembered_bytes: int = 16 * 1024 * 1024
    """Size in bytes of the cache of join results, for all subscriptions together."""
    max_joined: int = MAX_JOINED
    """Limit of triple patterns, groups and OPTIONALs in one group of a query."""
    snapshot_min_bytes: int = 4 * 1024 * 1024
    """Journal size in bytes below which no snapshot is made."""
    snapshot_ratio: float = 2.0
    """Ratio of the journal size to the last snapshot at which a new snapshot is made."""
    max_kept: int = 0
    """Limit of durable subscriptions, which survive restarts."""
