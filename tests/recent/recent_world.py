"""A recent history with a clock that the test sets, and without a thread."""

from __future__ import annotations

from pathlib import Path

from edge.protocol.series import SeriesRequest
from edge.recent.recent_history import RecentHistory
from edge.recent.series import MICROSECONDS, Kind, SeriesKey
from edge.recent.settings import RecentSettings

BEGIN = 1_700_000_100
"""A whole minute, in seconds since 1970."""
SENSOR = "urn:o/temperature"


class FakeClock:
    """A clock that the test sets, in seconds."""

    boot = "test"

    def __init__(self) -> None:
        self.now = float(BEGIN)
        self.steady_now = 1000.0
        self.right = True

    def wall(self) -> int:
        return round(self.now * 1e6)

    def steady(self) -> int:
        return round(self.steady_now * 1e6)

    def trusted(self) -> bool:
        return self.right

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.steady_now += seconds


class World:
    """A history that can be stopped, killed and started again on the same directory."""

    def __init__(self, directory: Path, **settings: object) -> None:
        self.clock = FakeClock()
        self.directory = directory
        self.settings = RecentSettings.model_validate(settings)
        self.history: RecentHistory
        self.start()

    def start(self) -> None:
        """Open the directory. Samples that the former history had not written are lost, as in a power cut."""
        self.history = RecentHistory(self.directory, self.settings, self.clock)
        self.history.open()

    def add(self, value: float | str, sensor: str = SENSOR, kind: Kind = "number", graph: str = "") -> None:
        buffer, key, time = self.history._buffer, SeriesKey(graph, sensor, kind), self.clock.wall() // MICROSECONDS
        if isinstance(value, str):
            assert buffer.add_text(key, time, value)
        else:
            buffer.add(key, time, value)

    def work(self) -> None:
        self.history.work()

    def seal(self) -> None:
        """Let the next raw file be due, and write it."""
        self.clock.steady_now += self.settings.seal_interval
        self.history.work()

    def rows(self, begin: float = 0, end: float = 1e9, points: int | None = None, sensor: str = SENSOR, **more):
        """Return the rows from `begin` to `end`, in seconds after `BEGIN`."""
        request = SeriesRequest((sensor,), int((BEGIN + begin) * 1e6), int((BEGIN + end) * 1e6), points)
        (result,) = self.history.read(request, more.get("readable", lambda graph: True))
        return result.rows

    def values(self, **more):
        """Return pairs of seconds after `BEGIN` and value."""
        return [(round(row.time / 1e6 - BEGIN, 2), row.value) for row in self.rows(**more)]

    def files(self) -> list[str]:
        return sorted(path.name for path in (self.directory / "recent").iterdir())
