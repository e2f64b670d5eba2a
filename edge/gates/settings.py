"""Settings of the gates. Fields have the names of the configuration keys in `http`, `ws`, `mqtt_gate`, `coap`."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from edge.engine.admission.byte_quota import MAX_CLIENT_BYTES, MAX_TOTAL_BYTES

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """Rate limits and quotas of one client over all gates."""

    rate: float = 10_000.0
    """Sustained requests per second; excess requests get status 429. 0: no limit."""
    burst: int = 20_000
    """Burst of requests beyond the rate."""
    max_subscriptions: int = 10_000
    """Subscriptions on all connections of a client; more are refused with 429."""
    oauth_rate: float = 5.0
    """Sustained registrations and token requests per second and address; excess requests
    get status 429. 0: no limit.
    """
    oauth_burst: int = 20
    """Burst of these requests beyond the rate."""
    max_client_bytes: int = MAX_CLIENT_BYTES
    """Bytes held for one client; beyond this, its requests get status 429."""
    max_total_bytes: int = MAX_TOTAL_BYTES
    """Bytes held for all clients; one client may hold as much as it leaves to others."""


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Limits of one session of any gate. Fields have the names of those in the gates' settings."""

    max_message: int
    max_result: int
    query_timeout: float
    max_subscriptions: int
    max_pending_requests: int
    max_pending_answers: int
    max_unmerged: int
    merge_after: float
    max_waiting: int

    @classmethod
    def of(cls, settings: WsGateSettings | MqttGateSettings) -> SessionLimits:
        """Return the limits in the settings of a gate."""
        return cls(**{field.name: getattr(settings, field.name) for field in fields(cls)})


@dataclass(frozen=True, slots=True)
class HttpGateSettings:
    """Settings of the HTTP gate."""

    host: str = "127.0.0.1"
    port: int = 8000
    """0: any free port."""
    max_body: int = 10 * MIB
    """Maximum request body in bytes; larger ones get status 413."""
    max_result: int = 64 * MIB
    """Maximum result of a query in bytes; the evaluation of a larger one is aborted with status 413."""
    cors_origins: tuple[str, ...] = ("loopback",)
    """Origins whose pages may call the gateway; `loopback`: origins on this machine, `*`: all."""
    hosts: tuple[str, ...] = ()
    """Further host names of the gateway for unencrypted requests; `*`: all."""
    max_header: int = 64 * KIB
    """Maximum bytes of request line and headers; larger ones get status 431 (414 if the URL is the cause)."""
    max_connections: int = 1000
    """Maximum number of connections; further ones get status 429 and are closed."""
    max_connections_of_one: int = 250
    """Maximum number of connections of one remote address; further ones get status 429 and are closed."""
    read_timeout: float = 30.0
    """Seconds to receive a complete header, and between two parts of a body."""
    body_timeout: float = 300.0
    """Seconds to receive a complete body."""
    keep_alive: float = 15.0
    """Seconds after which an idle connection is closed."""
    query_timeout: float = 30.0
    """Seconds after which a query is aborted with status 408."""
    shutdown_timeout: float = 2.0
    """Seconds for open requests to finish when the gate stops."""


