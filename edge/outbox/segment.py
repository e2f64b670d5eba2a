r"""Format of segments: immutable files of observations that a gateway ships to the Spark store.

A segment holds the observations `first` to `last` of one outbox (gateway and epoch), without gaps. It consists of two
files. The manifest is written last and marks the segment as complete:

    GATEWAY/EPOCH/000000000001-000000010000.tsv.gz    the rows
    GATEWAY/EPOCH/000000000001-000000010000.json      the manifest

A row is a line: number, context, and the cells in the order of `Cells`, separated by tabs. A missing cell is empty,
and trailing tabs are removed. In cells, `\t`, `\n`, `\r` and `\\` escape tab, newline, carriage return and backslash.
A manifest without rows is a *tombstone*: it tells the history that the gateway dropped these observations.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from edge.outbox.observation import EPOCH_LENGTH, Cells, ObservationContext

SCHEMA: Final = 1
"""Version of the format. A reader leaves segments of a newer version where they are."""

ROWS: Final = ".tsv.gz"
MANIFEST: Final = ".json"

GATEWAY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Valid gateway names."""
EPOCH: Final = re.compile(rf"[0-9a-f]{{{EPOCH_LENGTH}}}")
STEM: Final = re.compile(r"(\d{12,18})-(\d{12,18})")
"""File name of a segment without its suffix."""


MOST_ROWS: Final = 100_000
"""Most observations in the range of a segment."""
MOST_MANIFEST_BYTES: Final = 1 << 20
"""Size of a manifest that gateways send, and that receivers accept."""
MOST_READ_BYTES: Final = 8 << 20
"""Size of a manifest that can be read. Earlier versions wrote larger ones, into directories."""
_SHOWN: Final = 100
"""Characters of the names of members in a message."""

_Number = Annotated[int, Field(ge=1, lt=10**18)]
_Time = Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)]
"""Microseconds since 1970 that Spark can store."""


class SegmentDamaged(ValueError):
    """A segment differs from the one that the gateway wrote; the text gives the reason."""


class SegmentNewer(ValueError):
    """A newer gateway wrote the segment, in a schema that this program does not support."""


@dataclass(frozen=True, slots=True)
class SegmentManifest:
    """Description of a segment, complete without reading its rows."""

    gateway: str
    epoch: str
    first: int
    last: int
    start: int
    """The earliest time of its observations, in microseconds since 1970."""
    end: int
    """The latest time of its observations."""
    size: int = 0
    """Size of the rows file in bytes."""
    sha256: str = ""
    """SHA-256 of the rows file in hexadecimal; empty for a tombstone."""
    contexts: Mapping[int, ObservationContext] = field(default_factory=dict)
    """The contexts that its rows refer to."""
    replayed: bool = False
    """Whether the segment was sent late, after an outage."""
    reason: str = ""
    """Why the observations of a tombstone were dropped."""
    schema: int = SCHEMA

    @property
    def rows(self) -> int:
        """Number of observations in its range."""
        return self.last - self.first + 1

    @property
    def tombstone(self) -> bool:
        """Whether its observations were dropped."""
        return not self.sha256

    @property
    def stem(self) -> str:
        """File name of the segment without its suffix."""
        return stem(self.first, self.last)

    @property
    def folder(self) -> str:
        """Path of its directory in the landing zone."""
        return f"{self.gateway}/{self.epoch}"

    def to_json(self) -> bytes:
        """Serialise the manifest. Equal manifests give equal bytes."""
        body: dict[str, object] = {
            name: getattr(self, name)
            for name in ("schema", "gateway", "epoch", "first", "last", "start", "end", "size", "sha256", "replayed")
        }
        if self.reason:
            body["reason"] = self.reason
        body["contexts"] = {str(number): context_members(context) for number, context in sorted(self.contexts.items())}
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, text: bytes) -> SegmentManifest:
        """Parse a manifest. Raises `SegmentDamaged`, `SegmentNewer`."""
        if len(text) > MOST_READ_BYTES:
            raise SegmentDamaged(f"its manifest has {len(text)} bytes, and the most are {MOST_READ_BYTES}")
        try:
            version = _Version.model_validate_json(text)
            if version.schema_ > SCHEMA:
                raise SegmentNewer(f"it has schema {version.schema_}, and this program knows {SCHEMA}; update it")
            members = _Members.model_validate_json(text)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            place = ".".join(str(step) for step in first["loc"])[:_SHOWN]
            raise SegmentDamaged(
                f"its manifest cannot be read: {place + ': ' if place else ''}{first['msg']}"
            ) from None
        if not members.last - MOST_ROWS < members.first <= members.last:
            raise SegmentDamaged(
                f"its manifest states {members.first} to {members.last}, and a segment has at most {MOST_ROWS} rows"
            )
        contexts = {int(number): ObservationContext(**dict(context)) for number, context in members.contexts.items()}
        own = {name: value for name, value in members if name not in ("schema_", "contexts")}
        return cls(contexts=contexts, schema=members.schema_, **own)

    def check(self, rows: bytes) -> None:
        """Check size and checksum of the rows file. Raises `SegmentDamaged`."""
        self.check_digest(len(rows), hashlib.sha256(rows).hexdigest())

    def check_digest(self, size: int, sha256: str) -> None:
        """Check the size of the rows file, and its SHA-256 in hexadecimal. Raises `SegmentDamaged`."""
        if size != self.size:
            raise SegmentDamaged(f"it has {size} bytes, its manifest says {self.size}")
        if sha256 != self.sha256:
            raise SegmentDamaged("its checksum is not that of its manifest")


