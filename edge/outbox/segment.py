"""Segments: immutable files of observations, from the gateway to the Spark store. The one thing that both sides know.

A segment holds the observations of one outbox (gateway and epoch) with the numbers `first` to `last`, none left out. It
is two files, the second of which says that the first is whole:

    GATEWAY/EPOCH/000000000001-000000010000.tsv.gz    the rows
    GATEWAY/EPOCH/000000000001-000000010000.json      the manifest

A row is a line: number, context, and the cells in the order of `Cells`, with tabs between; what is missing is empty,
and at the end of a line so are its tabs. In cells `\\t`, `\\n`, `\\r` and `\\\\` stand for what would end a cell.
A manifest without rows is a *tombstone*: these observations were dropped by the gateway, and the history knows.
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
from typing import Final

from edge.outbox.observation import EPOCH_LENGTH, Cells, Context

SCHEMA: Final = 1
"""The version of what is written here. Who reads a newer one leaves it where it is."""

ROWS: Final = ".tsv.gz"
MANIFEST: Final = ".json"

GATEWAY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""What a gateway may be called."""
EPOCH: Final = re.compile(rf"[0-9a-f]{{{EPOCH_LENGTH}}}")
STEM: Final = re.compile(r"(\d{12,18})-(\d{12,18})")
"""The name of a segment's files, without what they end in."""


class SegmentDamaged(ValueError):
    """It is not what the gateway wrote; the text says why."""


class SegmentNewer(ValueError):
    """It was written by a newer gateway, in a schema that this program does not know."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What there is to know of a segment before it is read."""

    gateway: str
    epoch: str
    first: int
    last: int
    start: int
    """The earliest time in it, microseconds since 1970."""
    end: int
    """The latest."""
    size: int = 0
    """Bytes of the file of rows."""
    sha256: str = ""
    """Of the same; empty: a tombstone."""
    contexts: Mapping[int, Context] = field(default_factory=dict)
    """Those of its rows."""
    replayed: bool = False
    """Whether it was sent after an outage, later than it would have been."""
    reason: str = ""
    """Why a tombstone's observations were dropped."""
    schema: int = SCHEMA

    @property
    def rows(self) -> int:
        """How many observations it stands for."""
        return self.last - self.first + 1

    @property
    def tombstone(self) -> bool:
        """Whether its observations are lost."""
        return not self.sha256

    @property
    def stem(self) -> str:
        """The name of its files, without what they end in."""
        return stem(self.first, self.last)

    @property
    def folder(self) -> str:
        """Where they are in the landing zone."""
        return f"{self.gateway}/{self.epoch}"

    def to_json(self) -> bytes:
        """The manifest as it is written: equal ones are equal bytes."""
        body: dict[str, object] = {
            name: getattr(self, name)
            for name in ("schema", "gateway", "epoch", "first", "last", "start", "end", "size", "sha256", "replayed")
        }
        if self.reason:
            body["reason"] = self.reason
        body["contexts"] = {str(number): told(context) for number, context in sorted(self.contexts.items())}
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, text: bytes) -> Manifest:
        """Read a manifest. Raises `SegmentDamaged`, `SegmentNewer`."""
        try:
            body = json.loads(text)
        except ValueError as error:
            raise SegmentDamaged(f"its manifest cannot be read, it is no JSON: {error}") from None
        try:
            if body["schema"] > SCHEMA:
                raise SegmentNewer(f"it has schema {body['schema']}, and this program knows {SCHEMA}; update it")
            contexts = {int(number): Context(**told) for number, told in body.pop("contexts").items()}
            manifest = cls(contexts=contexts, **body)
        except SegmentNewer:
            raise
        except (ValueError, TypeError, KeyError, AttributeError):
            raise SegmentDamaged("its manifest cannot be read: it has other members than manifests have") from None
        if fault := _fault(manifest):
            raise SegmentDamaged(f"its manifest makes no sense: {fault}")
        return manifest

    def check(self, rows: bytes) -> None:
        """Raises `SegmentDamaged` where the file of rows is not the one that the manifest is for."""
        if len(rows) != self.size:
            raise SegmentDamaged(f"it has {len(rows)} bytes, its manifest says {self.size}")
        if hashlib.sha256(rows).hexdigest() != self.sha256:
            raise SegmentDamaged("its checksum is not that of its manifest")


def stem(first: int, last: int) -> str:
    """The name of a segment's files, without what they end in."""
    return f"{first:012d}-{last:012d}"


def held(folder: Path) -> list[tuple[int, int]]:
    """First and last number of each segment in a folder. Raises `FileNotFoundError`.

    What is no segment is none: folders, files of other names, manifests that neither have rows nor tell of a loss.
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
    """A row, without its end."""
    return f"{seq}\t{context}\t{body(cells)}"


def body(cells: Cells) -> str:
    """The cells of a row."""
    return "\t".join(["" if cell is None else _escaped(str(cell)) for cell in cells]).rstrip("\t")


def cells(text: str) -> Cells:
    """Read what `body` wrote. Raises `SegmentDamaged`."""
    try:
        time, *rest = text.split("\t")
        return Cells(int(time), *[_unescaped(cell) if cell else None for cell in rest])
    except (ValueError, TypeError) as error:
        raise SegmentDamaged(f"a row cannot be read: {error}") from None


def packed(lines: Iterable[str]) -> bytes:
    """The file of rows: equal rows are equal bytes."""
    return gzip.compress("".join([f"{row}\n" for row in lines]).encode(), compresslevel=6, mtime=0)


def unpacked(rows: bytes) -> Iterator[tuple[int, int, Cells]]:
    """Number, context and cells of each row. Raises `SegmentDamaged`."""
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


def told(context: Context) -> dict[str, str]:
    """What a context says beyond the defaults."""
    return {
        name: value
        for name, value in context._asdict().items()
        if value is not None and value != Context._field_defaults[name]
    }


def _is_tombstone(path: Path) -> bool:
    try:
        return Manifest.from_json(path.read_bytes()).tombstone
    except (FileNotFoundError, SegmentDamaged, SegmentNewer):
        return False


def _fault(manifest: Manifest) -> str:
    """Why it makes no sense; empty: it does."""
    numbers: tuple[object, ...] = (
        manifest.first,
        manifest.last,
        manifest.start,
        manifest.end,
        manifest.size,
        manifest.schema,
    )
    texts: tuple[object, ...] = (manifest.gateway, manifest.epoch, manifest.sha256, manifest.reason)
    if not all(type(number) is int for number in numbers) or not all(type(text) is str for text in texts):
        return "a member has the wrong type"
    if not GATEWAY.fullmatch(manifest.gateway) or not EPOCH.fullmatch(manifest.epoch):
        return "it names no outbox"
    if not 1 <= manifest.first <= manifest.last:
        return "it has no range"
    if manifest.sha256 and not re.fullmatch("[0-9a-f]{64}", manifest.sha256):
        return "it has no checksum"
    return ""


def _escaped(cell: str) -> str:
    return cell.translate(_ESCAPES) if _SPECIAL.search(cell) else cell


def _unescaped(cell: str) -> str:
    return _ESCAPED.sub(lambda found: _MEANING[found[1]], cell) if "\\" in cell else cell


_ESCAPES: Final = str.maketrans({"\t": "\\t", "\n": "\\n", "\r": "\\r", "\\": "\\\\"})
_SPECIAL: Final = re.compile(r"[\t\n\r\\]")
_ESCAPED: Final = re.compile(r"\\(.)")
_MEANING: Final = {"t": "\t", "n": "\n", "r": "\r", "\\": "\\"}
