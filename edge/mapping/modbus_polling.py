"""Polling of Modbus registers: which addresses are read together, in how many requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

RegisterTable = Literal["holding", "input", "coil", "discrete"]
BITS: Final = ("coil", "discrete")
"""Tables whose addresses hold one bit."""


class Placed(Protocol):
    """A value with its place in a table."""

    @property
    def name(self) -> str:
        """Name of the value."""

    @property
    def table(self) -> RegisterTable:
        """Table of the device."""

    @property
    def address(self) -> int:
        """First address."""

    @property
    def count(self) -> int:
        """Number of addresses."""

    @property
    def interval(self) -> float:
        """Seconds between two polls."""


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """One request for adjacent addresses of a table."""

    table: RegisterTable
    address: int
    count: int
    values: tuple[Placed, ...]
    """The values within it, by address."""

    def halves(self) -> tuple[ReadRequest, ...]:
        """Return two requests for this one, to find the value that the device refuses; itself if it has one place."""
        starts = sorted({(value.address, value.count) for value in self.values})
        if len(starts) < 2:
            return (self,)
        middle = starts[len(starts) // 2]
        below = [value for value in self.values if (value.address, value.count) < middle]
        above = [value for value in self.values if (value.address, value.count) >= middle]
        return _request(below), _request(above)


@dataclass(frozen=True, slots=True)
class PollGroup:
    """Values that are polled together."""

    interval: float
    """Seconds between two polls."""
    requests: tuple[ReadRequest, ...]


def poll_groups(values: Iterable[Placed], limit: Callable[[RegisterTable], int], gap: int) -> tuple[PollGroup, ...]:
    """Return the groups of values, one for each interval, the shortest first.

    `limit`: most addresses of one request. `gap`: most unused addresses between two values of one request.
    """
    intervals: dict[float, list[Placed]] = {}
    for value in values:
        intervals.setdefault(value.interval, []).append(value)
    return tuple(
        PollGroup(interval, tuple(_requests(intervals[interval], limit, gap))) for interval in sorted(intervals)
    )


def _requests(values: Sequence[Placed], limit: Callable[[RegisterTable], int], gap: int) -> Iterable[ReadRequest]:
    joined: list[Placed] = []
    end = 0
    for value in sorted(values, key=lambda each: (each.table, each.address, each.count)):
        after = value.address + value.count
        if joined and (
            value.table != joined[0].table
            or value.address > end + gap
            or max(end, after) - joined[0].address > limit(value.table)
        ):
            yield _request(joined)
            joined = []
        end = max(end, after) if joined else after
        joined.append(value)
    if joined:
        yield _request(joined)


def _request(values: Sequence[Placed]) -> ReadRequest:
    first = min(value.address for value in values)
    end = max(value.address + value.count for value in values)
    return ReadRequest(values[0].table, first, end - first, tuple(values))
