"""A landing zone that is a directory of this machine, or one that is mounted."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from edge import durable
from edge.outbox.landing import KnownOutbox, LandingFailed, acknowledged, parsed
from edge.outbox.segment import MANIFEST, ROWS, held
from edge.outbox.segmenter import Segment

ACKNOWLEDGEMENTS: Final = "ack.json"

_DRAFT: Final = "."
"""What the names of files begin with that are being written; nobody reads them."""


class DirectoryLanding:
    """Files appear under their names when they are whole, the manifest last."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def look(self, gateway: str, epoch: str) -> KnownOutbox:
        """What is there, by the names of manifests."""
        try:
            if not self._path.is_dir():
                raise LandingFailed(f"{self._path} is not there; make the directory, or mount it")
            return KnownOutbox(self._acknowledged(gateway, epoch), self._held(gateway, epoch))
        except OSError as error:
            raise _failed(error) from error

    def put(self, segment: Segment) -> None:
        """Rows, then manifest: each written beside, synchronised, renamed."""
        manifest = segment.manifest
        folder = self._path / manifest.folder
        try:
            if not self._path.is_dir():  # a mount that went: nothing must be written below it
                raise LandingFailed(f"{self._path} is gone; mount it again")
            durable.make_directory(folder, self._path)
            for stray in folder.glob(f"{_DRAFT}*"):
                stray.unlink(missing_ok=True)  # of an attempt that was cut off
            if not manifest.tombstone:
                _write(folder / f"{manifest.stem}{ROWS}", segment.rows)
            _write(folder / f"{manifest.stem}{MANIFEST}", manifest.to_json())
        except OSError as error:
            raise _failed(error) from error

    def _acknowledged(self, gateway: str, epoch: str) -> int:
        """What cannot be read acknowledges nothing: the ingester writes it again."""
        try:
            return acknowledged(parsed((self._path / gateway / ACKNOWLEDGEMENTS).read_bytes()), epoch)
        except FileNotFoundError:
            return 0

    def _held(self, gateway: str, epoch: str) -> tuple[tuple[int, int], ...]:
        try:
            return tuple(held(self._path / gateway / epoch))
        except FileNotFoundError:
            return ()


def _write(path: Path, content: bytes) -> None:
    durable.write(path, content, draft=path.with_name(f"{_DRAFT}{path.name}"))


def _failed(error: OSError) -> LandingFailed:
    return LandingFailed(f"{error.filename or 'the landing zone'}: {error.strerror or error}")
