"""Actuation of ports whose devices acknowledge: the commands that a device gets when it is connected again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from edge.adapters.actuation import Actuation
from edge.adapters.desired_values import DesiredValues
from edge.adapters.registry import BadValues
from edge.adapters.settings import ActuationSettings
from edge.engine.requests import QueryRequest, UpdateRequest
from edge.mapping.actuators import Command
from edge.mapping.mapper import Mapper
from edge.mapping.pack import load_pack
from tests.support.waiting import wait_for

METER = """
[[modbus]]
name = "meter"
host = "127.0.0.1"
registers = [{ name = "level", address = 1, write = true }]

[[actuator]]
name = "mode"
query = "SELECT ?mode { <urn:x> <urn:mode> ?mode }"
topic = "modbus/meter/mode"
payload = "{mode}"
"""
IRI = "urn:sepa-edge:modbus:meter/level"
TOPIC = "http://mml.arces.unibo.it/monitor#hasMqttTopic"


class Devices:
    """Ports that record the commands of the device "meter"."""

    acknowledges = True

    def __init__(self) -> None:
        self.commands: list[Command] = []

    def takes(self, topic: str) -> bool:
        return topic.startswith("modbus/meter/")

    def put(self, command: Command, interval: float) -> str:
        self.commands.append(command)
        return ""

    def withdraw(self, actuator: str) -> None:
        """Nothing waits."""


@contextmanager
def actuating(engine) -> Iterator[tuple[Actuation, Devices]]:
    pack = load_pack(METER, "f")
    devices = Devices()
    actuation = Actuation(engine, ActuationSettings(), BadValues(100))
    actuation.send_by(devices)
    actuation.follow([*pack.actuators, DesiredValues().follow(Mapper([pack]))])
    actuation.start(None)
    try:
        yield actuation, devices
    finally:
        actuation.stop()


def update(engine, text: str) -> None:
    engine.update([UpdateRequest(text)]).result(10)


def desire(engine, value: int) -> None:
    old = f"<{IRI}> <urn:sepa-edge:desired> ?old"
    update(
        engine,
        f"DELETE {{ {old} }} INSERT {{ <{IRI}> <urn:sepa-edge:desired> {value} }} WHERE {{ OPTIONAL {{ {old} }} }}",
    )


def desired(engine) -> list[object]:
    query = f"SELECT ?v {{ <{IRI}> <urn:sepa-edge:desired> ?v }}"
    return list(engine.query(QueryRequest(query)).result(10).rows)


def come(actuation: Actuation, devices: Devices) -> list[bytes]:
    """Return what the device gets when it has come."""
    done, before = threading.Event(), len(devices.commands)
    actuation.port_up("modbus/meter", done.set)
    assert done.wait(10)
    return [each.payload for each in devices.commands[before:]]


def test_a_command_that_was_given_up_waits_for_a_different_one(engine):
    with actuating(engine) as (actuation, devices):
        update(engine, "INSERT DATA { <urn:x> <urn:mode> 1 }")
        wait_for(lambda: devices.commands, what="the command")
        assert come(actuation, devices) == [b"1"]
        actuation.given_up(devices.commands[-1], False)
        assert come(actuation, devices) == []
        update(engine, "DELETE DATA { <urn:x> <urn:mode> 1 }; INSERT DATA { <urn:x> <urn:mode> 2 }")
        wait_for(lambda: devices.commands[-1].payload == b"2", what="the new command")
        assert come(actuation, devices) == [b"2"]


def test_a_desired_value_that_was_accepted_is_not_sent_again(engine):
    update(engine, f"INSERT DATA {{ <{IRI}> <{TOPIC}> 'modbus/meter' }}")
    with actuating(engine) as (actuation, devices):
        for value in (5, 6, 5):
            desire(engine, value)
            wait_for(lambda value=value: devices.commands[-1:] and devices.commands[-1].value == str(value))
            actuation.written(devices.commands[-1])
            assert come(actuation, devices) == [], "it can still be in the graph"
            wait_for(lambda: not desired(engine), what="it is deleted")


def test_a_desired_value_that_is_refused_is_deleted(engine):
    update(engine, f"INSERT DATA {{ <{IRI}> <{TOPIC}> 'modbus/meter' }}")
    with actuating(engine) as (actuation, devices):
        desire(engine, 5)
        wait_for(lambda: devices.commands, what="the command")
        actuation.given_up(devices.commands[-1], False)
        assert come(actuation, devices) == []
        assert desired(engine), "a device that went may come back"
        actuation.given_up(devices.commands[-1], True)
        wait_for(lambda: not desired(engine), what="it is deleted")
