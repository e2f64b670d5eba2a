"""Announcements as firmwares send them, each with the values that follow: nothing is written in a mapping file."""

import pytest
from announcing import Announcing

from edge.mapping.solution import CommandError

TOPIC_OF_ZIGBEE = "zigbee2mqtt/NAS_Temperatuur1"


@pytest.fixture
def home(tmp_path):
    return Announcing(tmp_path / "announcements.json")


def test_esphome(home):
    """ESPHome 2024.12, component mqtt (send_discovery): abbreviated options, plain values."""
    device = {"ids": "a0b1c2d3e4f5", "name": "Porch", "sw": "2024.12.0", "mdl": "esp32dev", "mf": "Espressif"}
    device |= {"sa": "Garden", "cns": [["mac", "a0b1c2d3e4f5"]]}
    common = {"avty_t": "porch/status", "dev": device}
    temperature = {
        "dev_cla": "temperature",
        "unit_of_meas": "°C",
        "stat_cla": "measurement",
        "name": "Outside",
        "stat_t": "porch/sensor/outside/state",
        "uniq_id": "a0b1c2d3e4f5-sensor-0a1b2c3d",
    }
    home.announce("sensor/porch/outside/config", {**common, **temperature})
    switch = {
        "name": "Pump",
        "stat_t": "porch/switch/pump/state",
        "cmd_t": "porch/switch/pump/command",
        "uniq_id": "a0b1c2d3e4f5-switch-1",
    }
    home.announce("switch/porch/pump/config", {**common, **switch})
    light = {
        "schema": "json",
        "sup_clrm": ["color_temp"],
        "min_mirs": 153.4,
        "name": "",
        "stat_t": "porch/light/lamp/state",
        "cmd_t": "porch/light/lamp/command",
        "uniq_id": "a0b1c2d3e4f5-light-1",
    }
    home.announce("light/porch/lamp/config", {**common, **light})
    [reading] = home.readings("porch/sensor/outside/state", "21.5")
    assert (reading.value, reading.unit) == ("21.5", "http://qudt.org/1.1/vocab/unit#DegreeCelsius")
    assert reading.label == "Outside of Porch"
    assert reading.comment == "Espressif esp32dev"
    assert reading.location == "urn:sepa-edge:place:Garden"
    assert reading.sensor == "urn:sepa-edge:discovered:device/a0b1c2d3e4f5"
    assert home.readings("porch/sensor/outside/state", "nan") == []
    assert home.values("porch/switch/pump/state", "ON") == {"switch/a0b1c2d3e4f5-switch-1": "true"}
    pump = ("porch/switch/pump/state", "switch/a0b1c2d3e4f5-switch-1")
    assert home.command(*pump, "false") == ("porch/switch/pump/command", b"OFF")
    lamp = "light/a0b1c2d3e4f5-light-1"
    assert home.values("porch/light/lamp/state", {"state": "ON", "brightness": 128, "color_temp": 250}) == {
        lamp: "true",
        f"{lamp}/brightness": "128",
        f"{lamp}/color_temp": "250",
    }
    sent = home.command("porch/light/lamp/state", f"{lamp}/brightness", "10")
    assert sent == ("porch/light/lamp/command", b'{"state":"ON","brightness":10}')
    sent = home.command("porch/light/lamp/state", f"{lamp}/color_temp", "154")
    assert sent == ("porch/light/lamp/command", b'{"state":"ON","color_temp":154}')
    for outside in ("153", "501"):
        with pytest.raises(CommandError):
            home.command("porch/light/lamp/state", f"{lamp}/color_temp", outside)
    [available] = home.readings("porch/status", "offline")
    assert (available.value, available.sensor) == ("false", reading.sensor)
    assert home.reasons() == []


@pytest.mark.parametrize(
    ("announced", "least", "most", "outside"),
    [({"max_mirs": 150}, "1", "150", "151"), ({"min_mirs": 550}, "550", "900", "549")],
    ids=["below the default", "above the default"],
)
def test_a_default_bound_that_contradicts_the_announced_one_is_left_out(home, announced, least, most, outside):
    light = {"schema": "json", "sup_clrm": ["color_temp"], "stat_t": "lamp/state", "cmd_t": "lamp/set", "uniq_id": "l"}
    home.announce("light/lamp/config", {**light, **announced})
    assert home.reasons() == []
    home.values("lamp/state", {"state": "ON", "color_temp": 140})
    for value in (least, most):
        sent = home.command("lamp/state", "light/l/color_temp", value)
        assert sent == ("lamp/set", f'{{"state":"ON","color_temp":{value}}}'.encode())
    with pytest.raises(CommandError):
        home.command("lamp/state", "light/l/color_temp", outside)


