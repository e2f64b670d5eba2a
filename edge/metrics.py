"""Metrics for Prometheus. Every metric is described in docs/metrics.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

# A `_created` timestamp for every counter would double the size of a scrape without any use.
disable_created_metrics()  # type: ignore[no-untyped-call]  # the library leaves it untyped

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Buckets of latencies in seconds: from one commit on a fast disk to the patience of a person."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs of updates since the start of the gateway."""

    phases: Mapping[str, tuple[int, float]]
    """Number of updates and their total seconds, by phase."""
    hits: int
    """Subscriptions selected by the LUTT."""


class Metrics:
    """Metrics of one gateway, in their own registry, so that one process can run two gateways."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = CollectorRegistry() if registry is None else registry
        self.requests = Counter(
            "edge_requests",
            "Requests answered.",
            ["gate", "primitive", "status"],
            registry=self.registry,
        )
        self.request_seconds = Histogram(
            "edge_request_seconds",
            "Time from a request's arrival to its answer, in seconds.",
            ["gate", "primitive"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.connections = Gauge("edge_connections", "Connections that are open.", ["gate"], registry=self.registry)
        self.subscriptions = Gauge(
            "edge_subscriptions", "Subscriptions that are active.", ["gate"], registry=self.registry
        )
        self.notifications = Counter(
            "edge_notifications", "Notifications handed to clients' connections.", ["gate"], registry=self.registry
        )
        self.merged_notifications = Counter(
            "edge_merged_notifications",
            "Notifications merged into earlier ones that waited for a slow client.",
            ["gate"],
            registry=self.registry,
        )
        self.suspended_subscriptions = Gauge(
            "edge_parked_subscriptions",
            "Suspended subscriptions: their connection was lost, and the client can still resume them.",
            ["gate"],
            registry=self.registry,
        )
        self.slow_clients = Counter(
            "edge_slow_clients",
            "Connections closed because the client did not read its answers.",
            ["gate"],
            registry=self.registry,
        )
        self.part_restarts = Counter(
            "edge_part_restarts", "Parts that stood still and were restarted.", ["part"], registry=self.registry
        )
        self.internal_errors = Counter(
            "edge_internal_errors", "Requests that failed through a fault of the gateway.", registry=self.registry
        )

        self.last_restart = Gauge(
            "edge_last_restart",
            "Why the gateway was started last: 1 for that reason.",
            ["reason"],
            registry=self.registry,
        )
        self.watch("written_bytes", "Bytes that the process has had written to disks since its start.", written_bytes)
        self.starts = Counter("edge_starts", "Starts of a gateway on this data directory.", registry=self.registry)

    def set_restart(self, reason: str, starts: int) -> None:
        """Set the reason of this run, and its number on the data directory, counted from 1."""
        self.last_restart.labels(reason).set(1)
        self.starts.inc(starts)

    def answered(self, gate: str, primitive: str, status: int, seconds: float) -> None:
        """Count one answer. `status` has HTTP semantics, `seconds` is the time it took."""
        self.requests.labels(gate, primitive, str(status)).inc()
        self.request_seconds.labels(gate, primitive).observe(seconds)

    def watch(self, name: str, description: str, value: Callable[[], float]) -> None:
        """Add a gauge `edge_NAME` whose value is computed at each scrape."""
        Gauge(f"edge_{name}", description, registry=self.registry).set_function(value)

    def watch_each(self, name: str, description: str, label: str, values: Callable[[], Mapping[str, float]]) -> None:
        """Add a gauge `edge_NAME` with a value for each item that exists at a scrape."""
        self.registry.register(_Each(f"edge_{name}", description, label, values))

    def watch_engine(
        self,
        *,
        triples: Callable[[], float],
        pending_updates: Callable[[], float],
        journal_sequence: Callable[[], float],
        spus: Callable[[], float],
        pending_timers: Callable[[], float],
        subscription_faults: Callable[[], float],
    ) -> None:
        """Add metrics of the engine's size, load and progress."""
        self.watch("triples", "Triples in the live graph, named graphs included.", triples)
        self.watch("pending_updates", "Updates that wait for the engine.", pending_updates)
        self.watch("journal_sequence", "Sequence number of the last change set in the journal.", journal_sequence)
        self.watch("spus", "Subscription processing units: distinct subscribed queries.", spus)
        self.watch("pending_timers", "Delayed updates that wait for their time.", pending_timers)
        description = "Subscriptions ended by a fault of the gateway."
        self.registry.register(_Total("edge_subscription_faults", description, subscription_faults))

    def watch_evaluations(
        self,
        *,
        pending: Callable[[], float],
        count: Callable[[], float],
        seconds: Callable[[], float],
        merged: Callable[[], float],
    ) -> None:
        """Add metrics of re-evaluated subscriptions."""
        self.watch("pending_evaluations", "Re-evaluated subscribed queries that lag behind the last commit.", pending)
        for name, description, value in (
            ("evaluations", "Evaluations of re-evaluated subscribed queries.", count),
            ("evaluation_seconds", "Time that these evaluations took.", seconds),
            (
                "evaluations_merged",
                "States that were skipped, because a later commit came before the evaluation.",
                merged,
            ),
        ):
            self.registry.register(_Total(f"edge_{name}", description, value))

    def watch_costs(self, costs: Callable[[], Costs]) -> None:
        """Add the engine's performance model, computed at each scrape."""
        self.registry.register(_PerformanceModel(costs))

    def text(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        return generate_latest(self.registry)


def written_bytes(file: Path = Path("/proc/self/io")) -> float:
    """Return the bytes that this process has written to disks; NaN if the kernel does not report them."""
    try:
        found = dict(line.split(": ") for line in file.read_text(encoding="ascii").splitlines())
        return float(found["write_bytes"])
    except (OSError, ValueError, KeyError):
        # NaN and not 0, which would look like a process that writes nothing.
        return float("nan")


class _Each(Collector):
    def __init__(self, name: str, description: str, label: str, values: Callable[[], Mapping[str, float]]) -> None:
        self._name = name
        self._description = description
        self._label = label
        self._values = values

    def collect(self) -> Iterable[Metric]:
        """Return the gauge with its current values."""
        gauge = GaugeMetricFamily(self._name, self._description, labels=[self._label])
        for name, value in self._values().items():
            gauge.add_metric([name], value)
        yield gauge


class _Total(Collector):
    """A counter whose value is computed at each scrape."""

    def __init__(self, name: str, description: str, value: Callable[[], float]) -> None:
        self._name = name
        self._description = description
        self._value = value

    def collect(self) -> Iterable[Metric]:
        """Return the counter."""
        yield CounterMetricFamily(self._name, self._description, value=self._value())


class _PerformanceModel(Collector):
    def __init__(self, costs: Callable[[], Costs]) -> None:
        self._costs = costs

    def collect(self) -> Iterable[Metric]:
        """Return the metrics of the phases."""
        costs = self._costs()
        phases = SummaryMetricFamily("edge_update_phase_seconds", "Time of updates by phase.", labels=["phase"])
        for phase, (count, seconds) in costs.phases.items():
            phases.add_metric([phase], count, seconds)
        yield phases
        yield CounterMetricFamily("edge_hits", "SPUs that updates hit.", value=costs.hits)
