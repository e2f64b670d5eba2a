"""Environment for the doctor: a machine of files, and a gateway with scripted answers."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from edge.config import Settings
from edge.doctor import DoctorContext, Unasked

NOW = 1_790_000_000.0
"""A time in 2026."""


class Machine:
    """A machine whose `/proc`, `/sys` and `/run` are files of the test."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "root"
        self.data = directory / "data"
        self.data.mkdir(mode=0o700)
        self.health: tuple[int, dict[str, Any]] | None = None
        self.now = NOW

    def put(self, name: str, text: str) -> None:
        file = self.root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def disk(self, name: str, **attributes: str) -> None:
        """Add a card of this name, with a partition for the data directory."""
        device = self.data.stat().st_dev
        card = self.root / "sys/devices/mmc0" / name
        (card / f"{name}p2").mkdir(parents=True)
        (card / f"{name}p2" / "partition").write_text("2\n")
        for attribute, text in attributes.items():
            file = card / attribute.replace("__", "/")
            file.parent.mkdir(exist_ok=True)
            file.write_text(text + "\n")
        (self.root / "sys/dev/block").mkdir(parents=True)
        (self.root / f"sys/dev/block/{os.major(device)}:{os.minor(device)}").symlink_to(card / f"{name}p2")

    def runs(self, pid: int = 4711) -> None:
        """Let a gateway use the data directory."""
        lock = self.data / "lock"
        lock.write_text(f"{pid}\n")
        others = "1: POSIX  ADVISORY  READ 1 08:02:1 0 EOF\n"
        self.put("proc/locks", f"{others}2: FLOCK  ADVISORY  WRITE {pid} 08:02:{lock.stat().st_ino} 0 EOF\n")

    def around(self, **settings: Any) -> DoctorContext:
        return DoctorContext(
            Settings.model_validate({"data_dir": self.data, **settings}), self._ask, self.root, lambda: self.now
        )

    def _ask(self, path: str) -> tuple[int, bytes]:
        if self.health is None:
            raise Unasked("no answer within 5 s")
        status, body = self.health
        return status, json.dumps(body).encode()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)
