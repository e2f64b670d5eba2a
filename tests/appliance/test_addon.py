"""The Home Assistant add-on: its fields, and the settings that it gives the gateway."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest
import yaml

from edge import __version__
from edge.config.loading import load
from edge.config.problem_messages import fields
from images import oci_layout, release

FOLDER = Path(__file__).parents[2] / "images" / "home-assistant"
ADDON = FOLDER / "sepa-edge"
CONFIG = yaml.safe_load((ADDON / "config.yaml").read_text())
ARCHITECTURES = {"amd64": "amd64", "arm64": "aarch64"}
"""The Supervisor's names by Debian's."""
OPTIONS = {"discovery": True, "topics": ["zigbee2mqtt/#", 'odd "topic"'], "log_level": "debug"}
SERVICE = {"host": "core-mosquitto", "port": 1883, "ssl": False, "username": "addons", "password": "a secret"}


@pytest.fixture(scope="module")
def start():
    specification = importlib.util.spec_from_file_location("addon_start", ADDON / "start.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_the_required_fields_are_there():
    assert {"name", "version", "slug", "description", "arch"} <= set(CONFIG)
    assert CONFIG["version"] == __version__
    assert re.fullmatch(r"[a-z0-9_]+", CONFIG["slug"])
    assert CONFIG["startup"] in {"initialize", "system", "services", "application", "once"}
    assert CONFIG["init"] is False, "the image has no init system of its own"


def test_it_is_for_the_architectures_of_the_images():
    wanted = {ARCHITECTURES[each] for each in release.ARCHITECTURES}
    images = yaml.safe_load((ADDON / "build.yaml").read_text())["build_from"]
    assert set(CONFIG["arch"]) == set(images) == wanted
    assert all(image.endswith(f"sepa-edge:{__version__}") for image in images.values())


def test_the_page_is_reached_by_ingress_alone_and_by_administrators():
    assert CONFIG["ingress"] is True
    assert f"PORT: Final = {CONFIG['ingress_port']}\n" in (ADDON / "ingress.py").read_text()
    assert CONFIG["panel_admin"] is True
    assert CONFIG["panel_icon"].startswith("mdi:")
    risky = {
        "ports",
        "host_network",
        "privileged",
        "full_access",
        "docker_api",
        "hassio_api",
        "homeassistant_api",
        "map",
    }
    assert set(CONFIG) & risky == set()


def test_the_broker_is_that_of_the_supervisor():
    assert CONFIG["services"] == ["mqtt:want"]


def test_options_have_a_schema_that_their_defaults_meet():
    assert set(CONFIG["options"]) == set(CONFIG["schema"])
    levels = re.fullmatch(r"list\((.*)\)", CONFIG["schema"]["log_level"])
    assert CONFIG["options"]["log_level"] in levels[1].split("|")
    allowed = fields()["log.level"].annotation.__args__
    assert set(levels[1].split("|")) == set(allowed)
    assert CONFIG["schema"]["discovery"] == "bool"
    assert CONFIG["options"]["discovery"] is False


def test_the_recipe_copies_existing_files_and_runs_no_shell():
    lines = (ADDON / "Dockerfile").read_text().splitlines()
    copied = [name for line in lines if line.startswith("COPY ") for name in line.split()[1:-1]]
    assert copied == ["start.py", "ingress.py"]
    assert all((ADDON / name).exists() for name in copied)
    assert [line for line in lines if line.startswith(("RUN ", "SHELL "))] == [], "the image has no shell"
    entry = next(json.loads(line.removeprefix("ENTRYPOINT ")) for line in lines if line.startswith("ENTRYPOINT "))
    assert entry == ["/usr/bin/python3", "-I", "/usr/lib/sepa-edge-addon/start.py"]


def test_options_and_broker_become_settings(start, monkeypatch, tmp_path):
    secret = tmp_path / "password"
    secret.write_text(SERVICE["password"])
    monkeypatch.setattr(start, "SECRET", secret)
    found = start.settings(OPTIONS, SERVICE)
    for name in found:
        key = name.removeprefix("EDGE__").lower().replace("__", ".")
        assert key in fields() or key == "data_dir", name
    settings = load(environ=found).settings
    assert settings.mqtt.broker == "mqtt://core-mosquitto:1883"
    assert settings.mqtt.username == "addons"
    assert list(settings.mqtt.topics) == OPTIONS["topics"]
    assert settings.discovery.home_assistant is True
    assert settings.log.level == "debug"
    assert str(settings.data_dir) == "/data/gateway"
    assert "a secret" not in json.dumps(found)


def test_without_a_broker_the_embedded_one_is_used(start):
    assert not [name for name in start.settings({}, {}) if name.startswith("EDGE__MQTT__B")]
    assert start.broker(None) == {}
    assert start.broker("token", "http://127.0.0.1:1") == {}
    assert start.settings({}, {**SERVICE, "ssl": True})["EDGE__MQTT__BROKER"] == "mqtts://core-mosquitto:1883"


def test_the_user_is_that_of_the_image(start):
    assert start.USER == oci_layout.USER
