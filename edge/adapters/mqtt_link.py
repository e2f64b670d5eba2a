"""Additional connection to the broker, separate from that of the readings, for commands or for the MQTT gate."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable

from paho.mqtt.client import Client
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from edge.adapters.connection_loop import ConnectionLoop
from edge.adapters.paho_client import make_client
from edge.adapters.settings import MqttSettings
from edge.compat.paho import AcknowledgingClient, close_socket


class MqttLink:
    """A connection that reconnects forever. Its callbacks run on its own thread.

    Each connection is a new client with a clean session. The caller sends unacknowledged messages again, because it
    knows which of them are outdated.
    """

    def __init__(
        self,
        settings: MqttSettings,
        name: str,
        suffix: str,
        *,
        on_up: Callable[[Client], None],
        on_down: Callable[[], None],
        on_answer: Callable[[Client, int, str], None],
        prepare: Callable[[Client], None] = lambda _: None,
        proven_after: float = 0.0,
    ) -> None:
        """`name`: name in log lines; `suffix`: appended to the client identifier.

        `on_answer`: client, packet identifier, and the reason of a refusal; empty: acknowledged. `prepare`:
        configures a client that is about to connect, for example its will. `proven_after`: seconds that a connection
        must last until an acknowledgement shortens the wait before the next one again.
        """
        self._settings = settings.model_copy(update={"client_id": settings.client_id + suffix, "session_expiry": 0})
        self._prepare = prepare
        self._on_up = on_up
        self._on_down = on_down
        self._on_answer = on_answer
        self._proven_after = proven_after
        self._up_at = 0.0
        self._client: AcknowledgingClient | None = None
        self._loop = ConnectionLoop(settings, name, connect=self._connect, on_up=self._up, on_down=self._down)
        self.start = self._loop.start
        self.stop = self._loop.stop
        self.drop = self._loop.drop

    @property
    def alive(self) -> bool:
        """Whether its thread runs."""
        return self._loop.alive

    def abort(self) -> None:
        """End the connection without DISCONNECT, so that the broker publishes the will. Thread-safe."""
        connected = None if self._client is None else self._client.socket()
        if connected is not None:
            # Through a descriptor of its own: the thread of the connection may be using the layers above it.
            with contextlib.suppress(OSError, ValueError), socket.socket(fileno=os.dup(connected.fileno())) as same:
                same.shutdown(socket.SHUT_RDWR)

    def _connect(self) -> AcknowledgingClient:
        self._client = client = make_client(self._settings)
        self._loop.attach(client)
        client.on_publish = self._answered
        self._prepare(client)
        client.reconnect()
        return client

    def _up(self, client: Client, _: bool) -> None:
        self._up_at = time.monotonic()
        self._on_up(client)

    def _down(self) -> None:
        if self._client is not None:
            close_socket(self._client)
        self._on_down()

    def _answered(self, client: Client, _: object, mid: int, reason: ReasonCode, __: Properties | None) -> None:
        if not reason.is_failure and time.monotonic() - self._up_at >= self._proven_after:
            self._loop.works()
        self._on_answer(client, mid, str(reason) if reason.is_failure else "")
