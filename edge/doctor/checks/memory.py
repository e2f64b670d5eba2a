"""Check of free memory, swap space and processes ended for lack of memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from edge.doctor.context import DoctorContext
from edge.doctor.finding import Finding, ok, unknown

_LITTLE: Final = 0.10
"""Share of free memory below which a warning is given."""
_LEAST: Final = 0.05
"""Share of free memory below which it is a problem."""
_SWAPPED: Final = 100 * 1024
"""KiB in swap space from which a warning is given."""

_WHY: Final = "without free memory the kernel ends a process, probably the gateway if it is the largest"
_DO: Final = "find the largest processes (`ps aux --sort=-rss | head`); end one, or use a host with more memory"


def check(around: DoctorContext) -> Iterator[Finding]:
    """Check the kernel's figures of free memory and swap space, and its counter of ended processes."""
    found = {
        name: int(value)
        for name, value in re.findall(r"^(\w+):\s+(\d+) kB$", around.text("proc", "meminfo") or "", re.MULTILINE)
    }
    # MemAvailable includes caches that the kernel can release, unlike MemFree.
    total, free = found.get("MemTotal", 0), found.get("MemAvailable")
    if not total or free is None:
        yield unknown("the kernel does not report it")
        return
    own = re.search(r"^VmRSS:\s+(\d+) kB$", around.text("proc", str(around.process), "status") or "", re.MULTILINE)
    takes = f"; the gateway takes {int(own[1]) / 1000:,.0f} MB" if own else ""
    what = f"{free / 1000:,.0f} MB are free of {total / 1000:,.0f} MB{takes}"
    if free < _LITTLE * total:
        yield Finding("problem" if free < _LEAST * total else "warning", what, _WHY, _DO)
    else:
        yield ok(what)
    # Only swap space on a card gets a warning: swap space in compressed memory (zram) does no harm.
    swapped = found.get("SwapTotal", 0) - found.get("SwapFree", 0)
    if swapped > _SWAPPED and "mmcblk" in (around.text("proc", "swaps") or ""):
        yield Finding(
            "warning",
            f"{swapped / 1000:,.0f} MB are in swap space on the card",
            "this wears out the card, and is slow",
            _DO,
        )
    killed = re.search(r"^oom_kill (\d+)$", around.text("proc", "vmstat") or "", re.MULTILINE)
    if killed and int(killed[1]):
        yield Finding(
            "warning",
            f"the kernel has ended {killed[1]} processes since its start for lack of memory",
            _WHY,
            f"`journalctl -k | grep -i oom` shows which; {_DO}",
        )
