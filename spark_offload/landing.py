"""Landing zone from the ingester's point of view: pending segments, damaged segments and acknowledgements.

    GATEWAY/EPOCH/FIRST-LAST.tsv.gz, .json            pending segments (`edge.outbox.segment`)
    GATEWAY/ack.json                                  numbers that are durable in the table
    quarantine/GATEWAY/EPOCH/FIRST-LAST.*, .reason    damaged segments; their gateway sends them again

Gateways, receivers and ingesters use the directory at the same time. Any file may disappear between two accesses.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from edge.outbox.segment import (
    EPOCH,
    GATEWAY,
    MANIFEST,
    MOST_READ_BYTES,
    ROWS,
    STEM,
    SegmentDamaged,
    SegmentManifest,
)
from spark_offload.errors import LandingRefused

ACKNOWLEDGED: Final = "ack.json"
QUARANTINE: Final = "quarantine"
REASON: Final = ".reason"
SCHEMA: Final = 1
"""Schema of the acknowledgements."""
_MOST_ACKNOWLEDGED: Final = 1 << 20
"""Bytes of a file of acknowledgements."""
_MOST_REASON: Final = 1 << 20
"""Bytes of a file with the reason of a quarantine."""
_CLEANED_EACH: Final = 1 / 24
"""Interval between two searches of a directory for old files, as a part of the time for which files are kept."""

_FileState = tuple[int, int, int]
"""Inode, size and modification time in nanoseconds: a replaced file has another state."""


class OutboxEpoch(NamedTuple):
    """Series of numbers: an epoch of a gateway's outbox."""

    gateway: str
    epoch: str

    def __str__(self) -> str:
        return f"{self.gateway}/{self.epoch}"

    @property
    def valid(self) -> bool:
        """Whether a gateway may have this name. Rows of other programs may have any text, or none."""
        return all(
            isinstance(name, str) and form.fullmatch(name)
            for name, form in ((self.gateway, GATEWAY), (self.epoch, EPOCH))
        )


class PendingSegment(NamedTuple):
    """A segment in the landing zone, with the data from its file name."""

    outbox: OutboxEpoch
    first: int
    last: int
    manifest: Path

    @classmethod
    def at(cls, manifest: Path, gateway: str, epoch: str) -> PendingSegment:
        """Return the segment with a manifest of a valid name."""
        first, last = manifest.name.removesuffix(MANIFEST).split("-")
        return cls(OutboxEpoch(gateway, epoch), int(first), int(last), manifest)

    def __str__(self) -> str:
        return f"{self.outbox}/{self.stem}"

    @property
    def stem(self) -> str:
        """File name without its suffix."""
        return self.manifest.name.removesuffix(MANIFEST)

    @property
    def rows(self) -> Path:
        """Path of the file with the rows."""
        return self.manifest.with_name(self.stem + ROWS)


class Quarantined(NamedTuple):
    """A damaged segment in quarantine."""

    outbox: OutboxEpoch
    stem: str
    reason: str


