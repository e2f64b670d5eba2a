"""What can be set about the gates. Fields have the names of the keys: `http`, `ws`, `mqtt_gate`, `coap`."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from edge.engine.admission.byte_quota import MAX_CLIENT_BYTES, MAX_TOTAL_BYTES

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """What one client may take, over all gates."""

    rate: float = 10_000.0
    """Requests a second in the long run; more are answered 429. 0: any number."""
    burst: int = 20_000
    """Requests beyond that at once."""
    max_subscriptions: int = 10_000
    """Subscriptions on all its connections; more are refused with 429."""
    oauth_rate: float = 5.0
    """Registrations and requests for tokens a second of one address in the long run; more are answered 429. 0: any
    number."""
    oauth_burst: int = 20
    """Of these beyond that at once."""
    max_client_bytes: int = MAX_CLIENT_BYTES
    """Bytes held for one client; with more its requests are answered 429."""
    max_total_bytes: int = MAX_TOTAL_BYTES
    """Bytes held for all clients together; one client may have as much as it leaves to others."""


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """The limits of one session, of whatever gate; fields have the names of those of the gates' settings."""

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
        """Those of a gate that has them all."""
        return cls(**{field.name: getattr(settings, field.name) for field in fields(cls)})


@dataclass(frozen=True, slots=True)
class HttpGateSettings:
    """The HTTP gate."""

    host: str = "127.0.0.1"
    port: int = 8000
    """0 is any free port."""
    max_body: int = 10 * MIB
    """Largest request body in bytes; larger ones are answered 413."""
    max_result: int = 64 * MIB
    """Largest result of a query in bytes; the evaluation of a larger one is given up and answered 413."""
    cors_origins: tuple[str, ...] = ("loopback",)
    """Origins whose pages may call the gateway; `loopback` are this machine's own, `*` is every origin."""
    hosts: tuple[str, ...] = ()
    """Names beside this machine's own by which the gateway may be asked for without encryption; `*` is any."""
    max_header: int = 64 * KIB
    """Largest request line and header together in bytes; larger ones are answered 431 (414 if the URL is to blame)."""
    max_connections: int = 1000
    """Connections at a time; more are answered 429 and closed."""
    max_connections_of_one: int = 250
    """Connections of one address, other than this machine's own; more are answered 429 and closed."""
    read_timeout: float = 30.0
    """Seconds that a client has to send a whole header, and between two parts of a body."""
    body_timeout: float = 300.0
    """Seconds that a client has to send a whole body."""
    keep_alive: float = 15.0
    """Seconds that a connection without a request stays open."""
    query_timeout: float = 30.0
    """Seconds after which a query is given up and answered 408."""
    shutdown_timeout: float = 2.0
    """Seconds that open requests have to end when the gate stops."""


@dataclass(frozen=True, slots=True)
class WsGateSettings:
    """The WebSocket gate."""

    host: str = "127.0.0.1"
    port: int = 9000
    """0 is any free port."""
    path: str = "/subscribe"
    max_message: int = 1 * MIB
    """Largest message in bytes that is worked on. Up to twice as much gets an error, more closes the connection."""
    max_result: int = 4 * MIB
    """Largest result of a query in bytes; the evaluation of a larger one is given up."""
    query_timeout: float = 30.0
    """Seconds after which a query is given up."""
    ping_interval: float = 20.0
    """Seconds between keep-alive pings; 0 sends none."""
    ping_timeout: float = 20.0
    """Seconds that a client has to answer a ping or to take waiting data, before it counts as dead."""
    max_connections: int = 1000
    """Connections at a time; more are refused with 429."""
    max_connections_of_one: int = 250
    """Connections of one address, other than this machine's own; more are refused with 429."""
    max_subscriptions: int = 1000
    """Subscriptions of one connection; more are refused with 429."""
    max_pending_answers: int = 1000
    """Answers that may wait for one client that does not read; beyond, it is closed with code 1013."""
    max_waiting: int = 16 * MIB
    """Bytes of answers that may wait for one client, each query in work counted with `max_result`; beyond, no more are
    begun."""
    max_unmerged: int = 1 * MIB
    """Bytes of notifications that may wait for one client; beyond, its notifications are merged."""
    merge_after: float = 1.0
    """Seconds that a notification may wait for one client; then those of its subscription that wait are merged."""
    max_pending_requests: int = 100
    """Requests of one connection that may be in work; no more are read until some are answered."""
    origins: tuple[str, ...] = ("loopback",)
    """Origins whose pages may subscribe; `loopback` are this machine's own, `*` is every origin. Pages of the gateway's
    own host always may."""
    hosts: tuple[str, ...] = ()
    """Names beside this machine's own by which the gateway may be asked for without encryption; `*` is any."""
    authorize_within: float = 30.0
    """Seconds that a client has for a first message with a token that is valid, where there is security."""
    compression: bool = False
    """Whether permessage-deflate is offered. It costs a small processor more than it saves on a local network."""
    close_timeout: float = 2.0
    """Seconds that a client has to answer a close, also when the gate stops."""


