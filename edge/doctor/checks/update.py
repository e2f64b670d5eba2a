"""Check for a system update that was undone, or is not confirmed yet. Only images have such updates."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from edge.doctor.context import DoctorContext
from edge.doctor.finding import Finding, ok


def check(around: DoctorContext) -> Iterator[Finding]:
    """Check the files that the image writes for an unconfirmed update and for an undone one."""
    kept = around.root / "data/rauc"
    if undone := _version(kept / "undone").partition(" ")[2]:
        yield Finding(
            "warning",
            f"the update to {undone} was undone: its gateway did not become healthy",
            "the host runs the previous system",
            "install a newer one: docs/images.md; its leftover files, if any, are in /data/of-undone-update",
        )
    elif trial := _version(kept / "trial"):
        version = trial.partition(" ")[2]
        yield Finding(
            "warning",
            f"the update to {version} is not confirmed yet",
            "it is undone if its gateway does not become healthy",
            "if the host was not restarted since the installation: `reboot`",
        )
    elif kept.is_dir():
        yield ok("no update was undone, and none waits for its confirmation")


def _version(file: Path) -> str:
    return file.read_text(encoding="utf-8").strip() if file.exists() else ""
