"""Check of the clock and its synchronization."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from edge import last_run
from edge.doctor.context import DoctorContext
from edge.doctor.finding import Finding, ok, problem, unknown, warning
from edge.host_state import clock_synchronized

_EARLIEST: Final = datetime(2025, 1, 1, tzinfo=UTC)
"""Earliest plausible time."""
_SLACK: Final = 60.0
"""Seconds by which a clock may have been set back without being wrong."""


def check(around: DoctorContext) -> Iterator[Finding]:
    """Check the clock against recorded times and the kernel's state."""
    now = datetime.fromtimestamp(around.now(), UTC)
    if now < _EARLIEST:
        yield problem("clock.early", date=str(now.date()))
        return
    # A clock before the recorded start of the gateway was set back, or lost its time without power.
    try:
        began = datetime.fromisoformat(last_run.read(around.data_dir).run.started)
    except (OSError, ValueError):
        began = None
    if began is not None and (began - now).total_seconds() > _SLACK:
        yield problem("clock.set_back", date=f"{now:%F %R}", started=f"{began:%F %R}")
        return
    kept = clock_synchronized()
    if kept is None:
        yield unknown("clock.unknown")
    elif kept:
        yield ok("clock.synchronized")
    else:
        battery = any((around.root / "sys/class/rtc").glob("rtc*"))
        yield warning("clock.not_synchronized") if battery else warning("clock.no_battery")
