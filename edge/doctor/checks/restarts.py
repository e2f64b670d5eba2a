"""Check of earlier runs of the gateway and their ends."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

from edge import last_run
from edge.doctor.context import DoctorContext
from edge.doctor.finding import Finding, ok, unknown

_ODD: Final = ("crashed", "power", "lost", "stuck", "stop_timeout", "start_failed", "unknown")
"""Reasons of an end that are not normal. See `edge.last_run.REASONS`."""
_RECENT: Final = timedelta(days=1)
_MANY: Final = 3


def check(around: DoctorContext) -> Iterator[Finding]:
    """Check the record of the last runs in the data directory."""
    try:
        record = last_run.read(around.data_dir)
    except FileNotFoundError:
        yield unknown("restarts.first")
        return
    except (OSError, ValueError) as error:
        yield unknown("restarts.unreadable", file=last_run.NAME, reason=str(error))
        return
    # If no gateway runs, the last recorded run has ended. The boot id shows whether the host was restarted since.
    boot = last_run.boot_id(around.root / "proc/sys/kernel/random/boot_id")
    current = () if around.process is not None else (last_run.concluded(record.run, boot),)
    over = (*current, *record.before)
    since = datetime.fromtimestamp(around.now(), UTC) - _RECENT
    recent = [run for run in over if run.reason in _ODD and _time(run.ended or run.started) > since]
    if not recent:
        yield ok("restarts.none", count=record.starts)
        return
    last = recent[0]
    detail = f" ({last.detail})" if last.detail else ""
    yield Finding(
        "problem" if len(recent) >= _MANY else "warning",
        f"restarts.{last.reason}",
        {"count": len(recent), "detail": detail},
    )


def _time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return datetime.fromtimestamp(0, UTC)
