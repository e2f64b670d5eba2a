"""The way in to the embedded broker: who is not let in never gets as far as amqtt.

amqtt 0.12 looks at the password last: by then it has given the session, the subscriptions and the will of a name to
whoever says that name, and has closed the connection of who had it. So the first packet is read here, and handed on
when it is known whose it is.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from amqtt.errors import NoDataError
from amqtt.mqtt.connack import (
    BAD_USERNAME_PASSWORD,
    IDENTIFIER_REJECTED,
    NOT_AUTHORIZED,
    SERVER_UNAVAILABLE,
    UNACCEPTABLE_PROTOCOL_VERSION,
    ConnackPacket,
)
from amqtt.mqtt.connect import ConnectPacket, ConnectVariableHeader
from amqtt.mqtt.packet import CONNECT, MQTTFixedHeader

from edge.adapters.broker_auth import BETWEEN, BrokerAuth
from edge.adapters.broker_streams import BEGIN, BoundedReader, BoundedWriter
from edge.protocol.errors import EdgeError, Forbidden, Unauthorized

_log = logging.getLogger(__name__)

_LEVEL: Final = 4
"""MQTT 3.1.1, which amqtt speaks."""


class _RefusedError(Exception):
    """A client that may not come in: the code of CONNACK (MQTT 3.1.1, section 3.2.2.3), and why."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


async def let_in(reader: BoundedReader, writer: BoundedWriter, door: BrokerAuth, *, own: bool) -> bool:
    """Have a client come in by a door. False: it may not, and has been told. `own`: it is one of the gateway's."""
    try:
        connect = await asyncio.wait_for(_connect(reader), BEGIN)
        _admit(connect, writer, door)
        if not own:
            # What was allowed in a session is not found by who comes next.
            connect.clean_session_flag = True
        reader.put_back(connect.to_bytes())
    except _RefusedError as refused:
        _log.info("broker.client_refused", extra={"reason": str(refused)})
        writer.write(ConnackPacket.build(0, refused.code).to_bytes())
        await writer.drain()
        return False
    except Exception as error:  # noqa: BLE001 - whatever was sent, it was no way to come in
        _log.info("broker.client_refused", extra={"reason": f"no packet CONNECT: {error}"})
        return False
    return True


async def _connect(reader: BoundedReader) -> ConnectPacket:
    header = await MQTTFixedHeader.from_stream(reader)
    if header is None or header.packet_type != CONNECT:
        raise NoDataError("the first packet is another")
    about = await ConnectVariableHeader.from_stream(reader, header)
    if about.proto_level != _LEVEL:
        raise _RefusedError(UNACCEPTABLE_PROTOCOL_VERSION, f"This broker does not speak level {about.proto_level}")
    return await ConnectPacket.from_stream(reader, header, about)


def _admit(connect: ConnectPacket, writer: BoundedWriter, door: BrokerAuth) -> None:
    """Find out who this is, and write it into the packet, where the password was."""
    payload = connect.payload
    try:
        writer.visitor = visitor = door.admit(payload.password, writer.cut)
        if connect.will_flag and not visitor.may_publish(payload.will_topic or ""):
            raise Forbidden(f'The client "{visitor.name}" may not have a will on "{payload.will_topic}"')
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
        writer.session = payload.client_id = f"{visitor.name}{BETWEEN}{payload.client_id}"
