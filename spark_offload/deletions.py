"""Record of deletions: the observations that must not be in the table, and how many of them each operator deleted.

The record is a file next to the table, `.NAME.deletions`, because a version of the table that is restored must not
bring deleted observations back. Each line is a JSON object that contains the SHA-256 of the previous line, so that a
changed or removed line is noticed, except at the end. The table has the SHA-256 of the last deletion that was applied
to it. IRIs are stored as SHA-256 only: the record of a person's deletion must not name the person.

A filter without conditions other than the time is a retention period (`edge-history maintain --drop-raw-after`).
"""

from __future__ import annotations

import getpass
import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from spark_offload.errors import TableRefused
from spark_offload.landing import write
from spark_offload.table import directory

SCHEMA: Final = 1
BEGUN: Final = "begun"
COUNTED: Final = "counted"
DONE: Final = "done"
LATEST: Final = 253_402_300_799_999_999
"""End of the year 9999 in microseconds since 1970, the latest time in the table."""
_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)
_IRIS: Final = "regexp_extract_all(quads, '<([^<>]*)>', 1)"
"""SQL: the IRIs in the quads of a row. Texts in angle brackets within literals count as IRIs."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Observations to delete: those that meet all conditions."""

    before: int
    """Only observations before this time, in microseconds since 1970."""
    gateway: str = ""
    """Name of the gateway; empty for all."""
    sensor: str = ""
    """SHA-256 of the sensor's IRI in hexadecimal; empty for all."""
    feature: str = ""
    """SHA-256 of the IRI of the feature of interest; empty for all."""

    @property
    def selector(self) -> tuple[str, str, str]:
        """All conditions but the time."""
        return self.gateway, self.sensor, self.feature

    def sql(self) -> str:
        """Return the SQL condition. Its texts are names of gateways and hexadecimal numbers, which need no escapes."""
        end = _BEGINNING + timedelta(microseconds=self.before)
        parts = [f"date <= DATE'{end.date().isoformat()}'", f"ts < timestamp_micros({self.before}L)"]
        if self.gateway:
            parts.append(f"gateway = '{self.gateway}'")
        parts += [
            f"(sha2({column}, 256) = '{sha256}' OR exists({_IRIS}, iri -> sha2(iri, 256) = '{sha256}'))"
            for column, sha256 in (("sensor", self.sensor), ("feature", self.feature))
            if sha256
        ]
        return "(" + " AND ".join(parts) + ")"

    def __str__(self) -> str:
        named = [f"{name} {value}" for name, value in asdict(self).items() if name != "before" and value]
        end = _BEGINNING + timedelta(microseconds=self.before)
        return ", ".join([*named, f"before {end.isoformat().replace('+00:00', 'Z')}"])


@dataclass(frozen=True, slots=True)
class LastNumber:
    """The last of the deleted observations of an outbox. A row with `lost` keeps its number in the table."""

    gateway: str
    epoch: str
    seq: int
    deleted: int
    """Number of deleted observations."""


@dataclass(frozen=True, slots=True)
class Counted:
    """Rows that a deletion was about to remove from a version of the table."""

    version: int
    """Version of the table before the removal; -1 if it is unknown."""
    rows: int
    last: tuple[LastNumber, ...]
    """Last numbers of their outboxes."""


def digest(iri: str) -> str:
    """Return the SHA-256 of an IRI in hexadecimal."""
    return hashlib.sha256(iri.encode("utf-8", "surrogatepass")).hexdigest()


