"""The memory of a closed connection to the embedded broker is free without the garbage collector."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator

import pytest
from amqtt.mqtt.protocol.broker_handler import BrokerProtocolHandler
from amqtt.session import Session
from transitions import Machine

from edge.adapters.broker import EmbeddedBroker
from edge.adapters.broker_streams import BoundedReader, BoundedWriter
from edge.adapters.settings import MqttSettings
from edge.compat.amqtt import ConnectionState
from edge.listener import _Connection
from tests.faults.bare_mqtt import BareDevice
from tests.support.waiting import eventually

TYPES = (BoundedReader, BoundedWriter, BrokerProtocolHandler, ConnectionState, Session, _Connection)


def left() -> list[str]:
    return sorted(type(each).__name__ for each in gc.get_objects() if isinstance(each, TYPES))


@pytest.fixture
async def broker() -> AsyncIterator[EmbeddedBroker]:
    broker = EmbeddedBroker(MqttSettings(port=0))
    await broker.start()
    await broker.open()
    gc.collect()
    gc.disable()
    yield broker
    gc.enable()
    await broker.stop()


async def test_a_client_that_disappears_leaves_no_memory(broker):
    device = await BareDevice.connect("one", broker.port)
    assert left()
    device.vanish()
    await eventually(
        lambda: left() == [], "nothing that is left", seconds=15
    )  # earlier than the end of a silent connection


async def test_two_clients_of_the_same_name_leave_no_memory(broker):
    devices = [await BareDevice.connect("one", broker.port) for _ in range(2)]
    for device in devices:
        device.vanish()
    await eventually(
        lambda: left() == [], "nothing that is left", seconds=15
    )  # earlier than the end of a silent connection


def test_sessions_have_no_general_state_machines(broker):
    assert not isinstance(Session().transitions, Machine)


def test_the_state_of_a_session(broker):
    session = Session()
    state = session.transitions
    assert (state.state, state.is_connected()) == ("new", False)
    state.connect()
    assert (state.state, state.is_connected(), session.last_disconnect_time) == ("connected", True, None)
    assert session.last_connect_time
    with pytest.raises(ValueError, match="already"):
        state.connect()
    state.disconnect()
    assert (state.state, state.is_connected()) == ("disconnected", False)
    assert session.last_disconnect_time
    state.connect()
    assert session.last_disconnect_time is None
