"""The MQTT adapter with real Mosquitto brokers: no message is lost or applied twice, whichever component stops."""

import logging
import socket
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from adapter_parts import Gateway, Publisher, Values, select, update, value_of
from support.logs import records_of

from edge.adapters.observations import Observations
from edge.engine.start import open_engine
from edge.protocol.errors import StorageFailed
from tests.support.waiting import wait_for

KITCHEN = "http://example.org/kitchen-temperature"
TOPIC = "room/kitchen/temperature"


@pytest.mark.parametrize("version", ["3.1.1", "5"])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_readings_of_every_version_and_quality_arrive_once_and_are_acknowledged(
    engine, observations, mosquitto, version, qos
):
    values = Values(engine)
    with Gateway(engine, observations, mosquitto.url, version=version, qos=qos).connected() as gateway:
        with Publisher(mosquitto.port) as publisher:
            for number in range(50):
                publisher.publish(TOPIC, number, qos)
        wait_for(lambda: len(values.added) == 50)
        if qos:
            wait_for(lambda: gateway.adapter.acknowledged == 50)
    assert values.added == [(KITCHEN, str(number)) for number in range(50)]
    assert values.removed == [(KITCHEN, str(number)) for number in range(49)]
    assert select(engine, f"<{KITCHEN}> rdfs:label ?l") == [("Temperature of kitchen",)]


def test_a_broker_that_is_down_at_first_and_goes_away_later(engine, observations, mosquitto, caplog):
    caplog.set_level(logging.INFO, "edge.adapters")
    mosquitto.stop()
    with Gateway(engine, observations, mosquitto.url) as gateway:
        wait_for(lambda: "mqtt.down" in caplog.messages)
        wait_for(lambda: gateway.adapter._loop.failures >= 3)
        mosquitto.start()
        gateway.connected()
        with Publisher(mosquitto.port) as publisher:
            publisher.publish(TOPIC, 1)
            wait_for(lambda: value_of(engine, KITCHEN) == "1")
        mosquitto.stop()
        wait_for(lambda: not gateway.adapter.connected)
        mosquitto.start()
        gateway.connected()
        with Publisher(mosquitto.port) as publisher:
            publisher.publish(TOPIC, 2)
            wait_for(lambda: value_of(engine, KITCHEN) == "2")
    assert [m for m in caplog.messages if m.startswith("mqtt.")] == ["mqtt.down", "mqtt.up", "mqtt.down", "mqtt.up"]
    assert records_of("edge", caplog)[0].broker == mosquitto.url
    assert records_of("edge", caplog)[0].reason
    assert "connection broke" in [each.reason for each in caplog.records if each.message == "mqtt.down"][1]


@pytest.mark.parametrize("answer", [b"\x00" * 20, b"\x20\x02\x00\x00\x30\x01\xff", b"\x20\x02\x00\x00\x62\x00", b""])
def test_a_broker_that_sends_invalid_packets_is_retried(engine, observations, answer):
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        Gateway(engine, observations, f"mqtt://127.0.0.1:{server.getsockname()[1]}") as gateway,
    ):
        server.settimeout(10)
        for _ in range(2):
            with server.accept()[0] as connection:
                connection.recv(1000)
                connection.sendall(answer)
        wait_for(lambda: gateway.adapter._loop.failures or not gateway.adapter.connected)
        assert gateway.adapter.alive


def test_a_broker_restarted_under_load_loses_nothing_of_qos_1(engine, observations, mosquitto):
    values = Values(engine)
    total = 600
    with Gateway(engine, observations, mosquitto.url).connected():
        publisher = Publisher(mosquitto.port, client_id="publisher", clean_session=False)

        def publish() -> None:
            for number in range(total):
                publisher.client.publish(TOPIC, str(number), 1)
                time.sleep(0.001)

        thread = threading.Thread(target=publish)
        thread.start()
        wait_for(lambda: len(values.added) > 100)
        mosquitto.stop()
        mosquitto.start()
        thread.join()
        wait_for(lambda: {int(v) for _, v in values.added} == set(range(total)), what="every value was seen")
        publisher.client.disconnect()
        publisher.client.loop_stop()


def test_messages_during_an_absence_of_the_gateway_are_delivered_later(engine, observations, mosquitto):
    with Gateway(engine, observations, mosquitto.url).connected():
        pass
    with Publisher(mosquitto.port) as publisher:
        for number in range(30):
            publisher.publish(TOPIC, number)
    values = Values(engine)
    with Gateway(engine, observations, mosquitto.url):
        wait_for(lambda: len(values.added) == 30)
    assert [value for _, value in values.added] == [str(number) for number in range(30)]


