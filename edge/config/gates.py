"""Settings of the gates: who may ask, how much, and where they listen."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import field_validator

from edge.config.keys import KIB, MIB, BindHost, Host, OptionalPath, Port, key
from edge.config.section import Section


def _max_waiting(default: int) -> Any:  # noqa: ANN401 - as of `key`
    return key(
        default,
        "Answers that may wait for one client, each query that is being evaluated counted as max_result. With more "
        "no further query is begun, and with more that wait no message is read.",
        unit="bytes",
        minimum=0,
    )


def _max_unmerged() -> Any:  # noqa: ANN401 - as of `key`
    return key(
        1 * MIB, "Notifications that may wait for one client; with more they are merged.", unit="bytes", minimum=0
    )


def _merge_after() -> Any:  # noqa: ANN401 - as of `key`
    return key(
        1.0,
        "Time that a notification may wait for one client; then those of its subscription that wait are merged.",
        unit="s",
        minimum=0,
        maximum=3600,
    )


class HttpSettings(Section):
    """The HTTP gate: SPARQL query and update, the page, health and metrics."""

    host: BindHost = key("127.0.0.1", "Address to listen on without encryption: a loopback address.")
    port: Port = key(8000, "TCP port to listen on. 0 is any free port.")
    max_body: int = key(10 * MIB, "Largest request body; larger ones are answered 413.", unit="bytes", minimum=KIB)
    max_result: int = key(
        64 * MIB, "Largest result of a query; a larger one is given up and answered 413.", unit="bytes", minimum=KIB
    )
    cors_origins: tuple[str, ...] = key(
        ("loopback",),
        'Origins whose web pages may call the gateway (CORS), such as "https://app.example.org". "loopback" are those '
        'of this machine, "*" is every origin; those of the gateway itself always may.',
    )
    hosts: tuple[str, ...] = key(
        (),
        'Names by which the plain port may be asked for, beside "localhost" and loopback addresses: those of a proxy '
        'in front of it, say. "*" is any name, which lets in every web page that is open on this machine.',
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
    body_timeout: float = key(
        300.0, "Time a client has to send a whole body; then it is answered 408.", unit="s", minimum=0.1, maximum=86_400
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
    max_waiting: int = _max_waiting(16 * MIB)
    max_unmerged: int = _max_unmerged()
    merge_after: float = _merge_after()
    max_pending_requests: int = key(
        100, "Requests of one connection in work; no more are read until some are answered.", minimum=1
    )
    origins: tuple[str, ...] = key(
        ("loopback",),
        'Origins whose web pages may subscribe. "loopback" are those of this machine, "*" is every origin; those of '
        "the gateway itself always may.",
    )
    hosts: tuple[str, ...] = key((), "As http.hosts.")
    authorize_within: float = key(
        30.0,
        "Time a client has for a first message with a token that is valid, where there is security; then its "
        "connection is closed.",
        unit="s",
        minimum=0.1,
        maximum=86_400,
    )
    compression: bool = key(
        False,
        "Whether permessage-deflate is offered. It costs a small processor more than it saves on a local network.",
    )


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
    max_sent: int = key(
        256 * KIB,
        "Notifications sent last on one connection that are kept, for they may be lost with it. Who has missed more "
        "begins anew.",
        unit="bytes",
        minimum=0,
    )


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
    max_clients: int = key(
        100,
        "Clients with a session at a time; for more, one that was silent for idle_timeout gives way.",
        minimum=1,
        maximum=10_000,
    )
    max_subscriptions: int = key(100, "Subscriptions of one client; more are refused.", minimum=1)
    max_pending_answers: int = key(
        1000, "Answers to one client that may wait for the broker; with more its session ends.", minimum=1
    )
    max_waiting: int = _max_waiting(2 * MIB)
    max_unmerged: int = _max_unmerged()
    merge_after: float = _merge_after()
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
    max_subscriptions: int = key(
        100, "Subscriptions of all clients together; one client has as many as it leaves to others.", minimum=1
    )
    max_pending_requests: int = key(100, "Requests in work; one client has as many as it leaves to others.", minimum=1)
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
    oauth_rate: float = key(
        5.0,
        "Registrations and requests for tokens a second of one address, or of one connection on this machine, in the "
        "long run; more are answered 429. 0: any number.",
        minimum=0,
        maximum=1_000_000,
    )
    oauth_burst: int = key(20, "Of these beyond that at once.", minimum=1, maximum=10_000_000)
    max_client_bytes: int = key(
        32 * MIB,
        "Memory that is held for one client over all gates: texts of its requests and subscriptions, results that its "
        "subscriptions keep, messages that are not whole yet, CoAP transfers in blocks, unread and missed "
        "notifications. Requests beyond it are answered 429, subscriptions that grow beyond it end; over MQTT and "
        "WebSocket a client that does not read is disconnected.",
        unit="bytes",
        minimum=MIB,
    )
    max_total_bytes: int = key(
        128 * MIB,
        "The same for all clients together. One client may hold as much as it leaves to others.",
        unit="bytes",
        minimum=2 * MIB,
    )
