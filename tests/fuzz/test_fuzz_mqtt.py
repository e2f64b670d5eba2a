"""Random messages below the gateway's root topic: each request is answered once, on the topic of its client only."""

from __future__ import annotations

import json
import queue
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import paho.mqtt.client as paho
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.fuzz.concurrent_clients import open_client
from tests.fuzz.fuzz_target import running
from tests.fuzz.messages import MESSAGES, answers_a_request, is_answer
from tests.support.examples import examples
from tests.support.processes import Mosquitto
from tests.support.waiting import wait_for

GATE = "mqtt"
ROOT = "sepa/gateway"


class UnknownClient:
    """A client that publishes random messages, and receives all messages."""

    def __init__(self, address: tuple[str, int], *, five: bool = False) -> None:
        self.came: queue.Queue[paho.MQTTMessage] = queue.Queue()
        self._ready = threading.Event()
        self.client = paho.Client(
            paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5 if five else paho.MQTTv311, client_id="unknown"
        )
        self.client.on_connect = lambda client, *_: client.subscribe(f"{ROOT}/response/#" if not five else "#", 1)
        self.client.on_subscribe = lambda *_: self._ready.set()
        self.client.on_message = lambda _, __, message: self.came.put(message)
        self.client.connect(*address)
        self.client.loop_start()
        assert self._ready.wait(20)

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()

    def publish(self, topic: str, payload: Any, **how: Any) -> None:
        about = self.client.publish(topic, payload, **how)
        about.wait_for_publish(10)
        assert about.is_published(), "the broker has closed the connection"

    def ends(self, name: str) -> None:
        """Wait until the session of this name has ended, with no work left."""
        self.publish(f"{ROOT}/status/{name}", "offline", qos=1)

    def answers(self, name: str, count: int) -> list[paho.MQTTMessage]:
        """Return all messages for the client of this name, until this number of requests is answered."""
        came = []
        while count:
            message = self.came.get(timeout=20)
            if message.topic.startswith(f"{ROOT}/response/{name}"):
                answer = json.loads(message.payload)
                assert is_answer(answer), answer
                came.append(message)
                count -= answers_a_request(answer)
        return came


@contextmanager
def unknown_client(address: tuple[str, int], **options: Any) -> Iterator[UnknownClient]:
    client = UnknownClient(address, **options)
    try:
        yield client
    finally:
        client.close()


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(MESSAGES, st.integers(0, 2), st.booleans()), min_size=1, max_size=8))
def test_every_request_is_answered_once(harness, concurrent_client, messages):
    with unknown_client(harness.address("mqtt")) as client:
        for message, qos, retain in messages:
            client.publish(f"{ROOT}/request/fuzz", message, qos=qos, retain=retain)
        client.answers("fuzz", len(messages))
        client.ends("fuzz")
    concurrent_client.check_notification()
    harness.is_sound()


NAMES = st.sampled_from(["fuzz", "", "a" * 100, "a" * 101, "ö", "a b", "$SYS", '"', "\\"]) | st.text(max_size=8)
TOPICS = st.tuples(
    st.sampled_from([ROOT, ROOT.upper(), "sepa", f"{ROOT}/{ROOT}"]),
    st.sampled_from(["request", "response", "status", "query", "", "x"]),
    NAMES,
    st.sampled_from(["", "/", "/delta", "/x"]),
).map("/".join)
STATUSES = st.sampled_from([b"online", b"offline", b" OFFLINE\n", b"", b"{}", b"\xff"])


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(TOPICS, MESSAGES | STATUSES, st.booleans()), min_size=1, max_size=8))
def test_any_topic(harness, concurrent_client, published):
    with unknown_client(harness.address("mqtt")) as client:
        for topic, payload, retain in published:
            with suppress(ValueError):  # the library refuses this topic
                client.publish(topic, payload, qos=1, retain=retain)
        concurrent_client.check_notification()
        for topic, _, _ in published:
            with suppress(ValueError):
                client.ends(topic.rpartition("/")[2])
    harness.is_sound()


def test_sessions_and_subscriptions_end(harness, concurrent_client):
    concurrent_client.check_notification()
    wait_for(lambda: harness.metric('edge_connections{gate="mqtt"}') == 1, what="only the neighbour's session")
    wait_for(lambda: harness.metric('edge_subscriptions{gate="mqtt"}') == 1, what="only its subscription")


