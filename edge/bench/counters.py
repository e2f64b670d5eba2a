"""Counts of work that a process does: system calls, context switches, bytes, instructions."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import psutil

_PATIENCE: Final = 20.0
"""Time limit for a tool to attach to the process, and to end (s)."""


class NotCountable(Exception):
    """This machine does not count that; the message has the reason."""


def context_switches(pid: int) -> int:
    """Return the voluntary context switches of all threads: how often one of them began to wait."""
    found = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        for line in (thread / "status").read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches"):
                found += int(line.split()[1])
    return found


def bytes_written(pid: int) -> int:
    """Return the bytes that the kernel wrote, or will write, to disks for the process."""
    return int(psutil.Process(pid).io_counters().write_bytes)


def system_calls(pid: int, work: Callable[[], None]) -> int:
    """Return the system calls of all threads during `work`. Raises `NotCountable`.

    `futex` does not count: how often two threads wait for a lock depends on the speed of the machine.
    """
    if shutil.which("strace") is None:
        raise NotCountable("strace is not installed (Debian package strace)")
    with TemporaryDirectory(prefix="edge-bench-") as directory:
        output = Path(directory) / "calls"
        command = ["strace", "-f", "-c", "-U", "name,calls", "-o", str(output), "-p", str(pid)]
        with _attached(command, "attached"):
            work()
        calls = dict(line.split() for line in output.read_text().splitlines() if len(line.split()) == 2)
    if "total" not in calls:
        raise NotCountable("strace printed no total")
    return int(calls["total"]) - int(calls.get("futex", 0))


def instructions(pid: int, work: Callable[[], None]) -> int:
    """Return the instructions of all threads in user mode during `work`. Raises `NotCountable`."""
    if shutil.which("perf") is None:
        raise NotCountable("perf is not installed (Debian package linux-perf)")
    event = ["perf", "stat", "-x", ",", "-e", "instructions:u"]
    probe = subprocess.run([*event, "true"], capture_output=True, text=True, check=False)
    if not probe.stderr.split(",")[0].strip().isdecimal():
        raise NotCountable("perf cannot count instructions here (virtual machine, or kernel.perf_event_paranoid)")
    with TemporaryDirectory(prefix="edge-bench-") as directory:
        output = Path(directory) / "instructions"
        with _attached([*event, "-o", str(output), "-p", str(pid)], ""):
            work()
        counts = [line.split(",")[0] for line in output.read_text().splitlines() if "instructions" in line]
    if not counts or not counts[0].isdecimal():
        raise NotCountable("perf printed no count")
    return int(counts[0])


def function_calls(pid: int, file: Path, work: Callable[[], None]) -> Mapping[str, int]:
    """Return the calls of Python functions of a `counted_gateway` during `work`, by function."""
    os.kill(pid, signal.SIGUSR1)
    work()
    os.kill(pid, signal.SIGUSR1)
    deadline = time.monotonic() + _PATIENCE
    while not file.exists():
        if time.monotonic() > deadline:
            raise NotCountable("the gateway wrote no count")
        time.sleep(0.01)
    found: dict[str, int] = json.loads(file.read_text())
    file.unlink()
    return found


@contextmanager
def _attached(command: list[str], announcement: str) -> Iterator[None]:
    """Run a tool that attaches to a process. It announces that on standard error, or needs a moment."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as tool:
        assert tool.stderr is not None
        try:
            if announcement:
                line = tool.stderr.readline().decode(errors="replace")
                if announcement not in line:
                    raise NotCountable(f"{command[0]} cannot attach: {line.strip()}")
            else:
                time.sleep(0.5)
            yield
        finally:
            tool.send_signal(signal.SIGINT)
            try:
                tool.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                tool.kill()
