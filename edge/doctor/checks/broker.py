"""Is the broker there that the readings come from?"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from edge.doctor.context import Context
from edge.doctor.finding import Finding, ok, unknown

_PATIENCE: Final = 5.0
"""Seconds."""
_PORTS: Final = {"mqtt": 1883, "mqtts": 8883}
_WHY: Final = "no readings come in; a broker with persistence keeps those of QoS 1 and 2 for later"


def check(around: Context) -> Iterator[Finding]:
    """Told by the gateway, and by a connection of our own."""
    mqtt = around.settings.mqtt
    if not mqtt.enabled:
        yield ok("no readings are taken over MQTT (mqtt.enabled)")
        return
    if not mqtt.broker:
        yield ok("the embedded one; it keeps nothing while the gateway is down (docs/durability.md)")
        return
    state = around.told("mqtt")
    if state == "connected":
        yield ok(f"the gateway is connected to {mqtt.broker}")
        return
    fault = _reach(mqtt.broker)
    if fault:
        yield Finding(
            "problem",
            f"{mqtt.broker} cannot be reached: {fault}",
            _WHY,
            "see whether the broker runs, and its name and port in mqtt.broker; the gateway connects by itself",
        )
    elif state is None:
        yield unknown(f"{mqtt.broker} takes connections; whether it lets the gateway in could not be asked")
    else:
        yield Finding(
            "problem",
            f"{mqtt.broker} takes connections, and the gateway is not connected",
            _WHY,
            "its log says why (`journalctl -u edge | grep mqtt`): user name, password, certificate, or another "
            "client with the same name",
        )


def _reach(url: str) -> str:
    """Why there is no connection; empty: there is."""
    parts = urlsplit(url)
    try:
        address = (parts.hostname or "", parts.port or _PORTS.get(parts.scheme, _PORTS["mqtt"]))
        socket.create_connection(address, _PATIENCE).close()
    except OSError as error:
        return error.strerror or str(error)
    return ""
