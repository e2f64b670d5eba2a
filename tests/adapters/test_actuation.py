"""Actuation: an update over HTTP becomes an MQTT message, in order and within the rate limit, over all restarts."""

import json
import socket
import socketserver
import threading
from collections import defaultdict
from contextlib import contextmanager

import httpx
import paho.mqtt.client as paho
import pytest

from edge.adapters.actuation import Actuation
from edge.adapters.registry import BadValues
from edge.adapters.settings import ActuationSettings, MqttSettings
from edge.engine.requests import UpdateRequest
from edge.mapping.pack import load_pack
from tests.support.processes import GatewayProcess, Mosquitto
from tests.support.settings import unchecked
from tests.support.waiting import wait_for

PREFIX = "PREFIX ex: <http://example.org/> "
LAMPS = """
[namespaces]
ex = "http://example.org/"

[[actuator]]
name = "lamps"
query = "SELECT ?id ?dimming { ?lamp ex:id ?id ; ex:dimming ?dimming }"
topic = "lamps/{id}/set"
payload = { state = "ON", brightness = "{dimming}" }
removed = { payload = { state = "OFF" } }
"""
FAST = {"rate": 1000.0, "topic_rate": 1000.0}


def on(dimming: object) -> str:
    return json.dumps({"state": "ON", "brightness": dimming}, separators=(",", ":"))


OFF = '{"state":"OFF"}'


def put(lamp: str, dimming: object) -> str:
    return (
        f"{PREFIX} DELETE {{ ex:{lamp} ex:dimming ?d }} INSERT {{ ex:{lamp} ex:id '{lamp}' ; ex:dimming {dimming} }} "
        f"WHERE {{ OPTIONAL {{ ex:{lamp} ex:dimming ?d }} }}"
    )


def take_away(lamp: str) -> str:
    return f"{PREFIX} DELETE WHERE {{ ex:{lamp} ex:dimming ?d }}"


class Devices:
    """An MQTT client that records the messages to the lamps of a broker, and reconnects by itself."""

    def __init__(self, port: int) -> None:
        self.received: dict[str, list[str]] = defaultdict(list)
        self.order: list[str] = []
        self.retained: dict[str, str] = {}
        self.subscriptions = 0
        self.client = paho.Client(paho.CallbackAPIVersion.VERSION2)
        self.client.reconnect_delay_set(1, 1)
        self.client.on_connect = lambda client, *_: client.subscribe("#", 1)
        self.client.on_subscribe = self._subscribed
        self.client.on_message = self._note
        self.client.connect("127.0.0.1", port)

    def __enter__(self) -> "Devices":
        self.client.loop_start()
        wait_for(lambda: self.subscriptions, what="the devices listen")
        return self

    def __exit__(self, *_: object) -> None:
        self.client.disconnect()
        self.client.loop_stop()

    def _subscribed(self, *_: object) -> None:
        self.subscriptions += 1

    def _note(self, _: object, __: object, message: paho.MQTTMessage) -> None:
        payload = message.payload.decode()
        if message.retain:
            self.retained[message.topic] = payload
        else:
            self.received[message.topic].append(payload)
            self.order.append(payload)


@contextmanager
def actuating(engine, url: str, text: str = LAMPS, **settings: object):
    """Run actuators on an engine and a broker."""
    options = {"client_id": "gateway", "reconnect_min": 0.1, "reconnect_max": 0.2}
    actuation = Actuation(engine, unchecked(ActuationSettings, **{**FAST, **settings}), BadValues(100))
    actuation.follow(load_pack(text, "f").actuators)
    actuation.start(unchecked(MqttSettings, broker=url, **options))
    try:
        yield actuation
    finally:
        actuation.stop()