def test_tasmota_with_setoption19(home):
    """Tasmota 9.2, xdrv_12_home_assistant: members in brackets, a base of topics, an impulse without OFF."""
    common = {"avty_t": "tele/plug/LWT", "pl_avail": "Online", "pl_not_avail": "Offline", "dev": {"ids": ["1A2B3C"]}}

    def sensor(name: str, path: str, unit: str, kind: dict) -> None:
        config = {"name": f"Plug {name}", "stat_t": "tele/plug/SENSOR", "frc_upd": True, "unit_of_meas": unit, **kind}
        config |= {"uniq_id": f"1A2B3C_{name}", "val_tpl": f"{{{{value_json{path}}}}}"}
        home.announce(f"sensor/1A2B3C_{name}/config", {**common, **config})

    sensor("AM2301_Temperature", "['AM2301']['Temperature']", "°C", {"dev_cla": "temperature"})
    sensor("ENERGY_Power_1", "['ENERGY']['Power'][0]", "W", {"dev_cla": "power"})
    sensor("ENERGY_Total", "['ENERGY']['Total']", "kWh", {"dev_cla": "power"})
    sensor("ENERGY_Factor", "['ENERGY']['Factor']", "Cos φ", {"ic": "mdi:alpha-f-circle-outline"})
    sensor("ENERGY_TotalStartTime", "['ENERGY']['TotalStartTime']", " ", {"ic": "mdi:progress-clock"})
    relay = {
        "name": "Plug",
        "stat_t": "~RESULT",
        "~": "stat/plug/",
        "cmd_t": "cmnd/plug/POWER",
        "val_tpl": "{{value_json.POWER}}",
        "pl_off": "OFF",
        "pl_on": "ON",
        "uniq_id": "1A2B3C_RL_1",
    }
    home.announce("switch/1A2B3C_RL_1/config", {**common, **relay})
    motion = {"name": "Plug Switch1", "stat_t": "stat/plug/SWITCH1", "val_tpl": "{{value_json.STATE}}", "frc_upd": True}
    motion |= {"pl_on": "ON", "off_dly": 1, "uniq_id": "1A2B3C_SW_1"}
    home.announce("binary_sensor/1A2B3C_SW_1/config", {**common, **motion})
    energy = {"Power": [12.5], "Total": 3.721, "Factor": 0.94, "TotalStartTime": "2024-11-23T15:33:47"}
    message = {"Time": "2024-12-01T00:00:00", "AM2301": {"Temperature": 21.50}, "ENERGY": energy}
    assert home.values("tele/plug/SENSOR", message) == {
        "sensor/1A2B3C_AM2301_Temperature": "21.5",
        "sensor/1A2B3C_ENERGY_Power_1": "12.5",
        "sensor/1A2B3C_ENERGY_Total": "3.721",
        "sensor/1A2B3C_ENERGY_Factor": "0.94",
        "sensor/1A2B3C_ENERGY_TotalStartTime": "2024-11-23T15:33:47",
    }
    assert home.units("tele/plug/SENSOR", message) == {
        "sensor/1A2B3C_AM2301_Temperature": "DegreeCelsius",
        "sensor/1A2B3C_ENERGY_Power_1": "Watt",
        "sensor/1A2B3C_ENERGY_Total": "Kilowatthour",
        "sensor/1A2B3C_ENERGY_Factor": None,
        "sensor/1A2B3C_ENERGY_TotalStartTime": None,
    }
    # A power cannot be in kWh.
    total = next(each for each in home.readings("tele/plug/SENSOR", message) if each.value == "3.721")
    assert total.property == "urn:sepa-edge:property:plug_energy_total"
    assert home.values("tele/plug/SENSOR", {"Time": "x", "ENERGY": {"Total": 4}}) == {"sensor/1A2B3C_ENERGY_Total": "4"}
    assert home.values("stat/plug/RESULT", {"POWER": "OFF"}) == {"switch/1A2B3C_RL_1": "false"}
    assert home.values("stat/plug/RESULT", {"Dimmer": 3}) == {}
    assert home.command("stat/plug/RESULT", "switch/1A2B3C_RL_1", "true") == ("cmnd/plug/POWER", b"ON")
    [motion] = home.readings("stat/plug/SWITCH1", {"STATE": "ON"})
    assert motion.value == "true"
    assert motion.event is not None
    assert home.values("tele/plug/LWT", "Online") == {"available/tele/plug/LWT": "true"}
    assert home.reasons() == []


