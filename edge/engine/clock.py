"""Clocks: those of the machine, with the reliability of its wall clock, and one for simulations."""

from __future__ import annotations

import ctypes
import functools
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Protocol

Trust = Literal["auto", "always", "never"]
"""Whether the wall clock is right: detected, or set by the operator."""

# CLOCK_MONOTONIC stops while the machine sleeps on Linux, and a delay must not.
_STEADY: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_RTC: Final = Path("/sys/class/rtc/rtc0/since_epoch")
_AGREES: Final = 60
"""Limit of seconds between the RTC and the wall clock. After a power loss of the RTC the difference is larger."""
_RELEASED: Final = 1_763_683_200
"""Unix time of 2025-11-21. An earlier time is wrong on a machine with this version."""
_TIME_ERROR: Final = 5
"""Return value of adjtimex(2) while the clock is not synchronised."""


class Clock(Protocol):
    """Source of the time."""

    @property
    def boot(self) -> str:
        """Identifier of the boot from which `steady` counts."""

    def wall(self) -> int:
        """Microseconds since 1970, UTC, from the wall clock. It may be wrong and may jump."""

    def steady(self) -> int:
        """Microseconds since the boot, including sleep. It never jumps."""

    def trusted(self) -> bool:
        """Whether `wall` is right, as far as this can be known."""


class SystemClock:
    """The clocks of this machine.

    The wall clock is reliable if the kernel reports that NTP synchronises it (adjtimex(2)), or if it was set from a
    battery-backed clock (RTC) that has kept its time. A Raspberry Pi has neither before its network is up.
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
        """Whether NTP synchronises the clock, or it was set from an RTC."""
        if self._trust != "auto":
            return self._trust == "always"
        return self._from_rtc or _synchronised()


@dataclass(slots=True)
class SimulatedClock:
    """A clock that its owner moves. `at`: microseconds since 1970."""

    at: int
    boot: str = "simulation"

    def wall(self) -> int:
        """Return the simulated time."""
        return self.at

    def steady(self) -> int:
        """Return the simulated time, which never goes back."""
        return self.at

    def trusted(self) -> bool:
        """Return True: the simulated time is right."""
        return True


def _from_rtc() -> bool:
    """Return whether the wall clock was set from an RTC with a plausible time."""
    try:
        seconds = int(_RTC.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return False
    return seconds > _RELEASED and abs(time.time() - seconds) < _AGREES


@functools.cache  # each loaded library forms a reference cycle, which would stay until the next garbage collection
def _adjtimex() -> Any:  # noqa: ANN401 - a function of C
    return getattr(ctypes.CDLL(None), "adjtimex", None)


def _synchronised() -> bool:
    adjtimex = _adjtimex()
    if adjtimex is None:
        return False
    asks_nothing = ctypes.create_string_buffer(512)  # struct timex, larger than on any architecture; modes = 0
    # The state of the clock is the return value, so the structure itself is not read.
    return adjtimex(asks_nothing) not in (-1, _TIME_ERROR)
