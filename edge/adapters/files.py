"""Mapping files: built-in packs and the operator's directory, reloaded on changes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edge.adapters.settings import MappingsSettings
from edge.directory_stamps import DirectoryStamps, Stamp
from edge.mapping.errors import Fault, MappingError
from edge.mapping.mapper import Mapper
from edge.mapping.pack import MappingPack, load_builtin
from edge.mapping.settings import MappingLimits
from edge.mapping_files import is_mapping_file, load_file
from edge.protocol.errors import EdgeError

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _File:
    stamp: Stamp
    pack: MappingPack | None
    """The last valid version."""
    reason: str | None
    """Why the newest version cannot be used."""
    faults: tuple[Fault, ...] = ()
    """The same in parts, if they are faults of its mappings."""


class MappingFiles:
    """Current mapper. Changes apply to the next message; an invalid file keeps its last valid version."""

    def __init__(self, settings: MappingsSettings, changed: Callable[[Mapper], None] = lambda _: None) -> None:
        """Read all files. `changed` is called with each new mapper, before it is used, by one thread at a time.

        Raises `MappingError` for an unknown pack. Invalid files of the operator raise nothing.
        """
        self._directory = None if settings.dir is None else DirectoryStamps(settings.dir, is_mapping_file)
        self.limits = MappingLimits(payload=settings.max_payload, readings=settings.max_readings)
        self._interval = settings.reload_interval
        self._changed = changed
        self._packs = [load_builtin(name, limits=self.limits) for name in settings.packs]
        self._files: dict[Path, _File] = {}
        self._stopping = threading.Event()
        self._looking = threading.Lock()
        """Held while the files are read: by the watching thread, or by one that has written a file."""
        self._announced: Mapping[str, tuple[MappingPack, ...]] = {}
        """By their source; replaced as a whole."""
        self._replacing = threading.Lock()
        """Held for a moment while the mapper is replaced."""
        self._thread = threading.Thread(target=self._watch, name="edge-mappings", daemon=True)
        self.reloads = 0
        """Number of changes since the start."""
        self._unlogged: list[tuple[Path, MappingPack]] = []
        """Files that were read, and are not in use yet."""
        self._read()
        self.mapper = self._mapper()
        self._log_read()

    @property
    def watches(self) -> bool:
        """Whether files are watched: `mappings.reload_interval` can be 0."""
        return self._directory is not None and self._interval > 0

    @property
    def alive(self) -> bool:
        """Whether its thread runs."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Watch the directory."""
        if self.watches:
            self._thread.start()

    def stop(self, timeout: float = 2.0) -> None:
        """Stop watching."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def faults(self) -> list[dict[str, object]]:
        """Files that cannot be used: `file`, `reason`, `faults` as `Fault.to_json`, `previous_version_applies`."""
        listed: list[dict[str, object]] = [
            {
                "file": str(path),
                "reason": file.reason,
                "faults": [fault.to_json() for fault in file.faults],
                "previous_version_applies": file.pack is not None,
            }
            for path, file in list(self._files.items())
            if file.reason is not None
        ]
        directory = self._directory
        if directory is not None and directory.unreadable is not None:
            listed.append(
                {"file": str(directory.directory), "reason": directory.unreadable, "previous_version_applies": True}
            )
        return listed

    def look(self) -> bool:
        """Reload changed files. Returns whether the mapper is new. Any thread may call it."""
        with self._looking:
            return self._look()

    def mapper_with(self, path: Path, pack: MappingPack) -> Mapper:
        """Return a mapper as the one in use, but with this pack for a file."""
        with self._looking:
            packs = {known: file.pack for known, file in self._files.items()}
        return self._mapper_of({**packs, path: pack})

    def announce(self, packs: Sequence[MappingPack], source: str = "") -> None:
        """Replace the mappings that devices have announced. They apply to the next message; then call `declare`.

        `source`: protocol of these announcements. Those of others stay.
        """
        with self._replacing:
            self._announced = {**self._announced, source: tuple(packs)}
            self.mapper = self._mapper()

    def declare(self) -> None:
        """Report the mapper to `changed`: it has announced mappings. Waits for the engine."""
        with self._looking:
            self._report(self.mapper)

    def _look(self) -> bool:
        if not self._read():
            return False
        announced, mapper = self._announced, self._mapper()
        self._report(mapper)
        # After `changed`: the mapper's observations are declared before it maps a message.
        with self._replacing:
            self.mapper = mapper if announced is self._announced else self._mapper()
        self._log_read()
        self.reloads += 1
        return True

    def _report(self, mapper: Mapper) -> None:
        try:
            self._changed(mapper)
        except EdgeError as error:  # the engine is not available now; the first value reports the same error
            _log.warning("mappings.not_declared", extra={"reason": error.description})

    def _watch(self) -> None:
        while not self._stopping.wait(self._interval):
            self.look()

    def _mapper(self) -> Mapper:
        return self._mapper_of({path: file.pack for path, file in list(self._files.items())})

    def _mapper_of(self, packs: Mapping[Path, MappingPack | None]) -> Mapper:
        # The operator's files come first, so they take precedence over the included packs.
        own = [pack for path in sorted(packs) if (pack := packs[path]) is not None]
        announced = [pack for each in self._announced.values() for pack in each]
        return Mapper([*own, *self._packs, *announced], self.limits)

    def _read(self) -> bool:
        found = self._stamps()
        if found is None:
            return False
        changed = False
        # `-` makes a set, so the dictionary may change in the loop.
        for path in self._files.keys() - found.keys():
            changed |= self._files.pop(path).pack is not None
            _log.info("mappings.file_removed", extra={"file": str(path)})
        for path, stamp in found.items():
            known = self._files.get(path)
            if known is None or known.stamp != stamp:
                changed |= self._load(path, stamp, known)
        return changed

    def _load(self, path: Path, stamp: Stamp, known: _File | None) -> bool:
        try:
            pack = load_file(path, limits=self.limits, strict=False)
        except Exception as error:  # noqa: BLE001  a defect must end neither the thread nor the start of the gateway
            expected = isinstance(error, MappingError | OSError)
            reason = str(error) if expected else f"{path}: {type(error).__name__}: {error}"
            previous = known.pack if known is not None else None
            # With the stamp of the invalid version, so that it is not read again until it changes.
            faults = error.faults if isinstance(error, MappingError) else ()
            self._files[path] = _File(stamp, previous, reason, faults)
            _log.error(
                "mappings.file_broken",
                extra={"file": str(path), "reason": reason, "previous_version_applies": previous is not None},
                exc_info=not expected,
            )
            return False
        self._files[path] = _File(stamp, pack, None)
        self._unlogged.append((path, pack))
        return True

    def _log_read(self) -> None:
        """Log the files that were read. Only after the mapper is in use: operators wait for these lines."""
        for path, pack in self._unlogged:
            _log.info("mappings.file_read", extra={"file": str(path), "mappings": len(pack.mappings)})
            for warning in pack.warnings:
                _log.warning("mappings.doubtful", extra={"file": str(path), "reason": str(warning)})
        self._unlogged.clear()

    def _stamps(self) -> dict[Path, Stamp] | None:
        """Return the existing files. None: the directory cannot be read, so its files are unknown."""
        directory = self._directory
        if directory is None:
            return {}
        was_readable = directory.unreadable is None
        found = directory.read()
        if found is None and was_readable:
            _log.error(
                "mappings.directory_unreadable",
                extra={"dir": str(directory.directory), "reason": directory.unreadable},
            )
        return found