class FullDisk:
    """An engine whose updates fail as on a full disk until the test frees space. It is otherwise the real engine."""

    def __init__(self, engine) -> None:
        self.engine = engine
        self.full = True
        self.refused = 0

    def write(self, requests, receipt, done):
        if self.full:
            self.refused += 1
            raise StorageFailed("The disk is full")
        self.engine.write(requests, receipt, done)

    def __getattr__(self, name):
        return getattr(self.engine, name)


def test_nothing_is_acknowledged_or_lost_while_the_disk_is_full(engine, mosquitto, caplog):
    disk = FullDisk(engine)
    observations = Observations(disk)
    observations.start()
    values = Values(engine)
    with Gateway(engine, observations, mosquitto.url).connected() as gateway, Publisher(mosquitto.port) as publisher:
        for number in range(40):
            publisher.publish(TOPIC, number)
        wait_for(lambda: disk.refused > 3)
        assert gateway.adapter.acknowledged == 0
        disk.full = False
        wait_for(lambda: gateway.adapter.acknowledged == 40)
    assert [value for _, value in values.added] == [str(number) for number in range(40)]
    assert caplog.messages.count("mqtt.engine_behind") == 1


def test_a_gateway_stopped_while_the_disk_is_full_gets_its_messages_again(engine, mosquitto):
    disk = FullDisk(engine)
    observations = Observations(disk)
    observations.start()
    with Gateway(engine, observations, mosquitto.url).connected(), Publisher(mosquitto.port) as publisher:
        publisher.publish(TOPIC, 1)
        wait_for(lambda: disk.refused)
    assert value_of(engine, KITCHEN) is None
    disk.full = False
    with Gateway(engine, observations, mosquitto.url):
        wait_for(lambda: value_of(engine, KITCHEN) == "1")


def test_qos_0_beyond_the_bound_is_dropped_and_counted_and_qos_1_is_not(engine, mosquitto):
    disk = FullDisk(engine)
    observations = Observations(disk)
    observations.start()
    values = Values(engine)
    with (
        Gateway(engine, observations, mosquitto.url, max_queued=10).connected() as gateway,
        Publisher(mosquitto.port) as publisher,
    ):
        publisher.publish(TOPIC, 0)
        wait_for(lambda: disk.refused)
        for number in range(1, 31):
            publisher.publish(TOPIC, number, 0)
        wait_for(lambda: gateway.adapter.dropped == 20)
        for number in range(100, 130):
            publisher.publish(TOPIC, number, 1)
        disk.full = False
        wait_for(lambda: gateway.adapter.acknowledged == 31)
    assert [int(v) for _, v in values.added] == [0, *range(1, 11), *range(100, 130)]


def test_the_broker_keeps_a_connection_that_does_not_read(engine, mosquitto):
    """It closes one that has been silent for one and a half times the keep-alive interval."""
    disk = FullDisk(engine)
    observations = Observations(disk)
    observations.start()
    with (
        Gateway(engine, observations, mosquitto.url, max_queued=1, keepalive=4).connected() as gateway,
        Publisher(mosquitto.port) as publisher,
    ):
        client = gateway.adapter._client
        publisher.publish(TOPIC, 0)
        wait_for(lambda: disk.refused)
        for number in range(1, 5):
            publisher.publish(TOPIC, number)
        wait_for(lambda: not client.reading)
        pings: list[None] = []
        ping = client._send_pingreq
        client._send_pingreq = lambda: pings.append(None) or ping()
        wait_for(lambda: len(pings) == 2)
        disk.full = False
        wait_for(lambda: gateway.adapter.acknowledged == 5)
        assert client.reading
        assert gateway.adapter._connection == 1
    assert value_of(engine, KITCHEN) == "4"


def test_unmapped_and_bad_messages_are_acknowledged_counted_and_listed(engine, observations, mosquitto):
    with Gateway(engine, observations, mosquitto.url).connected() as gateway, Publisher(mosquitto.port) as publisher:
        publisher.publish("elsewhere/door", "open")
        publisher.publish("elsewhere/door", "closed")
        publisher.publish(TOPIC, "warm")
        publisher.publish(TOPIC, "7")
        wait_for(lambda: gateway.adapter.acknowledged == 4)
        [unmapped] = gateway.ingest.unmapped.listed()
        [bad] = gateway.ingest.bad_values.listed()
    assert (unmapped["topic"], unmapped["count"], unmapped["last_payload"]) == ("elsewhere/door", 2, "closed")
    assert (bad["topic"], bad["count"], bad["last_payload"]) == (TOPIC, 1, "warm")
    assert bad["reason"]
    assert value_of(engine, KITCHEN) == "7"