class LandingZone:
    """An existing landing zone."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Open a landing zone. Raises `LandingRefused` if the directory does not exist."""
        self.folder = folder = Path(folder)
        self._acknowledged: dict[str, tuple[_FileState, dict[str, dict[str, int]]]] = {}
        self._cleaned: dict[OutboxEpoch, float] = {}
        # Not created here: a mount that is missing must not be replaced by a directory on the local disk.
        if not folder.is_dir():
            raise LandingRefused(f"{folder} is not a directory: create or mount it before gateways ship to it")

    def gateways(self) -> list[str]:
        """Return the gateways with a directory, sorted by name."""
        return [name for name in _folders(self.folder) if GATEWAY.fullmatch(name) and name != QUARANTINE]

    def epochs(self, gateway: str) -> list[str]:
        """Return the epochs of a gateway that have a directory, sorted."""
        try:
            return [name for name in _folders(self.folder / gateway) if EPOCH.fullmatch(name)]
        except FileNotFoundError:
            return []

    def outboxes(self) -> Iterator[OutboxEpoch]:
        """Yield the outboxes that have sent data, sorted by name."""
        for gateway in self.gateways():
            for epoch in self.epochs(gateway):
                yield OutboxEpoch(gateway, epoch)

    def segments(self, outbox: OutboxEpoch) -> list[PendingSegment]:
        """Return the segments with a manifest, sorted by first number."""
        folder, found = self._folder(outbox), []
        for file in _files(folder):
            name = STEM.fullmatch(file.removesuffix(MANIFEST)) if file.endswith(MANIFEST) else None
            if name:
                found.append(PendingSegment(outbox, int(name[1]), int(name[2]), folder / file))
        return sorted(found)

    def manifest(self, segment: PendingSegment) -> SegmentManifest:
        """Read the manifest of a segment. Raises `SegmentDamaged`, `SegmentNewer`, `OSError`."""
        manifest = SegmentManifest.from_json(_content(segment.manifest, MOST_READ_BYTES))
        if (manifest.gateway, manifest.epoch, manifest.first, manifest.last) != (*segment.outbox, *segment[1:3]):
            raise SegmentDamaged(f"its manifest is that of {manifest.folder}/{manifest.stem}")
        return manifest

    def rows(self, segment: PendingSegment, manifest: SegmentManifest) -> bytes:
        """Read the rows file of a segment. Raises `SegmentDamaged`, `OSError`."""
        return _content(segment.rows, manifest.size)

    def put_tombstone(self, manifest: SegmentManifest) -> None:
        """Write a tombstone for numbers that were accepted as lost. Raises `OSError`.

        A gateway without a directory ships to another landing zone.
        """
        folder = self._folder(OutboxEpoch(manifest.gateway, manifest.epoch))
        if folder.is_dir():
            write(folder / (manifest.stem + MANIFEST), manifest.to_json())

    def quarantine(self, segment: PendingSegment, reason: str) -> None:
        """Move a damaged segment to quarantine, for inspection. Its gateway then sends it again. Raises `OSError`.

        The manifest is moved last. A crash in between leaves a manifest without rows, which the next round finds to be
        damaged again. Rows without a manifest would block their numbers forever.
        """
        target = self.folder / QUARANTINE / segment.outbox.gateway / segment.outbox.epoch
        target.mkdir(parents=True, exist_ok=True)
        write(target / segment.manifest.with_suffix(REASON).name, f"{reason}\n".encode())
        for path in (segment.rows, segment.manifest):
            with contextlib.suppress(FileNotFoundError):
                path.replace(target / path.name)
                sync(path.parent)

    def quarantined(self) -> list[Quarantined]:
        """Return the segments in quarantine, until an operator removes them."""
        found = []
        for path in sorted((self.folder / QUARANTINE).glob(f"*/*/*{REASON}")):
            try:
                reason = _content(path, _MOST_REASON).decode(errors="replace").strip()
            except FileNotFoundError:  # the operator has removed it
                continue
            except (SegmentDamaged, OSError) as error:
                reason = f"its reason cannot be read: {error}"
            outbox = OutboxEpoch(path.parent.parent.name, path.parent.name)
            found.append(Quarantined(outbox, path.name.removesuffix(REASON), reason))
        return found

    def acknowledged(self, gateway: str) -> dict[str, dict[str, int]]:
        """Return for each epoch `last`, the last number in the table, and `table_version`, the version that added it.

        Returns an empty mapping if the file is missing or damaged; the next round of the ingester writes it again.
        If it cannot be read at the moment, returns what it had before. The file is read again only if it has changed: a
        round looks at those of all gateways.
        """
        try:
            return self._read_acknowledged(gateway)
        except OSError:
            return self._acknowledged[gateway][1] if gateway in self._acknowledged else {}

    def is_acknowledged(self, segment: PendingSegment) -> bool:
        """Return whether observations of a segment were acknowledged: its gateway has deleted these."""
        epochs = self.acknowledged(segment.outbox.gateway)
        return segment.first <= epochs.get(segment.outbox.epoch, {}).get("last", 0)

    def _read_acknowledged(self, gateway: str) -> dict[str, dict[str, int]]:
        """Return the same as `acknowledged`. Raises `OSError` if the file exists and cannot be read."""
        path = self.folder / gateway / ACKNOWLEDGED
        try:
            status = path.stat()
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return {}
        state = (status.st_ino, status.st_size, status.st_mtime_ns)
        known = self._acknowledged.get(gateway)
        if known is None or known[0] != state:
            known = self._acknowledged[gateway] = (state, _acknowledged(path))
        return known[1]

    def acknowledge(self, positions: Mapping[OutboxEpoch, int], version: int) -> list[tuple[Path, OSError]]:
        """Acknowledge to gateways the numbers that are in a version of the table. Returns the files that failed.

        An acknowledgement never decreases: the gateway may have deleted the acknowledged observations.
        """
        failed = []
        by_gateway: dict[str, dict[str, int]] = {}
        for outbox, last in positions.items():
            by_gateway.setdefault(outbox.gateway, {})[outbox.epoch] = last
        for gateway, epochs in by_gateway.items():
            try:
                before = self._read_acknowledged(gateway)
            except OSError as error:  # without it, the new content could decrease an acknowledgement
                failed.append((self.folder / gateway / ACKNOWLEDGED, error))
                continue
            after = dict(before)
            for epoch, last in epochs.items():
                if last > before.get(epoch, {}).get("last", 0):
                    after[epoch] = {"last": last, "table_version": version}
            # A gateway without a directory ships to another landing zone.
            if after != before and (self.folder / gateway).is_dir():
                body = {"schema": SCHEMA, "acknowledged": dict(sorted(after.items()))}
                try:
                    write(self.folder / gateway / ACKNOWLEDGED, json.dumps(body).encode())
                except OSError as error:
                    failed.append((self.folder / gateway / ACKNOWLEDGED, error))
        return failed

    def clean(self, positions: Mapping[OutboxEpoch, int], keep: float) -> int:
        """Remove the files of ingested segments that are older than `keep` seconds. Returns the number of files.

        A file that cannot be removed stays. A directory is searched again only after a part of `keep`, because a round
        would otherwise read the times of all files.
        """
        removed, now = 0, time.monotonic()
        for outbox, position in positions.items():
            if now - self._cleaned.get(outbox, -math.inf) < keep * _CLEANED_EACH:
                continue
            self._cleaned[outbox] = now
            folder = self._folder(outbox)
            for file in _files(folder):
                name = STEM.fullmatch(file.removesuffix(MANIFEST).removesuffix(ROWS))
                if name and int(name[2]) <= position and age(folder / file) > keep:
                    with contextlib.suppress(OSError):
                        (folder / file).unlink()
                        removed += 1
        return removed

    def _folder(self, outbox: OutboxEpoch) -> Path:
        return self.folder / outbox.gateway / outbox.epoch


