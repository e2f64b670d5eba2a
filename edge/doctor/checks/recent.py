"""Check of the recent history: its files, and its state as the gateway reports it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from edge.doctor.context import DoctorContext
from edge.doctor.finding import Finding, ok
from edge.recent.block_file import SUFFIX, BlockFile, DamagedFile
from edge.recent.store import DAMAGED, NAME

_NAMED: Final = 5
"""Damaged files that a finding names."""


def check(around: DoctorContext) -> Iterator[Finding]:
    """Verify the checksums of all finished files, and report why values are not recorded, or were removed."""
    settings = around.settings.recent
    directory = around.data_dir / NAME
    if not settings.enabled:
        yield ok("no recent values are kept: recent.enabled is false")
        return
    files = sorted(directory.glob(f"*{SUFFIX}")) if directory.is_dir() else []
    damaged = [*(path for path in files if _is_damaged(path)), *directory.glob(f"*{DAMAGED}")]
    if damaged:
        names = ", ".join(path.name for path in damaged[:_NAMED])
        more = f" and {len(damaged) - _NAMED} more" if len(damaged) > _NAMED else ""
        yield Finding(
            "warning",
            f"{len(damaged)} files of recent values are damaged: {names}{more}",
            "charts have a gap there; all other values are complete",
            f"edge restore of a backup, or delete them: they are in {directory}",
        )
    state = around.reported("recent")
    problems = [*_state(state)] if isinstance(state, Mapping) else []
    yield from problems
    if not (damaged or problems):
        size = sum(path.stat().st_size for path in directory.iterdir()) if directory.is_dir() else 0
        yield ok(f"recent values take {size / 1e6:,.1f} MB, of at most {settings.max_bytes / 1e6:,.0f} MB")


def _state(state: Mapping[str, object]) -> Iterator[Finding]:
    if state["state"] == "fails":
        yield Finding(
            "problem",
            f"recent values are not written: {state['reason']}",
            "they wait in memory, and the oldest are dropped when it is full",
            "free space on the disk, or make DATA_DIR/recent a writable directory; the gateway tries again by itself",
        )
    if state["damaged"]:
        yield Finding(
            "warning",
            f"{state['damaged']} damaged parts of recent values were found since the start",
            "charts have a gap there; all other values are complete",
            "the log names the files (recent.file_damaged); if it happens again, check the card",
        )
    if state["removed"]:
        yield Finding(
            "warning",
            f"{state['removed']} files of recent values were removed before their time since the start",
            "they took more than recent.max_bytes, so charts begin later",
            "a larger recent.max_bytes, or shorter recent.raw_hours and recent.minutes_days",
        )


def _is_damaged(path: Path) -> bool:
    try:
        with BlockFile(path) as file:
            file.verify()
    except FileNotFoundError:
        return False  # the gateway removed it in the meantime
    except (DamagedFile, OSError):
        return True
    return False
