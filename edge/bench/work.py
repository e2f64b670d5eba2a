"""Counts of work for fixed small loads. Unlike times they are almost the same on a busy machine, so CI compares them.

The loads are readings through a gateway behind Mosquitto, one after the other and a hundred at once, and updates of
LAMP in the engine.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Final

from edge.bench.city import SMALL_CITY
from edge.bench.counted_gateway import FILE
from edge.bench.counters import (
    NotCountable,
    bytes_written,
    context_switches,
    function_calls,
    instructions,
    system_calls,
)
from edge.bench.experiment import ExperimentError, ExperimentOptions, ExperimentReport, Figure, steps
from edge.bench.lighting import UPDATES
from edge.bench.peers.gateway_side import GatewaySide, added_temperatures
from edge.bench.peers.load import Publisher
from edge.bench.peers.peer_error import PeerError
from edge.bench.peers.readings import readings
from edge.bench.peers.side import Running, Setting
from edge.bench.primitives import expected_notifications, subscriptions, value_of_run
from edge.bench.readings import mosquitto
from edge.bench.subject import subject

RECORDED: Final = Path(__file__).with_name("work_recorded.json")
"""Recorded counts by machine type and Python version."""
_TOLERANCE: Final = 1.3
"""Greatest ratio of a count to the recorded one."""
_BATCH_TOLERANCE: Final = 2.0
"""The same for batches: how many readings share a commit or a wake-up depends on the other work of the machine."""
_TOGETHER: Final = 100
_NOT_COMPARED: Final = {"batch_switches"}
"""Counts that vary by a factor of 2 without a change."""
_LOADS: Final = {"reading": (300, 1), "batch": (20, _TOGETHER)}
"""Number and size of the batches of each load."""
_WARM_UP: Final = 5
_PATIENCE: Final = 90.0
"""Time limit for the result of a reading (s)."""

_MEANINGS: Final = {
    "reading_switches": "voluntary context switches of the gateway for a reading, one after the other",
    "reading_calls": "system calls for such a reading",
    "reading_instructions": "instructions in user mode for such a reading",
    "reading_bytes": "bytes written for such a reading",
    "reading_functions": "calls of Python functions for such a reading",
    "reading_code": "different Python functions that such a reading calls",
    "batch_switches": f"voluntary context switches for a reading, {_TOGETHER} at once",
    "batch_calls": "system calls for such a reading",
    "batch_instructions": "instructions in user mode for such a reading",
    "batch_bytes": "bytes written for such a reading",
    "lamp_functions": "calls of functions, Python's and built-in ones, for an update of LAMP in the engine",
    "lamp_instructions": "instructions in user mode for such an update",
}


def run(options: ExperimentOptions) -> ExperimentReport:
    """Count, and compare with the recorded counts or record them."""
    found = _Counts()
    for _ in steps(range(options.runs), "work"):
        _count_readings(found)
        _count_functions(found)
        _count_updates(found)
    figures = [Figure(name, meaning, found.values[name]) for name, meaning in _MEANINGS.items() if name in found.values]
    report = ExperimentReport("work", options.mode, {}, figures)
    report.notes = [f"{name} left out: {reason}" for name, reason in found.left_out.items()]
    if options.record:
        medians = {figure.name: statistics.median(figure.values) for figure in figures}
        report.notes.append(record(medians))
    else:
        # The least value of the runs has to meet the recorded median: other work on the machine only adds to a count.
        comparison = compare({figure.name: min(figure.values) for figure in figures}, _read().get(machine()))
        report.notes += comparison.notes
        report.failure = "; ".join(comparison.failures)
    return report


def machine() -> str:
    """Return the key of the recorded counts that apply here."""
    return f"{platform.machine()} Python {sys.version_info.major}.{sys.version_info.minor}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Result of `compare`."""

    failures: list[str]
    notes: list[str]


def compare(counts: dict[str, float], recorded: dict[str, float] | None) -> Comparison:
    """Compare counts with the recorded ones. A count that only one side has is not compared."""
    if recorded is None:
        return Comparison([], [f"There are no recorded counts for {machine()}: add them with --record."])
    failures, notes = [], []
    for name in counts.keys() & recorded.keys():
        now, before = counts[name], recorded[name]
        tolerance = _BATCH_TOLERANCE if name.startswith("batch_") else _TOLERANCE
        if now > tolerance * before:
            failures.append(
                f"{name} is {now:.4g}, recorded is {before:g}. If that is intended, record it with --record"
            )
        elif now * tolerance < before:
            notes.append(f"{name} is {now:.4g}, recorded is {before:g}: record the progress with --record.")
    return Comparison(sorted(failures), sorted(notes))


def _read() -> dict[str, dict[str, float]]:
    if not RECORDED.exists():
        return {}
    recorded: dict[str, dict[str, float]] = json.loads(RECORDED.read_text())
    return recorded


def record(counts: dict[str, float]) -> str:
    """Write the counts of this machine and return a note of that. Raises `ExperimentError`."""
    compared = {name: float(f"{count:.4g}") for name, count in counts.items() if name not in _NOT_COMPARED}
    recorded = {**_read(), machine(): compared}
    try:
        RECORDED.write_text(json.dumps(recorded, indent=2, sort_keys=True) + "\n")
    except OSError as error:
        raise ExperimentError(f"the counts cannot be recorded: {error}") from None
    return f"recorded for {machine()} in {RECORDED}"


