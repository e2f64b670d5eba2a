"""Check of a profile that reports all problems at once."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from edge.jsap import files
from edge.jsap.errors import Problem
from edge.jsap.findings import Findings
from edge.jsap.profile import Profile, profile_of


@dataclass(frozen=True, slots=True)
class Report:
    """Result of a check."""

    profile: Profile | None
    """None if there are problems."""
    problems: tuple[Problem, ...]
    notes: tuple[Problem, ...]
    """Accepted but suspicious items, for example unknown members."""


def check(path: str | PathLike[str]) -> Report:
    """Read and check a profile with its included files. Raises `OSError` if the profile itself cannot be read."""
    findings = Findings()
    profile = profile_of(files.read(Path(path), findings), str(path), findings)
    return Report(None if findings.problems else profile, findings.problems, findings.notes)
