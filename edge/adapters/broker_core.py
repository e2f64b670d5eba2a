"""amqtt's broker with the functions that it lacks: access control, and reliable ends of connections."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from amqtt.broker import Broker
from amqtt.contexts import Action, BrokerConfig
from amqtt.mqtt.protocol.broker_handler import BrokerProtocolHandler
from amqtt.session import Session

from edge.adapters.broker_auth import ConnectedClient
from edge.adapters.broker_streams import BoundedReader, BoundedWriter

_log = logging.getLogger(__name__)

_CLIENT: Final = "edge.client"
"""Key of the session's client, among the attributes that amqtt leaves to applications."""
_LOGGED: Final = "edge.logged"
"""Key of the refused actions that were logged: each action is logged once per session, to bound the log."""
_SUBSCRIPTIONS: Final = 1000
"""Maximum subscriptions of one session: each message is compared with all of them."""
_LONGEST_FILTER: Final = 1024
"""Maximum length of a filter in characters; filters are stored while their client is connected."""
_LOOK: Final = 0.001
"""Seconds between two checks for messages that are not passed on yet."""
_REFUSED: Final = 0x80
"""Failure code of SUBACK."""


class Delivery:
    """Message delivery to one client; bounds the messages that wait for a slow one."""

    def __init__(self, handler: BrokerProtocolHandler) -> None:
        self._handler = handler

    async def mqtt_publish(self, topic: str, data: bytes, *others: object, **more: object) -> None:
        """Send a message, and wait until it is acknowledged or timed out."""
        writer: BoundedWriter | None = self._handler.writer
        if writer is None:
            return  # the client has disconnected
        try:
            if writer.begin(len(data)):
                await self._handler.mqtt_publish(topic, data, *others, **more)
        except TimeoutError:
            _log.debug("broker.not_acknowledged", extra={"client": writer.session, "topic": topic})
        finally:
            writer.end(len(data))


class GuardedBroker(Broker):  # type: ignore[misc] # amqtt tells no types
    """amqtt 0.12 with access control. amqtt itself asks its plug-ins, but sends retained messages to every client."""

    def __init__(self, config: BrokerConfig) -> None:
        super().__init__(config)
        self.refused = 0
        """Number of refused messages and subscriptions."""

    async def _handle_client_session(
        self, reader: BoundedReader, writer: BoundedWriter, client_session: Session, *others: object
    ) -> None:
        client_session.attributes[_CLIENT] = writer.client
        await super()._handle_client_session(reader, writer, client_session, *others)

    async def _client_message_loop(self, client_session: Session, handler: BrokerProtocolHandler) -> None:
        """Wait for messages in delivery: after a disconnect, amqtt drops acknowledged messages that are not passed on
        yet.

        From Python 3.12 on, these are nearly all messages of a burst.
        """
        taken, gone = client_session.delivered_message_queue, handler.wait_disconnect

        async def gone_and_passed_on() -> object:
            packet = await gone()
            while handler.session is not None and not taken.empty():  # noqa: ASYNC110 - amqtt has no event for it
                await asyncio.sleep(_LOOK)
            return packet

        handler.wait_disconnect = gone_and_passed_on
        try:
            await super()._client_message_loop(client_session, handler)
        finally:
            del handler.wait_disconnect  # breaks the reference cycle with the handler

    def _get_handler(self, session: Session) -> Delivery | None:
        """Return the delivery to a client, where amqtt expects its handler."""
        handler = super()._get_handler(session)
        return None if handler is None else Delivery(handler)

    async def _handle_disconnect(
        self, client_session: Session, handler: BrokerProtocolHandler, disconnect_waiter: asyncio.Future[Any]
    ) -> None:
        """Check the will before amqtt publishes it: the client's permissions may have changed."""
        if client_session.will_flag and not _client(client_session).may_leave(client_session.will_topic):
            client_session.will_flag = False
        await super()._handle_disconnect(client_session, handler, disconnect_waiter)

    async def _handle_message_delivery(
        self, client_session: Session, handler: BrokerProtocolHandler, wait_deliver: asyncio.Future[Any]
    ) -> bool:
        """Close a connection that violates the protocol; amqtt leaves it half open."""
        if not await super()._handle_message_delivery(client_session, handler, wait_deliver):
            handler.writer.cut()
        return True

    async def add_subscription(self, subscription: tuple[str, int], session: Session) -> int:
        """Add a subscription. Returns the code for SUBACK."""
        if (
            len(subscription[0]) > _LONGEST_FILTER
            or subscription[1] > 2  # amqtt would accept QoS 3, and fail with each message (MQTT 3.1.1, section 3.8.3)
            or sum(one is session for subscribed in self._subscriptions.values() for one, _ in subscribed)
            >= _SUBSCRIPTIONS
        ):
            return _REFUSED
        return int(await super().add_subscription(subscription, session))

    async def _handle_unsubscription(
        self, client_session: Session, handler: BrokerProtocolHandler, unsubscribe_waiter: asyncio.Future[Any]
    ) -> None:
        """Remove filters without subscribers, which amqtt keeps."""
        await super()._handle_unsubscription(client_session, handler, unsubscribe_waiter)
        for topic_filter in unsubscribe_waiter.result().topics:
            if not self._subscriptions.get(topic_filter, True):
                del self._subscriptions[topic_filter]

    async def _topic_filtering(self, session: Session, topic: str, action: Action) -> bool:
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

    async def _publish_retained_messages_for_subscription(
        self, subscription: tuple[str, int], session: Session
    ) -> None:
        topic_filter, qos = subscription
        handler = self._get_handler(session)
        if handler is None or not any(known is session for known, _ in self._subscriptions.get(topic_filter, ())):
            return
        client = _client(session)
        sent = [
            handler.mqtt_publish(topic, kept.data, min(qos, kept.qos or qos), retain=True)
            for topic, kept in self._retained_messages.items()
            if self._matches(topic, topic_filter) and client.may_receive(topic)
        ]
        await asyncio.gather(*sent, return_exceptions=True)


def _client(session: Session) -> ConnectedClient:
    client: ConnectedClient = session.attributes[_CLIENT]
    return client
