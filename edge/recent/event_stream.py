"""Event stream of the stored values: makes pages of the buffers in memory and of the raw files.

Only values on the disk are in the stream, so a power cut cannot give the name of a member to another value. Each log is
a section. Raw files replace logs as a whole, and are removed as a whole, so a page is there completely or not at all.
Damage of a file is final: it costs members, and pages without them are complete. An error of the disk may pass: the
client has to ask again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from edge.engine.clock import Clock
from edge.protocol.errors import Gone, NotFound, NotReady, RequestTimeout
from edge.protocol.event_stream import PAGE_SIZE, Link, Member, NodeName, StreamNode
from edge.protocol.series import Value
from edge.recent.batches import Batch, LogSection, SampleRun, sample_runs, sections
from edge.recent.block_file import Samples
from edge.recent.buffer import SampleBuffer, SeriesBuffer
from edge.recent.series import MICROSECONDS, Kind, SeriesKey
from edge.recent.settings import RecentSettings
from edge.recent.store import RecentStore, StoredFile

_SECOND: Final = 1_000_000
"""Microseconds."""
_MOST_SECTIONS: Final = 10_000
"""Most sections in an outline; older ones are left out. A day has 24, and one for each start."""

_LONGEST_IRI: Final = 500
"""Bytes in UTF-8 of the IRI of an observation in the stream. With longer ones, a page could be too large to be sent.

