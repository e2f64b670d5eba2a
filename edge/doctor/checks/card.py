"""Check of the wear of the card or disk, and of the data written to it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from edge.doctor.checks.disk import existing
from edge.doctor.context import DoctorContext
from edge.doctor.finding import Finding, ok, unknown

_SECTOR: Final = 512
"""Bytes in /sys/block/*/stat, whatever the disk's own sector size is."""
_WORN: Final = 0x0A
"""JEDEC eMMC, DEVICE_LIFE_TIME_EST: 90 to 100 % of the lifetime are used; each step is 10 %."""
_WEARING: Final = 0x08
"""The same for 70 to 80 %, from which a warning is given."""
_PRE_EOL: Final = {2: "80 % of its reserve blocks are used", 3: "90 % of its reserve blocks are used"}
_MUCH: Final = 10e9
"""Bytes a day that shorten the lifetime of a card."""
_DAY: Final = 86_400
_HOUR: Final = 3_600.0

_WHY: Final = "a worn card becomes read-only or loses data; store backups elsewhere"
_DO: Final = "make a backup (`edge backup`), and replace the card; see docs/operations.md for durable ones"


def check(around: DoctorContext) -> Iterator[Finding]:
    """Check by the kernel's block devices. Only eMMC reports its wear; an SD card does not."""
    disk = _disk(around)
    if disk is None:
        yield unknown("the kernel has no data about the disk of the data directory")
        return
    # eMMC reports two estimates, for its memory of type A and of type B. The larger one counts.
    worn = [int(value, 16) for value in (_text(disk / "device/life_time") or "").split()]
    reserve = int(_text(disk / "device/pre_eol_info") or "0", 16)
    if worn and max(worn) >= _WEARING:
        used = f"{(max(worn) - 1) * 10} to {max(worn) * 10} % of its lifetime are used"
        what = f"{disk.name}: {used if max(worn) <= _WORN else 'all of its lifetime is used'}"
        yield Finding("problem" if max(worn) >= _WORN else "warning", what, _WHY, _DO)
    elif worn:
        yield ok(f"{disk.name}: at most {max(worn) * 10} % of its lifetime are used")
    if reserve in _PRE_EOL:
        yield Finding("problem" if reserve > 2 else "warning", f"{disk.name}: {_PRE_EOL[reserve]}", _WHY, _DO)
    yield from _written(around, disk, said=bool(worn))


def _written(around: DoctorContext, disk: Path, *, said: bool) -> Iterator[Finding]:
    # The seventh field is the number of written sectors since the start of the kernel (Documentation/block/stat.rst).
    fields = (_text(disk / "stat") or "").split()
    seconds = float((around.text("proc", "uptime") or "0").split()[0])
    if len(fields) < 7 or seconds < _HOUR:
        if not said:
            yield unknown(
                f"{disk.name} does not report its wear, and the uptime of the host is too short for an estimate"
            )
        return
    written = int(fields[6]) * _SECTOR
    a_day = written / seconds * _DAY
    own = _own(around)
    share = "" if own is None else f"; the gateway itself has written {own / 1e6:,.0f} MB of {written / 1e6:,.0f} MB"
    what = f"{disk.name}: {a_day / 1e9:.2f} GB a day are written{share}"
    if disk.name.startswith("mmcblk") and a_day > _MUCH:
        yield Finding(
            "warning",
            what,
            "a card is worn out after some 10 to 100 TB",
            "find the writer (`iotop -ao`): logs, swap; for the gateway, `edge bench wear` and docs/operations.md",
        )
    else:
        yield ok(what)


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
