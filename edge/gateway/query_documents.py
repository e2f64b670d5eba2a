"""The operator's continuous queries as documents that clients read and write over the HTTP interface."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from edge.gateway.documents import Documents

Check = Callable[[str], None]
"""Raises `EdgeError` for a text that is not a query."""


class QueryDocuments:
    """The files NAME.rq of the directory of continuous queries. Any thread may call it.

    The gate at the broker looks at the directory every few seconds.
    """

    def __init__(
        self, directory: Path, root: Path, topics: str, check: Check, faults: Callable[[], Mapping[str, str]]
    ) -> None:
        """`root`: existing directory above `directory`. `topics`: topic of the results without the name of a query;
        empty: no gate publishes them. `faults` returns the queries and files that have no result, with the reason.
        """
        self._documents = Documents(directory, root, ".rq", "continuous query", "/api/queries")
        self._topics = topics
        self._check = check
        self._faults = faults
        self._writing = threading.Lock()

    def listed(self) -> Sequence[Mapping[str, object]]:
        """Return `name` (null: it cannot be edited here), `topic` (null: not published) and `fault` of each query."""
        faults = self._faults()
        return [
            {
                "file": path.name,
                "name": self._documents.name(path),
                "topic": f"{self._topics}{path.stem}" if self._topics else None,
                "fault": faults.get(path.stem, faults.get(str(path))),
            }
            for path in self._documents.files(_is_query)
        ]

    def read(self, name: str, *, previous: bool = False) -> str:
        """Return the text of a query, or of its previous version. Raises `NotFound`, `StorageFailed`."""
        return self._documents.read(name, previous=previous)

    def write(self, name: str, text: str) -> None:
        """Check and write a query. Raises `ParsingFailed` and other errors of the check, `StorageFailed`."""
        self._documents.path(name)
        self._check(text)
        with self._writing:
            self._documents.write(name, text)

    def delete(self, name: str) -> None:
        """Delete a query; its topic is cleared. Raises `NotFound`, `StorageFailed`."""
        with self._writing:
            self._documents.delete(name)


def _is_query(path: Path) -> bool:
    return path.suffix == ".rq" and not path.name.startswith(".")