Each member has it seven times as N-Triples. With the longest texts, a page then takes up to 4 MB.
"""

_NONE: Final = Samples([], [], [])

Readable = Callable[[str], bool]
"""Whether the client may read the graph with this IRI; empty for the default graph."""


class BufferView(NamedTuple):
    """State of a buffer at one time. Samples are only added to a buffer, so a reader needs no lock for them."""

    series: Sequence[tuple[SeriesKey, SeriesBuffer]]
    batches: Sequence[Batch]


class StreamSnapshot(NamedTuple):
    """State of the store at one time."""

    files: Sequence[StoredFile]
    """Raw files in the order of their generations."""
    buffers: Sequence[BufferView]
    open_log: int
    """Identity of the log that gets new values."""


def view(buffer: SampleBuffer) -> BufferView:
    """Return the present state of a buffer. The caller holds its lock."""
    return BufferView(list(buffer.series.items()), list(buffer.batches))


class EventStreamReader:
    """Answers requests from a snapshot. Thread-safe."""

    def __init__(self, store: RecentStore, settings: RecentSettings, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[Path, list[LogSection]] = {}
        """Sections of the raw files."""
        self.retention = int(settings.raw_hours * 3600)
        self.interval = max(1, round(settings.flush_interval))

    def outline(self, snapshot: StreamSnapshot, deadline: float) -> list[Link]:
        """Return the sections of the stream. `deadline`: steady clock in seconds.

        Raises `NotReady`, `RequestTimeout`.
        """
        found: list[LogSection] = []
        for file in snapshot.files:
            self._check_time(deadline)
            found += self._sections(file)
        self._forget_others(snapshot.files)
        for buffer in snapshot.buffers:
            found += sections(buffer.batches)
        return [
            _link(NodeName(section.log, None), section.begins, section.ends, section.log != snapshot.open_log)
            for section in found[-_MOST_SECTIONS:]
        ]

    def node(self, snapshot: StreamSnapshot, name: NodeName, readable: Readable, deadline: float) -> StreamNode:
        """Return a section, or a page with the members that the client may read.

        `deadline`: steady clock in seconds. Raises `Gone` for a removed node, `NotFound` for a page that has not begun,
        `NotReady` if a file cannot be read at the moment, and `RequestTimeout`.
        """
        for buffer in snapshot.buffers:
            for section in sections(buffer.batches):
                if section.log == name.section:
                    closed = section.log != snapshot.open_log
                    if name.page is None:
                        return _section(section, buffer.batches, closed=closed)
                    _check_page(section, name.page, closed=closed)
                    members = _from_buffer(buffer, name.section, name.page, readable)
                    return StreamNode((), members, closed or _is_full(section, name.page))
        problem: NotReady | None = None
        for file in reversed(snapshot.files):
            self._check_time(deadline)
            try:
                known = self._sections(file)
            except NotReady as error:
                problem = error  # another file may have the section
                continue
            for section in known:
                if section.log == name.section:
                    return self._from_file(file, section, name, readable, deadline)
        raise problem or _gone()

    def _sections(self, file: StoredFile) -> list[LogSection]:
        with self._lock:
            known = self._known.get(file.path)
        if known is None:
            try:
                with _reading():
                    known = sections(self._store.batches(file)[1])
            except Gone:
                return []
            with self._lock:
                self._known[file.path] = known
        return known

    def _forget_others(self, files: Iterable[StoredFile]) -> None:
        """Forget the sections of removed files."""
        paths = {file.path for file in files}
        with self._lock:
            for path in [path for path in self._known if path not in paths]:
                del self._known[path]

    def _from_file(
        self, file: StoredFile, section: LogSection, name: NodeName, readable: Readable, deadline: float
    ) -> StreamNode:
        with _reading():
            series, batches = self._store.batches(file)
        if not series:
            with self._lock:
                self._known[file.path] = []
            raise _gone()
        if name.page is None:
            return _section(section, batches, closed=True)
        _check_page(section, name.page, closed=True)
        blocks: dict[SeriesKey, Samples] = {}
        members: list[Member] = []
        for run in sample_runs(batches, name.section, *_positions(name.page)):
            key = series[run.number]
            if not _is_shown(key, readable):
                continue
            if key not in blocks:
                self._check_time(deadline)
                with _reading():
                    found = self._store.read(file, key.observation, strict=True)
                blocks[key] = _NONE
                blocks |= {each: block for each, block in found if isinstance(block, Samples)}
            block = blocks[key]
            if len(block.times) < run.begin + run.size:
                continue  # it is damaged
            places = slice(run.begin, run.begin + run.size)
            members += _members(key, name.section, run, block.times[places], block.values[places], block.texts)
        return StreamNode((), members, complete=True)

    def _check_time(self, deadline: float) -> None:
        if self._clock.steady() / _SECOND > deadline:
            raise RequestTimeout("Reading the stored values took too long; try again later")


@contextmanager
def _reading() -> Iterator[None]:
    """Raises `Gone` if a file is removed, and `NotReady` if it cannot be read at the moment."""
    try:
        yield
    except FileNotFoundError:
        raise _gone() from None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise NotReady(f"The stored values cannot be read at the moment: {reason}; try again later") from error


def _positions(page: int) -> tuple[int, int]:
    return page * PAGE_SIZE, (page + 1) * PAGE_SIZE


def _is_full(section: LogSection, page: int) -> bool:
    return section.end >= (page + 1) * PAGE_SIZE


def _check_page(section: LogSection, page: int, *, closed: bool) -> None:
    if page * PAGE_SIZE >= section.end and not closed:
        raise NotFound("The event stream has no such page yet; follow the links of its nodes")
    if page not in _pages(section):
        raise _gone()


def _pages(section: LogSection) -> range:
    return range(section.first // PAGE_SIZE, -(-section.end // PAGE_SIZE))


def _gone() -> Gone:
    return Gone(
        "The members of this node are no longer stored; begin at /ldes/observations, which links to all nodes that are"
    )


def _link(name: NodeName, begins: int, ends: int, complete: bool) -> Link:
    return Link(name, begins * MICROSECONDS, ends * MICROSECONDS if complete else None)


def _section(section: LogSection, batches: Iterable[Batch], *, closed: bool) -> StreamNode:
    begins: dict[int, int] = {}
    ends: dict[int, int] = {}
    for batch in batches:
        if batch.log == section.log:
            for page in range(batch.first // PAGE_SIZE, -(-batch.end // PAGE_SIZE)):
                begins.setdefault(page, batch.published)
                ends[page] = batch.published
    links = [
        _link(NodeName(section.log, page), begins[page], ends[page], closed or _is_full(section, page))
        for page in _pages(section)
        if page in begins
    ]
    return StreamNode(links, (), closed)


def _is_shown(key: SeriesKey, readable: Readable) -> bool:
    return readable(key.graph) and len(key.observation.encode()) <= _LONGEST_IRI


def _from_buffer(buffer: BufferView, section: int, page: int, readable: Readable) -> list[Member]:
    members: list[Member] = []
    for run in sample_runs(buffer.batches, section, *_positions(page)):
        key, series = buffer.series[run.number]
        if _is_shown(key, readable):
            places = slice(run.begin, run.begin + run.size)
            members += _members(key, section, run, series.times[places], series.values[places], list(series.codes))
    return members


def _members(
    key: SeriesKey, section: int, run: SampleRun, times: Iterable[int], values: Iterable[float], texts: Sequence[str]
) -> Iterable[Member]:
    published = run.published * MICROSECONDS
    for place, (time, value) in enumerate(zip(times, values, strict=True), run.position):
        known = _value(key.kind, value, texts)
        yield Member(key.observation, section, place, time * MICROSECONDS, published, known)


def _value(kind: Kind, value: float, texts: Sequence[str]) -> Value:
    if kind == "text":
        return texts[int(value)]
    # Logs keep the sign of zero, and files do not.
    return bool(value) if kind == "boolean" else float(value) + 0.0
