"""The recent history: takes committed changes from the engine, stores them on its own thread, and answers requests.

The writer thread only appends to a queue. The recording thread wakes up every `flush_interval`, or earlier if the queue
is long. A disk that fails or hangs delays neither updates nor readings: the values wait in memory, up to its limit.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from edge.engine.clock import Clock
from edge.engine.scheduling.scheduler import Scheduler
from edge.engine.store.changes import ChangeSet
from edge.protocol.errors import NotFound, NotReady, RequestTimeout, ResultTooLarge
from edge.protocol.series import SeriesExtent, SeriesRequest, SeriesResult, SeriesRow
from edge.recent.aggregates import MINUTE, Points
from edge.recent.block_file import Block, Minutes, Samples
from edge.recent.buffer import SampleBuffer, SeriesBuffer
from edge.recent.series import MICROSECONDS, TICKS, SeriesKey
from edge.recent.settings import RecentSettings
from edge.recent.store import NAME, RecentStore, StopAggregation, StoredFile, samples
from edge.recent.value_tracker import ValueTracker

T = TypeVar("T")

_log = logging.getLogger(__name__)

_MOST_QUADS: Final = 2_000
"""Quads in the queue at which the thread takes them before its time: about 1 MB."""
_SECOND: Final = 1_000_000
"""Microseconds."""
_START_TIMEOUT: Final = 10.0
"""Seconds that a request waits for the files after a start."""
_MOST_ROWS: Final = 100_000
"""Most rows of a response, more than a day has seconds."""
_MOST_LISTED: Final = 50_000
"""Most series in a list."""

Readable = Callable[[str], bool]
"""Whether the client may read the graph with this IRI; empty for the default graph."""


class _Snapshot(NamedTuple):
    """State of the store at one time."""

    files: Sequence[StoredFile]
    aggregated: int
    """Generation up to which aggregates exist."""
    unsealed: Sequence[tuple[SeriesKey, Block]]
    """Samples that are in no finished file."""
    recorded: Sequence[tuple[int, int]]
    """Recorded periods in ticks."""


class RecentHistory:
    """The recent values of all observations. `start` and `stop` run once; other methods are thread-safe."""

    def __init__(self, data_dir: Path, settings: RecentSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._stopping = threading.Event()
        self._store = RecentStore(data_dir / NAME, settings, self._stopping)
        self._tracker = ValueTracker()
        self._queue: deque[tuple[ChangeSet, int]] = deque()
        self._queued = 0
        """Approximate number of quads in the queue."""
        self._lock = threading.Lock()
        """Held to change the buffers, the tracker and the list of files; not while the disk works."""
        self._buffer = SampleBuffer()
        self._sealing: SampleBuffer | None = None
        """A full buffer that is being written into a file."""
        self._wake = threading.Event()
        self._loaded = threading.Event()
        self._stored_until = 0
        """End of the recorded period that is on the disk, in ticks."""
        self._seal_at = 0
        """Time of the next raw file, in microseconds of the steady clock."""
        self.failing = ""
        """Reason why values cannot be written at the moment; empty if they can."""
        self.lost = 0
        """Values dropped since the start because the disk failed while the memory for them was full."""
        self._thread = threading.Thread(target=self._run, name="recent", daemon=True)

    def start(self, engine: Scheduler | None) -> None:
        """Follow the committed changes of an engine. Waits for its writer. None: only answer requests."""
        if engine is not None:
            engine.follow(self._tracker.scan, self.committed).result()
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """Write all values to the disk. Waits at most `timeout` seconds. Does nothing before `start`."""
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    @property
    def bytes(self) -> int:
        """Disk space of the files."""
        return self._store.bytes

    @property
    def removed(self) -> int:
        """Files removed since the start because of the disk limit."""
        return self._store.removed

    @property
    def damaged(self) -> int:
        """Damaged files and blocks found since the start."""
        return self._store.damaged

    @property
    def skipped(self) -> int:
        """Values that cannot be recorded: not finite, too long, or too many different texts."""
        return self._tracker.skipped

    def committed(self, changes: Iterable[ChangeSet], now: int) -> None:
        """Take committed changes. `now`: microseconds since 1970. Called on the writer thread; does not block."""
        for change in changes:
            added, removed, _, _ = change.sizes
            self._queue.append((change, now))
            self._queued += added + removed
        if self._queued > _MOST_QUADS:
            self._wake.set()

    def add(self, key: SeriesKey, time: int, value: float) -> None:
        """Add a number. `time` in ticks."""
        with self._lock:
            self._buffer.add(key, time, value)

    def _now(self) -> int:
        return self._clock.wall() // MICROSECONDS

    # The recording thread

    def _run(self) -> None:
        interval = int(self._settings.flush_interval * _SECOND)
        while not self.open() and not self._stopping.is_set():
            self._wake.wait(self._settings.flush_interval)
        if not self._loaded.is_set():
            return
        steady = self._clock.steady
        flush_at = steady() + interval
        while not self._stopping.is_set():
            self._wake.wait(max(0.0, (flush_at - steady()) / _SECOND))
            self._wake.clear()
            if self._stopping.is_set():
                break
            if steady() >= flush_at:
                flush_at = steady() + interval
                self.work()
            else:
                self._take()
                if self._full:
                    self.work()
        self.work(last=True)

    def open(self) -> bool:
        """Read the stored files. Returns False if the disk fails; then the values that wait are dropped."""
        buffer = SampleBuffer()
        try:
            self._store.open(buffer)
        except Exception as error:  # noqa: BLE001  an internal error must not end the thread
            self._note_failure("recent.not_opened", error)
            self._take()
            with self._lock:
                self._drop(self._buffer)
                self._buffer = SampleBuffer()
            return False
        self.failing = ""
        with self._lock:
            self._buffer = buffer
            self._stored_until = self._now()
        self._set_seal()
        self._loaded.set()
        return True

    def _set_seal(self) -> None:
        self._seal_at = self._clock.steady() + int(self._settings.seal_interval * _SECOND)

    @property
    def _full(self) -> bool:
        return self._buffer.bytes > self._settings.max_memory // 2

    def _take(self) -> None:
        """Move queued changes into the buffer."""
        with self._lock:
            self._take_locked()

    def _take_locked(self) -> None:
        while True:
            try:
                change, now = self._queue.popleft()
            except IndexError:
                return
            added, removed, _, _ = change.sizes
            self._queued -= added + removed
            try:
                self._tracker.apply(change, now, self._buffer)
            except Exception:  # noqa: BLE001  an internal error in one change must not end the recording of others
                _log.exception("recent.change_failed")

    def work(self, *, last: bool = False) -> None:
        """Write new values to the disk, and do the due work on files. `last`: the gateway stops."""
        self._take()
        try:
            if self._sealing is not None:
                self._seal()
            self._flush()
            if not last and (self._full or self._clock.steady() >= self._seal_at):
                self._seal()
                self._aggregate()
                self._store.prune(self._now(), trusted=self._clock.trusted())
        except StopAggregation:
            pass  # the next run makes the aggregates
        except Exception as error:  # noqa: BLE001  an internal error must not end the thread
            self._note_failure("recent.write_failed", error)
            self._limit_memory()
        else:
            if self.failing:
                _log.info("recent.write_recovered")
            self.failing = ""

    def _note_failure(self, event: str, error: Exception) -> None:
        """Log the first one of several failures."""
        if not self.failing:
            _log.error(event, extra={"reason": str(error)}, exc_info=None if isinstance(error, OSError) else error)
        self.failing = str(error) or type(error).__name__

    def _flush(self) -> None:
        now = self._now()
        with self._lock:
            if self._stored_until > now:  # the wall clock was set back
                self._stored_until = now
            begin = self._stored_until
            if not any(True for _ in self._buffer.fresh()):
                return
            chunk = self._store.chunk(self._buffer, begin, now)
        self._store.append(chunk)
        with self._lock:
            self._buffer.record(begin, now)
        self._stored_until = now

    def _seal(self) -> None:
        with self._lock:
            if self._sealing is None:
                if not self._buffer:
                    self._set_seal()
                    return
                self._sealing, self._buffer = self._buffer, SampleBuffer()
            sealing = self._sealing
        self._store.seal(sealing)
        with self._lock:
            self._sealing = None
        self._set_seal()

    def _aggregate(self) -> None:
        done = self._store.aggregated
        waiting = [file for file in self._store.of("raw") if file.header.generation > done]
        if waiting and waiting[-1].ended - waiting[0].began >= int(self._settings.aggregation_interval * TICKS):
            self._store.aggregate()

    def _limit_memory(self) -> None:
        """Drop the older values if the disk has failed for so long that the memory is full."""
        with self._lock:
            if self._full:
                if self._sealing is not None:
                    self._drop(self._sealing)
                self._sealing, self._buffer = self._buffer, SampleBuffer()

    def _drop(self, buffer: SampleBuffer) -> None:
        if lost := sum(len(series.times) for series in buffer.series.values()):
            self.lost += lost
            _log.error("recent.values_lost", extra={"values": self.lost})

    # Requests

    def read(self, request: SeriesRequest, readable: Readable, timeout: float = math.inf) -> list[SeriesResult]:
        """Return the series of the requested observations, in the order of the request.

        `timeout` is in seconds. Observations without values that the client may read are left out. Raises `NotFound`
        if all are, `NotReady`, `RequestTimeout`, and `ResultTooLarge` for too many rows.
        """
        deadline = self._clock.steady() / _SECOND + timeout
        snapshot = self._snapshot(set(request.observations))
        begin, end = request.begin // MICROSECONDS, -(-request.end // MICROSECONDS)
        # Periods begin at multiples of their length, so those of the next request are the same. One more than fits may
        # be touched.
        step = 0 if request.points is None else -(-(end - begin) // max(1, request.points - 1))
        if step >= MINUTE:
            step = -(-step // MINUTE) * MINUTE
        found: list[SeriesResult] = []
        rows = 0
        for observation in dict.fromkeys(request.observations):
            blocks = self._blocks(snapshot, observation, begin, end, step, deadline)
            for key in sorted(blocks):
                if not readable(key.graph):
                    continue
                points = Points(key.kind, blocks[key], begin, end)
                found.append(_result(key, points, request, step, snapshot.recorded))
                rows += len(found[-1].rows)
                if rows > _MOST_ROWS:
                    raise ResultTooLarge(
                        f"The response has more than {_MOST_ROWS:,} rows; ask for a shorter period, fewer observations "
                        "or fewer points"
                    )
        if not found:
            raise NotFound(
                "None of these observations has a recorded value that you may read; the list of all series is at "
                "/api/series"
            )
        return found

    def available(self, readable: Readable, timeout: float = math.inf) -> list[SeriesExtent]:
        """Return all series that the client may read. `timeout` is in seconds.

        Raises `NotReady`, `RequestTimeout`, and `ResultTooLarge` for too many series.
        """
        deadline = self._clock.steady() / _SECOND + timeout
        snapshot = self._snapshot(None)
        extents: dict[SeriesKey, tuple[int, int]] = {}
        for file in snapshot.files:
            self._check_time(deadline)
            for key in self._store.names(file):
                begin, end = extents.get(key, (file.began, file.ended))
                extents[key] = min(begin, file.began), max(end, file.ended)
            if len(extents) > _MOST_LISTED:
                raise ResultTooLarge(
                    f"The gateway has more than {_MOST_LISTED:,} series, too many for a list; name the observations"
                )
        for key, block in snapshot.unsealed:
            if block.times:
                begin, end = extents.get(key, (block.times[0], block.times[-1]))
                extents[key] = min(begin, *block.times), max(end, *block.times)
        return [
            SeriesExtent(key.observation, key.graph, key.kind, begin * MICROSECONDS, end * MICROSECONDS)
            for key, (begin, end) in sorted(extents.items(), key=lambda each: (each[0].observation, each[0]))
            if readable(key.graph)
        ]

    def _check_time(self, deadline: float) -> None:
        if self._clock.steady() / _SECOND > deadline:
            raise RequestTimeout("Reading the recent values took too long; ask for a shorter period")

    def _snapshot(self, observations: set[str] | None) -> _Snapshot:
        if not self._loaded.wait(0 if self.failing else _START_TIMEOUT):
            reason = f"The recent history cannot be read: {self.failing}" if self.failing else "It is still being read"
            raise NotReady(f"{reason}; the gateway tries again by itself")
        with self._lock:
            self._take_locked()
            buffers = [self._buffer] if self._sealing is None else [self._sealing, self._buffer]
            unsealed: list[tuple[SeriesKey, Block]] = [
                (key, samples(series) if observations is not None else _ends(series))
                for buffer in buffers
                for key, series in buffer.series.items()
                if observations is None or key.observation in observations
            ]
            periods = SampleBuffer()
            files = self._store.files
            for begin, end in sorted(
                [*(period for file in files for period in file.header.recorded)]
                + [period for buffer in buffers for period in buffer.recorded]
                + [(self._stored_until, max(self._stored_until, self._now()))]
            ):
                periods.record(begin, end)
            return _Snapshot(files, self._store.aggregated, unsealed, periods.recorded)

    def _blocks(
        self, snapshot: _Snapshot, observation: str, begin: int, end: int, step: int, deadline: float
    ) -> dict[SeriesKey, list[Block]]:
        """Return the blocks that answer a request. Series without values in the period have an empty list.

        Aggregates answer requests for periods of whole minutes, raw samples all others as far as they go back. No
        value is in two of the blocks.
        """
        blocks: dict[SeriesKey, list[Block]] = {}
        raw = [file for file in snapshot.files if file.header.level == "raw"]
        by_minutes = step >= MINUTE
        # From here on raw files answer; it is a whole minute, so no aggregate is on both sides.
        border = end if by_minutes or not raw else -(-raw[0].began // MINUTE) * MINUTE
        for file in snapshot.files:
            self._check_time(deadline)
            level, generation = file.header.level, file.header.generation
            if level == "raw" and by_minutes and generation <= snapshot.aggregated:
                continue
            relevant = file.header.first < end and file.header.last >= begin
            if level == "minutes" and not by_minutes and file.header.first >= border:
                relevant = False
            if not relevant:
                continue
            for key, block in self._store.read(file, observation):
                known = blocks.setdefault(key, [])
                if by_minutes or (level == "raw" and generation > snapshot.aggregated):
                    known.append(block)
                else:
                    known.append(_part(block, border, before=level == "minutes"))
        for key, block in snapshot.unsealed:
            if key.observation == observation:
                blocks.setdefault(key, []).append(block)
        if not blocks:
            # The observation is unknown only if no file has it.
            for file in snapshot.files:
                blocks = {key: [] for key, _ in self._store.read(file, observation)}
                if blocks:
                    break
        return blocks


def _ends(series: SeriesBuffer) -> Samples:
    """Return the first and the last time of a series, without its values."""
    return Samples([min(series.times), max(series.times)] if series.times else [], [], [])


def _part(block: Block, border: int, *, before: bool) -> Block:
    """Return the values before a time, or from it on."""
    chosen = [place for place, time in enumerate(block.times) if (time < border) == before]
    if len(chosen) == len(block.times):
        return block

    def of(column: list[T]) -> list[T]:
        return [column[place] for place in chosen] if column else column

    if isinstance(block, Samples):
        return Samples(of(block.times), of(block.values), block.texts)
    low, high, mean = map(of, (block.low, block.high, block.mean))
    return Minutes(of(block.times), of(block.last), of(block.counts), low, high, mean, block.texts)


def _result(
    key: SeriesKey, points: Points, request: SeriesRequest, step: int, recorded: Sequence[tuple[int, int]]
) -> SeriesResult:
    as_stored = request.points is None or len(points) <= request.points
    origin = request.begin // MICROSECONDS if request.points == 1 else 0
    rows = points.rows() if as_stored else points.periods(max(1, step), origin)
    used = None if as_stored else step * MICROSECONDS
    return SeriesResult(key.observation, key.graph, key.kind, used, list(_with_gaps(rows, recorded, used or 0)))


def _with_gaps(rows: Iterable[SeriesRow], recorded: Sequence[tuple[int, int]], step: int) -> Iterable[SeriesRow]:
    """Add a row without value at the beginning of each period in which nothing was recorded."""
    gaps = deque((end * MICROSECONDS, begin * MICROSECONDS) for (_, end), (begin, _) in pairwise(recorded))
    before: SeriesRow | None = None
    for row in rows:
        while gaps and gaps[0][1] <= (0 if before is None else before.time):
            gaps.popleft()
        # A gap within an aggregated period, or between two neighbours, is not visible.
        if before is not None and gaps and (begin := max(gaps[0][0], before.time + step)) < min(gaps[0][1], row.time):
            yield SeriesRow(begin, None)
        yield row
        before = row
