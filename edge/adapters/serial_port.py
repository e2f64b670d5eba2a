"""Serial port: a thread that reads frames and writes commands while the device is connected."""

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
from edge.adapters.serial_frames import Frames, FrameStatistics, frames
from edge.adapters.settings import ActuationSettings, SerialSettings
from edge.mapping.actuators import Command
from edge.mapping.serial_ports import SerialPort
from edge.wake_up import WakeUp

_log = logging.getLogger(__name__)

_CHUNK: Final = 65_536
_TICK: Final = 0.02
"""Seconds of collecting bytes in a continuous stream. A wake-up for each byte would cost more than its processing."""
_MAX_IMMEDIATE: Final = 8
"""Number of consecutive immediate reads before collecting starts. A frame in a few pieces is not delayed."""
_KERNEL_BUFFER: Final = 4096
"""Kernel buffer of a serial line (N_TTY_BUF_SIZE). After a read of this size there is no time to collect more."""
_PAUSE_FACTOR: Final = 3
"""Pause after a read, as a multiple of its processing time: a stream takes at most a quarter of a CPU core."""
_RETRY: Final = 0.05
"""Seconds between two attempts to put payloads into a full queue."""
_REPORT: Final = 1.0
"""Seconds between two entries of invalid frames in the list of bad values."""


