"""All that is wrong with a profile, at once."""

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
    """What a check found."""

    profile: Profile | None
    """None: there are problems."""
    problems: tuple[Problem, ...]
    notes: tuple[Problem, ...]
    """What is accepted but may be meant otherwise: unknown members, for example."""


def check(path: str | PathLike[str]) -> Report:
    """Read and check a profile and what it includes. Raises `OSError` where the file itself cannot be read."""
    findings = Findings()
    profile = profile_of(files.read(Path(path), findings), str(path), findings)
    return Report(None if findings.problems else profile, findings.problems, findings.notes)
