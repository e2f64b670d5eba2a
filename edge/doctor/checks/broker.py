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
    # The gateway may run with other settings than those of this command.
    state, kind = around.reported("mqtt"), around.reported("mqtt_broker")
    broker = around.endpoint("mqtt") or mqtt.broker if kind == "external" else mqtt.broker
    runs = around.reported("version") is not None
    if kind is None and (runs or not mqtt.enabled):
        yield ok("broker.off")
    elif kind == "embedded" or not broker:
        yield ok("broker.embedded")
    elif state == "connected":
        yield ok("broker.connected", broker=broker)
    elif state == "not subscribed":
        yield problem("broker.not_subscribed", broker=broker)
    elif fault := _reach(broker):
        yield problem("broker.unreachable", broker=broker, reason=fault)
    elif state is None:
        yield unknown("broker.unknown", broker=broker)
    else:
        yield problem("broker.not_connected", broker=broker)


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
