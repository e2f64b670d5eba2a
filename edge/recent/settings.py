"""Settings of the recent history."""

from __future__ import annotations

from edge.section import MIB, Section, fixed, key


class RecentSettings(Section):
    """The recent history: values of the last hours and aggregates of the last days, kept on the gateway."""

    enabled: bool = key(True, "Whether the gateway keeps the recent values of observations.", basic=True)
    max_bytes: int = key(
        64 * MIB,
        "Disk space for the recent history. Beyond it, the gateway removes the oldest values.",
        unit="bytes",
        minimum=1 * MIB,
        basic=True,
    )
    raw_hours: float = key(24.0, "Time for which each value is kept.", unit="h", minimum=1, maximum=8784)
    minutes_days: float = key(
        30.0,
        "Time for which one-minute aggregates are kept: minimum, maximum, mean, last value and count.",
        unit="days",
        minimum=1,
        maximum=3660,
    )
    flush_interval: float = key(
        30.0, "Time after which new values are on the disk. A power cut loses at most as much.", unit="s", minimum=1
    )
    max_memory: int = key(
        4 * MIB,
        "Memory for values that are not in a finished file yet. When it is full, the gateway writes such a file early.",
        unit="bytes",
        minimum=1 * MIB,
    )
    seal_interval: float = fixed(3600.0, "Seconds of values in a file of raw values.")
    aggregation_interval: float = fixed(6 * 3600.0, "Seconds of values in a file of aggregates.")
