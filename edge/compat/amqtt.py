"""Private names of amqtt's broker and sessions. Checked with amqtt 0.12. No upstream issue was found.

amqtt asks its plug-ins for permissions, but sends retained messages to every client. It drops acknowledged messages
after a disconnect, leaves a connection half open after a violation of the protocol, and keeps filters without
subscribers. Each of its sessions has a general state machine: 150 objects and 15 KB, which refer to each other, so they
stay in memory until the garbage collector runs.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from amqtt.adapters import StreamWriterAdapter
from amqtt.broker import Broker
from amqtt.contexts import Action, BrokerConfig
from amqtt.mqtt.constants import QOS_2
from amqtt.mqtt.protocol.broker_handler import BrokerProtocolHandler
from amqtt.mqtt.publish import PublishPacket
from amqtt.session import Session

_FLOWS: Final = "_edge_flows"
"""Attribute of a handler with the tasks of messages that wait for PUBREL."""
_LOOK: Final = 0.001
"""Seconds between two checks for messages that are not passed on yet."""


class _Subscriptions(dict[str, list[tuple[Session, int]]]):
    """Subscriptions by filter. amqtt makes a text of all of them after each SUBSCRIBE, for a log that is off."""

    def __repr__(self) -> str:
        return f"{len(self)} filters"


class HookedBroker(Broker):  # type: ignore[misc] # amqtt has no types
    """amqtt's broker without these defects, and with methods to override for permissions and delivery."""

    def __init__(self, config: BrokerConfig) -> None:
        super().__init__(config)
        self._subscriptions = _Subscriptions()

    def session_begins(self, session: Session, writer: Any) -> Callable[[], None]:  # noqa: ANN401 - of the caller's type
        """A client has a session. `writer`: as passed to `external_connected`. Returns what to do at its end."""
        raise NotImplementedError

    def paced(self) -> AbstractAsyncContextManager[None]:
        """Return the context of work that takes the longer the more subscriptions or retained messages there are."""
        raise NotImplementedError

    def is_gone(self, session: Session) -> bool:
        """Return whether the connection of a session has ended."""
        handler = super()._get_handler(session)
        return handler is None or handler.writer is None or handler.writer.transport.is_closing()

    def unsubscribed(self, session: Session, filters: Iterable[str]) -> None:
        """A client has ended subscriptions, or some that it does not have."""

    def permits(self, session: Session, topic: str, action: Action) -> bool:
        """Return whether a client may publish to, subscribe to, or receive messages of a topic."""
        raise NotImplementedError

    def permits_will(self, session: Session) -> bool:
        """Return whether the will of a client that has disconnected may be published."""
        raise NotImplementedError

    def delivery(self, handler: BrokerProtocolHandler) -> Any:  # noqa: ANN401 - it is used as a handler
        """Return the object whose `mqtt_publish` sends messages to a client."""
        return handler

    def violated(self, handler: BrokerProtocolHandler) -> None:
        """A client has violated the protocol: its connection must end."""

    @property
    def delivering(self) -> bool:
        """Whether messages are not handed over to all their subscribers yet."""
        return not (self._broadcast_queue.empty() and all(task.done() for task in self._tasks_queue))

    async def _handle_client_session(
        self, reader: object, writer: object, client_session: Session, *others: object
    ) -> None:
        end = self.session_begins(client_session, writer)
        try:
            await super()._handle_client_session(reader, writer, client_session, *others)
        finally:
            end()

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

    def _get_handler(self, session: Session) -> Any:  # noqa: ANN401 - what `delivery` returns
        """Return the delivery to a client, where amqtt expects its handler."""
        handler = super()._get_handler(session)
        return None if handler is None else self.delivery(handler)

    async def _handle_disconnect(
        self, client_session: Session, handler: BrokerProtocolHandler, disconnect_waiter: asyncio.Future[Any]
    ) -> None:
        """Check the will before amqtt publishes it: the client's permissions may have changed."""
        if client_session.will_flag and not self.permits_will(client_session):
            client_session.will_flag = False
        await super()._handle_disconnect(client_session, handler, disconnect_waiter)

    async def _handle_message_delivery(
        self, client_session: Session, handler: BrokerProtocolHandler, wait_deliver: asyncio.Future[Any]
    ) -> bool:
        """Report a violation of the protocol; amqtt leaves the connection half open."""
        if not await super()._handle_message_delivery(client_session, handler, wait_deliver):
            self.violated(handler)
        return True

    async def _handle_unsubscription(
        self, client_session: Session, handler: BrokerProtocolHandler, unsubscribe_waiter: asyncio.Future[Any]
    ) -> None:
        """Remove filters without subscribers, which amqtt keeps."""
        await super()._handle_unsubscription(client_session, handler, unsubscribe_waiter)
        self.unsubscribed(client_session, unsubscribe_waiter.result().topics)
        for topic_filter in unsubscribe_waiter.result().topics:
            if not self._subscriptions.get(topic_filter, True):
                del self._subscriptions[topic_filter]

    async def _topic_filtering(self, session: Session, topic: str, action: Action) -> bool:
        return self.permits(session, topic, action)

    async def _publish_retained_messages_for_subscription(
        self, subscription: tuple[str, int], session: Session
    ) -> None:
        """Send the retained messages that the client may receive."""
        topic_filter, qos = subscription
        handler = self._get_handler(session)
        if handler is None or not any(known is session for known, _ in self._subscriptions.get(topic_filter, ())):
            return
        async with self.paced():
            found = [
                (topic, kept.data, min(qos, kept.qos or qos))
                for topic, kept in self._retained_messages.items()
                if self._matches(topic, topic_filter) and self.permits(session, topic, Action.RECEIVE)
            ]
        sent = [handler.mqtt_publish(*each, retain=True) for each in found]
        await asyncio.gather(*sent, return_exceptions=True)


