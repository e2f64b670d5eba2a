"""The operator's mapping files as documents that clients read, test and write over the HTTP interface."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from edge import durable
from edge.adapters.files import MappingFiles
from edge.mapping import MappingError, MappingPack, explain, load_pack, to_json
from edge.mapping_files import is_mapping_file
from edge.protocol.errors import InvalidRequest, NotFound, StorageFailed

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


class MappingDocuments:
    """The files NAME.toml of the mapping directory. Any thread may call it.

    A file is checked before it is written, and applies at once. Its previous version is kept as `.NAME.toml.previous`.
    """

    def __init__(self, files: MappingFiles, directory: Path, root: Path) -> None:
        """`root`: existing directory above `directory`, which is created with the first file."""
        self._files = files
        self._directory = directory
        self._root = root
        self._writing = threading.Lock()

    def listed(self) -> Sequence[Mapping[str, object]]:
        """Return `file`, `name` (null: it cannot be edited here), `has_previous` and `fault` of each mapping file."""
        faults = {fault["file"]: fault["reason"] for fault in self._files.faults()}
        return [
            {
                "file": path.name,
                "name": path.stem if path.suffix == ".toml" and _NAME.fullmatch(path.stem) else None,
                "has_previous": _previous(path).exists(),
                "fault": faults.get(str(path)),
            }
            for path in self._paths()
        ]

    def read(self, name: str, *, previous: bool = False) -> str:
        """Return the text of a file, or of its previous version. Raises `NotFound`, `StorageFailed`."""
        path = self._path(name)
        path = _previous(path) if previous else path
        try:
            return path.read_text(encoding="utf-8")
        except FileNotFoundError:
            what = "previous version of the mapping file" if previous else "mapping file"
            raise NotFound(f'The gateway has no {what} "{name}"; /api/mappings lists the files') from None
        except (OSError, UnicodeDecodeError) as error:
            raise StorageFailed(f"{path} cannot be read: {error}. Check its permissions and its encoding.") from None

    def write(self, name: str, text: str) -> None:
        """Write a file; its mappings apply when this returns.

        Raises `InvalidRequest` with all faults, `StorageFailed`.
        """
        path = self._path(name)
        try:
            self._pack(path, text)
        except MappingError as error:
            raise InvalidRequest(str(error)) from None
        with self._writing:
            try:
                durable.make_directory(self._directory, self._root)
                self._keep(path)
                durable.write(path, text.encode())
            except OSError as error:
                raise _unwritable(path, error) from None
            self._files.look()

    def delete(self, name: str) -> None:
        """Delete a file; its version is kept as the previous one. Raises `NotFound`, `StorageFailed`."""
        path = self._path(name)
        with self._writing:
            try:
                path.replace(_previous(path))
                durable.sync_directory(path.parent)
            except FileNotFoundError:
                raise NotFound(f'The gateway has no mapping file "{name}"; /api/mappings lists the files') from None
            except OSError as error:
                raise _unwritable(path, error) from None
            self._files.look()

    def test(self, topic: str, payload: bytes, name: str, text: str | None) -> Mapping[str, object]:
        """Return what the gateway would make of a message: `faults` of the text, or an explanation.

        `text`: content of the file `name` instead of its present one; None: the files as they are.
        """
        path, mapper = self._path(name), self._files.mapper
        if text is not None:
            try:
                mapper = self._files.mapper_with(path, self._pack(path, text))
            except MappingError as error:
                return {"faults": [{"line": fault.line, "text": str(fault)} for fault in error.faults]}
        return {"faults": [], **to_json(explain(mapper, topic, payload, datetime.now(UTC)))}

    def _pack(self, path: Path, text: str) -> MappingPack:
        return load_pack(text, path.stem, limits=self._files.limits)

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise InvalidRequest(
                f'"{name[:100]}" cannot be the name of a mapping file: use 1 to 64 letters, digits, _ and -, first a '
                "letter or digit"
            )
        return self._directory / f"{name}.toml"

    def _paths(self) -> list[Path]:
        try:
            return sorted(filter(is_mapping_file, self._directory.iterdir()))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StorageFailed(f"{self._directory} cannot be read: {error.strerror}") from None

    def _keep(self, path: Path) -> None:
        try:
            durable.write(_previous(path), path.read_bytes())
        except FileNotFoundError:  # a new file
            return


def _previous(path: Path) -> Path:
    return path.with_name(f".{path.name}.previous")


def _unwritable(path: Path, error: OSError) -> StorageFailed:
    return StorageFailed(
        f"{path} cannot be written: {error.strerror}. Free space on its disk, or check the permissions of the directory"
    )
