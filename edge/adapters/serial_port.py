"""One serial port: a thread that reads its frames and writes its commands, for as long as the device is there."""

from __future__ import annotations

import logging
import os
import select
import termios
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from serial import Serial

from edge.adapters.serial_commands import Commands
from edge.adapters.serial_device import open_device, overruns
from edge.adapters.serial_frames import Frames, Tally, frames
from edge.adapters.settings import SerialSettings
from edge.mapping.actuators import Command
from edge.mapping.serial_ports import SerialPort

_log = logging.getLogger(__name__)

_CHUNK: Final = 65_536
_TICK: Final = 0.02
"""Seconds for which bytes are gathered where they come all the time: a turn for each would cost more than they do."""
_AT_ONCE: Final = 8
"""So often bytes are read as soon as they come; a frame that comes in a few pieces need not wait."""
_FULL: Final = 4096
"""What Linux keeps of a line (N_TTY_BUF_SIZE): with so much there is no time to gather more."""
_SHARE: Final = 3
"""So many times as long as bytes took it is not read on: no stream of bytes takes more than a quarter of a core."""
_ROOM: Final = 0.05
"""Seconds between two looks for room in a full queue."""
_REPORT: Final = 1.0
"""Seconds between two entries of bad frames in the list of bad values."""


class Port:
    """A port of the mapping files. A device that is away is looked for again, for ever.

    What it is told to send waits, the newest of each topic, and goes in order and at its pace.
    """

    def __init__(
        self,
        port: SerialPort,
        settings: SerialSettings,
        *,
        take: Callable[[SerialPort, list[bytes]], list[bytes]],
        refuse: Callable[[str, str, str, bytes, int], None],
        up: Callable[[SerialPort, Callable[[], None]], None],
    ) -> None:
        """`take` is given payloads and returns those that there is no room for, to be offered again.

        `refuse` is told of what is bad: topic, source, reason, excerpt, and how many times. `up`: the device is there;
        what it is given is to be called when all is put that the device has to be told.
        """
        self.port = port
        self._settings = settings
        self._take = take
        self._refuse = refuse
        self._up = up
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._closed = False
        self._device: Serial | None = None
        self._waiting: list[bytes] = []
        self._told = 0
        self._told_at = 0.0
        self._down_since: float | None = None
        self._overruns = 0
        self._overruns_before = 0
        self._thread = threading.Thread(target=self._run, name=f"edge-serial-{port.name}", daemon=True)
        self.tally = Tally()
        self.reason = "not tried yet"
        """Why the device is away; empty: it is not."""
        self.commands = Commands(port, settings.rate, settings.max_commands, self._refused)
        """What it is to write."""

    @property
    def alive(self) -> bool:
        """Whether its thread works."""
        return self._thread.is_alive()

    @property
    def connected(self) -> bool:
        """Whether the device is there."""
        return not self.reason

    @property
    def overruns(self) -> int:
        """Characters that were lost before they could be read, as far as the driver of the device counts them."""
        device = self._device
        with suppress(Exception):  # it has just gone
            if device is not None:
                return self._overruns + overruns(device.fileno()) - self._overruns_before
        return self._overruns

    def start(self) -> None:
        """Look for the device, and serve it. Returns at once."""
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """Close the port."""
        self._stopping.set()
        self._wake_up()
        if self._thread.is_alive():
            self._thread.join(timeout)
        with self._lock:
            if not self._closed and not self._thread.is_alive():
                self._closed = True
                os.close(self._wake)

    def put(self, command: Command, interval: float) -> bool:
        """Have a command written; its topic then rests for `interval` seconds. False: too many wait."""
        taken = self.commands.put(command, interval)
        self._wake_up()
        return taken

    def _release(self) -> None:
        self.commands.held = False
        self._wake_up()

    def _wake_up(self) -> None:
        with self._lock:
            if not self._closed:
                os.eventfd_write(self._wake, 1)

    # Everything below runs on the port's thread

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                device = open_device(self.port)
            except Exception as error:  # noqa: BLE001  whatever a driver does, this thread goes on
                self._note_down(_said(error))
            else:
                self._note_down(self._served(device))
            self._stopping.wait(self._settings.reconnect)

    def _served(self, device: Serial) -> str:
        """Serve a device until it goes; returns the reason."""
        self._note_up(str(device.port))
        self._overruns_before = overruns(device.fileno())  # the driver counts since the device is there
        self._device = device
        try:
            self._serve(device.fileno(), frames(self.port, self._longest, self.tally))
        except Exception as error:  # noqa: BLE001  as above
            return _said(error)
        finally:
            self._close(device)
        return ""

    def _close(self, device: Serial) -> None:
        self._overruns, self._device = self.overruns, None
        with suppress(OSError, termios.error):
            # Linux waits for what the device does not take, up to 30 s (closing_wait of setserial).
            termios.tcflush(device.fileno(), termios.TCOFLUSH)
        with suppress(Exception):
            device.close()
        self.commands.lost()

    @property
    def _longest(self) -> int:
        return self.port.spec.max_frame or self._settings.max_frame

    def _serve(self, descriptor: int, found: Frames) -> None:
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        quiet_since = time.monotonic()
        in_a_row = 0
        while not self._stopping.is_set():
            if self._waiting:
                self._waiting = self._take(self.port, self._waiting)
            wanted = (0 if self._waiting else select.POLLIN) | (select.POLLOUT if self.commands.unsent() else 0)
            poll.register(descriptor, wanted)
            events = dict(poll.poll(self._pause(found, quiet_since)))
            if self._wake in events:
                os.eventfd_read(self._wake)
            ready = events.get(descriptor, 0)
            if ready & select.POLLOUT:
                self._send(descriptor)
            if ready & select.POLLIN:
                in_a_row = in_a_row + 1 if time.monotonic() < quiet_since + _TICK else 0
                if self._read(descriptor, found):
                    in_a_row = 0
                if in_a_row > _AT_ONCE:
                    time.sleep(_TICK)
                quiet_since = time.monotonic()
            elif ready & (select.POLLHUP | select.POLLERR | select.POLLNVAL):
                raise OSError("the device is gone")
            elif found.waits and not self._waiting and time.monotonic() >= quiet_since + self._settings.silence:
                self._hand_over(found.silence())
            self._report()

    def _pause(self, found: Frames, quiet_since: float) -> float | None:
        """Milliseconds for which there is nothing to do unless something happens."""
        ends = []
        if self._waiting:
            ends.append(_ROOM)
        elif found.waits:
            ends.append(max(0.0, quiet_since + self._settings.silence - time.monotonic()))
        if self.tally.bad != self._told:
            ends.append(_REPORT)
        if (wait := self.commands.wait()) is not None:
            ends.append(wait)
        return 1000 * min(ends) + 1 if ends else None

    def _read(self, descriptor: int, found: Frames) -> bool:
        """Read what there is. Whether there was as much as the kernel keeps."""
        data = os.read(descriptor, _CHUNK)
        if not data:
            raise OSError("the device is gone")
        before = time.thread_time()
        self._hand_over(found.feed(data))
        rest = _SHARE * (time.thread_time() - before)
        if rest > _TICK:
            self._stopping.wait(rest)
        return len(data) >= _FULL

    def _hand_over(self, payloads: list[bytes]) -> None:
        if payloads:
            self._waiting = self._take(self.port, self._waiting + payloads)

    def _send(self, descriptor: int) -> None:
        with suppress(BlockingIOError):
            self.commands.written(os.write(descriptor, self.commands.unsent()))

    def _refused(self, command: Command, reason: str) -> None:
        self._refuse(command.topic, command.actuator, reason, command.payload, 1)

    def _report(self) -> None:
        """List what was no frame, once a second at the most: noise must not drive everything else out of the list."""
        bad, now = self.tally.bad, time.monotonic()
        if bad != self._told and now - self._told_at >= _REPORT:
            self._refuse(self.port.topic, "serial", self.tally.reason, self.tally.excerpt, bad - self._told)
            self._told, self._told_at = bad, now

    def _note_up(self, path: str) -> None:
        down = 0.0 if self._down_since is None else time.monotonic() - self._down_since
        self._down_since = None
        self.reason = ""
        told = {"port": self.port.name, "device": path, "down_seconds": round(down, 1)}
        _log.info("serial.up", extra=told)
        self._up(self.port, self._release)

    def _note_down(self, reason: str) -> None:
        self.reason = reason or "the port is closed"
        if self._down_since is None and not self._stopping.is_set():
            self._down_since = time.monotonic()
            _log.warning("serial.down", extra={"port": self.port.name, "reason": reason})


def _said(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