class TransportWriter(StreamWriterAdapter):  # type: ignore[misc] # as above
    """amqtt's writer, with its transport."""

    is_closed: bool

    @property
    def transport(self) -> asyncio.WriteTransport:
        """Transport of the connection."""
        transport: asyncio.WriteTransport = self._writer.transport
        return transport


class ConnectionState:
    """Replacement for amqtt's use of `transitions.Machine`."""

    __slots__ = ("_session", "state")

    def __init__(self, session: Session) -> None:
        self.state = "new"
        """`new`, `connected` or `disconnected`."""
        self._session = weakref.ref(session)

    def is_connected(self) -> bool:
        """Whether the client is connected."""
        return self.state == "connected"

    def connect(self) -> None:
        """Note that the client has connected. Raises `ValueError` if it is connected already."""
        if self.is_connected():
            raise ValueError("the client is connected already")
        self.state = "connected"
        if (session := self._session()) is not None:
            session.last_connect_time, session.last_disconnect_time = int(time.time()), None

    def disconnect(self) -> None:
        """Note that the client has disconnected."""
        self.state = "disconnected"
        if (session := self._session()) is not None:
            session.last_disconnect_time = int(time.time())


def separate_unreleased_messages() -> None:
    """Let messages of QoS 2 wait for PUBREL in tasks of their own.

    amqtt's reader keeps the finished tasks of all later packets while its first task waits.
    """
    if hasattr(BrokerProtocolHandler, _FLOWS):
        return
    handle = BrokerProtocolHandler.handle_publish

    async def handle_publish(self: BrokerProtocolHandler, packet: PublishPacket) -> None:
        if packet.qos != QOS_2:
            await handle(self, packet)
            return
        flows = self.__dict__.setdefault(_FLOWS, set())
        task = asyncio.create_task(handle(self, packet))
        flows.add(task)
        task.add_done_callback(flows.discard)

    BrokerProtocolHandler.handle_publish = handle_publish
    setattr(BrokerProtocolHandler, _FLOWS, frozenset())


def use_connection_states() -> None:
    """Install this state for all sessions of amqtt."""

    def begin(session: Session) -> None:
        session.transitions = ConnectionState(session)

    Session._init_states = begin
