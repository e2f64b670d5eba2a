"""The built-in packs with payloads of real devices (samples/*.json)."""

import json
from pathlib import Path

import pytest

from edge.mapping import Mapper, builtin_names, load_builtin, load_pack

SAMPLES = Path(__file__).parent / "samples"


def samples():
    for path in sorted(SAMPLES.glob("*.json")):
        for number, sample in enumerate(json.loads(path.read_text("utf-8"))):
            yield pytest.param(sample, id=f"{path.stem}-{number}-{sample['note'][:40]}")


@pytest.fixture(scope="module")
def mapper():
    return Mapper(load_builtin(name) for name in builtin_names())


def received(reading):
    name = reading.observation.removeprefix("urn:sepa-edge:")
    name = name.replace("http://mml.arces.unibo.it/monitor#", "arces-monitor:")
    unit = reading.unit.split("#")[-1].split("/")[-1]
    parts = [name, json.dumps(reading.value), reading.datatype.split("#")[1], unit]
    if reading.time is not None:
        parts.append(reading.time.isoformat())
    return " ".join(parts)


@pytest.mark.parametrize("sample", list(samples()))
def test_a_recorded_message_gives_the_expected_readings(mapper, sample):
    mapped = mapper.map(sample["topic"], sample["payload"].encode())
    assert mapped.matched
    assert list(mapped.mappings) == sample["mapping"]
    assert mapped.ignored == sample["ignored"]
    # Readings that only change existing observations are not those of a new device.
    assert [received(reading) for reading in mapped.readings if not reading.existing] == sample["readings"]
    assert [problem.reason for problem in mapped.problems] == sample["problems"]
    for reading in mapped.readings:
        # The properties of each observation in the paper's OBSERVATIONS_VALUES query (Listing 18).
        assert reading.unit
        assert reading.location
        assert reading.label
        assert reading.topic == sample["topic"]


def test_every_pack_has_samples():
    assert {path.stem for path in SAMPLES.glob("*.json")} == set(builtin_names())


@pytest.mark.parametrize(
    ("topic", "payload"),
    [
        ("plant/line1/temperature", b"21"),
        ("mill/status", b'{"speed": 12}'),
        ("mill/status", b"running"),
        ("mill/debug", b"starting"),
        ("mill/events/rpc", b'{"method": "Start"}'),
        ("mill/online", b"true"),
        ("mill/status/switch:0", b'{"output": true}'),
        ("mill/sensor/raw", b"1"),
        ("$SYS/broker/uptime", b"12 seconds"),
        ("$SYS/sensor/x/state", b"1"),
    ],
)
def test_packs_leave_the_topics_of_others_alone(mapper, topic, payload):
    assert not mapper.map(topic, payload).matched


def test_an_own_file_goes_before_the_packs():
    own = load_pack('[[mapping]]\ntopic = "#"\nignore = true\nname = "quiet"\n', "own")
    mapper = Mapper([load_builtin("zigbee2mqtt"), own])
    mapped = mapper.map("zigbee2mqtt/lamp", b'{"state": "ON"}')
    assert mapped.ignored
    assert mapped.mappings == ("own/quiet",)


@pytest.mark.parametrize(
    ("message", "value", "unit"),
    [
        ({"pressure": 1013.2}, "1013.2", "Millibar"),
        ({"pressure": 300}, "300", "Millibar"),
        ({"pressure": 101.3}, "101.3", "KiloPascal"),
        ({"pressure": 53}, "53", "KiloPascal"),
        ({"pressure": 2.5}, "2.5", "Unitless"),
        ({"temperature_f": 68}, "68", "DegreeFahrenheit"),
        ({"temperature_2": 20}, "20", "DegreeCelsius"),
        ({"tilt": 35}, "35", "Percent"),
        ({"tilt": False}, "false", "Unitless"),
        ({"voc": 120}, "120", "Unitless"),
        ({"overload_protection": 2300}, "2300", "Watt"),
        ({"overload_protection": "Alarm Active"}, "Alarm Active", "Unitless"),
    ],
)
def test_zigbee2mqtt_values_with_several_definitions(message, value, unit):
    mapped = Mapper([load_builtin("zigbee2mqtt")]).map("zigbee2mqtt/device", json.dumps(message).encode())
    (reading,) = mapped.readings
    assert (reading.value, (reading.unit or "").rpartition("#")[2]) == (value, unit)
    assert not mapped.problems
