"""Thread of an MQTT connection: connects, serves the connection until it is lost, and repeats that forever."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, error_string
from paho.mqtt.enums import MQTTErrorCode
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from edge.adapters.paho_client import why_lost
from edge.adapters.settings import MqttSettings
from edge.backoff import Backoff, Retry
from edge.compat.paho import AcknowledgingClient
from edge.engine.wakeups import together
from edge.wake_up import WakeUp

_log = logging.getLogger(__name__)

_REASONS: Final = 10
"""Different reasons of failures in a row that are logged."""
_LOOP: Final = 1.0
"""Maximum seconds that the thread sleeps without events."""


class ConnectionLoop:
    """Keeps one connection to a broker. All callbacks run on its thread.

    It logs `NAME.up` for each connection, and `NAME.down` once for each reason of several failures in a row.
    """

    def __init__(
        self,
        settings: MqttSettings,
        name: str,
        *,
        connect: Callable[[], AcknowledgingClient],
        on_up: Callable[[Client, bool], None],
        on_down: Callable[[], None],
        work: Callable[[], float] = lambda: _LOOP,
    ) -> None:
        """`name`: name in log lines. `connect`: opens the connection of an attached client, and returns the client.

        `on_up`: the broker has accepted the connection; the second argument tells whether it had a session of this
        client. `on_down`: the connection is lost, or an attempt has failed. `work`: called between events, also without
        a connection, at least once a second; returns the seconds until the next call is necessary. It must not raise.
        """
        self._settings = settings
        self._name = name
        self._connect = connect
        self._on_up = on_up
        self._on_down = on_down
        self._work = work
        self._client: AcknowledgingClient | None = None
        self._reason = ""
        self._retry = Retry(Backoff(settings.reconnect_min, settings.reconnect_max))
        self._down_since: float | None = None
        self._logged: set[str] = set()
        """Logged reasons of the present failures."""
        self._thread = threading.Thread(target=self._stay_connected, name=f"edge-{name}", daemon=True)
        self.stopping = threading.Event()
        """Set when the loop has to end."""
        self._wake_up = WakeUp()
        self.wake = self._wake_up.set

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    @property
    def failures(self) -> int:
        """Failed connections in a row."""
        return self._retry.failures

    def attach(self, client: AcknowledgingClient) -> None:
        """Take over the connection events of a client. To be called before it connects."""
        client.wake_by(self._wake_up)
        client.on_connect = self._connected
        client.on_disconnect = self._disconnected

    def start(self) -> None:
        """Connect and stay connected. Returns at once; failures are logged, and the connection is retried."""
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """Send what is queued, and disconnect, within `timeout` seconds."""
        self.stopping.set()
        self.drop("")
        self.wake()
        if self._thread.is_alive():
            self._thread.join(timeout)
        # A thread that is still running may poll the descriptor: then it stays open.
        if not self._thread.is_alive():
            self._wake_up.close()

    def drop(self, reason: str) -> None:
        """Drop this connection, so that a new one is made. Thread-safe."""
        self._reason = reason
        client = self._client
        if client is not None:
            with contextlib.suppress(OSError):  # the connection may have just ended
                client.disconnect()

    def works(self) -> None:
        """Note that the connection works: the next failure is followed by the shortest wait."""
        self._retry.succeeded()

    def _stay_connected(self) -> None:
        while not self.stopping.is_set():
            began = time.monotonic()
            self._reason = ""
            try:
                self._client = client = self._connect()
                self._note(self._serve(client))
            except Exception as error:  # noqa: BLE001  no packet of a broker may end this thread
                self._note(str(error))
            self._on_down()
            if self.stopping.is_set():
                return
            if self._down_since is None:
                self._down_since = time.monotonic()
                self._logged.clear()
            if self._reason not in self._logged and len(self._logged) < _REASONS:
                self._logged.add(self._reason)
                _log.warning(f"{self._name}.down", extra={"broker": self._settings.broker, "reason": self._reason})
            # A broker may accept each connection and end it at once. Only time proves that such a connection works.
            if time.monotonic() - began > self._settings.reconnect_max:
                self.works()
            self._pause(self._retry.failed())

    def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self.stopping.is_set() and (left := end - time.monotonic()) > 0:
            self._wake_up.wait(min(left, self._work(), _LOOP))

    def _serve(self, client: AcknowledgingClient) -> str:
        """Run the connection until it is lost or stopped. Returns the library's reason."""
        code = MQTTErrorCode.MQTT_ERR_SUCCESS
        while code == MQTTErrorCode.MQTT_ERR_SUCCESS:
            with together():
                pause = min(self._work(), _LOOP)
            code = client.loop(pause)
            if self.stopping.is_set():
                client.disconnect()  # again, because the thread may have been connecting at the time of `stop`
        return error_string(code)

    def _note(self, reason: str) -> None:
        """Note why the connection ended. The first reason is the cause of the others."""
        self._reason = self._reason or reason

    def _connected(
        self, client: Client, _: object, flags: ConnectFlags, reason: ReasonCode, __: Properties | None
    ) -> None:
        if reason.is_failure:
            self._note(f"the broker refused the connection: {reason}")
            return
        self._on_up(client, flags.session_present)
        down = 0.0 if self._down_since is None else time.monotonic() - self._down_since
        self._down_since = None
        _log.info(f"{self._name}.up", extra={"broker": self._settings.broker, "down_seconds": round(down, 1)})

    def _disconnected(
        self, _: Client, __: object, flags: DisconnectFlags, reason: ReasonCode, ___: Properties | None
    ) -> None:
        self._note(why_lost(flags, reason))