def test_zigbee2mqtt(home):
    """Zigbee2MQTT 1.33 and 2.7, lib/extension/homeassistant: several availability topics, true and false."""
    common = {
        "availability": [
            {"topic": "zigbee2mqtt/bridge/state", "value_template": "{{ value_json.state }}"},
            {"topic": f"{TOPIC_OF_ZIGBEE}/availability", "value_template": "{{ value_json.state }}"},
        ],
        "availability_mode": "all",
        "device": {
            "identifiers": ["zigbee2mqtt_0x00158d0003cb2b18"],
            "manufacturer": "Xiaomi",
            "model": "MiJia temperature & humidity sensor (WSDCGQ01LM)",
            "name": "NAS_Temperatuur1",
        },
        "origin": {"name": "Zigbee2MQTT", "sw": "1.33.2", "url": "https://www.zigbee2mqtt.io"},
        "state_topic": TOPIC_OF_ZIGBEE,
    }
    node = "0x00158d0003cb2b18"
    for name, config in {
        "humidity": {"device_class": "humidity", "unit_of_measurement": "%", "state_class": "measurement"},
        "voltage": {"device_class": "voltage", "unit_of_measurement": "mV", "state_class": "measurement"},
        "linkquality": {"name": "Linkquality", "unit_of_measurement": "lqi", "state_class": "measurement"},
    }.items():
        ident = {"unique_id": f"{node}_{name}_zigbee2mqtt", "value_template": f"{{{{ value_json.{name} }}}}"}
        home.announce(f"sensor/{node}/{name}/config", {**common, **config, **ident})
    occupied = {"payload_on": True, "payload_off": False, "device_class": "occupancy"}
    occupied |= {"value_template": "{{ value_json.occupancy }}", "unique_id": f"{node}_occupancy_zigbee2mqtt"}
    home.announce(f"binary_sensor/{node}/occupancy/config", {**common, **occupied})
    update = {"value_template": "{{ value_json['update']['state'] == \"available\" }}", "device_class": "update"}
    update |= {"name": None, "payload_on": True, "payload_off": False, "unique_id": "u"}
    home.announce(f"binary_sensor/{node}/update_available/config", {**common, **update})
    home.announce("device_automation/0x01/action_single/config", {"automation_type": "trigger", "topic": "x/action"})
    message = {"humidity": 48.2, "voltage": 3025, "linkquality": 90, "occupancy": True}
    values = home.values(TOPIC_OF_ZIGBEE, message)
    assert {name.removesuffix("_zigbee2mqtt"): value for name, value in values.items()} == {
        f"sensor/{node}_humidity": "48.2",
        f"sensor/{node}_voltage": "3025",
        f"sensor/{node}_linkquality": "90",
        f"binary_sensor/{node}_occupancy": "true",
    }
    assert list(home.units(TOPIC_OF_ZIGBEE, message).values()) == ["Percent", "MilliV", None, None]
    assert home.values("zigbee2mqtt/bridge/state", {"state": "online"}) == {
        "available/zigbee2mqtt/bridge/state": "true"
    }
    # A template outside of the subset is reported once, by name.
    [reason] = home.reasons()
    assert "value_json['update']['state'] ==" in reason


