"""The embedded broker with real clients: relay, silence of the log, limits, shutdown."""

import asyncio
import contextlib
import gc
import itertools
import logging
import socket
from types import SimpleNamespace

import paho.mqtt.client as paho
import pytest
from adapter_parts import Gateway, Publisher, value_of
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.adapters import broker_core
from edge.adapters.broker import EmbeddedBroker
from edge.adapters.broker_packets import PacketBoundaries
from edge.adapters.settings import MqttSettings
from tests.faults.bare_mqtt import BareDevice
from tests.support.examples import examples
from tests.support.waiting import PATIENCE, eventually, wait_for


@pytest.fixture
async def broker():
    broker = EmbeddedBroker(MqttSettings(port=0, max_connections=4, max_message=10_000, max_retained=3))
    await broker.start()
    await broker.open()
    yield broker
    await broker.stop()


async def test_readings_go_through_it_into_the_graph(engine, observations, broker, caplog):
    caplog.set_level(logging.DEBUG)

    def use() -> None:
        with Gateway(engine, observations, broker.url).connected() as gateway, Publisher(broker.port) as publisher:
            for number in range(20):
                publisher.publish("room/kitchen/temperature", number, qos=number % 3)
            wait_for(lambda: gateway.adapter.received == 20)
            wait_for(lambda: value_of(engine, "http://example.org/kitchen-temperature") is not None)

    await asyncio.to_thread(use)
    assert not [record for record in caplog.records if record.name.startswith(("amqtt", "transitions"))]


async def test_an_acknowledged_message_is_forwarded_even_if_the_device_disconnects(engine, observations, broker):
    def use() -> None:
        with Gateway(engine, observations, broker.url).connected() as gateway:
            device = paho.Client(paho.CallbackAPIVersion.VERSION2)
            device.max_inflight_messages_set(0)  # the number of topics it has
            device.connect("127.0.0.1", broker.port)
            device.loop_start()
            sent = [device.publish("room/kitchen/temperature", number, qos=1) for number in range(300)]
            for message in sent:
                message.wait_for_publish(20)
            device.disconnect()
            device.loop_stop()
            wait_for(lambda: gateway.adapter.received == len(sent), what="all that was acknowledged")

    await asyncio.to_thread(use)


async def test_a_port_that_is_taken(broker):
    other = EmbeddedBroker(MqttSettings(port=broker.port))
    await other.start()
    with pytest.raises(OSError, match="Address already in use"):
        await other.open()
    await other.stop()


CONNECT = bytes.fromhex("101100044d5154540402003c0005") + b"craft"


@pytest.mark.parametrize(
    "packet",
    [
        pytest.param(b"\x36\x06\x00\x01a\x00\x01x", id="PUBLISH with QoS 3"),
        pytest.param(b"\x3f\x06\x00\x01a\x00\x01x", id="PUBLISH with all flags"),
        pytest.param(b"\x60\x02\x00\x01", id="PUBREL without its flag"),
        pytest.param(b"\x80\x06\x00\x01\x00\x01a\x01", id="SUBSCRIBE without its flag"),
        pytest.param(b"\xc1\x00", id="PINGREQ with a flag"),
        pytest.param(b"\xf0\x00", id="reserved type 15"),
        pytest.param(b"\x00\x00", id="reserved type 0"),
        pytest.param(b"\x30\xff\xff\xff\xff\x01", id="remaining length of five bytes"),
    ],
)
async def test_a_forbidden_packet_ends_its_connection_without_a_traceback(broker, caplog, packet):
    caplog.set_level(logging.INFO)
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    writer.write(CONNECT)
    assert await reader.readexactly(4) == b"\x20\x02\x00\x00"
    writer.write(packet * 20)
    with contextlib.suppress(ConnectionResetError):
        assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()
    assert [record.message for record in caplog.records].count("broker.bad_packet") == 1
    assert not [record for record in caplog.records if record.exc_info or record.name.startswith("amqtt")]
    await asyncio.to_thread(lambda: Publisher(broker.port).__exit__())


