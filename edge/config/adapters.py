"""Settings of what readings come in by and commands go out by."""

from __future__ import annotations

from typing import Literal
from urllib.parse import urlsplit

from pydantic import field_validator

from edge.config.keys import KIB, MIB, BindHost, OptionalPath, Port, TopicFilter, key
from edge.config.section import Section

PACKS = ("zigbee2mqtt", "tasmota", "shelly", "esphome", "senml", "pepoli")
"""Names of the mapping packs that come with the gateway."""


class MqttSettings(Section):
    """MQTT: the embedded broker, or the connection to another broker."""

    enabled: bool = key(True, "Whether readings come in over MQTT at all.")
    host: BindHost = key("127.0.0.1", "Address the embedded broker listens on: a loopback address.")
    port: Port = key(1883, "TCP port of the embedded broker. 0 is any free port.")
    broker: str = key(
        "", 'Another broker to use instead of the embedded one: "mqtt://HOST[:1883]" or "mqtts://HOST[:8883]" (TLS).'
    )
    version: Literal["3.1.1", "5"] = key("3.1.1", "MQTT version spoken to the broker.")
    client_id: str = key(
        "", "Client identifier at the broker. Empty: one that is made once and kept in the data directory."
    )
    username: str = key("", "User name at the broker. Empty: none.")
    password: str = key("", "Password at the broker. Better in password_file or the environment.", secret=True)
    password_file: OptionalPath = key(None, "File whose first line is the password at the broker.")
    ca_file: OptionalPath = key(
        None, "PEM file of the authorities that may sign the broker's certificate. Empty: the system's."
    )
    cert_file: OptionalPath = key(None, "PEM file of the client certificate shown to the broker.")
    key_file: OptionalPath = key(None, "PEM file of the client certificate's private key.")
    topics: tuple[TopicFilter, ...] = key(("#",), "Topic filters the gateway subscribes to.")
    qos: int = key(1, "Quality of service asked from the broker.", minimum=0, maximum=2)
    keepalive: int = key(30, "Time between signs of life to the broker.", unit="s", minimum=1, maximum=65535)
    session_expiry: int = key(
        86_400,
        "How long the broker keeps readings for a gateway that is away (MQTT 5; 3.1.1 leaves it to the broker). "
        "0 begins every connection with a clean session.",
        unit="s",
        minimum=0,
        maximum=0xFFFF_FFFF,
    )
    reconnect_min: float = key(
        1.0, "First wait before a new attempt to connect; it doubles each time.", unit="s", minimum=0.1, maximum=3600
    )
    reconnect_max: float = key(60.0, "Longest wait between two attempts.", unit="s", minimum=0.1, maximum=86_400)
    max_inflight: int = key(
        256, "Readings of QoS 1 and 2 taken from the broker and not yet acknowledged.", minimum=1, maximum=65535
    )
    max_queued: int = key(
        10_000, "Readings that may wait in the adapter; QoS 0 readings beyond are dropped.", minimum=1
    )
    max_queued_bytes: int = key(
        16 * MIB,
        "Bytes of these readings. The embedded broker reads devices no further while so many wait for the adapter.",
        unit="bytes",
        minimum=64 * KIB,
    )
    max_batch: int = key(500, "Messages that go to the engine together at most.", minimum=1, maximum=100_000)
    retry_min: float = key(
        0.2,
        "First wait while the engine cannot take an update (disk or queue full).",
        unit="s",
        minimum=0.01,
        maximum=3600,
    )
    retry_max: float = key(30.0, "Longest such wait.", unit="s", minimum=0.01, maximum=3600)
    max_connections: int = key(100, "Clients of the embedded broker at a time.", minimum=1, maximum=10_000)
    max_connections_of_one: int = key(
        50,
        "Connections of one address to the embedded broker at a time, other than this machine's own; more are closed.",
        minimum=1,
        maximum=10_000,
    )
    max_message: int = key(
        1 * MIB,
        "Largest packet the embedded broker takes; who sends a larger one is disconnected.",
        unit="bytes",
        minimum=KIB,
    )
    max_retained: int = key(
        10_000,
        "Retained messages the embedded broker keeps; with more the client that has most loses its oldest.",
        minimum=0,
    )
    max_retained_bytes: int = key(
        16 * MIB,
        "Memory for retained messages in the embedded broker: payloads, topics and 1,000 bytes for each; likewise.",
        unit="bytes",
        minimum=KIB,
    )
    max_unread: int = key(
        4 * MIB,
        "Messages that may wait in the embedded broker for a client that does not read; with more it is disconnected.",
        unit="bytes",
        minimum=64 * KIB,
    )

    @field_validator("broker")
    @classmethod
    def _broker_url(cls, value: str) -> str:
        if not value:
            return value
        parts = urlsplit(value)
        if parts.scheme not in ("mqtt", "mqtts") or not parts.hostname or parts.path not in ("", "/"):
            raise ValueError("must be mqtt://HOST, mqtt://HOST:PORT, mqtts://HOST or mqtts://HOST:PORT")
        if parts.username or parts.password:
            raise ValueError("must hold no credentials: use mqtt.username and mqtt.password_file")
        _ = parts.port  # raises ValueError where it is no port
        return value