def stem(first: int, last: int) -> str:
    """Return the file name of a segment without its suffix."""
    return f"{first:012d}-{last:012d}"


def held(folder: Path) -> list[tuple[int, int]]:
    """Return the first and last number of each complete segment in a folder. Raises `FileNotFoundError`.

    Ignores folders, files with other names, and manifests that have no rows file and are not tombstones.
    """
    with os.scandir(folder) as entries:
        files = {entry.name: Path(entry.path) for entry in entries if entry.is_file()}
    found = []
    for name, path in files.items():
        numbers = STEM.fullmatch(name.removesuffix(MANIFEST)) if name.endswith(MANIFEST) else None
        if numbers and (f"{numbers[0]}{ROWS}" in files or _is_tombstone(path)):
            found.append((int(numbers[1]), int(numbers[2])))
    return sorted(found)


def line(seq: int, context: int, cells: Cells) -> str:
    """Format a row, without its line end."""
    return f"{seq}\t{context}\t{body(cells)}"


def body(cells: Cells) -> str:
    """Format the cells of a row."""
    return "\t".join(["" if cell is None else _escaped(str(cell)) for cell in cells]).rstrip("\t")


def cells(text: str) -> Cells:
    """Parse the output of `body`. Raises `SegmentDamaged`."""
    try:
        time, *rest = text.split("\t")
        return Cells(int(time), *[_unescaped(cell) if cell else None for cell in rest])
    except (ValueError, TypeError) as error:
        raise SegmentDamaged(f"a row cannot be read: {error}") from None


def packed(lines: Iterable[str]) -> bytes:
    """Compress rows to the content of the rows file. Equal rows give equal bytes."""
    # mtime=0: a time stamp in the gzip header would change the checksum of a repeated upload.
    return gzip.compress("".join([f"{row}\n" for row in lines]).encode(), compresslevel=6, mtime=0)


def unpacked(rows: bytes) -> Iterator[tuple[int, int, Cells]]:
    """Yield number, context and cells of each row. Raises `SegmentDamaged`."""
    try:
        text = gzip.decompress(rows).decode()
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise SegmentDamaged(f"its rows cannot be read: {error}") from None
    for row in text.split("\n")[:-1]:
        try:
            seq, context, rest = row.split("\t", 2)
            yield int(seq), int(context), cells(rest)
        except ValueError as error:
            raise SegmentDamaged(f"a row cannot be read: {error}") from None


def context_members(context: ObservationContext) -> dict[str, str]:
    """Return the members of a context that differ from their defaults."""
    return {
        name: value
        for name, value in context._asdict().items()
        if value is not None and value != ObservationContext._field_defaults[name]
    }


def _is_tombstone(path: Path) -> bool:
    try:
        return SegmentManifest.from_json(path.read_bytes()).tombstone
    except (FileNotFoundError, SegmentDamaged, SegmentNewer):
        return False


class _Version(BaseModel):
    """The member that all versions of the format have."""

    model_config = ConfigDict(strict=True)
    schema_: int = Field(alias="schema", ge=1, lt=1 << 31)


class _Context(BaseModel):
    """Members of `ObservationContext`."""

    model_config = ConfigDict(strict=True, extra="forbid")
    series: str | None = None
    topic: str | None = None
    feature: str | None = None
    property: str | None = None
    sensor: str | None = None
    unit: str | None = None
    datatype: str = ObservationContext._field_defaults["datatype"]
    time_datatype: str = ObservationContext._field_defaults["time_datatype"]
    graph: str | None = None


class _Members(_Version):
    """Members of a manifest in the current schema."""

    model_config = ConfigDict(strict=True, extra="forbid")
    gateway: Annotated[str, Field(pattern=f"^{GATEWAY.pattern}$")]
    epoch: Annotated[str, Field(pattern=f"^{EPOCH.pattern}$")]
    first: _Number
    last: _Number
    start: _Time
    end: _Time
    size: Annotated[int, Field(ge=0, lt=1 << 63)] = 0
    sha256: Annotated[str, Field(pattern="^([0-9a-f]{64})?$")] = ""
    contexts: dict[Annotated[str, Field(pattern="^(0|[1-9][0-9]{0,8})$")], _Context]
    replayed: bool = False
    reason: str = ""


def _escaped(cell: str) -> str:
    return cell.translate(_ESCAPES) if _SPECIAL.search(cell) else cell


def _unescaped(cell: str) -> str:
    """Reverse `_escaped`. Like Spark, keep a backslash that begins none of its escapes."""
    return _ESCAPED.sub(lambda found: _MEANING[found[1]], cell) if "\\" in cell else cell


_ESCAPES: Final = str.maketrans({"\t": "\\t", "\n": "\\n", "\r": "\\r", "\\": "\\\\"})
_SPECIAL: Final = re.compile(r"[\t\n\r\\]")
_ESCAPED: Final = re.compile(r"\\([\\tnr])")
_MEANING: Final = {"t": "\t", "n": "\n", "r": "\r", "\\": "\\"}
