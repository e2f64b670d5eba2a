"""A gate with OSCORE clients; such a client, and an attacker on the network path."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiocoap import CON, FETCH, POST, Code, Message
from aiocoap.message import Direction
from aiocoap.oscore import (
    CanProtect,
    CanUnprotect,
    ReplayWindow,
    SecurityContextUtils,
    algorithms,
    hashfunctions,
)
from coap_client import CoapClient, Datagrams

from edge.cli.oscore import as_aiocoap
from edge.gates.coap import CoapGate
from edge.gates.settings import CoapGateSettings
from edge.metrics import Metrics
from edge.security.clients import Rights
from edge.security.oscore import SharedContext
from edge.security.security import Security
from edge.security.settings import SecuritySettings
from tests.support.settings import unchecked

ASK = b"ASK {}"


class ProtectedGate:
    """A gate over the clients in a data directory."""

    def __init__(self, port: int, security: Security, metrics: Metrics, came: list[tuple[str, bytes]]) -> None:
        self.port = port
        self.security = security
        self.metrics = metrics
        self.came = came

    @property
    def url(self) -> str:
        return f"coap://127.0.0.1:{self.port}"

    def keys(self, identity: str = "device", rights: Rights | None = None) -> SharedContext:
        self.security.clients.allow(identity, rights or Rights())
        return self.security.share(identity)

    @asynccontextmanager
    async def client(self, keys: SharedContext, directory: Path) -> AsyncIterator[CoapClient]:
        """Return the library's client with the file that `edge clients oscore --form aiocoap` prints."""
        directory.mkdir()  # noqa: ASYNC240
        (directory / "secret.json").write_text(as_aiocoap(keys))
        async with CoapClient(self.url, "oscore") as client:
            credentials = {f"{self.url}/*": {"oscore": {"basedir": str(directory)}}}
            client.context.client_credentials.load_from_dict(credentials)
            yield client


@asynccontextmanager
async def protected_gate(
    engine: Any, data_dir: Path, plain: bool = True, **limits: Any
) -> AsyncIterator[ProtectedGate]:
    metrics, came = Metrics(), []

    async def readings(topic: str, payload: bytes) -> int:
        came.append((topic, payload))
        return 1

    security = Security(data_dir, SecuritySettings())
    settings = unchecked(CoapGateSettings, port=0, **limits)
    gate = CoapGate(engine, settings, metrics, readings, guard=security.guard, contexts=security.contexts, plain=plain)
    watch = asyncio.create_task(security.guard.run())
    port = await gate.start()
    try:
        yield ProtectedGate(port, security, metrics, came)
    finally:
        await gate.stop()
        watch.cancel()
        await asyncio.wait([watch])
        security.close()


class Keys(CanProtect, CanUnprotect, SecurityContextUtils):
    """The device's side of a security context, in memory."""

    id_context = None
    echo_recovery = None
    alg_aead = algorithms["AES-CCM-16-64-128"]
    hashfun = hashfunctions["sha256"]

    def __init__(self, keys: SharedContext, sent: int = 0) -> None:
        self.sender_id, self.recipient_id = keys.kid, keys.gateway_id
        self.derive_keys(keys.salt, keys.secret)
        self.sender_sequence_number = sent
        self.recipient_replay_window = ReplayWindow(32, lambda: None)
        self.recipient_replay_window.initialize_empty()

    def post_seqnoincrease(self) -> None:
        pass


class Device:
    """A client that encrypts and decrypts its messages one by one."""

    def __init__(self, port: int, keys: SharedContext, sent: int = 0) -> None:
        self.port = port
        self.shared = keys
        self.keys = Keys(keys, sent)
        self.line = Datagrams(port)
        self.numbers: list[int] = []
        """Partial IVs that the gateway has used."""

    def seal(self, code: Any, path: str, payload: bytes = b"", **options: Any) -> tuple[Message, Any]:
        message = Message(code=code, payload=payload)
        message.opt.uri_path = [part for part in path.split("/") if part]
        for name, value in options.items():
            setattr(message.opt, name, value)
        return self.keys.protect(message)

    def open(self, answer: Message, request: Any) -> Message:
        answer.direction = Direction.INCOMING
        option = answer.opt.oscore
        if option and option[0] & 7:
            self.numbers.append(int.from_bytes(option[1 : 1 + (option[0] & 7)], "big"))
        opened, _ = self.keys.unprotect(answer, request)
        return opened

    async def ask(self, code: Any, path: str, payload: bytes = b"", **options: Any) -> Message:
        """Return the answer; if the gate asks for a proof of freshness, send it (RFC 8613, B.1.2)."""
        sealed, request = self.seal(code, path, payload, **options)
        answer = self.open(await self.exchange(sealed), request)
        if answer.code == Code.UNAUTHORIZED and answer.opt.echo is not None:
            sealed, request = self.seal(code, path, payload, echo=answer.opt.echo, **options)
            answer = self.open(await self.exchange(sealed), request)
        return answer

    async def exchange(self, message: Message, line: Datagrams | None = None) -> Message:
        """Send a message unchanged. Return the answer unchanged."""
        line = line or self.line
        line.send_message(message)
        while (answer := await line.receive()).code == Code.EMPTY:
            pass
        if answer.mtype == CON:
            line.acknowledge(answer)
        return answer

    async def send_from_new_address(self, message: Message) -> Message:
        """Return the answer to another client that sends this message."""
        return await self.exchange(message, Datagrams(self.port))


def query(results: Message) -> dict[str, Any]:
    return json.loads(results.payload)


__all__ = ["ASK", "FETCH", "POST", "Device", "Keys", "ProtectedGate", "protected_gate", "query"]
