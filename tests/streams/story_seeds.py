"""Stories of random seeds: each second one makes slides in pieces of one triple, part or report.

`EDGE_STREAM_SEEDS=10000:20000` runs these seeds instead of the first ones.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edge.streams import window_engine
from edge.streams.processor import window_advance

PIECES = (
    (window_engine, "_LARGEST_PIECE"),
    (window_engine, "_PART_STEPS"),
    (window_advance, "_LARGEST_TURN"),
    (window_advance, "_REPORTS"),
)
EACH = 50
"""Seeds of one test."""


def seeds(first: int) -> list[range]:
    """Return the ranges of the seeds. `first`: number of the first ones."""
    begin, end = map(int, os.environ.get("EDGE_STREAM_SEEDS", f"0:{first}").split(":"))
    return [range(each, min(each + EACH, end)) for each in range(begin, end, EACH)]


def check_stories(
    make: Callable[[int, Path], Any], numbers: range, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check the story of each seed. `make`: returns it for a seed, with a directory of its own."""
    for seed in numbers:
        for module, name in PIECES:
            monkeypatch.setattr(module, name, 1 if seed % 2 else 1_000)
        (directory / str(seed)).mkdir()
        story = make(seed, directory / str(seed))
        try:
            story.check()
        except BaseException as error:
            told = "\n".join(story.story)
            error.add_note(f"Seed {seed} (EDGE_STREAM_SEEDS={seed}:{seed + 1}), lateness {story.lateness}: {told}")
            raise
