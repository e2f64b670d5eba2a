"""The recent history: takes committed changes from the engine, stores them on its own thread, and answers requests.

The writer thread adds new values to the buffer itself: to hand each of them to another thread takes three times as
long. It never waits: while the recording thread uses the buffer, and for large changes, it appends to a queue. The
recording thread wakes up every `flush_interval`, or earlier if buffer or queue are full. A disk that fails or hangs
delays neither updates nor readings: the values wait in memory, up to its limit.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from edge.engine.clock import Clock
from edge.engine.scheduling.scheduler import Scheduler
from edge.engine.store.changes import ChangeSet
from edge.protocol.errors import NotReady
from edge.protocol.event_stream import NodeName, StreamNode, StreamOutline
from edge.protocol.series import SeriesExtent, SeriesRequest, SeriesResult
from edge.recent.block_file import Block, Samples
from edge.recent.buffer import SampleBuffer, SeriesBuffer, add_period
from edge.recent.event_stream import EventStreamReader, StreamSnapshot, view
from edge.recent.series import MICROSECONDS, TICKS, SeriesKey
from edge.recent.series_reader import Readable, SeriesReader, Snapshot
from edge.recent.settings import RecentSettings
from edge.recent.store import NAME, RecentStore, StopAggregation, samples
from edge.recent.value_tracker import RelevantChange, ValueTracker, relevant

_log = logging.getLogger(__name__)

_LARGE: Final = 500
"""Statements of a change set that the recording thread looks at, instead of the writer thread."""
_MOST_QUEUED: Final = 8_000
"""Size of the queue at which the writer thread empties it, because the recording thread does not: about 4 MB."""
_SECOND: Final = 1_000_000
"""Microseconds."""
_LARGEST_BUFFER: Final = 64 * 1024 * 1024
"""Bytes of a buffer that is written into a file. The list of pages of a larger one would be too long to be sent."""
_START_TIMEOUT: Final = 10.0
"""Seconds that a request waits for the files after a start."""


class RecentHistory:
    """The recent values of all observations. `start` and `stop` run once; other methods are thread-safe."""

    def __init__(self, data_dir: Path, settings: RecentSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._stopping = threading.Event()
        self._store = RecentStore(data_dir / NAME, settings, self._stopping)
        self._reader = SeriesReader(self._store, clock)
        self._event_stream = EventStreamReader(self._store, settings, clock)
        self._tracker = ValueTracker()
        self._queue: deque[tuple[ChangeSet | RelevantChange, int]] = deque()
        self._queued = 0
        """Size of the queue: statements of small changes, and `_LARGE` + 1 for each large one."""
        self._lock = threading.Lock()
        """Held to change the buffers, the tracker and the list of files; not while the disk works."""
        self._buffer = SampleBuffer()
        self._sealing: SampleBuffer | None = None
        """A full buffer that is being written into a file."""
        self._open_log = 0
        """Identity of the log that gets new values, as readers may know it."""
        self._dropped = False
        """Whether values were dropped from memory since the log was begun."""
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
            if added + removed > _LARGE:
                # The thread takes it at once: to look at all its statements takes too long here.
                self._queue.append((change, now))
                self._queued += _LARGE + 1
            elif (chosen := relevant(change)) is not None and not self._apply(chosen, now):
                self._queue.append((chosen, now))
                self._queued += chosen.size
        if self._queued > _LARGE or self._full:
            self._wake.set()

    def _apply(self, change: RelevantChange, now: int) -> bool:
        """Add the values of a change to the buffer. Returns False if it has to wait for its turn."""
        if not self._loaded.is_set() or not self._lock.acquire(blocking=False):
            return False
        try:
            if self._queue:
                if _LARGE < self._queued < _MOST_QUEUED:
                    return False
                self._take_locked()  # a few small changes, or the thread has not come for long: the disk may hang
            if self._buffer.bytes > self._settings.max_memory:
                self._drop_buffer()
            self._tracker.apply(change, now, self._buffer)
        except Exception:  # noqa: BLE001  an internal error here must not fail the update
            _log.exception("recent.change_failed")
        finally:
            self._lock.release()
        return True

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
            self._wake.clear()
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
                self._drop_buffer()
            return False
        self.failing = ""
        with self._lock:
            self._buffer = buffer
            self._open_log = self._store.log
            self._stored_until = self._now()
        self._set_seal()
        self._loaded.set()
        return True

    def _set_seal(self) -> None:
        self._seal_at = self._clock.steady() + int(self._settings.seal_interval * _SECOND)

    @property
    def _full(self) -> bool:
        return self._buffer.bytes > min(self._settings.max_memory // 2, _LARGEST_BUFFER)

    def _take(self) -> None:
        """Move queued changes into the buffer."""
        with self._lock:
            self._take_locked()

    def _take_locked(self) -> None:
        # Only here, and not with each change: the writer thread adds to it at the same time.
        self._queued = 0
        while True:
            try:
                change, now = self._queue.popleft()
            except IndexError:
                return
            try:
                chosen = relevant(change) if isinstance(change, ChangeSet) else change
                if chosen is not None:
                    self._tracker.apply(chosen, now, self._buffer)
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
        now, trusted = self._now(), self._clock.trusted()
        with self._lock:
            self._renew_log()
            if self._stored_until > now:  # the wall clock was set back
                self._stored_until = now
            begin = self._stored_until
            if not any(True for _ in self._buffer.fresh()):
                return
            buffer = self._buffer
            self._store.set_time(now, trusted=trusted)
            chunk = self._store.chunk(buffer, begin, now)
        written = self._store.append(chunk)
        with self._lock:
            if written:
                buffer.publish(chunk.batch)
            self._buffer.record(begin, now)
        self._stored_until = now
        if not written:  # the memory has the values of the log, too, so a raw file takes its place
            self._seal()

    def _renew_log(self) -> None:
        """Begin a new log after values were dropped, so that others cannot get their places in the event stream.

        The caller holds the lock.
        """
        if self._dropped:
            self._dropped = False
            self._store.renew_log(self._buffer)
            self._open_log = self._store.log

    def _seal(self) -> None:
        with self._lock:
            self._renew_log()
            if self._sealing is None:
                if not self._buffer:
                    self._set_seal()
                    return
                self._sealing, self._buffer = self._buffer, SampleBuffer()
            sealing = self._sealing
        self._store.set_time(self._now(), trusted=self._clock.trusted())
        file = self._store.seal(sealing)
        with self._lock:
            # At once, because a request must not find the samples in both.
            self._store.add(file)
            self._sealing = None
            self._open_log = self._store.log
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

    def _drop_buffer(self) -> None:
        self._drop(self._buffer)
        self._buffer = SampleBuffer()

    def _drop(self, buffer: SampleBuffer) -> None:
        self._dropped = True
        if lost := sum(len(series.times) for series in buffer.series.values()):
            self.lost += lost
            _log.error("recent.values_lost", extra={"values": self.lost})

    # Requests

    def read(self, request: SeriesRequest, readable: Readable, timeout: float = math.inf) -> list[SeriesResult]:
        """Return the series of the requested observations. `timeout` is in seconds.

        Observations without values that the client may read are left out. Raises `NotFound` if all are, `NotReady`,
        `RequestTimeout`, and `ResultTooLarge` for too many rows.
        """
        deadline = self._clock.steady() / _SECOND + timeout
        return self._reader.read(self._snapshot(set(request.observations)), request, readable, deadline)

    def available(self, readable: Readable, timeout: float = math.inf) -> list[SeriesExtent]:
        """Return all series that the client may read. `timeout` is in seconds.

        Raises `NotReady`, `RequestTimeout`, and `ResultTooLarge` for too many series.
        """
        deadline = self._clock.steady() / _SECOND + timeout
        return self._reader.available(self._snapshot(None), readable, deadline)

    def outline(self, timeout: float = math.inf) -> StreamOutline:
        """Return the sections of the event stream. `timeout` is in seconds. Raises `NotReady`, `RequestTimeout`."""
        deadline = self._clock.steady() / _SECOND + timeout
        stream = self._event_stream
        return StreamOutline(stream.outline(self._stream_snapshot(), deadline), stream.retention, stream.interval)

    def node(self, name: NodeName, readable: Readable, timeout: float = math.inf) -> StreamNode:
        """Return a section of the event stream, or a page with the members that the client may read.

        `timeout` is in seconds. Raises `Gone`, `NotFound`, `NotReady` and `RequestTimeout`.
        """
        deadline = self._clock.steady() / _SECOND + timeout
        return self._event_stream.node(self._stream_snapshot(), name, readable, deadline)

    def _stream_snapshot(self) -> StreamSnapshot:
        self._wait_until_loaded()
        with self._lock:
            buffers = [self._buffer] if self._sealing is None else [self._sealing, self._buffer]
            return StreamSnapshot(self._store.of("raw"), list(map(view, buffers)), self._open_log)

    def _wait_until_loaded(self) -> None:
        if not self._loaded.wait(0 if self.failing else _START_TIMEOUT):
            reason = f"The recent history cannot be read: {self.failing}" if self.failing else "It is still being read"
            raise NotReady(f"{reason}; the gateway tries again by itself")

    def _snapshot(self, observations: set[str] | None) -> Snapshot:
        self._wait_until_loaded()
        with self._lock:
            self._take_locked()
            buffers = [self._buffer] if self._sealing is None else [self._sealing, self._buffer]
            unsealed: list[tuple[SeriesKey, Block]] = [
                (key, samples(series) if observations is not None else _ends(series))
                for buffer in buffers
                for key, series in buffer.series.items()
                if observations is None or key.observation in observations
            ]
            periods: list[tuple[int, int]] = []
            files = self._store.files
            for begin, end in sorted(
                [*(period for file in files for period in file.header.recorded)]
                + [period for buffer in buffers for period in buffer.recorded]
                + [(self._stored_until, max(self._stored_until, self._now()))]
            ):
                add_period(periods, begin, end)
            return Snapshot(files, unsealed, periods)


def _ends(series: SeriesBuffer) -> Samples:
    """Return the first and the last time of a series, without its values."""
    return Samples([min(series.times), max(series.times)] if series.times else [], [], [])
