"""Check of temperature and power supply of the host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from edge.doctor.context import DoctorContext
from edge.doctor.finding import Finding, ok, unknown

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

_HEAT: Final = "a hot host runs slower, and heat shortens the lifetime of its card"
_AIR: Final = "improve the cooling: airflow, a heat sink or a fan; avoid direct sun"
_POWER: Final = "hosts with too little power crash and damage the data on their card"
_SUPPLY: Final = "use the manufacturer's power supply, a short cable, and a powered hub for USB devices"


def check(around: DoctorContext) -> Iterator[Finding]:
    """Check by the kernel's thermal zones, and on a Raspberry Pi by its firmware."""
    known = False
    zones = sorted((around.root / "sys/class/thermal").glob("thermal_zone*"))
    readings = [around.text("sys/class/thermal", zone.name, "temp") or "" for zone in zones]
    # The kernel reports temperatures in 0.001 °C.
    degrees = [int(text) / 1000 for text in readings if text.lstrip("-").isdigit()]
    if degrees:
        known = True
        what = f"{max(degrees):.0f} °C"
        if max(degrees) >= _WARM:
            yield Finding("problem" if max(degrees) >= _HOT else "warning", what, _HEAT, _AIR)
        else:
            yield ok(what)
    flags = around.text(_THROTTLED)
    if flags is not None:
        known = True
        yield from _firmware(int(flags, 16))
    for chip in sorted((around.root / "sys/class/hwmon").glob("hwmon*")):
        # Without the firmware's flags in /sys, the driver `rpi_volt` reports under-voltage.
        alarm = around.text("sys/class/hwmon", chip.name, "in0_lcrit_alarm")
        if flags is None and alarm is not None and around.text("sys/class/hwmon", chip.name, "name") == "rpi_volt":
            known = True
            yield (
                Finding("problem", "the voltage is too low", _POWER, _SUPPLY)
                if alarm == "1"
                else ok("the voltage is right")
            )
    if not known:
        yield unknown("the kernel knows no temperature sensor of this host")


def _firmware(flags: int) -> Iterator[Finding]:
    if flags & _LOW:
        yield Finding("problem", "the voltage is too low", _POWER, _SUPPLY)
    elif flags & _LOW << _EVER:
        yield Finding("warning", "the voltage was too low since the start of the machine", _POWER, _SUPPLY)
    if flags & _SLOW:
        yield Finding("warning", "the processor is slowed down by its firmware", _HEAT, f"{_AIR}; {_SUPPLY}")
    elif flags & _SLOW << _EVER:
        yield Finding(
            "warning", "the processor was slowed down since the start of the machine", _HEAT, f"{_AIR}; {_SUPPLY}"
        )
    if not flags & (_LOW | _SLOW | (_LOW | _SLOW) << _EVER):
        yield ok("the firmware sees enough power, and slows nothing down")
