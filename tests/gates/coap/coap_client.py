"""CoAP clients for tests: the library's client, and plain datagrams where a test must be independent of the server's
code.
"""

from __future__ import annotations

import asyncio
import json
import socket
import warnings
from typing import Any, ClassVar

import aiocoap
import cbor2
from aiocoap import CON, GET, Code, Message
from aiocoap.numbers.types import ACK, RST

ALL = b"SELECT ?s ?p ?o { ?s ?p ?o }"


class CoapClient:
    """Requests and observations with the library's client."""

    def __init__(self, base: str, *transports: str) -> None:
        self.base = base
        self.context: Any = None
        self._transports = [*transports, "udp6"]

    async def __aenter__(self) -> CoapClient:
        self.context = await aiocoap.Context.create_client_context(transports=self._transports)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.context.shutdown()

    async def ask(self, code: Any, path: str, payload: bytes = b"", **options: Any) -> Message:
        message = Message(code=code, uri=self.base + path, payload=payload)
        for name, value in options.items():
            setattr(message.opt, name, value)
        return await self.send(message)

    async def send(self, message: Message) -> Message:
        return await asyncio.wait_for(self.context.request(message).response, 20)

    async def update(self, text: str) -> None:
        answer = await self.ask(aiocoap.POST, "/update", text.encode())
        assert answer.code == aiocoap.CHANGED, answer.payload

    async def subscribe(self, query: bytes = ALL, path: str = "/subscribe") -> str:
        answer = await self.ask(aiocoap.POST, path, query)
        assert answer.code == aiocoap.CREATED, answer.payload
        return "/" + "/".join(answer.opt.location_path)

    async def observe(self, path: str, extra: Any = (), **options: Any) -> Observation:
        message = Message(code=GET, uri=self.base + path, observe=0, **options)
        for option in extra:
            message.opt.add_option(option)
        observation = Observation(self.context.request(message))
        return await observation.begun()


class Observation:
    """All notifications of an observation, in order."""

    def __init__(self, request: Any) -> None:
        self.request = request
        self.came: asyncio.Queue[Any] = asyncio.Queue()
        with warnings.catch_warnings():
            # The library's iterator drops notifications that are not read at once.
            warnings.simplefilter("ignore", DeprecationWarning)
            request.observation.register_callback(self.came.put_nowait)
            request.observation.register_errback(self.came.put_nowait)

    async def begun(self) -> Observation:
        self.came.put_nowait(await asyncio.wait_for(self.request.response, 20))
        return self

    async def message(self) -> Any:
        return await asyncio.wait_for(self.came.get(), 20)

    async def notification(self) -> dict[str, Any]:
        return body(await self.message())


class Datagrams:
    """A client that sends and receives single messages."""

    open: ClassVar[list[Datagrams]] = []

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.open.append(self)
        self.socket.setblocking(False)
        self.socket.connect((host, port))
        self._number = 0

    def send(self, code: Any, path: str, payload: bytes = b"", *, kind: Any = CON, **options: Any) -> None:
        message = Message(code=code, payload=payload)
        message.opt.uri_path = [part for part in path.split("/") if part]
        for name, value in options.items():
            setattr(message.opt, name, value)
        self.send_message(message, kind)

    def send_message(self, message: Message, kind: Any = CON) -> None:
        self._number += 1
        self.socket.send(message.copy(mtype=kind, mid=self._number, token=b"me").encode())

    async def receive(self) -> Message:
        data = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(self.socket, 65536), 20)
        return Message.decode(data)

    async def ask(self, code: Any, path: str, payload: bytes = b"", **options: Any) -> Message:
        """Return the answer, which arrives with the acknowledgement or, on a loaded machine, after it (RFC 7252,
        5.2.2).
        """
        self.send(code, path, payload, **options)
        while (answer := await self.receive()).code == Code.EMPTY:
            pass
        if answer.mtype == CON:
            self.acknowledge(answer)
        return answer

    def acknowledge(self, message: Message) -> None:
        self.socket.send(Message(code=Code.EMPTY, _mtype=ACK, _mid=message.mid).encode())

    def reset(self, message: Message) -> None:
        self.socket.send(Message(code=Code.EMPTY, _mtype=RST, _mid=message.mid).encode())

    def close(self) -> None:
        self.socket.close()


def body(message: Message) -> dict[str, Any]:
    """Return the content of an answer in either format."""
    return cbor2.loads(message.payload) if message.opt.content_format == 60 else json.loads(message.payload)


def values(results: dict[str, Any], name: str = "o") -> list[str]:
    return sorted(row[name]["value"] for row in results["results"]["bindings"])
