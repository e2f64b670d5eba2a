"""The embedded MQTT broker, so that one command is enough: amqtt, in memory, with bounds."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from functools import partial
from ssl import SSLContext
from typing import TYPE_CHECKING, Any

from edge.adapters.broker_auth import BrokerAuth, OwnClientsAuth
from edge.adapters.broker_backlog import Backlog
from edge.adapters.settings import BrokerSettings
from edge.listener import AT_ONCE, HANDSHAKE, Listener
from edge.unlink import Unlink

if TYPE_CHECKING:
    from edge.adapters.broker_core import GuardedBroker
    from edge.adapters.broker_streams import BoundedReader, BoundedWriter

_log = logging.getLogger(__name__)

_LISTENER = "default"
_LOOK = 0.01
"""Seconds between two looks at what is under way."""
_PATIENCE = 1.0
"""Seconds that amqtt gets to end."""


class EmbeddedBroker:
    """An MQTT 3.1.1 broker in the running event loop.

    It keeps nothing on disk, and acknowledges a message of QoS 1 or 2 when it has it in memory. Where a reading must
    survive a power cut of the gateway from the moment it was acknowledged, use a broker of its own (Mosquitto).
    """

    def __init__(self, settings: BrokerSettings, door: BrokerAuth | None = None) -> None:
        """Without `door` everybody may come in, and may say and hear everything."""
        self._settings = settings
        self._broker: GuardedBroker | None = None
        self._door = door
        self._own_door = OwnClientsAuth()
        self._port = settings.port
        self._own_port = 0
        self._own: asyncio.Server | None = None
        self._server: asyncio.Server | None = None
        self._secure: asyncio.Server | None = None
        self._secure_at: tuple[str, int, SSLContext] | None = None
        self._clients: set[asyncio.Task[None]] = set()
        self._writers: set[BoundedWriter] = set()
        """Of the devices' connections."""
        self._backlog = Backlog(settings.max_queued_bytes)
        self._closing = False

    @property
    def refused(self) -> int:
        """Messages and subscriptions of clients that may not have them."""
        return 0 if self._broker is None else self._broker.refused

    @property
    def port(self) -> int:
        """The port that devices connect to, also where the setting is 0."""
        return self._port

    @property
    def url(self) -> str:
        """Where devices connect."""
        return f"mqtt://{self._settings.host}:{self.port}"

    @property
    def own_secret(self) -> str:
        """The password of the gateway's own clients."""
        return self._own_door.secret

    @property
    def own_url(self) -> str:
        """Where the gateway's own clients connect: before devices do, and until all that these said is taken."""
        return f"mqtt://127.0.0.1:{self._own_port}"

    @property
    def secure_port(self) -> int:
        """The port with TLS; 0: there is none."""
        return 0 if self._secure_at is None else self._secure_at[1]

    async def start(self) -> None:
        """Serve the gateway's own clients."""
        # Late: a gateway with a broker of its own never needs these 8 MB.
        from amqtt.contexts import BrokerConfig, ListenerConfig, ListenerType

        from edge.adapters.broker_core import GuardedBroker
        from edge.adapters.broker_state import use_connection_states

        use_connection_states()
        for name in ("amqtt", "transitions"):
            logging.getLogger(name).setLevel(logging.ERROR)
        config = BrokerConfig(
            listeners={_LISTENER: ListenerConfig(type=ListenerType.EXTERNAL)},
            # Of amqtt's own plug-ins none: two log every packet, one publishes $SYS topics with psutil every 20 s.
            plugins={
                "edge.adapters.broker_plugins.AnonymousPlugin": {},
                "edge.adapters.broker_plugins.RetainedPlugin": {
                    "limit": self._settings.max_retained,
                    "max_bytes": self._settings.max_retained_bytes,
                },
            },
        )
        self._closing = False
        self._broker = GuardedBroker(config)
        await self._broker.start()
        self._own = await asyncio.start_server(
            self._own_connected, "127.0.0.1", self._own_port, start_serving=False
        )  # known before it serves, so that `stop` closes it if this is cancelled
        self._own_port = _port(self._own)
        await self._own.start_serving()

    async def open(self) -> None:
        """Let devices in: what they are told was taken has somebody to take it by now. Raises OSError."""
        self._server, self._port = await self._listen(self._settings.host, self._port)
        _log.info("broker.started", extra={"url": self.url})

    async def open_secure(self, host: str, port: int, tls: SSLContext) -> int:
        """Let devices in over TLS, too. Returns the port. Raises OSError."""
        self._secure, found = await self._listen(host, port, ssl=tls, ssl_handshake_timeout=HANDSHAKE)
        self._secure_at = host, found, tls
        return found

    async def restart(self) -> None:
        """Stop, and serve anew where it was, without what it remembered. Raises OSError."""
        await self.stop()
        await self.start()
        await self.open()
        if self._secure_at is not None:
            await self.open_secure(*self._secure_at)

    async def drain(self, timeout: float) -> None:  # noqa: ASYNC109 - it is no error
        """Cut the devices' connections, and wait until the gateway's own clients have what was acknowledged to them.

        What a device is not told was taken, it sends again. `timeout` in seconds.
        """
        self._closing = True  # also to who has been at the door for a while
        broker = self._broker
        if broker is None:
            return
        for server in (self._server, self._secure):
            if server is not None:
                server.close()
        for writer in self._writers:
            writer.cut()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while self._under_way(broker):  # noqa: ASYNC110 - amqtt tells nobody when it is
                    await asyncio.sleep(_LOOK)

    def _under_way(self, broker: GuardedBroker) -> bool:
        """Whether devices' messages are: a connection ends when they are passed on, a task when one is acknowledged."""
        return bool(self._writers) or not (
            broker._broadcast_queue.empty() and all(task.done() for task in broker._tasks_queue)
        )

    async def stop(self) -> None:
        """Close all connections and stop listening."""
        servers = [server for server in (self._server, self._secure, self._own) if server is not None]
        broker, self._broker = self._broker, None
        for server in servers:
            server.close()
        if broker is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PATIENCE):  # it waits for acknowledgements of clients that have gone
                    await broker.shutdown()
        clients = list(self._clients)
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
        for server in servers:
            await server.wait_closed()

    async def _listen(self, host: str, port: int, **options: Any) -> tuple[asyncio.Server, int]:  # noqa: ANN401
        """Let devices in at a port. Returns the port, too. Raises OSError."""
        listener = Listener(host, port, self._settings.max_connections, self._settings.max_connections_of_one)
        connected = partial(self._device_connected, listener)
        with listener.closed_on_failure():
            return await asyncio.start_server(connected, sock=listener, backlog=AT_ONCE, **options), listener.port

    async def _own_connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._connected(reader, writer, self._own_door, lambda: None)

    async def _device_connected(
        self, listener: Listener, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        address = writer.get_extra_info("peername")
        await self._connected(reader, writer, self._door, partial(listener.known, address))

    async def _connected(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        door: BrokerAuth | None,
        known: Callable[[], None],
    ) -> None:
        from edge.adapters.broker_connect import let_in
        from edge.adapters.broker_streams import BoundedReader, BoundedWriter

        client = asyncio.current_task()
        if client is None:
            raise RuntimeError("a connection handler runs in a task")
        settings, own = self._settings, door is self._own_door
        unlink = Unlink(writer.transport)
        bounded_reader = BoundedReader(reader, settings.max_message, None if own else self._backlog)
        bounded = BoundedWriter(writer, None, self._backlog) if own else BoundedWriter(writer, settings.max_unread)
        self._clients.add(client)
        try:
            if not await bounded_reader.begins():
                return
            if door is None or await let_in(bounded_reader, bounded, door, own=own):
                known()
                await self._serve(bounded_reader, bounded, own=own)
        finally:
            self._clients.discard(client)
            bounded.visitor.leave()
            writer.close()
            unlink()

    async def _serve(self, reader: BoundedReader, writer: BoundedWriter, *, own: bool) -> None:
        if self._broker is None or (self._closing and not own):
            return
        if not own:
            if len(self._writers) >= self._settings.max_connections:
                _log.warning("broker.connection_refused", extra={"connections": len(self._writers)})
                return
            for other in self._writers:
                if writer.session and other.session == writer.session:
                    other.cut()  # MQTT 3.1.1, 3.1.4: who connects again under a name replaces himself
            self._writers.add(writer)
        try:
            await self._broker.external_connected(reader, writer, _LISTENER)
        finally:
            self._writers.discard(writer)


def _port(server: asyncio.Server) -> int:
    port: int = server.sockets[0].getsockname()[1]
    return port
