"""CONNECT handling of the embedded broker: clients are authenticated before amqtt sees them.

amqtt 0.12 checks the password last. By then, it has closed the connection of the previous client with the same
identifier, and has handed out its session, subscriptions and will. This module therefore reads the first packet
itself, and passes it on after authentication. It also does so if clients need no credentials, to bound the time.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from amqtt.adapters import BufferReader
from amqtt.mqtt.connack import (
    BAD_USERNAME_PASSWORD,
    IDENTIFIER_REJECTED,
    NOT_AUTHORIZED,
    SERVER_UNAVAILABLE,
    UNACCEPTABLE_PROTOCOL_VERSION,
    ConnackPacket,
)
from amqtt.mqtt.connect import ConnectPacket, ConnectVariableHeader
from amqtt.mqtt.packet import MQTTFixedHeader

from edge.adapters.broker_auth import BETWEEN, BrokerAuth
from edge.adapters.broker_packets import LEVEL, is_topic
from edge.adapters.broker_streams import BoundedReader, BoundedWriter
from edge.protocol.errors import EdgeError, Forbidden, Unauthorized

_log = logging.getLogger(__name__)

BEGIN: Final = 10.0
"""Seconds for a client to send a complete CONNECT."""


class _RefusedError(Exception):
    """A refused client: the return code of CONNACK (MQTT 3.1.1, section 3.2.2.3), and the reason."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


async def authenticate(
    reader: BoundedReader, writer: BoundedWriter, auth: BrokerAuth | None, *, own: bool, address: str = ""
) -> bool:
    """Receive the CONNECT of a client, and authenticate it. False: it was refused and informed, or sent none.

    `auth` None: every client is accepted. `own`: it is a client of the gateway itself. `address`: of the
    client, for the log.
    """
    try:
        async with asyncio.timeout(BEGIN):
            first = await reader.first()
        if not first:
            return False
        connect = await _parsed(first)
        if auth is not None:
            _admit(connect, writer, auth)
            if not own:
                # A later client with fewer permissions must not inherit the subscriptions of a session.
                connect.clean_session_flag = True
            first = connect.to_bytes()
        if connect.will_flag and not is_topic(connect.will_topic or ""):
            raise _RefusedError(NOT_AUTHORIZED, "The topic of a will may not be empty or have wildcards")
        reader.put_back(first)
        if not own:
            reader.limit_silence(connect.keep_alive, writer.cut)
    except _RefusedError as refused:
        _log.info("broker.client_refused", extra={"address": address, "reason": str(refused)})
        writer.write(ConnackPacket.build(0, refused.code).to_bytes())
        await writer.drain()
        return False
    except TimeoutError:
        reason = f"no complete CONNECT within {BEGIN:g} s"
        _log.info("broker.client_refused", extra={"address": address, "reason": reason})
        return False
    except Exception as error:  # noqa: BLE001 - any malformed packet is refused
        reason = f"the first packet is not a valid CONNECT: {error}"
        _log.info("broker.client_refused", extra={"address": address, "reason": reason})
        return False
    return True


async def _parsed(packet: bytes) -> ConnectPacket:
    reader = BufferReader(packet)
    header = await MQTTFixedHeader.from_stream(reader)
    about = await ConnectVariableHeader.from_stream(reader, header)
    if about.proto_level != LEVEL:
        raise _RefusedError(UNACCEPTABLE_PROTOCOL_VERSION, f"This broker does not speak level {about.proto_level}")
    return await ConnectPacket.from_stream(reader, header, about)


def _admit(connect: ConnectPacket, writer: BoundedWriter, auth: BrokerAuth) -> None:
    """Authenticate the client of a CONNECT packet, and replace the credentials in it by the client name."""
    payload = connect.payload
    try:
        writer.client = client = auth.admit(payload.password, writer.cut)
        if connect.will_flag and not client.may_publish(payload.will_topic or ""):
            raise Forbidden(f'The client "{client.name}" may not have a will on "{payload.will_topic}"')
    except EdgeError as error:
        if isinstance(error, Forbidden) or not payload.password:
            code = NOT_AUTHORIZED
        else:
            code = BAD_USERNAME_PASSWORD if isinstance(error, Unauthorized) else SERVER_UNAVAILABLE
        raise _RefusedError(code, error.description) from None
    connect.username_flag = connect.password_flag = False
    payload.username = payload.password = None
    if payload.client_id_is_random:
        if not connect.clean_session_flag:
            raise _RefusedError(IDENTIFIER_REJECTED, "A session that is kept needs a client identifier")
        payload.client_id = ""
    else:
        writer.session = payload.client_id = f"{client.name}{BETWEEN}{payload.client_id}"