def test_zwave_js_ui(home):
    """zwave-js-ui 9, hass/configurations: `value` of a JSON payload, numbers as payloads, a condition in a template."""
    common = {"device": {"identifiers": ["zwavejs2mqtt_0xe1_node7"], "name": "Hall", "model": "ZW100"}}
    door = {"payload_on": True, "payload_off": False, "value_template": "{{ value_json.value }}"}
    door |= {"state_topic": "zwave/Hall/48/0/Any", "unique_id": "7-48", "name": "Door"}
    home.announce("binary_sensor/Hall/any/config", {**common, **door})
    lock = {"state_locked": 255, "state_unlocked": 0, "payload_lock": 255, "payload_unlock": 0, "unique_id": "7-98"}
    lock |= {"state_topic": "zwave/Hall/98/0/currentMode", "command_topic": "zwave/Hall/98/0/targetMode/set"}
    home.announce("lock/Hall/lock/config", {**common, **lock, "value_template": "{{ value_json.value }}"})
    scene = {"state_topic": "zwave/Hall/91/0/scene", "value_template": "{{ value_json.value | default('') }}"}
    home.announce("sensor/Hall/scene_state_scene_001/config", {**common, **scene, "unique_id": "7-91"})
    cover = {
        "command_topic": "zwave/Hall/38/0/targetValue/set",
        "position_topic": "zwave/Hall/38/0/currentValue",
        "set_position_topic": "zwave/Hall/38/0/targetValue/set",
        "position_template": "{{ value_json.value | round(0) }}",
        "position_open": 99,
        "position_closed": 0,
        "unique_id": "7-38",
    }
    home.announce("cover/Hall/position/config", {**common, **cover})
    dimmer = {
        "state_topic": "zwave/Hall/38/1/currentValue",
        "state_value_template": '{{ "OFF" if value_json.value == 0 else "ON" }}',
        "brightness_state_topic": "zwave/Hall/38/1/currentValue",
        "brightness_command_topic": "zwave/Hall/38/1/targetValue/set",
        "brightness_value_template": "{{ value_json.value }}",
        "brightness_scale": 99,
        "color_temp_kelvin": True,
        "color_temp_state_topic": "zwave/Hall/51/0/Warm",
        "color_temp_command_topic": "zwave/Hall/51/0/Warm/set",
        "min_mireds": 153.8,
        "unique_id": "7-38-1",
    }
    home.announce("light/Hall/dimmer/config", {**common, **dimmer})
    assert home.values("zwave/Hall/48/0/Any", {"time": 1, "value": True}) == {"binary_sensor/7-48": "true"}
    assert home.values("zwave/Hall/98/0/currentMode", {"value": 255}) == {"lock/7-98": "true"}
    assert home.command("zwave/Hall/98/0/currentMode", "lock/7-98", "false")[1] == b"0"
    assert home.values("zwave/Hall/91/0/scene", {"time": 1}) == {}
    assert home.values("zwave/Hall/91/0/scene", {"value": 3}) == {"sensor/7-91": "3"}
    assert home.values("zwave/Hall/38/0/currentValue", {"value": 49.6}) == {"cover/7-38/position": "50"}
    assert home.values("zwave/Hall/38/1/currentValue", {"value": 33}) == {"light/7-38-1/brightness": "33"}
    assert home.command("zwave/Hall/38/1/currentValue", "light/7-38-1/brightness", "99")[1] == b"99"
    [warmth] = home.readings("zwave/Hall/51/0/Warm", "2700")
    assert (warmth.value, warmth.unit) == ("2700", "http://qudt.org/1.1/vocab/unit#Kelvin")
    assert home.command("zwave/Hall/51/0/Warm", "light/7-38-1/color_temp", "6500")[1] == b"6500"
    with pytest.raises(CommandError):
        home.command("zwave/Hall/51/0/Warm", "light/7-38-1/color_temp", "6502")
    [reason] = home.reasons()
    assert "light/7-38-1" in reason


def test_openmqttgateway(home):
    """OpenMQTTGateway 1.7 with Theengs decoder: topics of any gateway, members that a message may lack."""
    device = {"ids": ["A4C138AABBCC"], "cns": [["mac", "A4C138AABBCC"]], "mf": "Xiaomi", "mdl": "LYWSD03MMC"}
    device |= {"name": "TH Sensor-AABBCC", "via_device": "OMG_GAT"}
    topic = "+/+/BTtoMQTT/A4C138AABBCC"

    def announce(component: str, name: str, **config: object) -> None:
        ident = f"A4C138AABBCC-{name}"
        common = {"stat_t": topic, "name": f"TH Sensor-AABBCC-{name}", "uniq_id": ident, "device": device}
        home.announce(f"{component}/{ident}/config", {**common, **config})

    tpl = "{{{{ value_json.{} | is_defined }}}}".format
    announce("sensor", "batt", dev_cla="battery", unit_of_meas="%", val_tpl=tpl("batt"), state_class="measurement")
    announce("sensor", "tempc", dev_cla="temperature", unit_of_meas="°C", val_tpl=tpl("tempc"))
    announce("sensor", "pa", unit_of_meas="hPa", val_tpl="{{ float(value_json.pa) * 0.01 | is_defined }}")
    announce("sensor", "pm", unit_of_meas="\u03bcg/m³", val_tpl=tpl("pm25"))
    announce("binary_sensor", "open", pl_on="True", pl_off="False", val_tpl=tpl("open"), dev_cla="door")
    sent = {"id": "A4:C1:38:AA:BB:CC", "rssi": -60, "tempc": 21.4, "open": True, "pa": 101325, "pm25": 7}
    found = home.readings("home/OMG_2/BTtoMQTT/A4C138AABBCC", sent)
    assert {each.label: (each.value, (each.unit or "").rpartition("/")[2]) for each in found} == {
        "tempc of TH Sensor-AABBCC": ("21.4", "unit#DegreeCelsius"),
        "pa of TH Sensor-AABBCC": ("1013.25", "unit#Millibar"),
        "pm of TH Sensor-AABBCC": ("7", "MicroGM-PER-M3"),
        "open of TH Sensor-AABBCC": ("true", ""),
    }
    assert home.reasons() == []