async def test_a_subscription_with_a_qos_that_does_not_exist_is_refused(broker, caplog):
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    writer.write(CONNECT + b"\x82\x0a\x00\x01\x00\x01a\xaf\x00\x01b\x00")
    assert await asyncio.wait_for(reader.readexactly(10), 10) == b"\x20\x02\x00\x00" + b"\x90\x04\x00\x01\x80\x00"
    await asyncio.to_thread(publish_both, broker.port)
    assert await asyncio.wait_for(reader.readexactly(6), 10) == b"\x30\x04\x00\x01b2"
    writer.close()
    assert not [record for record in caplog.records if record.exc_info or record.name.startswith("amqtt")]


def publish_both(port):
    with Publisher(port) as publisher:
        publisher.publish("a", "1")
        publisher.publish("b", "2")


@settings(max_examples=examples(50))
@given(st.lists(st.tuples(st.sampled_from([0x30, 0x32, 0x34, 0x62, 0xC0]), st.binary(max_size=300))), st.randoms())
def test_packets_are_separated_wherever_the_stream_is_cut(packets, chance):
    stream = b"".join(bytes([first]) + variable_length(len(body)) + body for first, body in packets)
    boundaries = PacketBoundaries()
    while stream:
        size = chance.randint(1, len(stream))
        assert boundaries.take(stream[:size])
        stream = stream[size:]
    assert not boundaries.take(b"\x36")
    assert boundaries.fault == "a PUBLISH with QoS 3"


def variable_length(number):
    """Return a remaining length (MQTT 3.1.1, section 2.2.3)."""
    low = number & 0x7F
    return bytes([low]) if number < 128 else bytes([low | 0x80]) + variable_length(number >> 7)


async def test_too_large_a_message_ends_the_connection_and_no_other(broker):
    def use() -> None:
        with Publisher(broker.port) as good, Publisher(broker.port) as bad:
            gone: list[object] = []
            bad.client.on_disconnect = lambda *_: gone.append(1)
            bad.client.publish("a", b"x" * 20_000, 0)
            wait_for(lambda: gone)
            good.publish("a", "still here")

    await asyncio.to_thread(use)


async def test_retained_messages_are_sent_to_new_subscribers(broker):
    def use() -> None:
        came: list[str] = []
        other = paho.Client(paho.CallbackAPIVersion.VERSION2)
        other.on_message = lambda *arguments: came.append(arguments[2].topic)
        with Publisher(broker.port) as one:
            one.client.subscribe("#", 1)
            one.publish("secret", "1", retain=True)
            other.connect("127.0.0.1", broker.port)
            other.loop_start()
            try:
                other.subscribe("mine", 1)
                wait_for(other.is_connected)
                other.publish("mine", "2", 1)
                wait_for(lambda: came)
                assert came == ["mine"]
            finally:
                other.disconnect()
                other.loop_stop()

    await asyncio.to_thread(use)


async def test_connections_beyond_the_limit_are_refused(broker):
    sockets = [socket.create_connection(("127.0.0.1", broker.port)) for _ in range(4)]
    try:
        for each in sockets:
            each.settimeout(PATIENCE)
            each.sendall(CONNECT.replace(b"craft", b"cra%02d" % sockets.index(each)))
            assert await asyncio.to_thread(each.recv, 4) == b"\x20\x02\x00\x00"
        with socket.create_connection(("127.0.0.1", broker.port)) as extra:
            extra.settimeout(PATIENCE)
            extra.sendall(CONNECT)
            assert await asyncio.to_thread(extra.recv, 1) == b""
    finally:
        for each in sockets:
            each.close()


async def test_the_number_of_retained_messages_is_limited(broker):
    seen: list[str] = []

    def use() -> None:
        with Publisher(broker.port) as publisher:
            for number in range(10):
                publisher.publish(f"retained/{number}", number, retain=True)
        client = paho.Client(paho.CallbackAPIVersion.VERSION2)
        client.on_message = lambda _, __, message: seen.append(message.topic)
        client.on_connect = lambda *_: client.subscribe("#")
        client.connect("127.0.0.1", broker.port)
        client.loop_start()
        wait_for(lambda: len(seen) >= 3)
        client.disconnect()
        client.loop_stop()

    await asyncio.to_thread(use)
    assert sorted(seen) == ["retained/7", "retained/8", "retained/9"]


async def test_the_broker_stops_with_connected_clients_and_starts_again(broker):
    with socket.create_connection(("127.0.0.1", broker.port)) as client:
        client.settimeout(PATIENCE)
        await broker.stop()
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.to_thread(client.recv, 1) == b""
    await broker.start()
    await broker.open()
    with socket.create_connection(("127.0.0.1", broker.port)):
        pass


