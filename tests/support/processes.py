"""Real processes for tests: Mosquitto, and the gateway as a user starts it. The caller of a start stops the process."""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, TypeVar

import pytest

from tests.support.gateway_forks import GatewayFork
from tests.support.waiting import wait_for

T = TypeVar("T")

HANGING_ENGINE = Path(__file__).parent / "hanging_engine"
"""For `PYTHONPATH` of a process whose updates wait as long as the file named by `HANGING` exists."""
HANGING_PARSER = Path(__file__).parent / "hanging_parser"
"""The same for the parsing of long updates; the file named by `PARSING` exists from its start."""

_BLOCK = 500


def _ports() -> Iterator[int]:
    """Yield ports from blocks used by no worker of this run and no other run on this machine."""
    directory = Path(tempfile.gettempdir()) / f"sepa-edge-ports-{os.getuid()}"
    directory.mkdir(exist_ok=True)
    for first in range(20_000, 32_500, _BLOCK):
        with (directory / str(first)).open("w") as lock, suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield from range(first, first + _BLOCK)


_PORTS = _ports()


def free_port() -> int:
    """Return a port that stays free while its server is down. Outgoing connections use numbers from 32768 on."""
    for port in _PORTS:
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    pytest.fail("there is no free port left")


class Mosquitto:
    """A Mosquitto process with persistence, on a port that stays the same over restarts."""

    def __init__(self, directory: Path, extra: str = "", *, anonymous: bool = True) -> None:
        self.program = shutil.which("mosquitto", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
        if self.program is None:
            pytest.skip("no mosquitto here; install the package mosquitto")
        directory.mkdir()
        self.port = free_port()
        self.config = directory / "mosquitto.conf"
        lines = [
            f"listener {self.port} 127.0.0.1",
            f"allow_anonymous {str(anonymous).lower()}",
            # As root it would switch to another user, who cannot access the files of tests.
            f"user {pwd.getpwuid(os.getuid()).pw_name}",
            "persistence true",
            f"persistence_location {directory}/",
            "max_queued_messages 0",
            extra,
        ]
        self.config.write_text("\n".join(lines) + "\n")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.process = subprocess.Popen(
            [self.program, "-c", self.config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_for(self._answers, what="mosquitto answers")

    def stop(self, *, kill: bool = False) -> None:
        if self.process is not None:
            if kill:
                self.process.kill()
            else:
                self.process.terminate()
            self.process.wait(10)
            self.process = None

    def save(self) -> None:
        """Let it save its state to the disk, from which it continues after a kill."""
        assert self.process is not None
        file = self.config.with_name("mosquitto.db")
        before = file.stat().st_ino if file.exists() else None
        self.process.send_signal(signal.SIGUSR1)
        wait_for(lambda: file.exists() and file.stat().st_ino != before, what="mosquitto saves its state")

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, "mosquitto ended"
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    @property
    def url(self) -> str:
        return f"mqtt://127.0.0.1:{self.port}"


class GatewayProcess:
    """`edge run` as a process, with settings from the environment."""

    def __init__(self, data_dir: Path, settings: Mapping[str, str], descriptors: int | None = None) -> None:
        """`descriptors`: limit of open files (`ulimit -n`)."""
        self.data_dir = data_dir
        self._descriptors = descriptors
        self._forked = all(name.startswith("EDGE") for name in settings)
        """Other variables may be for the interpreter or the loader, which read them at the start."""
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("EDGE__")},
            "EDGE__HTTP__PORT": "0",
            "EDGE__WS__PORT": "0",
            "EDGE__MQTT__PORT": "0",
            "EDGE__SECURITY__MQTTS_PORT": "0",
            **settings,
        }
        self._log = data_dir / "gateway.log"
        self._process: subprocess.Popen[bytes] | GatewayFork | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> dict[str, str]:
        """Start the gateway; return its endpoints when it is ready."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        endpoints = self.data_dir / "endpoints.json"
        endpoints.unlink(missing_ok=True)
        with self._log.open("ab") as log:
            self._process = self._begin(log)
        wait_for(lambda: endpoints.exists() or self._process.poll() is not None, what="the gateway")
        if not endpoints.exists():
            pytest.fail(f"the gateway did not start:\n{self.log()}")
        found: dict[str, str] = json.loads(endpoints.read_text())
        return found

    def _begin(self, log: IO[bytes]) -> subprocess.Popen[bytes] | GatewayFork:
        arguments = ["run", "--data-dir", str(self.data_dir)]
        if self._forked:
            return GatewayFork(arguments, self.environment, log, self._descriptors)
        limits = [] if self._descriptors is None else ["prlimit", f"--nofile={self._descriptors}:{self._descriptors}"]
        return subprocess.Popen(
            [*limits, sys.executable, "-m", "edge", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=self.environment,
        )

    def kill(self) -> None:
        """Send SIGKILL, which for a process is like a power cut."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(10)
        self._process = None

    def wait(self, seconds: float) -> int:
        """Wait until it has ended by itself; return the exit code."""
        assert self._process is not None
        code = self._process.wait(seconds)
        self._process = None
        return code

    def stop(self) -> int:
        """Send SIGTERM; return the exit code."""
        if self._process is None:
            return 0
        self._process.terminate()
        code = self._process.wait(15)
        self._process = None
        return code

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def new_log(self, known: int) -> bytes:
        """Return the complete lines of the log after its first `known` bytes."""
        with self._log.open("rb") as log:
            log.seek(known)
            lines, end, _ = log.read().rpartition(b"\n")
        return lines + end
