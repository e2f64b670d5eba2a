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

_DO: Final = {
    "crashed": "check the kernel log (`journalctl -k | grep -i -e oom -e segfault`), and the log before the start",
    "power": "check the power supply, and whether a hardware watchdog has reset the host",
    "lost": "the reason names the stalled component; `edge engine` shows the cost of updates",
    "stuck": "the log has the stack (`journalctl -u edge`); please report it",
    "stop_timeout": "a disk or a client was slow; consider a longer shutdown.timeout",
    "start_failed": "the log has the reason; `edge config check` checks the settings",
    "unknown": "the file last-run.json was damaged, maybe by the card",
}


def check(around: DoctorContext) -> Iterator[Finding]:
    """Check the record of the last runs in the data directory."""
    try:
        record = last_run.read(around.data_dir)
    except FileNotFoundError:
        yield unknown("nothing has run here yet")
        return
    except (OSError, ValueError) as error:
        yield unknown(f"{last_run.NAME} cannot be read: {error}")
        return
    # If no gateway runs, the last recorded run has ended. The boot id shows whether the host was restarted since.
    boot = last_run.boot_id(around.root / "proc/sys/kernel/random/boot_id")
    current = () if around.process is not None else (last_run.concluded(record.run, boot),)
    over = (*current, *record.before)
    since = datetime.fromtimestamp(around.now(), UTC) - _RECENT
    recent = [run for run in over if run.reason in _ODD and _time(run.ended or run.started) > since]
    if not recent:
        yield ok(f"{record.starts} start{'' if record.starts == 1 else 's'} so far, none of the last day after a fault")
        return
    last = recent[0]
    detail = f" ({last.detail})" if last.detail else ""
    yield Finding(
        "problem" if len(recent) >= _MANY else "warning",
        f"{len(recent)} run{'' if len(recent) == 1 else 's'} of the last day did not end normally; the last one: "
        f"{last_run.REASONS[last.reason]}{detail}",
        "during a downtime readings are lost, or wait at the broker",
        _DO[last.reason],
    )


def _time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return datetime.fromtimestamp(0, UTC)
