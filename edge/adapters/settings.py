"""The settings of the adapters, as far as they act on them. Defaults are those of the gateway's settings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True)
class MqttSettings:
    """The connection to an MQTT broker. Durations are in seconds."""

    broker: str
    """`mqtt://HOST[:1883]` or `mqtts://HOST[:8883]` (TLS)."""
    version: Literal["3.1.1", "5"] = "3.1.1"
    client_id: str = "sepa-edge"
    """Must stay the same from one start to the next: the broker keeps what was not acknowledged under it."""
    username: str = ""
    password: str = ""
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    topics: tuple[str, ...] = ("#",)
    own_topics: str = ""
    """What topics begin with that the gateway itself talks by; nothing there is a reading. Empty: there are none."""
    qos: int = 1
    keepalive: int = 30
    session_expiry: int = 86_400
    """0 begins every connection with a clean session. MQTT 3.1.1 knows no other duration than for ever."""
    reconnect_min: float = 1.0
    reconnect_max: float = 60.0
    max_inflight: int = 256
    """Messages of QoS 1 and 2 that are not acknowledged yet (MQTT 5; with 3.1.1 the broker decides)."""
    max_queued: int = 10_000
    """Messages that wait in the adapter. Beyond, QoS 0 is dropped and the connection is read no further."""
    max_queued_bytes: int = 16 * 1024 * 1024
    """Bytes of these messages, likewise."""
    max_batch: int = 500
    """Messages that go to the engine together at most."""
    retry_min: float = 0.2
    retry_max: float = 30.0
    """Waits between attempts while the engine cannot take an update (disk full, queue full)."""


@dataclass(frozen=True, slots=True)
class SerialSettings:
    """What all serial ports have in common. Durations are in seconds."""

    reconnect: float = 1.0
    """Between two looks for a device that is away."""
    silence: float = 0.25
    """After so long without a byte a frame that has begun will not be completed."""
    max_frame: int = 4096
    """Bytes, where the port says nothing else."""
    max_queued: int = 1000
    """Frames of all ports that wait. Beyond, ports are read no further."""
    max_batch: int = 500
    retry_min: float = 0.2
    retry_max: float = 30.0
    rate: float = 100.0
    """Commands a second to one port."""
    max_commands: int = 10_000
    """Topics of one port that may have a command waiting."""


@dataclass(frozen=True, slots=True)
class ObservationsSettings:
    """How readings become observations."""

    time: Literal["always", "message", "never"] = "always"
    """Time of an observation: the message's or else that of arrival, the message's alone, or none."""


@dataclass(frozen=True, slots=True)
class MappingsSettings:
    """Which mapping files apply, and the bounds of what is remembered of messages that led to nothing."""

    dir: Path | None = None
    packs: tuple[str, ...] = ()
    reload_interval: float = 2.0
    max_payload: int = 256 * 1024
    max_readings: int = 1000
    max_unmapped: int = 1000
    max_bad_values: int = 200


@dataclass(frozen=True, slots=True)
class ActuationSettings:
    """How fast messages of actuators may leave."""

    rate: float = 100.0
    """Messages a second over all topics."""
    topic_rate: float = 10.0
    """Messages a second to one topic, where the actuator says nothing else."""
    max_queued: int = 10_000
    """Topics that may have a message waiting, and notifications of the engine that may wait."""


@dataclass(frozen=True, slots=True)
class HostSettings:
    """The gateway's own sensors."""

    interval: float = 10.0
    refresh: float = 600.0
    """A value that hardly moves is written again after this many seconds: its time tells that it still holds."""
    store: bool = False
    """Whether what is written is also stored for the history."""


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """The embedded broker."""

    host: str = "127.0.0.1"
    port: int = 1883
    max_connections: int = 100
    max_connections_of_one: int = 50
    """Of one address, other than this machine's own; more are closed."""
    max_message: int = 1024 * 1024
    """Largest packet in bytes; a client that sends a larger one is disconnected."""
    max_retained: int = 10_000
    """Retained messages that are kept; with more the client that has most loses its oldest."""
    max_retained_bytes: int = 16 * 1024 * 1024
    """The same in bytes, with topics and 1,000 bytes for each message."""
    max_unread: int = 4 * 1024 * 1024
    """Bytes that may wait for a client that does not read; with more it is disconnected."""
    max_queued_bytes: int = 16 * 1024 * 1024
    """Bytes that may wait for the gateway's own clients; with more, devices are read no further."""
