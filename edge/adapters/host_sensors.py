"""Metrics of the gateway's machine, read with psutil. Missing sensors are left out."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass

import psutil

from edge.adapters.terms import MONITOR, QUDT_UNIT
from edge.mapping.reading import XSD_DECIMAL, XSD_INTEGER

MEGABYTE = 1_000_000

_CPU_CHIPS = ("coretemp", "k10temp", "zenpower", "cpu", "soc", "bcm2835", "armada", "sunxi")
_DISK_CHIPS = ("nvme", "drivetemp")


@dataclass(frozen=True, slots=True)
class Metric:
    """One measured metric."""

    name: str
    """Unique on this machine, with characters that are valid in an IRI."""
    label: str
    value: float
    unit: str
    """IRI."""
    measures: str
    """IRI of the observed property."""
    step: float
    """Minimum change to report, in the unit."""
    digits: int = 0
    """Number of significant decimal places."""

    @property
    def lexical(self) -> str:
        """Lexical form of the value."""
        return f"{self.value:.{self.digits}f}"

    @property
    def datatype(self) -> str:
        """IRI of the datatype."""
        return XSD_DECIMAL if self.digits else XSD_INTEGER


def sample() -> list[Metric]:
    """Return all metrics. The first value of CPU use may be 0, because it covers the time since the previous call."""
    metrics: dict[str, Metric] = {}
    for part in (_temperatures, _processor, _memory, _disks, _network, _uptime):
        for metric in part():
            metrics.setdefault(metric.name, metric)
    return list(metrics.values())


def _temperatures() -> Iterator[Metric]:
    # psutil has this function only if the system has the files.
    read = getattr(psutil, "sensors_temperatures", None)
    if read is None:
        return
    for chip, sensors in read().items():
        kind = _kind_of(chip)
        for number, sensor in enumerate(sensors):
            where = sensor.label or (str(number) if len(sensors) > 1 else "")
            # An unconnected sensor reads absolute zero or the maximum value.
            if sensor.current is None or not -50 < sensor.current < 200:
                continue
            name = plain(f"{chip}-{where}" if where else chip)
            yield Metric(
                f"{kind}Temperature-{name}",
                f"{kind} temperature ({' '.join(part for part in (chip, where) if part)})",
                sensor.current,
                QUDT_UNIT + "DegreeCelsius",
                f"{MONITOR}{kind}Temperature",
                step=1.0,
                digits=1,
            )


def _kind_of(chip: str) -> str:
    name = chip.lower()
    if name.startswith(_DISK_CHIPS):
        return "Disk"
    return "CPU" if name.startswith(_CPU_CHIPS) else "Board"


def _processor() -> Iterator[Metric]:
    percent = QUDT_UNIT + "Percent"
    yield Metric("CPUUse", "CPU use", psutil.cpu_percent(interval=None), percent, MONITOR + "CPUUse", 10.0, 1)
    load = psutil.getloadavg()[0]
    yield Metric("Load", "Load, 1 minute", load, QUDT_UNIT + "Unitless", MONITOR + "Load", 0.25, 2)


def _memory() -> Iterator[Metric]:
    percent = QUDT_UNIT + "Percent"
    memory = psutil.virtual_memory()
    yield Metric("MemoryUse", "Memory in use", memory.percent, percent, MONITOR + "MemoryUse", 2.0, 1)
    available = float(memory.available)
    step = memory.total / 50
    yield Metric(
        "MemoryAvailable", "Memory available", available, QUDT_UNIT + "Byte", MONITOR + "MemoryAvailable", step
    )


def _disks() -> Iterator[Metric]:
    mounts = {part.mountpoint for part in psutil.disk_partitions() if part.fstype != "squashfs"} | {"/"}
    for mount in sorted(mounts):
        try:
            usage = psutil.disk_usage(mount)
        except OSError:  # unplugged, or without permission
            continue
        name = plain(mount.strip("/")) or "root"
        yield Metric(
            f"DiskUse-{name}",
            f"Disk in use ({mount})",
            usage.percent,
            QUDT_UNIT + "Percent",
            MONITOR + "DiskUse",
            0.5,
            1,
        )


def _network() -> Iterator[Metric]:
    byte = QUDT_UNIT + "Byte"
    up = {name for name, state in psutil.net_if_stats().items() if state.isup and "loopback" not in state.flags}
    for card, counted in psutil.net_io_counters(pernic=True).items():
        if card not in up or card == "lo":
            continue
        name = plain(card)
        step = 10.0 * MEGABYTE
        yield Metric(
            f"NetworkReceived-{name}",
            f"Bytes received ({card})",
            counted.bytes_recv,
            byte,
            MONITOR + "NetworkReceived",
            step,
        )
        yield Metric(
            f"NetworkSent-{name}", f"Bytes sent ({card})", counted.bytes_sent, byte, MONITOR + "NetworkSent", step
        )


def _uptime() -> Iterator[Metric]:
    # The change of an uptime is not an event, so it is written at intervals only.
    up = max(0.0, time.time() - psutil.boot_time())
    yield Metric("Uptime", "Time since start", up, QUDT_UNIT + "SecondTime", MONITOR + "Uptime", float("inf"))


def plain(name: str) -> str:
    """Return `name` with letters, digits, `_`, `.` and `-` only, for IRIs and readable names."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", name).strip("-")
