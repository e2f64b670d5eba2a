"""Settings of the engine."""

from __future__ import annotations

from typing import Literal
from urllib.parse import urlsplit

from pydantic import field_validator

from edge.engine.clock import Trust
from edge.engine.store.step_budget import MAX_STEPS
from edge.section import KIB, MIB, Section, fixed, key

Booster = Literal["delta", "re-evaluate"]
"""Evaluation of subscribed queries after an update: incremental where possible, or re-evaluation of all of them."""

Processing = Literal["sequential", "parallel"]
"""Number of concurrent re-evaluations: one, or several."""


class EngineSettings(Section):
    """The SPARQL engine: durability, limits of updates and queries, the dataset."""

    durability: Literal["commit", "interval"] = key(
        "commit",
        '"commit": acknowledgements and notifications leave after the update is on disk. "interval": they leave at '
        "once and the journal is flushed every flush_interval in the background, so a power cut loses the updates "
        "since the last finished flush: at most those of two intervals.",
        basic=True,
    )
    flush_interval: float = key(
        1.0, 'Time between two flushes to disk with durability "interval".', unit="s", minimum=0.01, maximum=3600
    )
    max_pending_updates: int = key(10_000, "Updates that may wait. Further ones get status 429.", minimum=1)
    max_batch: int = fixed(256, "Most waiting updates that share one commit.")
    max_batch_time: float = key(
        0.05,
        "Time after which updates that share a commit are committed, even if others wait. While several clients send "
        "updates, the limit is 4 times the usual duration of a commit (at least 5 ms), if that is shorter. 0: each "
        "update has its own commit.",
        unit="s",
        minimum=0,
        maximum=10,
    )
    max_pending_timers: int = key(
        200_000, "Delayed updates that may wait for their time. Further ones get status 429.", minimum=0
    )
    max_timer_bytes: int = key(
        64 * MIB,
        "Texts of delayed updates on disk, plus 200 bytes for each. With security, one client may use as much as it "
        "leaves to others. Further ones get status 429.",
        unit="bytes",
        minimum=0,
    )
    max_lateness: float = key(
        0.0,
        "How late a delayed update may still run. A later one, for example after a day without power, is marked as "
        "missed. 0: no limit.",
        unit="s",
        minimum=0,
        maximum=3_155_760_000,
    )
    timer_outcomes_for: float = key(
        86_400.0,
        "How long clients can request the outcome of a delayed update.",
        unit="s",
        minimum=0,
        maximum=31_557_600,
    )
    max_timer_outcomes: int = key(
        10_000,
        "Outcomes of delayed updates that the gateway stores. Beyond this number it removes the oldest.",
        minimum=0,
    )
    trust_clock: Trust = key(
        "auto",
        "Whether the host's clock is right at its start, so that the time without power counts for delayed updates. "
        '"auto": if the host has a clock with a battery (RTC), or once NTP has set the clock.',
    )
    stall_after: float = key(
        30.0,
        "Time without progress after which updates count as stalled. /health then reports it with status 503.",
        unit="s",
        minimum=1,
        maximum=86_400,
    )
    booster: Booster = key(
        "delta",
        '"delta": the engine computes the delta of a subscription from the change, if it supports this for the query'
        ' (incremental evaluation). "re-evaluate": after each change that can affect a subscribed query, the engine '
        "evaluates the whole query and compares the results; use it to compare both methods.",
    )
    processing: Processing = key(
        "parallel",
        '"sequential": the engine re-evaluates one subscribed query at a time. "parallel": it re-evaluates several '
        "on their own threads. Updates do not wait in either case. `edge engine --processing` changes the mode of a "
        "running gateway.",
    )
    spu_workers: int = key(0, "Threads for parallel processing. 0: one for each processor.", minimum=0, maximum=64)
    evaluation_budget: float = key(
        0.5,
        "Time for which the engine may re-evaluate the subscriptions of one client, in seconds per second. A client "
        "that needs more gets its notifications later, with several changes in one; other clients are not affected. "
        "Each client may use one second in advance. 0: no limit.",
        minimum=0,
        maximum=64,
    )
    query_workers: int = key(2, "Threads that evaluate queries.", minimum=1, maximum=64)
    max_pending_queries: int = key(100, "Queries that may wait for a thread. Further ones get status 429.", minimum=1)
    query_timeout: float = key(
        30.0,
        "Time limit of an evaluation, after which the engine stops it with status 408: of a query, and of an update or "
        "a first result in a process of its own. The WHERE of an update, or a subscribed query, that is evaluated as a "
        "whole, so that the engine cannot count its steps (max_steps), has a third of this time. Other clients do not "
        "wait for it.",
        unit="s",
        minimum=0.01,
        maximum=86_400,
    )
    update_workers: int = key(
        2,
        "Forked processes that evaluate long updates at the same time. The engine uses one for an update that takes "
        "more than 5,000 steps or has a WHERE that is evaluated as a whole; the updates of other clients continue. As"
        " many threads fetch the documents of LOAD, and as many other processes evaluate the first results of "
        "incremental subscriptions that take more than 5,000 steps.",
        minimum=1,
        maximum=64,
    )
    max_query_memory: int = key(
        256 * MIB,
        "Memory for the evaluation of a query, of a subscribed query or of a WHERE. Beyond it the engine stops the "
        "evaluation, with status 413. Where the engine counts steps, it allows one solution for each 512 bytes, and "
        "texts made by a function (CONCAT, REPLACE, GROUP_CONCAT and others) of one character for each 24 bytes.",
        unit="bytes",
        minimum=MIB,
    )
    base_iri: str = key(
        "http://localhost/", "Base IRI against which relative IRIs of queries and updates without BASE are resolved."
    )
    default_graph_as_union: bool = key(
        False, "Whether the default graph of queries without a dataset is the union of all graphs."
    )
    allow_load: bool = key(
        False,
        "Whether updates may LOAD documents. The gateway fetches them from the network, from its own address. With "
        "security, only from public hosts and those in streams.callback_hosts.",
    )
    allow_service: bool = key(False, "Whether queries may call other endpoints with SERVICE.")
    max_steps: int = key(
        MAX_STEPS,
        "Step budget: to find the solutions of all WHERE clauses of an update, to evaluate the first result of a "
        "subscribed query, or to evaluate the effect of an update on it. Requests beyond it are refused. A step is a "
        "look-up of a triple pattern, a triple that it finds, a row of VALUES, a call in an expression, 512 "
        "characters read of a long text or 32 written to a new one. A million steps take about a second; other "
        "clients wait for the steps of subscribed queries, not for those of updates. The operations of one update may "
        "name, insert and remove a fifth as many quads: the engine prepares large changes in pieces between the "
        "updates of others, which wait only while it applies the change, about 0.1 s for each 100,000 quads. Planning "
        "a query takes steps as well: the triple patterns, groups and OPTIONALs that are joined in a group, to the "
        "fourth power, divided by 14. So 5,000,000 steps allow 91 in one group, or 64 in each of four.",
        minimum=1000,
    )
    max_graph_bytes: int = key(
        0,
        "Memory for the live graph, about 950 bytes for a triple with two new terms; queries make up to two copies of"
        " 400 bytes a triple. Updates that make it larger are refused; the last tenth is reserved for sensors and "
        "administrators. 0: a quarter of the host's memory.",
        unit="bytes",
        minimum=0,
    )
    client_steps: int = key(
        1_000_000,
        "Steps a second that the updates of one client may take on average, with a burst of max_steps; each changed "
        "quad counts as one step, too. Requests beyond it wait behind those of other clients, as with low priority. "
        "0: no limit.",
        minimum=0,
    )
    max_remembered_bytes: int = key(
        16 * MIB,
        "Cache for the join results of all subscriptions, each valid until its data changes. One solution takes about"
        " 300 bytes, and long terms their length. 0: no cache, which costs time.",
        unit="bytes",
        minimum=0,
    )
    snapshot_min_bytes: int = key(
        4 * MIB, "Size of the journal below which the engine writes no snapshot.", unit="bytes", minimum=64 * KIB
    )
    snapshot_ratio: float = key(
        2.0,
        "The engine writes a snapshot when the journal is this many times as large as the last snapshot.",
        minimum=0.1,
        maximum=1000,
    )

    @field_validator("base_iri")
    @classmethod
    def _absolute_iri(cls, value: str) -> str:
        if not urlsplit(value).scheme or any(character in value for character in ' <>"{}|\\^`'):
            raise ValueError('must be an absolute IRI such as "http://example.org/"')
        return value
