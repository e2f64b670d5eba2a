"""Embedded MQTT broker with bounded memory, based on amqtt. It makes an external broker optional."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from functools import partial
from ssl import SSLContext
from typing import TYPE_CHECKING, Any

from edge.adapters.broker_auth import BrokerAuth, OwnClientsAuth
from edge.adapters.broker_backlog import Backlog
from edge.adapters.settings import MqttSettings
from edge.compat.asyncio_transports import Unlink, stop_accepting
from edge.listener import AT_ONCE, HANDSHAKE, Listener

if TYPE_CHECKING:
    from edge.adapters.broker_core import GuardedBroker
    from edge.adapters.broker_streams import BoundedReader, BoundedWriter

_log = logging.getLogger(__name__)

_LISTENER = "default"
_POLL = 0.01
"""Seconds between two checks for pending messages."""
_OWN_PACKET = 2**20
"""Least limit for packets of the gateway's own clients, in bytes."""
_OWN_CLIENTS = 100
"""Connections of the gateway's own clients, which need a few. With too few slots, other programs that connect all the
time would replace them before they have sent their CONNECT packet."""
_PATIENCE = 1.0
"""Seconds that amqtt has to shut down."""


class EmbeddedBroker:
    """An MQTT 3.1.1 broker in the running event loop.

    It stores nothing on disk, and acknowledges a message of QoS 1 or 2 when it is in memory. If acknowledged readings
    must survive a power cut, use an external broker (Mosquitto).
    """

    def __init__(self, settings: MqttSettings, auth: BrokerAuth | None = None) -> None:
        """Without `auth`, every client may connect, publish and subscribe."""
        self._settings = settings
        self._broker: GuardedBroker | None = None
        self._auth = auth
        self._own_auth = OwnClientsAuth()
        self._port = settings.port
        self._own_port = 0
        self._own: asyncio.Server | None = None
        self._server: asyncio.Server | None = None
        self._secure: asyncio.Server | None = None
        self._secure_at: tuple[str, int, SSLContext] | None = None
        self._clients: set[asyncio.Task[None]] = set()
        self._writers: set[BoundedWriter] = set()
        """Writers of device connections."""
        self._backlog = Backlog(settings.max_queued_bytes)
        self._closing = False

    @property
    def refused(self) -> int:
        """Refused messages and subscriptions of clients without permission."""
        return 0 if self._broker is None else self._broker.refused

    @property
    def port(self) -> int:
        """Port for devices; the actual port if the setting is 0."""
        return self._port

    @property
    def url(self) -> str:
        """URL for devices."""
        return f"mqtt://{self._settings.host}:{self.port}"

    @property
    def own_secret(self) -> str:
        """Password of the gateway's own clients."""
        return self._own_auth.secret

    @property
    def own_url(self) -> str:
        """URL for the gateway's own clients. It is open before the device ports, and closed after them."""
        return f"mqtt://127.0.0.1:{self._own_port}"

    @property
    def secure_port(self) -> int:
        """Port with TLS; 0 without TLS."""
        return 0 if self._secure_at is None else self._secure_at[1]

    async def start(self) -> None:
        """Start to serve the gateway's own clients."""
        # Imported here: with an external broker, the gateway saves 8 MB.
        from amqtt.contexts import BrokerConfig, ListenerConfig, ListenerType

        from edge.adapters.broker_core import GuardedBroker
        from edge.compat.amqtt import separate_unreleased_messages, use_connection_states

        use_connection_states()
        separate_unreleased_messages()
        for name in ("amqtt", "transitions"):
            logging.getLogger(name).setLevel(logging.ERROR)
        config = BrokerConfig(
            listeners={_LISTENER: ListenerConfig(type=ListenerType.EXTERNAL)},
            # amqtt's own plug-ins stay off: two log every packet, one publishes $SYS topics with psutil every 20 s.
            plugins={
                "edge.adapters.broker_plugins.AnonymousPlugin": {},
                "edge.adapters.broker_plugins.RetainedPlugin": {
                    "limit": self._settings.max_retained,
                    "max_bytes": self._settings.max_retained_bytes,
                },
            },
        )
        self._closing = False
        self._broker = GuardedBroker(config, self._settings.max_queued_bytes)
        await self._broker.start()
        listener = Listener("127.0.0.1", self._own_port, _OWN_CLIENTS, _OWN_CLIENTS)
        with listener.closed_on_failure():
            self._own = await asyncio.start_server(
                partial(self._own_connected, listener), sock=listener, backlog=AT_ONCE, start_serving=False
            )  # assigned before it serves, so that `stop` closes it after a cancellation
        self._own_port = listener.port
        await self._own.start_serving()

    async def open(self) -> None:
        """Accept devices. The gateway's own clients must be connected, so that acknowledged messages are received.

        Raises `OSError`.
        """
        self._server, self._port = await self._listen(self._settings.host, self._port)
        _log.info("broker.started", extra={"url": self.url})

    async def open_secure(self, host: str, port: int, tls: SSLContext) -> int:
        """Accept devices over TLS too. Returns the port. Raises `OSError`."""
        self._secure, found = await self._listen(host, port, ssl=tls, ssl_handshake_timeout=HANDSHAKE)
        self._secure_at = host, found, tls
        return found

    async def restart(self) -> None:
        """Stop, and serve again on the same ports. Retained messages and sessions are lost. Raises `OSError`."""
        await self.stop()
        await self.start()
        await self.open()
        if self._secure_at is not None:
            await self.open_secure(*self._secure_at)

    async def drain(self, timeout: float) -> None:  # noqa: ASYNC109 - a timeout is not an error here
        """Close the device connections, then wait until the gateway's own clients have all acknowledged messages.

        Devices send unacknowledged messages again. `timeout` in seconds.
        """
        self._closing = True  # also refuses clients whose CONNECT is being handled
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
                while self._under_way(broker):  # noqa: ASYNC110 - amqtt has no event for it
                    await asyncio.sleep(_POLL)

    def _under_way(self, broker: GuardedBroker) -> bool:
        """Whether device messages are pending: a connection ends after their hand-over, a task after the
        acknowledgement.
        """
        return bool(self._writers) or broker.delivering

    async def stop(self) -> None:
        """Close all connections and stop listening."""
        servers = [server for server in (self._server, self._secure, self._own) if server is not None]
        broker, self._broker = self._broker, None
        await stop_accepting(servers)
        for server in servers:
            server.close()
        if broker is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PATIENCE):  # it waits for acknowledgements of disconnected clients
                    await broker.shutdown()
        clients = list(self._clients)
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
        for server in servers:
            await server.wait_closed()

    async def _listen(self, host: str, port: int, **options: Any) -> tuple[asyncio.Server, int]:  # noqa: ANN401
        """Accept devices at a port. Returns server and port. Raises `OSError`."""
        listener = Listener(host, port, self._settings.max_connections, self._settings.max_connections_of_one)
        connected = partial(self._device_connected, listener)
        with listener.closed_on_failure():
            return await asyncio.start_server(connected, sock=listener, backlog=AT_ONCE, **options), listener.port

    async def _own_connected(
        self, listener: Listener, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await self._connected(reader, writer, self._own_auth, listener)

    async def _device_connected(
        self, listener: Listener, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await self._connected(reader, writer, self._auth, listener)

    async def _connected(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        auth: BrokerAuth | None,
        listener: Listener,
    ) -> None:
        from edge.adapters.broker_connect import authenticate
        from edge.adapters.broker_streams import BoundedReader, BoundedWriter

        client = asyncio.current_task()
        if client is None:
            raise RuntimeError("a connection handler runs in a task")
        settings, own = self._settings, auth is self._own_auth
        address = writer.get_extra_info("peername")
        listener.set_abort(address, writer.transport.abort)
        unlink = Unlink(writer.transport)
        # The gateway subscribes to all its filters with one packet, whatever size devices may send.
        limit = max(settings.max_message, _OWN_PACKET) if own else settings.max_message
        bounded_reader = BoundedReader(reader, limit, None if own else self._backlog)
        bounded = BoundedWriter(writer, None, self._backlog) if own else BoundedWriter(writer, settings.max_unread)
        self._clients.add(client)
        try:
            admitted = await authenticate(
                bounded_reader, bounded, auth, own=own, address=str(address[0]) if address else ""
            )
            if admitted and listener.mark_known(address):
                await self._serve(bounded_reader, bounded, own=own)
        finally:
            self._clients.discard(client)
            bounded_reader.end()
            bounded.client.disconnected()
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
                    # MQTT 3.1.1, section 3.1.4: a client that connects again replaces its earlier connection
                    other.cut()
            self._writers.add(writer)
        try:
            await self._broker.external_connected(reader, writer, _LISTENER)
        finally:
            self._writers.discard(writer)
