"""Check of the backlog: updates, history, and disk space for the outbox."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from edge.doctor.context import DoctorContext
from edge.doctor.finding import Finding, Value, ok, problem, unknown, warning

_NEAR: Final = 0.8
"""Share of a limit from which a finding is reported."""
_LONG: Final = 86_400.0
"""Seconds that an observation may wait."""


def check(around: DoctorContext) -> Iterator[Finding]:
    """Check the number of waiting updates and the state of the outbox, as `/health` reports them."""
    pending = around.reported("pending_updates")
    if pending is None:
        yield unknown("backlog.unknown")
        return
    limit = around.settings.engine.max_pending_updates
    if pending >= _NEAR * limit:
        yield problem("backlog.full", count=pending, limit=limit)
    else:
        yield ok("backlog.updates", count=pending)
    outbox = around.reported("outbox")
    if isinstance(outbox, Mapping):
        yield from _outbox(around, outbox)


def _outbox(around: DoctorContext, outbox: Mapping[str, Any]) -> Iterator[Finding]:
    limit = around.settings.outbox.max_bytes
    age = 0.0 if outbox["oldest"] is None else max(0.0, around.now() - outbox["oldest"] / 1e6)
    waits: dict[str, Value] = {"count": outbox["observations"], "megabytes": round(outbox["bytes"] / 1e6, 1)}
    if outbox["dropped"]:
        yield problem("backlog.dropped", count=outbox["dropped"])
    if outbox["state"] == "fails":
        yield warning("backlog.not_shipped", reason=outbox["reason"], **waits)
    elif outbox["bytes"] >= _NEAR * limit:
        yield problem("backlog.outbox_full", limit=round(limit / 1e6), **waits)
    elif age > _LONG:
        yield warning("backlog.old", days=round(age / _LONG, 1), **waits)
    else:
        yield ok("backlog.outbox", **waits)
