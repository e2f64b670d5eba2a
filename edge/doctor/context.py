"""Context of the checks: settings, files and commands of the host, and responses of the gateway."""

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

from edge import endpoints
from edge.config import Settings
from edge.engine.journal.data_directory import DATABASE_NAME, LOCK_NAME, holder_of

_PATIENCE: Final = 10.0
"""Timeout of a command in seconds."""

Ask = Callable[[str], tuple[int, bytes]]
"""From a path of the gateway to status and body of its response. Raises `Unasked`."""


class Unasked(Exception):
    """The gateway did not respond; the text is the reason."""


@dataclass(frozen=True)
class DoctorContext:
    """The host and the gateway in their current state."""

    settings: Settings
    ask: Ask
    root: Path = Path("/")
    """Directory with `proc`, `sys` and `run`."""
    now: Callable[[], float] = time.time
    """Seconds since 1970."""

    @property
    def data_dir(self) -> Path:
        """The data directory."""
        return self.settings.data_dir

    def text(self, *names: str) -> str | None:
        """Return the stripped content of a file below the root, or None if it is missing or not readable."""
        try:
            return self.root.joinpath(*names).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return None

    def run(self, *command: str) -> str | None:
        """Return the output of a command, whatever its exit code, or None if it is missing or timed out."""
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
                # Plain English output, which the checks can parse.
                env={**os.environ, "LC_ALL": "C", "SYSTEMD_COLORS": "0", "PAGER": "cat"},
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout

    @cached_property
    def process(self) -> int | None:
        """Process that holds the data directory, or None. The lock itself is not touched."""
        locks = self.text("proc", "locks") or ""
        for name in (LOCK_NAME, DATABASE_NAME):  # the second applies if the first was removed
            try:
                inode = (self.data_dir / name).stat().st_ino
            except OSError:
                continue
            if (holder := holder_of(inode, locks)) is not None:
                return holder
        return None

    @cached_property
    def shut(self) -> bool:
        """Whether this user has no access to the data directory."""
        try:
            (self.data_dir / LOCK_NAME).stat()
        except PermissionError:
            return True
        except OSError:
            return False
        return False

    def endpoint(self, service: str) -> str:
        """Return the URL of a service of the running gateway from the data directory; empty if it is not known."""
        try:
            return endpoints.read(self.data_dir).get(service, "")
        except (OSError, ValueError):
            return ""

    @cached_property
    def _health(self) -> tuple[int, dict[str, Any]] | Unasked:
        try:
            status, body = self.ask("health")
            found = json.loads(body)
        except Unasked as error:
            return error
        except ValueError:
            return Unasked("the response is not that of a gateway")
        return (status, found) if isinstance(found, dict) else Unasked("the response is not that of a gateway")

    def health(self) -> tuple[int, dict[str, Any]]:
        """Return status and response of `/health`. Raises `Unasked`."""
        if isinstance(self._health, Unasked):
            raise self._health
        return self._health

    def reported(self, name: str) -> Any:  # noqa: ANN401 - JSON
        """Return a member of `/health`, or None if it is missing or the gateway did not respond."""
        try:
            return self.health()[1].get(name)
        except Unasked:
            return None