class Port:
    """A port of the mapping files. Reconnects forever to a missing device.

    Commands wait in a queue that keeps the newest of each topic, in order and with rate limits.
    """

    def __init__(
        self,
        port: SerialPort,
        settings: SerialSettings,
        actuation: ActuationSettings,
        *,
        take: Callable[[SerialPort, list[bytes]], list[bytes]],
        refuse: Callable[[str, str, str, bytes, int], None],
        up: Callable[[SerialPort, Callable[[], None]], None],
    ) -> None:
        """`take` receives payloads and returns those that found the queue full; they are offered again.

        `refuse` receives bad values: topic, source, reason, excerpt, and count. `up` is called when the device has
        connected; it calls its second argument after the complete state is queued.
        """
        self.port = port
        self._settings = settings
        self._take = take
        self._refuse = refuse
        self._up = up
        self._stopping = threading.Event()
        self._wake_up = WakeUp()
        self._device: Serial | None = None
        self._waiting: list[bytes] = []
        self._reported = 0
        self._reported_at = 0.0
        self._down_since: float | None = None
        self._overruns = 0
        self._overruns_before = 0
        self._thread = threading.Thread(target=self._run, name=f"edge-serial-{port.name}", daemon=True)
        self.tally = FrameStatistics()
        self.reason = "not tried yet"
        """Why the device is disconnected; empty if it is connected."""
        self.commands = Commands(port, actuation.rate, actuation.max_queued, self._refused)
        """Commands to write."""

    @property
    def alive(self) -> bool:
        """Whether its thread runs."""
        return self._thread.is_alive()

    @property
    def connected(self) -> bool:
        """Whether the device is connected."""
        return not self.reason

    @property
    def overruns(self) -> int:
        """Characters lost before they could be read, if the driver of the device counts them."""
        device = self._device
        with suppress(Exception):  # the device may have just disconnected
            if device is not None:
                return self._overruns + overruns(device.fileno()) - self._overruns_before
        return self._overruns

    def start(self) -> None:
        """Start to look for the device and serve it. Returns at once."""
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """Close the port."""
        self._stopping.set()
        self._wake_up.set()
        if self._thread.is_alive():
            self._thread.join(timeout)
        # A thread that is still running may poll the descriptor: then it stays open.
        if not self._thread.is_alive():
            self._wake_up.close()

    def put(self, command: Command, interval: float) -> bool:
        """Queue a command; its topic then pauses for `interval` seconds. False: the queue is full."""
        taken = self.commands.put(command, interval)
        self._wake_up.set()
        return taken

    def _release(self) -> None:
        self.commands.held = False
        self._wake_up.set()

    # Everything below runs on the port's thread

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                device = open_device(self.port)
            except Exception as error:  # noqa: BLE001  no error of a driver may end this thread
                self._note_down(_message(error))
            else:
                self._note_down(self._served(device))
            self._stopping.wait(self._settings.reconnect)

    def _served(self, device: Serial) -> str:
        """Serve a device until it disconnects; return the reason."""
        self._note_up(str(device.port))
        self._overruns_before = overruns(device.fileno())  # the driver counts from the connection of the device
        self._device = device
        try:
            self._serve(device.fileno(), frames(self.port, self._longest, self.tally))
        except Exception as error:  # noqa: BLE001  as above
            return _message(error)
        finally:
            self._close(device)
        return ""

    def _close(self, device: Serial) -> None:
        self._overruns, self._device = self.overruns, None
        with suppress(OSError, termios.error):
            # Otherwise close() waits up to 30 s for bytes that the device does not accept (closing_wait of
            # setserial).
            termios.tcflush(device.fileno(), termios.TCOFLUSH)
        with suppress(Exception):
            device.close()
        self.commands.lost()

    @property
    def _longest(self) -> int:
        return self.port.spec.max_frame or self._settings.max_frame

    def _serve(self, descriptor: int, found: Frames) -> None:
        poll = select.poll()
        # So that new commands and `stop` end a wait for the device.
        poll.register(self._wake_up.fd, select.POLLIN)
        quiet_since = time.monotonic()
        in_a_row = 0
        while not self._stopping.is_set():
            if self._waiting:
                self._waiting = self._take(self.port, self._waiting)
            # With payloads that found the queue full, stop reading: the kernel buffers, and then the device waits if it
            # has flow control.
            wanted = (0 if self._waiting else select.POLLIN) | (select.POLLOUT if self.commands.unsent() else 0)
            poll.register(descriptor, wanted)
            events = dict(poll.poll(self._pause(found, quiet_since)))
            if self._wake_up.fd in events:
                self._wake_up.clear()
            ready = events.get(descriptor, 0)
            if ready & select.POLLOUT:
                self._send(descriptor)
            if ready & select.POLLIN:
                # Reads in quick succession are a continuous stream; a single frame in a few pieces is not.
                in_a_row = in_a_row + 1 if time.monotonic() < quiet_since + _TICK else 0
                if self._read(descriptor, found):
                    in_a_row = 0
                if in_a_row > _MAX_IMMEDIATE:
                    time.sleep(_TICK)
                quiet_since = time.monotonic()
            # Only without readable data: the last bytes of an unplugged device are still processed.
            elif ready & (select.POLLHUP | select.POLLERR | select.POLLNVAL):
                raise OSError("the device is gone")
            elif found.waits and not self._waiting and time.monotonic() >= quiet_since + self._settings.silence:
                self._hand_over(found.silence())
            self._report()

    def _pause(self, found: Frames, quiet_since: float) -> float | None:
        """Return the milliseconds until the next scheduled work; None: wait for an event."""
        ends = []
        if self._waiting:
            ends.append(_RETRY)
        elif found.waits:
            ends.append(max(0.0, quiet_since + self._settings.silence - time.monotonic()))
        if self.tally.bad != self._reported:
            ends.append(_REPORT)
        if (wait := self.commands.wait()) is not None:
            ends.append(wait)
        return 1000 * min(ends) + 1 if ends else None

    def _read(self, descriptor: int, found: Frames) -> bool:
        """Read the available bytes. Returns whether the kernel buffer was full."""
        data = os.read(descriptor, _CHUNK)
        if not data:
            raise OSError("the device is gone")
        before = time.thread_time()
        self._hand_over(found.feed(data))
        rest = _PAUSE_FACTOR * (time.thread_time() - before)
        if rest > _TICK:
            self._stopping.wait(rest)
        return len(data) >= _KERNEL_BUFFER

    def _hand_over(self, payloads: list[bytes]) -> None:
        if payloads:
            self._waiting = self._take(self.port, self._waiting + payloads)

    def _send(self, descriptor: int) -> None:
        with suppress(BlockingIOError):
            self.commands.written(os.write(descriptor, self.commands.unsent()))

    def _refused(self, command: Command, reason: str) -> None:
        self._refuse(command.topic, command.actuator, reason, command.payload, 1)

    def _report(self) -> None:
        """Report invalid frames at most once a second, so that noise does not displace other bad values."""
        bad, now = self.tally.bad, time.monotonic()
        if bad != self._reported and now - self._reported_at >= _REPORT:
            self._refuse(self.port.topic, "serial", self.tally.reason, self.tally.excerpt, bad - self._reported)
            self._reported, self._reported_at = bad, now

    def _note_up(self, path: str) -> None:
        down = 0.0 if self._down_since is None else time.monotonic() - self._down_since
        self._down_since = None
        self.reason = ""
        up = {"port": self.port.name, "device": path, "down_seconds": round(down, 1)}
        _log.info("serial.up", extra=up)
        self._up(self.port, self._release)

    def _note_down(self, reason: str) -> None:
        self.reason = reason or "the port is closed"
        if self._down_since is None and not self._stopping.is_set():
            self._down_since = time.monotonic()
            _log.warning("serial.down", extra={"port": self.port.name, "reason": reason})


def _message(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
