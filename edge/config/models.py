"""The settings of the gateway: every section and key with its default. What is not here cannot be set."""

from __future__ import annotations

from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, field_validator

from edge.config.keys import (
    KIB,
    MIB,
    BindHost,
    DirPath,
    Host,
    IssuerAlgorithm,
    OptionalPath,
    Port,
    TopicFilter,
    WebUrl,
    default_data_dir,
    key,
)
from edge.protocol.access import Action

PACKS = ("zigbee2mqtt", "tasmota", "shelly", "esphome", "senml", "pepoli")
"""Names of the mapping packs that come with the gateway."""


class Section(BaseModel):
    """A table of the settings file."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class HttpSettings(Section):
    """The HTTP gate: SPARQL query and update, the page, health and metrics."""

    host: BindHost = key("127.0.0.1", "Address to listen on without encryption: a loopback address.")
    port: Port = key(8000, "TCP port to listen on. 0 is any free port.")
    max_body: int = key(10 * MIB, "Largest request body; larger ones are answered 413.", unit="bytes", minimum=KIB)
    max_result: int = key(
        64 * MIB, "Largest result of a query; a larger one is given up and answered 413.", unit="bytes", minimum=KIB
    )
    cors_origins: tuple[str, ...] = key(
        ("*",), 'Origins whose web pages may call the gateway (CORS). "*" is every origin, [] is none.'
    )
    max_header: int = key(
        64 * KIB,
        "Largest request line and header together; larger ones are answered 431 or 414.",
        unit="bytes",
        minimum=KIB,
    )
    max_connections: int = key(1000, "Connections at a time; more are refused.", minimum=1, maximum=100_000)
    max_connections_of_one: int = key(
        250,
        "Connections of one address at a time, other than this machine's own; more are refused.",
        minimum=1,
        maximum=100_000,
    )
    read_timeout: float = key(
        30.0,
        "Time a client has to send a whole header, and between two parts of a body.",
        unit="s",
        minimum=0.1,
        maximum=3600,
    )
    keep_alive: float = key(15.0, "Time a connection without a request stays open.", unit="s", minimum=0, maximum=3600)


class WsSettings(Section):
    """The WebSocket gate: subscriptions."""

    host: BindHost = key("127.0.0.1", "Address to listen on without encryption: a loopback address.")
    port: Port = key(9000, "TCP port to listen on. 0 is any free port.")
    max_message: int = key(1 * MIB, "Largest message a client may send.", unit="bytes", minimum=KIB)
    max_result: int = key(4 * MIB, "Largest result of a query; a larger one is given up.", unit="bytes", minimum=KIB)
    ping_interval: float = key(
        20.0, "Time between keep-alive pings to each client. 0 sends none.", unit="s", minimum=0, maximum=3600
    )
    ping_timeout: float = key(
        20.0, "Time a client has to answer a ping before its connection is closed.", unit="s", minimum=0.1, maximum=3600
    )
    max_connections: int = key(1000, "Connections at a time; more are refused.", minimum=1, maximum=100_000)
    max_connections_of_one: int = key(
        250,
        "Connections of one address at a time, other than this machine's own; more are refused.",
        minimum=1,
        maximum=100_000,
    )
    max_subscriptions: int = key(1000, "Subscriptions of one connection; more are refused.", minimum=1)
    max_pending_answers: int = key(
        1000,
        "Answers that may wait for a client that does not read; with more it is told so and disconnected.",
        minimum=1,
    )
    max_unmerged: int = key(
        1 * MIB,
        "Notifications that may wait for one client; with more they are merged.",
        unit="bytes",
        minimum=0,
    )
    max_pending_requests: int = key(
        100, "Requests of one connection in work; no more are read until some are answered.", minimum=1
    )
    origins: tuple[str, ...] = key(
        ("*",), 'Origins whose web pages may subscribe. "*" is every origin; the gateway\'s own pages always may.'
    )
    compression: bool = key(
        False,
        "Whether permessage-deflate is offered. It costs a small processor more than it saves on a local network.",
    )


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
    max_message: int = key(
        1 * MIB,
        "Largest packet the embedded broker takes; who sends a larger one is disconnected.",
        unit="bytes",
        minimum=KIB,
    )
    max_retained: int = key(10_000, "Retained messages the embedded broker keeps; the oldest go first.", minimum=0)
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


class SubscriptionsSettings(Section):
    """Subscriptions that asked to be resumed, over whatever gate: kept while nobody is connected."""

    resume_for: float = key(
        60.0,
        "Time for which they can be resumed after their connection was lost, or after a restart of the gateway. "
        "0: never.",
        unit="s",
        minimum=0,
        maximum=86_400,
    )
    max_parked: int = key(1000, "How many are kept for that; with more the one lost first ends.", minimum=0)


class MqttGateSettings(Section):
    """The MQTT gate: the messages of the WebSocket over topics, standing queries, the gateway's status."""

    enabled: Literal["auto", "always", "never"] = key(
        "auto",
        'Whether clients are served over MQTT. "auto": at the embedded broker, which only this machine reaches; at '
        "another broker everybody who may publish there could read and change the graph.",
    )
    root: str = key(
        "sepa/gateway",
        "What all topics of the gate begin with. Of several gateways at one broker each needs its own.",
    )
    queries_dir: OptionalPath = key(
        None, "Directory of standing queries, whose results are published: NAME.rq. Empty: DATA_DIR/queries."
    )
    query_interval: float = key(
        1.0,
        "Least time between two results of a standing query; what changes in between is told together.",
        unit="s",
        minimum=0.01,
        maximum=86_400,
    )
    status_interval: float = key(
        30.0, "Time between two messages with the gateway's status.", unit="s", minimum=0.1, maximum=86_400
    )
    idle_timeout: float = key(
        300.0,
        "Time after which a client's session ends that says nothing and has not said that it has a will.",
        unit="s",
        minimum=0.1,
        maximum=31_557_600,
    )
    max_message: int = key(256 * KIB, "Largest message a client may send.", unit="bytes", minimum=KIB)
    max_result: int = key(
        512 * KIB,
        "Largest message to a client: result of a query, notification, result of a standing query. The embedded broker "
        "takes none larger than mqtt.max_message.",
        unit="bytes",
        minimum=KIB,
    )
    max_clients: int = key(100, "Clients with a session at a time; more are refused.", minimum=1, maximum=10_000)
    max_subscriptions: int = key(100, "Subscriptions of one client; more are refused.", minimum=1)
    max_pending_answers: int = key(
        1000, "Answers to one client that may wait for the broker; with more its session ends.", minimum=1
    )
    max_unmerged: int = key(
        1 * MIB,
        "Notifications that may wait for one client; with more they are merged.",
        unit="bytes",
        minimum=0,
    )
    max_pending_requests: int = key(
        100, "Requests of one client in work; as many may wait, more are refused.", minimum=1
    )

    @field_validator("root")
    @classmethod
    def _no_filter(cls, value: str) -> str:
        if not value or set(value) & set("+#\0") or value.startswith(("$", "/")) or value.endswith("/"):
            raise ValueError('must be the beginning of a topic such as "sepa/gateway", without wildcards')
        return value


