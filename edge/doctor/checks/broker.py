"""Check of the MQTT broker."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from edge.doctor.context import DoctorContext
from edge.doctor.finding import Finding, ok, problem, unknown

_PATIENCE: Final = 5.0
"""Timeout in seconds."""
_PORTS: Final = {"mqtt": 1883, "mqtts": 8883}


def check(around: DoctorContext) -> Iterator[Finding]:
    """Check the connection of the gateway as `/health` reports it, and otherwise open a connection to the broker."""
    mqtt = around.settings.mqtt
    if not mqtt.enabled:
        yield ok("broker.off")
        return
    if not mqtt.broker:
        yield ok("broker.embedded")
        return
    state = around.reported("mqtt")
    if state == "connected":
        yield ok("broker.connected", broker=mqtt.broker)
        return
    if state == "not subscribed":
        yield problem("broker.not_subscribed", broker=mqtt.broker)
        return
    fault = _reach(mqtt.broker)
    if fault:
        yield problem("broker.unreachable", broker=mqtt.broker, reason=fault)
    elif state is None:
        yield unknown("broker.unknown", broker=mqtt.broker)
    else:
        yield problem("broker.not_connected", broker=mqtt.broker)


def _reach(url: str) -> str:
    """Return the reason of a failed connection, or an empty text."""
    # A TCP connection suffices: the gateway's log reports faults of TLS and of credentials.
    parts = urlsplit(url)
    try:
        address = (parts.hostname or "", parts.port or _PORTS.get(parts.scheme, _PORTS["mqtt"]))
        socket.create_connection(address, _PATIENCE).close()
    except OSError as error:
        return error.strerror or str(error)
    return ""
