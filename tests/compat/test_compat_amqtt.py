"""The private names of amqtt exist and are used as `edge.compat.amqtt` expects."""

import asyncio

import pytest
from amqtt import broker as library
from amqtt.broker import Broker
from amqtt.contexts import BrokerConfig, ListenerConfig, ListenerType
from amqtt.mqtt.protocol.broker_handler import BrokerProtocolHandler
from amqtt.session import Session

from edge.compat import amqtt as compat
from tests.support.private_names import check_attributes, check_parameters, check_used

METHODS = {
    "_handle_client_session": ["reader", "writer", "client_session", "handler", "server", "listener_name"],
    "_client_message_loop": ["client_session", "handler"],
    "_get_handler": ["session"],
    "_handle_disconnect": ["client_session", "handler", "disconnect_waiter"],
    "_handle_message_delivery": ["client_session", "handler", "wait_deliver"],
    "_handle_unsubscription": ["client_session", "handler", "unsubscribe_waiter"],
    "_topic_filtering": ["session", "topic", "action"],
    "_publish_retained_messages_for_subscription": ["subscription", "session"],
    "_matches": ["topic", "a_filter"],
    "add_subscription": ["subscription", "session"],
}


def test_the_broker_has_and_calls_the_overridden_methods():
    check_parameters("amqtt", compat, Broker, METHODS)
    check_used("amqtt", compat, library, *(f"self.{name}(" for name in METHODS))
    check_used("amqtt", compat, Broker._client_message_loop, "handler.wait_disconnect()")
    check_parameters("amqtt", compat, BrokerProtocolHandler, {"wait_disconnect": []})


async def test_the_broker_has_the_queues_of_messages_in_delivery():
    config = BrokerConfig(listeners={"default": ListenerConfig(type=ListenerType.EXTERNAL)}, plugins={})
    broker = compat.HookedBroker(config)
    check_attributes(
        "amqtt", compat, broker, "_subscriptions", "_retained_messages", "_broadcast_queue", "_tasks_queue"
    )
    assert not broker.delivering
    broker._tasks_queue.append(task := asyncio.create_task(asyncio.sleep(60)))
    assert broker.delivering
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not broker.delivering


def test_a_session_begins_its_state_with_the_replaced_method(monkeypatch):
    check_parameters("amqtt", compat, Session, {"_init_states": []})
    check_used("amqtt", compat, Session.__init__, "self._init_states()")
    monkeypatch.setattr(Session, "_init_states", Session._init_states)
    compat.use_connection_states()
    session = Session()
    session.transitions.connect()
    assert isinstance(session.transitions, compat.ConnectionState)
    assert session.transitions.is_connected()
    with pytest.raises(ValueError, match="connected already"):
        session.transitions.connect()


async def test_the_writer_gives_its_transport():
    async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0) as server:
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        wrapped = compat.TransportWriter(writer)
        assert (wrapped.transport, wrapped.is_closed) == (writer.transport, False)
        writer.close()
        await writer.wait_closed()