class CoapSettings(Section):
    """The CoAP gate: query, update, subscriptions and readings for constrained devices."""

    enabled: bool = key(False, "Whether clients are served over CoAP. It takes 2.5 MB of memory.")
    host: Host = key(
        "127.0.0.1",
        "Address to listen on. Other than a loopback address: with security.enabled, and then only requests that are "
        "protected with OSCORE are taken (`edge clients oscore`).",
    )
    port: Port = key(5683, "UDP port to listen on. 0 is any free port.")
    max_body: int = key(256 * KIB, "Largest request body, all blocks together.", unit="bytes", minimum=KIB)
    max_result: int = key(512 * KIB, "Largest result of a query; a larger one is given up.", unit="bytes", minimum=KIB)
    max_blocks: int = key(
        8 * MIB,
        "Requests, and as much of answers, that are kept while clients send and fetch them in blocks.",
        unit="bytes",
        minimum=MIB,
    )
    max_subscriptions: int = key(100, "Subscriptions of all clients together; more are refused.", minimum=1)
    max_pending_requests: int = key(100, "Requests in work; more are refused.", minimum=1)
    follow_within: float = key(
        30.0,
        "Time for which a subscription waits for an observer, the first one or another after it is lost.",
        unit="s",
        minimum=0.1,
        maximum=3600,
    )
    ping_interval: float = key(
        30.0, "Time between two looks whether an observer is there.", unit="s", minimum=0.1, maximum=86_400
    )