@dataclass(slots=True)
class _Counts:
    """Counts for a reading or an update, of each run."""

    values: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    left_out: dict[str, str] = field(default_factory=dict)
    """Reason why a count is missing."""

    def attempt(self, name: str, units: int, count: Callable[[], int]) -> None:
        """Add a count for one of `units`, unless this machine cannot count it."""
        try:
            self.values[name].append(count() / units)
        except NotCountable as error:
            self.values.pop(name, None)
            self.left_out[name] = str(error)


def _count_readings(found: _Counts) -> None:
    with _sending(GatewaySide()) as (sender, pid):
        for name, (batches, together) in _LOADS.items():
            sender.send(_WARM_UP, together)
            _count_load(name, batches * together, partial(sender.send, batches, together), pid, found)


def _count_functions(found: _Counts) -> None:
    """Count in a process of its own, because observed functions take several times as long."""
    batches, _ = _LOADS["reading"]
    with TemporaryDirectory(prefix="edge-bench-") as directory:
        file = Path(directory) / "calls.json"
        with _sending(GatewaySide("edge.bench.counted_gateway", **{FILE: str(file)})) as (sender, pid):
            sender.send(_WARM_UP, 1)
            calls = function_calls(pid, file, partial(sender.send, batches, 1))
    found.attempt("reading_functions", batches, lambda: sum(calls.values()))
    # Functions of housekeeping run now and then, and are not of a reading.
    found.attempt("reading_code", 1, lambda: sum(count >= batches / 2 for count in calls.values()))


@contextmanager
def _sending(side: GatewaySide) -> Iterator[tuple[_Sender, int]]:
    """Start a gateway that knows the observations. Yield a publisher, and the id of the process."""
    # /var/tmp is on a disk even where /tmp is in memory (FHS 3.0, section 5.15); only disks count bytes.
    with TemporaryDirectory(prefix="edge-bench-", dir="/var/tmp") as directory:
        home = Path(directory) / "side"
        home.mkdir()
        with mosquitto(Path(directory), "set_tcp_nodelay true") as port:
            try:
                with side.running(Setting(home, port, 1)) as running:
                    sender = _Sender(running, Publisher(port, 1))
                    sender.send(1, 1_000)  # the first reading of each sensor adds its observation
                    yield sender, running.pid
                    sender.close()
            except PeerError as error:
                raise ExperimentError(str(error)) from None
            except TimeoutError:
                raise ExperimentError(f"a reading had no result within {_PATIENCE:g} s") from None


def _count_load(name: str, readings_sent: int, work: Callable[[], None], pid: int, found: _Counts) -> None:
    """Run the load once for the counts of the kernel, and once for each tool, because a tool adds context switches."""
    switches, written = context_switches(pid), bytes_written(pid)
    work()
    switches, written = context_switches(pid) - switches, bytes_written(pid) - written
    found.attempt(f"{name}_switches", readings_sent, lambda: switches)
    found.attempt(f"{name}_bytes", readings_sent, lambda: _on_disk(written))
    found.attempt(f"{name}_calls", readings_sent, partial(system_calls, pid, work))
    found.attempt(f"{name}_instructions", readings_sent, partial(instructions, pid, work))


def _on_disk(written: int) -> int:
    if not written:
        raise NotCountable("/var/tmp is not on a disk")
    return written


class _Sender:
    """Publisher of readings that waits for their results."""

    def __init__(self, running: Running, publisher: Publisher) -> None:
        self._receiver = running.receiver
        self._receiver.socket.settimeout(_PATIENCE)
        self._publisher = publisher
        self._readings = readings(1)

    def send(self, batches: int, together: int) -> None:
        """Publish batches of `together` readings, each after the results of the previous batch."""
        for _ in range(batches):
            self._publisher.publish(list(islice(self._readings, together)), None, self._receiver)
            arrived = self._arrived()
            while arrived < together:
                self._receiver.read()
                arrived += self._arrived()

    def close(self) -> None:
        """Disconnect."""
        self._publisher.close()

    def _arrived(self) -> int:
        """Return the number of results since the last call."""
        count = sum(len(added_temperatures(message)) for _, message in self._receiver.messages)
        self._receiver.messages.clear()
        return count


def _count_updates(found: _Counts) -> None:
    expected = expected_notifications("lamp", SMALL_CITY)
    with subject(SMALL_CITY.quads(), ExperimentOptions()) as engine:
        engine.subscribe(subscriptions(SMALL_CITY))
        texts = [UPDATES["lamp"](SMALL_CITY, value_of_run(number)) for number in range(3)]

        def work(number: int) -> None:
            engine.round(texts[number])
            engine.check(expected)

        work(0)  # compiles the plans
        count = len(texts[0])
        found.attempt("lamp_functions", count, lambda: _function_calls(partial(work, 1)))
        found.attempt("lamp_instructions", count, lambda: instructions(os.getpid(), partial(work, 2)))


def _function_calls(work: Callable[[], None]) -> int:
    """Return the number of functions that this thread calls during `work`."""
    calls = 0

    def note(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls
