"""amqtt's broker with the functions that it lacks: access control, and reliable ends of connections."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Final

from amqtt.contexts import Action, BrokerConfig
from amqtt.mqtt.protocol.broker_handler import BrokerProtocolHandler
from amqtt.session import Session

from edge.adapters.broker_auth import ANYBODY, ConnectedClient
from edge.adapters.broker_sessions import UnfinishedBudget, UnfinishedMessages
from edge.adapters.broker_streams import BoundedWriter
from edge.compat.amqtt import HookedBroker

_log = logging.getLogger(__name__)

_CLIENT: Final = "edge.client"
"""Key of the session's client, among the attributes that amqtt leaves to applications."""
_LOGGED: Final = "edge.logged"
"""Key of the refused actions that were logged: each action is logged once per session, to bound the log."""
_OWN: Final = "edge.own"
"""Key of whether it is a session of the gateway itself."""
_FILTERS: Final = "edge.filters"
"""Key of the filters of the session's subscriptions."""
_SUBSCRIPTIONS: Final = 1000
"""Maximum subscriptions of one session, and of all sessions of an authenticated client."""
_ALL_SUBSCRIPTIONS: Final = 5000
"""Maximum subscriptions of all sessions: each message is compared with all of them."""
_LONGEST_FILTER: Final = 1024
"""Maximum length of a filter in characters; filters are stored while their client is connected."""
_LEVELS: Final = 64
"""Maximum levels of a filter: each comparison may look at all of them."""
_REFUSED: Final = 0x80
"""Failure code of SUBACK."""


class ClientDelivery:
    """Message delivery to one client; bounds the messages that wait for a slow one."""

    def __init__(self, handler: BrokerProtocolHandler) -> None:
        self._handler = handler

    async def mqtt_publish(self, topic: str, data: bytes, *others: object, **more: object) -> None:
        """Send a message, and wait until it is acknowledged or timed out."""
        writer: BoundedWriter | None = self._handler.writer
        if writer is None or writer.is_closed or writer.transport.is_closing():
            return  # the client has disconnected
        try:
            if writer.begin(len(data)):
                await self._handler.mqtt_publish(topic, data, *others, **more)
        except TimeoutError:
            _log.debug("broker.not_acknowledged", extra={"client": writer.session, "topic": topic})
        finally:
            writer.end(len(data))


class GuardedBroker(HookedBroker):
    """amqtt's broker with access control."""

    def __init__(self, config: BrokerConfig, max_unfinished: int) -> None:
        """`max_unfinished`: bytes of the messages of QoS 2 that devices have not released."""
        super().__init__(config)
        self.refused = 0
        """Number of refused messages and subscriptions."""
        self._unfinished = UnfinishedBudget(max_unfinished)
        self._subscribed = 0
        """Number of subscriptions of devices."""
        self._by_client: Counter[str] = Counter()
        """Number of subscriptions, by authenticated client."""
        self._subscribing = asyncio.Lock()

    def session_begins(self, session: Session, writer: BoundedWriter) -> Callable[[], None]:
        """Note the client of a session, and limit what is kept for it. Returns what to do at its end."""
        session.attributes[_CLIENT] = writer.client
        session.attributes[_OWN] = writer.is_own
        session.attributes.setdefault(_FILTERS, set())
        unfinished = UnfinishedMessages(self._unfinished, writer.refuse_unfinished)
        unfinished.adopt(session.inflight_in)
        session.inflight_in = unfinished

        def end() -> None:
            unfinished.release()
            # Without security, a later connection may have taken the session over.
            if session.inflight_in is unfinished:
                self.unsubscribed(session, tuple(session.attributes[_FILTERS]))

        return end

    def unsubscribed(self, session: Session, filters: Iterable[str]) -> None:
        """Uncount subscriptions of a session."""
        known: set[str] = session.attributes[_FILTERS]
        before = len(known)
        known.difference_update(filters)
        self._count(session, len(known) - before)

    def _count(self, session: Session, change: int) -> None:
        client = _client(session)
        self._subscribed += change
        if client is not ANYBODY:
            self._by_client[client.name] += change
            if not self._by_client[client.name]:
                del self._by_client[client.name]

    @asynccontextmanager
    async def paced(self) -> AsyncIterator[None]:
        """Do one such work at a time, each followed by a pause of the same length.

        So clients that subscribe without end take at most half of the time.
        """
        async with self._subscribing:
            began = time.perf_counter()
            yield
            await asyncio.sleep(time.perf_counter() - began)

    def delivery(self, handler: BrokerProtocolHandler) -> ClientDelivery:
        """Return the bounded delivery to a client."""
        return ClientDelivery(handler)

    def violated(self, handler: BrokerProtocolHandler) -> None:
        """Close the connection of a client that violates the protocol."""
        handler.writer.cut()

    def permits_will(self, session: Session) -> bool:
        """Return whether the will of a client may still be published."""
        return _client(session).may_publish_will(session.will_topic)

    async def add_subscription(self, subscription: tuple[str, int], session: Session) -> int:
        """Add a subscription. Returns the code for SUBACK."""
        topic_filter, qos = subscription
        if session.attributes[_OWN]:
            return int(await super().add_subscription(subscription, session))
        async with self.paced():
            known: set[str] = session.attributes[_FILTERS]
            # amqtt would accept QoS 3, and fail with each message (MQTT 3.1.1, section 3.8.3)
            if (
                qos > 2
                or self.is_gone(session)
                or (topic_filter not in known and self._is_too_much(session, topic_filter))
            ):
                return _REFUSED
            code = int(await super().add_subscription(subscription, session))
            if code != _REFUSED and topic_filter not in known:
                known.add(topic_filter)
                self._count(session, 1)
        return code

    def _is_too_much(self, session: Session, topic_filter: str) -> bool:
        """Return whether another subscription would exceed a limit."""
        return (
            len(topic_filter) > _LONGEST_FILTER
            or topic_filter.count("/") >= _LEVELS
            or len(session.attributes[_FILTERS]) >= _SUBSCRIPTIONS
            or self._by_client[_client(session).name] >= _SUBSCRIPTIONS
            or self._subscribed >= _ALL_SUBSCRIPTIONS
        )

    def permits(self, session: Session, topic: str, action: Action) -> bool:
        """Return whether a client may do this. The first refusal of each action is logged."""
        client = _client(session)
        if action is Action.RECEIVE:
            return client.may_receive(topic)
        allowed = client.may_publish(topic) if action is Action.PUBLISH else client.may_subscribe(topic)
        if not allowed:
            self.refused += 1
            logged = session.attributes.setdefault(_LOGGED, set())
            if action not in logged:
                logged.add(action)
                _log.warning("broker.refused", extra={"client": client.name, "action": str(action), "topic": topic})
        return allowed


def _client(session: Session) -> ConnectedClient:
    client: ConnectedClient = session.attributes[_CLIENT]
    return client
