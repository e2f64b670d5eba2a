"""Check of the backlog: updates, history, and disk space for the outbox."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from edge.doctor.context import DoctorContext
from edge.doctor.finding import Finding, ok, unknown

_NEAR: Final = 0.8
"""Share of a limit from which a finding is reported."""
_LONG: Final = 86_400.0
"""Seconds that an observation may wait."""


def check(around: DoctorContext) -> Iterator[Finding]:
    """Check the number of waiting updates and the state of the outbox, as `/health` reports them."""
    pending = around.reported("pending_updates")
    if pending is None:
        yield unknown("the backlog is not known")
        return
    limit = around.settings.engine.max_pending_updates
    if pending >= _NEAR * limit:
        yield Finding(
            "problem",
            f"{pending:,} updates wait, of at most {limit:,}",
            "beyond the limit, updates are refused",
            "`edge engine` shows the cost of updates, `edge explain` that of a subscription; or send less",
        )
    else:
        yield ok(f"{pending:,} updates wait")
    outbox = around.reported("outbox")
    if isinstance(outbox, Mapping):
        yield from _outbox(around, outbox)


def _outbox(around: DoctorContext, outbox: Mapping[str, Any]) -> Iterator[Finding]:
    limit = around.settings.outbox.max_bytes
    age = 0.0 if outbox["oldest"] is None else max(0.0, around.now() - outbox["oldest"] / 1e6)
    what = f"{outbox['observations']:,} observations ({outbox['bytes'] / 1e6:,.1f} MB) wait for the history"
    advice = "`edge outbox status` shows the reason; see docs/offload.md"
    if outbox["dropped"]:
        yield Finding(
            "problem", f"{outbox['dropped']:,} observations are lost to the history", "its outbox was full", advice
        )
    if outbox["state"] == "fails":
        yield Finding(
            "warning",
            f"nothing is shipped: {outbox['reason']}",
            f"{what}; when the outbox is full they are dropped",
            advice,
        )
    elif outbox["bytes"] >= _NEAR * limit:
        yield Finding(
            "problem",
            f"{what}, of at most {limit / 1e6:,.0f} MB",
            "beyond it the oldest are dropped, or updates fail",
            advice,
        )
    elif age > _LONG:
        yield Finding(
            "warning", f"{what}, the oldest for {age / _LONG:.1f} days", "the history does not have them yet", advice
        )
    else:
        yield ok(what)
