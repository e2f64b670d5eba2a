"""Check of free memory, swap space and processes ended for lack of memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from edge.doctor.context import DoctorContext
from edge.doctor.finding import Finding, State, Value, unknown, warning

_LITTLE: Final = 0.10
"""Share of free memory below which a warning is given."""
_LEAST: Final = 0.05
"""Share of free memory below which it is a problem."""
_SWAPPED: Final = 100 * 1024
"""KiB in swap space from which a warning is given."""


def check(around: DoctorContext) -> Iterator[Finding]:
    """Check the kernel's figures of free memory and swap space, and its counter of ended processes."""
    found = {
        name: int(value)
        for name, value in re.findall(r"^(\w+):\s+(\d+) kB$", around.text("proc", "meminfo") or "", re.MULTILINE)
    }
    # MemAvailable includes caches that the kernel can release, unlike MemFree.
    total, free = found.get("MemTotal", 0), found.get("MemAvailable")
    if not total or free is None:
        yield unknown("memory.unknown")
        return
    own = re.search(r"^VmRSS:\s+(\d+) kB$", around.text("proc", str(around.process), "status") or "", re.MULTILINE)
    values: dict[str, Value] = {"free": round(free / 1000), "total": round(total / 1000)}
    if own:
        values["own"] = round(int(own[1]) / 1000)
    state: State = "problem" if free < _LEAST * total else "warning" if free < _LITTLE * total else "ok"
    yield Finding(state, "memory.free_own" if own else "memory.free", values)
    # Only swap space on a card gets a warning: swap space in compressed memory (zram) does no harm.
    swapped = found.get("SwapTotal", 0) - found.get("SwapFree", 0)
    if swapped > _SWAPPED and "mmcblk" in (around.text("proc", "swaps") or ""):
        yield warning("memory.swap", megabytes=round(swapped / 1000))
    killed = re.search(r"^oom_kill (\d+)$", around.text("proc", "vmstat") or "", re.MULTILINE)
    if killed and int(killed[1]):
        yield warning("memory.killed", count=int(killed[1]))