async def test_a_broker_whose_start_was_cancelled_stops_and_starts_again():
    broker = EmbeddedBroker(MqttSettings(port=0))
    for turns in itertools.count(1):
        start = asyncio.create_task(broker.start())
        for _ in range(turns):
            await asyncio.sleep(0)
        if start.done():
            break
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start
        await broker.stop()
    await start
    assert turns > 1
    await broker.open()
    await broker.restart()
    for url in (broker.url, broker.own_url):
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))):
            pass
    await broker.stop()


async def test_unreleased_messages_of_qos_2_are_bounded_in_bytes():
    """The connection with most of them is closed; its messages are freed, and another client's are delivered."""
    broker = EmbeddedBroker(MqttSettings(port=0, max_queued_bytes=64 * 1024))
    await broker.start()
    await broker.open()
    honest = await BareDevice.connect("honest", broker.port)
    await honest.publish_unreleased("a/b", b"1", 1)
    greedy = await BareDevice.connect("greedy", broker.port)
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        for number in range(1, 200):
            await greedy.publish_unreleased("a/b", bytes(4096), number)
    assert number < 32
    budget = broker._broker._unfinished
    await eventually(lambda: budget._total < 4096, "the end of its messages")
    await honest.release(1)
    await eventually(lambda: budget._total == 0, "the end of all messages")
    for device in (honest, greedy):
        device.vanish()
    await broker.stop()


async def test_identifiers_of_unreleased_messages_are_counted_once(broker):
    device = await BareDevice.connect("again", broker.port)
    for _ in range(3):
        await device.publish_unreleased("a/b", bytes(1000), 7)
    budget = broker._broker._unfinished
    await eventually(lambda: 1000 < budget._total < 4000, "one message")
    device.vanish()
    await eventually(lambda: budget._total == 0, "nothing that is left")


async def test_subscriptions_of_all_clients_are_limited(broker, monkeypatch):
    monkeypatch.setattr(broker_core, "_ALL_SUBSCRIPTIONS", 5)
    codes: list[int] = []

    def subscribe(publisher: Publisher, *filters: str) -> list[int]:
        codes.clear()
        publisher.client.on_subscribe = lambda *arguments: codes.extend(each.value for each in arguments[3])
        publisher.client.subscribe([(each, 1) for each in filters])
        wait_for(lambda: len(codes) == len(filters))
        return list(codes)

    def use() -> None:
        with Publisher(broker.port) as one:
            with Publisher(broker.port) as other:
                assert subscribe(one, "a", "b", "a", "+/" * 63 + "c", "+/" * 64 + "c") == [1, 1, 1, 1, 0x80]
                assert subscribe(other, "a", "b", "c") == [1, 1, 0x80]
            wait_for(lambda: broker._broker._subscribed == 3, "the end of the other client")
            assert subscribe(one, "d", "e", "f") == [1, 1, 0x80]
        wait_for(lambda: broker._broker._subscribed == 0, "the end of both clients")

    await asyncio.to_thread(use)


async def test_packets_after_an_unreleased_message_leave_nothing(broker):
    """amqtt's reader kept the finished tasks of all packets behind the one that waits for PUBREL."""
    device = await BareDevice.connect("forgetful", broker.port)
    await device.publish_unreleased("a/b", b"1", 1)
    tasks = len(asyncio.all_tasks())
    for number in range(2, 50):
        await device.publish_unreleased("a/b", b"1", number)
        await device.release(number)
    gc.collect()
    finished = [each for each in gc.get_objects() if isinstance(each, asyncio.Task) and each.done()]
    assert len(finished) < 40
    assert len(asyncio.all_tasks()) <= tasks + 1
    await device.release(1)
    device.vanish()


async def test_long_topics_of_unreleased_messages_count(broker):
    device = await BareDevice.connect("one", broker.port)
    await device.publish_unreleased("a" * 5000, b"", 1)
    budget = broker._broker._unfinished
    assert budget._total > 7000
    device.vanish()
    await eventually(lambda: budget._total == 0, "nothing that is left")


