"""Check of the recent history: its files, and its state as the gateway reports it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from edge.doctor.context import DoctorContext
from edge.doctor.finding import Finding, Value, ok, problem, warning
from edge.recent.block_file import SUFFIX, BlockFile, DamagedFile
from edge.recent.store import DAMAGED, NAME

_NAMED: Final = 5
"""Damaged files that a finding names."""


def check(around: DoctorContext) -> Iterator[Finding]:
    """Verify the checksums of all finished files, and report why values are not recorded, or were removed."""
    settings = around.settings.recent
    directory = around.data_dir / NAME
    if not settings.enabled:
        yield ok("recent.off")
        return
    files = sorted(directory.glob(f"*{SUFFIX}")) if directory.is_dir() else []
    damaged = [*(path for path in files if _is_damaged(path)), *directory.glob(f"*{DAMAGED}")]
    if damaged:
        names = ", ".join(path.name for path in damaged[:_NAMED])
        values: dict[str, Value] = {"count": len(damaged), "names": names, "directory": str(directory)}
        more = len(damaged) - _NAMED
        yield (
            warning("recent.more_files_damaged", more=more, **values)
            if more > 0
            else warning("recent.files_damaged", **values)
        )
    state = around.reported("recent")
    problems = [*_state(state)] if isinstance(state, Mapping) else []
    yield from problems
    if not (damaged or problems):
        size = sum(path.stat().st_size for path in directory.iterdir()) if directory.is_dir() else 0
        yield ok("recent.bytes", megabytes=round(size / 1e6, 1), limit=round(settings.max_bytes / 1e6))


def _state(state: Mapping[str, object]) -> Iterator[Finding]:
    if state["state"] == "fails":
        yield problem("recent.not_written", reason=str(state["reason"]))
    for name, code in (("damaged", "recent.parts_damaged"), ("removed", "recent.removed")):
        if isinstance(count := state[name], int) and count:
            yield Finding("warning", code, {"count": count})


def _is_damaged(path: Path) -> bool:
    try:
        with BlockFile(path) as file:
            file.verify()
    except FileNotFoundError:
        return False  # the gateway removed it in the meantime
    except (DamagedFile, OSError):
        return True
    return False
