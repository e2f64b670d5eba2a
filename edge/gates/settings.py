"""Settings of the gates: addresses, ports, limits and quotas."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final, Literal

from pydantic import field_validator

from edge.engine.admission.byte_quota import MAX_CLIENT_BYTES, MAX_TOTAL_BYTES
from edge.engine.settings import EngineSettings
from edge.section import KIB, MIB, Section, key
from edge.section_types import BindHost, Host, OptionalPath, Port

QUERY_TIMEOUT: Final = EngineSettings().query_timeout
"""Seconds after which a gate stops a query, unless another limit is given."""


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Limits of one session of any gate. Fields have the names of those in the gates' settings."""

    max_message: int
    max_result: int
    max_subscriptions: int
    max_pending_requests: int
    max_pending_answers: int
    max_unmerged: int
    merge_after: float
    max_waiting: int
    query_timeout: float = QUERY_TIMEOUT

    @classmethod
    def of(cls, settings: WsGateSettings | MqttGateSettings, query_timeout: float = QUERY_TIMEOUT) -> SessionLimits:
        """Return the limits in the settings of a gate."""
        names = [field.name for field in fields(cls) if field.name != "query_timeout"]
        return cls(**{name: getattr(settings, name) for name in names}, query_timeout=query_timeout)


def _max_waiting(default: int) -> Any:  # noqa: ANN401 - as of `key`
    return key(
        default,
        "Size of the answers that may wait for one client; each query in evaluation counts as max_result. Beyond it "
        "the gate starts no further query, and if the waiting answers alone exceed it, the gate reads no message.",
        unit="bytes",
        minimum=0,
    )


def _max_unmerged() -> Any:  # noqa: ANN401 - as of `key`
    return key(
        1 * MIB,
        "Size of the notifications that may wait for one client. Beyond it the gate merges them (conflation).",
        unit="bytes",
        minimum=0,
    )


def _merge_after() -> Any:  # noqa: ANN401 - as of `key`
    return key(
        1.0,
        "Time that a notification may wait for one client. After it the gate merges the waiting notifications of its "
        "subscription (conflation).",
        unit="s",
        minimum=0,
        maximum=3600,
    )


class SessionsSettings(Section):
    """Limits of the sessions of all gates. A key of a gate's own section overrides the key of the same name."""

    max_connections: int | None = key(
        None, "Concurrent connections to each of [http], [ws] and [mqtt_gate].", minimum=1, maximum=10_000
    )
    max_connections_of_one: int | None = key(
        None, "Concurrent connections from one remote address to each of [http] and [ws].", minimum=1, maximum=10_000
    )
    max_message: int | None = key(None, "Largest message or request body of a client.", unit="bytes", minimum=KIB)
    max_result: int | None = key(None, "Largest query result.", unit="bytes", minimum=KIB)
    max_subscriptions: int | None = key(
        None, "Subscriptions of one session. With CoAP: of all clients together.", minimum=1
    )
    max_pending_requests: int | None = key(
        None, "Unanswered requests of one session. With CoAP: of all clients together.", minimum=1
    )
    max_pending_answers: int | None = key(None, "Answers that may wait for a client that does not read.", minimum=1)
    max_waiting: int | None = key(None, "Size of the answers that may wait for one client.", unit="bytes", minimum=0)
    max_unmerged: int | None = key(
        None, "Size of the notifications that may wait for one client before they are merged.", unit="bytes", minimum=0
    )
    merge_after: float | None = key(
        None, "Time that a notification may wait for one client before it is merged.", unit="s", minimum=0, maximum=3600
    )


class HttpGateSettings(Section):
    """The HTTP gate: SPARQL query and update, the dashboard page, health and metrics."""

    host: BindHost = key("127.0.0.1", "Address of the unencrypted port: a loopback address.")
    port: Port = key(8000, "TCP port to listen on. 0: any free port.", basic=True)
    max_message: int = key(10 * MIB, "Largest request body. Larger ones get status 413.", unit="bytes", minimum=KIB)
    max_result: int = key(
        64 * MIB,
        "Largest query result. Beyond it the gate stops the query, with status 413.",
        unit="bytes",
        minimum=KIB,
    )
    max_notifications: int = key(
        1000,
        "Notifications in one inbox. Further ones get status 429.",
        minimum=1,
        maximum=10_000,
    )
    cors_origins: tuple[str, ...] = key(
        ("loopback",),
        'Origins whose web pages may call the gateway (CORS), such as "https://app.example.org". "loopback": those '
        'of this machine. "*": every origin. Those of the gateway itself are always allowed.',
        basic=True,
    )
    hosts: tuple[str, ...] = key(
        (),
        'Host names that the unencrypted port accepts in requests, in addition to "localhost" and loopback '
        'addresses: for example those of a proxy in front of it. "*": any name, which allows access to every web '
        "page that is open on this machine.",
        basic=True,
    )
    max_header: int = key(
        64 * KIB,
        "Largest request line and header together. Larger ones get status 431 or 414.",
        unit="bytes",
        minimum=KIB,
    )
    max_connections: int = key(
        1000, "Concurrent connections. The gate refuses further ones.", minimum=1, maximum=100_000
    )
    max_connections_of_one: int = key(
        250,
        "Concurrent connections from one remote address. The gate refuses further ones.",
        minimum=1,
        maximum=100_000,
    )
    read_timeout: float = key(
        30.0,
        "Time limit for a client to send the header, and between two parts of a body.",
        unit="s",
        minimum=0.1,
        maximum=3600,
    )
    body_timeout: float = key(
        300.0,
        "Time limit for a client to send a whole body. Beyond it the request gets status 408.",
        unit="s",
        minimum=0.1,
        maximum=86_400,
    )
    keep_alive: float = key(
        15.0, "Time that a connection without a request stays open.", unit="s", minimum=0, maximum=3600
    )


