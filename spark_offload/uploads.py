"""Files of segments on their way into a landing zone: they grow in `.uploads` and are moved to their place when whole.

What has come of a file survives a `kill -9`. It is not synced part by part: whether the file is whole its digest says
in the end, also after a power cut. What is in its place is synced, and never overwritten.
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

from edge.outbox.segment import EPOCH, GATEWAY, MANIFEST, ROWS, STEM, Manifest, SegmentDamaged, held, stem
from spark_offload.errors import LandingRefused
from spark_offload.landing import QUARANTINE, Landing, sync

UPLOADS: Final = ".uploads"
"""The directory of unfinished files in a landing zone. No gateway can have this name."""
KEPT: Final = 24 * 3600.0
"""Seconds after its last part that an unfinished file is kept."""
MEASURED: Final = 30.0
"""Seconds for which it is believed how much the landing zone holds."""
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_BLOCK: Final = 1 << 20

_log = logging.getLogger(__name__)


class OffsetWrong(Exception):
    """A part does not begin where the last one ended."""


class Differs(Exception):
    """It contradicts what is there; the text says how, and what to do."""


class Damaged(Exception):
    """What came is not what was sent; it is discarded."""


class TooLarge(Exception):
    """The file is larger than one may be."""


class Full(Exception):
    """There is no room in the landing zone."""


class Name(NamedTuple):
    """A file of a segment."""

    gateway: str
    epoch: str
    file: str

    @classmethod
    def of(cls, gateway: str, epoch: str, file: str) -> Name | None:
        """The name, if it is one as `edge.outbox.segment` makes them: there is no way to other directories."""
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
        """Whether it is the file that says that the other is whole."""
        return self.file.endswith(MANIFEST)

    @property
    def path(self) -> Path:
        """In the landing zone."""
        return Path(self.gateway, self.epoch, self.file)


@dataclass(frozen=True, slots=True)
class State:
    """How much of a file there is."""

    offset: int
    """Bytes."""
    complete: bool


class Uploads:
    """The unfinished files of a landing zone, and the way out of there. All of it may be called from any thread."""

    def __init__(self, landing: Path, *, largest: int, most: int) -> None:
        """`largest`: bytes of a file; `most`: bytes of the landing zone. Raises `LandingRefused`.

        One program at a time receives into a landing zone.
        """
        self._folder = landing / UPLOADS
        self._largest = largest
        self._most = most
        self._locks: WeakValueDictionary[Name, _Lock] = WeakValueDictionary()
        self._guard = threading.Lock()
        self._held = 0
        self._measured = float("-inf")
        self._landing = Landing(landing)
        try:
            self._folder.mkdir(exist_ok=True)
            self._alone = os.open(self._folder, os.O_RDONLY)
            fcntl.flock(self._alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._alone)
            raise LandingRefused(f"another edge-history receive uses {landing}: stop it first") from None
        except OSError as error:
            raise LandingRefused(f"{landing} cannot be used ({error}): make it writable") from None

    def close(self) -> None:
        """Let another program receive."""
        os.close(self._alone)

    def ready(self) -> bool:
        """Whether something could be received now."""
        return os.access(self._folder, os.W_OK) and self._room() > 0

    def acknowledged(self, gateway: str) -> dict[str, dict[str, int]]:
        """What is in the table (see `Landing.acknowledged`)."""
        return self._landing.acknowledged(gateway)

    def held(self, gateway: str) -> dict[str, list[tuple[int, int]]]:
        """The segments that wait in the landing zone: by epoch the first and last number of each."""
        return {
            outbox.epoch: held(self._landing.folder / outbox.gateway / outbox.epoch)
            for outbox in self._landing.outboxes()
            if outbox.gateway == gateway
        }

    def state(self, name: Name) -> State | None:
        """How much of a file there is; None: nothing."""
        with contextlib.suppress(FileNotFoundError):
            return State((self._landing.folder / name.path).stat().st_size, complete=True)
        with contextlib.suppress(FileNotFoundError):
            return State(self._part(name).stat().st_size, complete=False)
        return None

    def append(self, name: Name, offset: int, part: bytes) -> None:
        """Add a part at the end of a file. Raises `OffsetWrong`, `TooLarge`, `Full`.

        Two that send the same file do not harm each other: of two parts for one place the second is refused.
        """
        if offset + len(part) > self._largest:
            raise TooLarge(f"{name.file} has more than {self._largest} bytes (--max-segment-bytes): cut smaller ones")
        with self._locked(name), _room_told():
            if self._room() < len(part):
                raise Full(f"the landing zone holds {self._most} bytes (--max-landing-bytes): the ingester must run")
            state = self.state(name) or State(0, complete=False)
            if state.complete or state.offset != offset:
                raise OffsetWrong(f"{state.offset} bytes are here")
            with self._part(name).open("ab", buffering=0) as file:
                left = memoryview(part)
                while left:  # a disk that is nearly full takes less
                    left = left[file.write(left) :]
            with self._guard:
                self._held += len(part)

    def finish(self, name: Name, offset: int, digest: bytes) -> bool:
        """Move a file to its place, where it has that SHA-256. Returns whether it was not there before.

        `offset`: its bytes. Raises `OffsetWrong`, `Differs`, `Damaged`, `Full`.
        """
        with self._locked(name), _room_told():
            state = self.state(name)
            if state is not None and state.complete:
                if _sha256(self._landing.folder / name.path) != digest:
                    raise Differs(f"another {name.file} is here, and segments never change: begin a new epoch")
                return False
            if state is None and offset == 0:
                self._part(name).touch()
            elif state is None or state.offset != offset:
                raise OffsetWrong(f"{state.offset if state else 0} bytes are here")
            try:
                if _sha256(self._part(name)) != digest:
                    raise Damaged(f"{name.file} has not the SHA-256 of its Repr-Digest: send it again")
                if name.is_manifest:
                    self._check(name)
            except BaseException:
                self._part(name).unlink(missing_ok=True)
                raise
            self._move(name)
            return True

    def clean(self) -> None:
        """Remove what was not gone on with for a day."""
        for path in self._folder.iterdir():
            with contextlib.suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > KEPT:
                    path.unlink()
                    _log.info("removed the unfinished %s", path.name)

    def _check(self, name: Name) -> None:
        """Raises `Damaged`, `Differs` where a manifest is not for the file of rows that is here, `SegmentNewer`."""
        try:
            manifest = Manifest.from_json(self._part(name).read_bytes())
        except SegmentDamaged as error:
            raise Damaged(str(error)) from None
        if Path(manifest.folder, manifest.stem + MANIFEST) != name.path:
            raise Damaged(f"it is the manifest of {manifest.folder}/{manifest.stem}, not that of {name.path}")
        if manifest.tombstone:
            return
        rows = self._landing.folder / manifest.folder / (manifest.stem + ROWS)
        try:
            manifest.check(rows.read_bytes())
        except FileNotFoundError:
            raise Differs(f"{rows.name} is not here: send it first") from None
        except SegmentDamaged as error:
            # Without a manifest it is not there for anybody, and it never will be with this one.
            rows.unlink()
            raise Differs(f"{rows.name} was not that of its manifest ({error}) and is removed: send it again") from None

    def _move(self, name: Name) -> None:
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

    def _room(self) -> int:
        """Bytes that the landing zone may still take: as measured a while ago, less what came since."""
        with self._guard:
            now = time.monotonic()
            if now - self._measured > MEASURED:
                self._held, self._measured = _size(self._landing.folder), now
            return self._most - self._held


class _Lock:
    """A lock that can be referred to weakly."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


@contextlib.contextmanager
def _room_told() -> Iterator[None]:
    """Raises `Full` where the disk is."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise Full(f"the disk of the landing zone is full ({error.strerror}): make room") from None


def _size(folder: Path) -> int:
    """Bytes of the files in a folder and in those below."""
    size = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # it has gone meanwhile
                size += Path(place, name).stat().st_size
    return size


def _sha256(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()
