"""UDP endpoint that tracks the acknowledgements of its clients."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import socket
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from aiocoap import Code, Context, Message
from aiocoap.interfaces import Resource
from aiocoap.message import Direction
from aiocoap.messagemanager import MessageManager
from aiocoap.numbers.constants import TransportTuning
from aiocoap.numbers.types import Type
from aiocoap.tokenmanager import TokenManager
from aiocoap.transports.udp6 import MessageInterfaceUDP6, UDP6EndpointAddress

from edge.gates.coap.deduplication import Deduplication
from edge.gates.coap.formats import diagnosed

Remote = Any
"""Address of a client in the library's form, or a `Peer`."""

_HEADER: Final = 4
"""Bytes before the token (RFC 7252, section 3)."""
_LOCAL_ADDRESS: Final = (socket.IPPROTO_IPV6, socket.IPV6_PKTINFO)
"""Ancillary data with the local address of a received datagram (RFC 3542, section 6.2)."""
_ATTEMPTS: Final = 10
"""Attempts to send a datagram."""
_MAX_RECENT: Final = 4 * 1024 * 1024
"""Bytes of remembered requests and responses; enough for the last 2,000 to 4,000."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A client with OSCORE, independent of its address: the remote of its decrypted requests."""

    blockwise_key: Hashable
    """Identifies all blocks of this client."""
    authorization: str
    """Its credential for the guard."""
    address: Any
    """Source address of its datagrams."""

    maximum_payload_size: ClassVar[int] = 1024
    maximum_block_size_exp: ClassVar[int] = 6


class Endpoint:
    """A CoAP server on one UDP socket."""

    def __init__(self, site: Resource) -> None:
        logger = _quiet()
        self._context = Context(serversite=site, loggername=logger.name)
        self._manager = _Manager(TokenManager(self._context))

    async def open(self, host: str, port: int) -> int:
        """Listen. Returns the port. Raises `OSError` if the address is not available."""
        port = _free(host, port)
        manager, context = self._manager, self._context
        manager.message_interface = await _Socket.create_server_transport_endpoint(
            manager, log=context.log, loop=context.loop, bind=(host, port), multicast=[]
        )
        manager.token_manager.token_interface = manager
        context.request_interfaces.append(manager.token_manager)
        return port

    async def close(self) -> None:
        """Stop listening; pending requests are dropped."""
        if self._context.request_interfaces:
            await self._context.shutdown()

    def busy(self, remote: Remote) -> bool:
        """Whether a message to a client is not acknowledged yet."""
        return self._manager.busy(_address(remote))

    async def free(self, remote: Remote) -> None:
        """Wait until the client has acknowledged all messages, or they timed out."""
        await self._manager.free(_address(remote))

    def ping(self, remote: Remote) -> None:
        """Check whether a client is reachable (RFC 7252, section 4.3); if not, its observations end after a while."""
        message = Message(_mtype=Type.CON, code=Code.EMPTY)
        message.remote = _address(remote)
        self._manager.send_message(message, _nothing)


class _Socket(MessageInterfaceUDP6):  # type: ignore[misc]  # the library has no types
    """The library's socket, with errors of one client isolated from others.

    On Linux, a send can fail because of an earlier datagram, perhaps to another client; then nothing is sent. The
    socket's error queue names the failed client (ip(7), IP_RECVERR). The send is therefore repeated.
    """

    _failure: Exception | None = None

    def send(self, message: Message) -> None:
        for _ in range(_ATTEMPTS):
            self._failure = None
            super().send(message)
            if self._failure is None:
                return
        # Deferred: the library fails if a client is lost while a message to it is being sent.
        asyncio.get_running_loop().call_soon(self._ctx.dispatch_error, self._failure, message.remote)

    def error_received(self, exc: Exception) -> None:
        self._failure = exc

    def datagram_msg_received(self, data: bytes, ancdata: Any, flags: int, address: Any) -> None:  # noqa: ANN401
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
        answer = diagnosed(Code.BAD_OPTION, "Paths and parameters are UTF-8")
        answer.direction, answer.remote, answer.token = Direction.OUTGOING, remote, request.token
        if request.mtype is Type.CON:
            answer.mtype, answer.mid = Type.ACK, request.mid
        else:
            answer.mtype, answer.mid = Type.NON, self._ctx._next_message_id()
        self.send(answer)


class _Manager(MessageManager):  # type: ignore[misc]  # the library has no types
    """The library's message manager, extended by waiting for acknowledgements."""

    def __init__(self, token_manager: TokenManager) -> None:
        super().__init__(token_manager)
        self._waiting: dict[Remote, list[asyncio.Event]] = {}
        self._recent = Deduplication(TransportTuning().EXCHANGE_LIFETIME, _MAX_RECENT)

    async def shutdown(self) -> None:
        self._recent.close()
        await super().shutdown()

    def busy(self, remote: Remote) -> bool:
        """Whether something is not acknowledged: then the library has a backlog for the
        client, perhaps an empty one.
        """
        return remote in self._backlogs

    async def free(self, remote: Remote) -> None:
        while self.busy(remote):
            event = asyncio.Event()
            waiting = self._waiting.setdefault(remote, [])
            waiting.append(event)
            try:
                await event.wait()
            finally:
                waiting.remove(event)
                if not waiting:
                    self._waiting.pop(remote, None)

    def dispatch_error(self, error: Exception, remote: Remote) -> None:
        super().dispatch_error(error, remote)
        self._wake(remote)

    def _remove_exchange(self, message: Message) -> None:
        super()._remove_exchange(message)
        self._wake(message.remote)

    def _deduplicate_message(self, message: Message) -> bool:
        """Whether a request is a duplicate; then send the first response again. The library would keep messages
        forever.
        """
        key, digest = (message.remote, message.mid), _digest(message)
        answer = self._recent.find(key, digest)
        if answer is None:
            self._recent.came(key, digest)
            return False
        if answer and message.mtype is Type.CON:
            again = Message.decode(answer)
            again.remote = message.remote.as_response_address()
            again.direction = Direction.OUTGOING
            self._send_via_transport(again)
        return True

    def _store_response_for_duplicates(self, message: Message) -> None:
        if message.mtype in (Type.ACK, Type.RST):  # other types have message IDs of the gateway, not of a request
            self._recent.answered((message.remote, message.mid), message.encode())

    def _wake(self, remote: Remote) -> None:
        for event in self._waiting.get(remote, ()):
            event.set()


def _digest(message: Message) -> bytes:
    said = bytes([message.code]) + message.token + b"\xff" + message.opt.encode() + b"\xff" + message.payload
    return hashlib.blake2b(said, digest_size=8).digest()


def _address(remote: Remote) -> Any:  # noqa: ANN401 - the library has no types
    return remote.address if isinstance(remote, Peer) else remote


def _free(host: str, port: int) -> int:
    """Return the port if it is free. The library's socket would share it with another gateway."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.bind((host, port))
        return int(probe.getsockname()[1])


def _quiet() -> logging.Logger:
    """Return the library's logger, silenced: lost clients are normal, and protocol errors
    are reported to the client.
    """
    library = logging.getLogger("edge.gates.coap.library")
    library.setLevel(logging.CRITICAL)
    return library


def _nothing() -> None:
    pass
