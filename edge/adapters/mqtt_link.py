"""Additional connection to the broker, separate from that of the readings, for commands or for the MQTT gate."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, error_string
from paho.mqtt.enums import MQTTErrorCode
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from edge.adapters.mqtt_client import close_sockets, make_client, why_lost
from edge.adapters.settings import MqttSettings
from edge.backoff import Backoff, Retry

_log = logging.getLogger(__name__)

_LOOP = 1.0
"""Maximum seconds that the thread sleeps without events."""


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
    ) -> None:
        """`name`: name in log lines; `suffix`: appended to the client identifier.

        `on_answer`: client, packet identifier, and the reason of a refusal; empty: acknowledged. `prepare`:
        configures a client that is about to connect, for example its will.
        """
        self._settings = replace(settings, client_id=settings.client_id + suffix, session_expiry=0)
        self._name = name
        self._prepare = prepare
        self._on_up = on_up
        self._on_down = on_down
        self._on_answer = on_answer
        self._client: Client | None = None
        self._stopping = threading.Event()
        self._reason = ""
        self._retry = Retry(Backoff(settings.reconnect_min, settings.reconnect_max))
        self._down = False
        self._thread = threading.Thread(target=self._stay_connected, name=f"edge-{name}", daemon=True)

    @property
    def alive(self) -> bool:
        """Whether its thread runs."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Connect and stay connected. Returns at once."""
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """Disconnect."""
        self._stopping.set()
        self.drop("")
        if self._thread.is_alive():
            self._thread.join(timeout)

    def drop(self, reason: str) -> None:
        """Drop this connection, so that a new one is made."""
        self._reason = reason
        client = self._client
        if client is not None:
            with contextlib.suppress(OSError):  # the connection may have just ended
                client.disconnect()

    def _stay_connected(self) -> None:
        while not self._stopping.is_set():
            began = time.monotonic()
            self._reason = ""
            try:
                self._serve()
            except Exception as error:  # noqa: BLE001  no packet of a broker may end this thread
                self._reason = self._reason or str(error)
            self._on_down()
            if self._stopping.is_set():
                return
            if not self._down:
                self._down = True
                _log.warning(f"{self._name}.down", extra={"broker": self._settings.broker, "reason": self._reason})
            if time.monotonic() - began > self._settings.reconnect_max:
                self._retry.succeeded()
            self._stopping.wait(self._retry.failed())

    def _serve(self) -> None:
        client = make_client(self._settings)
        client.on_connect = self._connected
        client.on_disconnect = self._disconnected
        client.on_publish = self._answered
        self._prepare(client)
        try:
            said = self._carry_on(client)
            self._reason = self._reason or said
        finally:
            close_sockets(client)

    def _carry_on(self, client: Client) -> str:
        """Run the connection until it is lost or stopped. Returns the library's reason."""
        client.reconnect()
        self._client = client
        code = MQTTErrorCode.MQTT_ERR_SUCCESS
        while code == MQTTErrorCode.MQTT_ERR_SUCCESS and not self._stopping.is_set():
            code = client.loop(_LOOP)
        if self._stopping.is_set():
            client.disconnect()
            client.loop(_LOOP)
        return error_string(code)

    def _connected(
        self, client: Client, _: object, __: ConnectFlags, reason: ReasonCode, ___: Properties | None
    ) -> None:
        if reason.is_failure:
            self._reason = f"the broker refused the connection: {reason}"
            return
        if self._down:
            _log.info(f"{self._name}.up", extra={"broker": self._settings.broker})
        self._down = False
        self._on_up(client)

    def _disconnected(
        self, _: Client, __: object, flags: DisconnectFlags, reason: ReasonCode, ___: Properties | None
    ) -> None:
        self._reason = self._reason or why_lost(flags, reason)

    def _answered(self, client: Client, _: object, mid: int, reason: ReasonCode, __: Properties | None) -> None:
        if not reason.is_failure:
            self._retry.succeeded()
        self._on_answer(client, mid, str(reason) if reason.is_failure else "")
