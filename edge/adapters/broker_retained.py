"""amqtt's broker, but for one thing: what it has retained goes to those alone who subscribed to it."""

from __future__ import annotations

from amqtt.broker import Broker
from amqtt.session import Session


class FaithfulBroker(Broker):  # type: ignore[misc] # amqtt tells no types
    """amqtt hands whoever connects all that is retained on any topic that anybody subscribed to (0.12)."""

    async def _publish_retained_messages_for_subscription(
        self, subscription: tuple[str, int], session: Session
    ) -> None:
        topic, _ = subscription
        if any(subscriber is session for subscriber, _ in self._subscriptions.get(topic, ())):
            await super()._publish_retained_messages_for_subscription(subscription, session)