def test_retained_messages_are_read_and_change_nothing_after_a_restart(engine, observations, mosquitto):
    with Publisher(mosquitto.port) as publisher:
        publisher.publish(TOPIC, 5, retain=True)
    with Gateway(engine, observations, mosquitto.url):
        wait_for(lambda: value_of(engine, KITCHEN) == "5")
    state = select(engine, "?s ?p ?o")
    with Gateway(engine, observations, mosquitto.url) as gateway:
        wait_for(lambda: gateway.adapter.acknowledged == 1)
        assert select(engine, "?s ?p ?o") == state
        with Publisher(mosquitto.port) as publisher:
            publisher.publish(TOPIC, 6, retain=True)
        wait_for(lambda: value_of(engine, KITCHEN) == "6")


def test_a_client_maps_a_topic_to_an_observation_and_removes_the_mapping(engine, observations, mosquitto):
    lamp = "http://example.org/lamp"
    with Gateway(engine, observations, mosquitto.url).connected() as gateway, Publisher(mosquitto.port) as publisher:
        publisher.publish("lamp/power", "12 W")
        wait_for(lambda: gateway.adapter.acknowledged == 1)
        assert value_of(engine, lamp) is None
        update(
            engine,
            f"""INSERT DATA {{ <{lamp}> a sosa:Observation ; rdfs:label "Lamp" ; monitor:hasMqttTopic "lamp/power" ;
                sosa:hasResult monitor:power . monitor:power a qudt:QuantityValue ; qudt:unit unit:Watt }}""",
        )
        publisher.publish("lamp/power", "power: 13.5 W")
        wait_for(lambda: gateway.adapter.acknowledged == 2)
        assert value_of(engine, lamp) == "13.5"
        update(engine, f"DELETE WHERE {{ <{lamp}> monitor:hasMqttTopic ?t }}")
        publisher.publish("lamp/power", "14")
        wait_for(lambda: gateway.adapter.acknowledged == 3)
        assert value_of(engine, lamp) == "13.5"
        assert gateway.ingest.unmapped.total == 2


def test_topics_mapped_in_the_graph_are_subscribed_in_addition_to_the_filters(engine, observations, mosquitto):
    lamp = "http://example.org/lamp"
    with (
        Gateway(engine, observations, mosquitto.url, topics=("room/#",)).connected() as gateway,
        Publisher(mosquitto.port) as publisher,
    ):
        update(engine, f'INSERT DATA {{ <{lamp}> a sosa:Observation ; monitor:hasMqttTopic "lamp/power" }}')
        wait_for(lambda: publisher.publish("lamp/power", "3") or value_of(engine, lamp) == "3")
        update(engine, f"DELETE WHERE {{ <{lamp}> monitor:hasMqttTopic ?t }}")
        publisher.publish("other/topic", "1")
        wait_for(lambda: gateway.adapter._extra == frozenset())


class RefusingBroker:
    """An MQTT 3.1.1 broker with a persistent session that refuses some topic filters."""

    def __init__(self, *refused):
        self.refused = set(refused)
        self.requested = []
        """Filters of each subscribe request."""
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"mqtt://127.0.0.1:{self._server.getsockname()[1]}"
        self._connection = None
        threading.Thread(target=self._serve, daemon=True).start()

    def cut(self):
        self._connection.shutdown(socket.SHUT_RDWR)

    def close(self):
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _serve(self):
        is_present = 0
        while True:
            try:
                self._connection = self._server.accept()[0]
            except OSError:
                return
            with self._connection, self._connection.makefile("rb") as file:
                while head := file.read(2):
                    body = file.read(head[1])
                    if head[0] >> 4 == 1:
                        self._connection.sendall(bytes([0x20, 2, is_present, 0]))
                        is_present = 1
                    elif head[0] >> 4 == 8:
                        self._answer(body)

    def _answer(self, body):
        filters, place = [], 2
        while place < len(body):
            end = place + 2 + int.from_bytes(body[place : place + 2])
            filters.append(body[place + 2 : end].decode())
            place = end + 1
        codes = bytes(0x80 if each in self.refused else 1 for each in filters)
        self._connection.sendall(bytes([0x90, 2 + len(codes)]) + body[:2] + codes)
        self.requested.append(filters)


