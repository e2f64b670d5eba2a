"""Messages that packs must neither accept nor confuse."""

import json

import pytest

from edge.mapping import Mapper, builtin_names, load_builtin


@pytest.fixture(scope="module")
def mapper():
    return Mapper([load_builtin(name) for name in builtin_names()])


@pytest.mark.parametrize("size", [10, 4_096, 100_000])
def test_zigbee2mqtt_messages_of_each_length_count(mapper, size):
    payload = json.dumps({"temperature": 21.5, "update": {"notes": "y" * size}}).encode()
    (reading,) = [
        r for r in mapper.map("zigbee2mqtt/kitchen", payload).readings if r.observation.endswith("temperature")
    ]
    assert reading.value == "21.5"


@pytest.mark.parametrize("payload", [b'{"temperature": "\xff"}', b"[[[[", b"\xfe\xff"])
def test_a_zigbee2mqtt_message_that_is_broken_is_not_swallowed(mapper, payload):
    mapped = mapper.map("zigbee2mqtt/kitchen", payload)
    assert not mapped.ignored
    assert not mapped.readings
    assert mapped.problems or not mapped.matched


def test_equal_senml_names_of_two_channels_are_two_observations(mapper):
    payload = b'[{"n":"temperature","u":"Cel","v":21.5}]'
    readings = [mapper.map(f"senml/{room}", payload).readings[0] for room in ("kitchen", "bath")]
    assert readings[0].observation != readings[1].observation
    assert readings[0].location != readings[1].location
