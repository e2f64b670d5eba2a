"""Repair of a damaged journal file: writes the readable data to a new file, which ends rescue mode."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from edge.config import Settings
from edge.engine.journal.journal import Journal
from edge.engine.rescue import UNREADABLE, RescueReport, rebuild
from edge.engine.resume.subscription_table import SubscriptionTable
from edge.engine.settings import EngineSettings
from edge.engine.start import make_engine
from edge.engine.timers.timer_table import TimerTable
from edge.outbox.recorder import Recorder
from edge.outbox.settings import OutboxSettings

__all__ = ["RescueReport", "rescue"]


def rescue(settings: Settings, *, drop: bool, now: datetime | None = None) -> RescueReport:
    """Report the readable data of the journal file; with `drop`, continue with it. Raises `DataDirectoryRefused`.

    The damaged file is renamed, with the time `now` in its name.
    """
    outbox = settings.outbox
    suffix = f"damaged-{(now or datetime.now(UTC)):%Y%m%dT%H%M%SZ}"
    return rebuild(settings.data_dir, lambda directory: _check(directory, outbox), suffix=suffix, drop=drop)


def _check(directory: Path, outbox: OutboxSettings) -> None:
    """Read everything that the gateway reads at its start; no delayed update runs. Raises `DataDirectoryRefused`."""
    journal = Journal.open(directory)
    try:
        make_engine(EngineSettings()).restore(journal.restore())
        timers, subscriptions = TimerTable(journal), SubscriptionTable(journal)
        timers.anchors()
        subscriptions.origin()
        for rows in (timers.waiting(), timers.outcomes(), subscriptions.starts()):
            for _ in rows:
                pass
        Recorder(journal, outbox)
    except UNREADABLE as error:
        journal.refuse(f"its content cannot be restored ({type(error).__name__}: {error})")
    finally:
        journal.close()