@dataclass(frozen=True, slots=True)
class WsGateSettings:
    """Settings of the WebSocket gate."""

    host: str = "127.0.0.1"
    port: int = 9000
    """0: any free port."""
    path: str = "/subscribe"
    max_message: int = 1 * MIB
    """Maximum message in bytes. Up to twice as much gets an error; more closes the connection."""
    max_result: int = 4 * MIB
    """Maximum result of a query in bytes; the evaluation of a larger one is aborted."""
    query_timeout: float = 30.0
    """Seconds after which a query is aborted."""
    ping_interval: float = 20.0
    """Seconds between keep-alive pings; 0: none."""
    ping_timeout: float = 20.0
    """Seconds for a client to answer a ping or accept waiting data; after that, the connection counts as dead."""
    max_connections: int = 1000
    """Maximum number of connections; further ones are refused with 429."""
    max_connections_of_one: int = 250
    """Maximum number of connections of one remote address; further ones are refused with 429."""
    max_subscriptions: int = 1000
    """Maximum number of subscriptions of one connection; more are refused with 429."""
    max_pending_answers: int = 1000
    """Maximum number of answers that wait for a slow client; beyond this, it is closed with code 1013."""
    max_waiting: int = 16 * MIB
    """Maximum bytes of waiting answers of one client. Running queries count with `max_result`; further queries wait."""
    max_unmerged: int = 1 * MIB
    """Bytes of notifications that wait for one client; beyond this, they are merged."""
    merge_after: float = 1.0
    """Seconds that a notification may wait; after that, waiting notifications of its subscription are merged."""
    max_pending_requests: int = 100
    """Maximum number of pending requests of one connection; the gate reads no more until some are answered."""
    origins: tuple[str, ...] = ("loopback",)
    """Origins whose pages may subscribe; `loopback`: origins on this machine, `*`: all. The gateway's own pages
    always may.
    """
    hosts: tuple[str, ...] = ()
    """Further host names of the gateway for unencrypted requests; `*`: all."""
    authorize_within: float = 30.0
    """Seconds until the first message with a valid token, with security."""
    compression: bool = False
    """Whether to offer permessage-deflate. On a local network it costs a small CPU more than it saves."""
    close_timeout: float = 2.0
    """Seconds for a client to answer a close frame, also when the gate stops."""


@dataclass(frozen=True, slots=True)
class MqttGateSettings:
    """Settings of the MQTT gate."""

    root: str = "sepa/gateway"
    """Prefix of all its topics."""
    max_message: int = 256 * KIB
    """Maximum message from a client in bytes."""
    max_result: int = 512 * KIB
    """Maximum message to a client in bytes."""
    query_timeout: float = 30.0
    """Seconds after which a query is aborted."""
    max_clients: int = 100
    """Maximum number of sessions. A new one replaces a session idle for `idle_timeout`, or gets status 429."""
    max_subscriptions: int = 100
    """Maximum number of subscriptions of one client; more are refused with 429."""
    max_pending_answers: int = 1000
    """Maximum number of answers of one client that the broker has not acknowledged; beyond this, its session ends."""
    max_waiting: int = 2 * MIB
    """Maximum bytes of waiting answers of one client. Running queries count with `max_result`; further queries wait."""
    max_unmerged: int = 1 * MIB
    """Bytes of notifications that wait for one client; beyond this, they are merged."""
    merge_after: float = 1.0
    """Seconds that a notification may wait; after that, waiting notifications of its subscription are merged."""
    max_pending_requests: int = 100
    """Maximum number of pending requests of one client, and of waiting ones; more get status 429."""
    idle_timeout: float = 300.0
    """Seconds after which an idle client without a registered will is disconnected."""
    status_interval: float = 30.0
    """Seconds between two messages with the gateway status."""
    queries_dir: Path | None = None
    """Directory of the continuous queries."""
    query_interval: float = 1.0
    """Seconds between two messages with the result of a continuous query."""
    stop_timeout: float = 1.0
    """Seconds for the broker to acknowledge the last messages when the gate stops."""


@dataclass(frozen=True, slots=True)
class CoapGateSettings:
    """Settings of the CoAP gate."""

    host: str = "127.0.0.1"
    port: int = 5683
    """0: any free port."""
    plain: bool = True
    """Whether requests without OSCORE are accepted."""
    max_body: int = 256 * KIB
    """Maximum request body in bytes over all blocks; larger ones get code 4.13."""
    max_result: int = 512 * KIB
    """Maximum result of a query in bytes; the evaluation of a larger one is aborted with code 4.13."""
    query_timeout: float = 30.0
    """Seconds after which a query is aborted."""
    max_blocks: int = 8 * MIB
    """Maximum bytes of blockwise requests in transfer, and of responses."""
    max_subscriptions: int = 100
    """Maximum number of subscriptions; one client gets as many as it leaves to others, more get code 4.29."""
    max_pending_requests: int = 100
    """Maximum number of pending requests, shared in the same way."""
    follow_within: float = 30.0
    """Seconds that a subscription waits for an observer before it ends."""
    ping_interval: float = 30.0
    """Seconds between two checks whether an observer is reachable."""
