"""A gateway imports the libraries of the components that its settings enable, and no others."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Final

from tests.support.processes import GatewayProcess

LIBRARIES: Final = {
    "mqtt": ["amqtt", "paho.mqtt", "yaml"],
    "host": ["psutil"],
    "coap": ["aiocoap", "cbor2"],
    "security": ["cryptography", "jwt"],
}
"""Libraries that only one component needs."""

RARE: Final = [
    "edge.announce.announcer",
    "edge.discovery",
    "edge.jsap",
    "edge.outbox.shipper",
    "httpx",
    "pymodbus",
    "serial",
]
"""Modules for announcements, profiles, a landing zone, LOAD, Modbus, serial ports: no setting below needs them."""

NEVER: Final = ["edge.backup", "edge.bench", "edge.client", "edge.doctor"]
COMMANDS: Final = {"edge.cli.config", "edge.cli.exit_codes"}
"""Next to `edge.cli.run`, whose import by name the interpreter does not report."""

OFF: Final = {f"EDGE__{name.upper()}__ENABLED": "false" for name in LIBRARIES}
ON: Final = {
    **{f"EDGE__{name.upper()}__ENABLED": "true" for name in LIBRARIES},
    **{f"EDGE__{key}": "0" for key in ("COAP__PORT", "SECURITY__HTTPS_PORT", "SECURITY__WSS_PORT")},
}


def imported(directory: Path, settings: Mapping[str, str]) -> set[str]:
    """Return the modules that a gateway with these settings has imported when it is ready."""
    gateway = GatewayProcess(directory, {**settings, "PYTHONPROFILEIMPORTTIME": "1"})
    try:
        gateway.start()
        modules = set(re.findall(r"^import time:.*\| +(\S+)$", gateway.log(), re.MULTILINE))
    finally:
        gateway.stop()
    assert {name for name in modules if name.startswith("edge.cli.")} == COMMANDS
    return modules


def test_disabled_components_are_not_imported(tmp_path: Path) -> None:
    modules = imported(tmp_path, OFF)
    assert "edge.gateway.gateway" in modules
    assert not modules & {*chain.from_iterable(LIBRARIES.values()), *RARE, *NEVER}


def test_enabled_components_are_imported(tmp_path: Path) -> None:
    modules = imported(tmp_path, ON)
    assert modules >= {*chain.from_iterable(LIBRARIES.values())}
    assert not modules & {*RARE, *NEVER}


def test_a_gateway_with_a_broker_of_its_own_does_not_import_the_embedded_one(tmp_path: Path) -> None:
    modules = imported(tmp_path, {**OFF, "EDGE__MQTT__ENABLED": "true", "EDGE__MQTT__BROKER": "mqtt://127.0.0.1:1"})
    assert "paho.mqtt" in modules
    assert not modules & {"amqtt", "yaml"}
