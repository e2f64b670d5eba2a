"""The Modbus adapter when devices are replaced, or the gateway stops, while a request waits for its response."""

import asyncio
import threading
from contextlib import contextmanager

import pytest

from edge.mapping.pack import load_pack
from tests.adapters.modbus_simulator import Simulator
from tests.adapters.test_modbus import command, meter, reads, serving
from tests.support.processes import free_port
from tests.support.waiting import wait_for


@pytest.fixture
def simulator():
    with Simulator(free_port()) as simulator:
        yield simulator


@contextmanager
def slow(simulator: Simulator):
    """Responses to writes wait until the event is set."""
    go = threading.Event()
    asked = simulator._asked

    async def wait(*request: int):
        code = await asked(*request)
        if request[1] == 6:
            await asyncio.to_thread(go.wait, 30)
        return code

    simulator._asked = wait
    try:
        yield go
    finally:
        go.set()
        simulator._asked = asked


def test_a_command_that_is_being_written_is_accepted_although_the_gateway_stops(engine, observations, simulator):
    with serving(observations, meter(simulator), timeout=30) as modbus:
        reads(engine, "setpoint", "0")
        with slow(simulator) as go:
            given = command("setpoint", "20")
            modbus.adapter.put(given, 0.01)
            wait_for(lambda: [each for each in simulator.requests if each[1] == 6], what="it is written")
            bus = modbus.adapter._devices["meter"][0]
            ending = threading.Thread(target=modbus.adapter.disconnect, args=(30,))
            ending.start()
            assert bus._stopping.wait(30)
            assert not modbus.accepted
            go.set()
            ending.join(30)
        assert modbus.accepted == [given]


def test_a_reload_while_a_command_is_written(engine, observations, simulator):
    with serving(observations, meter(simulator), timeout=30) as modbus:
        reads(engine, "setpoint", "0")
        with slow(simulator) as go:
            modbus.adapter.put(command("setpoint", "20"), 0.01)
            wait_for(lambda: [each for each in simulator.requests if each[1] == 6], what="it is written")
            modbus.adapter.follow(load_pack(meter(simulator).replace("0.1\n", "0.2\n"), "test").devices)
            modbus.adapter.put(command("setpoint", "20"), 0.01)  # the reload sends what is still in the graph
            go.set()
            wait_for(lambda: modbus.device().polls > 1, what="polls")
        assert len(modbus.accepted) == 1
        assert modbus.device().commands.sent == 0


def test_a_reload_while_a_request_waits(engine, observations, simulator, caplog):
    caplog.set_level("INFO", "edge.adapters.modbus_bus")
    with serving(observations, meter(simulator), timeout=0.5) as modbus:
        reads(engine, "available", "true")
        simulator.silent.add(1)
        simulator.requests.clear()
        wait_for(lambda: simulator.requests, what="a request waits")
        old = modbus.adapter._devices["meter"][0]
        modbus.adapter.follow(load_pack(meter(simulator).replace("0.1\n", "0.2\n"), "test").devices)
        simulator.silent.clear()
        wait_for(lambda: modbus.device().polls > 1, what="polls")
        assert not old.alive, "two connections never ask at the same time"
        reads(engine, "available", "true")
    assert [each.getMessage() for each in caplog.records if each.name == "edge.adapters.modbus_bus"] == [
        "modbus.up"
    ] * 2
