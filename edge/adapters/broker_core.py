"""amqtt's broker with the functions that it lacks: access control, and reliable ends of connections."""

from __future__ import annotations

import logging
from typing import Final

from amqtt.contexts import Action, BrokerConfig
from amqtt.mqtt.protocol.broker_handler import BrokerProtocolHandler
from amqtt.session import Session

from edge.adapters.broker_auth import ConnectedClient
from edge.adapters.broker_streams import BoundedWriter
from edge.compat.amqtt import HookedBroker

_log = logging.getLogger(__name__)

_CLIENT: Final = "edge.client"
"""Key of the session's client, among the attributes that amqtt leaves to applications."""
_LOGGED: Final = "edge.logged"
"""Key of the refused actions that were logged: each action is logged once per session, to bound the log."""
_SUBSCRIPTIONS: Final = 1000
"""Maximum subscriptions of one session: each message is compared with all of them."""
_LONGEST_FILTER: Final = 1024
"""Maximum length of a filter in characters; filters are stored while their client is connected."""
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


class GuardedBroker(HookedBroker):
    """amqtt's broker with access control."""

    def __init__(self, config: BrokerConfig) -> None:
        super().__init__(config)
        self.refused = 0
        """Number of refused messages and subscriptions."""

    def session_begins(self, session: Session, writer: BoundedWriter) -> None:
        """Note the client of a session."""
        session.attributes[_CLIENT] = writer.client

    def delivery(self, handler: BrokerProtocolHandler) -> Delivery:
        """Return the bounded delivery to a client."""
        return Delivery(handler)

    def violated(self, handler: BrokerProtocolHandler) -> None:
        """Close the connection of a client that violates the protocol."""
        handler.writer.cut()

    def permits_will(self, session: Session) -> bool:
        """Return whether the will of a client may still be published."""
        return _client(session).may_leave(session.will_topic)

    async def add_subscription(self, subscription: tuple[str, int], session: Session) -> int:
        """Add a subscription. Returns the code for SUBACK."""
        if (
            len(subscription[0]) > _LONGEST_FILTER
            or subscription[1] > 2  # amqtt would accept QoS 3, and fail with each message (MQTT 3.1.1, section 3.8.3)
            or self.count_subscriptions(session) >= _SUBSCRIPTIONS
        ):
            return _REFUSED
        return int(await super().add_subscription(subscription, session))

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
