"""Landing zone in a local or mounted directory."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from edge import durable
from edge.outbox.landing import KnownOutbox, LandingFailed, acknowledged, parsed
from edge.outbox.segment import MANIFEST, ROWS, held
from edge.outbox.segmenter import Segment

ACKNOWLEDGEMENTS: Final = "ack.json"

_DRAFT: Final = "."
"""Prefix of files that are being written. Readers ignore them."""


class DirectoryLanding:
    """Landing zone in a directory. Files get their final names only when they are complete, the manifest last."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def look(self, gateway: str, epoch: str) -> KnownOutbox:
        """Read the state from the names of the manifests. Raises `LandingFailed`."""
        try:
            if not self._path.is_dir():
                raise LandingFailed(f"{self._path} is not there; make the directory, or mount it")
            return KnownOutbox(self._acknowledged(gateway, epoch), self._held(gateway, epoch))
        except OSError as error:
            raise _failed(error) from error

    def put(self, segment: Segment) -> None:
        """Write the rows, then the manifest: each as a draft that is synchronised and renamed. Raises
        `LandingFailed`.
        """
        manifest = segment.manifest
        folder = self._path / manifest.folder
        try:
            if not self._path.is_dir():  # An unmounted directory: the files must not go to the file system below it.
                raise LandingFailed(f"{self._path} is gone; mount it again")
            durable.make_directory(folder, self._path)
            for stray in folder.glob(f"{_DRAFT}*"):
                stray.unlink(missing_ok=True)  # left by an interrupted attempt
            if not manifest.tombstone:
                _write(folder / f"{manifest.stem}{ROWS}", segment.rows)
            _write(folder / f"{manifest.stem}{MANIFEST}", manifest.to_json())
        except OSError as error:
            raise _failed(error) from error

    def _acknowledged(self, gateway: str, epoch: str) -> int:
        """Return the acknowledged number. An unreadable file counts as 0: the ingester writes it again."""
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
