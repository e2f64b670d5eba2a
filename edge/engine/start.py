"""Building a running engine: journal, live graph, scheduler."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pyoxigraph as ox

from edge.engine.clock import Clock, SystemClock
from edge.engine.engine import Engine
from edge.engine.general import Rules
from edge.engine.journal import Journal
from edge.engine.ledger import Ledger
from edge.engine.scheduler import Scheduler
from edge.engine.settings import EngineSettings
from edge.engine.update import Loader
from edge.engine.work import Rights
from edge.protocol.errors import Forbidden


def _no_loader(document: str) -> Iterable[ox.Quad]:
    raise Forbidden(f"Nothing here can load {document}")


def make_engine(settings: EngineSettings, load: Loader = _no_loader) -> Engine:
    """An engine with an empty graph, which whoever has it runs. `load` fetches the documents of LOAD."""
    rules = Rules(
        base_iri=settings.base_iri,
        union_default_graph=settings.default_graph_as_union,
        allow_service=settings.allow_service,
        allow_load=settings.allow_load,
        max_solutions=settings.max_solutions,
        max_steps=settings.max_steps,
        max_text=settings.max_text,
        max_remembered=settings.max_remembered,
        max_joined=settings.max_joined,
        evaluation_timeout=settings.evaluation_timeout,
        max_query_memory=settings.max_query_memory,
        boost=settings.booster == "delta",
    )
    return Engine(rules, load)


def open_engine(
    directory: Path | None,
    settings: EngineSettings | None = None,
    *,
    clock: Clock | None = None,
    load: Loader = _no_loader,
    rights: Rights = lambda given: given,
    ledger: Callable[[Journal], Ledger] | None = None,
) -> Scheduler:
    """Open a data directory, or with None a memory that nothing survives, and start an engine on it.

    `load` fetches the documents of LOAD; `rights` says what clients may do by now that gave updates to be run later.
    `ledger` makes the ledger, in the journal's file.
    Raises `DataDirectoryRefused` for a directory that is damaged, in use, of a newer version or not writable; it is
    then as it was.
    """
    settings = settings or EngineSettings()
    journal = Journal.open(
        directory,
        durability=settings.durability,
        flush_interval=settings.flush_interval,
        snapshot_min_bytes=settings.snapshot_min_bytes,
        snapshot_ratio=settings.snapshot_ratio,
        receipts_kept=settings.receipts_kept,
    )
    try:
        clock = clock or SystemClock(settings.trust_clock)
        made = None if ledger is None else ledger(journal)
        return Scheduler(make_engine(settings, load), journal, settings, clock, rights, made)
    except BaseException:
        journal.close()
        raise
