"""What the comparison needs of a side: where it comes from, how it starts, and what its results look like."""

from __future__ import annotations

import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from edge.bench.peers.peer_error import PeerError
from edge.bench.peers.receivers import Receiver

_PATIENCE: Final = 60.0
"""Time limit for the start of a process, and for its stop (s)."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Environment of one measurement."""

    directory: Path
    """New directory for the files of the side."""
    broker: int
    """Port of Mosquitto."""
    qos: int
    """Quality of service of the readings, and of results over MQTT."""


@dataclass(frozen=True, slots=True)
class Running:
    """A side that waits for readings."""

    pid: int
    receiver: Receiver
    version: str


class Side(ABC):
    """One participant."""

    name: str
    """Name on the command line and in the results."""
    results: Literal["WebSocket", "MQTT"]
    """How the side delivers its results."""
    notes: Sequence[str] = ()
    """Lines below the table that the figures of this side need."""

    @abstractmethod
    def missing(self) -> str:
        """Return why this side cannot run on this machine, with the remedy; empty if it can."""

    @abstractmethod
    def install(self) -> None:
        """Install the program into the cache, unless it is there. Raises `PeerError`."""

    @abstractmethod
    def running(self, setting: Setting) -> AbstractContextManager[Running]:
        """Start the side and stop it at the exit. Raises `PeerError` if it does not start."""

    @abstractmethod
    def temperatures(self, message: bytes) -> list[int]:
        """Return the temperatures in a message of the results, in their order."""


@contextmanager
def process(
    command: Sequence[str | Path], directory: Path, environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program in `directory`, with its output in the file `output.log` there, and stop it at the exit."""
    with (directory / "output.log").open("ab") as log:
        running = subprocess.Popen(
            command, cwd=directory, env=dict(environment), stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        yield running
    finally:
        running.terminate()
        try:
            running.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()


def wait_for_port(port: int, running: subprocess.Popen[bytes], directory: Path) -> None:
    """Wait until the process listens. Raises `PeerError` with its last output if it does not."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline and running.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    output = (directory / "output.log").read_text(errors="replace").strip()[-1_000:]
    raise PeerError(f"it does not start:\n{output}")


def free_ports(count: int) -> list[int]:
    """Return ports on loopback that are free now."""
    servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(server.getsockname()[1]) for server in servers]
    for server in servers:
        server.close()
    return ports
