"""Gateways and commands that fork from a process which has already imported them: imports are most of a start.

Each runs in a separate process, with the arguments, environment and open files that it would have as a command.
`tests/cli/test_run.py` starts the real command with a new interpreter.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import gc
import importlib
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

_LONGEST = 1 << 17
"""Maximal bytes of a request: the environment is most of it."""
_NETWORK = Path("/proc/thread-self/ns/net")
"""The network namespace, which tests may change (`tests/faults/network_link.py`)."""
_NEW_NETWORK = 0x40000000
"""CLONE_NEWNET of setns(2)."""
_MODULES = {
    "gateway": (
        *("edge.__main__", "edge.adapters.broker_core", "edge.cli.run", "edge.gateway.automation"),
        *("edge.gateway.host", "edge.gateway.mqtt", "edge.gateway.recent", "edge.gateway.rule_documents"),
        *("edge.gateway.serial", "edge.log", "edge.process"),
    ),
    "command": (
        *("edge.__main__", "edge.backup", "edge.client", "edge.cli.backup", "edge.cli.clients", "edge.cli.config"),
        *("edge.cli.doctor", "edge.cli.explain", "edge.cli.mapping", "edge.cli.notifications", "edge.cli.publish"),
        *("edge.cli.rules", "edge.cli.series", "edge.cli.sparql", "edge.cli.subscribe", "edge.cli.timers"),
        *("edge.doctor", "edge.mapping", "edge.mapping_files", "edge.security.security"),
    ),
}
"""What a forking process imports, by its kind."""


class Fork:
    """A forked `edge` process with the interface of `subprocess.Popen`."""

    def __init__(
        self,
        kind: str,
        streams: Sequence[IO[Any]],
        arguments: Sequence[str],
        environment: Mapping[str, str],
        *,
        files: int | None = None,
        directory: str | None = None,
    ):
        """`kind`: of the process that it is forked from. `streams`: for its standard input, output and error.

        `files`: limit of open files. `directory`: working directory. None: unchanged.
        """
        rest = {"files": files, "directory": directory}
        request = json.dumps({"arguments": arguments, "environment": dict(environment), **rest}).encode()
        assert len(request) < _LONGEST
        self._status, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, _NETWORK.open() as network:
            descriptors = [each.fileno() for each in (*streams, theirs, network)]
            socket.send_fds(_server(kind), [request], descriptors)
        self.pid = int(self._status.recv(16))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while it runs."""
        return self._wait(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the process ends; return the exit code. Raises `subprocess.TimeoutExpired`."""
        code = self._wait(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(["edge"], timeout or 0)
        return code

    def _wait(self, seconds: float | None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], seconds)[0]:
            status = self._status.recv(16)
            assert status, "the process that the gateway was forked from has ended"
            self.returncode = os.waitstatus_to_exitcode(int(status))
            self._status.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


class GatewayFork(Fork):
    """A forked gateway."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], output: IO[bytes], files: int | None):
        """`output`: for standard output and error. `files`: limit of open files; None: unchanged."""
        with Path(os.devnull).open("rb") as nothing:
            super().__init__("gateway", (nothing, output, output), arguments, environment, files=files)


@functools.cache
def _server(kind: str) -> socket.socket:
    """Return the connection to the forking process of a kind, which ends with this process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen([sys.executable, __file__, str(theirs.fileno()), kind], pass_fds=[theirs.fileno()])

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


# The rest of the module runs in the forking process.


def serve(channel: socket.socket) -> Callable[[], object] | None:
    """Fork for each request until the connection ends. Returns the request in each child, otherwise None."""
    statuses: dict[int, int] = {}
    """The connection for the report of its end, by child."""
    woken, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes)
    while True:
        ready, _, _ = select.select([channel, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            _report(statuses)
        if channel not in ready:
            continue
        data, descriptors, _, _ = socket.recv_fds(channel, _LONGEST, 5)
        if not data:
            return None
        *streams, status, network = descriptors
        pid = os.fork()
        if not pid:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
            if not os.path.sameopenfile(network, os.open(_NETWORK, os.O_RDONLY)):
                assert not ctypes.CDLL(None).setns(network, _NEW_NETWORK), "the network namespace cannot be entered"
            channel.detach()
            os.closerange(3, max(map(int, os.listdir("/proc/self/fd"))) + 1)  # noqa: PTH208
            return functools.partial(_become, **json.loads(data))
        for each in (*streams, network):
            os.close(each)
        statuses[pid] = status
        os.write(status, str(pid).encode())


def _report(statuses: dict[int, int]) -> None:
    """Report the children that have ended."""
    while statuses:
        pid, code = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        status = statuses.pop(pid)
        with contextlib.suppress(OSError):  # its test may have ended
            os.write(status, str(code).encode())
        os.close(status)


def _become(arguments: list[str], environment: dict[str, str], files: int | None, directory: str | None) -> object:
    """Act like `python -m edge`."""
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    if files is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    if directory is not None:
        os.chdir(directory)
    import edge.__main__

    sys.argv = [edge.__main__.__file__, *arguments]
    gc.enable()
    return edge.__main__.main()


def _prepare(kind: str) -> None:
    """Import what `edge run` or the other commands import."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the gateways and the tests
    sys.path[0] = str(Path.cwd())  # as `python -m` has it
    gc.disable()
    for module in _MODULES[kind]:
        importlib.import_module(module)
    gc.freeze()


if __name__ == "__main__":
    connection = socket.socket(fileno=int(sys.argv[1]))
    _prepare(sys.argv[2])
    become = serve(connection)
    if become is not None:
        become()