class WsGateSettings(Section):
    """The WebSocket gate: subscriptions."""

    host: BindHost = key("127.0.0.1", "Address of the unencrypted port: a loopback address.")
    port: Port = key(9000, "TCP port to listen on. 0: any free port.", basic=True)
    max_message: int = key(1 * MIB, "Largest message from a client.", unit="bytes", minimum=KIB)
    max_result: int = key(
        4 * MIB, "Largest query result. Beyond it the gate stops the query.", unit="bytes", minimum=KIB
    )
    ping_interval: float = key(
        20.0,
        "Heartbeat interval: time between two pings to each client. 0: no pings.",
        unit="s",
        minimum=0,
        maximum=3600,
    )
    ping_timeout: float = key(
        20.0,
        "Time limit for a client to answer a ping. Beyond it the gate closes the connection.",
        unit="s",
        minimum=0.1,
        maximum=3600,
    )
    max_connections: int = key(
        1000, "Concurrent connections. The gate refuses further ones.", minimum=1, maximum=100_000
    )
    max_connections_of_one: int = key(
        250,
        "Concurrent connections from one remote address. The gate refuses further ones.",
        minimum=1,
        maximum=100_000,
    )
    max_subscriptions: int = key(1000, "Subscriptions of one connection. The gate refuses further ones.", minimum=1)
    max_pending_answers: int = key(
        1000,
        "Answers that may wait for a client that does not read. Beyond this number the gate reports an error and "
        "closes the connection.",
        minimum=1,
    )
    max_waiting: int = _max_waiting(16 * MIB)
    max_unmerged: int = _max_unmerged()
    merge_after: float = _merge_after()
    max_pending_requests: int = key(
        100,
        "Unanswered requests of one connection. Beyond this number the gate stops reading until some are answered "
        "(back-pressure).",
        minimum=1,
    )
    origins: tuple[str, ...] = key(
        ("loopback",),
        'Origins whose web pages may subscribe. "loopback": those of this machine. "*": every origin. Those of the '
        "gateway itself are always allowed.",
        basic=True,
    )
    hosts: tuple[str, ...] = key((), "The same as http.hosts.")
    authorize_within: float = key(
        30.0,
        "With security, the time limit for a client to send its first message with a valid token. Beyond it the gate "
        "closes the connection.",
        unit="s",
        minimum=0.1,
        maximum=86_400,
    )
    compression: bool = key(
        False,
        "Whether the gate offers permessage-deflate. Compression costs a small processor more than it saves on a "
        "local network.",
    )


class SubscriptionsSettings(Section):
    """Suspended subscriptions of all gates, which clients may resume after a lost connection."""

    resume_for: float = key(
        60.0,
        "Time for which clients can resume a subscription after its connection was lost, or after a restart of the "
        "gateway. 0: never.",
        unit="s",
        minimum=0,
        maximum=86_400,
    )
    max_parked: int = key(
        1000, "Maximum number of suspended subscriptions. Beyond it the one that was suspended first ends.", minimum=0
    )
    max_sent: int = key(
        256 * KIB,
        "Size of the last sent notifications that the gateway stores for each connection, since they may be lost with"
        " it. A client that has missed more gets the full result again.",
        unit="bytes",
        minimum=0,
    )


