"""Requests for recent values: chooses the blocks that answer a request, and makes rows of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple, TypeVar

from edge.engine.clock import Clock
from edge.protocol.errors import NotFound, RequestTimeout, ResultTooLarge
from edge.protocol.series import SeriesExtent, SeriesRequest, SeriesResult, SeriesRow
from edge.recent.aggregates import MINUTE, Points
from edge.recent.block_file import Block, Minutes, Samples
from edge.recent.series import MICROSECONDS, SeriesKey
from edge.recent.store import RecentStore, StoredFile, aggregated_in

T = TypeVar("T")

_SECOND: Final = 1_000_000
"""Microseconds."""
_MOST_ROWS: Final = 100_000
"""Most rows of a response, more than a day has seconds."""
_MOST_LISTED: Final = 50_000
"""Most series in a list."""

Readable = Callable[[str], bool]
"""Whether the client may read the graph with this IRI; empty for the default graph."""


class Snapshot(NamedTuple):
    """State of the store at one time."""

    files: Sequence[StoredFile]
    unsealed: Sequence[tuple[SeriesKey, Block]]
    """Samples that are in no finished file."""
    recorded: Sequence[tuple[int, int]]
    """Recorded periods in ticks."""


class SeriesReader:
    """Answers requests from a snapshot. Thread-safe."""

    def __init__(self, store: RecentStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def read(
        self, snapshot: Snapshot, request: SeriesRequest, readable: Readable, deadline: float
    ) -> list[SeriesResult]:
        """Return the series of the requested observations, in the order of the request.

        `deadline` is a time of the steady clock in seconds. Observations without values that the client may read are
        left out. Raises `NotFound` if all are, `RequestTimeout`, and `ResultTooLarge` for too many rows.
        """
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

    def available(self, snapshot: Snapshot, readable: Readable, deadline: float) -> list[SeriesExtent]:
        """Return all series that the client may read. Raises as `read`, and `ResultTooLarge` for too many series."""
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

    def _blocks(
        self, snapshot: Snapshot, observation: str, begin: int, end: int, step: int, deadline: float
    ) -> dict[SeriesKey, list[Block]]:
        """Return the blocks that answer a request. Series without values in the period have an empty list.

        Aggregates answer requests for periods of whole minutes, raw samples all others as far as they go back. No
        value is in two of the blocks.
        """
        blocks: dict[SeriesKey, list[Block]] = {}
        raw = [file for file in snapshot.files if file.header.level == "raw"]
        aggregated = aggregated_in(snapshot.files)
        by_minutes = step >= MINUTE
        # From here on raw files answer; it is a whole minute, so no aggregate is on both sides.
        border = end if by_minutes or not raw else -(-raw[0].began // MINUTE) * MINUTE
        for file in snapshot.files:
            self._check_time(deadline)
            level, generation = file.header.level, file.header.generation
            if level == "raw" and by_minutes and generation <= aggregated:
                continue
            relevant = file.header.first < end and file.header.last >= begin
            if level == "minutes" and not by_minutes and file.header.first >= border:
                relevant = False
            if not relevant:
                continue
            for key, block in self._store.read(file, observation):
                known = blocks.setdefault(key, [])
                if by_minutes or (level == "raw" and generation > aggregated):
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