@dataclass(frozen=True, slots=True)
class MqttGateSettings:
    """The MQTT gate."""

    root: str = "sepa/gateway"
    """What all its topics begin with."""
    max_message: int = 256 * KIB
    """Largest message in bytes that is worked on."""
    max_result: int = 512 * KIB
    """Largest message to a client in bytes."""
    query_timeout: float = 30.0
    """Seconds after which a query is given up."""
    max_clients: int = 100
    """Sessions at a time; for more, one that was silent for `idle_timeout` ends, or the newcomer is answered 429."""
    max_subscriptions: int = 100
    """Subscriptions of one client; more are refused with 429."""
    max_pending_answers: int = 1000
    """Answers that may wait for the broker to take them, for each client; beyond, its session ends."""
    max_waiting: int = 2 * MIB
    """Bytes of answers that may wait for one client, each query in work counted with `max_result`; beyond, no more are
    begun."""
    max_unmerged: int = 1 * MIB
    """Bytes of notifications that may wait for one client; beyond, its notifications are merged."""
    merge_after: float = 1.0
    """Seconds that a notification may wait for one client; then those of its subscription that wait are merged."""
    max_pending_requests: int = 100
    """Requests of one client that may be in work, and that may wait; more are answered 429."""
    idle_timeout: float = 300.0
    """Seconds after which a client is given up that says nothing and has not said that it has a will."""
    status_interval: float = 30.0
    """Seconds between two messages on how the gateway is."""
    queries_dir: Path | None = None
    """Where the standing queries are."""
    query_interval: float = 1.0
    """Seconds between two messages with the result of a standing query."""
    stop_timeout: float = 1.0
    """Seconds that the broker has to take the last messages when the gate stops."""


@dataclass(frozen=True, slots=True)
class CoapGateSettings:
    """The CoAP gate."""

    host: str = "127.0.0.1"
    port: int = 5683
    """0 is any free port."""
    plain: bool = True
    """Whether requests are taken that are not protected with OSCORE."""
    max_body: int = 256 * KIB
    """Largest request body in bytes, all blocks together; larger ones are answered 4.13."""
    max_result: int = 512 * KIB
    """Largest result of a query in bytes; the evaluation of a larger one is given up and answered 4.13."""
    query_timeout: float = 30.0
    """Seconds after which a query is given up."""
    max_blocks: int = 8 * MIB
    """Bytes of requests, and as many of answers, that are kept while clients send and fetch them in blocks."""
    max_subscriptions: int = 100
    """Subscriptions of all clients together; one has as many as it leaves to others, and is refused more with 4.29."""
    max_pending_requests: int = 100
    """Requests in work, shared likewise."""
    follow_within: float = 30.0
    """Seconds that a subscription waits for an observer, the first or another one; then it ends."""
    ping_interval: float = 30.0
    """Seconds between two looks whether an observer is there."""
