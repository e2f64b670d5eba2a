"""paho-mqtt client with explicit acknowledgements for all qualities of service, run by the adapter's own loop."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from paho.mqtt.client import Client, DisconnectFlags, MQTTMessage, MQTTv5, MQTTv311
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from edge.adapters.settings import MqttSettings
from edge.protocol.trust import trusting

CONNECT_TIMEOUT = 5.0
"""Timeout of the TCP connection and the TLS handshake in seconds."""


class AcknowledgingClient(Client):
    """Delivers a message of QoS 2 on arrival, and confirms it (PUBREC) with `acknowledge`.

    By default, paho confirms QoS 2 before the application has seen the message. With manual acknowledgements, it
    never answers a PUBREL after a restart. Confirmation after the commit is method B of MQTT 3.1.1, section 4.3.3.
    """

    def acknowledge(self, mid: int, qos: int) -> None:
        """Acknowledge a message: PUBACK (QoS 1) or PUBREC (QoS 2). Thread-safe."""
        if qos == 1:
            self.ack(mid, 1)
        elif qos == 2:
            super()._send_pubrec(mid)

    def _send_pubrec(self, mid: int) -> MQTTErrorCode:
        """Do nothing: `_handle_publish` would confirm an unseen message."""
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def _handle_publish(self) -> MQTTErrorCode:
        code = super()._handle_publish()
        message: MQTTMessage
        for message in [self._in_messages.pop(mid) for mid in list(self._in_messages)]:
            self._handle_on_message(message)
        return code

    def _handle_pubrel(self) -> MQTTErrorCode:
        return self._send_pubcomp(int.from_bytes(self._in_packet["packet"][:2], "big"))

    def _ssl_wrap_socket(self, tcp_sock: socket.socket) -> ssl.SSLSocket:
        """Run the handshake, and close the socket if it fails; paho leaves that to the garbage collector."""
        context = self._ssl_context
        if context is None:
            raise ValueError("TLS is not set up")
        return context.wrap_socket(tcp_sock, server_hostname=self._host)


def make_client(settings: MqttSettings) -> AcknowledgingClient:
    """Create a client from the settings. Raises `OSError` (including ssl.SSLError) on unusable files."""
    five = settings.version == "5"
    client = AcknowledgingClient(
        CallbackAPIVersion.VERSION2,
        client_id=settings.client_id,
        clean_session=None if five else settings.session_expiry == 0,
        protocol=MQTTv5 if five else MQTTv311,
        reconnect_on_failure=False,
        manual_ack=True,
    )
    client.connect_timeout = CONNECT_TIMEOUT
    # With this callback, acknowledgements of other threads are queued for the loop's thread, which they wake.
    client.on_socket_register_write = _queue_only
    client.on_socket_open = _at_once
    if settings.username:
        client.username_pw_set(settings.username, settings.password or None)
    url = urlsplit(settings.broker)
    if url.scheme == "mqtts":
        client.tls_set_context(_tls(settings))
    properties: Properties | None = None
    if five:
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = settings.session_expiry
        properties.ReceiveMaximum = settings.max_inflight
        client.connect_async(
            url.hostname or "",
            _port(settings.broker),
            settings.keepalive,
            clean_start=settings.session_expiry == 0,
            properties=properties,
        )
    else:
        client.connect_async(url.hostname or "", _port(settings.broker), settings.keepalive)
    return client


def subscribe(client: Client, topics: Iterable[str], settings: MqttSettings) -> int | None:
    """Subscribe to these topic filters. Returns the packet identifier of the request."""
    if settings.version == "5":
        # Retained messages once per subscription: after a restart they only repeat the state of the graph.
        options = SubscribeOptions(qos=settings.qos, retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB)
        _, mid = client.subscribe([(topic, options) for topic in topics])
    else:
        _, mid = client.subscribe([(topic, settings.qos) for topic in topics])
    return mid


def _tls(settings: MqttSettings) -> ssl.SSLContext:
    context = trusting(settings.ca_file)
    if settings.cert_file is not None:
        context.load_cert_chain(settings.cert_file, settings.key_file)
    return context


def _port(broker: str) -> int:
    url = urlsplit(broker)
    return url.port or (8883 if url.scheme == "mqtts" else 1883)


def _at_once(_: Client, __: object, connection: Any) -> None:  # noqa: ANN401 - paho's name for it is not public
    """Set TCP_NODELAY: else the second of two small packets waits 40 ms for the acknowledgement of the first."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _queue_only(*_: object) -> None:
    pass


def why_lost(flags: DisconnectFlags, reason: ReasonCode) -> str:
    """Return why a connection ended; empty: as requested. Without a reason of the broker, paho calls it unspecified."""
    if not reason.is_failure:
        return ""
    if not flags.is_disconnect_packet_from_server and reason == "Unspecified error":
        return "the connection broke, or the broker closed it"
    return str(reason)


def close_sockets(client: Client) -> None:
    """Close remaining sockets: an unfinished connection, and paho's wake-up pair, which it leaves to the garbage
    collector.
    """
    client._reset_sockets()