class LimitsSettings(Section):
    """What one client may take, over all gates: an identity where there is security, else a connection."""

    rate: float = key(
        10_000.0,
        "Requests a second of one client in the long run; more are answered 429. 0: any number.",
        minimum=0,
        maximum=1_000_000,
    )
    burst: int = key(20_000, "Requests of one client beyond that at once.", minimum=1, maximum=10_000_000)
    max_subscriptions: int = key(
        10_000, "Subscriptions of one client on all its connections; more are refused.", minimum=1
    )


class EngineSettings(Section):
    """The SPARQL engine: durability, limits of updates and queries, the dataset."""

    durability: Literal["commit", "interval"] = key(
        "commit",
        '"commit": acknowledgements and notifications leave after the update is on disk. "interval": they leave at '
        "once and the disk is written every flush_interval, so a power cut loses up to that much.",
    )
    flush_interval: float = key(
        1.0, 'Time between writes to disk with durability "interval".', unit="s", minimum=0.01, maximum=3600
    )
    max_pending_updates: int = key(10_000, "Updates that may wait; more are answered 429.", minimum=1)
    max_batch: int = key(256, "Waiting updates that share one commit at most.", minimum=1, maximum=10_000)
    max_pending_timers: int = key(
        200_000, "Delayed updates that may wait for their time; more are answered 429.", minimum=0
    )
    max_lateness: float = key(
        0.0,
        "How late a delayed update may be and is still run; one that is later, after a day without power say, is "
        "marked as missed. 0: however late.",
        unit="s",
        minimum=0,
        maximum=3_155_760_000,
    )
    timer_outcomes_for: float = key(
        86_400.0,
        "How long it can be asked what became of a delayed update.",
        unit="s",
        minimum=0,
        maximum=31_557_600,
    )
    max_timer_outcomes: int = key(
        10_000, "Delayed updates of which that can be asked at most; the oldest go first.", minimum=0
    )
    trust_clock: Literal["auto", "always", "never"] = key(
        "auto",
        "Whether the machine's clock is right when it starts, so that the time without power counts for delayed "
        'updates. "auto": where there is a clock with a battery (RTC), or once NTP has set it.',
    )
    stall_after: float = key(
        30.0,
        "Time after which updates that do not move on count as stalled: /health then says so, with 503.",
        unit="s",
        minimum=1,
        maximum=86_400,
    )
    booster: Literal["delta", "re-evaluate"] = key(
        "delta",
        '"delta": what a change does to a subscription is computed from the change, where there is a rule for it. '
        '"re-evaluate": every subscribed query is evaluated anew whenever a change can touch it, and compared; to '
        "compare the two.",
    )
    processing: Literal["sequential", "parallel"] = key(
        "parallel",
        "Whether subscribed queries that are evaluated anew take turns, or are evaluated beside each other, each "
        "thread on a copy of the graph. `edge engine --processing` changes it while the gateway runs.",
    )
    spu_workers: int = key(
        0, "Threads for parallel processing. 0: as many as there are processors.", minimum=0, maximum=64
    )
    query_workers: int = key(2, "Threads that answer queries.", minimum=1, maximum=64)
    max_pending_queries: int = key(100, "Queries that may wait for a thread; more are answered 429.", minimum=1)
    query_timeout: float = key(
        30.0, "Time after which a query is given up and answered 408.", unit="s", minimum=0.01, maximum=86_400
    )
    evaluation_timeout: float = key(
        10.0,
        "Time that the WHERE of an update, or a subscribed query, may take where there are no steps to be counted "
        "(max_steps) because it is evaluated as a whole; then it is given up. All others wait.",
        unit="s",
        minimum=0.01,
        maximum=86_400,
    )
    max_query_memory: int = key(
        256 * MIB,
        "Memory that the evaluation of a query, of a subscribed query or of a WHERE may take; one that takes more is "
        "given up and answered 413.",
        unit="bytes",
        minimum=MIB,
    )
    base_iri: str = key(
        "http://localhost/", "IRI that relative IRIs of queries and updates without BASE are resolved against."
    )
    default_graph_as_union: bool = key(
        False, "Whether the default graph of queries without a dataset is the union of all graphs."
    )
    allow_load: bool = key(False, "Whether updates may LOAD documents: from the network, by this machine's address.")
    allow_service: bool = key(False, "Whether queries may call other endpoints with SERVICE.")
    max_solutions: int = key(
        500_000,
        "Solutions of an update's WHERE, and of a subscribed query, at the most; what has more is refused. All others "
        "wait for them.",
        minimum=1,
    )
    max_steps: int = key(
        5_000_000,
        "Steps to find the solutions of an update's WHERE, of a subscribed query when it begins, or of what an update "
        "changes in it, at the most; what takes more is refused. A step is a look-up of a triple pattern, a triple "
        "that it finds, a row of VALUES or a call in an expression. All others wait: for about a second for each "
        "million steps.",
        minimum=1000,
    )
    max_remembered: int = key(
        50_000,
        "Evaluations of joins, and their solutions, that all subscriptions together remember until something in them "
        "changes, at the most; each takes about 300 bytes. 0: none, which costs time.",
        minimum=0,
    )
    max_joined: int = key(
        64,
        "Triple patterns, groups and OPTIONALs that are joined in one group of a query, or of the WHERE of an update, "
        "at the most; what has more is refused, and so is what has more than 4 groups as large. Where a query is "
        "evaluated as a whole, to plan 64 takes 0.1 s, 128 2 s, 256 half a minute.",
        minimum=1,
    )
    snapshot_min_bytes: int = key(
        4 * MIB, "Size of the journal below which no snapshot is made.", unit="bytes", minimum=64 * KIB
    )
    snapshot_ratio: float = key(
        2.0,
        "A snapshot is made when the journal is this many times as large as the last snapshot.",
        minimum=0.1,
        maximum=1000,
    )

    receipts_kept: int = key(
        1024,
        "Batches of readings that are remembered over restarts, to know what a broker delivers again.",
        minimum=1,
        maximum=1_000_000,
    )

    @field_validator("base_iri")
    @classmethod
    def _absolute_iri(cls, value: str) -> str:
        if not urlsplit(value).scheme or any(character in value for character in ' <>"{}|\\^`'):
            raise ValueError('must be an absolute IRI such as "http://example.org/"')
        return value


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
    max_readings: int = key(1000, "Readings taken from one payload; a payload with more counts as bad.", minimum=1)
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


