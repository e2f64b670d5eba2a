"""A simulated gateway for the ingester: it repeats observations that are neither acknowledged nor waiting."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from edge.outbox.observation import Cells, ObservationContext
from edge.outbox.segment import MANIFEST, ROWS, SegmentManifest, line, packed, stem
from spark_offload.landing import write

EPOCH = "00000000000000aa"


class Sender:
    """The sender of one outbox. Its observations are numbered from 1."""

    def __init__(
        self,
        landing: Path,
        observations: Sequence[tuple[ObservationContext, Cells]],
        gateway: str = "box-1",
        epoch: str = EPOCH,
    ) -> None:
        self.gateway = gateway
        self.epoch = epoch
        self.observations = observations
        self.folder = landing / gateway / epoch
        self._acknowledged = landing / gateway / "ack.json"

    def send(self, first: int, last: int, *, replayed: bool = False) -> Path:
        """Write a segment. Return the path of its manifest."""
        numbers: dict[ObservationContext, int] = {}
        lines, times = [], []
        for seq in range(first, last + 1):
            context, cells = self.observations[seq - 1]
            lines.append(line(seq, numbers.setdefault(context, len(numbers) + 1), cells))
            times.append(cells.time)
        rows = packed(lines)
        contexts = {number: context for context, number in numbers.items()}
        manifest = SegmentManifest(
            self.gateway, self.epoch, first, last, min(times), max(times), len(rows), hashlib.sha256(rows).hexdigest(),
            contexts, replayed=replayed,
        )  # fmt: skip
        return self.put(manifest, rows)

    def drop(self, first: int, last: int) -> Path:
        """Write a tombstone."""
        times = [cells.time for _, cells in self.observations[first - 1 : last]]
        return self.put(
            SegmentManifest(self.gateway, self.epoch, first, last, min(times), max(times), reason="full"), None
        )

    def put(self, manifest: SegmentManifest, rows: bytes | None) -> Path:
        """Write the parts of a segment."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if rows is not None:
            write(self.folder / (manifest.stem + ROWS), rows)
        path = self.folder / (manifest.stem + MANIFEST)
        write(path, manifest.to_json())
        return path

    @property
    def acknowledged(self) -> int:
        """Return the last number that the gateway knows to be in the table."""
        try:
            reported = json.loads(self._acknowledged.read_bytes())["acknowledged"]
        except FileNotFoundError:
            return 0
        return int(reported.get(self.epoch, {}).get("last", 0))

    def send_again(self, until: int, rows: int = 10) -> None:
        """Repeat observations that are neither acknowledged nor waiting, up to a number."""
        first = self.acknowledged + 1
        while first <= until:
            last = min(first + rows - 1, until)
            if not (self.folder / (stem(first, last) + MANIFEST)).exists():
                self.send(first, last)
            first = last + 1


def rows_of(manifest: Path) -> Path:
    """Return the path of a segment's rows."""
    return manifest.with_name(manifest.name.removesuffix(MANIFEST) + ROWS)