def test_opendtu(home):
    """OpenDTU 24, MqttHandleHass: plain values, a number that is set, a button, expiry."""
    device = {"name": "Roof", "ids": "116180403020", "mf": "OpenDTU", "mdl": "HM-600", "via_device": "OpenDTU_1"}
    power = {"name": "Power", "stat_t": "solar/116180403020/0/power", "uniq_id": "116180403020_ch0_Power"}
    power |= {"unit_of_meas": "W", "dev_cla": "power", "stat_cla": "measurement", "exp_aft": 10, "dev": device}
    home.announce("sensor/dtu_116180403020/ch0_Power/config", power)
    limit = {"name": "Limit NonPersistent Relative", "uniq_id": "116180403020_limit", "unit_of_meas": "%"}
    limit |= {"cmd_t": "solar/116180403020/cmd/limit_nonpersistent_relative", "min": 0, "max": 100, "step": 0.1}
    limit |= {"stat_t": "solar/116180403020/status/limit_relative", "dev": device, "ent_cat": "config"}
    home.announce("number/dtu_116180403020/limit/config", limit)
    reachable = {"name": "Reachable", "uniq_id": "116180403020_reachable", "dev": device, "pl_on": "1", "pl_off": "0"}
    reachable |= {"stat_t": "solar/116180403020/status/reachable", "dev_cla": "connectivity"}
    home.announce("binary_sensor/dtu_116180403020/reachable/config", reachable)
    button = {"name": "Restart Inverter", "cmd_t": "solar/116180403020/cmd/restart", "payload_press": "1"}
    home.announce("button/dtu_116180403020/restart_inverter/config", {**button, "dev": device})
    [reading] = home.readings("solar/116180403020/0/power", "231.4")
    assert (reading.value, reading.label) == ("231.4", "Power of Roof")
    assert home.values("solar/116180403020/status/reachable", "0") == {"binary_sensor/116180403020_reachable": "false"}
    place = ("solar/116180403020/status/limit_relative", "number/116180403020_limit")
    assert home.command(*place, "62.5") == ("solar/116180403020/cmd/limit_nonpersistent_relative", b"62.5")
    setter = home.mapper.setter(place[0], "urn:sepa-edge:discovered:" + place[1])
    assert setter is not None
    assert setter[0].describe() == {"kind": "number", "min": 0.0, "max": 100.0, "step": 0.1}
    # Without individual panels, it clears the announcement of each.
    home.announce("sensor/dtu_116180403020/ch0_Power/config", None)
    assert not home.mapper.map("solar/116180403020/0/power", b"1").matched
    assert home.reasons() == []


def test_the_announcement_of_a_device_with_all_its_entities(home):
    """Device discovery of Home Assistant 2024.11 and later: shared options, and the removal of one entity."""
    shared = {
        "dev": {"ids": "ea334450945afc", "name": "Kitchen", "mf": "Bla electronics", "mdl": "xya"},
        "o": {"name": "bla2mqtt", "sw": "2.1"},
        "state_topic": "kitchen/state",
        "qos": 2,
    }
    humidity = {"p": "sensor", "device_class": "humidity", "unit_of_measurement": "%", "unique_id": "h"}
    parts = {
        "one": {
            "p": "sensor",
            "device_class": "temperature",
            "unit_of_measurement": "°F",
            "value_template": "{{ value_json.temperature }}",
            "unique_id": "t",
        },
        "two": {**humidity, "value_template": "{{ value_json.humidity }}"},
        "three": {"p": "number", "unique_id": "n", "cmd_t": "kitchen/n/set", "val_tpl": "{{ value_json.n }}"},
    }
    home.announce("device/ea334450945afc/config", {**shared, "cmps": parts})
    message = {"temperature": 70, "humidity": 40, "n": 5}
    assert home.units("kitchen/state", message) == {
        "sensor/t": "DegreeFahrenheit",
        "sensor/h": "Percent",
        "number/n": None,
    }
    home.announce("device/ea334450945afc/config", {**shared, "cmps": {**parts, "two": {"p": "sensor"}}})
    assert list(home.values("kitchen/state", message)) == ["sensor/t", "number/n"]
    home.announce("device/ea334450945afc/config", None)
    assert not home.mapper.map("kitchen/state", b"{}").matched
    assert home.reasons() == []