class SecuritySettings(Section):
    """Who may come in: tokens, TLS."""

    enabled: bool = key(
        False, "Whether every request needs a token (OAuth 2.0, `edge clients`), and the secure ports are open."
    )
    host: Host = key("127.0.0.1", "Address of the secure ports, e.g. 0.0.0.0 for the whole network.")
    https_port: Port = key(8443, "TCP port of the HTTP gate with TLS. 0 is any free port.")
    wss_port: Port = key(9443, "TCP port of the WebSocket gate with TLS. 0 is any free port.")
    mqtts_port: Port = key(8883, "TCP port of the embedded MQTT broker with TLS. 0 is any free port.")
    cert_file: OptionalPath = key(
        None, "PEM file of the gateway's certificate, and those that signed it. Empty: one that `edge cert` makes."
    )
    key_file: OptionalPath = key(None, "PEM file of the certificate's private key.")
    token_lifetime: int = key(3600, "How long a token is valid.", unit="s", minimum=1, maximum=31_536_000)
    audience: str = key("sepa-edge", "Whom tokens are for (their aud).")
    key_rotation: float = key(
        2_592_000.0, "How long a key signs tokens; then there is a new one.", unit="s", minimum=60, maximum=315_360_000
    )


class IssuerSettings(Section):
    """Another authorisation server whose tokens count, where security.enabled is set (Keycloak, say)."""

    url: WebUrl = key("", "Its name, as it stands in its tokens (iss). Empty: there is none.")
    jwks_url: WebUrl = key("", "Where it publishes its keys: https, or http on this machine.")
    jwks_file: OptionalPath = key(None, "File with its keys (JWK Set), in place of jwks_url.")
    ca_file: OptionalPath = key(None, "PEM file of the authorities of its certificate. Empty: those of the machine.")
    audience: str = key("sepa-edge", "Whom its tokens must be for (their aud).")
    claim: str = key("sub", "The claim that names the client, e.g. azp or client_id.")
    algorithms: tuple[IssuerAlgorithm, ...] = key(("RS256", "ES256"), "How its tokens may be signed.")
    leeway: float = key(10.0, "By how much its clock may differ from ours.", unit="s", minimum=0, maximum=300)
    refresh: float = key(300.0, "Time between two fetches of its keys.", unit="s", minimum=30, maximum=86_400)
    keys_for: float = key(
        604_800.0,
        "How long its keys are used while it cannot be reached.",
        unit="s",
        minimum=60,
        maximum=315_360_000,
    )
    actions: tuple[Action, ...] = key(
        (), "What all its clients may do. Empty: those alone come in that `edge clients allow --issuer` named."
    )
    read: tuple[str, ...] = key(("all",), 'Graphs that all its clients may see: IRIs, "default", "all".')
    write: tuple[str, ...] = key(("all",), "Graphs that all its clients may change.")


