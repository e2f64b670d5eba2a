"""Suggested mappings: each is valid, and reads the message that it was made for."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.mapping import Mapper, load_pack, suggest

NAMES = st.one_of(
    st.sampled_from(
        [
            *("temperature", "time", "object", "a b", "a-b", "id", "0", ".", "", "{x}", "member", "topic", "x.y"),
            *('q"', "é", "name", "value", "scale", "value_scale", "exponent", "sensors", "item"),
        ]
    ),
    st.text(max_size=5),
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**9), 10**10),
    st.floats(-1e6, 1e6),
    st.sampled_from(["ON", "21.5", "x"]),
    st.text(max_size=5),
)
DOCUMENTS = st.recursive(
    SCALARS, lambda part: st.lists(part, max_size=3) | st.dictionaries(NAMES, part, max_size=4), max_leaves=12
)
LEVELS = st.one_of(
    st.sampled_from(
        [
            "key",
            "topics",
            "device7",
            "0A1B2C",
            "state",
            "v3",
            "topic",
            "names",
            "..",
            "",
            "{x}",
            "kitchen",
            "devices",
            "$SYS",
        ]
    ),
    st.text(st.characters(exclude_characters="+#/\0", exclude_categories=["Cs", "Cc"]), max_size=6),
)


@given(topic=st.lists(LEVELS, min_size=1, max_size=5).map("/".join), document=DOCUMENTS)
def test_each_suggestion_is_a_valid_file(topic, document):
    """It has no faults and no warnings, and no two values of the message go into one observation."""
    payload = json.dumps(document).encode()
    text = suggest(topic, payload)
    assert (text is None) == (not topic)
    if text is not None:
        pack = load_pack(text, "new")
        assert pack.warnings == ()
        found = [reading.observation for reading in Mapper([pack]).map(topic, payload).readings]
        assert len(found) == len(set(found)) or 'payload = "senml"' in text, text


ITEMS = st.lists(
    st.fixed_dictionaries(
        {"value": st.integers(-9, 9)},
        optional={
            "name": st.sampled_from(["a", "b", " a", "sensors", "1", "..", ""]) | st.integers(0, 2),
            "scale": st.sampled_from([0.1, 10, -1, 0, "x", None, 1e50]),
            "state": st.fixed_dictionaries({"t": SCALARS}),
        },
    ),
    max_size=3,
)


@given(items=ITEMS, others=st.dictionaries(NAMES, SCALARS | ITEMS, max_size=3), key=NAMES)
def test_items_of_suggestions_have_observations_of_their_own(items, others, key):
    test_each_suggestion_is_a_valid_file.hypothesis.inner_test("a/b1", {**others, key: items})


NAMED = '{"time": "2024-05-01T12:00:00Z", "uptime": 5, "sensors": [%s]}'


@pytest.mark.parametrize(
    ("payload", "lines", "values"),
    [
        (
            NAMED % '{"name": "hall", "temp": 21.5}, {"name": "bath", "temp": 20}',
            ['each = "sensors[*]"', 'captures = { sensor = "name" }', 'time = "$.time"'],
            {"uptime": "5", "sensors/hall/temp": "21.5", "sensors/bath/temp": "20"},
        ),
        (
            NAMED % '{"id": 7, "t": {"now": 215}}, {"id": 8, "t": {"now": 200}, "on": true}',
            ['captures = { sensor = "id" }'],
            {"uptime": "5", "sensors/7/t/now": "215", "sensors/8/t/now": "200", "sensors/8/on": "true"},
        ),
        (
            NAMED % '{"name": "a", "value": 215, "scale": 0.1}, {"name": "b", "value": 2, "scale": 10}',
            ['scale_from = "@.scale"'],
            {"uptime": "5", "sensors/a/value": "21.5", "sensors/b/value": "20"},
        ),
        (
            NAMED % '{"name": "a", "value": 215, "scale": 0.1}, {"name": "b", "value": 2}',
            [],
            {"uptime": "5", "sensors/a/value": "215", "sensors/b/value": "2", "sensors/a/scale": "0.1"},
        ),
        (
            NAMED % '{"name": "a", "t": 1}, {"name": "a", "t": 2}',
            ["sensors[{i}].t"],
            {"uptime": "5", "sensors/0/t": "1", "sensors/1/t": "2"},
        ),
        (
            '{"id": "gw1", "sensors": [{"name": "a", "t": 1}, {"name": "b", "h": null}, {"name": "c", "h": 2}]}',
            [],
            {"sensors/a/t": "1", "sensors/c/h": "2"},
        ),
        (
            '{"sensors": [{"name": "a", "t": 1}, {"name": "b"}]}',
            ["required = false"],
            {"sensors/a/t": "1"},
        ),
        ('{"value": 215, "scale": -1}', ['scale10_from = "@.scale"'], {"value": "21.5"}),
        ('{"value": 215, "exponent": -1}', ['scale10_from = "@.exponent"'], {"value": "21.5"}),
        (
            '{"W": 230, "W_SF": -1, "Hz": 5000, "Hz_SF": -2}',
            ['scale10_from = "@.W_SF"', 'scale10_from = "@.Hz_SF"'],
            {"W": "23.0", "Hz": "50.00"},
        ),
        ('{"power": 12, "power_factor": 0.9}', [], {"power": "12", "power_factor": "0.9"}),
        ('{"a": 1, "b": 2, "scale": 3}', [], {"a": "1", "b": "2", "scale": "3"}),
        (
            '{"x": {"value": 1, "scale": 2}, "y": {"value": 2, "scale": 3}}',
            ['path = "{key}.value"', 'scale_from = "@.scale"'],
            {"x/value": "2", "y/value": "6"},
        ),
    ],
)
def test_named_items_and_scales_are_proposed(payload, lines, values):
    text = suggest("gw/state", payload.encode())
    for line in lines:
        assert line in text
    assert lines or "scale_from" not in text
    mapped = Mapper([load_pack(text, "new")]).map("gw/state", payload.encode())
    assert mapped.problems == ()
    assert {each.observation.partition("gw/state/")[2]: each.value for each in mapped.readings} == values


@pytest.mark.parametrize(
    ("topic", "payload", "values"),
    [
        ("home/kitchen/temperature", "21.5", {"home/kitchen/temperature": "21.5 DegreeCelsius"}),
        ("sensor7", "5", {"sensor7": "5 "}),
        ("plug1/state", "ON", {"plug1/state": "true "}),
        (
            "tele/plug1/SENSOR",
            '{"ENERGY": {"Power": 12, "Voltage": 230}}',
            {"tele/plug1/SENSOR/Power": "12 Watt", "tele/plug1/SENSOR/Voltage": "230 Volt"},
        ),
        (
            "weather",
            '{"rooms": {"hall": {"t": 1, "hum": 2}, "bath": {"t": 3, "hum": 4}}}',
            {
                "weather/rooms/hall/t": "1 ",
                "weather/rooms/bath/t": "3 ",
                "weather/rooms/hall/hum": "2 Percent",
                "weather/rooms/bath/hum": "4 Percent",
            },
        ),
        (
            "x/list",
            '[{"t": 1, "ts": 1700000000}, {"t": 2, "ts": 1700000060}]',
            {"x/list/0/t": "1 ", "x/list/1/t": "2 "},
        ),
        (
            "x/same",
            '{"a": {"t": 1, "u": 2}, "b": {"t": 3}}',
            {"x/same/a/t": "1 ", "x/same/u": "2 ", "x/same/b/t": "3 "},
        ),
        (
            "v3/app@ttn/devices/dev-1/up",
            '{"end_device_ids": {"device_id": "dev-1"}, "received_at": "2024-01-01T10:00:00Z",'
            ' "uplink_message": {"f_cnt": 1, "decoded_payload": {"temperature": 21.5, "bat_v": 3.1}}}',
            {
                "v3/app-ttn/devices/dev-1/up/temperature": "21.5 DegreeCelsius",
                "v3/app-ttn/devices/dev-1/up/bat_v": "3.1 Volt",
            },
        ),
        (
            "home/gateway/BTtoMQTT/A4C138000001",
            '{"id": "A4:C1:38:00:00:01", "name": "ATC", "tempc": 21.2, "tempf": 70, "batt": 88}',
            {
                "home/gateway/BTtoMQTT/A4C138000001/tempc": "21.2 DegreeCelsius",
                "home/gateway/BTtoMQTT/A4C138000001/tempf": "70 DegreeFahrenheit",
                "home/gateway/BTtoMQTT/A4C138000001/batt": "88 Percent",
            },
        ),
    ],
)
def test_the_readings_of_a_suggestion(topic, payload, values):
    pack = load_pack(suggest(topic, payload.encode()), "new")
    assert pack.warnings == ()
    mapped = Mapper([pack]).map(topic, payload.encode())
    assert mapped.problems == ()
    found = {each.observation[14:]: f"{each.value} {(each.unit or '').rpartition('#')[2]}" for each in mapped.readings}
    assert found == values


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("battery_mv", "MilliV"),
        ("batteryMv", "MilliV"),
        ("power_factor", None),
        ("energy_wh", "Watthour"),
        ("pressure_pa", "Pascal"),
        ("temperature_f", "DegreeFahrenheit"),
        ("soilTemperature", "DegreeCelsius"),
        ("exponent", None),
        ("c", None),
    ],
)
def test_units_are_guessed_by_names(name, unit):
    pack = load_pack(suggest("a/b", f'{{"{name}": 21.5}}'.encode()), "new")
    (reading,) = Mapper([pack]).map("a/b", f'{{"{name}": 21.5}}'.encode()).readings
    assert (reading.unit or "").replace("#", "/").rpartition("/")[2] == (unit or "")


@pytest.mark.parametrize(
    ("payload", "values"),
    [
        (b"22,5", ["22.5"]),
        (b'{"temp": "21.5", "hum": "40", "name": "x", "on": true}', ["21.5", "40", "true"]),
    ],
)
def test_numbers_may_be_written_as_texts(payload, values):
    pack = load_pack(suggest("a/b", payload), "new")
    assert [each.value for each in Mapper([pack]).map("a/b", payload).readings] == values


def test_values_that_are_left_out_are_counted():
    text = suggest("a/b", json.dumps({f"v{number}": number for number in range(50)}).encode())
    assert "# 10 more values are left out" in text


@pytest.mark.parametrize("topic", ["", "a/+", "#", "a" * 65_536, "a\0"])
def test_a_topic_that_no_message_has_gets_no_suggestion(topic):
    assert suggest(topic, b"5") is None


def test_topics_of_other_alphabets_have_their_own_observations():
    found = set()
    for topic in ("温度", "湿度", "Küche/Wärme"):
        (reading,) = Mapper([load_pack(suggest(topic, b"5"), "new")]).map(topic, b"5").readings
        found.add(reading.observation)
    assert len(found) == 3


def test_a_suggestion_for_one_device_reads_the_others():
    text = suggest("greenhouse/bed1/state", b'{"temperature": 21.5}')
    (reading,) = Mapper([load_pack(text, "new")]).map("greenhouse/bed2/state", b'{"temperature": 9}').readings
    assert (reading.observation, reading.label) == (
        "urn:sepa-edge:greenhouse/bed2/state/temperature",
        "temperature of bed2",
    )
