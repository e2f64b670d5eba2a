"""The operator's mapping files as documents that clients read, test and write over the HTTP interface."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from edge.adapters.files import MappingFiles
from edge.adapters.registry import whole
from edge.adapters.watched_topics import WatchedTopics
from edge.gateway.documents import Documents
from edge.mapping import Fault, MappingError, MappingPack, explain, load_pack, to_json
from edge.mapping_files import is_mapping_file
from edge.protocol.errors import InvalidRequest


class MappingDocuments:
    """The files NAME.toml of the mapping directory. Any thread may call it.

    A file is checked before it is written, and applies at once.
    """

    def __init__(self, files: MappingFiles, watched: WatchedTopics, directory: Path, root: Path) -> None:
        """`root`: existing directory above `directory`, which is created with the first file."""
        self._files = files
        self._watched = watched
        self._documents = Documents(directory, root, ".toml", "mapping file", "/api/mappings")
        self._writing = threading.Lock()

    def listed(self) -> Sequence[Mapping[str, object]]:
        """Return `file`, `name` (null: it cannot be edited here), `has_previous`, `fault` and its parts `faults` of
        each mapping file.
        """
        faults = {fault["file"]: fault for fault in self._files.faults()}
        documents = self._documents
        return [
            {
                "file": path.name,
                "name": documents.name(path),
                "has_previous": documents.has_previous(path),
                "fault": faults.get(str(path), {}).get("reason"),
                "faults": faults.get(str(path), {}).get("faults", []),
            }
            for path in documents.files(is_mapping_file)
        ]

    def read(self, name: str, *, previous: bool = False) -> str:
        """Return the text of a file, or of its previous version. Raises `NotFound`, `StorageFailed`."""
        return self._documents.read(name, previous=previous)

    def write(self, name: str, text: str) -> None:
        """Write a file; its mappings apply when this returns.

        Raises `InvalidRequest` with all faults, `StorageFailed`.
        """
        try:
            self._pack(self._documents.path(name), text)
        except MappingError as error:
            raise InvalidRequest(str(error)) from None
        with self._writing:
            self._documents.write(name, text)
            self._files.look()

    def delete(self, name: str) -> None:
        """Delete a file; its version is kept as the previous one. Raises `NotFound`, `StorageFailed`."""
        with self._writing:
            self._documents.delete(name)
            self._files.look()

    def test(self, topic: str, payload: bytes, name: str, text: str | None) -> Mapping[str, object]:
        """Return what the gateway would make of a message: `faults` and `warnings` of the text, and an explanation
        unless it has faults.

        `text`: content of the file `name` instead of its present one; None: the files as they are.
        """
        path, mapper = self._documents.path(name), self._files.mapper
        warnings: Sequence[Fault] = ()
        if text is not None:
            try:
                pack = self._pack(path, text)
            except MappingError as error:
                return {"faults": _lines(error.faults), "warnings": []}
            warnings = pack.warnings
            mapper = self._files.mapper_with(path, pack)
        return {
            "faults": [],
            "warnings": _lines(warnings),
            **to_json(explain(mapper, topic, payload, datetime.now(UTC))),
        }

    def newest_message(self, topic_filter: str) -> Mapping[str, object] | None:
        """Watch a topic filter, and return its newest message since then, also of mapped topics: `topic`, and `payload`
        and `hex` as `registry.whole`. None without a message. Raises `InvalidRequest`.
        """
        found = self._watched.newest(topic_filter)
        return None if found is None else {"topic": found[0], **whole(found[1])}

    def _pack(self, path: Path, text: str) -> MappingPack:
        return load_pack(text, path.stem, limits=self._files.limits)


def _lines(faults: Sequence[Fault]) -> list[Mapping[str, object]]:
    return [fault.to_json() for fault in faults]