def user() -> str:
    """Return the name of the user of this process, or its number without a name."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return f"user {os.getuid()}"


def condition(filters: Iterable[Filter]) -> str:
    """Return the SQL condition of rows that are to be deleted. Rows with `lost` are not observations, and stay."""
    return f"(lost IS NULL AND coalesce({' OR '.join(one.sql() for one in filters)}, false))"


class Deletions:
    """The record of a table. It is read when it is made."""

    def __init__(self, table: str) -> None:
        """Read the record; without a file it is empty. Raises `TableRefused` if it is damaged."""
        place = directory(table)
        self.path = None if place is None else place.with_name(f".{place.name}.deletions")
        self._lines: list[bytes] = []
        self._entries: list[dict[str, Any]] = []
        try:
            content = b"" if self.path is None else self.path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise TableRefused(f"{self.path} cannot be read ({error}): make it readable for this user") from None
        try:
            for line in content.splitlines():
                entry = json.loads(line)
                if entry["previous"] != self.head or entry["schema"] != SCHEMA:
                    raise ValueError(f"line {len(self._lines) + 1} does not follow the line before it")
                if entry["state"] == BEGUN:
                    Filter(**entry["filter"])
                self._lines.append(line)
                self._entries.append(entry)
        except (ValueError, TypeError, KeyError) as error:
            raise TableRefused(
                f"{self.path} is damaged ({error}): restore it. Without it, deleted observations could come back"
            ) from None

    @property
    def head(self) -> str:
        """SHA-256 of the last line; empty without one."""
        return _sha256(self._lines[-1]) if self._lines else ""

    @property
    def entries(self) -> Sequence[dict[str, Any]]:
        """The lines of the record."""
        return self._entries

    @property
    def filters(self) -> list[Filter]:
        """The filters in force: of those that differ only in their time, the latest."""
        latest: dict[tuple[str, str, str], Filter] = {}
        for one in self._begun():
            found = latest.setdefault(one.selector, one)
            latest[one.selector] = replace(one, before=max(one.before, found.before))
        return list(latest.values())

    @property
    def applied(self) -> str:
        """SHA-256 of the last line that began a deletion: the table has it when all filters were applied to it."""
        return next((_sha256(self._lines[n]) for n in reversed(range(len(self._lines))) if self._is(n, BEGUN)), "")

    def contains(self, sha256: str) -> bool:
        """Return whether a line has this SHA-256."""
        return any(_sha256(line) == sha256 for line in self._lines)

    @property
    def unfinished(self) -> list[Filter]:
        """The filters whose deletion has begun and not ended: it was interrupted, or runs now."""
        states = [entry["state"] for entry in self._entries]
        ended = len(states) - states[::-1].index(DONE) if DONE in states else 0
        return [Filter(**entry["filter"]) for entry in self._entries[ended:] if entry["state"] == BEGUN]

    @property
    def interrupted(self) -> bool:
        """Whether a deletion of a gateway, sensor or feature has begun and not ended, apart from retention periods."""
        return any(any(one.selector) for one in self.unfinished)

    def counted(self) -> list[Counted]:
        """Return what an interrupted deletion has found, at most once for each version of the table."""
        found: dict[int, Counted] = {}
        for entry in reversed(self._entries):
            if entry["state"] == DONE:
                break
            if entry["state"] == COUNTED:
                last = tuple(LastNumber(**one) for one in entry["last"])
                one = Counted(int(entry.get("table_version", -1)), int(entry["rows"]), last)
                found.setdefault(one.version, one)
        return list(found.values())

    @property
    def deleted_from(self) -> set[int]:
        """Versions of the table from which this program has deleted rows; -1 if one of them is unknown."""
        return {int(entry.get("table_version", -1)) for entry in self._entries if entry["state"] == COUNTED}

    def begin(self, one: Filter, by: str, reason: str) -> None:
        """Put a filter in force, durably, unless an unfinished one includes it. `by` is the user.

        Raises `TableRefused`.
        """
        if any(one.selector == other.selector and one.before <= other.before for other in self.unfinished):
            return
        self._add({"state": BEGUN, "by": by, "filter": asdict(one), "reason": reason})

    def count(self, rows: int, last: Iterable[LastNumber], version: int) -> None:
        """Record what a deletion is about to remove from a version of the table."""
        self._add({"state": COUNTED, "rows": rows, "last": [asdict(one) for one in last], "table_version": version})

    def done(self, rows: int, files: int, version: int) -> None:
        """Record the end of a deletion: deleted rows, removed files of segments, and the version of the table."""
        self._add({"state": DONE, "rows": rows, "files": files, "table_version": version})

    def _begun(self) -> list[Filter]:
        return [Filter(**entry["filter"]) for entry in self._entries if entry["state"] == BEGUN]

    def _is(self, number: int, state: str) -> bool:
        return bool(self._entries[number]["state"] == state)

    def _add(self, entry: dict[str, Any]) -> None:
        if self.path is None:
            raise TableRefused("observations can be deleted only from a table on a file system: use its own tools")
        now = datetime.now(UTC).isoformat(timespec="seconds")
        entry = {"schema": SCHEMA, "time": now, **entry, "previous": self.head}
        line = json.dumps(entry, separators=(",", ":")).encode()
        try:
            write(self.path, b"".join(one + b"\n" for one in (*self._lines, line)))
        except OSError as error:
            raise TableRefused(f"{self.path} cannot be written ({error}): make its directory writable") from error
        self._lines.append(line)
        self._entries.append(entry)


def _sha256(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()