def update(engine, *texts: str) -> None:
    engine.update([UpdateRequest(text) for text in texts]).result(10)


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("version", ["3.1.1", "5"])
def test_added_changed_and_removed_rows_are_sent(engine, mosquitto, qos, version):
    update(engine, put("a", 10))
    text = f"{LAMPS}qos = {qos}\n"
    actuation = Actuation(engine, ActuationSettings(**FAST), BadValues(100))
    with Devices(mosquitto.port) as devices:
        actuation.start(MqttSettings(broker=mosquitto.url, version=version))
        actuation.follow(load_pack(text, "f").actuators)
        wait_for(lambda: devices.received["lamps/a/set"] == [on(10)], what="the state there is")
        update(engine, put("a", 20))
        wait_for(lambda: devices.received["lamps/a/set"] == [on(10), on(20)])
        update(engine, put("b", 5))
        wait_for(lambda: devices.received["lamps/b/set"] == [on(5)])
        update(engine, take_away("a"))
        wait_for(lambda: devices.received["lamps/a/set"] == [on(10), on(20), OFF])
        wait_for(lambda: actuation.sent == 4)
        assert (actuation.failed, actuation.conflated, actuation.queued) == (0, 0, 0)
        actuation.stop()


def test_only_the_newest_of_many_changes_is_sent_in_order(engine, mosquitto):
    with Devices(mosquitto.port) as devices, actuating(engine, mosquitto.url, topic_rate=20.0) as actuation:
        wait_for(lambda: actuation.connected)
        for number in range(1, 200):
            update(engine, put("a", number))
        received = devices.received["lamps/a/set"]
        wait_for(lambda: received and received[-1] == on(199))
        numbers = [json.loads(each)["brightness"] for each in received]
        assert numbers == sorted(numbers)
        assert actuation.conflated > 0
        wait_for(lambda: not actuation.queued)


def test_the_state_is_sent_again_to_a_killed_broker(engine, mosquitto):
    update(engine, put("a", 1), put("b", 2))
    with Devices(mosquitto.port) as devices, actuating(engine, mosquitto.url) as actuation:
        wait_for(lambda: devices.received["lamps/a/set"] and devices.received["lamps/b/set"])
        mosquitto.stop(kill=True)
        wait_for(lambda: not actuation.connected)
        update(engine, put("a", 7), put("a", 8), take_away("b"), put("c", 3))
        before = devices.subscriptions
        # The gateway may reconnect before the devices do. Retained messages are for these devices.
        mosquitto.start()
        wait_for(lambda: actuation.connected and not actuation.queued)
        wait_for(lambda: devices.subscriptions > before)
        sent = actuation.sent
        assert sent == 2 + 3
        mosquitto.stop(kill=True)
        wait_for(lambda: not actuation.connected)
        mosquitto.start()
        wait_for(lambda: actuation.sent == sent + 2, what="the state is sent again: a and c")


def test_retained_messages_wait_for_devices(engine, mosquitto):
    update(engine, put("a", 1))
    with actuating(engine, mosquitto.url, LAMPS.replace('name = "lamps"', "retain = true")) as actuation:
        wait_for(lambda: actuation.sent == 1)
        with Devices(mosquitto.port) as devices:
            wait_for(lambda: devices.retained.get("lamps/a/set") == on(1))


def test_rows_that_share_a_topic(engine, mosquitto):
    insert = PREFIX + "INSERT DATA { ex:a ex:id 'a' ; ex:dimming 1, 2 }"
    with Devices(mosquitto.port) as devices, actuating(engine, mosquitto.url) as actuation:
        received = devices.received["lamps/a/set"]
        wait_for(lambda: actuation.connected)
        update(engine, insert)
        wait_for(lambda: received)
        first = json.loads(received[-1])["brightness"]
        update(engine, PREFIX + f"DELETE DATA {{ ex:a ex:dimming {first} }}")
        wait_for(lambda: received[-1] == on(3 - first), what="the other row counts now")
        update(engine, take_away("a"))
        wait_for(lambda: received[-1] == OFF)


