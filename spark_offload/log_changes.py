"""Files that were added to the table after one of its versions, from the log of the table."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from spark_offload.table import LOG

MOST_COMMITS: Final = 200
"""Number of commits that are read. The newest rows are renewed before (`newest_rows.py`)."""
UNKNOWN: Final = 2**62
"""Number of rows of a file without statistics."""


class AddedFiles(NamedTuple):
    """Files that were added to the table, and are still part of it."""

    paths: tuple[Path, ...]
    rows: int
    """Number of their rows."""


def added_after(table: Path, base: int, version: int, most: int) -> AddedFiles | None:
    """Return the files that `version` has in addition to version `base`.

    Returns None if the difference is more than added rows, or if the log does not tell it: a version has removed or
    changed rows, has merged added files with older ones, or has left the log. Returns None also after many commits, and
    if more than `most` rows were added. `base` is -1 for the empty table before the first version.
    """
    if version - base > MOST_COMMITS:
        return None
    pending: dict[str, int] = {}
    try:
        for number in range(base + 1, version + 1):
            if not _followed(_actions(table, number), pending, first=number == 0) or sum(pending.values()) > most:
                return None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if any(":" in path for path in pending):  # a file of another table
        return None
    return AddedFiles(tuple(table / unquote(path) for path in pending), sum(pending.values()))


def commit_digest(table: Path, version: int) -> str | None:
    """Return the SHA-256 of the commit of a version, or None if it has left the log.

    It distinguishes the versions of two tables, and of two copies of a table, that have the same number.
    """
    try:
        return hashlib.sha256(_commit(table, version).read_bytes()).hexdigest()
    except OSError:
        return None


def _actions(table: Path, version: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the actions of a commit with their kinds. Raises `OSError`, `ValueError`."""
    for line in _commit(table, version).read_bytes().splitlines():
        yield from json.loads(line).items()


def _followed(commit: Iterable[tuple[str, dict[str, Any]]], pending: dict[str, int], *, first: bool) -> bool:
    """Add the new files of a commit to `pending`. Returns False if the commit does more than add rows."""
    for kind, action in commit:
        if kind == "protocol" and not first:
            # A newer protocol can hide rows of a file, or rename its columns.
            return False
        if kind == "remove" and (action["dataChange"] or action["path"] in pending):
            return False
        if kind == "add" and action["dataChange"]:
            stats = json.loads(action.get("stats") or "{}")
            pending[action["path"]] = stats.get("numRecords", UNKNOWN)
    return True


def _commit(table: Path, version: int) -> Path:
    return table / LOG / f"{version:020d}.json"
