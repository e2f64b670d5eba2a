"""What a check may look at: the settings, files of the machine, commands of the machine, and the gateway's answers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from edge.config import Settings
from edge.engine.journal.data_directory import DATABASE_NAME, LOCK_NAME, holder_of

_PATIENCE: Final = 10.0
"""Seconds that a command of the machine gets."""

Ask = Callable[[str], tuple[int, bytes]]
"""From a path of the gateway to status and body of its answer. Raises `Unasked`."""


class Unasked(Exception):
    """The gateway could not be asked; the text says why."""


@dataclass(frozen=True)
class Context:
    """The machine and the gateway, as they are."""

    settings: Settings
    ask: Ask
    root: Path = Path("/")
    """Where `proc`, `sys` and `run` are."""
    now: Callable[[], float] = time.time
    """Seconds since 1970."""

    @property
    def data_dir(self) -> Path:
        """The data directory."""
        return self.settings.data_dir

    def text(self, *names: str) -> str | None:
        """A file below the root, without white space around it; None: it is not there, or not for us."""
        try:
            return self.root.joinpath(*names).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return None

    def run(self, *command: str) -> str | None:
        """What a command of the machine says, whatever its exit code; None: it is not there, or not done in time."""
        program = shutil.which(command[0])
        if program is None:
            return None
        try:
            done = subprocess.run(  # noqa: S603 - the commands are constants
                [program, *command[1:]],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_PATIENCE,
                check=False,
                env={**os.environ, "LC_ALL": "C", "SYSTEMD_COLORS": "0", "PAGER": "cat"},
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout

    @cached_property
    def process(self) -> int | None:
        """The process that uses the data directory; None: there is none. The lock itself is not touched."""
        locks = self.text("proc", "locks") or ""
        for name in (LOCK_NAME, DATABASE_NAME):  # the second holds where somebody removed the first
            try:
                inode = (self.data_dir / name).stat().st_ino
            except OSError:
                continue
            if (holder := holder_of(inode, locks)) is not None:
                return holder
        return None

    @cached_property
    def shut(self) -> bool:
        """Whether this user may not look into the data directory."""
        try:
            (self.data_dir / LOCK_NAME).stat()
        except PermissionError:
            return True
        except OSError:
            return False
        return False

    @cached_property
    def _health(self) -> tuple[int, dict[str, Any]] | Unasked:
        try:
            status, body = self.ask("health")
            found = json.loads(body)
        except Unasked as error:
            return error
        except ValueError:
            return Unasked("what answers is no gateway")
        return (status, found) if isinstance(found, dict) else Unasked("what answers is no gateway")

    def health(self) -> tuple[int, dict[str, Any]]:
        """Status and answer of `/health`. Raises `Unasked`."""
        if isinstance(self._health, Unasked):
            raise self._health
        return self._health

    def told(self, name: str) -> Any:  # noqa: ANN401 - JSON
        """A member of `/health`; None: not there, or nobody could be asked."""
        try:
            return self.health()[1].get(name)
        except Unasked:
            return None
