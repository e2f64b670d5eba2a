"""Settings of the engine."""

from __future__ import annotations

from typing import Literal
from urllib.parse import urlsplit

from pydantic import field_validator

from edge.config.keys import KIB, MIB, key
from edge.config.section import Section


class EngineSettings(Section):
    """The SPARQL engine: durability, limits of updates and queries, the dataset."""

    durability: Literal["commit", "interval"] = key(
        "commit",
        '"commit": acknowledgements and notifications leave after the update is on disk. "interval": they leave at '
        "once and the disk is written every flush_interval, so a power cut loses up to that much.",
    )
    flush_interval: float = key(
        1.0, 'Time between writes to disk with durability "interval".', unit="s", minimum=0.01, maximum=3600
    )
    max_pending_updates: int = key(10_000, "Updates that may wait; more are answered 429.", minimum=1)
    max_batch: int = key(256, "Waiting updates that share one commit at most.", minimum=1, maximum=10_000)
    max_batch_time: float = key(
        0.05,
        "Time after which updates that share a commit are committed, whatever else waits. While several clients "
        "send updates it is 4 times as long as the disk took for the last commit, 5 ms at least, if that is shorter. "
        "0: each update has a commit of its own.",
        unit="s",
        minimum=0,
        maximum=10,
    )
    max_pending_timers: int = key(
        200_000, "Delayed updates that may wait for their time; more are answered 429.", minimum=0
    )
    max_timer_bytes: int = key(
        64 * MIB,
        "Texts of delayed updates on disk, with 200 bytes for each; where there is security, one client may have as "
        "much as it leaves to others. More are answered 429.",
        unit="bytes",
        minimum=0,
    )
    max_lateness: float = key(
        0.0,
        "How late a delayed update may be and is still run; one that is later, after a day without power say, is "
        "marked as missed. 0: however late.",
        unit="s",
        minimum=0,
        maximum=3_155_760_000,
    )
    timer_outcomes_for: float = key(
        86_400.0,
        "How long it can be asked what became of a delayed update.",
        unit="s",
        minimum=0,
        maximum=31_557_600,
    )
    max_timer_outcomes: int = key(
        10_000, "Delayed updates of which that can be asked at most; the oldest go first.", minimum=0
    )
    trust_clock: Literal["auto", "always", "never"] = key(
        "auto",
        "Whether the machine's clock is right when it starts, so that the time without power counts for delayed "
        'updates. "auto": where there is a clock with a battery (RTC), or once NTP has set it.',
    )
    stall_after: float = key(
        30.0,
        "Time after which updates that do not move on count as stalled: /health then says so, with 503.",
        unit="s",
        minimum=1,
        maximum=86_400,
    )
    booster: Literal["delta", "re-evaluate"] = key(
        "delta",
        '"delta": what a change does to a subscription is computed from the change, where there is a rule for it. '
        '"re-evaluate": every subscribed query is evaluated anew whenever a change can touch it, and compared; to '
        "compare the two.",
    )
    processing: Literal["sequential", "parallel"] = key(
        "parallel",
        "Whether one of the subscribed queries that are re-evaluated is evaluated at a time, or several on threads of "
        "their own. Updates wait for neither. `edge engine --processing` changes it while the gateway runs.",
    )
    spu_workers: int = key(
        0, "Threads for parallel processing. 0: as many as there are processors.", minimum=0, maximum=64
    )
    evaluation_budget: float = key(
        0.5,
        "Time for which the re-evaluated subscriptions of one client may be evaluated, in seconds per second. A client "
        "that needs more gets its notifications later, with several changes in one; other clients are not affected. "
        "Each client may be ahead by one second. 0: no limit.",
        minimum=0,
        maximum=64,
    )
    query_workers: int = key(2, "Threads that answer queries.", minimum=1, maximum=64)
    max_pending_queries: int = key(100, "Queries that may wait for a thread; more are answered 429.", minimum=1)
    query_timeout: float = key(
        30.0, "Time after which a query is given up and answered 408.", unit="s", minimum=0.01, maximum=86_400
    )
    evaluation_timeout: float = key(
        10.0,
        "Time that the WHERE of an update, or a subscribed query, may take where there are no steps to be counted "
        "(max_steps) because it is evaluated as a whole; then it is given up. Other clients do not wait for it.",
        unit="s",
        minimum=0.01,
        maximum=86_400,
    )
    update_workers: int = key(
        2,
        "Processes that evaluate long updates at the same time. An update that takes more than 5,000 steps, or has a "
        "WHERE that is evaluated as a whole, is evaluated in one while the updates of other clients go on. As many "
        "threads fetch the documents of LOAD, and as many other processes evaluate the first results of incremental "
        "subscriptions that take more than 5,000 steps.",
        minimum=1,
        maximum=64,
    )
    update_timeout: float = key(
        60.0,
        "Time that the evaluation of such an update or first result may take where its steps are counted; then it is "
        "given up and answered 408.",
        unit="s",
        minimum=0.01,
        maximum=86_400,
    )
    max_changes: int = key(
        1_000_000,
        "Quads that the operations of one update may name, insert and remove together; more are refused. Large changes "
        "are prepared in pieces between the updates of others, which wait only while they are applied: about 0.1 s for "
        "each 100,000 quads.",
        minimum=1000,
    )
    max_query_memory: int = key(
        256 * MIB,
        "Memory that the evaluation of a query, of a subscribed query or of a WHERE may take; one that takes more is "
        "given up and answered 413.",
        unit="bytes",
        minimum=MIB,
    )
    base_iri: str = key(
        "http://localhost/", "IRI that relative IRIs of queries and updates without BASE are resolved against."
    )
    default_graph_as_union: bool = key(
        False, "Whether the default graph of queries without a dataset is the union of all graphs."
    )
    allow_load: bool = key(False, "Whether updates may LOAD documents: from the network, by this machine's address.")
    allow_service: bool = key(False, "Whether queries may call other endpoints with SERVICE.")
    max_solutions: int = key(
        500_000,
        "Solutions of an update's WHERE, and of a subscribed query, at the most; what has more is refused.",
        minimum=1,
    )
    max_steps: int = key(
        5_000_000,
        "Steps to find the solutions of all WHERE clauses of an update, of a subscribed query when it begins, or of "
        "what an update changes in it, at the most; what takes more is refused. A step is a look-up of a triple "
        "pattern, a triple that it finds, a row of VALUES, a call in an expression, 512 characters of a long text that "
        "is read or 32 of one that is made. A million steps take about a second; others wait for the steps of "
        "subscribed queries, not for those of updates.",
        minimum=1000,
    )
    max_graph_bytes: int = key(
        0,
        "Memory that the live graph may take, about 950 bytes for a triple with two new terms; queries make up to two "
        "copies of 400 bytes a triple. Updates that make it larger are refused; the last tenth is reserved for sensors "
        "and administrators. 0: a quarter of the machine's memory.",
        unit="bytes",
        minimum=0,
    )
    client_steps: int = key(
        1_000_000,
        "Steps a second that the updates of one client may take in the long run, and max_steps at once; a quad that is "
        "changed counts as one, too. The requests of a client beyond that wait behind those of others, as with low "
        "priority. 0: any number.",
        minimum=0,
    )
    max_text: int = key(
        10_000_000,
        "Characters of a text that a function (CONCAT, REPLACE, GROUP_CONCAT and others) may make where steps are "
        "counted; what could make a longer one is refused.",
        minimum=1000,
    )
    max_remembered_bytes: int = key(
        16 * MIB,
        "Memory for the results of joins that all subscriptions together remember until something in them changes; one "
        "solution takes about 300 bytes, and long terms their length. 0: none, which costs time.",
        unit="bytes",
        minimum=0,
    )
    max_joined: int = key(
        64,
        "Triple patterns, groups and OPTIONALs that are joined in one group of a query, or of the WHERE of an update, "
        "at the most; what has more is refused, and so is what has more than 4 groups as large. In a text of 96 "
        "tokens or more a triple pattern that is repeated next to others counts once. Where a query is evaluated as "
        "a whole, to plan 64 takes 0.1 s, 128 2 s, 256 half a minute.",
        minimum=1,
    )
    snapshot_min_bytes: int = key(
        4 * MIB, "Size of the journal below which no snapshot is made.", unit="bytes", minimum=64 * KIB
    )
    snapshot_ratio: float = key(
        2.0,
        "A snapshot is made when the journal is this many times as large as the last snapshot.",
        minimum=0.1,
        maximum=1000,
    )

    @field_validator("base_iri")
    @classmethod
    def _absolute_iri(cls, value: str) -> str:
        if not urlsplit(value).scheme or any(character in value for character in ' <>"{}|\\^`'):
            raise ValueError('must be an absolute IRI such as "http://example.org/"')
        return value
