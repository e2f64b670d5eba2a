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
from aiocoap.numbers.constants import TransportTuning
from aiocoap.tokenmanager import TokenManager

from edge.compat.aiocoap import HookedManager, UdpSocket, ping
from edge.gates.coap.deduplication import Deduplication
from edge.gates.coap.formats import diagnosed

Remote = Any
"""Address of a client in the library's form, or a `Peer`."""

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
        self._manager.send_message(ping(_address(remote)), _nothing)


class _Socket(UdpSocket):
    def refusal_of_text(self) -> Message:
        return diagnosed(Code.BAD_OPTION, "Paths and parameters are UTF-8")


class _Manager(HookedManager):
    """The library's message manager, extended by waiting for acknowledgements."""

    def __init__(self, token_manager: TokenManager) -> None:
        super().__init__(token_manager)
        self._waiting: dict[Remote, list[asyncio.Event]] = {}
        self._recent = Deduplication(TransportTuning().EXCHANGE_LIFETIME, _MAX_RECENT)

    async def shutdown(self) -> None:
        self._recent.close()
        await super().shutdown()

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

    def exchange_ended(self, remote: Remote) -> None:
        for event in self._waiting.get(remote, ()):
            event.set()

    def duplicate_of(self, request: Message) -> bytes | None:
        # Message ids are unique per endpoint only (RFC 7252, section 4.4).
        key, digest = (request.remote, request.mid), _digest(request)
        answer = self._recent.find(key, digest)
        if answer is None:
            self._recent.came(key, digest)
        return answer

    def responded(self, response: Message) -> None:
        self._recent.answered((response.remote, response.mid), response.encode())


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
