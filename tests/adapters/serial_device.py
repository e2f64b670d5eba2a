"""A device on a wire, as tests have it: the other end of a real pseudo-terminal, which can be unplugged."""

import os
import select
import tty
from pathlib import Path

from tests.support.waiting import wait_for


class Wire:
    """`path` stays the same however often it is plugged in. A context manager: plugged in, and unplugged at the end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.other = -1

    def __enter__(self) -> "Wire":
        self.plug()
        return self

    def __exit__(self, *_: object) -> None:
        self.unplug()

    def plug(self) -> None:
        self.other, device = os.openpty()
        tty.setraw(device)
        os.set_blocking(self.other, False)
        self.path.unlink(missing_ok=True)
        self.path.symlink_to(os.ttyname(device))
        # With this end closed, the terminal is hung up until somebody opens it; reading it then fails.
        os.close(device)

    def unplug(self) -> None:
        if self.other >= 0:
            self.path.unlink(missing_ok=True)
            os.close(self.other)
            self.other = -1

    def send(self, data: bytes) -> None:
        """Write all of it, as fast as it is taken."""
        while data:
            try:
                data = data[os.write(self.other, data) :]
            except BlockingIOError:
                select.select([], [self.other], [], 1)

    def received(self) -> bytes:
        """What has come until now."""
        found = b""
        while True:
            try:
                found += os.read(self.other, 65_536)
            except OSError:
                return found

    def expect(self, data: bytes) -> None:
        """Wait until just this has come."""
        found = b""

        def come() -> bool:
            nonlocal found
            found += self.received()
            return len(found) >= len(data)

        wait_for(come, what=f"{data!r}, of which {found!r} came")
        assert found == data