def _content(path: Path, most: int) -> bytes:
    """Read a regular file. Raises `SegmentDamaged` if it is another kind of file or larger, `OSError`."""
    # A gateway with access to the directory may make anything there; opening a pipe would wait forever.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise SegmentDamaged(f"{path.name} is not a regular file")
        if status.st_size > most:
            raise SegmentDamaged(f"{path.name} has {status.st_size} bytes, and the most are {most}")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(most)
    finally:
        os.close(descriptor)


def age(path: Path) -> float:
    """Return the seconds since the last change of a file, or 0 if it no longer exists."""
    try:
        return max(0.0, time.time() - path.stat().st_mtime)
    except FileNotFoundError:
        return 0.0


def write(path: Path, body: bytes) -> None:
    """Replace a file atomically and durably: after a crash it has either the old or the new content."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as draft:
        try:
            draft.write(body)
            draft.flush()
            os.fsync(draft.fileno())
            # Temporary files have mode 0600, and gateways read the acknowledgements as other users.
            Path(draft.name).chmod(0o644)
            Path(draft.name).replace(path)
        except BaseException:
            Path(draft.name).unlink(missing_ok=True)
            raise
    sync(path.parent)


def sync(path: Path) -> None:
    """Sync a file, or the entries of a directory, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _acknowledged(path: Path) -> dict[str, dict[str, int]]:
    """Read acknowledgements; none if they are damaged or gone. Raises `OSError` otherwise."""
    try:
        body: Any = json.loads(_content(path, _MOST_ACKNOWLEDGED))
        return {
            str(epoch): {"last": int(entry["last"]), "table_version": int(entry["table_version"])}
            for epoch, entry in body["acknowledged"].items()
        }
    except (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return {}


def _folders(folder: Path) -> list[str]:
    """Return the names of the directories in a directory, sorted."""
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if _is(entry.is_dir))


def _files(folder: Path) -> list[str]:
    """Return the names of the files in a directory; none if it does not exist."""
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if _is(entry.is_file)]
    except FileNotFoundError:
        return []


def _is(kind: Callable[[], bool]) -> bool:
    """Return the answer of an entry. A loop of symbolic links, which a gateway can make, is of no kind."""
    try:
        return kind()
    except OSError:
        return False
