"""Check of the clock and its synchronization."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from edge import last_run
from edge.doctor.context import DoctorContext
from edge.doctor.finding import Finding, ok, unknown
from edge.host_state import clock_synchronized

_EARLIEST: Final = datetime(2025, 1, 1, tzinfo=UTC)
"""Earliest plausible time."""
_SLACK: Final = 60.0
"""Seconds by which a clock may have been set back without being wrong."""

_WHY: Final = "readings get wrong times, tokens and certificates expire wrongly, updates `at` a time run wrongly"
_DO: Final = "check that the host reaches a time server: `timedatectl`, `systemctl status systemd-timesyncd`"


def check(around: DoctorContext) -> Iterator[Finding]:
    """Check the clock against recorded times and the kernel's state."""
    now = datetime.fromtimestamp(around.now(), UTC)
    if now < _EARLIEST:
        yield Finding("problem", f"the clock shows {now.date()}", _WHY, _DO)
        return
    # A clock before the recorded start of the gateway was set back, or lost its time without power.
    try:
        began = datetime.fromisoformat(last_run.read(around.data_dir).run.started)
    except (OSError, ValueError):
        began = None
    if began is not None and (began - now).total_seconds() > _SLACK:
        yield Finding("problem", f"the clock shows {now:%F %R}, and the gateway was started {began:%F %R}", _WHY, _DO)
        return
    kept = clock_synchronized()
    if kept is None:
        yield unknown("the kernel does not report whether the clock is synchronized")
    elif kept:
        yield ok("it is synchronized with a time server")
    else:
        battery = (
            "" if any((around.root / "sys/class/rtc").glob("rtc*")) else ", and the host has no clock with a battery"
        )
        yield Finding("warning", f"it is not synchronized{battery}", f"it drifts some seconds a day: {_WHY}", _DO)
