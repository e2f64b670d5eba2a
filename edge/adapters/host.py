"""Host adapter: temperatures, load, memory, disks and network of the gateway's machine as observations."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

from edge.adapters.host_sensors import Metric, plain, sample
from edge.adapters.observations import Observations
from edge.adapters.planner import Arrival
from edge.adapters.settings import HostSettings
from edge.adapters.terms import MONITOR
from edge.mapping.reading import Reading
from edge.mapping.store import StoreRules
from edge.protocol.errors import EdgeError

_log = logging.getLogger(__name__)


class HostReadings:
    """Selects metrics to write: changed ones, and those not written for a long time."""

    def __init__(self, settings: HostSettings, hostname: str) -> None:
        self._refresh = timedelta(seconds=settings.refresh)
        self._host = f"{MONITOR}Host-{plain(hostname) or 'unnamed'}"
        self._store = StoreRules() if settings.store else None
        self._written: dict[str, tuple[float, datetime]] = {}

    def due(self, metrics: Sequence[Metric], now: datetime) -> list[Arrival]:
        """Return the readings of the metrics to write at `now`."""
        return [Arrival(self._reading(metric), now) for metric in metrics if self._is_due(metric, now)]

    def written(self, metrics: Sequence[Metric], arrivals: Sequence[Arrival]) -> None:
        """Note that these readings were written; later changes are compared with them."""
        done = {arrival.reading.observation: arrival.received for arrival in arrivals}
        for metric in metrics:
            if (when := done.get(self._observation(metric))) is not None:
                self._written[metric.name] = (metric.value, when)

    def _is_due(self, metric: Metric, now: datetime) -> bool:
        before = self._written.get(metric.name)
        if before is None:
            return True
        value, when = before
        return abs(metric.value - value) >= metric.step or now - when >= self._refresh

    def _observation(self, metric: Metric) -> str:
        return f"{self._host}-{metric.name}"

    def _reading(self, metric: Metric) -> Reading:
        return Reading(
            self._observation(metric),
            metric.lexical,
            metric.datatype,
            unit=metric.unit,
            location=self._host,
            property=metric.measures,
            label=metric.label,
            store=self._store,
        )


class HostAdapter:
    """Thread that samples the machine every `interval` seconds."""

    def __init__(
        self,
        settings: HostSettings,
        observations: Observations,
        *,
        hostname: str | None = None,
        sensors: Callable[[], list[Metric]] = sample,
    ) -> None:
        self._interval = settings.interval
        self._observations = observations
        self._readings = HostReadings(settings, hostname or socket.gethostname())
        self._sensors = sensors
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="edge-host", daemon=True)
        self._failing = False
        self.readings = 0
        """Number of written readings."""

    @property
    def alive(self) -> bool:
        """Whether its thread runs."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start the thread; it samples at once, and then at every interval."""
        self._thread.start()

    def stop(self, timeout: float = 2.0) -> None:
        """Stop the thread."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def look(self, now: datetime) -> int:
        """Sample once, and write the due metrics. Returns the number of readings. Raises an `EdgeError`."""
        metrics = self._sensors()
        arrivals = self._readings.due(metrics, now)
        if arrivals:
            self._observations.write(arrivals).result()
            self._readings.written(metrics, arrivals)
            self.readings += len(arrivals)
        return len(arrivals)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self.look(datetime.now(UTC))
            except (EdgeError, OSError) as error:  # OSError: a sensor disappeared while it was read
                if not self._failing:
                    _log.warning("host.failing", extra={"reason": str(error)})
                self._failing = True
            else:
                if self._failing:
                    _log.info("host.recovered")
                self._failing = False
            self._stopping.wait(self._interval)
