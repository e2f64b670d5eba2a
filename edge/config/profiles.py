"""Limits for boxes of different sizes. The defaults of the sections are those of a box with 1 GB of memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from edge.section import KIB, MIB

Profile = Literal["pi-512mb", "pi-1gb", "server"]
"""Size of the gateway's machine."""

DEFAULT: Final = "pi-1gb"
"""The profile whose limits are the defaults."""

# A box of 512 MB leaves the gateway about 300 MB. It takes 79 MiB idle. A full graph of 32 MiB and its two copies for
# queries take 60 MiB, 1,000 sensors over the embedded broker 85 MiB, and clients 24 MiB.
_SMALL: Final[Mapping[str, int]] = {
    "http.max_connections": 50,
    "http.max_connections_of_one": 50,
    "http.max_message": 2 * MIB,
    "http.max_result": 8 * MIB,
    "ws.max_connections": 50,
    "ws.max_connections_of_one": 50,
    "ws.max_message": 256 * KIB,
    "ws.max_result": 1 * MIB,
    "ws.max_subscriptions": 200,
    "ws.max_waiting": 4 * MIB,
    "ws.max_unmerged": 256 * KIB,
    "subscriptions.max_parked": 200,
    "subscriptions.max_sent": 64 * KIB,
    "mqtt.max_queued": 2000,
    "mqtt.max_queued_bytes": 4 * MIB,
    "mqtt.max_connections": 50,
    "mqtt.max_retained": 2000,
    "mqtt.max_retained_bytes": 4 * MIB,
    "mqtt.max_unread": 1 * MIB,
    "mqtt_gate.max_connections": 20,
    "mqtt_gate.max_waiting": 1 * MIB,
    "mqtt_gate.max_unmerged": 256 * KIB,
    "coap.max_blocks": 2 * MIB,
    "limits.max_subscriptions": 2000,
    "limits.max_client_bytes": 8 * MIB,
    "limits.max_total_bytes": 24 * MIB,
    "engine.max_pending_updates": 2000,
    "engine.max_pending_timers": 20_000,
    "engine.max_timer_bytes": 16 * MIB,
    "engine.query_workers": 1,
    "engine.max_pending_queries": 20,
    "engine.update_workers": 1,
    "engine.max_steps": 1_000_000,
    "engine.max_query_memory": 64 * MIB,
    "engine.max_graph_bytes": 32 * MIB,
    "engine.max_remembered_bytes": 4 * MIB,
    "serial.max_queued": 200,
    "modbus.max_queued": 200,
    "actuation.max_queued": 1000,
}

_LARGE: Final[Mapping[str, int]] = {
    "http.max_connections": 5000,
    "http.max_connections_of_one": 1000,
    "http.max_message": 64 * MIB,
    "http.max_result": 256 * MIB,
    "ws.max_connections": 5000,
    "ws.max_connections_of_one": 1000,
    "ws.max_message": 4 * MIB,
    "ws.max_result": 16 * MIB,
    "ws.max_subscriptions": 5000,
    "ws.max_waiting": 64 * MIB,
    "ws.max_unmerged": 4 * MIB,
    "subscriptions.max_parked": 10_000,
    "subscriptions.max_sent": 1 * MIB,
    "mqtt.max_queued": 50_000,
    "mqtt.max_queued_bytes": 64 * MIB,
    "mqtt.max_connections": 1000,
    "mqtt.max_retained": 50_000,
    "mqtt.max_retained_bytes": 64 * MIB,
    "mqtt.max_unread": 16 * MIB,
    "mqtt_gate.max_connections": 1000,
    "mqtt_gate.max_waiting": 8 * MIB,
    "mqtt_gate.max_unmerged": 4 * MIB,
    "coap.max_blocks": 32 * MIB,
    "limits.max_subscriptions": 100_000,
    "limits.max_client_bytes": 128 * MIB,
    "limits.max_total_bytes": 512 * MIB,
    "engine.max_pending_updates": 50_000,
    "engine.max_pending_timers": 1_000_000,
    "engine.max_timer_bytes": 256 * MIB,
    "engine.query_workers": 4,
    "engine.max_pending_queries": 500,
    "engine.update_workers": 4,
    "engine.max_query_memory": 1024 * MIB,
    "engine.max_remembered_bytes": 64 * MIB,
    "serial.max_queued": 5000,
    "modbus.max_queued": 5000,
    "actuation.max_queued": 50_000,
}

PROFILES: Final[Mapping[Profile, Mapping[str, int]]] = {"pi-512mb": _SMALL, "pi-1gb": {}, "server": _LARGE}
"""Dotted key to value, for each key that differs from its default."""
