"""The reported status of shipping."""

import threading

import pytest
from memory_outbox import MemoryOutbox

from edge.outbox.landing import KnownOutbox
from edge.outbox.settings import OffloadSettings
from edge.outbox.shipper import Shipper
from edge.outbox.status import ShipmentStatus
from tests.support.waiting import wait_for


class Counted(MemoryOutbox):
    """It knows its size, like the real one."""

    count = property(lambda self: len(self.stored))
    bytes = property(lambda self: sum(len(text) for _, text in self.stored.values()))
    oldest = property(lambda self: min(self.stored, default=self.last + 1))
    oldest_time = property(lambda self: self.oldest * 1_000_000 if self.stored else None)


class Hanging:
    """A mount whose server is gone: requests never return."""

    def __init__(self):
        self.asked = threading.Event()
        self.over = threading.Event()

    def look(self, gateway, epoch):
        self.asked.set()
        self.over.wait(60)
        return KnownOutbox()

    def put(self, segment):
        pass


@pytest.fixture
def hanging():
    landing = Hanging()
    yield landing
    landing.over.set()


def test_an_unresponsive_landing_zone_is_reported_and_does_not_delay_the_stop(hanging):
    now = [10_000.0]
    shipper = Shipper(MemoryOutbox(3), hanging, OffloadSettings(), now=lambda: now[0])
    status = ShipmentStatus(Counted(3), shipper, "/mnt/landing", now=lambda: now[0])
    assert status.state == "ships"
    shipper.start()
    assert hanging.asked.wait(20)
    now[0] += 500
    assert status.state == "ships"
    now[0] += 200
    assert (status.state, status.reason) == ("fails", "/mnt/landing has not answered for 700 s")
    asked = shipper.ship()
    shipper.stop(0.01)
    assert shipper.alive
    hanging.over.set()
    wait_for(lambda: not shipper.alive)
    assert asked.cancelled()


def test_the_status_is_refreshed_when_the_outbox_changes():
    outbox = Counted()
    status = ShipmentStatus(outbox, None, "", now=lambda: 100.0)
    assert status.stale
    status.refresh()
    assert (status.stale, status.oldest_time, status.oldest_age) == (False, None, 0)
    outbox.store(10)
    assert status.stale
    status.refresh()
    assert (status.oldest_time, status.oldest_age) == (1_000_000, 99)
    outbox.store(10)
    assert not status.stale
    outbox.drop(1, 4)
    assert status.stale
    status.refresh()
    assert (status.dropped, status.oldest_time) == (4, 5_000_000)
    outbox.acknowledge(4)
    assert status.stale
    status.refresh()
    assert status.dropped == 0
    assert status.to_message()["shipped"] == status.to_message()["acknowledged"] == 4


def test_a_clock_that_was_put_back_makes_no_age_negative():
    outbox = Counted(1)
    status = ShipmentStatus(outbox, None, "", now=lambda: 0.0)
    status.refresh()
    assert status.oldest_age == 0
