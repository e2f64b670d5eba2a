"""Was the last update of the system undone, or is one on trial? Only images have such updates."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from edge.doctor.context import Context
from edge.doctor.finding import Finding, ok


def check(around: Context) -> Iterator[Finding]:
    """Told by the files that the image keeps of it."""
    kept = around.root / "data/rauc"
    if undone := _version(kept / "undone").partition(" ")[2]:
        yield Finding(
            "warning",
            f"the update to {undone} was undone: its gateway did not reach health",
            "the box runs the system before it",
            "install a newer one: docs/images.md; what it left behind, if anything, is in /data/of-undone-update",
        )
    elif trial := _version(kept / "trial"):
        version = trial.partition(" ")[2]
        yield Finding(
            "warning",
            f"the update to {version} is on trial",
            "it is undone if its gateway does not reach health",
            "if the box was not started since it was installed, do that: `reboot`",
        )
    elif kept.is_dir():
        yield ok("no update was undone, and none is on trial")


def _version(file: Path) -> str:
    return file.read_text(encoding="utf-8").strip() if file.exists() else ""
