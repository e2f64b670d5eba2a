"""Files of the recent history: logs, raw files and files of aggregates, within a limit of disk space.

Samples go to the current log first. When enough are there, the store writes them into a raw file, by series, and
removes the log: both have the same number, the *generation*, so that a crash between the two steps duplicates nothing.
From several raw files the store makes one file of aggregates, and keeps both until they are too old.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edge import durable
from edge.recent.aggregates import Points
from edge.recent.batches import Batch, sections
from edge.recent.block_file import SUFFIX, Block, BlockFile, DamagedFile, Header, Level, Samples, name_of, write
from edge.recent.buffer import SampleBuffer, SeriesBuffer, add_period
from edge.recent.sample_log import Chunk, LogMissing, SampleLog, read
from edge.recent.series import TICKS, SeriesKey
from edge.recent.settings import RecentSettings

_log = logging.getLogger(__name__)

NAME: Final = "recent"
"""Directory in the data directory."""
_LOG: Final = "log-"
DAMAGED: Final = ".damaged"
"""Suffix of damaged files, which the store no longer reads."""
_ALL: Final = (-(2**62), 2**62)
_PASSING: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Errors that say nothing about the file."""
_PAUSE: Final = 0.001
"""Seconds between the series of a long task, so that other threads of the process do not wait for it."""


class StopAggregation(Exception):
    """The gateway stops, and the file of aggregates is not finished. Nothing has changed."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A finished file."""

    path: Path
    header: Header
    size: int

    @property
    def ended(self) -> int:
        """End of its last recorded period in ticks. Times in samples come from devices and may be wrong."""
        return self.header.recorded[-1][1] if self.header.recorded else self.header.last

    @property
    def began(self) -> int:
        """Beginning of its first recorded period in ticks."""
        return self.header.recorded[0][0] if self.header.recorded else self.header.first


