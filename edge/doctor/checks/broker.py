"""Check of the MQTT broker."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from edge.doctor.context import DoctorContext
from edge.doctor.finding import Finding, ok, unknown

_PATIENCE: Final = 5.0
"""Timeout in seconds."""
_PORTS: Final = {"mqtt": 1883, "mqtts": 8883}
_WHY: Final = "no readings arrive; a broker with persistence stores those of QoS 1 and 2"


def check(around: DoctorContext) -> Iterator[Finding]:
    """Check the connection of the gateway as `/health` reports it, and otherwise open a connection to the broker."""
    mqtt = around.settings.mqtt
    if not mqtt.enabled:
        yield ok("MQTT is off (mqtt.enabled)")
        return
    if not mqtt.broker:
        yield ok("the embedded one; it stores nothing while the gateway is down (docs/durability.md)")
        return
    state = around.reported("mqtt")
    if state == "connected":
        yield ok(f"the gateway is connected to {mqtt.broker}")
        return
    if state == "not subscribed":
        yield Finding(
            "problem",
            f"{mqtt.broker} has not accepted the subscriptions to all of mqtt.topics",
            "readings of the refused ones do not arrive",
            "permit the gateway's user to subscribe to mqtt.topics, in the access control of the broker; its log has "
            "the refused filters (`journalctl -u edge | grep subscription_refused`)",
        )
        return
    fault = _reach(mqtt.broker)
    if fault:
        yield Finding(
            "problem",
            f"{mqtt.broker} cannot be reached: {fault}",
            _WHY,
            "check that the broker runs, and host and port in mqtt.broker; the gateway reconnects",
        )
    elif state is None:
        yield unknown(f"{mqtt.broker} accepts connections; whether the gateway is connected is not known")
    else:
        yield Finding(
            "problem",
            f"{mqtt.broker} accepts connections, but the gateway is not connected",
            _WHY,
            "its log has the reason (`journalctl -u edge | grep mqtt`): user name, password, certificate, or another "
            "client with the same name",
        )


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
