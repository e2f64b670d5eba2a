"""A network link that can be cut: two network namespaces with a virtual cable between them (Linux, root)."""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest

NEAR: Final = "198.18.0.1"
FAR: Final = "198.18.0.2"
"""Addresses from the block for tests of networks (RFC 2544)."""

_NEW_NETWORK: Final = 0x40000000
"""CLONE_NEWNET of setns(2)."""
_OWN: Final = Path("/proc/thread-self/ns/net")
_HARDWARE: Final = {"near": "02:00:00:00:00:01", "far": "02:00:00:00:00:02"}
_NOBODY: Final = "02:00:00:00:00:ff"

_libc = ctypes.CDLL(None, use_errno=True)


class Cable:
    """The link between the namespace "near", which contains this test and its processes, and the far end.

    A socket, thread or process belongs to the namespace in which it was created, wherever it is used.
    """

    def __init__(self) -> None:
        self._names = {end: f"edge-{os.getpid()}-{end}" for end in ("near", "far")}

    @contextmanager
    def laid(self) -> Iterator[Cable]:
        """Create the link, enter the near end, and remove the link afterwards."""
        if os.geteuid() != 0 or shutil.which("ip") is None:
            pytest.skip("network namespaces need root, and ip of the package iproute2")
        with ExitStack() as stack:
            for name in self._names.values():
                try:
                    _ip("netns", "add", name)
                except subprocess.CalledProcessError as error:
                    pytest.skip(f"network namespaces are not allowed here: {error.stderr.strip()}")
                stack.callback(_ip, "netns", "delete", name)
            near, far = self._names.values()
            _ip("link", "add", "cable", "netns", near, "type", "veth", "peer", "name", "cable", "netns", far)
            for end, address in (("near", NEAR), ("far", FAR)):
                self._at(end, "link", "set", "cable", "address", _HARDWARE[end])
                self._at(end, "address", "add", f"{address}/30", "dev", "cable")
                self._at(end, "link", "set", "lo", "up")
                self._at(end, "link", "set", "cable", "up")
            self.mend()
            stack.enter_context(_inside(near))
            yield self

    @contextmanager
    def far(self) -> Iterator[None]:
        """Create sockets at the far end. Do not await inside: other tasks of the event loop would be there, too."""
        with _inside(self._names["far"]):
            yield

    def connect(self, port: int) -> socket.socket:
        """Open a TCP connection from the far end."""
        with self.far():
            return socket.create_connection((NEAR, port), 20)

    def cut(self) -> None:
        """Cut the link. Packets are lost in both directions without an error, as behind a switch without power."""
        self._send_to(dict.fromkeys(_HARDWARE, _NOBODY))

    def mend(self) -> None:
        """Restore the link."""
        self._send_to({"near": _HARDWARE["far"], "far": _HARDWARE["near"]})

    def _send_to(self, hardware: dict[str, str]) -> None:
        for end, address in (("near", FAR), ("far", NEAR)):
            neighbour = ("neigh", "replace", address, "lladdr", hardware[end], "nud", "permanent", "dev", "cable")
            self._at(end, *neighbour)

    def _at(self, end: str, *command: str) -> None:
        _ip("-n", self._names[end], *command)


@contextmanager
def _inside(name: str) -> Iterator[None]:
    """Move this thread into a namespace."""
    with _OWN.open() as before, Path("/run/netns", name).open() as wanted:
        _enter(wanted.fileno())
        try:
            yield
        finally:
            _enter(before.fileno())


def _enter(namespace: int) -> None:
    if _libc.setns(namespace, _NEW_NETWORK):
        raise OSError(ctypes.get_errno(), "setns")


def _ip(*command: str) -> None:
    subprocess.run(["ip", *command], check=True, capture_output=True, text=True)
