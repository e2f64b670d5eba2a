"""Uploads into a landing zone: files grow in `.uploads`, and are moved to their final place when they are complete.

Received bytes survive a `kill -9`. Parts are not synced one by one, because the digest at the end also detects bytes
that a power cut lost. Files in their final place are synced and never overwritten.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import logging
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from edge.outbox.segment import (
    EPOCH,
    GATEWAY,
    MANIFEST,
    MOST_MANIFEST_BYTES,
    MOST_READ_BYTES,
    ROWS,
    STEM,
    SegmentDamaged,
    SegmentManifest,
    held,
    stem,
)
from edge.outbox.segment_validation import validate_rows
from spark_offload.errors import LandingRefused
from spark_offload.landing import QUARANTINE, LandingZone, sync
from spark_offload.landing_size import LandingSize

UPLOADS: Final = ".uploads"
"""Directory of incomplete files in a landing zone. It is not a valid gateway name."""
KEPT: Final = 24 * 3600.0
"""Seconds after its last part for which an incomplete file is kept."""
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_BLOCK: Final = 1 << 20

_log = logging.getLogger(__name__)


class OffsetWrong(Exception):
    """A part does not begin at the end of the received bytes."""


class Differs(Exception):
    """The upload contradicts an existing file; the text names the conflict and the remedy."""


class DamagedUpload(Exception):
    """The received file does not match its digest or is malformed; it is discarded."""


class UploadTooLarge(Exception):
    """The file exceeds the maximum size of a segment."""


class Full(Exception):
    """The landing zone has no space left, or reached its limit."""


class Name(NamedTuple):
    """Name of a segment file."""

    gateway: str
    epoch: str
    file: str

    @classmethod
    def of(cls, gateway: str, epoch: str, file: str) -> Name | None:
        """Return the name if it has the form of `edge.outbox.segment`, else None. This prevents path traversal."""
        if gateway == QUARANTINE:
            return None
        base = file.removesuffix(ROWS) if file.endswith(ROWS) else file.removesuffix(MANIFEST)
        found = STEM.fullmatch(base)
        if not (GATEWAY.fullmatch(gateway) and EPOCH.fullmatch(epoch) and found and base != file):
            return None
        first, last = int(found[1]), int(found[2])
        return cls(gateway, epoch, file) if 1 <= first <= last and stem(first, last) == base else None

    @property
    def is_manifest(self) -> bool:
        """Whether the file is a manifest, which completes a segment."""
        return self.file.endswith(MANIFEST)

    @property
    def most(self) -> int:
        """Maximum size of the manifest in bytes. That of a single row may be longer: it cannot be divided."""
        first, last = self.file.removesuffix(MANIFEST).split("-")
        return MOST_READ_BYTES if int(first) == int(last) else MOST_MANIFEST_BYTES

    @property
    def path(self) -> Path:
        """Path relative to the landing zone."""
        return Path(self.gateway, self.epoch, self.file)


@dataclass(frozen=True, slots=True)
class State:
    """Progress of an upload."""

    offset: int
    """Number of received bytes."""
    complete: bool


class Uploads:
    """Incomplete and complete files of a landing zone. All methods are thread-safe."""

    def __init__(self, landing: Path, *, largest: int, most: int) -> None:
        """Open a landing zone for uploads and lock it: only one process may receive. Raises `LandingRefused`.

        `largest` is the maximum size of a file, `most` that of the landing zone, both in bytes.
        """
        self._folder = landing / UPLOADS
        self._largest = largest
        self._most = most
        self._locks: WeakValueDictionary[Name, _Lock] = WeakValueDictionary()
        self._guard = threading.Lock()
        self._landing = LandingZone(landing)
        try:
            self._folder.mkdir(exist_ok=True)
            # The kernel releases this lock with the process, even after `kill -9`.
            self._alone = os.open(self._folder, os.O_RDONLY)
            fcntl.flock(self._alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._alone)
            raise LandingRefused(f"another edge-history receive uses {landing}: stop it first") from None
        except OSError as error:
            raise LandingRefused(f"{landing} cannot be used ({error}): make it writable") from None
        self._size = LandingSize(landing)

    def close(self) -> None:
        """Release the lock of the landing zone."""
        os.close(self._alone)

    def ready(self) -> bool:
        """Return whether uploads are possible: the directory is writable and below its limit."""
        return os.access(self._folder, os.W_OK) and self._space_left() > 0

    def acknowledged(self, gateway: str) -> dict[str, dict[str, int]]:
        """Return the acknowledged numbers of a gateway (see `LandingZone.acknowledged`)."""
        return self._landing.acknowledged(gateway)

    def held(self, gateway: str) -> dict[str, list[tuple[int, int]]]:
        """Return the segments in the landing zone: for each epoch, the first and last number of each segment."""
        return {epoch: held(self._landing.folder / gateway / epoch) for epoch in self._landing.epochs(gateway)}

    def state(self, name: Name) -> State | None:
        """Return the progress of a file, or None if nothing was received."""
        with contextlib.suppress(FileNotFoundError):
            return State((self._landing.folder / name.path).stat().st_size, complete=True)
        with contextlib.suppress(FileNotFoundError):
            return State(self._part(name).stat().st_size, complete=False)
        return None

    def check_size(self, name: Name, size: int) -> None:
        """Raise `UploadTooLarge` if a file of this many bytes is too large."""
        if name.is_manifest and size > name.most:
            raise UploadTooLarge(f"{name.file} exceeds {name.most} bytes: update the gateway")
        if size > self._largest:
            raise UploadTooLarge(
                f"{name.file} exceeds {self._largest} bytes (--max-segment-bytes): send smaller segments"
            )

    def append(self, name: Name, offset: int, part: bytes) -> None:
        """Append a part to a file. Raises `OffsetWrong`, `UploadTooLarge`, `Full`.

        Concurrent uploads of the same file are safe: the second part for the same offset raises `OffsetWrong`.
        """
        self.check_size(name, offset + len(part))
        with self._locked(name), _disk_full_as_full():
            if self._space_left() < len(part):
                raise Full(f"the landing zone has its {self._most} bytes (--max-landing-bytes): run the ingester")
            state = self.state(name) or State(0, complete=False)
            if state.complete or state.offset != offset:
                raise OffsetWrong(f"{state.offset} bytes are received")
            # Without a buffer: bytes that are counted as received must be in the kernel.
            with self._part(name).open("ab", buffering=0) as file:
                left = memoryview(part)
                while left:  # on a nearly full disk, write() may accept fewer bytes
                    left = left[file.write(left) :]
            self._size.add(len(part))

    def finish(self, name: Name, offset: int, digest: bytes) -> bool:
        """Complete a file: verify its SHA-256 and move it to its place. Returns whether the file is new.

        `offset` is the size of the file. Raises `OffsetWrong`, `Differs`, `DamagedUpload`, `Full`, `SegmentNewer`.
        """
        with self._locked(name), _disk_full_as_full():
            state = self.state(name)
            if state is not None and state.complete:
                if _sha256(self._landing.folder / name.path) != digest:
                    raise Differs(
                        f"{name.file} exists with other content, and segments never change: begin a new epoch"
                    )
                return False
            if state is not None and state.offset > offset:
                # The received bytes are of other content, which is longer: the gateway was restarted during an upload
                # and has cut the segment again. They would refuse each further attempt.
                self._part(name).unlink()
                raise OffsetWrong("0 bytes are received")
            if state is None and offset == 0:
                # An empty file has no part that would have created it.
                self._part(name).touch()
            elif state is None or state.offset != offset:
                raise OffsetWrong(f"{state.offset if state else 0} bytes are received")
            try:
                # No further part could repair the file, so any fault discards it.
                if _sha256(self._part(name)) != digest:
                    raise DamagedUpload(f"{name.file} does not have the SHA-256 of its Repr-Digest: send it again")
                if name.is_manifest:
                    self._check(name)
            except BaseException:
                self._part(name).unlink(missing_ok=True)
                raise
            self._move(name)
            return True

    def clean(self) -> None:
        """Remove incomplete files without a new part for `KEPT` seconds."""
        for path in self._folder.iterdir():
            with contextlib.suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > KEPT:
                    path.unlink()
                    _log.info("removed the incomplete upload %s", path.name)

    def _check(self, name: Name) -> None:
        """Verify a manifest against its name and its rows.

        Raises `DamagedUpload` for a malformed manifest, `Differs` if it does not match the received rows, and
        `SegmentNewer` for an unknown schema.
        """
        try:
            manifest = SegmentManifest.from_json(self._part(name).read_bytes())
        except SegmentDamaged as error:
            raise DamagedUpload(str(error)) from None
        if Path(manifest.folder, manifest.stem + MANIFEST) != name.path:
            raise DamagedUpload(f"this is the manifest of {manifest.folder}/{manifest.stem}, not that of {name.path}")
        if manifest.tombstone:
            return
        rows = self._landing.folder / manifest.folder / (manifest.stem + ROWS)
        try:
            with rows.open("rb") as file:
                validate_rows(manifest, file)
        except FileNotFoundError:
            raise Differs(f"{rows.name} is missing: send it first") from None
        except SegmentDamaged as error:
            # The ingester ignores rows without a manifest. Without removal, they would block their name forever.
            rows.unlink()
            raise Differs(f"{rows.name} did not match its manifest ({error}) and was removed: send it again") from None

    def _move(self, name: Name) -> None:
        """Move a complete file to its place, durably: sync its content before the rename, its directory after it."""
        part, target = self._part(name), self._landing.folder / name.path
        with part.open("rb") as file:
            os.fsync(file.fileno())
        for folder in (target.parent.parent, target.parent):
            with contextlib.suppress(FileExistsError):
                folder.mkdir()
                sync(folder.parent)
        part.rename(target)
        sync(target.parent)

    def _part(self, name: Name) -> Path:
        return self._folder / f"{name.gateway}.{name.epoch}.{name.file}"

    @contextlib.contextmanager
    def _locked(self, name: Name) -> Iterator[None]:
        with self._guard:
            lock = self._locks.setdefault(name, _Lock())
        with lock.lock:
            yield

    def _space_left(self) -> int:
        """Return the bytes below the limit of the landing zone."""
        return self._most - self._size.current()


class _Lock:
    """Lock that supports weak references, so that unused locks of file names are collected."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


@contextlib.contextmanager
def _disk_full_as_full() -> Iterator[None]:
    """Convert an `OSError` of a full disk into `Full`."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise Full(f"the disk of the landing zone is full ({error.strerror}): free some space") from None


def _sha256(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()