class MqttGateSettings(Section):
    """The MQTT gate: the WebSocket protocol over topics, continuous queries, the gateway's status."""

    enabled: Literal["auto", "always", "queries", "never"] = key(
        "auto",
        'Whether the gateway serves clients over MQTT. "auto": at the embedded broker, which only this machine '
        "reaches; at an external broker only with security, because everybody who may publish there could read and "
        'change the graph. "queries": it publishes the results of continuous queries, and reads no requests.',
        basic=True,
    )
    root: str = key(
        "sepa/gateway",
        "Prefix of all topics of the gate. If several gateways share a broker, each needs its own.",
    )
    queries_dir: OptionalPath = key(
        None, "Directory of continuous queries, whose results the gate publishes: NAME.rq. Empty: DATA_DIR/queries."
    )
    query_interval: float = key(
        1.0,
        "Least time between two results of a continuous query. The next result combines the changes since.",
        unit="s",
        minimum=0.01,
        maximum=86_400,
    )
    status_interval: float = key(
        30.0,
        "Heartbeat interval: time between two messages with the gateway's status.",
        unit="s",
        minimum=0.1,
        maximum=86_400,
    )
    idle_timeout: float = key(
        300.0,
        "Time after which the gate ends the session of a client that sends nothing and has not declared a will.",
        unit="s",
        minimum=0.1,
        maximum=31_557_600,
    )
    max_message: int = key(256 * KIB, "Largest message from a client.", unit="bytes", minimum=KIB)
    max_result: int = key(
        512 * KIB,
        "Largest message to a client: query result, notification, result of a continuous query. The embedded broker "
        "accepts none larger than mqtt.max_message.",
        unit="bytes",
        minimum=KIB,
    )
    max_connections: int = key(
        100,
        "Concurrent client sessions. Beyond this number a new client replaces one that was silent for idle_timeout.",
        minimum=1,
        maximum=10_000,
    )
    max_subscriptions: int = key(100, "Subscriptions of one client. The gate refuses further ones.", minimum=1)
    max_pending_answers: int = key(
        1000,
        "Answers to one client that may wait for the broker. Beyond this number the gate ends its session.",
        minimum=1,
    )
    max_waiting: int = _max_waiting(2 * MIB)
    max_unmerged: int = _max_unmerged()
    merge_after: float = _merge_after()
    max_pending_requests: int = key(
        100, "Requests of one client in progress. As many may wait; the gate refuses further ones.", minimum=1
    )

    @field_validator("root")
    @classmethod
    def _no_filter(cls, value: str) -> str:
        if not value or set(value) & set("+#\0") or value.startswith(("$", "/")) or value.endswith("/"):
            raise ValueError('must be the beginning of a topic such as "sepa/gateway", without wildcards')
        return value


class CoapGateSettings(Section):
    """The CoAP gate: query, update, subscriptions and readings for constrained devices."""

    enabled: bool = key(False, "Whether the gateway serves clients over CoAP. It takes 2.5 MB of memory.", basic=True)
    host: Host = key(
        "127.0.0.1",
        "Address to listen on. An address other than loopback requires security.enabled, and the gate then accepts "
        "only requests that OSCORE protects (`edge clients oscore`).",
        basic=True,
    )
    port: Port = key(5683, "UDP port to listen on. 0: any free port.")
    max_message: int = key(256 * KIB, "Largest request body, all blocks together.", unit="bytes", minimum=KIB)
    max_result: int = key(
        512 * KIB, "Largest query result. Beyond it the gate stops the query.", unit="bytes", minimum=KIB
    )
    max_blocks: int = key(
        8 * MIB,
        "Size of the requests that the gate stores while clients send them in blocks. The same applies to answers "
        "that clients fetch in blocks.",
        unit="bytes",
        minimum=MIB,
    )
    max_subscriptions: int = key(
        100, "Subscriptions of all clients together. One client may use as many as it leaves to others.", minimum=1
    )
    max_pending_requests: int = key(
        100, "Requests in progress. One client may use as many as it leaves to others.", minimum=1
    )
    follow_within: float = key(
        30.0,
        "Time for which a subscription waits for its first observer, or for another one after an observer is lost.",
        unit="s",
        minimum=0.1,
        maximum=3600,
    )
    ping_interval: float = key(
        30.0,
        "Heartbeat interval: time between two checks that an observer is reachable.",
        unit="s",
        minimum=0.1,
        maximum=86_400,
    )


class LimitSettings(Section):
    """Quotas and rate limits of a client over all gates. A client is an identity, or a connection without security."""

    rate: float = key(
        10_000.0,
        "Rate limit: requests a second of one client on average. Further ones get status 429. 0: no limit.",
        minimum=0,
        maximum=1_000_000,
    )
    burst: int = key(20_000, "Requests of one client that may exceed the rate at once.", minimum=1, maximum=10_000_000)
    max_subscriptions: int = key(
        10_000, "Subscriptions of one client on all its connections. Further ones are refused.", minimum=1
    )
    oauth_rate: float = key(
        5.0,
        "Rate limit: registrations and token requests a second on average from one address, or from one connection on"
        " this machine. Further ones get status 429. 0: no limit.",
        minimum=0,
        maximum=1_000_000,
    )
    oauth_burst: int = key(
        20, "Registrations and token requests that may exceed this rate at once.", minimum=1, maximum=10_000_000
    )
    max_client_bytes: int = key(
        MAX_CLIENT_BYTES,
        "Memory quota of one client over all gates: texts of its requests and subscriptions, results that its "
        "subscriptions store, incomplete messages, CoAP transfers in blocks, unread and missed notifications. "
        "Requests beyond it get status 429, subscriptions that grow beyond it end; over MQTT and WebSocket a client "
        "that does not read is disconnected.",
        unit="bytes",
        minimum=MIB,
    )
    max_total_bytes: int = key(
        MAX_TOTAL_BYTES,
        "Memory quota of all clients together. One client may use as much as it leaves to others.",
        unit="bytes",
        minimum=2 * MIB,
    )
