"""paho-mqtt client with explicit acknowledgements for all qualities of service, run by the adapter's own loop.

Password and TLS files are read for each connection, so that a corrected file needs no restart.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from paho.mqtt.client import Client, DisconnectFlags, MQTTv5, MQTTv311
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from edge.adapters.settings import MqttSettings
from edge.compat.paho import AcknowledgingClient
from edge.protocol.trust import trusting

CONNECT_TIMEOUT = 5.0
"""Timeout of the TCP connection and the TLS handshake in seconds."""


class UnusableFile(OSError):
    """A password or TLS file cannot be used. The text names its setting and the reason."""


def make_client(settings: MqttSettings) -> AcknowledgingClient:
    """Create a client from the settings. Raises `UnusableFile`."""
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
    client.on_socket_open = _at_once
    read_credentials(client, settings)
    url = urlsplit(settings.broker)
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


def read_credentials(client: AcknowledgingClient, settings: MqttSettings) -> None:
    """Read the password and TLS files for the client's next connection. Raises `UnusableFile`."""
    if settings.username:
        client.username_pw_set(settings.username, read_password(settings) or None)
    if urlsplit(settings.broker).scheme == "mqtts":
        client.replace_tls(_tls(settings))


def read_password(settings: MqttSettings) -> str:
    """Return the password, from the settings or the first line of `password_file`. "" means none.

    Raises `UnusableFile`.
    """
    file = settings.password_file
    if file is None:
        return settings.password
    _check("password_file", file)
    try:
        with file.open(encoding="utf-8") as lines:
            return lines.readline().rstrip("\r\n")
    except UnicodeDecodeError:
        raise UnusableFile(f"mqtt.password_file: {file} is not UTF-8 text") from None
    except OSError as error:
        raise _unusable("password_file", file, error) from error


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
    for key in ("ca_file", "cert_file", "key_file"):
        _check(key, getattr(settings, key))
    try:
        context = trusting(settings.ca_file)
    except OSError as error:
        raise _unusable("ca_file", settings.ca_file, error) from error
    if settings.cert_file is not None:
        try:
            context.load_cert_chain(settings.cert_file, settings.key_file, password="")
        except OSError as error:
            raise _unusable("cert_file", settings.cert_file, error) from error
    return context


def _check(key: str, file: Path | None) -> None:
    """Raise `UnusableFile` for a pipe or a directory: opening a pipe without a writer would block the connection."""
    if file is not None and file.exists() and not file.is_file():
        raise UnusableFile(f"mqtt.{key}: {file} is not a regular file")


def _unusable(key: str, file: Path | None, error: OSError) -> UnusableFile:
    return UnusableFile(f"mqtt.{key}: {file} cannot be used: {error.strerror or error}")


def _port(broker: str) -> int:
    url = urlsplit(broker)
    return url.port or (8883 if url.scheme == "mqtts" else 1883)


def _at_once(_: Client, __: object, connection: Any) -> None:  # noqa: ANN401 - paho's name for it is not public
    """Set TCP_NODELAY: else the second of two small packets waits 40 ms for the acknowledgement of the first."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def why_lost(flags: DisconnectFlags, reason: ReasonCode) -> str:
    """Return why a connection ended; empty: as requested. Without a reason of the broker, paho calls it unspecified."""
    if not reason.is_failure:
        return ""
    if not flags.is_disconnect_packet_from_server and reason == "Unspecified error":
        return "the connection broke, or the broker closed it"
    return str(reason)
