"""Metrics of the history in the Prometheus text format, written to a file.

The textfile collector of node_exporter reads such files: `ingest` and `status` need no port of their own.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spark_offload.errors import OutputRefused
from spark_offload.landing import write
from spark_offload.status import HistoryStatus, OutboxStatus

if TYPE_CHECKING:
    from spark_offload.ingest import IngestRound

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_PREFIX: Final = "edge_history_"
_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
_Samples = Iterable[tuple[dict[str, str], float]]
"""Labels and values of a metric."""


@dataclass(slots=True)
class IngestCounters:
    """Counters of an ingester since its start."""

    rounds: int = 0
    failed_runs: int = 0
    """Runs that an error ended; the next one repeats them."""
    observations: int = 0
    segments: int = 0
    quarantined: int = 0
    problems: int = 0
    """Files of single gateways that could not be read, moved or written, counted in each round."""
    last_success: float | None = None
    """Time of the end of the last round without an error, in seconds since 1970."""

    def add(self, done: IngestRound, now: float) -> None:
        """Count a round. `now` is the time of its end, in seconds since 1970."""
        self.last_success = now
        self.rounds += 1
        self.observations += done.observations
        self.segments += done.segments
        self.quarantined += len(done.damaged)
        self.problems += len(done.problems)


_OUTBOX: Final[tuple[tuple[str, str, Callable[[OutboxStatus], float | None]], ...]] = (
    ("outbox_last_number", "Last number up to which the table has all observations.", lambda one: one.last),
    ("outbox_waiting_segments", "Segments that are not in the table.", lambda one: one.waiting),
    ("outbox_lag_seconds", "Waiting time of the oldest segment that is not in the table.", lambda one: one.lag),
    (
        "outbox_gap_observations",
        "Missing observations that hold up later segments.",
        lambda one: one.gap.last - one.gap.first + 1 if one.gap else 0,
    ),
    (
        "outbox_gap_seconds",
        "Waiting time of the oldest segment behind a gap.",
        lambda one: one.gap.seconds if one.gap else 0,
    ),
)
_TOTALS: Final[tuple[tuple[str, str, Callable[[OutboxStatus], float | None]], ...]] = (
    ("outbox_observations", "Observations in the table.", lambda one: one.observations),
    ("outbox_lost_observations", "Observations that were dropped, deleted or accepted as lost.", lambda one: one.lost),
    (
        "outbox_newest_timestamp_seconds",
        "Time of the newest observation in the table.",
        lambda one: one.newest.timestamp() if one.newest else None,
    ),
)
_COUNTERS: Final[tuple[tuple[str, str, Callable[[IngestCounters], float]], ...]] = (
    ("ingest_rounds_total", "Rounds of the ingester.", lambda one: one.rounds),
    ("ingest_failed_runs_total", "Runs of the ingester that an error ended.", lambda one: one.failed_runs),
    ("ingest_observations_total", "Ingested observations.", lambda one: one.observations),
    ("ingest_segments_total", "Ingested segments.", lambda one: one.segments),
    ("ingest_quarantined_segments_total", "Segments moved to quarantine.", lambda one: one.quarantined),
    ("ingest_problems_total", "Files that could not be read, moved or written.", lambda one: one.problems),
)


def text(status: HistoryStatus | None, counters: IngestCounters | None = None) -> str:
    """Return the metrics of a status, and those of an ingester."""
    lines: list[str] = []
    if counters is not None:
        for name, meaning, value in _COUNTERS:
            lines += _metric(name, "counter", meaning, [({}, value(counters))])
        last: list[tuple[dict[str, str], float]] = (
            [] if counters.last_success is None else [({}, counters.last_success)]
        )
        lines += _metric(
            "ingest_last_success_timestamp_seconds",
            "gauge",
            "End of the last round of the ingester without an error.",
            last,
        )
    if status is not None:
        lines += _metric("table_version", "gauge", "Version of the table.", [({}, status.version)])
        for name, meaning, measured in (*_OUTBOX, *(_TOTALS if status.counted else ())):
            samples = [(one.outbox._asdict(), measured(one)) for one in status.outboxes]
            known = [(labels, value) for labels, value in samples if value is not None]
            lines += _metric(name, "gauge", meaning, known)
        quarantined = Counter(one.outbox.gateway for one in status.quarantined)
        of_gateways = [({"gateway": gateway}, count) for gateway, count in sorted(quarantined.items())]
        lines += _metric("quarantined_segments", "gauge", "Damaged segments in quarantine.", of_gateways)
    return "".join(f"{line}\n" for line in lines)


def write_metrics(path: Path, body: str) -> None:
    """Replace the file of the metrics at once, so that no reader sees a part of it. Raises `OutputRefused`."""
    try:
        write(path, body.encode())
    except OSError as error:
        # Without the name of the temporary file, so that the same error has the same text.
        remedy = "free space on its disk" if error.errno in _FULL else f"make {path.parent} writable"
        raise OutputRefused(f"the metrics {path} cannot be written ({error.strerror}): {remedy}") from error


class Problems:
    """Problems of periodic work, of which each is reported once until it has ended."""

    def __init__(self) -> None:
        """Begin without a problem."""
        self._known: frozenset[str] = frozenset()

    def new(self, found: Iterable[str]) -> list[str]:
        """Return those of the problems of this time that were not there the last time."""
        now = tuple(dict.fromkeys(found))
        new = [one for one in now if one not in self._known]
        self._known = frozenset(now)
        return new


def _metric(name: str, kind: str, meaning: str, samples: _Samples) -> list[str]:
    lines = [f"{_PREFIX}{name}{_labels(labels)} {_number(value)}" for labels, value in samples]
    return [f"# HELP {_PREFIX}{name} {meaning}", f"# TYPE {_PREFIX}{name} {kind}", *lines] if lines else []


def _labels(labels: dict[str, str]) -> str:
    # Rows of other programs may have any text as their gateway, or none.
    cells = [f'{name}="{str(value).translate(_ESCAPES)}"' for name, value in labels.items()]
    return "{" + ",".join(cells) + "}" if cells else ""


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.3f}"
