"""Suggested mappings: each is valid, and reads the message that it was made for."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.mapping import Mapper, load_pack, suggest

NAMES = st.one_of(
    st.sampled_from(
        ["temperature", "time", "object", "a b", "id", "0", ".", "", "{x}", "member", "topic", "x.y", 'q"', "é"]
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
    load_pack(suggest(topic, json.dumps(document).encode()), "new")


@pytest.mark.parametrize(
    ("topic", "payload", "values"),
    [
        ("home/kitchen/temperature", "21.5", {"home/kitchen/temperature": "21.5 DegreeCelsius"}),
        ("sensor7", "5", {"sensor7": "5 "}),
        ("plug1/state", "ON", {"plug1": "true "}),
        (
            "tele/plug1/SENSOR",
            '{"ENERGY": {"Power": 12, "Voltage": 230}}',
            {"plug1/Power": "12 Watt", "plug1/Voltage": "230 Volt"},
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
        ("x/list", '[{"t": 1, "ts": 1700000000}, {"t": 2, "ts": 1700000060}]', {"x/list/0/t": "1 ", "x/list/1/t": "2 "}),
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
                "v3/app-ttn/devices/dev-1/temperature": "21.5 DegreeCelsius",
                "v3/app-ttn/devices/dev-1/bat_v": "3.1 Volt",
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


def test_a_suggestion_for_one_device_reads_the_others():
    text = suggest("greenhouse/bed1/state", b'{"temperature": 21.5}')
    (reading,) = Mapper([load_pack(text, "new")]).map("greenhouse/bed2/state", b'{"temperature": 9}').readings
    assert (reading.observation, reading.label) == ("urn:sepa-edge:greenhouse/bed2/temperature", "temperature of bed2")
