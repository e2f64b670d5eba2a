"""Retained messages at a real broker: the end, access control lists that refuse them, and repetitions."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable

import pytest
from announced_home import Broker

from edge.adapters.settings import MqttSettings
from edge.announce.outgoing import Outgoing
from edge.announce.topics import Place
from tests.support.processes import Mosquitto
from tests.support.waiting import PATIENCE, wait_for

PLACE = Place("homeassistant", "sepa/home-assistant", "gw")


class Site:
    """Messages, and the thread of the announcer, which is that of the test."""

    def __init__(self, mosquitto: Mosquitto, rate: float = 1000.0, version: str = "3.1.1") -> None:
        self.events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        connection = MqttSettings(
            broker=mosquitto.url, client_id="gw", reconnect_min=0.1, reconnect_max=0.1, version=version
        )
        self.outgoing = Outgoing(
            connection,
            rate,
            PLACE,
            (),
            serves=True,
            post=self.events.put,
            waiting=lambda: False,
            received=lambda *_: None,
            synced=lambda: None,
        )
        self.outgoing.start()
        self.outgoing.online()

    def run(self, until: Callable[[], object], *, sends: bool = True) -> None:
        deadline = time.monotonic() + PATIENCE
        while not until():
            assert time.monotonic() < deadline, vars(self.outgoing)
            if sends:
                self.outgoing.send()
            pause = self.outgoing.pause(time.monotonic())
            try:
                self.events.get(timeout=min(0.02, PATIENCE if pause is None else pause))()
            except queue.Empty:
                continue


@pytest.fixture
def broker(mosquitto):
    broker = Broker(mosquitto.port)
    yield broker
    broker.close()


def fill(site: Site, number: int) -> None:
    for each in range(number):
        site.outgoing.put(PLACE.state(f"o{each}"), b"1", 1.0)


def test_the_end_is_reported_before_the_messages_that_wait(mosquitto, broker):
    site = Site(mosquitto, rate=1)
    site.run(lambda: broker.messages.get(PLACE.status) == "online")
    fill(site, 500)
    site.outgoing.goodbye()
    site.run(lambda: not len(site.outgoing))
    site.outgoing.stop(5)
    broker.awaits(PLACE.status, "offline")
    assert len(broker.messages) < 5


def test_the_end_is_reported_while_many_messages_are_unacknowledged(mosquitto, broker):
    site = Site(mosquitto)
    site.run(lambda: broker.messages.get(PLACE.status) == "online")
    fill(site, 500)
    site.outgoing.send()
    site.outgoing.goodbye()
    site.run(lambda: not len(site.outgoing))
    site.outgoing.stop(5)
    broker.awaits(PLACE.status, "offline")


def test_without_an_acknowledged_end_the_broker_publishes_the_will(mosquitto, broker):
    site = Site(mosquitto)
    site.run(lambda: broker.messages.get(PLACE.status) == "online" and not len(site.outgoing))
    site.outgoing.stop(5)
    broker.awaits(PLACE.status, "offline")


@pytest.mark.parametrize("version", ["3.1.1", "5"])
def test_refused_topics_do_not_hold_back_the_permitted_ones(tmp_path, version):
    rights = tmp_path / "rights"
    rights.write_text("topic readwrite sepa/#\n")
    mosquitto = Mosquitto(tmp_path / "mosquitto", f"acl_file {rights}")
    mosquitto.start()
    broker = Broker(mosquitto.port)
    site = Site(mosquitto, version=version)
    try:
        for number in range(5):
            site.outgoing.put(PLACE.config("sensor", f"o{number}"), b"{}", 0.05)
            site.outgoing.put(PLACE.state(f"o{number}"), b"1", 0.05)
        states = {PLACE.state(f"o{number}") for number in range(5)}
        site.run(lambda: states | {PLACE.status} <= broker.messages.keys() and not len(site.outgoing))
        assert "the broker refuses homeassistant/sensor/gw/" in site.outgoing.fault
        assert site.outgoing.connected
        # New states come through at once, and a repetition does not send the others again.
        site.outgoing.repeat()
        site.outgoing.put(PLACE.state("o1"), b"2", 0.05)
        site.run(lambda: broker.messages[PLACE.state("o1")] == "2" and not len(site.outgoing))
        assert site.outgoing.connected
    finally:
        site.outgoing.stop(5)
        broker.close()
        mosquitto.stop()


def test_new_states_go_before_repeated_ones(mosquitto, broker):
    site = Site(mosquitto, rate=100)
    fill(site, 100)
    site.run(lambda: len(broker.messages) > 100 and not len(site.outgoing))
    site.outgoing.repeat_soon(time.monotonic())
    site.outgoing.send()
    site.outgoing.put(PLACE.state("new"), b"2", 0.01)
    site.run(lambda: broker.messages.get(PLACE.state("new")) == "2")
    assert len(site.outgoing) > 50
    # Another start of the client does not begin again from the front.
    site.outgoing.repeat_soon(time.monotonic())
    before = len(site.outgoing)
    site.outgoing.send()
    assert len(site.outgoing) <= before
    assert site.outgoing._repeat_at - time.monotonic() > 5
    site.run(lambda: not len(site.outgoing))
    wait_for(lambda: len(broker.history[PLACE.state("o98")]) == 2, what="the repetition")
    assert len(broker.history[PLACE.state("o1")]) == 2
    site.outgoing.stop(5)
