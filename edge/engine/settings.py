"""What the operator decides about the engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from edge.engine.clock import Trust
from edge.engine.sparql.size_limits import MAX_JOINED
from edge.engine.store.step_budget import MAX_STEPS, MAX_TEXT

Booster = Literal["delta", "re-evaluate"]
"""What becomes of the subscribed queries that an update concerns: moved by the delta rules, or all evaluated anew."""

Processing = Literal["sequential", "parallel"]
"""How those that are re-evaluated are evaluated: one at a time, or several at a time."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Limits and policies, with their defaults."""

    durability: Literal["commit", "interval"] = "commit"
    """"commit": nothing leaves before the update is on disk. "interval": the disk is written every `flush_interval`."""
    flush_interval: float = 1.0
    """Seconds."""
    max_pending_updates: int = 10_000
    max_batch: int = 256
    """Waiting updates that share one commit, at the most."""
    max_batch_time: float = 0.05
    """Seconds after which a batch takes no more work and is committed."""
    trust_clock: Trust = "auto"
    """Whether the machine's clock is right when it starts."""
    max_pending_timers: int = 200_000
    """Delayed updates that wait, at the most."""
    max_timer_bytes: int = 64 * 1024 * 1024
    """Bytes of their texts on disk, at the most."""
    max_lateness: float = 0.0
    """Seconds by which a delayed update may be overdue and is still run; 0: any time."""
    timer_outcomes_for: float = 86_400.0
    """Seconds for which it is remembered what became of a delayed update."""
    max_timer_outcomes: int = 10_000
    """Delayed updates of which that is remembered, at the most."""
    query_workers: int = 2
    max_pending_queries: int = 100
    query_timeout: float = 30.0
    """Seconds after which a query is given up and stopped."""
    max_changes: int = 1_000_000
    """Quads that the operations of one update may name, at the most."""
    update_workers: int = 2
    """Processes that evaluate long updates at the same time."""
    update_timeout: float = 60.0
    """Seconds that such an evaluation may take."""
    evaluation_timeout: float = 10.0
    """Seconds that Oxigraph may take for a WHERE clause, or for a subscribed query that is evaluated anew."""
    max_query_memory: int = 256 * 1024 * 1024
    """Bytes that such an evaluation, or a query, may take in a process of its own."""
    booster: Booster = "delta"
    processing: Processing = "parallel"
    """It can be changed while the engine runs."""
    spu_workers: int = 0
    """Threads for parallel processing; 0 is as many as there are processors."""
    evaluation_budget: float = 0.5
    """Seconds per second that the re-evaluated subscriptions of one client may be evaluated; 0: no limit."""
    base_iri: str = "http://localhost/"
    default_graph_as_union: bool = False
    allow_load: bool = False
    allow_service: bool = False
    max_solutions: int = 500_000
    """Solutions of an update's WHERE, and of a subscribed query, at the most."""
    max_steps: int = MAX_STEPS
    """Steps to find them, at the most: see `Effort`."""
    max_graph_bytes: int = 0
    """Bytes that the live graph may take; 0: a quarter of the machine's memory."""
    client_steps: int = 1_000_000
    """Steps a second that the updates of one client may take in the long run, `max_steps` at once; 0: any number."""
    max_text: int = MAX_TEXT
    """Characters of a text that a function makes meanwhile, at the most."""
    max_remembered_bytes: int = 16 * 1024 * 1024
    """Bytes of evaluations of joins, and of their solutions, that subscriptions remember at the most, all together."""
    max_joined: int = MAX_JOINED
    """Triple patterns, groups and OPTIONALs that are joined in one group of a query, at the most."""
    snapshot_min_bytes: int = 4 * 1024 * 1024
    """Bytes of the journal below which no snapshot is made."""
    snapshot_ratio: float = 2.0
    """A snapshot is made when the journal is so many times as large as the last one."""
    max_kept: int = 0
    """Subscriptions that are kept over restarts, of those that are to be, at the most."""
