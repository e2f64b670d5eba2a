"""Private names of aiocoap's UDP server. Checked with aiocoap 0.4.17.

The library reports neither acknowledgements nor failed datagrams to the application, and it keeps each message for
EXCHANGE_LIFETIME without a limit (https://github.com/chrysn/aiocoap/issues/183).
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any, Final

from aiocoap import Code, Message
from aiocoap.message import Direction
from aiocoap.messagemanager import MessageManager
from aiocoap.numbers.types import Type
from aiocoap.transports.udp6 import MessageInterfaceUDP6, UDP6EndpointAddress

Remote = Any
"""Address of a client in the library's form."""

_HEADER: Final = 4
"""Bytes before the token (RFC 7252, section 3)."""
_LOCAL_ADDRESS: Final = (socket.IPPROTO_IPV6, socket.IPV6_PKTINFO)
"""Ancillary data with the local address of a received datagram (RFC 3542, section 6.2)."""
_ATTEMPTS: Final = 10
"""Attempts to send a datagram."""


class UdpSocket(MessageInterfaceUDP6):  # type: ignore[misc]  # the library has no types
    """The library's socket, with errors of one client isolated from others.

    On Linux, a send can fail because of an earlier datagram, perhaps to another client; then nothing is sent. The
    socket's error queue names the failed client (ip(7), IP_RECVERR). The send is therefore repeated.
    """

    _failure: Exception | None = None

    def refusal_of_text(self) -> Message:
        """Return the response to a request with an option that is not UTF-8."""
        return Message(code=Code.BAD_OPTION)

    def send(self, message: Message) -> None:
        """Send a message. The manager learns of a failure later: it cannot handle one while it sends."""
        for _ in range(_ATTEMPTS):
            self._failure = None
            super().send(message)
            if self._failure is None:
                return
        asyncio.get_running_loop().call_soon(self._ctx.dispatch_error, self._failure, message.remote)

    def error_received(self, exc: Exception) -> None:
        """Note that a send has failed."""
        self._failure = exc

    def datagram_msg_received(self, data: bytes, ancdata: Any, flags: int, address: Any) -> None:  # noqa: ANN401
        """Process a datagram."""
        # The library drops invalid messages, except text that is not UTF-8: that exception reaches the event loop.
        try:
            super().datagram_msg_received(data, ancdata, flags, address)
        except UnicodeDecodeError:
            local = next((found for level, kind, found in ancdata if (level, kind) == _LOCAL_ADDRESS), None)
            self._refuse_text(data, UDP6EndpointAddress(address, self, pktinfo=local))

    def _refuse_text(self, data: bytes, remote: Remote) -> None:
        """Reject a critical option with invalid text: it counts as not understood (RFC 7252, section 5.4.1)."""
        request = Message.decode(data[: _HEADER + (data[0] & 0x0F)])
        if not request.code.is_request() or request.mtype not in (Type.CON, Type.NON):
            return
        answer = self.refusal_of_text()
        answer.direction, answer.remote, answer.token = Direction.OUTGOING, remote, request.token
        if request.mtype is Type.CON:
            answer.mtype, answer.mid = Type.ACK, request.mid
        else:
            answer.mtype, answer.mid = Type.NON, self._ctx._next_message_id()
        self.send(answer)


class HookedManager(MessageManager):  # type: ignore[misc]  # the library has no types
    """The library's message manager, with methods to override for acknowledgements and duplicates."""

    def exchange_ended(self, remote: Remote) -> None:
        """A message to a client was acknowledged, or was given up."""

    def duplicate_of(self, request: Message) -> bytes | None:
        """Return the encoded response if a message is a duplicate, empty without one; None: it is new."""
        raise NotImplementedError

    def responded(self, response: Message) -> None:
        """Take the response to a request with the same message ID, for its duplicates."""

    def busy(self, remote: Remote) -> bool:
        """Whether something is not acknowledged: then the library has a backlog for the client, perhaps an empty
        one.
        """
        return remote in self._backlogs

    def dispatch_error(self, error: Exception, remote: Remote) -> None:
        """Give up the messages to a client that is not reachable."""
        super().dispatch_error(error, remote)
        self.exchange_ended(remote)

    def _remove_exchange(self, message: Message) -> None:
        super()._remove_exchange(message)
        self.exchange_ended(message.remote)

    def _deduplicate_message(self, message: Message) -> bool:
        """Whether a request is a duplicate; then send the first response again."""
        answer = self.duplicate_of(message)
        if answer is None:
            return False
        if answer and message.mtype is Type.CON:
            again = Message.decode(answer)
            again.remote = message.remote.as_response_address()
            again.direction = Direction.OUTGOING
            self._send_via_transport(again)
        return True

    def _store_response_for_duplicates(self, message: Message) -> None:
        if message.mtype in (Type.ACK, Type.RST):  # other types have message IDs of the gateway, not of a request
            self.responded(message)


def ping(remote: Remote) -> Message:
    """Return a message that checks whether a client is reachable (RFC 7252, section 4.3)."""
    message = Message(_mtype=Type.CON, code=Code.EMPTY)
    message.remote = remote
    return message


def block_of(answer: Message, number: int, exponent: int, most: int) -> Message:
    """Return a block of a response. `exponent`: of the block size; `most`: bytes of the largest payload."""
    return answer._extract_block(number, exponent, most)
