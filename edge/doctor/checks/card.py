"""Check of the wear of the card or disk, and of the data written to it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from edge.doctor.checks.disk import existing
from edge.doctor.context import DoctorContext
from edge.doctor.finding import Finding, State, Value, problem, unknown

_SECTOR: Final = 512
"""Bytes in /sys/block/*/stat, whatever the disk's own sector size is."""
_WORN: Final = 0x0A
"""JEDEC eMMC, DEVICE_LIFE_TIME_EST: 90 to 100 % of the lifetime are used; each step is 10 %."""
_WEARING: Final = 0x08
"""The same for 70 to 80 %, from which a warning is given."""
_PRE_EOL: Final = {2: 80, 3: 90}
"""Share of the used reserve blocks in percent, by PRE_EOL_INFO."""
_MUCH: Final = 10e9
"""Bytes a day that shorten the lifetime of a card."""
_DAY: Final = 86_400
_HOUR: Final = 3_600.0


def check(around: DoctorContext) -> Iterator[Finding]:
    """Check by the kernel's block devices. Only eMMC reports its wear; an SD card does not."""
    disk = _disk(around)
    if disk is None:
        yield unknown("card.unknown")
        return
    # eMMC reports two estimates, for its memory of type A and of type B. The larger one counts.
    worn = [int(value, 16) for value in (_text(disk / "device/life_time") or "").split()]
    reserve = int(_text(disk / "device/pre_eol_info") or "0", 16)
    if worn and max(worn) > _WORN:
        yield problem("card.used_up", disk=disk.name)
    elif worn:
        state: State = "problem" if max(worn) >= _WORN else "warning" if max(worn) >= _WEARING else "ok"
        yield Finding(state, "card.used", {"disk": disk.name, "percent": max(worn) * 10})
    if reserve in _PRE_EOL:
        state = "problem" if reserve > 2 else "warning"
        yield Finding(state, "card.reserve", {"disk": disk.name, "percent": _PRE_EOL[reserve]})
    yield from _written(around, disk, said=bool(worn))


def _written(around: DoctorContext, disk: Path, *, said: bool) -> Iterator[Finding]:
    # The seventh field is the number of written sectors since the start of the kernel (Documentation/block/stat.rst).
    fields = (_text(disk / "stat") or "").split()
    seconds = float((around.text("proc", "uptime") or "0").split()[0])
    if len(fields) < 7 or seconds < _HOUR:
        if not said:
            yield unknown("card.no_estimate", disk=disk.name)
        return
    written = int(fields[6]) * _SECTOR
    a_day = written / seconds * _DAY
    own = _own(around)
    values: dict[str, Value] = {"disk": disk.name, "gigabytes": round(a_day / 1e9, 2)}
    if own is not None:
        values |= {"own": round(own / 1e6), "written": round(written / 1e6)}
    much = disk.name.startswith("mmcblk") and a_day > _MUCH
    yield Finding("warning" if much else "ok", "card.written" if own is None else "card.written_own", values)


def _own(around: DoctorContext) -> int | None:
    """Return the bytes written by the gateway's process since its start, or None if not known."""
    for line in (around.text("proc", str(around.process), "io") or "").splitlines():
        name, _, value = line.partition(": ")
        if name == "write_bytes":
            return int(value)
    return None


def _disk(around: DoctorContext) -> Path | None:
    """Return the directory in /sys of the whole disk with the data directory."""
    device = existing(around.data_dir).stat().st_dev
    link = around.root / "sys/dev/block" / f"{os.major(device)}:{os.minor(device)}"
    if not link.exists():
        return None
    # The wear and the statistics of a partition are those of its disk, the parent directory in /sys.
    block = link.resolve()
    return block.parent if (block / "partition").exists() else block


def _text(file: Path) -> str | None:
    try:
        return file.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None
