"""Random stories of an outbox and its landing zone: in the end each observation is there exactly once."""

from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from memory_outbox import MemoryOutbox, ToldShipper, Zone

from edge.outbox.directory import DirectoryLanding
from edge.outbox.landing import LandingFailed
from edge.outbox.settings import OffloadSettings
from tests.support.examples import examples


class Unsteady:
    """A landing zone that fails for good after a number of segments, possibly between two files of a segment."""

    def __init__(self, path):
        self.landing = DirectoryLanding(path)
        self.left = 0

    def look(self, gateway, epoch):
        return self.landing.look(gateway, epoch)

    def put(self, segment):
        if self.left == 0:
            if not segment.manifest.tombstone:  # the rows arrive, the manifest does not
                folder = self.landing._path / segment.manifest.folder
                folder.mkdir(parents=True, exist_ok=True)
                (folder / f"{segment.manifest.stem}.tsv.gz").write_bytes(segment.rows[:-1])
            raise LandingFailed("it went away")
        self.left -= 1
        self.landing.put(segment)


class Stories(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.directory = TemporaryDirectory()
        self.zone = Zone(Path(self.directory.name))
        self.outbox = MemoryOutbox()
        self.landing = Unsteady(self.zone.path)
        self.ingested = {}
        """Maps numbers to values; None where an observation was dropped."""
        self.start()

    def start(self):
        self.shipper = ToldShipper(self.outbox, self.landing, OffloadSettings(segment_rows=7), now=lambda: 0.0)
        self.shipper.start()

    def teardown(self):
        self.landing.left = 1000
        assert self.shipper.ship().result(20).failure == ""
        self.ingest(1000)
        self.shipper.ship().result(20)
        assert list(self.ingested) == [*range(1, self.outbox.last + 1)]
        assert {seq for seq, value in self.ingested.items() if value is None} <= self.gone
        assert all(value in (None, f"{seq}.5") for seq, value in self.ingested.items())
        assert (self.outbox.acknowledged, self.outbox.stored, self.outbox.dropped) == (self.outbox.last, {}, [])
        self.shipper.stop(20)
        self.directory.cleanup()

    gone = frozenset()
    """Observations dropped at the disk limit."""

    @rule(count=st.integers(1, 20))
    def store(self, count):
        self.outbox.store(count)

    @rule(count=st.integers(1, 8))
    @precondition(lambda self: self.outbox.stored)
    def drop(self, count):
        first = min(self.outbox.stored)
        last = min(first + count, max(self.outbox.stored) + 1) - 1
        self.outbox.drop(first, last)
        self.gone |= {*range(first, last + 1)}

    @rule(left=st.integers(0, 3))
    def ship(self, left):
        self.landing.left = left
        self.shipper.ship().result(20)

    @rule()
    def restart(self):
        self.shipper.stop(20)
        self.start()

    @rule(data=st.data())
    @precondition(lambda self: self.zone.ranges())
    def lose(self, data):
        self.zone.remove(data.draw(st.sampled_from(self.zone.ranges()))[0])

    @rule(most=st.integers(0, 3))
    def ingest(self, most):
        """Act as an ingester: contiguous segments into the table, then the acknowledgement."""
        position = len(self.ingested)
        for manifest in self.zone.manifests():
            if most and manifest.first <= position + 1 <= manifest.last:
                values = dict.fromkeys(range(manifest.first, manifest.last + 1))
                if not manifest.tombstone:
                    values = {seq: cells.value for seq, _, cells in self.zone.read(manifest)}
                self.ingested |= {seq: value for seq, value in values.items() if seq > position}
                position, most = manifest.last, most - 1
        if position:
            self.zone.acknowledge(position)

    @rule()
    def clean(self):
        """Act as an ingester: remove ingested segments."""
        for first, last in self.zone.ranges():
            if last <= len(self.ingested):
                self.zone.remove(first)

    @rule()
    def lose_the_acknowledgement(self):
        (self.zone.path / self.zone.gateway / "ack.json").unlink(missing_ok=True)

    @invariant()
    def nothing_is_there_twice(self):
        ranges = self.zone.ranges()
        assert all(last < first for (_, last), (first, _) in pairwise(ranges))


Stories.TestCase.settings = settings(max_examples=examples(40), stateful_step_count=20)
test_each_observation_is_known_once_whatever_happens = Stories.TestCase