class RecentStore:
    """The directory of the recent history. One thread writes; `files` may be read from any thread."""

    def __init__(self, directory: Path, settings: RecentSettings, stopping: threading.Event) -> None:
        """`stopping` interrupts the making of aggregates."""
        self._directory = directory
        self._stopping = stopping
        self._settings = settings
        self.files: tuple[StoredFile, ...] = ()
        """Finished files: those of aggregates first, both in the order of their generations."""
        self._logs: list[SampleLog] = []
        """Logs of the samples in the buffer; the last one is current."""
        self.removed = 0
        """Files removed since the start because of the disk limit."""
        self.damaged = 0
        """Damaged files and blocks found since the start."""
        self._known_damage: set[tuple[Path, str]] = set()
        """Files with the damage that is logged and counted already."""
        self._published = 0
        """Time of the last batch in ticks."""

    @property
    def bytes(self) -> int:
        """Disk space of all files."""
        return sum(file.size for file in self.files) + sum(log.size for log in self._logs)

    def of(self, level: Level) -> list[StoredFile]:
        """Return the finished files of a level."""
        return [file for file in self.files if file.header.level == level]

    @property
    def aggregated(self) -> int:
        """Generation up to which aggregates exist."""
        return aggregated_in(self.files)

    def open(self, buffer: SampleBuffer) -> None:
        """Read the headers of all files, and the samples of the logs into a buffer. Raises `OSError`."""
        durable.make_directory(self._directory, self._directory.parent)
        found: list[StoredFile] = []
        self._logs = []
        for path in sorted(self._directory.iterdir()):
            if path.name.endswith(SUFFIX):
                if (file := self._opened(path)) is not None:
                    found.append(file)
            elif path.name.endswith(".part"):
                path.unlink(missing_ok=True)
        self.files = tuple(found)
        sealed = max((file.header.generation for file in self.files), default=0)
        latest = sealed
        for path in sorted(self._directory.glob(f"{_LOG}*")):
            number = path.name.removeprefix(_LOG)
            if not number.isdecimal():
                continue
            if int(number) <= sealed:
                path.unlink(missing_ok=True)
                continue
            latest = int(number)
            found_end = read(path, buffer)
            details = {"file": str(path), "reason": found_end.reason}
            if found_end.damaged:
                self.damaged += 1
                _log.error("recent.file_damaged", extra=details)
            elif found_end.reason:
                # A power cut ends a log this way, so this is not an error.
                _log.warning("recent.log_ends_early", extra=details)
            log = SampleLog(path)
            log.size = path.stat().st_size
            self._logs.append(log)
        # The samples of former logs are on the disk. They stay there until the next raw file has them.
        for series in buffer.series.values():
            series.written, series.written_texts = len(series.times), len(series.codes)
        self._note_published(buffer)
        self._begin_log(latest + 1, buffer)

    def _note_published(self, buffer: SampleBuffer) -> None:
        """Continue after the last batch on the disk, although the clock may have been set back."""
        self._published = max((batch.published for batch in buffer.batches if batch.log), default=0)
        for file in reversed(self.of("raw")):
            try:
                series, batches = self.batches(file)
            except OSError:
                series, batches = [], []
            found = sections(batches)
            # The batches of a damaged file are unknown. The last one was about at the end of the recorded period.
            known = [section.ends for section in found] if series else [file.ended]
            self._published = max([self._published, *known])
            if found:
                break

    def _begin_log(self, generation: int, buffer: SampleBuffer) -> None:
        self._logs.append(SampleLog(self._directory / f"{_LOG}{generation:08d}"))
        # A log must contain every text that its codes mean.
        for series in buffer.series.values():
            series.written_texts = 0

    def _opened(self, path: Path) -> StoredFile | None:
        try:
            with BlockFile(path) as file:
                if path.name != name_of(file.header.level, file.header.generation):
                    raise DamagedFile("its name is not that of its content")
                return StoredFile(path, file.header, path.stat().st_size)
        except (DamagedFile, OSError) as error:
            if isinstance(error, OSError) and error.errno in _PASSING:
                raise
            self.damaged += 1
            _log.error("recent.file_damaged", extra={"file": str(path), "reason": str(error)})
            with contextlib.suppress(OSError):
                path.rename(path.with_name(path.name + DAMAGED))
            return None

    @property
    def _generation(self) -> int:
        return int(self._logs[-1].path.name.removeprefix(_LOG))

    def set_time(self, now: int, *, trusted: bool) -> None:
        """Set the time at which the next batch is published. `now`: wall clock in ticks; `trusted`: it is right."""
        # The time can never decrease again, so a wrong clock must not set it.
        self._published = max(self._published, now if trusted else min(now, self._published + 1))

    def chunk(self, buffer: SampleBuffer, begin: int, end: int) -> Chunk:
        """Encode the samples that are not on the disk yet. `append` writes them. Call `set_time` before."""
        return self._logs[-1].chunk(buffer, begin, end, self._published)

    def renew_log(self, buffer: SampleBuffer) -> None:
        """Begin a new log for a buffer in place of one whose samples were dropped from memory.

        Those on the disk keep their names: a start reads the former log again, unless a raw file replaces it before.
        """
        if self._logs[-1].size:
            self._begin_log(self._generation + 1, buffer)

    def append(self, chunk: Chunk) -> bool:
        """Write samples to the log. Returns False if the log was deleted: then call `seal`.

        Raises `OSError`; then the next chunk has them too.
        """
        try:
            self._logs[-1].append(chunk)
        except LogMissing as error:
            _log.warning("recent.log_missing", extra={"reason": str(error)})
            return False
        return True

    @property
    def log(self) -> int:
        """Identity of the current log."""
        return self._logs[-1].identity

    def seal(self, buffer: SampleBuffer) -> StoredFile:
        """Write the samples of a buffer, which no longer changes, into a raw file. Call `add` with it next.

        Call `set_time` before. The buffer must not be empty. Raises `OSError`; then nothing has changed.
        """
        logs, generation = self._logs, self._generation
        first = min(min(series.times) for series in buffer.series.values())
        last = max(max(series.times) for series in buffer.series.values())
        if buffer.recorded:
            first, last = min(first, buffer.recorded[0][0]), max(last, buffer.recorded[-1][1])
        header = Header("raw", generation, first, last, tuple(buffer.recorded))
        # Values may have come after the last chunk. They get their place in the stream only now, with the file.
        last_batch = logs[-1].batch(buffer, self._published)
        batches = [*buffer.batches, *([last_batch] if last_batch.numbers else [])]
        file = self._write(header, ((key, samples(series)) for key, series in buffer.series.items()), batches)
        self._logs = [SampleLog(self._directory / f"{_LOG}{generation + 1:08d}")]
        for log in logs:
            # The samples are in the file now; the next start removes a log that stays.
            with contextlib.suppress(OSError):
                log.path.unlink(missing_ok=True)
        return file

    def _write(
        self, header: Header, blocks: Iterable[tuple[SeriesKey, Block]], batches: Sequence[Batch] = ()
    ) -> StoredFile:
        path = write(self._directory, header, blocks, batches)
        file = self._opened(path)
        if file is None:
            raise OSError(f"{path} is damaged right after it was written")
        return file

    def add(self, file: StoredFile) -> None:
        """Make a new file visible to readers."""
        self.files = tuple(sorted((*self.files, file), key=lambda each: each.path.name))

    def aggregate(self) -> None:
        """Make one file of aggregates from all raw files that have none yet. Raises `OSError`, `StopAggregation`."""
        done = self.aggregated
        sources = [file for file in self.of("raw") if file.header.generation > done]
        if not sources:
            return
        recorded: list[tuple[int, int]] = []
        for file in sources:
            for begin, end in file.header.recorded:
                add_period(recorded, begin, end)
        header = Header(
            "minutes",
            sources[-1].header.generation,
            min(file.header.first for file in sources),
            max(file.header.last for file in sources),
            tuple(recorded),
        )
        keys = sorted({key for file in sources for key in self.names(file)})
        with contextlib.ExitStack() as stack:
            opened: list[BlockFile] = []
            for file in sources:
                with self._damage(file.path):
                    opened.append(stack.enter_context(BlockFile(file.path)))
            self.add(self._write(header, self._minutes(keys, opened)))

    def _minutes(self, keys: Iterable[SeriesKey], files: Sequence[BlockFile]) -> Iterator[tuple[SeriesKey, Block]]:
        for key in keys:
            blocks: list[Block] = []
            for file in files:
                with self._damage(file.path):
                    blocks += [block for found, block in file.blocks(key.observation) if found == key]
            points = Points(key.kind, blocks, *_ALL)
            if len(points):
                yield key, points.minutes()
            if self._stopping.wait(_PAUSE):
                raise StopAggregation

    def prune(self, now: int, *, trusted: bool) -> None:
        """Remove files that are too old, and the oldest ones beyond the disk limit. `now` in ticks.

        Without a trusted clock no file is too old: a wrong date would remove everything. Raises `OSError`.
        """
        if trusted:
            done = self.aggregated
            raw = now - int(self._settings.raw_hours * 3600 * TICKS)
            minutes = now - int(self._settings.minutes_days * 86_400 * TICKS)
            for file in self.of("raw"):
                if file.ended < raw and file.header.generation <= done:
                    self._remove(file)
            for file in self.of("minutes")[:-1]:  # the last one has the generation up to which aggregates exist
                if file.ended < minutes:
                    self._remove(file)
        while self.bytes > self._settings.max_bytes and (victim := self._oldest()) is not None:
            _log.warning(
                "recent.disk_limit",
                extra={"removed": victim.path.name, "setting": "recent.max_bytes", "limit": self._settings.max_bytes},
            )
            if victim.header.level == "raw" and victim.header.generation > self.aggregated:
                # A full disk has no space for aggregates, and only the removal makes some.
                with contextlib.suppress(OSError):
                    self.aggregate()
            self.removed += 1
            self._remove(victim)

    def _oldest(self) -> StoredFile | None:
        """Return the file to remove next: the oldest one of the level that takes more than half of the limit.

        A month of aggregates must not leave the last hours without values, nor the reverse.
        """
        raw, minutes = self.of("raw"), self.of("minutes")
        level = raw if sum(file.size for file in raw) > self._settings.max_bytes // 2 else minutes[:-1] or raw
        return level[0] if level else None

    def _remove(self, file: StoredFile) -> None:
        file.path.unlink(missing_ok=True)
        self.files = tuple(each for each in self.files if each is not file)
        self._known_damage -= {each for each in self._known_damage.copy() if each[0] == file.path}

    # Reading, from any thread

    def read(self, file: StoredFile, observation: str, *, strict: bool = False) -> list[tuple[SeriesKey, Block]]:
        """Return the blocks of an observation in a file. A damaged, removed or unreadable file has none.

        `strict`: raises `OSError` if the file is removed or unreadable.
        """
        found: list[tuple[SeriesKey, Block]] = []
        with self._damage(file.path, strict=strict), BlockFile(file.path) as opened:
            found.extend(opened.blocks(observation))
        return found

    def names(self, file: StoredFile) -> list[SeriesKey]:
        """Return the series of a file. A damaged or removed file has none."""
        found: list[SeriesKey] = []
        with self._damage(file.path), BlockFile(file.path) as opened:
            found.extend(opened.names())
        return found

    def batches(self, file: StoredFile) -> tuple[list[SeriesKey], list[Batch]]:
        """Return the series and batches of a file. A damaged file has none.

        Raises `OSError`: `FileNotFoundError` if the file is removed, others if it cannot be read at the moment.
        """
        names: list[SeriesKey] = []
        batches: list[Batch] = []
        with self._damage(file.path, strict=True), BlockFile(file.path) as opened:
            batches += opened.batches()
            names += opened.names()
        return names, batches

    @contextlib.contextmanager
    def _damage(self, path: Path, *, strict: bool = False) -> Iterator[None]:
        """Log damage instead of raising it: the other files are still useful. `strict`: raise `OSError`."""
        try:
            yield
        except OSError as error:
            if strict:
                raise
            if not isinstance(error, FileNotFoundError):  # otherwise it became too old in the meantime
                self._note_damage(path, error)
        except DamagedFile as error:
            self._note_damage(path, error)

    def _note_damage(self, path: Path, error: Exception) -> None:
        """Log and count damage, once: requests find it again and again."""
        found = path, str(error)
        if found not in self._known_damage:
            self._known_damage.add(found)
            self.damaged += 1
            _log.error("recent.file_damaged", extra={"file": str(path), "reason": str(error)})


def aggregated_in(files: Iterable[StoredFile]) -> int:
    """Return the generation up to which these files have aggregates."""
    return max((file.header.generation for file in files if file.header.level == "minutes"), default=0)


def samples(series: SeriesBuffer) -> Samples:
    """Return the samples of a series in a buffer."""
    return Samples(series.times.tolist(), series.values.tolist(), list(series.codes))
