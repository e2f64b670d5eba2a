"""The embedded MQTT broker, so that one command is enough: amqtt, on loopback, in memory, with bounds."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from edge.adapters.settings import BrokerSettings

if TYPE_CHECKING:
    from amqtt.broker import Broker

_log = logging.getLogger(__name__)

_LISTENER = "default"


class EmbeddedBroker:
    """An MQTT 3.1.1 broker in the running event loop.

    It keeps nothing on disk, and acknowledges a message of QoS 1 or 2 when it has it in memory. Where a reading must
    survive a power cut of the gateway from the moment it was acknowledged, use a broker of its own (Mosquitto).
    """

    def __init__(self, settings: BrokerSettings) -> None:
        self._settings = settings
        self._broker: Broker | None = None
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """The port it listens on, also where the setting is 0."""
        if self._server is None:
            return self._settings.port
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"mqtt://{self._settings.host}:{self.port}"

    async def start(self) -> None:
        """Listen. Raises OSError if the address is taken."""
        # Late: a gateway with a broker of its own never needs these 8 MB.
        from amqtt.broker import Broker
        from amqtt.contexts import BrokerConfig, ListenerConfig, ListenerType

        for name in ("amqtt", "transitions"):
            logging.getLogger(name).setLevel(logging.ERROR)
        config = BrokerConfig(
            listeners={_LISTENER: ListenerConfig(type=ListenerType.EXTERNAL)},
            # Of amqtt's own plug-ins none: two log every packet, one publishes $SYS topics with psutil every 20 s.
            plugins={
                "edge.adapters.broker_plugins.AnonymousPlugin": {},
                "edge.adapters.broker_plugins.RetainedPlugin": {"limit": self._settings.max_retained},
            },
        )
        self._broker = Broker(config)
        await self._broker.start()
        try:
            self._server = await asyncio.start_server(self._connected, self._settings.host, self._settings.port)
        except OSError:
            await self._broker.shutdown()
            self._broker = None
            raise
        _log.info("broker.started", extra={"url": self.url})

    async def stop(self) -> None:
        """Close all connections and stop listening."""
        server, self._server = self._server, None
        broker, self._broker = self._broker, None
        if server is not None:
            server.close()
        if broker is not None:
            await broker.shutdown()
        clients = list(self._clients)
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
        if server is not None:
            await server.wait_closed()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from edge.adapters.broker_streams import BoundedReader, BoundedWriter

        if self._broker is None or len(self._clients) >= self._settings.max_connections:
            _log.warning("broker.connection_refused", extra={"connections": len(self._clients)})
            writer.close()
            return
        client = asyncio.current_task()
        if client is None:
            raise RuntimeError("a connection handler runs in a task")
        self._clients.add(client)
        try:
            await self._broker.external_connected(
                BoundedReader(reader, self._settings.max_message), BoundedWriter(writer), _LISTENER
            )
        finally:
            self._clients.discard(client)
            writer.close()
