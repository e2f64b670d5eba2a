"""MQTT gate client, identified by its topic: its session from the first message to the will."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable

from edge.gates.mqtt.client_output import MqttConnection
from edge.gates.mqtt.connection import BrokerConnection, IncomingMessage
from edge.gates.mqtt.correlation import Correlation, Reply
from edge.gates.mqtt.report_followers import ReportFollowers
from edge.gates.mqtt.topics import Topics
from edge.gates.rate_limit import incoming
from edge.gates.report_following import ReportSource
from edge.gates.session import Session
from edge.gates.sessions import Sessions
from edge.protocol.errors import EdgeError, InvalidRequest, RequestTimeout, TooManyRequests
from edge.protocol.messages import MAX_ALIAS, parse_with_follow
from edge.task_errors import drop_error

_LONGEST_TOPIC = 1024
_LONGEST_CORRELATION = 1024
"""Bytes; stored with each subscription. Together with the longest topic and alias it fits `MAX_ENCODED_ALIAS`."""
_LONGEST_STATUS = 1000


class MqttClient:
    """Session of one client. Its requests wait here while many of them are pending, without delaying other clients."""

    def __init__(
        self,
        name: str,
        sessions: Sessions,
        connection: BrokerConnection,
        topics: Topics,
        correlation: Correlation,
        *,
        idle_timeout: float,
        ended: Callable[[str], None],
        streams: Callable[[], ReportSource | None] = lambda: None,
    ) -> None:
        """`idle_timeout`: seconds. `ended`: called with the name when the session ends for any reason. `streams`
        returns None without streams.
        """
        self._name = name
        self._topic = topics.response(name)
        self._correlation = correlation
        self._idle_timeout = idle_timeout
        self._ended = ended
        self._connection = MqttConnection(
            connection,
            self._topic,
            correlation,
            sessions.limits.max_result,
            on_close=self.close,
            on_too_large=self._end_subscription,
        )
        self._session = Session(sessions, self._connection, peer=f"mqtt:{name}")
        self._reports = ReportFollowers(sessions, self._session, self._connection, streams)
        self._limit = sessions.limits.max_pending_requests
        self._inbox: asyncio.Queue[str] = asyncio.Queue(self._limit)
        self._charge = sessions.rate_limit.bytes.charge(incoming(self._session.peer))
        """Quota charge of the inbox."""
        loop = asyncio.get_running_loop()
        self._last_message = loop.time()
        self._has_will = False
        self._idle = loop.call_later(idle_timeout, self._check_idle)
        self._work = loop.create_task(self._receive())
        self._work.add_done_callback(drop_error)

    def request(self, message: IncomingMessage) -> None:
        """Queue a request, or refuse it."""
        self._last_message = asyncio.get_running_loop().time()
        started = time.perf_counter()
        try:
            text = self._read(message)
            # Charged before it is queued, because the quota may refuse it. A full inbox refuses it below, without a
            # charge.
            if not self._inbox.full():
                self._charge.set(self._charge.size + len(text))
            self._inbox.put_nowait(text)
        except asyncio.QueueFull:
            self._refuse(
                TooManyRequests(f"{self._limit} requests of this client wait already; wait for answers"),
                message,
                started,
            )
        except EdgeError as error:
            self._refuse(error, message, started)

    def status(self, payload: bytes) -> None:
        """Process a client status: after `online`, only `offline` ends the session; other states are a heartbeat."""
        self._last_message = asyncio.get_running_loop().time()
        state = state_of(payload)
        if state == "online":
            self._has_will = True
        elif state == "offline":
            self.close()

    @property
    def silent(self) -> float:
        """Seconds since the last message of the client."""
        return asyncio.get_running_loop().time() - self._last_message

    def give_way(self) -> None:
        """End the session to free a slot, and notify the client."""
        self._end(
            "The gate is full (mqtt_gate.max_connections), and no client was silent for longer: the session has ended, "
            "and its subscriptions with it; subscribe again, or resume"
        )

    def close(self) -> None:
        """End the session. A will and a normal goodbye look the same, so the client may resume in both cases."""
        self._idle.cancel()
        self._work.cancel()
        self._reports.close()
        self._connection.unlink()
        self._charge.release()
        self._session.close(lost=True)
        self._ended(self._name)

    def _read(self, message: IncomingMessage) -> str:
        """Return a request as text for the session. Raises `EdgeError`."""
        try:
            text = message.payload.decode()
        except UnicodeDecodeError as error:
            raise InvalidRequest(f"The message is not UTF-8 text (byte {error.start}); send JSON") from None
        if not message.response_topic and not message.correlation:
            if len(text) > MAX_ALIAS:
                # raises if the alias is too long; the limit of this gate's sessions is higher, for encoded aliases
                parse_with_follow(text)
            return text
        if not self._may_answer(message.response_topic):
            raise InvalidRequest(f'The response topic must be "{self._topic}" or below it')
        if len(message.correlation) > _LONGEST_CORRELATION:
            raise InvalidRequest(
                f"The correlation data has {len(message.correlation)} bytes; send {_LONGEST_CORRELATION} at most"
            )
        request = parse_with_follow(text)
        return self._correlation.with_alias(request, self._reply(message, request.alias))

    def _may_answer(self, topic: str) -> bool:
        """Whether the client may receive responses on this topic: the gate may publish where the client may not."""
        if topic in ("", self._topic):
            return True
        return topic.startswith(f"{self._topic}/") and len(topic) <= _LONGEST_TOPIC and not set("+#\0") & set(topic)

    def _reply(self, message: IncomingMessage, alias: str | None) -> Reply:
        topic = message.response_topic if self._may_answer(message.response_topic) else ""
        return Reply(topic or self._topic, message.correlation[:_LONGEST_CORRELATION], alias)

    def _refuse(self, error: EdgeError, message: IncomingMessage, started: float) -> None:
        reply = self._reply(message, error.alias)
        self._session.refuse(error.with_alias(self._correlation.alias(reply)), "message", started)

    async def _receive(self) -> None:
        while True:
            text = await self._inbox.get()
            self._charge.set(self._charge.size - len(text))
            if not self._reports.receive(text):
                self._session.receive(text)
            # Back-pressure: further requests wait in the inbox, whose size is bounded.
            await self._session.room()

    def _check_idle(self) -> None:
        loop = asyncio.get_running_loop()
        left = self._last_message + self._idle_timeout - loop.time()
        # A client with a will may be silent: the broker reports its end.
        if left <= 0 and not self._has_will:
            self._end(
                f"Nothing came for {self._idle_timeout:g} s (mqtt_gate.idle_timeout): the session has ended, and its "
                "subscriptions with it; subscribe again, and send something now and then"
            )
        else:
            self._idle = loop.call_later(left if left > 0 else self._idle_timeout, self._check_idle)

    def _end(self, reason: str) -> None:
        self._session.refuse(RequestTimeout(reason), "message", time.perf_counter())
        self.close()

    def _end_subscription(self, spuid: str) -> None:
        self._session.subscriptions.drop(spuid)


def state_of(payload: bytes) -> str:
    """Parse a client status: `online`, `offline`, or another word.

    Both the word alone and the form of the gateway's own status are accepted: `{"status": "online"}`.
    """
    text = payload.decode(errors="replace").strip()
    # The bound keeps a large payload from being parsed for a status.
    if text.startswith(("{", '"')) and len(text) <= _LONGEST_STATUS:
        with contextlib.suppress(ValueError):
            said = json.loads(text)
            text = str(said.get("status")) if isinstance(said, dict) else str(said)
    return text.lower()