class LogSettings(Section):
    """Log lines on standard error."""

    level: Literal["debug", "info", "warning", "error"] = key("info", "Least level that is logged.")
    format: Literal["auto", "text", "json"] = key("auto", 'Form of a line. "auto": text on a terminal, JSON elsewhere.')


class WatchdogSettings(Section):
    """What watches that all parts move: gates, adapters, the engine."""

    interval: float = key(
        10.0, "Time between two looks, and time a part has to prove that it moves.", unit="s", minimum=0.05, maximum=600
    )
    stall_after: float = key(
        30.0, "Time without a proof after which a part is restarted.", unit="s", minimum=0.05, maximum=3600
    )
    end_after: float = key(
        300.0,
        "Time after which the gateway ends with exit code 1, to be started anew by systemd, where what stands still "
        "cannot be restarted alone: the engine, the event loop. 0: never.",
        unit="s",
        minimum=0,
        maximum=86_400,
    )


class ShutdownSettings(Section):
    """How the gateway stops."""

    timeout: float = key(
        5.0, "Time for draining queues and telling clients before the process ends.", unit="s", minimum=0.1, maximum=300
    )


class Settings(Section):
    """All settings of the gateway."""

    data_dir: DirPath = key(
        default_data_dir,
        "Directory of everything that must survive a restart. Made where it does not exist.",
        default_text="$STATE_DIRECTORY (systemd), else $XDG_STATE_HOME/sepa-edge, else ~/.local/state/sepa-edge",
    )
    http: HttpSettings = HttpSettings()
    ws: WsSettings = WsSettings()
    subscriptions: SubscriptionsSettings = SubscriptionsSettings()
    mqtt: MqttSettings = MqttSettings()
    mqtt_gate: MqttGateSettings = MqttGateSettings()
    coap: CoapSettings = CoapSettings()
    limits: LimitsSettings = LimitsSettings()
    engine: EngineSettings = EngineSettings()
    mappings: MappingsSettings = MappingsSettings()
    observations: ObservationsSettings = ObservationsSettings()
    actuation: ActuationSettings = ActuationSettings()
    host: HostSettings = HostSettings()
    security: SecuritySettings = SecuritySettings()
    issuer: IssuerSettings = IssuerSettings()
    log: LogSettings = LogSettings()
    watchdog: WatchdogSettings = WatchdogSettings()
    shutdown: ShutdownSettings = ShutdownSettings()

    @property
    def tls_dir(self) -> Path:
        """Where the certificates are that the gateway makes."""
        return self.data_dir / "tls"

    @property
    def mappings_dir(self) -> Path:
        """Where the operator's own mapping files are."""
        return self.mappings.dir or self.data_dir / "mappings"

    @property
    def queries_dir(self) -> Path:
        """Where the standing queries are."""
        return self.mqtt_gate.queries_dir or self.data_dir / "queries"

    @property
    def serves_mqtt_clients(self) -> bool:
        """Whether there is an MQTT gate."""
        wanted = self.mqtt_gate.enabled
        safe = not self.mqtt.broker or self.security.enabled
        return self.mqtt.enabled and (wanted == "always" or (wanted == "auto" and safe))
