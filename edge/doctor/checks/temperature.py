"""Check of temperature and power supply of the host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from edge.doctor.context import DoctorContext
from edge.doctor.finding import Finding, State, ok, problem, unknown, warning

_HOT: Final = 80.0
"""°C at which a Raspberry Pi reduces its speed."""
_WARM: Final = 70.0
_THROTTLED: Final = "sys/devices/platform/soc/soc:firmware/get_throttled"
_LOW: Final = 0x1
"""Flag of the firmware: under-voltage."""
_SLOW: Final = 0x2 | 0x4 | 0x8
"""Flags of the firmware: frequency capped, throttled, soft temperature limit."""
_EVER: Final = 16
"""Distance in bits between a flag and its "since the start" variant."""


def check(around: DoctorContext) -> Iterator[Finding]:
    """Check by the kernel's thermal zones, and on a Raspberry Pi by its firmware."""
    known = False
    zones = sorted((around.root / "sys/class/thermal").glob("thermal_zone*"))
    readings = [around.text("sys/class/thermal", zone.name, "temp") or "" for zone in zones]
    # The kernel reports temperatures in 0.001 °C.
    degrees = [int(text) / 1000 for text in readings if text.lstrip("-").isdigit()]
    if degrees:
        known = True
        state: State = "problem" if max(degrees) >= _HOT else "warning" if max(degrees) >= _WARM else "ok"
        yield Finding(state, "temperature.degrees", {"degrees": round(max(degrees))})
    flags = around.text(_THROTTLED)
    if flags is not None:
        known = True
        yield from _firmware(int(flags, 16))
    for chip in sorted((around.root / "sys/class/hwmon").glob("hwmon*")):
        # Without the firmware's flags in /sys, the driver `rpi_volt` reports under-voltage.
        alarm = around.text("sys/class/hwmon", chip.name, "in0_lcrit_alarm")
        if flags is None and alarm is not None and around.text("sys/class/hwmon", chip.name, "name") == "rpi_volt":
            known = True
            yield problem("temperature.low_voltage") if alarm == "1" else ok("temperature.voltage")
    if not known:
        yield unknown("temperature.unknown")


def _firmware(flags: int) -> Iterator[Finding]:
    if flags & _LOW:
        yield problem("temperature.low_voltage")
    elif flags & _LOW << _EVER:
        yield warning("temperature.was_low")
    if flags & _SLOW:
        yield warning("temperature.slowed")
    elif flags & _SLOW << _EVER:
        yield warning("temperature.was_slowed")
    if not flags & (_LOW | _SLOW | (_LOW | _SLOW) << _EVER):
        yield ok("temperature.firmware")