def test_a_row_without_a_valid_message_is_listed_and_blocks_nothing(engine, mosquitto):
    with Devices(mosquitto.port) as devices, actuating(engine, mosquitto.url) as actuation:
        update(engine, PREFIX + "INSERT DATA { ex:x ex:id 'a/b' ; ex:dimming 1 }", put("good", 1))
        wait_for(lambda: devices.received["lamps/good/set"] == [on(1)])
        update(engine, PREFIX + "DELETE WHERE { ex:x ?p ?o }", put("good", 2))
        wait_for(lambda: devices.received["lamps/good/set"][-1] == on(2))
        (bad,) = actuation._bad_values.listed()
        assert (bad["topic"], bad["mapping"]) == ("lamps/{id}/set", "f/lamps")
        assert "slash" in bad["reason"]
        assert "id=a/b" in bad["last_payload"]
        assert actuation.failed == 1


def test_changed_actuators_restart_and_others_continue(engine, mosquitto):
    other = LAMPS[LAMPS.index("[[actuator]]") :].replace('"lamps"', '"others"').replace("lamps/", "others/")
    update(engine, put("a", 1))
    with Devices(mosquitto.port) as devices, actuating(engine, mosquitto.url, LAMPS + other) as actuation:
        wait_for(lambda: devices.received["lamps/a/set"] and devices.received["others/a/set"])
        subscription = actuation._rules._rules["f/others"].subscription
        changed = LAMPS.replace('"ON"', '"on"') + "\n" + other
        actuation.follow(load_pack(changed, "f").actuators)
        wait_for(lambda: len(devices.received["lamps/a/set"]) == 2)
        assert devices.received["lamps/a/set"][1] == on(1).replace("ON", "on")
        assert actuation._rules._rules["f/others"].subscription is subscription
        actuation.follow(load_pack(LAMPS.replace('"ON"', '"on"'), "f").actuators)
        update(engine, put("a", 2))
        wait_for(lambda: len(devices.received["lamps/a/set"]) == 3)
        assert devices.received["others/a/set"] == [on(1)]
        wait_for(lambda: engine.subscriptions == 1)
    wait_for(lambda: engine.subscriptions == 0)


def test_a_query_that_fails_is_a_fault_until_it_does_not(engine, mosquitto):
    wrong = LAMPS.replace("{ ?lamp", "{ SERVICE <http://127.0.0.1:9/> { ?a ?b ?c } ?lamp")
    other = LAMPS[LAMPS.index("[[actuator]]") :].replace('"lamps"', '"others"')
    update(engine, put("a", 1))
    with Devices(mosquitto.port) as devices, actuating(engine, mosquitto.url, wrong + other) as actuation:
        wait_for(lambda: devices.received["lamps/a/set"], what="the rest goes on")
        (fault,) = wait_for(actuation.faults)
        assert fault["reason"].startswith('f:7: actuator "lamps": query: SERVICE is disabled')
        actuation.follow(load_pack(LAMPS + other, "f").actuators)
        wait_for(lambda: not actuation.faults())


class Overrun:
    """An engine that sends all notifications before the first one can be processed. It is otherwise the real engine."""

    def __init__(self, engine) -> None:
        self.engine = engine
        self.subscribed = 0

    def subscribe(self, request, sink, alias=None):
        self.subscribed += 1
        return self.engine.subscribe(request, sink, alias)

    def unsubscribe(self, spuid):
        return self.engine.unsubscribe(spuid)


