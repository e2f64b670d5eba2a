"""Documents of the operator in a directory, as administrators edit them over the HTTP interface."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from edge import durable
from edge.protocol.errors import InvalidRequest, NotFound, StorageFailed

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


class Documents:
    """The files NAME + `suffix` of a directory. One thread at a time may write.

    The previous version of a file is kept as `.NAME.SUFFIX.previous`.
    """

    def __init__(self, directory: Path, root: Path, suffix: str, what: str, where: str) -> None:
        """`root`: existing directory above `directory`, which is created with the first file. `what`: the kind of the
        documents, and `where`: the path of their list, for error messages.
        """
        self._directory = directory
        self._root = root
        self._suffix = suffix
        self._what = what
        self._where = where

    def files(self, accepts: Callable[[Path], bool]) -> list[Path]:
        """Return the accepted files of the directory in order. Raises `StorageFailed`."""
        try:
            return sorted(filter(accepts, self._directory.iterdir()))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StorageFailed(f"{self._directory} cannot be read: {error.strerror}") from None

    def name(self, path: Path) -> str | None:
        """Return the name of a document; None if the file cannot be edited here."""
        return path.stem if path.suffix == self._suffix and _NAME.fullmatch(path.stem) else None

    def has_previous(self, path: Path) -> bool:
        """Return whether a previous version of a file is kept."""
        return _previous(path).exists()

    def path(self, name: str) -> Path:
        """Return the file of a document. Raises `InvalidRequest`."""
        if not _NAME.fullmatch(name):
            raise InvalidRequest(
                f'"{name[:100]}" cannot be the name of a {self._what}: use 1 to 64 letters, digits, _ and -, first a '
                "letter or digit"
            )
        return self._directory / f"{name}{self._suffix}"

    def read(self, name: str, *, previous: bool = False) -> str:
        """Return the text of a document, or of its previous version. Raises `NotFound`, `StorageFailed`."""
        path = self.path(name)
        path = _previous(path) if previous else path
        try:
            return path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise self._missing(name, "previous version of the " if previous else "") from None
        except (OSError, UnicodeDecodeError) as error:
            raise StorageFailed(f"{path} cannot be read: {error}. Check its permissions and its encoding.") from None

    def write(self, name: str, text: str) -> None:
        """Write a document. Raises `InvalidRequest`, `StorageFailed`."""
        path = self.path(name)
        try:
            durable.make_directory(self._directory, self._root)
            self._keep(path)
            durable.write(path, text.encode())
        except OSError as error:
            raise _unwritable(path, error) from None

    def delete(self, name: str) -> None:
        """Delete a document; its version is kept as the previous one. Raises `NotFound`, `StorageFailed`."""
        path = self.path(name)
        try:
            path.replace(_previous(path))
            durable.sync_directory(path.parent)
        except FileNotFoundError:
            raise self._missing(name) from None
        except OSError as error:
            raise _unwritable(path, error) from None

    def _keep(self, path: Path) -> None:
        try:
            durable.write(_previous(path), path.read_bytes())
        except FileNotFoundError:  # a new file
            return

    def _missing(self, name: str, which: str = "") -> NotFound:
        return NotFound(f'The gateway has no {which}{self._what} "{name}"; {self._where} lists them')


def _previous(path: Path) -> Path:
    return path.with_name(f".{path.name}.previous")


def _unwritable(path: Path, error: OSError) -> StorageFailed:
    return StorageFailed(
        f"{path} cannot be written: {error.strerror}. Free space on its disk, or check the permissions of the directory"
    )
