"""An outbox in memory that the test fills and caps, a shipper without a schedule, and a landing zone."""

from pathlib import Path

from edge.outbox.observation import Cells, ObservationContext
from edge.outbox.segment import MANIFEST, ROWS, SegmentManifest, body, unpacked
from edge.outbox.shipper import Shipper
from edge.outbox.sqlite_tables import Lost
from spark_offload.landing import LandingZone, OutboxEpoch

EPOCH = "0123456789abcdef"
SECOND = 1_000_000


class MemoryOutbox:
    gateway = "attic"

    def __init__(self, count=0):
        self.epoch = EPOCH
        self.acknowledged = 0
        self.claimed = 0
        self.last = 0
        self.stored = {}
        self.dropped = []
        self.store(count)

    def store(self, count, start=0):
        for seq in range(self.last + 1, self.last + count + 1):
            self.stored[seq] = (seq % 3, body(Cells(start + seq * SECOND, f"{seq}.5")))
        self.last += count

    def drop(self, first, last):
        for seq in range(first, last + 1):
            del self.stored[seq]
        self.dropped.append(Lost(first, last, first * SECOND, last * SECOND, "full"))

    def rows(self, first, limit):
        found = [(seq, *self.stored[seq]) for seq in sorted(self.stored) if seq >= first]
        return iter(found[:limit])

    def contexts(self, ids):
        return {number: ObservationContext(f"urn:s{number}", sensor=f"urn:sensor{number}") for number in ids}

    def lost(self):
        return list(self.dropped)

    def acknowledge(self, last):
        self.acknowledged = min(last, self.last)
        self.stored = {seq: row for seq, row in self.stored.items() if seq > last}
        self.dropped = [lost for lost in self.dropped if lost.last > last]

    def claim(self, last):
        self.claimed = max(last, self.claimed)

    def begin_epoch(self, acknowledged):
        self.acknowledge(min(acknowledged, self.claimed))
        less = self.acknowledged
        self.stored = {seq - less: row for seq, row in self.stored.items()}
        self.epoch = f"{int(self.epoch, 16) + 1:016x}"
        self.last -= less
        self.acknowledged = self.claimed = 0


class ToldShipper(Shipper):
    """A shipper that ships only on request, so that nothing runs in parallel with the test."""

    def _is_due(self):
        return False


class Zone:
    """A directory with the segments of one gateway."""

    def __init__(self, path: Path, gateway="attic", epoch=EPOCH):
        self.path = path
        self.gateway = gateway
        self.folder = path / gateway / epoch
        self.epoch = epoch

    def manifests(self):
        """Return all manifests by their first number, checked against their rows."""
        found = []
        for file in sorted(self.folder.glob(f"[!.]*{MANIFEST}")):
            manifest = SegmentManifest.from_json(file.read_bytes())
            assert file.name == manifest.stem + MANIFEST
            if not manifest.tombstone:
                manifest.check(self.rows_of(manifest).read_bytes())
                assert [seq for seq, _, _ in self.read(manifest)] == [*range(manifest.first, manifest.last + 1)]
            found.append(manifest)
        return found

    def rows_of(self, manifest):
        return self.folder / (manifest.stem + ROWS)

    def read(self, manifest):
        return list(unpacked(self.rows_of(manifest).read_bytes()))

    def ranges(self):
        return [(manifest.first, manifest.last) for manifest in self.manifests()]

    def acknowledge(self, last):
        LandingZone(self.path).acknowledge({OutboxEpoch(self.gateway, self.epoch): last}, 7)

    def quarantine(self, first):
        landing = LandingZone(self.path)
        (segment,) = [one for one in landing.segments(OutboxEpoch(self.gateway, self.epoch)) if one.first == first]
        landing.quarantine(segment, "its checksum is not that of its manifest")

    def remove(self, first):
        for file in self.folder.glob(f"{first:012d}-*"):
            file.unlink()
