"""The last log lines in memory, for operators without a shell."""

from __future__ import annotations

import json
import threading
from collections import deque
from typing import Final

LEVELS: Final = ("debug", "info", "warning", "error")
"""From lowest to highest."""
_BYTES: Final = 256 * 1024
"""Bytes of the lines, of which each takes its length and `_LINE`."""
_LINE: Final = 100
_LONGEST: Final = 8 * 1024
"""Characters from which the texts of a line are shortened; a traceback can be this long."""
_TEXT: Final = 1000
"""Characters of a text that is shortened."""


class LogMemory:
    """The most recent lines within 256 KiB. Thread-safe."""

    def __init__(self) -> None:
        self._lines: deque[tuple[int, str]] = deque()
        self._size = 0
        self._lock = threading.Lock()

    def add(self, level: str, line: str) -> None:
        """Append a line, a JSON object, and remove the oldest ones beyond the limit.

        `level`: one of `LEVELS`, or "critical".
        """
        if len(line) > _LONGEST:
            line = _shortened(line)
        rank = LEVELS.index(level) if level in LEVELS else len(LEVELS)
        with self._lock:
            self._lines.append((rank, line))
            self._size += _LINE + len(line)
            while self._size > _BYTES:
                self._size -= _LINE + len(self._lines.popleft()[1])

    def read(self, level: str, text: str, most: int) -> list[str]:
        """Return the last lines of at least this level that contain `text` in any case, oldest first."""
        least, wanted = LEVELS.index(level), text.casefold()
        with self._lock:
            lines = list(self._lines)
        found = [line for rank, line in lines if rank >= least and (not wanted or wanted in _plain(line))]
        return found[-most:]


def _shortened(line: str) -> str:
    members = json.loads(line).items()
    return json.dumps({name: value[:_TEXT] if isinstance(value, str) else value for name, value in members})


def _plain(line: str) -> str:
    """Return a line as a person reads it."""
    return " ".join(f"{name}={value}" for name, value in json.loads(line).items()).casefold()
