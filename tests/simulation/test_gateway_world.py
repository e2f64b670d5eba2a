"""Thousands of stories of a gateway, each determined by its seed: see `gateway_world`.

`EDGE_SIMULATION_SEEDS=10000:1000000` runs these seeds instead of the first 2,000. The error shows a failing seed, and
its story.
"""

import logging
import os
import tempfile
from pathlib import Path

import pytest
from gateway_world import World
from large_changes import small_pieces
from simulated_disk import DISK

FIRST, LAST = map(int, os.environ.get("EDGE_SIMULATION_SEEDS", "0:2000").split(":"))
BLOCK = 250
"""Seeds of one test: the process-wide disk is mounted once for all of them."""
STEPS = 30


@pytest.fixture
def memory():
    """Use a directory in memory: the disk is simulated, so the real one need not be slow."""
    logging.disable(logging.CRITICAL)  # thousands of disks fail on purpose
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        yield Path(name)
    logging.disable(logging.NOTSET)


def tell(seed, directory):
    """Run one seed; return its story. Raises errors with the seed and its story."""
    directory.mkdir()
    with DISK.mounted():
        world = World(seed, directory)
        with world.readings.mounted(), small_pieces():
            try:
                world.run(STEPS)
            except BaseException as error:
                error.add_note(f"Seed {seed} (EDGE_SIMULATION_SEEDS={seed}:{seed + 1}): {', '.join(world.story)}")
                raise
            finally:
                world.close()
    return world.story, world.sent_to_history, world.clock.up


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "first",
    [
        pytest.param(first, marks=pytest.mark.xdist_group(f"stories-{first // BLOCK % 4}"))
        for first in range(FIRST, LAST, BLOCK)
    ],
)
def test_every_story_keeps_the_promises(first, memory):
    for seed in range(first, min(first + BLOCK, LAST)):
        tell(seed, memory / str(seed))


def test_a_seed_reproduces_its_story(memory):
    assert tell(1, memory / "first") == tell(1, memory / "second")
