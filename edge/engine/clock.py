"""The clocks of the machine: one that people set, one that only goes forward, and whether the first can be believed."""

from __future__ import annotations

import ctypes
import functools
import time
import uuid
from pathlib import Path
from typing import Any, Final, Literal, Protocol

Trust = Literal["auto", "always", "never"]
"""Whether the machine's clock is right: found out, or told."""

_STEADY: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_RTC: Final = Path("/sys/class/rtc/rtc0/since_epoch")
_AGREES: Final = 60
"""Seconds by which the time of an RTC and the machine's may differ. Where it has lost its own, they differ more."""
_RELEASED: Final = 1_763_683_200
"""Unix time before which no clock of a machine with this version is right: 2025-11-21."""
_TIME_ERROR: Final = 5
"""What adjtimex(2) returns while nothing keeps the clock right."""


class Clock(Protocol):
    """What tells the time."""

    @property
    def boot(self) -> str:
        """Names the start of the machine from which `steady` counts."""

    def wall(self) -> int:
        """Microseconds since 1970, UTC, as the machine's clock says. It may be wrong, and jump."""

    def steady(self) -> int:
        """Microseconds since the machine started, its sleep included. It never jumps."""

    def trusted(self) -> bool:
        """Whether `wall` is right, as far as anybody can know."""


class SystemClock:
    """This machine's clocks.

    Its time is believed where the kernel says that it is kept by NTP (adjtimex(2)), or where it came from a clock with
    a battery (RTC) that has not lost its own. A Raspberry Pi before its network is up has neither.
    """

    def __init__(self, trust: Trust = "auto") -> None:
        self._trust = trust
        self._from_rtc = _from_rtc()
        try:
            self._boot = _BOOT_ID.read_text(encoding="ascii").strip()
        except OSError:
            self._boot = str(uuid.uuid4())  # not Linux: a restart of the process counts as one of the machine

    @property
    def boot(self) -> str:
        """The kernel's boot id."""
        return self._boot

    def wall(self) -> int:
        """CLOCK_REALTIME."""
        return time.time_ns() // 1000

    def steady(self) -> int:
        """CLOCK_BOOTTIME."""
        return time.clock_gettime_ns(_STEADY) // 1000

    def trusted(self) -> bool:
        """Kept by NTP, or taken from an RTC."""
        if self._trust != "auto":
            return self._trust == "always"
        return self._from_rtc or _synchronised()


def _from_rtc() -> bool:
    """Whether the machine's time is that of an RTC, and can be right."""
    try:
        seconds = int(_RTC.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return False
    return seconds > _RELEASED and abs(time.time() - seconds) < _AGREES


@functools.cache  # a library that is loaded again refers to itself: each would stay until the garbage collector comes
def _adjtimex() -> Any:  # noqa: ANN401 - a function of C
    return getattr(ctypes.CDLL(None), "adjtimex", None)


def _synchronised() -> bool:
    adjtimex = _adjtimex()
    if adjtimex is None:
        return False
    asks_nothing = ctypes.create_string_buffer(512)  # struct timex, larger than on any architecture; modes = 0
    return adjtimex(asks_nothing) not in (-1, _TIME_ERROR)
