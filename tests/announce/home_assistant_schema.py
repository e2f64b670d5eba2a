"""What Home Assistant's MQTT integration accepts, as its documentation says.

Sources: https://www.home-assistant.io/integrations/ mqtt ("Discovery topic", "Discovery payload"), sensor.mqtt,
binary_sensor.mqtt, switch.mqtt, light.mqtt, number.mqtt, select.mqtt, text.mqtt (configuration variables), and Home
Assistant Developer Docs, "Sensor entity" (device classes with their units, state classes).
"""

from __future__ import annotations

import re
from typing import Any

from edge.discovery.device_classes import NUMERIC

TOPIC = re.compile(r"homeassistant/(\w+)/([A-Za-z0-9_-]+)/([A-Za-z0-9_-]+)/config", re.ASCII)
COMMON = {
    *("name", "unique_id", "state_topic", "qos", "device", "origin", "availability", "availability_mode"),
    *("entity_category", "device_class"),
}
OPTIONS = {
    "sensor": {"unit_of_measurement", "state_class"},
    "binary_sensor": {"payload_on", "payload_off"},
    "switch": {"command_topic"},
    "light": {"command_topic", "brightness_state_topic", "brightness_command_topic", "brightness_scale"},
    "number": {"command_topic", "min", "max", "step", "unit_of_measurement"},
    "select": {"command_topic", "options"},
    "text": {"command_topic", "max"},
}
REQUIRED = {
    "sensor": {"state_topic"},
    "binary_sensor": {"state_topic"},
    "switch": {"command_topic"},
    "light": {"command_topic"},
    "number": {"command_topic"},
    "select": {"command_topic", "options"},
    "text": {"command_topic"},
}
TOTALS = {"energy", "gas", "monetary", "reactive_energy", "volume", "water"}
"""Device classes that refuse the state class "measurement"."""
WITHOUT_STATE_CLASS = {"date", "enum", "timestamp", "wind_direction"}
DEVICE = {"identifiers", "name", "manufacturer", "model", "sw_version", "suggested_area", "via_device"}


def check(topic: str, config: dict[str, Any]) -> str:
    """Assert that an announcement is valid. Returns its component."""
    found = TOPIC.fullmatch(topic)
    assert found is not None, topic
    component = found[1]
    options = COMMON | OPTIONS[component]
    assert config.keys() <= options, config.keys() - options
    assert config.keys() >= REQUIRED[component] | {"unique_id", "device", "origin"}
    assert config["device"].keys() <= DEVICE
    assert config["device"]["identifiers"]
    assert config["origin"]["name"]
    assert isinstance(config["name"], str)
    assert config["name"]
    for key, value in config.items():
        if key.endswith("topic"):
            assert_topic(value)
    for each in config.get("availability", ()):
        assert_topic(each["topic"])
    {"sensor": _sensor, "number": _number, "select": _select, "light": _light}.get(component, _nothing)(config)
    return component


def assert_topic(topic: str) -> None:
    """Assert that a topic can be published to."""
    assert topic
    assert not set(topic) & set("+#\0")
    assert len(topic.encode()) < 1000


def _nothing(config: dict[str, Any]) -> None:
    assert "state_class" not in config


def _sensor(config: dict[str, Any]) -> None:
    kind, state_class = config.get("device_class"), config.get("state_class")
    assert state_class in (None, "measurement", "total", "total_increasing")
    if kind in WITHOUT_STATE_CLASS:
        assert state_class is None
    if kind in TOTALS:
        assert state_class in ("total", "total_increasing")
    elif kind is not None:
        assert state_class in (None, "measurement")
    if kind == "timestamp":
        assert "unit_of_measurement" not in config
    elif kind is not None:
        assert config.get("unit_of_measurement", "") in NUMERIC[kind].units


def _number(config: dict[str, Any]) -> None:
    assert config.get("min", 1) < config.get("max", 100)
    assert config.get("step", 1) >= 0.001
    if "device_class" in config:
        assert config.get("unit_of_measurement", "") in NUMERIC[config["device_class"]].units


def _select(config: dict[str, Any]) -> None:
    assert all(isinstance(each, str) for each in config["options"])
    assert len(set(config["options"])) == len(config["options"])


def _light(config: dict[str, Any]) -> None:
    assert isinstance(config.get("brightness_scale", 255), int)
    assert config.get("brightness_scale", 255) >= 1