class SerialSettings(Section):
    """Serial ports, which mapping files declare: what all of them have in common."""

    enabled: bool = key(True, "Whether the serial ports of mapping files are opened.")
    reconnect: float = key(
        1.0, "Time between two looks for a device that is away.", unit="s", minimum=0.05, maximum=3600
    )
    silence: float = key(
        0.25,
        "After so long without a byte a frame that has begun counts as broken off.",
        unit="s",
        minimum=0.01,
        maximum=60,
    )
    max_frame: int = key(
        4 * KIB, "Longest frame, where its port says nothing else.", unit="bytes", minimum=1, maximum=64 * KIB
    )
    max_queued: int = key(1000, "Frames of all ports that may wait; beyond, ports are read no further.", minimum=1)
    max_batch: int = key(500, "Frames that go to the engine together at most.", minimum=1, maximum=100_000)
    retry_min: float = key(
        0.2,
        "First wait while the engine cannot take an update (disk or queue full).",
        unit="s",
        minimum=0.01,
        maximum=3600,
    )
    retry_max: float = key(30.0, "Longest such wait.", unit="s", minimum=0.01, maximum=3600)


class MappingsSettings(Section):
    """From payloads to observations: which mapping files apply."""

    dir: OptionalPath = key(None, "Directory of your own mapping files. Empty: DATA_DIR/mappings.")
    packs: tuple[str, ...] = key(PACKS, "Mapping packs of known devices that apply, of those that come along.")
    reload_interval: float = key(
        2.0,
        "Time between looks for changed mapping files. 0 reads them at start only.",
        unit="s",
        minimum=0,
        maximum=3600,
    )
    max_payload: int = key(
        256 * KIB, "Largest payload that is read; larger ones count as bad.", unit="bytes", minimum=1
    )
    max_readings: int = key(
        1000, "Readings taken from one payload; what is beyond is dropped, and told among the bad values.", minimum=1
    )
    max_unmapped: int = key(1000, "Topics without a mapping that are listed; the longest silent goes first.", minimum=1)
    max_bad_values: int = key(200, "Values that could not be read that are listed; the oldest goes first.", minimum=1)

    @field_validator("packs")
    @classmethod
    def _known_packs(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := [name for name in value if name not in PACKS]:
            raise ValueError(f'"{unknown[0]}" is no mapping pack; the packs are {", ".join(PACKS)}')
        return value


class ObservationsSettings(Section):
    """How readings become observations in the graph."""

    time: Literal["always", "message", "never"] = key(
        "always",
        'Whether an observation carries its time: "always" (the message\'s, else that of arrival), "message" (only '
        'where the message tells it) or "never".',
    )


class ActuationSettings(Section):
    """From the graph to devices: how fast the messages of actuators leave."""

    rate: float = key(100.0, "Messages a second over all topics, at the most.", minimum=0.01, maximum=10_000)
    topic_rate: float = key(
        10.0,
        "Messages a second to one topic, at the most; what comes in between is left out but for the newest. An "
        "actuator may say otherwise (rate).",
        minimum=0.01,
        maximum=1000,
    )
    max_queued: int = key(
        10_000, "Topics that may have a message waiting, for example while the broker is away.", minimum=1
    )


class HostSettings(Section):
    """The gateway's own sensors: temperatures, load, memory, disks, network."""

    enabled: bool = key(True, "Whether the gateway observes the machine it runs on.")
    interval: float = key(10.0, "Time between two rounds of readings.", unit="s", minimum=0.1, maximum=86_400)
    refresh: float = key(
        600.0,
        "A value that hardly moves is written again after this time: its time tells that it still holds.",
        unit="s",
        minimum=0.1,
        maximum=86_400,
    )
    store: bool = key(False, "Whether what is written is stored for the history, too.")
