"""Free memory returns to the system after the process has grown."""

from __future__ import annotations

import subprocess
import sys

from edge.allocator import Trimming

MIB = 1024 * 1024

FRAGMENTS = """
from edge import allocator
allocator.configure()
if {trims}:
    trimming = allocator.Trimming()
blocks = [bytes(50_000) for _ in range(2_000)]
small = [bytes(1_000) for _ in range(100)]
before = allocator.resident()
last, blocks[:] = blocks[-1], ()
if {trims}:
    assert trimming.is_due()
    trimming.give_back()
    assert not trimming.is_due()
print(before - allocator.resident())
"""


class Process:
    """A process that can release half of its growth."""

    def __init__(self) -> None:
        self.size = self.used = 100 * MIB
        self.trims = 0
        self.trimming = Trimming(lambda: self.size, self._trim)

    def _trim(self) -> None:
        self.trims += 1
        self.size = (self.size + self.used) // 2
        self.used = self.size


def test_a_process_that_does_not_grow_is_left_alone():
    process = Process()
    for change in (5, -5, 7, -20, 7, 2):
        process.size += change * MIB
        assert not process.trimming.is_due()


def test_memory_goes_back_once_for_each_growth():
    process = Process()
    for _ in range(100):
        process.size += MIB
        if process.trimming.is_due():
            process.trimming.give_back()
    assert 4 <= process.trims <= 25


def test_growth_counts_from_the_least():
    process = Process()
    process.size -= 50 * MIB
    assert not process.trimming.is_due()
    process.size += 10 * MIB
    assert process.trimming.is_due()


def test_a_large_process_may_grow_by_more():
    process = Process()
    process.size = 1000 * MIB
    trimming = Trimming(lambda: process.size, process._trim)
    process.size += 100 * MIB
    assert not trimming.is_due()
    process.size += 100 * MIB
    assert trimming.is_due()


def test_memory_before_a_retained_block_is_returned():
    gone = [
        int(
            subprocess.run(
                [sys.executable, "-c", FRAGMENTS.format(trims=trims)], capture_output=True, check=True
            ).stdout
        )
        for trims in (False, True)
    ]
    assert gone[0] < 20 * MIB
    assert gone[1] > 80 * MIB
