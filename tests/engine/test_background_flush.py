"""With the durability "interval", a slow flush to the disk holds no update up, and counts only when it has ended."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from scheduler_harness import WAIT, Harness, insert

from tests.support.waiting import wait_for


class SlowDisk:
    """Calls of `os.fdatasync`, which wait until the disk is released, and fail as often as the test wants."""

    def __init__(self) -> None:
        self.calls = 0
        self.failures = 0
        self.released = threading.Event()

    def sync(self, _: int) -> None:
        self.calls += 1
        assert self.released.wait(WAIT)
        if self.failures:
            self.failures -= 1
            raise OSError(5, "Input/output error")


@pytest.fixture
def disk(monkeypatch) -> Iterator[SlowDisk]:
    disk = SlowDisk()
    monkeypatch.setattr(os, "fdatasync", disk.sync)
    yield disk
    disk.released.set()


class Entries:
    """A ledger that counts the entries that survive a power cut."""

    graph = "urn:ledger"
    changed = False
    committed = begun = safe = 0

    def begin_flush(self) -> None:
        self.begun = self.committed

    def flushed(self) -> None:
        self.safe = self.begun


def test_updates_run_during_a_flush_that_does_not_include_them(open_harness, disk, tmp_path: Path):
    harness: Harness = open_harness(tmp_path, durability="interval", flush_interval=3600)
    flush = harness.scheduler._writer._flush
    flush._ledger = ledger = Entries()  # type: ignore[assignment]
    ledger.committed = 1
    harness.update(insert(1))
    wait_for(lambda: disk.calls == 1)
    ledger.committed = 2
    harness.update(insert(2))
    assert harness.values() == [1, 2]
    assert ledger.safe == 0
    assert harness.scheduler._journal.unflushed
    disk.released.set()
    wait_for(lambda: ledger.safe == 1)


def test_a_failed_flush_is_reported_once_and_repeated(open_harness, disk, tmp_path: Path, caplog):
    caplog.set_level("INFO")
    disk.released.set()
    disk.failures = 2
    harness: Harness = open_harness(tmp_path, durability="interval", flush_interval=0.01)
    harness.update(insert(1))
    wait_for(lambda: "journal.flush_recovered" in caplog.messages)
    assert caplog.messages.count("journal.flush_failed") == 1
    assert "Check its disk" in next(record.reason for record in caplog.records if record.msg == "journal.flush_failed")
    assert disk.calls == 3
    assert not harness.scheduler._journal.unflushed


def test_the_next_flush_waits_for_the_last_one(open_harness, disk, tmp_path: Path):
    harness: Harness = open_harness(tmp_path, durability="interval", flush_interval=0.01)
    harness.update(insert(1))
    wait_for(lambda: disk.calls == 1)
    harness.update(insert(2))
    wait_for(lambda: harness.scheduler._writer.busy_seconds > 0.02)  # it waits for the disk, and the watchdog sees it
    assert disk.calls == 1
    disk.released.set()
    wait_for(lambda: disk.calls == 2 and not harness.scheduler._journal.unflushed)


def test_in_memory_nothing_is_flushed(open_harness, caplog):
    harness: Harness = open_harness(None, durability="interval", flush_interval=0.01)
    harness.update(insert(1))
    assert not harness.scheduler._journal.unflushed
    assert harness.scheduler.close(WAIT)
    assert [message for message in caplog.messages if "flush" in message] == []


def test_the_end_of_a_flush_whose_result_is_taken_does_not_wait_for_the_next_one(open_harness, disk, tmp_path: Path):
    harness: Harness = open_harness(tmp_path, durability="interval", flush_interval=3600)
    disk.released.set()
    harness.update(insert(1))
    wait_for(lambda: disk.calls == 1 and harness.scheduler._writer._flush._flush is None)
    disk.released.clear()
    flush = harness.scheduler._writer._flush
    harness.scheduler.on_writer(lambda: flush.begin(background=True)).result(WAIT)
    wait_for(lambda: disk.calls == 2)
    flush._put_end(None)  # as of the flush before
    harness.update(insert(2))
    disk.released.set()


@pytest.mark.parametrize("failures", [0, 1])
def test_the_end_waits_for_a_flush_and_repeats_a_failed_one(open_harness, disk, tmp_path: Path, failures):
    harness: Harness = open_harness(tmp_path, durability="interval", flush_interval=3600)
    harness.update(insert(1))
    wait_for(lambda: disk.calls == 1)
    disk.failures = failures
    closing = threading.Thread(target=harness.scheduler.close, args=(WAIT,))
    closing.start()
    wait_for(lambda: not harness.scheduler._queue.open)
    disk.released.set()
    closing.join(WAIT)
    assert disk.calls == 1 + failures
