"""SenML resolution: base fields, times, the draft form, and recorded readings of a city's sensors."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from edge.mapping import Mapper, load_builtin, load_pack

CITY = Path(__file__).parents[3] / "shared" / "data" / "city_sensors_senml.csv"
NOW = datetime(2024, 5, 1, 12, 0, 0, tzinfo=UTC)
TEXT = """
[[mapping]]
topic = "s"
payload = "senml"
observation = "edge:{name}"
datatype = "auto"
"""


def readings(payload, now=NOW):
    mapped = Mapper([load_pack(TEXT, "s")]).map("s", payload, now)
    assert mapped.problems == ()
    return [(each.observation.removeprefix("urn:sepa-edge:"), each.value, each.time) for each in mapped.readings]


def reason(payload):
    mapped = Mapper([load_pack(TEXT, "s")]).map("s", payload, NOW)
    return mapped.problems[0].reason


def test_base_name_unit_value_and_time_apply_from_their_record_on():
    payload = (
        b'[{"n": "a", "v": 1}, {"bn": "x:", "bt": 1700000000, "bv": 0.1, "n": "b", "v": 22.2},'
        b' {"n": "c", "t": -10, "v": 1}]'
    )
    start = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert readings(payload) == [
        ("a", "1", None),
        ("x:b", "22.3", start),
        ("x:c", "1.1", start - timedelta(seconds=10)),
    ]


def test_relative_times_count_from_arrival():
    assert readings(b'[{"n": "a", "v": 1, "t": -5}]') == [("a", "1", NOW - timedelta(seconds=5))]
    assert readings(b'[{"n": "a", "v": 1, "t": -5}]', now=None) == [("a", "1", None)]
    assert readings(b'[{"n": "a", "v": 1, "t": 0}]') == [("a", "1", None)]


def test_kinds_of_values():
    payload = (
        b'[{"n": "a", "vs": "x"}, {"n": "b", "vb": true}, {"n": "c", "vd": "aGk"}, {"n": "d", "s": 5}, {"bn": "e"}]'
    )
    assert readings(payload) == [("a", "x", None), ("b", "true", None), ("c", "aGk", None)]


def test_the_draft_form():
    payload = (
        b'{"bn": "dev/", "bt": 1700000000000, "bu": "Cel", "e": [{"n": "t", "v": "8.50"}, {"n": "s", "sv": "on"}]}'
    )
    time = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert readings(payload) == [("dev/t", "8.50", time), ("dev/s", "on", time)]


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (b"5", "not SenML"),
        (b'{"a": 1}', "not SenML"),
        (b"[1]", "not an object"),
        (b'[{"bver": 11, "n": "a", "v": 1}]', "version"),
        (b'[{"n": "a", "v": 1, "must_": 1}]', "extension"),
        (b'[{"bt": "x", "n": "a", "v": 1}]', '"bt" is not a number'),
        (b'[{"bt": 1e300, "n": "a", "v": 1}]', "era"),
        (b'[{"n": "a", "v": 1, "t": {}}]', '"t" is not a number'),
        (b'[{"v": 1}]', "cannot be a part"),
    ],
)
def test_invalid_senml_is_a_problem(payload, text):
    assert text in reason(payload)


def test_a_whole_record_of_a_city_is_read():
    if not CITY.exists():
        pytest.skip(f"{CITY.name} is not beside the project (../shared/data)")
    mapper = Mapper([load_builtin("senml")])
    seen = Counter()
    for line in CITY.read_text().splitlines():
        moment, _, payload = line.partition(",")
        mapped = mapper.map("senml/city", payload.encode())
        assert mapped.problems == ()
        assert len(mapped.readings) == 7
        for reading in mapped.readings:
            assert reading.time == datetime.fromtimestamp(int(moment) / 1000, UTC)
            assert reading.datatype == "http://www.w3.org/2001/XMLSchema#decimal"
            seen[reading.observation.rsplit("/", 1)[1], reading.unit.split("#")[1]] += 1
    assert seen["temperature", "DegreeCelsius"] == seen["longitude", "DegreeAngle"] == 1000
    assert seen["humidity", "Percent"] == seen["dust", "Unitless"] == 1000
