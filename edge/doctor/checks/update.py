"""Check for a system update that was undone, or is not confirmed yet. Only images have such updates."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from edge.doctor.context import DoctorContext
from edge.doctor.finding import Finding, ok, warning


def check(around: DoctorContext) -> Iterator[Finding]:
    """Check the files that the image writes for an unconfirmed update and for an undone one."""
    kept = around.root / "data/rauc"
    if undone := _version(kept / "undone").partition(" ")[2]:
        yield warning("update.undone", version=undone)
    elif trial := _version(kept / "trial"):
        yield warning("update.trial", version=trial.partition(" ")[2])
    elif kept.is_dir():
        yield ok("update.none")


def _version(file: Path) -> str:
    return file.read_text(encoding="utf-8").strip() if file.exists() else ""
