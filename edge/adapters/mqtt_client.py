"""A paho-mqtt client that acknowledges when it is told to, for all qualities of service, and whose loop is ours."""

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
"""Seconds for the TCP connection and the TLS handshake."""


class AcknowledgingClient(Client):
    """Hands over a message of QoS 2 when it comes, and confirms it (PUBREC) with `acknowledge`.

    Out of the box paho confirms QoS 2 before anyone has seen the message, and with manual acknowledgements leaves a
    PUBREL after a restart unanswered for ever. Confirming after the commit is MQTT 3.1.1 section 4.3.3, method B.
    """

    def acknowledge(self, mid: int, qos: int) -> None:
        """The message is taken care of: PUBACK (QoS 1) or PUBREC (QoS 2). From any thread."""
        if qos == 1:
            self.ack(mid, 1)
        elif qos == 2:
            super()._send_pubrec(mid)

    def _send_pubrec(self, mid: int) -> MQTTErrorCode:
        """Not yet: `_handle_publish` would confirm what nobody has seen."""
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
        """The handshake, which closes the socket if it fails; paho leaves that to the garbage collector."""
        context = self._ssl_context
        if context is None:
            raise ValueError("TLS is not set up")
        return context.wrap_socket(tcp_sock, server_hostname=self._host)


def make_client(settings: MqttSettings) -> AcknowledgingClient:
    """A client that knows where to connect and as whom. Raises OSError (ssl.SSLError included) on bad files."""
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
    # With this callback set, acknowledgements from other threads are queued for the loop's thread, which they wake.
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
    """Ask the broker for messages of these topic filters. Returns the packet identifier of the request."""
    if settings.version == "5":
        # Retained messages once per subscription: after a restart they would only repeat what the graph says.
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
    """Small packets leave one by one: else the second of two waits 40 ms for TCP to acknowledge the first."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _queue_only(*_: object) -> None:
    pass


def why_lost(flags: DisconnectFlags, reason: ReasonCode) -> str:
    """Why a connection ended; empty: as it was to. Without a word of the broker the library calls that unspecified."""
    if not reason.is_failure:
        return ""
    if not flags.is_disconnect_packet_from_server and reason == "Unspecified error":
        return "the connection broke, or the broker closed it"
    return str(reason)


def close_sockets(client: Client) -> None:
    """Close what is open after the end: a connection that was being made when it was given up, and the pair of sockets
    by which paho wakes itself, which it leaves to the garbage collector."""
    client._reset_sockets()