def test_an_actuator_that_falls_behind_requests_the_state_again(engine, mosquitto):
    overrun = Overrun(engine)
    with Devices(mosquitto.port) as devices, actuating(overrun, mosquitto.url, max_queued=5) as actuation:
        update(engine, put("a", 0), put("gone", 0))
        wait_for(lambda: devices.received["lamps/a/set"] and devices.received["lamps/gone/set"])
        release = threading.Event()
        actuation._events.put(lambda: release.wait(20) and None)
        for number in range(1, 50):
            update(engine, put("a", number))
        update(engine, take_away("gone"))
        release.set()
        wait_for(lambda: devices.received["lamps/a/set"][-1] == on(49))
        wait_for(lambda: devices.received["lamps/gone/set"][-1] == OFF)
        assert overrun.subscribed >= 2
        wait_for(lambda: engine.subscriptions == 1)


def test_a_broker_that_refuses_a_message_is_listed(engine, tmp_path):
    rules = tmp_path / "acl"
    rules.write_text("topic read #\ntopic write lamps/b/#\n")
    broker = Mosquitto(tmp_path / "mosquitto", f"acl_file {rules}")
    broker.start()
    try:
        actuation = Actuation(engine, ActuationSettings(**FAST), BadValues(10))
        actuation.follow(load_pack(LAMPS, "f").actuators)
        actuation.start(MqttSettings(broker=broker.url, version="5", reconnect_min=0.1))
        update(engine, put("a", 1), put("b", 1))
        # Mosquitto 2.0.11 closes the connection then; later versions do not.
        wait_for(lambda: actuation.sent >= 1 and actuation.failed)
        wait_for(lambda: actuation.connected and not actuation.queued)
        assert actuation.failed == 1
        (bad,) = actuation._bad_values.listed()
        assert bad["topic"] == "lamps/a/set"
        assert "refused" in bad["reason"]
        actuation.stop()
    finally:
        broker.stop()


class Prudish(socketserver.BaseRequestHandler):
    """A broker that closes the connection of a client that publishes to lamp "a", and acknowledges the rest."""

    def handle(self) -> None:
        self.server.connections += 1
        self.request.recv(1000)
        self.request.sendall(b"\x20\x02\x00\x00")
        while packets := self.request.recv(4000):
            while len(packets) > 2 and packets[0] & 0xF0 == 0x30:
                length, name = packets[1], packets[3]
                topic, mid = packets[4 : 4 + name].decode(), packets[4 + name : 6 + name]
                self.server.came.append(topic)
                if topic == "lamps/a/set":
                    return
                self.request.sendall(b"\x40\x02" + mid)
                packets = packets[2 + length :]


def test_a_broker_that_closes_the_connection_for_a_message_gets_all_others(engine):
    update(engine, put("a", 1), put("b", 1))
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Prudish) as server:
        server.daemon_threads = True
        server.connections, server.came = 0, []
        threading.Thread(target=server.serve_forever, args=(0.05,)).start()
        with actuating(engine, f"mqtt://127.0.0.1:{server.server_address[1]}") as actuation:
            wait_for(lambda: actuation.failed == 1)
            update(engine, put("c", 1))
            wait_for(lambda: "lamps/c/set" in server.came and not actuation.queued)
            (bad,) = actuation._bad_values.listed()
            assert (bad["topic"], bad["count"]) == ("lamps/a/set", 1)
            assert "ended the connection" in bad["reason"]
            assert "lamps/b/set" in server.came
            assert server.came.count("lamps/a/set") == 3
            assert server.connections == 4
            update(engine, put("a", 2))
            wait_for(lambda: actuation.failed == 2, what="something else for it is tried again")
        server.shutdown()


def test_a_connection_to_a_broker_that_acknowledges_nothing_is_reopened(engine, monkeypatch):
    monkeypatch.setattr("edge.adapters.actuation._PATIENCE", 0.2)
    topic = b"lamps/a/set"
    update(engine, put("a", 1))
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        actuating(engine, f"mqtt://127.0.0.1:{server.getsockname()[1]}") as actuation,
    ):
        server.settimeout(10)
        for answers in (False, True):
            with server.accept()[0] as connection:
                connection.settimeout(10)
                connection.recv(1000)
                connection.sendall(b"\x20\x02\x00\x00")
                came = b""
                while topic not in came:
                    came += connection.recv(1000)
                if answers:
                    mid = came[came.index(topic) + len(topic) :][:2]
                    connection.sendall(b"\x40\x02" + mid)
                    wait_for(lambda: actuation.sent == 1)
                else:
                    while connection.recv(1000):
                        pass