async def test_subscriptions_of_a_client_are_limited_and_end_with_it(broker):
    codes: list[int] = []

    def use() -> None:
        def ask(filters: list[str]) -> None:
            codes.clear()
            publisher.client.subscribe([(each, 1) for each in filters])
            wait_for(lambda: codes)

        def stop(filters: list[str]) -> None:
            gone: list[int] = []
            publisher.client.on_unsubscribe = lambda *_: gone.append(1)
            publisher.client.unsubscribe(filters)
            wait_for(lambda: gone)

        with Publisher(broker.port) as publisher:
            publisher.client.on_subscribe = lambda *arguments: codes.extend(each.value for each in arguments[3])
            ask([f"a/{number}" for number in range(500)])
            ask([f"b/{number}" for number in range(501)])
            assert codes == [1] * 500 + [0x80]
            stop(["b/0", "b/1"])
            ask(["c/0", "c/1", "c/2"])
            assert codes == [1, 1, 0x80]
            for level in "abc":  # one packet with all of them is too large for this broker
                stop([f"{level}/{number}" for number in range(500)])
            wait_for(lambda: not broker._broker._subscriptions)  # removed after the answer

    await asyncio.to_thread(use)


class Names:
    """Authentication that accepts every client. The password is the name, and every client has all permissions."""

    def admit(self, password, over):
        return SimpleNamespace(name=password, **dict.fromkeys(RIGHTS, lambda topic: True), disconnected=lambda: None)


RIGHTS = ("may_publish", "may_receive", "may_subscribe", "may_publish_will")


async def test_names_and_identifiers_that_make_the_same_together_are_not_the_same():
    broker = EmbeddedBroker(MqttSettings(port=0), Names())
    await broker.start()
    await broker.open()

    def use() -> None:
        clients = []
        for name, identifier in (("a", "b~c"), ("a~b", "c"), ("a b", "c"), ("a", "b c")):
            client = paho.Client(paho.CallbackAPIVersion.VERSION2, identifier, reconnect_on_failure=False)
            client.username_pw_set("", name)
            client.connect("127.0.0.1", broker.port)
            client.loop_start()
            wait_for(client.is_connected)
            clients.append(client)
        for client in clients:
            client.publish("a", "b", 1).wait_for_publish(10)
        assert all(client.is_connected() for client in clients)
        for client in clients:
            client.disconnect()
            client.loop_stop()
            client._reset_sockets()

    try:
        await asyncio.to_thread(use)
    finally:
        await broker.stop()


async def test_retained_messages_are_bounded_in_bytes_and_a_flood_keeps_those_of_others():
    broker = EmbeddedBroker(MqttSettings(port=0, max_retained_bytes=20_000))
    await broker.start()
    await broker.open()

    def retained() -> dict[str, bytes]:
        assert broker._broker is not None
        return {topic: kept.data for topic, kept in broker._broker._retained_messages.items()}

    def use() -> None:
        with Publisher(broker.port) as neighbour, Publisher(broker.port) as flooder:
            neighbour.publish("neighbour", "here", qos=1, retain=True)
            wait_for(lambda: "neighbour" in retained())
            for number in range(100):
                flooder.publish(f"flood/{number}", "x" * 4000, qos=1, retain=True)
            wait_for(lambda: "flood/99" in retained() and len(retained()) <= 5, what="only the last ones are left")
            flooder.publish("flood/99", "", qos=1, retain=True)
            wait_for(lambda: "flood/99" not in retained())
            flooder.publish("flood/100", "x" * 4000, qos=1, retain=True)
            wait_for(lambda: "flood/100" in retained())

    try:
        await asyncio.to_thread(use)
        assert retained()["neighbour"] == b"here"
        assert len(retained()) == 4, "three of 5 KB beside it: what was cleared counts no more"
    finally:
        await broker.stop()


@pytest.mark.parametrize("turns", range(5))
async def test_a_connection_that_is_accepted_at_the_stop_is_closed(turns):
    broker = EmbeddedBroker(MqttSettings(port=0))
    await broker.start()
    await broker.open()
    loop = asyncio.get_running_loop()
    with socket.create_connection(("127.0.0.1", broker.port)) as device:
        device.setblocking(False)
        for _ in range(turns):
            await asyncio.sleep(0)
        await broker.stop()
        with contextlib.suppress(ConnectionResetError):  # it was not accepted yet
            assert await asyncio.wait_for(loop.sock_recv(device, 1), PATIENCE) == b""
