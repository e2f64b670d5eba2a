"""A simulated serial device: the other end of a real pseudo-terminal, which a test can unplug."""

import os
import select
import tty
from pathlib import Path

from tests.support.waiting import wait_for


class Wire:
    """A serial line.

    `path` stays the same over reconnections. The context manager plugs it in, and unplugs it at the end.
    """

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
        # With this end closed, the terminal hangs up until it is opened again; reading it then fails.
        os.close(device)

    def unplug(self) -> None:
        if self.other >= 0:
            self.path.unlink(missing_ok=True)
            os.close(self.other)
            self.other = -1

    def send(self, data: bytes) -> None:
        """Write all data, as fast as the reader accepts it."""
        while data:
            try:
                data = data[os.write(self.other, data) :]
            except BlockingIOError:
                select.select([], [self.other], [], 1)

    def received(self) -> bytes:
        """Return the data received so far."""
        found = b""
        while True:
            try:
                found += os.read(self.other, 65_536)
            except OSError:
                return found

    def expect(self, data: bytes) -> None:
        """Wait until exactly this data has arrived."""
        found = b""

        def come() -> bool:
            nonlocal found
            found += self.received()
            return len(found) >= len(data)

        wait_for(come, what=f"{data!r}, of which {found!r} came")
        assert found == data
