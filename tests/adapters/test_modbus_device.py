"""State of a polled device without a connection: the requests that are due, waiting commands, and messages."""

from __future__ import annotations

import json

import pytest

from edge.adapters.modbus_device import CommandQueue, PolledDevice, messages
from edge.backoff import Backoff
from edge.mapping.actuators import Command
from edge.mapping.pack import load_pack
from edge.mapping.values import JsonNumber

FOUR = """
[[modbus]]
name = "meter"
host = "192.0.2.1"
interval = 10
registers = [
  { name = "a", address = 1 },
  { name = "b", address = 2 },
  { name = "c", address = 3 },
  { name = "d", address = 100 },
]
"""
BACKOFF = Backoff(1.0, 60.0)


@pytest.fixture
def device() -> PolledDevice:
    (found,) = load_pack(FOUR, "f").devices
    return PolledDevice(found, BACKOFF, 10.0, 10, 0.0)


def names(device: PolledDevice, now: float) -> list[str]:
    return ["".join(value.name for value in request.values) for request in device.due(now)]


def test_a_request_without_a_response_is_divided_and_has_a_backoff(device):
    joined, other = device.due(0)
    device.answered()
    assert not device.unanswered(joined, 0), "its cause is not known yet"
    device.accepted(other)
    assert names(device, 10) == ["d", "a"], "after one that answers, one at a time"
    first = device.due(20)[1]
    assert device.unanswered(first, 20), "the cause is found"
    assert not device.unanswered(first, 20), "it is reported once"
    second = device.due(20 + 1e-6)
    assert second == [], "only after one that answers"
    found = device.due(30)[1]
    device.accepted(found)
    assert "".join(value.name for value in found.values) in names(device, 40)


def test_a_device_is_tried_again_with_another_request_first(device):
    joined, _ = device.due(0)
    assert device.failed("silence", 0, joined)
    assert names(device, 60) == ["d", "abc"]


def test_divided_requests_are_joined_when_the_device_comes_again(device):
    joined, _ = device.due(0)
    device.answered()
    assert not device.refused(joined, 2)
    assert names(device, 0) == ["a", "bc", "d"]
    device.failed("silence", 0)
    assert names(device, 60) == ["abc", "d"]


@pytest.mark.parametrize("silent", [False, True])
def test_only_values_that_do_not_come_are_named_after_a_division(device, silent):
    joined, other = device.due(0)
    device.answered()
    device.refused(joined, 4)
    device.accepted(other)
    assert device.without_value == ["a", "b", "c"]
    if silent:
        device.unanswered(joined, 10)
    else:
        device.refused(joined, 2)
    assert device.without_value == [], "the cause is not known yet"
    first, rest = joined.halves()
    device.accepted(first)
    device.refused(rest, 4)
    device.refused(other, 2)
    assert device.without_value == ["b", "c", "d"]


def test_the_backoff_ends_with_a_complete_poll(device):
    for _ in range(5):
        device.failed("silence", 0)
        device.answered()
    assert not device.ready(7), "a device that comes and goes is asked less and less"
    device.completed()
    device.failed("silence", 100)
    assert device.ready(101)


def test_commands_wait_while_the_device_is_busy():
    commands = CommandQueue(1000.0, 10, BACKOFF)
    commands.held = False
    given = Command("c", "modbus/meter/a", b"1", 1, False)
    assert commands.put(given, 0.0)
    for now, wait in ((0.0, 1.0), (10.0, 2.0), (20.0, 4.0)):
        assert commands.due(now) == given
        commands.postpone(given.topic, now)
        assert commands.due(now + wait / 2 - 0.1) is None
        assert 0 < (commands.wait(now) or 0) <= wait
    newer = given._replace(payload=b"2")
    commands.due(30.0)
    commands.put(newer, 0.0)
    commands.postpone(given.topic, 30.0)
    assert commands.due(100.0) == newer
    commands.discard(newer)
    assert len(commands) == 1


@pytest.mark.parametrize(("values", "parts"), [(1, [1]), (1000, [1000]), (1001, [1000, 1]), (2500, [1000, 1000, 500])])
def test_a_message_has_at_most_1000_values(values, parts):
    found = [json.loads(each) for each in messages({f"r{number}": JsonNumber(number) for number in range(values)})]
    assert [len(each) for each in found] == parts
    assert sorted(number for each in found for number in each.values()) == list(range(values))
