"""The shipper: the content of a landing zone after rounds, whatever happened to earlier content."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_outbox import SECOND, MemoryOutbox, ToldShipper, Zone
from support.logs import records_of

from edge.outbox.directory import DirectoryLanding
from edge.outbox.landing import KnownOutbox, LandingFailed
from edge.outbox.segmenter import cut
from edge.outbox.settings import OffloadSettings
from edge.outbox.shipper import Shipper
from edge.outbox.sqlite_tables import DamagedDatabase
from edge.protocol.errors import StorageFailed
from tests.support.waiting import wait_for

NEVER = OffloadSettings(every=86_400, segment_rows=10)


@pytest.fixture
def zone(tmp_path):
    (tmp_path / "landing").mkdir()
    return Zone(tmp_path / "landing")


@pytest.fixture
def shipping(zone):
    """Start a shipper; without `schedule`, it ships only on request."""
    started = []

    def shipping(outbox, landing=None, settings=NEVER, *, schedule=False, now=lambda: 0.0, **others):
        kind = Shipper if schedule else ToldShipper
        shipper = kind(outbox, landing or DirectoryLanding(zone.path), settings, now=now, **others)
        shipper.start()
        started.append(shipper)
        return shipper

    yield shipping
    for shipper in started:
        shipper.stop(10)
        assert not shipper.alive


def ship(shipper):
    return shipper.ship().result(20)


class Broken:
    """A landing zone that fails on request: after this number of files it accepts no more."""

    def __init__(self, landing):
        self.landing = landing
        self.left = 0

    def look(self, gateway, epoch):
        if not self.left:
            raise LandingFailed("it is away")
        return self.landing.look(gateway, epoch)

    def put(self, segment):
        self.left -= 1
        if not self.left:
            raise LandingFailed("it went away")
        self.landing.put(segment)


def test_each_waiting_observation_is_in_one_segment(zone, shipping):
    outbox = MemoryOutbox(25)
    shipper = shipping(outbox)
    ship(shipper)
    assert zone.ranges() == [(1, 10), (11, 20), (21, 25)]
    outbox.store(3)
    assert ship(shipper) == (1, 3, "")
    assert zone.ranges()[-1] == (26, 28)
    assert ship(shipper) == (0, 0, "")
    whole = {seq: cells.value for manifest in zone.manifests() for seq, _, cells in zone.read(manifest)}
    assert whole == {seq: f"{seq}.5" for seq in range(1, 29)}
    manifest = zone.manifests()[2]
    assert (manifest.start, manifest.end, manifest.gateway) == (21 * SECOND, 25 * SECOND, "attic")
    assert manifest.contexts == outbox.contexts({0, 1, 2})
    assert not list(zone.path.rglob(".*"))


def test_new_shipper_does_not_repeat_shipped_segments(zone, shipping):
    outbox = MemoryOutbox(25)
    ship(shipping(outbox))
    assert ship(shipping(outbox)) == (0, 0, "")


def test_only_acknowledged_observations_are_deleted(zone, shipping):
    outbox = MemoryOutbox(25)
    shipper = shipping(outbox, now=lambda: 1234.5)
    ship(shipper)
    assert shipper.acknowledged_at is None
    zone.acknowledge(20)
    ship(shipper)
    assert (sorted(outbox.stored), outbox.acknowledged, shipper.known.acknowledged) == ([*range(21, 26)], 20, 20)
    assert shipper.acknowledged_at == 1234.5
    for path in zone.folder.glob("*"):  # after a day the ingester removes ingested segments
        path.unlink()
    ship(shipper)
    assert zone.ranges() == [(21, 25)]
    (zone.path / "attic/ack.json").unlink()
    assert ship(shipper) == (0, 0, "")
    assert ship(shipping(outbox)) == (0, 0, "")


@pytest.mark.parametrize("text", ["", "nonsense", "[]", '{"acknowledged": {"0123456789abcdef": {"last": "9"}}}'])
def test_an_unreadable_acknowledgement_is_ignored(zone, shipping, text):
    outbox = MemoryOutbox(5)
    shipper = shipping(outbox)
    ship(shipper)
    (zone.path / "attic/ack.json").write_text(text)
    assert ship(shipper).failure == ""
    assert len(outbox.stored) == 5


def test_quarantined_or_lost_segments_are_sent_again(zone, shipping):
    outbox = MemoryOutbox(30)
    shipper = shipping(outbox)
    ship(shipper)
    before = zone.rows_of(zone.manifests()[2]).read_bytes()
    zone.remove(1)
    zone.quarantine(21)
    zone.acknowledge(5)
    outbox.store(4)
    assert ship(shipper) == (3, 5 + 14, "")
    assert zone.ranges() == [(6, 10), (11, 20), (21, 30), (31, 34)]
    assert zone.rows_of(zone.manifests()[2]).read_bytes() == before


def test_dropped_observations_are_tombstones_unless_they_had_been_shipped(zone, shipping):
    outbox = MemoryOutbox(10)
    shipper = shipping(outbox)
    ship(shipper)
    outbox.store(20)
    outbox.drop(6, 12)
    outbox.drop(13, 17)
    ship(shipper)
    assert zone.ranges() == [(1, 10), (11, 17), (18, 27), (28, 30)]
    tombstone = zone.manifests()[1]
    assert (tombstone.tombstone, tombstone.rows, tombstone.reason) == (True, 7, "full")
    assert (tombstone.start, tombstone.end) == (6 * SECOND, 17 * SECOND)
    assert not zone.rows_of(tombstone).exists()


def test_earlier_observations_are_replayed_after_a_failure(zone, shipping, caplog):
    outbox = MemoryOutbox(5)
    landing = Broken(DirectoryLanding(zone.path))
    landing.left = 100
    shipper = shipping(outbox, landing)
    ship(shipper)
    landing.left = 0
    outbox.store(12)
    with caplog.at_level(logging.INFO, "edge.outbox"):
        assert ship(shipper).failure == "it is away"
        outbox.store(3)
        assert ship(shipper).failure == "it is away"
        outbox.store(7)
        landing.left = 100
        assert ship(shipper) == (3, 22, "")
    assert [manifest.replayed for manifest in zone.manifests()] == [False, True, True, False]
    assert zone.ranges() == [(1, 5), (6, 15), (16, 25), (26, 27)]
    assert [record.getMessage() for record in records_of("edge", caplog)] == ["offload.down", "offload.up"]
    assert (shipper.failures, shipper.failure) == (2, "")
    outbox.store(1)
    ship(shipper)
    assert not zone.manifests()[-1].replayed


def test_overdue_observations_are_replayed_at_the_start(zone, shipping):
    outbox = MemoryOutbox(4)
    outbox.store(2, start=1000 * SECOND)
    ship(shipping(outbox, settings=NEVER.model_copy(update={"every": 100, "segment_rows": 2}), now=lambda: 1050.0))
    assert [manifest.replayed for manifest in zone.manifests()] == [True, True, False]


def test_a_started_segment_is_completed_first(zone, shipping):
    outbox = MemoryOutbox(5)
    landing = Broken(DirectoryLanding(zone.path))
    landing.left = 1
    shipper = shipping(outbox, landing)
    assert ship(shipper).failure
    outbox.store(20)
    landing.left = 100
    ship(shipper)
    assert zone.ranges() == [(1, 5), (6, 15), (16, 25)]


def test_waits_grow_to_a_limit_and_are_of_random_length(shipping):
    asked = []

    def uniform(least, most):
        asked.append((least, most))
        return most

    landing = Broken(None)
    shipper = shipping(
        MemoryOutbox(), landing, NEVER.model_copy(update={"retry_min": 10.0, "retry_max": 300.0}), uniform=uniform
    )
    for _ in range(8):
        ship(shipper)
    assert asked == [(most / 2, most) for most in (10, 20, 40, 80, 160, 300, 300, 300)]


def test_shipping_is_retried_after_a_failure(zone, shipping):
    landing = Broken(DirectoryLanding(zone.path))
    tried = []

    def uniform(least, most):
        tried.append(most)
        if len(tried) == 3:
            landing.left = 100
        return 0.001

    shipper = shipping(MemoryOutbox(5), landing, schedule=True, uniform=uniform)
    wait_for(lambda: shipper.segments)
    assert zone.ranges() == [(1, 5)]
    assert len(tried) == 3


def test_when_a_segment_is_full_it_is_shipped_at_once(zone, shipping):
    outbox = MemoryOutbox(5)
    shipper = shipping(outbox, schedule=True)
    wait_for(lambda: shipper.segments)
    outbox.store(10)
    wait_for(lambda: shipper.segments == 2)
    assert zone.ranges() == [(1, 5), (6, 15)]


def test_the_shipper_ships_periodically(zone, shipping):
    outbox = MemoryOutbox(1)
    shipper = shipping(outbox, settings=NEVER.model_copy(update={"every": 0.01}), schedule=True)
    for count in range(1, 4):
        wait_for(lambda count=count: shipper.segments == count)
        outbox.store(1)


def test_an_older_copy_of_the_outbox_continues_in_another_epoch(zone, shipping):
    later = MemoryOutbox(25)
    ship(shipping(later))
    zone.acknowledge(20)
    older = MemoryOutbox(15)
    older.claim(10)
    older.store(20)  # enough to hide that others have their numbers
    ship(shipper := shipping(older))
    assert older.epoch != zone.epoch
    again = Zone(zone.path, epoch=older.epoch)
    assert again.ranges() == [(1, 10), (11, 20), (21, 25)]
    assert all(manifest.replayed for manifest in again.manifests())
    again.acknowledge(25)
    ship(shipper)
    assert older.acknowledged == 25
    assert older.stored == {}


def test_an_acknowledgement_of_unshipped_observations_deletes_nothing(zone, shipping):
    class Boaster(DirectoryLanding):
        def look(self, gateway, epoch):
            return KnownOutbox(1000)

    outbox = MemoryOutbox()
    shipper = shipping(outbox, Boaster(zone.path))
    for _ in range(3):
        outbox.store(5)
        assert ship(shipper).observations == 5
    assert len(outbox.stored) == 5


def test_a_failed_deletion_is_retried(zone, shipping):
    outbox = MemoryOutbox(5)
    shipper = shipping(outbox)
    ship(shipper)
    zone.acknowledge(5)
    forget, outbox.acknowledge = outbox.acknowledge, refuse
    outbox.store(2)
    assert "full" in ship(shipper).failure
    assert zone.ranges() == [(1, 5), (6, 7)]
    outbox.acknowledge = forget
    assert ship(shipper).failure == ""
    assert sorted(outbox.stored) == [6, 7]


def refuse(last):
    raise StorageFailed("the disk is full")


def test_an_internal_error_does_not_end_the_thread(zone, shipping, monkeypatch):
    outbox = MemoryOutbox(5)
    shipper = shipping(outbox)
    ship(shipper)
    monkeypatch.setattr(outbox, "rows", None)
    outbox.store(1)
    assert "NoneType" in ship(shipper).failure
    monkeypatch.undo()
    assert ship(shipper) == (1, 1, "")


def test_a_request_after_the_stop_is_refused(shipping):
    shipper = shipping(MemoryOutbox())
    shipper.stop(10)
    assert shipper.ship().cancelled()


def test_missing_segments_get_no_tombstone():
    outbox = MemoryOutbox(5)
    del outbox.stored[2]
    with pytest.raises(DamagedDatabase, match="observation 2 is not stored"):
        cut(outbox, 2, 5)


@given(
    st.integers(0, 40),
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, 20)).map(lambda pair: (pair[0], sum(pair)))),
    st.integers(0, 50),
)
def test_missing_and_known_numbers_are_complete(acknowledged, held, last):
    missing = [*KnownOutbox(acknowledged, tuple(held)).missing(last)]
    numbers = [number for first, end in missing for number in range(first, end + 1)]
    known = {*range(1, acknowledged + 1)}.union(*(range(first, end + 1) for first, end in held))
    assert numbers == [number for number in range(1, last + 1) if number not in known]
