"""Settings of the adapters. The defaults are those of the gateway's settings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True)
class MqttSettings:
    """Connection to an MQTT broker. Durations are in seconds."""

    broker: str
    """`mqtt://HOST[:1883]` or `mqtts://HOST[:8883]` (TLS)."""
    version: Literal["3.1.1", "5"] = "3.1.1"
    client_id: str = "sepa-edge"
    """Must be the same after each restart: the broker stores unacknowledged messages under it."""
    username: str = ""
    password: str = ""
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    topics: tuple[str, ...] = ("#",)
    own_topics: str = ""
    """Prefix of the gateway's own topics, which hold no readings. Empty: none."""
    qos: int = 1
    keepalive: int = 30
    session_expiry: int = 86_400
    """0: each connection starts with a clean session. MQTT 3.1.1 knows no other duration than forever."""
    reconnect_min: float = 1.0
    reconnect_max: float = 60.0
    max_inflight: int = 256
    """Maximum unacknowledged messages of QoS 1 and 2 (MQTT 5; with 3.1.1 the broker decides)."""
    max_queued: int = 10_000
    """Maximum waiting messages. Beyond this, QoS 0 is dropped and the adapter stops reading."""
    max_queued_bytes: int = 16 * 1024 * 1024
    """Maximum bytes of waiting messages, with the same effect."""
    max_batch: int = 500
    """Maximum messages in one update of the engine."""
    retry_min: float = 0.2
    retry_max: float = 30.0
    """Bounds of the back-off while the engine cannot accept updates (disk full, queue full)."""


@dataclass(frozen=True, slots=True)
class SerialSettings:
    """Common settings of all serial ports. Durations are in seconds."""

    reconnect: float = 1.0
    """Between two checks for a disconnected device."""
    silence: float = 0.25
    """Pause in the data after which an incomplete frame is discarded."""
    max_frame: int = 4096
    """Maximum frame in bytes, unless the port sets it."""
    max_queued: int = 1000
    """Maximum waiting frames of all ports. Beyond this, ports are not read."""
    max_batch: int = 500
    retry_min: float = 0.2
    retry_max: float = 30.0
    rate: float = 100.0
    """Commands per second to one port."""
    max_commands: int = 10_000
    """Maximum topics of one port with a waiting command."""


@dataclass(frozen=True, slots=True)
class ObservationsSettings:
    """Conversion of readings to observations."""

    time: Literal["always", "message", "never"] = "always"
    """Time of an observation: of the message or else of arrival, of the message only, or none."""


@dataclass(frozen=True, slots=True)
class MappingsSettings:
    """Mapping files, and limits of the lists of unmapped messages."""

    dir: Path | None = None
    packs: tuple[str, ...] = ()
    reload_interval: float = 2.0
    max_payload: int = 256 * 1024
    max_readings: int = 1000
    max_unmapped: int = 1000
    max_bad_values: int = 200


@dataclass(frozen=True, slots=True)
class ActuationSettings:
    """Rate limits of actuator messages."""

    rate: float = 100.0
    """Messages per second over all topics."""
    topic_rate: float = 10.0
    """Messages per second to one topic, unless the actuator sets it."""
    max_queued: int = 10_000
    """Maximum topics with a waiting message, and maximum waiting notifications of the engine."""


@dataclass(frozen=True, slots=True)
class HostSettings:
    """Sensors of the gateway's machine."""

    interval: float = 10.0
    refresh: float = 600.0
    """Seconds after which an unchanged value is written again, so that its time shows that it is still valid."""
    store: bool = False
    """Whether written values are also stored in the history."""


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """The embedded broker."""

    host: str = "127.0.0.1"
    port: int = 1883
    max_connections: int = 100
    max_connections_of_one: int = 50
    """Maximum connections of one remote address; further ones are closed."""
    max_message: int = 1024 * 1024
    """Maximum packet in bytes; a client that sends a larger one is disconnected."""
    max_retained: int = 10_000
    """Maximum retained messages; beyond this, the client with the most loses its oldest one."""
    max_retained_bytes: int = 16 * 1024 * 1024
    """The same in bytes, with topics and 1,000 bytes for each message."""
    max_unread: int = 4 * 1024 * 1024
    """Maximum bytes that wait for a slow client; beyond this, it is disconnected."""
    max_queued_bytes: int = 16 * 1024 * 1024
    """Maximum bytes that wait for the gateway's own clients; beyond this, devices are not read."""
