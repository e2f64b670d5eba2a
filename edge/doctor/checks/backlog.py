"""Does the gateway keep up: with updates, with its history, and with the disk's room for it?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from edge.doctor.context import Context
from edge.doctor.finding import Finding, ok, unknown

_NEAR: Final = 0.8
_LONG: Final = 86_400.0
"""Seconds that an observation may wait."""


def check(around: Context) -> Iterator[Finding]:
    """Told by `/health`."""
    pending = around.told("pending_updates")
    if pending is None:
        yield unknown("what waits could not be asked")
        return
    limit = around.settings.engine.max_pending_updates
    if pending >= _NEAR * limit:
        yield Finding(
            "problem",
            f"{pending:,} updates wait, of at most {limit:,}",
            "with more, publishers are refused",
            "`edge engine` tells what updates cost, `edge explain` what a subscription does; or send less",
        )
    else:
        yield ok(f"{pending:,} updates wait")
    outbox = around.told("outbox")
    if isinstance(outbox, Mapping):
        yield from _outbox(around, outbox)


def _outbox(around: Context, outbox: Mapping[str, Any]) -> Iterator[Finding]:
    limit = around.settings.outbox.max_bytes
    age = 0.0 if outbox["oldest"] is None else max(0.0, around.now() - outbox["oldest"] / 1e6)
    what = f"{outbox['observations']:,} observations ({outbox['bytes'] / 1e6:,.1f} MB) wait for the history"
    advice = "`edge outbox status` says what stands still; docs/offload.md says what to do"
    if outbox["dropped"]:
        yield Finding(
            "problem", f"{outbox['dropped']:,} observations are lost to the history", "its outbox was full", advice
        )
    if outbox["state"] == "fails":
        yield Finding(
            "warning", f"nothing is shipped: {outbox['reason']}", f"{what}; when the outbox is full they go", advice
        )
    elif outbox["bytes"] >= _NEAR * limit:
        yield Finding(
            "problem", f"{what}, of at most {limit / 1e6:,.0f} MB", "then the oldest go, or updates fail", advice
        )
    elif age > _LONG:
        yield Finding(
            "warning", f"{what}, the oldest for {age / _LONG:.1f} days", "the history does not have them yet", advice
        )
    else:
        yield ok(what)