@pytest.mark.parametrize("refused", [("a/#", "b/#"), ("b/#",)])
def test_refused_filters_are_requested_again_with_each_connection(engine, observations, caplog, refused):
    broker = RefusingBroker(*refused)
    lamp = "http://example.org/lamp"
    with closing(broker), Gateway(engine, observations, broker.url, topics=("a/#", "b/#")) as gateway:
        adapter = gateway.adapter
        wait_for(lambda: caplog.messages.count("mqtt.subscription_refused") == len(refused))
        # A filter that the broker accepts does not stand for the refused ones.
        update(engine, f'INSERT DATA {{ <{lamp}> a sosa:Observation ; monitor:hasMqttTopic "lamp/power" }}')
        wait_for(lambda: ["lamp/power"] in broker.requested and not adapter._unconfirmed)
        assert (adapter.connected, adapter.subscribed) == (True, False)
        broker.cut()
        wait_for(lambda: broker.requested.count(["a/#", "b/#"]) == 2)
        wait_for(lambda: caplog.messages.count("mqtt.subscription_refused") == 2 * len(refused))
        assert not adapter.subscribed
        broker.refused.clear()
        broker.cut()
        wait_for(lambda: adapter.subscribed and ["lamp/power"] in broker.requested[-1:])
        wait_for(lambda: adapter._confirmed)
        requests = len(broker.requested)
        broker.cut()
        wait_for(lambda: not adapter.subscribed)
        wait_for(lambda: adapter.subscribed)
        assert len(broker.requested) == requests


def test_a_mapping_file_and_the_graph_on_one_topic(engine, observations, mosquitto):
    other = "http://example.org/other"
    update(
        engine,
        f"""INSERT DATA {{ <{KITCHEN}> a sosa:Observation ; rdfs:label "Mine" ; monitor:hasMqttTopic "{TOPIC}" .
                           <{other}> a sosa:Observation ; monitor:hasMqttTopic "{TOPIC}" }}""",
    )
    values = Values(engine)
    with Gateway(engine, observations, mosquitto.url).connected(), Publisher(mosquitto.port) as publisher:
        publisher.publish(TOPIC, 4)
        wait_for(lambda: len(values.added) == 2)
    assert sorted(values.added) == [(KITCHEN, "4"), (other, "4")]
    assert select(engine, f"<{KITCHEN}> rdfs:label ?l") == [("Mine",)]


GATEWAY = """
    import os, signal, sys, threading
    from pathlib import Path
    sys.path.insert(0, {tests!r})
    from adapter_parts import Gateway
    from edge.adapters.observations import Observations
    from edge.engine.start import open_engine

    engine = open_engine(Path({data!r}))
    observations = Observations(engine)
    observations.start()
    gateway = Gateway(engine, observations, {url!r}, version={version!r}, qos={qos})
    if {deaf}:
        gateway.adapter._client.acknowledge = lambda messages: None
    gateway.connected()
    print("subscribed", flush=True)
    threading.Event().wait()
"""


def gateway_process(data: Path, url: str, version: str, qos: int, *, deaf: bool) -> subprocess.Popen[bytes]:
    """Start a gateway in a separate process. `deaf`: it commits, and never acknowledges."""
    tests = str(Path(__file__).parent)
    program = textwrap.dedent(GATEWAY).format(tests=tests, data=str(data), url=url, version=version, qos=qos, deaf=deaf)
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)


@pytest.mark.parametrize(("version", "qos"), [("3.1.1", 1), ("5", 1), ("5", 2)])
def test_a_kill_between_commit_and_acknowledgement_applies_nothing_twice(tmp_path, mosquitto, version, qos):
    data = tmp_path / "data"
    process = gateway_process(data, mosquitto.url, version, qos, deaf=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"subscribed\n"
        with Publisher(mosquitto.port) as publisher:
            for number in range(15):
                publisher.publish(TOPIC, number, qos)
        wait_for(lambda: _stored(data) >= 15)
    finally:
        process.kill()
        process.communicate()
    engine = open_engine(data)
    try:
        assert value_of(engine, KITCHEN) == "14"
        before = engine.sequence
        observations = Observations(engine)
        observations.start()
        with Gateway(engine, observations, mosquitto.url, version=version, qos=qos) as gateway:
            wait_for(lambda: gateway.adapter.duplicates == 15)
            with Publisher(mosquitto.port) as publisher:
                publisher.publish(TOPIC, 99, qos)
            wait_for(lambda: value_of(engine, KITCHEN) == "99")
        assert engine.sequence == before + 1, "what came again was not carried out again"
    finally:
        assert engine.close()


def _stored(data: Path) -> int:
    """Return the number of values in the journal of a running gateway."""
    import sqlite3

    file = next(data.glob("*.sqlite3"), None)
    if file is None:
        return 0
    connection = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
    try:
        return sum(_readings(body) for (body,) in connection.execute("SELECT body FROM commits"))
    finally:
        connection.close()


def _readings(body: bytes) -> int:
    from edge.engine.journal.codec import decode

    return sum(quad.predicate.value.endswith("numericValue") for entry in decode(body) for quad in entry.changes.added)