@st.composite
def packets(draw):
    """Return an MQTT packet (MQTT 3.1.1, section 2) with errors in any part: type, flags, length, content."""
    connect = bytes.fromhex("00044d51545404020005000466757a7a")
    publish = len(topic := f"{ROOT}/request/raw".encode()).to_bytes(2) + topic + b"\0\1" + b"{}"
    subscribe = b"\0\1\0\1#\1"
    head, body = draw(
        st.sampled_from([(0x10, connect), (0x32, publish), (0x82, subscribe), (0xC0, b""), (0x62, b"\0\1")])
    )
    if draw(st.booleans()):
        place = draw(st.integers(0, len(body)))
        body = body[:place] + draw(st.binary(max_size=6)) + body[place + draw(st.integers(0, 6)) :]
    if draw(st.integers(0, 4)) == 0:
        head = draw(st.integers(0, 255))
    length = draw(st.just(bytes([len(body)])) | st.binary(max_size=5)) if draw(st.booleans()) else bytes([len(body)])
    return bytes([head]) + length + body


CONNECT = bytes.fromhex("101000044d51545404020005000466757a7a")


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.booleans(), st.lists(packets() | st.binary(max_size=20), max_size=5))
def test_broken_packets_at_the_embedded_broker(harness, concurrent_client, connected, sent):
    with socket.create_connection(harness.address("mqtt"), 5) as client, suppress(OSError):
        client.sendall((CONNECT if connected else b"") + b"".join(sent))
        client.shutdown(socket.SHUT_WR)
        while client.recv(65536):
            pass
    concurrent_client.check_notification()
    harness.is_sound()


@pytest.fixture(scope="module")
def at_mosquitto(tmp_path_factory):
    """Return a gateway at a broker with MQTT 5, another client, and the broker's address."""
    broker = Mosquitto(tmp_path_factory.mktemp("broker") / "mosquitto", "set_tcp_nodelay true")
    broker.start()
    try:
        at_broker = {"EDGE__MQTT__BROKER": broker.url, "EDGE__MQTT__VERSION": "5"}
        with (
            running(tmp_path_factory.mktemp("five"), **at_broker) as harness,
            open_client(harness, GATE) as concurrent_client,
        ):
            yield harness, concurrent_client
    finally:
        broker.stop()


OWN = f"{ROOT}/response/five"
RESPONSE_TOPICS = st.sampled_from(
    [OWN, f"{OWN}/x", f"{OWN}/x/y", f"{OWN}x", f"{OWN}/€", f"{ROOT}/response/neighbour", "zigbee2mqtt/lamp/set", "a"]
) | st.text('ab/ €"\\', min_size=1, max_size=10)
"""Topics that a broker accepts."""


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(MESSAGES, RESPONSE_TOPICS, st.binary(min_size=1, max_size=30)), min_size=1, max_size=6))
def test_answers_go_to_the_clients_own_topics_alone(at_mosquitto, messages):
    harness, concurrent_client = at_mosquitto
    with unknown_client(harness.address("mqtt"), five=True) as client:
        for message, topic, correlation in messages:
            about = Properties(PacketTypes.PUBLISH)
            about.ResponseTopic = topic
            about.CorrelationData = correlation
            client.publish(f"{ROOT}/request/five", message, qos=1, properties=about)
        expected = {correlation for _, _, correlation in messages} | {b""}
        seen = []
        missing = len(messages)
        while missing:
            message = client.came.get(timeout=20)
            if message.topic.startswith(f"{ROOT}/request/") or message.topic == f"{ROOT}/status":
                continue
            correlation = getattr(message.properties, "CorrelationData", b"")
            if not correlation and message.topic == f"{ROOT}/response/neighbour":
                continue  # the requests of the other client
            seen.append(message.topic)
            answer = json.loads(message.payload)
            assert is_answer(answer), answer
            missing -= answers_a_request(answer)
            assert correlation in expected
        assert all(topic == OWN or topic.startswith(f"{OWN}/") for topic in seen), seen
        client.ends("five")
    concurrent_client.check_notification()
    harness.is_sound()
