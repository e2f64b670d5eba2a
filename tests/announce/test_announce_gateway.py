"""A gateway that announces at a real broker: entities, states, commands, restarts, and their removal."""

from __future__ import annotations

import pytest
from announced_home import SETTINGS, Broker, Home

from tests.support.processes import GatewayProcess, Mosquitto
from tests.support.waiting import wait_for

LAMP = "zigbee2mqtt/lamp"
KITCHEN = {"temperature": 21.5, "humidity": 40}


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One gateway for the tests that do not restart it."""
    directory = tmp_path_factory.mktemp("shared")
    mosquitto = Mosquitto(directory / "mosquitto")
    mosquitto.start()
    home, broker = Home(directory / "data", mosquitto), Broker(mosquitto.port)
    yield home, broker
    broker.close()
    home.close()
    mosquitto.stop()


@pytest.fixture
def site(tmp_path, mosquitto):
    home, broker = Home(tmp_path / "data", mosquitto), Broker(mosquitto.port)
    yield home, broker
    broker.close()
    home.close()


def test_a_reading_appears_with_its_unit_and_its_later_values(shared):
    _, broker = shared
    broker.publish("zigbee2mqtt/kitchen", KITCHEN)
    config = broker.entity("sensor kitchen: temperature")
    assert (config["device_class"], config["unit_of_measurement"]) == ("temperature", "°C")
    broker.shows("sensor kitchen: temperature", "21.5")
    broker.shows("sensor kitchen: humidity", "40")
    broker.awaits(config["availability"][0]["topic"], "online")
    broker.publish("zigbee2mqtt/kitchen", {**KITCHEN, "temperature": 22})
    broker.shows("sensor kitchen: temperature", "22")
    # Only the state has changed.
    topics = [topic for topic in broker.history if topic.endswith("/config") and "temperature" in topic]
    assert [len(broker.history[topic]) for topic in topics] == [1]


def test_a_lamp_is_a_light_that_is_set_at_its_device(shared):
    home, broker = shared
    broker.publish(LAMP, {"state": "OFF", "brightness": 7})
    light = broker.entity("light lamp: state")
    broker.shows("light lamp: state", "OFF")
    broker.awaits(light["brightness_state_topic"], "7")
    broker.publish(light["command_topic"], "ON")
    broker.awaits(f"{LAMP}/set", '{"state":"ON"}')
    # Home Assistant shows what the device reports, and not what was wanted.
    assert broker.messages[light["state_topic"]] == "OFF"
    broker.publish(LAMP, {"state": "ON", "brightness": 7})
    broker.shows("light lamp: state", "ON")
    broker.publish(light["brightness_command_topic"], "100")
    broker.awaits(f"{LAMP}/set", '{"brightness":100}')
    wanted = {"query": "SELECT ?v { ?o <urn:sepa-edge:desired> ?v }"}
    wait_for(lambda: not home.http.get("/query", params=wanted).json()["results"]["bindings"], what="acknowledgement")


def test_commands_that_are_not_possible_are_refused_and_listed(shared):
    home, broker = shared
    broker.publish(LAMP, {"state": "OFF", "brightness": 7})
    light = broker.entity("light lamp: state")
    before = len(broker.history[f"{LAMP}/set"])
    broker.publish(light["command_topic"], "MAYBE")
    broker.publish(light["brightness_command_topic"], "999")
    broker.publish(light["brightness_command_topic"], "[" * 5000)
    wait_for(lambda: home.process.log().count("announce.command_refused") >= 2, what="the refusals")
    broker.publish(light["brightness_command_topic"], "9")
    broker.awaits(f"{LAMP}/set", '{"brightness":9}')
    assert len(broker.history[f"{LAMP}/set"]) == before + 1


def test_own_topics_hold_no_readings(shared):
    home, broker = shared
    broker.publish("zigbee2mqtt/own", {"temperature": 1})
    broker.shows("sensor own: temperature", "1")
    broker.publish("nobody/maps/this", "1")
    wait_for(lambda: home.http.get("/api/unmapped").json(), what="the unmapped topic")
    assert [each["topic"] for each in home.http.get("/api/unmapped").json()] == ["nobody/maps/this"]
    assert home.http.get("/api/bad-values").json() == []


def test_a_forgotten_observation_is_removed(shared):
    home, broker = shared
    broker.publish("zigbee2mqtt/attic", KITCHEN)
    broker.shows("sensor attic: humidity", "40")
    config = broker.entity("sensor attic: temperature")
    home.forget("urn:sepa-edge:zigbee2mqtt:attic/temperature")
    wait_for(lambda: "sensor attic: temperature" not in broker.entities(), what="the removal")
    broker.awaits(config["state_topic"], "")
    assert "sensor attic: humidity" in broker.entities()


def test_the_result_of_a_query_is_an_entity(shared, tmp_path):
    home, broker = shared
    directory = home.process.data_dir / "queries"
    (directory / "frost.rq").write_text("ASK { ?o <urn:x:t> ?t FILTER(?t < 0) }")
    (directory / "coldest.rq").write_text("SELECT (MIN(?t) AS ?least) { ?o <urn:x:t> ?t }")
    (directory / "table.rq").write_text("SELECT ?o ?t { ?o <urn:x:t> ?t }")
    (directory / "broken.rq").write_text("SELECT")
    broker.shows("binary_sensor sepa-edge: frost", "OFF")
    home.update("INSERT DATA { <urn:x:1> <urn:x:t> -2 , 5 }")
    broker.shows("binary_sensor sepa-edge: frost", "ON")
    broker.shows("sensor sepa-edge: coldest", "-2")
    (directory / "frost.rq").unlink()
    wait_for(lambda: "binary_sensor sepa-edge: frost" not in broker.entities(), what="the removal")
    assert "sensor sepa-edge: coldest" in broker.entities()
    assert not {"table", "broken"} & {name.rpartition(": ")[2] for name in broker.entities()}


def test_everything_is_announced_again_when_home_assistant_has_started(shared):
    _, broker = shared
    broker.publish("zigbee2mqtt/again", {"temperature": 3})
    broker.shows("sensor again: temperature", "3")
    topic = next(each for each in broker.history if each.endswith("/config") and "again_temperature" in each)
    assert len(broker.history[topic]) == 1
    broker.publish("homeassistant/status", "online")
    wait_for(lambda: len(broker.history[topic]) == 2, what="the announcement")


def test_what_has_gone_during_a_restart_is_removed(site):
    home, broker = site
    broker.publish("zigbee2mqtt/a", {"temperature": 1})
    broker.publish("zigbee2mqtt/b", {"temperature": 2})
    query = home.process.data_dir / "queries" / "truth.rq"
    query.write_text("ASK { }")
    broker.awaits_entities("sensor a: temperature", "sensor b: temperature", "binary_sensor sepa-edge: truth")
    broker.shows("sensor b: temperature", "2")
    status = broker.entity("sensor a: temperature")["availability"][0]["topic"]
    home.close()
    broker.awaits(status, "offline")
    assert len(broker.entities()) == 4
    query.unlink()
    gone = broker.entity("sensor b: temperature")["state_topic"]
    # The observation goes while nothing is announced.
    home.process.environment["EDGE__ANNOUNCE__HOME_ASSISTANT"] = "true"
    home.process.environment["EDGE__ANNOUNCE__EXCLUDE"] = '["urn:sepa-edge:zigbee2mqtt:b/"]'
    home.start()
    broker.awaits_entities("sensor a: temperature")
    broker.awaits(gone, "")
    broker.awaits(status, "online")


def test_all_announcements_are_removed_when_they_are_turned_off(site):
    home, broker = site
    broker.publish(LAMP, {"state": "OFF", "brightness": 7, "linkquality": 3})
    broker.awaits_entities("light lamp: state", "sensor lamp: linkquality")
    broker.shows("sensor lamp: linkquality", "3")
    places = home.process.data_dir / "home-assistant-places.json"
    assert places.exists()
    home.close()
    home.process.environment["EDGE__ANNOUNCE__HOME_ASSISTANT"] = "false"
    home.start()
    wait_for(lambda: not places.exists(), what="the end of the removal")
    assert {topic for topic, text in broker.messages.items() if text} == {LAMP}
    home.close()
    known = dict(broker.history)
    home.start()
    assert broker.history == known


def test_a_changed_place_is_cleared(site):
    home, broker = site
    broker.publish("zigbee2mqtt/a", {"temperature": 1})
    broker.shows("sensor a: temperature", "1")
    old = {topic for topic in broker.messages if topic.startswith(("homeassistant/", "sepa/"))}
    home.close()
    home.process.environment["EDGE__ANNOUNCE__ROOT"] = "other"
    home.process.environment["EDGE__MQTT__CLIENT_ID"] = "another gateway"
    home.start()
    wait_for(lambda: not any(broker.messages[topic] for topic in old), what="the removal")
    broker.shows("sensor a: temperature", "1")
    assert broker.entity("sensor a: temperature")["state_topic"].startswith("other/another_gateway_")


def test_a_broker_that_lost_everything_gets_it_again(site, mosquitto):
    _, broker = site
    broker.publish("zigbee2mqtt/a", {"temperature": 1})
    broker.shows("sensor a: temperature", "1")
    mosquitto.stop(kill=True)
    for file in mosquitto.config.parent.glob("*.db"):
        file.unlink()
    broker.messages.clear()
    mosquitto.start()
    broker.shows("sensor a: temperature", "1")
    broker.publish("zigbee2mqtt/a", {"temperature": 2})
    broker.shows("sensor a: temperature", "2")


def test_a_killed_gateway_is_unavailable(site):
    home, broker = site
    connection = broker.entity("binary_sensor sepa-edge: Connection")
    broker.awaits(connection["state_topic"], "online")
    home.process.kill()
    broker.awaits(connection["state_topic"], "offline")


def test_a_restart_in_the_middle_keeps_entities_without_a_value(site):
    home, broker = site
    broker.publish("zigbee2mqtt/a", {"contact": True})
    broker.shows("binary_sensor a: contact", "ON")
    quantity = "<urn:sepa-edge:zigbee2mqtt:a/contact> <http://www.w3.org/ns/sosa/hasResult> ?q"
    value = "?q <http://qudt.org/1.1/schema/qudt#numericValue> ?v"
    home.update(f"DELETE {{ {value} }} WHERE {{ {quantity} . {value} }}")
    broker.shows("binary_sensor a: contact", "None")
    home.process.kill()
    home.http.close()
    before = {topic: len(texts) for topic, texts in broker.history.items() if topic.endswith("/config")}
    home.start()
    wait_for(lambda: all(len(broker.history[topic]) > number for topic, number in before.items()), what="announcements")
    assert [broker.history[topic] for topic in before if "" in broker.history[topic]] == []
    broker.shows("binary_sensor a: contact", "None")


def test_what_came_from_home_assistant_does_not_return_to_it(tmp_path, mosquitto):
    home = Home(tmp_path / "data", mosquitto, EDGE__DISCOVERY__HOME_ASSISTANT="true")
    broker = Broker(mosquitto.port)
    try:
        config = {"uniq_id": "x", "stat_t": "cellar/x", "name": "X", "unit_of_meas": "W"}
        broker.publish("homeassistant/sensor/x/config", config, retain=True)
        broker.publish("cellar/x", "5")
        broker.publish("zigbee2mqtt/a", {"temperature": 1})
        query = {"query": "SELECT ?v { <urn:sepa-edge:discovered:sensor/x> ?p ?v }"}
        wait_for(lambda: home.http.get("/query", params=query).json()["results"]["bindings"], what="the observation")
        broker.shows("sensor a: temperature", "1")
        announced = [topic for topic in broker.messages if topic.startswith("homeassistant/") and "sepa-edge" in topic]
        assert len(announced) == 2
        # The gateway does not discover itself.
        assert home.http.get("/health").json()["mapping_faults"] == []
        query = {"query": "SELECT DISTINCT ?o { ?o a <http://www.w3.org/ns/sosa/Observation> }"}
        assert len(home.http.get("/query", params=query).json()["results"]["bindings"]) == 2
    finally:
        broker.close()
        home.close()


def test_a_device_that_announces_itself_is_not_announced_again(site):
    home, broker = site
    config = {"uniq_id": "z1", "stat_t": "zigbee2mqtt/z", "name": "T", "val_tpl": "{{ value_json.temperature }}"}
    broker.publish("zigbee2mqtt/z", {"temperature": 1})
    broker.shows("sensor z: temperature", "1")
    # It begins to announce itself while the gateway runs, before the gateway starts, and ends.
    broker.publish("homeassistant/sensor/z1/config", config, retain=True)
    wait_for(lambda: "sensor z: temperature" not in broker.entities(), what="the removal")
    home.close()
    before = {topic: len(texts) for topic, texts in broker.history.items()}
    home.start()
    broker.publish("zigbee2mqtt/y", {"temperature": 2})
    wait_for(lambda: "sensor y: temperature" in broker.entities(), what="another one")
    assert not any(
        "z_temperature" in topic for topic, texts in broker.history.items() if len(texts) > before.get(topic, 0)
    )
    broker.publish("homeassistant/sensor/z1/config", "", retain=True)
    wait_for(lambda: "sensor z: temperature" in broker.entities(), what="the announcement")


def test_more_entities_than_the_limit_are_left_out_and_logged_once(tmp_path, mosquitto):
    home = Home(tmp_path / "data", mosquitto, EDGE__ANNOUNCE__MAX_ENTITIES="2")
    broker = Broker(mosquitto.port)
    try:
        for name in "abcd":
            broker.publish(f"zigbee2mqtt/{name}", {"temperature": 1})
        wait_for(lambda: "announce.full" in home.process.log(), what="the warning")
        wait_for(lambda: len(broker.entities()) == 3, what="two entities and the gateway")
        (first, *_) = sorted(name for name in broker.entities() if name.startswith("sensor"))
        device = first.removeprefix("sensor ").partition(":")[0]
        home.forget(f"urn:sepa-edge:zigbee2mqtt:{device}/temperature")
        wait_for(lambda: first not in broker.entities() and len(broker.entities()) == 3, what="the next one")
        assert home.process.log().count("announce.full") == 1
    finally:
        broker.close()
        home.close()


def test_with_mqtt_5(tmp_path, mosquitto):
    home, broker = Home(tmp_path / "data", mosquitto, EDGE__MQTT__VERSION="5"), Broker(mosquitto.port)
    try:
        broker.publish(LAMP, {"state": "OFF"})
        broker.shows("switch lamp: state", "OFF")
        # A command that is retained is older than the connection, and is not carried out.
        command = broker.entity("switch lamp: state")["command_topic"]
        home.close()
        broker.publish(command, "ON", retain=True)
        home.start()
        broker.awaits(broker.entity("switch lamp: state")["availability"][0]["topic"], "online")
        broker.publish(command, "OFF")
        broker.awaits(f"{LAMP}/set", '{"state":"OFF"}')
        assert len(broker.history[f"{LAMP}/set"]) == 1
    finally:
        broker.close()
        home.close()


def test_with_the_embedded_broker(tmp_path):
    process = GatewayProcess(tmp_path / "data", SETTINGS)
    endpoints = process.start()
    broker = Broker(int(endpoints["mqtt"].rpartition(":")[2]))
    try:
        broker.publish(LAMP, {"state": "OFF", "brightness": 7})
        broker.shows("light lamp: state", "OFF")
        broker.publish(broker.entity("light lamp: state")["command_topic"], "ON")
        broker.awaits(f"{LAMP}/set", '{"state":"ON"}')
    finally:
        broker.close()
        process.stop()
