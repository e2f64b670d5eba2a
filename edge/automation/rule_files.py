"""The files of the rules: NAME.toml in one directory, each with one rule."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edge.automation.errors import RuleError
from edge.automation.rule import Rule
from edge.directory_stamps import DirectoryStamps, Stamp

_log = logging.getLogger(__name__)

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
"""Name of a rule: its file without the suffix."""
MOST_BYTES: Final = 64 * 1024
"""Size of the largest rule."""


def is_rule_file(path: Path) -> bool:
    """Return whether the name is that of a rule."""
    return path.suffix == ".toml" and not path.name.startswith(".")


@dataclass(slots=True)
class _File:
    stamp: Stamp
    rule: Rule | None
    """The last valid version."""
    fault: str = ""


class RuleFiles:
    """The rules of a directory. An invalid file keeps its last valid version.

    Not thread-safe, except `rules` and `faults`.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = DirectoryStamps(directory, is_rule_file)
        self._files: dict[Path, _File] = {}

    @property
    def rules(self) -> Sequence[Rule]:
        """The valid rules."""
        return [file.rule for file in list(self._files.values()) if file.rule is not None]

    @property
    def names(self) -> set[str]:
        """Names of all files, also of those that cannot be used."""
        return {path.stem for path in self._files}

    @property
    def disabled(self) -> set[str]:
        """Names of the rules that are switched off."""
        return {rule.name for rule in self.rules if not rule.enabled}

    @property
    def faults(self) -> Mapping[Path, str]:
        """Files that cannot be used, with the reason."""
        faults = {path: file.fault for path, file in list(self._files.items()) if file.fault}
        if self._directory.unreadable is not None:
            faults[self._directory.directory] = self._directory.unreadable
        return faults

    def path(self, name: str) -> Path:
        """Return the file of a rule."""
        return self._directory.directory / f"{name}.toml"

    def read(self) -> bool:
        """Read changed files. Returns whether there were any."""
        was_readable = self._directory.unreadable is None
        found = self._directory.read()
        if found is None:
            if was_readable:
                _log.error("automation.directory_unreadable", extra={"reason": self._directory.unreadable})
            return False
        gone = [path for path in self._files if path not in found]
        for path in gone:
            del self._files[path]
        changed = bool(gone)
        for path, stamp in found.items():
            known = self._files.get(path)
            if known is None or known.stamp != stamp:
                self._files[path] = _load(path, stamp, None if known is None else known.rule)
                changed = True
        return changed


def _load(path: Path, stamp: Stamp, before: Rule | None) -> _File:
    # Imported here: without rules, the gateway saves the memory and start-up time.
    from edge.automation.rule_file import read_rule

    try:
        if NAME.fullmatch(path.stem) is None:
            reason = "The name of a rule has 1 to 64 letters, digits, _ and -, first a letter or digit: rename the file"
        elif stamp[1] > MOST_BYTES:
            reason = f"The file is larger than {MOST_BYTES:,} bytes"
        else:
            return _File(stamp, read_rule(path.read_text(encoding="utf-8-sig"), path.stem))
    except (RuleError, OSError, UnicodeDecodeError) as error:
        reason = str(error)
    _log.error("automation.rule_refused", extra={"file": str(path), "reason": reason})
    return _File(stamp, before, reason)