@pytest.fixture(params=["embedded broker", "Mosquitto"])
def gateway(request, tmp_path):
    """Start a gateway process with actuators.

    Return it with the port of its broker, which may be None until it runs.
    """
    settings = {"EDGE__HOST__ENABLED": "false", "EDGE__MAPPINGS__RELOAD_INTERVAL": "0.1"}
    broker = None
    if request.param == "Mosquitto":
        broker = Mosquitto(tmp_path / "mosquitto")
        broker.start()
        settings["EDGE__MQTT__BROKER"] = broker.url
    folder = tmp_path / "data" / "mappings"
    folder.mkdir(parents=True)
    (folder / "lamps.toml").write_text(LAMPS)
    process = GatewayProcess(tmp_path / "data", settings)
    yield process
    process.stop()
    if broker is not None:
        broker.stop()


def post(endpoints: dict[str, str], text: str) -> None:
    httpx.post(endpoints["http"] + "/update", data={"update": text}).raise_for_status()


def port(endpoints: dict[str, str]) -> int:
    return int(endpoints["mqtt"].rpartition(":")[2])


def test_from_an_update_over_http_to_a_message_and_over_a_restart(gateway):
    endpoints = gateway.start()
    with Devices(port(endpoints)) as devices:
        post(endpoints, put("kitchen", 40))
        wait_for(lambda: devices.received["lamps/kitchen/set"] == [on(40)])
        health = httpx.get(endpoints["http"] + "/health").json()
        assert health["mapping_faults"] == []
        assert httpx.get(endpoints["http"] + "/api/unmapped").json() == []
        text = wait_for(lambda: _metrics(endpoints, "edge_actuation_sent 1.0"))
        assert "edge_actuation_failed 0.0" in text
        assert "edge_mqtt_readings 0.0" in text
    gateway.stop()
    endpoints = gateway.start()
    with Devices(port(endpoints)) as devices:
        wait_for(lambda: _metrics(endpoints, "edge_actuation_sent 1.0"), what="the state is sent after the start")
        post(endpoints, put("kitchen", 50))
        wait_for(lambda: devices.received["lamps/kitchen/set"][-1:] == [on(50)])


def test_actuators_follow_their_file_and_its_errors_are_reported(gateway):
    endpoints = gateway.start()
    file = gateway.data_dir / "mappings" / "lamps.toml"
    with Devices(port(endpoints)) as devices:
        post(endpoints, put("kitchen", 40))
        wait_for(lambda: devices.received["lamps/kitchen/set"])
        file.write_text(LAMPS.replace("lamps/{id}", "lights/{id}"))
        wait_for(lambda: devices.received["lights/kitchen/set"] == [on(40)])
        file.write_text(LAMPS.replace("?lamp ex:id", "SERVICE <http://127.0.0.1:9/> { ?a ?b ?c } ?lamp ex:id"))
        (fault,) = wait_for(lambda: httpx.get(endpoints["http"] + "/health").json()["mapping_faults"])
        assert fault["file"] == str(file)
        assert 'actuator "lamps": query: SERVICE' in fault["reason"]
        assert [(each["table"], each["mapping"], each["key"]) for each in fault["faults"]] == [
            ("actuator", "lamps", "query")
        ]
        assert _metrics(endpoints, "edge_mqtt_mapping_faults 1.0")


def _metrics(endpoints: dict[str, str], line: str) -> str:
    """Return the metrics if they contain a line, otherwise an empty text."""
    text = httpx.get(endpoints["http"] + "/metrics").text
    return text if line in text else ""
