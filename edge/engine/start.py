"""Construction of a running engine: journal, live graph and scheduler."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path

import pyoxigraph as ox

from edge.engine.admission.byte_quota import ByteQuota
from edge.engine.clock import Clock, SystemClock
from edge.engine.engine import Engine
from edge.engine.journal import sqlite_schema
from edge.engine.journal.data_directory import DataDamaged, DirectoryLock
from edge.engine.journal.journal import Journal
from edge.engine.journal.ledger import Ledger
from edge.engine.queries.oxigraph_queries import QueryRules
from edge.engine.rescue import UNREADABLE, DamagedJournal
from edge.engine.scheduling.scheduler import Scheduler
from edge.engine.scheduling.work import Rights
from edge.engine.settings import EngineSettings
from edge.engine.updates.loaded_documents import Loader
from edge.protocol.errors import Forbidden

_log = logging.getLogger(__name__)


def _no_loader(document: str) -> Iterable[ox.Quad]:
    raise Forbidden(f"This engine has no loader for {document}")


def make_engine(settings: EngineSettings, load: Loader = _no_loader, quota: ByteQuota | None = None) -> Engine:
    """Create an engine with an empty graph and without a scheduler. `load` fetches the documents of LOAD."""
    return Engine(QueryRules(settings), load, settings.max_graph_bytes, quota)


def open_engine(
    directory: Path | None,
    settings: EngineSettings | None = None,
    *,
    clock: Clock | None = None,
    load: Loader = _no_loader,
    rights: Rights = lambda given: given,
    ledger: Callable[[Journal], Ledger] | None = None,
    start: bool = True,
    rescue: bool = False,
    quota: ByteQuota | None = None,
    max_durable: int = 0,
) -> Scheduler:
    """Open a data directory and start an engine on it. `directory`: None keeps all data in memory only.

    `load` fetches the documents of LOAD. `rights` returns the current permissions of a client whose delayed update is
    due. `ledger` creates the ledger in the journal's file. `start=False`: see `Scheduler`. `quota` is charged for data
    held for clients. `max_durable`: most subscriptions that survive a restart.
    Raises `DataDirectoryRefused` for a directory that is damaged, in use, of a newer version or not writable, without a
    change of it. With `rescue`, a damaged directory is opened for reading: see `Scheduler.read_only`.
    """
    settings = settings or EngineSettings()
    clock = clock or SystemClock(settings.trust_clock)
    try:
        return _open(directory, settings, clock, load, rights, ledger, quota, start=start, max_durable=max_durable)
    except DataDamaged as damage:
        if directory is None or not rescue:
            raise
        return _open_damaged(directory, settings, clock, damage)


def _open(
    directory: Path | None,
    settings: EngineSettings,
    clock: Clock,
    load: Loader,
    rights: Rights,
    ledger: Callable[[Journal], Ledger] | None,
    quota: ByteQuota | None,
    *,
    start: bool,
    max_durable: int,
) -> Scheduler:
    journal = Journal.open(
        directory,
        durability=settings.durability,
        flush_interval=settings.flush_interval,
        snapshot_min_bytes=settings.snapshot_min_bytes,
        snapshot_ratio=settings.snapshot_ratio,
    )
    # While another connection reads, closing the journal does not move its log into the file, which may be damaged.
    reader = None if directory is None else sqlite_schema.open_for_reading(directory / sqlite_schema.FILE_NAME)
    try:
        if reader is not None:
            reader.execute("BEGIN")
            reader.execute("SELECT * FROM meta").fetchall()
        made = None if ledger is None else ledger(journal)
        try:
            engine = make_engine(settings, load, quota)
            return Scheduler(
                engine, journal, settings, clock, rights, made, quota, start=start, max_durable=max_durable
            )
        except UNREADABLE as error:
            _log.exception("journal.not_restored")
            journal.refuse(f"its content cannot be restored ({type(error).__name__}: {error})")
    except BaseException:
        journal.close()
        raise
    finally:
        if reader is not None:
            reader.close()


def _open_damaged(directory: Path, settings: EngineSettings, clock: Clock, damage: DataDamaged) -> Scheduler:
    """Serve the readable content of a damaged file, without updates. The file is not written to.

    Raises `DataDirectoryRefused` if even that is not possible.
    """
    lock = DirectoryLock(directory)
    try:
        file = DamagedJournal(directory / sqlite_schema.FILE_NAME)
        engine = make_engine(settings, _no_loader)
        try:
            for entries in file.units():
                engine.restore(entry.changes for entry in entries)
        finally:
            file.close()
        end = (
            f"{file.fault}. Queries see the state after update {file.sequence}" if file.fault else "The graph is whole"
        )
        reason = (
            f"The gateway is in rescue mode and takes no updates or readings. {damage.fault} {end}. Restore a backup "
            "(edge restore), or stop the gateway and continue with the readable part (edge rescue --drop)."
        )
        _log.critical("journal.rescue_mode", extra={"reason": reason, "sequence": file.sequence})
        return Scheduler(engine, Journal.in_memory(lock), settings, clock, read_only=reason)
    except BaseException:
        lock.release()
        raise
