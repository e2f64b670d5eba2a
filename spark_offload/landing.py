"""The landing zone as the ingester sees it: segments that wait, segments that are damaged, acknowledgements.

    GATEWAY/EPOCH/FIRST-LAST.tsv.gz, .json            what came (`edge.outbox.segment`)
    GATEWAY/ack.json                                  what of it is in the table for good
    quarantine/GATEWAY/EPOCH/FIRST-LAST.*, .reason    what was damaged; its gateway sends it again

Gateways, receivers and ingesters use it at the same time, so a file may be gone when it is looked at.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from edge.outbox.segment import EPOCH, GATEWAY, MANIFEST, ROWS, STEM, Manifest, SegmentDamaged
from spark_offload.errors import LandingRefused

ACKNOWLEDGED: Final = "ack.json"
QUARANTINE: Final = "quarantine"
REASON: Final = ".reason"
SCHEMA: Final = 1
"""Of the acknowledgements."""


class Outbox(NamedTuple):
    """Whose numbers they are."""

    gateway: str
    epoch: str

    def __str__(self) -> str:
        return f"{self.gateway}/{self.epoch}"


class PendingSegment(NamedTuple):
    """A segment, as its name tells it."""

    outbox: Outbox
    first: int
    last: int
    manifest: Path

    @property
    def rows(self) -> Path:
        """The file of its rows."""
        return self.manifest.with_name(self.manifest.name.removesuffix(MANIFEST) + ROWS)


class Quarantined(NamedTuple):
    """A segment that was damaged."""

    outbox: Outbox
    stem: str
    reason: str


class Landing:
    """A landing zone that is there. Raises `LandingRefused` where it is not."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not folder.is_dir():
            raise LandingRefused(f"{folder} is no directory: make it, or mount it, before gateways ship to it")

    def outboxes(self) -> Iterator[Outbox]:
        """Those that have sent something, in order."""
        for gateway in _folders(self.folder):
            if GATEWAY.fullmatch(gateway.name) and gateway.name != QUARANTINE:
                for epoch in _folders(gateway):
                    if EPOCH.fullmatch(epoch.name):
                        yield Outbox(gateway.name, epoch.name)

    def segments(self, outbox: Outbox) -> list[PendingSegment]:
        """Those whose manifest is there, by their first number."""
        found = []
        for path in _files(self._folder(outbox)):
            name = STEM.fullmatch(path.name.removesuffix(MANIFEST)) if path.name.endswith(MANIFEST) else None
            if name:
                found.append(PendingSegment(outbox, int(name[1]), int(name[2]), path))
        return sorted(found)

    def manifest(self, segment: PendingSegment) -> Manifest:
        """What the gateway wrote of it. Raises `SegmentDamaged`, `SegmentNewer`, `FileNotFoundError`."""
        manifest = Manifest.from_json(segment.manifest.read_bytes())
        if (manifest.gateway, manifest.epoch, manifest.first, manifest.last) != (*segment.outbox, *segment[1:3]):
            raise SegmentDamaged(f"its manifest is that of {manifest.folder}/{manifest.stem}")
        return manifest

    def quarantine(self, segment: PendingSegment, reason: str) -> None:
        """Put a damaged segment aside, for people to look at. Its gateway then sends it again.

        The manifest goes last: without its rows it is damaged still, rows without one would be in the way for ever.
        """
        target = self.folder / QUARANTINE / segment.outbox.gateway / segment.outbox.epoch
        target.mkdir(parents=True, exist_ok=True)
        write(target / segment.manifest.with_suffix(REASON).name, f"{reason}\n".encode())
        for path in (segment.rows, segment.manifest):
            with contextlib.suppress(FileNotFoundError):
                path.replace(target / path.name)
                sync(path.parent)

    def quarantined(self) -> list[Quarantined]:
        """What was put aside and nobody has removed."""
        return [
            Quarantined(
                Outbox(path.parent.parent.name, path.parent.name),
                path.name.removesuffix(REASON),
                path.read_text(errors="replace").strip(),
            )
            for path in sorted((self.folder / QUARANTINE).glob(f"*/*/*{REASON}"))
        ]

    def acknowledged(self, gateway: str) -> dict[str, dict[str, int]]:
        """Of each epoch `last`, the last number that is in the table, and `table_version`, since when.

        Empty where it is missing or is damaged: the next round of the ingester writes it anew.
        """
        try:
            body: Any = json.loads((self.folder / gateway / ACKNOWLEDGED).read_bytes())
            return {
                str(epoch): {"last": int(told["last"]), "table_version": int(told["table_version"])}
                for epoch, told in body["acknowledged"].items()
            }
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return {}

    def acknowledge(self, positions: Mapping[Outbox, int], version: int) -> None:
        """Tell gateways what is in the table, as of a version of it.

        An acknowledgement is never taken back: the gateway may have deleted what it is for.
        """
        for gateway in {outbox.gateway for outbox in positions}:
            if not (self.folder / gateway).is_dir():  # it ships to another landing zone
                continue
            before = self.acknowledged(gateway)
            after = dict(before)
            for outbox, last in positions.items():
                if outbox.gateway == gateway and last > before.get(outbox.epoch, {}).get("last", 0):
                    after[outbox.epoch] = {"last": last, "table_version": version}
            if after != before:
                body = {"schema": SCHEMA, "acknowledged": dict(sorted(after.items()))}
                write(self.folder / gateway / ACKNOWLEDGED, json.dumps(body).encode())

    def clean(self, positions: Mapping[Outbox, int], keep: float) -> int:
        """Remove the files of what is in the table, `keep` seconds after they came. Returns how many."""
        removed = 0
        for outbox, position in positions.items():
            for path in _files(self._folder(outbox)):
                name = STEM.fullmatch(path.name.removesuffix(MANIFEST).removesuffix(ROWS))
                if name and int(name[2]) <= position and age(path) > keep:
                    path.unlink(missing_ok=True)
                    removed += 1
        return removed

    def _folder(self, outbox: Outbox) -> Path:
        return self.folder / outbox.gateway / outbox.epoch


def age(path: Path) -> float:
    """Seconds since a file came; 0 where it is gone."""
    try:
        return max(0.0, time.time() - path.stat().st_mtime)
    except FileNotFoundError:
        return 0.0


def write(path: Path, body: bytes) -> None:
    """Put a file in place so that it is there whole, and for good, or as it was before."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as draft:
        try:
            draft.write(body)
            draft.flush()
            os.fsync(draft.fileno())
            Path(draft.name).chmod(0o644)
            Path(draft.name).replace(path)
        except BaseException:
            Path(draft.name).unlink(missing_ok=True)
            raise
    sync(path.parent)


def sync(path: Path) -> None:
    """Have a file, or the names in a directory, on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _folders(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.iterdir()) if path.is_dir()]


def _files(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return [Path(entry.path) for entry in entries if entry.is_file()]
    except FileNotFoundError:
        return []
