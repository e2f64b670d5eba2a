"""The mappings that apply to a message, and their results."""

from datetime import UTC, datetime

import pytest

from edge.mapping import Mapper, MappingError, MappingLimits, load_pack

XSD = "http://www.w3.org/2001/XMLSchema#"


def mapper(*texts, **keys):
    return Mapper([load_pack(text, f"file{number}") for number, text in enumerate(texts)], **keys)


def one(text, topic, payload, **keys):
    mapped = mapper(text).map(topic, payload, **keys)
    assert mapped.problems == ()
    (reading,) = mapped.readings
    return reading


def problem(text, topic, payload):
    mapped = mapper(text).map(topic, payload)
    (found,) = mapped.problems
    return mapped, found


TEMPERATURE = """
[[mapping]]
topic = "plant/{line}/temperature"
observation = "edge:{line}"
unit = "unit:DegreeCelsius"
location = "edge:place:{line}"
property = "edge:temperature"
sensor = "edge:sensor:{line}"
label = "Temperature of {line}"
comment = "From {topic}"
"""


def test_a_plain_number_becomes_a_reading():
    reading = one(TEMPERATURE, "plant/l1/temperature", b"22.50")
    assert (reading.observation, reading.value, reading.datatype) == ("urn:sepa-edge:l1", "22.50", XSD + "decimal")
    assert reading.unit == "http://qudt.org/1.1/vocab/unit#DegreeCelsius"
    assert reading.location == "urn:sepa-edge:place:l1"
    assert reading.property == "urn:sepa-edge:temperature"
    assert reading.sensor == "urn:sepa-edge:sensor:l1"
    assert reading.label == "Temperature of l1"
    assert reading.comment == "From plant/l1/temperature"
    assert reading.topic == "plant/l1/temperature"
    assert reading.time is None


@pytest.mark.parametrize(
    ("payload", "value"),
    [
        (b"T=22.5C", "22.5"),
        (b"  -4 \r\n", "-4"),
        (b"21.5\0", "21.5"),
        (b"DS18B20 21.5", "21.5"),
        (b'{"value": 7}', "7"),
        (b"+07.50", "7.50"),
        (b".5", "0.5"),
        (b"3.", "3"),
        ("\ufeff23".encode(), "23"),
    ],
)
def test_the_first_number_of_a_text_is_its_value(payload, value):
    assert one(TEMPERATURE, "plant/l1/temperature", payload).value == value


@pytest.mark.parametrize("payload", [b"on", b"nan", b"NaN", b"inf", b"192.168.1.20", b"1" * 70, b"--", b"e5"])
def test_a_text_without_a_number_is_a_problem(payload):
    mapped, found = problem(TEMPERATURE, "plant/l1/temperature", payload)
    assert mapped.matched
    assert mapped.readings == ()
    assert "number" in found.reason


def test_an_exponent_makes_a_double():
    reading = one(TEMPERATURE, "plant/l1/temperature", b"1.5e3")
    assert (reading.value, reading.datatype) == ("1.5e3", XSD + "double")


def test_an_empty_payload_is_neither_a_reading_nor_a_problem():
    mapped = mapper(TEMPERATURE).map("plant/l1/temperature", b"")
    assert mapped.matched
    assert mapped.readings == mapped.problems == ()


def test_text_that_is_not_utf8_is_a_problem():
    _, found = problem(TEMPERATURE, "plant/l1/temperature", b"\xff\xfe")
    assert found.what == "payload"
    assert "UTF-8" in found.reason


def test_a_topic_without_a_mapping_is_unmapped():
    mapped = mapper(TEMPERATURE).map("plant/l1/humidity", b"1")
    assert not mapped.matched
    assert mapped.mappings == ()


JSON = """
[[mapping]]
topic = "node/{id}"
observation = "edge:{id}-{member}"
readings = [
  { path = "t", scale = 0.1, min = -40, max = 60 },
  { path = "on", datatype = "boolean" },
  { path = "deep.list[1]" },
  { path = 'with["a dot.in it"]', datatype = "string" },
]
"""


def test_several_readings_of_one_payload():
    payload = b'{"t": 223, "on": false, "deep": {"list": [1, 2.50]}, "with": {"a dot.in it": "x"}, "more": 1}'
    mapped = mapper(JSON).map("node/a", payload)
    assert [(each.observation, each.value, each.datatype) for each in mapped.readings] == [
        ("urn:sepa-edge:a-t", "22.3", XSD + "decimal"),
        ("urn:sepa-edge:a-on", "false", XSD + "boolean"),
        ("urn:sepa-edge:a-list", "2.50", XSD + "decimal"),
        ("urn:sepa-edge:a-a%20dot.in%20it", "x", XSD + "string"),
    ]


def test_a_missing_or_null_member_is_accepted_among_several():
    mapped = mapper(JSON).map("node/a", b'{"t": null, "on": true}')
    assert len(mapped.readings) == 1
    assert mapped.problems == ()


def test_a_bad_value_leaves_the_others_alone():
    mapped = mapper(JSON).map("node/a", b'{"t": 700, "on": true}')
    assert [each.value for each in mapped.readings] == ["true"]
    (found,) = mapped.problems
    assert (found.mapping, found.what, found.reason) == ("file0/node/{id}", "t", "70.0 is above the maximum 60")


def test_the_only_reading_of_a_mapping_is_required():
    text = '[[mapping]]\ntopic = "a"\npath = "t"\nobservation = "edge:a"\n'
    _, found = problem(text, "a", b'{"x": 1}')
    assert found.reason == "the payload has no such value"
    assert mapper(text + "required = false\n").map("a", b'{"x": 1}').problems == ()


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b'{"t": ', "not JSON"),
        (b"[" * 100_000, "nested too deep"),
        (b'{"t": NaN}', "not a number"),
        (b'{"t": Infinity}', "not a number"),
        (b'{"t": 1e400}', "too large"),
        (b'{"t": ' + b"9" * 5000 + b"}", "at most 64"),
        (b'{"t": "abc"}', "not a number"),
        (b'{"t": true}', "not a number"),
    ],
)
def test_hostile_json_is_a_problem(payload, reason):
    mapped, found = problem(JSON, "node/a", payload)
    assert mapped.readings == ()
    assert reason in found.reason


def test_the_last_of_equal_names_counts():
    assert one(JSON, "node/a", b'{"t": 1, "t": 20}').value == "2.0"


def test_member_names_are_captured():
    text = """
[[mapping]]
topic = "hub"
observation = "edge:{room}-{quantity}"
readings = [{ path = "{room}.secret", ignore = true }, { path = "{room}.{quantity}" }]
"""
    payload = b'{"hall": {"t": 20, "secret": 1, "name": "x"}, "bath room": {"h": 60.5}, "v": 2}'
    mapped = mapper(text).map("hub", payload)
    assert {each.observation: each.value for each in mapped.readings} == {
        "urn:sepa-edge:hall-t": "20",
        "urn:sepa-edge:bath%20room-h": "60.5",
    }
    assert mapped.problems == ()


def test_items_of_an_array_are_captured_with_their_own_times():
    text = """
[[mapping]]
topic = "hub"
path = "samples[{i}].v"
observation = "edge:hub-{i}"
time = "@.ts"
"""
    mapped = mapper(text).map("hub", b'{"samples": [{"v": 1, "ts": 1700000000}, {"v": 2, "ts": 1700000001500}]}')
    assert [(each.observation, each.time) for each in mapped.readings] == [
        ("urn:sepa-edge:hub-0", datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)),
        ("urn:sepa-edge:hub-1", datetime(2023, 11, 14, 22, 13, 21, 500_000, tzinfo=UTC)),
    ]


EACH = """
[[mapping]]
topic = "hub"
each = "devices[*]"
captures = { "device..." = "name" }
time = "ts"
readings = [
  { path = "state.t", observation = "edge:{device}/t", when = { path = "kind", equals = "thermometer" } },
  { path = "rssi", observation = "edge:{device}/rssi" },
]
"""


BEDS = b"""{"name": "house", "beds": [
  {"name": "north", "kind": "bed", "unit": "Cel", "at": 1700000000, "t": 21.5},
  {"name": "south", "kind": "bed", "unit": "degF", "at": 1700000060, "t": 70},
  {"name": "tank", "kind": "tank", "unit": "Cel", "at": 1700000120, "t": 9},
  {"kind": "bed", "t": 3}]}"""


@pytest.mark.parametrize("place", ["mapping", "reading"])
def test_at_is_the_object_that_contains_the_value(place):
    """In `when`, `captures`, `time` and `unit_from` alike; in `when` of a mapping and of a reading."""
    when = 'when = [{ path = "@.kind", equals = "bed" }, { path = "@.name", exists = true }]'
    mapped = mapper(
        f"""
[[mapping]]
topic = "green"
captures = {{ house = "$.name", bed = "@.name" }}
{when if place == "mapping" else ""}
[[mapping.readings]]
path = "beds[*].t"
observation = "edge:{{house}}/{{bed}}"
unit_from = "@.unit"
time = "@.at"
{when if place == "reading" else ""}
[[mapping.readings]]
path = "beds[{{i}}].t"
ignore = true
"""
    ).map("green", BEDS)
    assert mapped.problems == ()
    assert [
        (each.observation, each.value, each.unit.rpartition("#")[2], each.time.second) for each in mapped.readings
    ] == [
        ("urn:sepa-edge:house/north", "21.5", "DegreeCelsius", 20),
        ("urn:sepa-edge:house/south", "70", "DegreeFahrenheit", 20),
    ]


def test_a_value_without_the_capture_of_its_object_does_not_hide_the_others():
    mapped = mapper(
        """
[[mapping]]
topic = "green"
captures = { bed = "@.name" }
path = "beds[*].t"
observation = "edge:{bed}"
"""
    ).map("green", BEDS)
    assert [each.observation[14:] for each in mapped.readings] == ["north", "south", "tank"]
    (found,) = mapped.problems
    assert "lacks this capture" in str(found)


def test_a_member_is_read_if_the_conditions_on_its_object_hold():
    text = """
[[mapping]]
topic = "a"
readings = [
  { path = "t", when = { path = "@.ok", equals = true }, observation = "edge:t" },
  { path = "{key}", datatype = "auto", observation = "edge:other/{member}" },
]
"""
    assert [each.observation for each in mapper(text).map("a", b'{"t": 1, "ok": true}').readings] == [
        "urn:sepa-edge:t",
        "urn:sepa-edge:other/ok",
    ]
    # A value that the reading does not take is left for later ones.
    assert [each.observation for each in mapper(text).map("a", b'{"t": 1, "ok": false}').readings] == [
        "urn:sepa-edge:other/t",
        "urn:sepa-edge:other/ok",
    ]


@pytest.mark.parametrize(
    "text",
    [
        'when = { path = "@.a", exists = true }\nobservation = "edge:a"\npattern = "x"\npayload = "text"\n',
        'when = { path = "@.a", exists = true }\nignore = true\n',
        'when = { path = "@.a", exists = true }\nobservation = "edge:a"\npayload = "senml"\n',
    ],
)
def test_without_a_value_in_an_object_at_is_refused(text):
    with pytest.raises(MappingError, match='"@"'):
        load_pack(f'[[mapping]]\ntopic = "a"\n{text}')


def test_each_item_of_a_list_is_read_as_a_document():
    payload = b"""{"devices": [
        {"name": "hall/door", "ts": 1700000000, "kind": "thermometer", "state": {"t": 20.5}, "rssi": -60},
        {"name": "attic", "ts": 1700000060, "kind": "lamp", "state": {"t": 99}, "rssi": -70}]}"""
    mapped = mapper(EACH).map("hub", payload)
    assert mapped.problems == ()
    assert [(each.observation, each.value, each.time.minute) for each in mapped.readings] == [
        ("urn:sepa-edge:hall/door/rssi", "-60", 13),
        ("urn:sepa-edge:hall/door/t", "20.5", 13),
        ("urn:sepa-edge:attic/rssi", "-70", 14),
    ]


def test_the_whole_message_is_reached_from_its_items():
    """The best of several gateways, with the name of the device and the time of the message."""
    mapped = mapper(
        """
[[mapping]]
topic = "up"
each = "rx[*]"
pick = "max(rssi)"
captures = { device = "$.info.name", gateway = "id" }
time = "$.time"
when = { path = "$.port", equals = 1 }
observation = "edge:{device}/{member}"
[[mapping.readings]]
path = "rssi"
scale_from = "$.factor"
unit_from = "$.unit"
when = { path = "$.info.on", equals = true }
"""
    ).map(
        "up",
        b'{"port": 1, "factor": 1, "unit": "dBm", "time": 1700000000, "info": {"name": "bell", "on": true},'
        b' "rx": [{"id": "a", "rssi": -90}, {"id": "b", "rssi": -70}]}',
    )
    assert mapped.problems == ()
    (reading,) = mapped.readings
    assert (reading.observation, reading.value) == ("urn:sepa-edge:bell/rssi", "-70")
    assert reading.time is not None
    assert reading.unit.endswith("DecibelReferredToOneMilliwatt")


def test_an_item_without_its_capture_does_not_hide_the_others():
    payload = b'{"devices": [{"rssi": -1}, {"name": "../x", "rssi": -2}, 7, {"name": "attic", "rssi": -3}]}'
    mapped = mapper(EACH).map("hub", payload)
    assert [each.value for each in mapped.readings] == ["-3"]
    assert [found.what for found in mapped.problems] == ["device", "rssi", "device"]


@pytest.mark.parametrize("payload", [b"{}", b'{"devices": {}}', b'{"devices": []}', b"[]"])
def test_a_payload_without_items_has_no_readings(payload):
    mapped = mapper(EACH).map("hub", payload)
    assert (mapped.matched, mapped.readings, mapped.problems) == (True, (), ())


def test_items_share_the_limit_of_readings():
    payload = b'{"devices": [' + b",".join(b'{"name": "d", "rssi": 1}' for _ in range(20)) + b"]}"
    mapped = mapper(EACH, limits=MappingLimits(readings=10)).map("hub", payload)
    assert len(mapped.readings) == 10
    assert [found.what for found in mapped.problems] == ["payload"]


def test_fields_that_repeat_can_be_items():
    text = """
[[mapping]]
topic = "bus"
each = "nodes[*]"
captures = { node = "id" }
fields = [{ name = "nodes", fields = [{ name = "id", type = "u8" }, { name = "t", type = "i8" }] }]
path = "t"
observation = "edge:node-{node}"
"""
    mapped = mapper(text).map("bus", bytes([1, 20, 2, 0xFF]))
    assert [(each.observation, each.value) for each in mapped.readings] == [
        ("urn:sepa-edge:node-1", "20"),
        ("urn:sepa-edge:node-2", "-1"),
    ]


def test_junk_time_is_a_problem_and_the_value_is_kept():
    text = '[[mapping]]\ntopic = "a"\npath = "v"\nobservation = "edge:a"\ntime = "ts"\n'
    for junk in ('"soon"', "12", "true", "[]", '"2024-01-01 12:00:00"', "1e99", '"' + "9" * 300 + '"'):
        mapped = mapper(text).map("a", b'{"v": 1, "ts": ' + junk.encode() + b"}")
        assert [each.value for each in mapped.readings] == ["1"]
        assert mapped.readings[0].time is None
        (found,) = mapped.problems
        assert found.what == "time"
        assert found.kept
    assert mapper(text).map("a", b'{"v": 1, "ts": null}').problems == ()
    assert mapper(text).map("a", b'{"v": 1}').problems == ()


@pytest.mark.parametrize(
    ("keys", "raw", "expected"),
    [
        ('path = "ts"', '"2024-02-24T22:20:38+01:00"', datetime(2024, 2, 24, 21, 20, 38, tzinfo=UTC)),
        ('path = "ts"', '"2024-02-24T22:20:38Z"', datetime(2024, 2, 24, 22, 20, 38, tzinfo=UTC)),
        ('path = "ts", zone = "+02:00"', '"2024-02-24 22:20:38"', datetime(2024, 2, 24, 20, 20, 38, tzinfo=UTC)),
        ('path = "ts", format = "unix_us"', "1700000000000001", datetime(2023, 11, 14, 22, 13, 20, 1, tzinfo=UTC)),
        ('path = "ts", format = "unix"', '"1700000000.25"', datetime(2023, 11, 14, 22, 13, 20, 250_000, tzinfo=UTC)),
        (
            'path = "ts", format = "%d.%m.%Y %H:%M", zone = "UTC"',
            '"24.02.2024 22:20"',
            datetime(2024, 2, 24, 22, 20, tzinfo=UTC),
        ),
    ],
)
def test_forms_of_timestamps(keys, raw, expected):
    text = f'[[mapping]]\ntopic = "a"\npath = "v"\nobservation = "edge:a"\ntime = {{ {keys} }}\n'
    assert one(text, "a", b'{"v": 1, "ts": ' + raw.encode() + b"}").time == expected


def test_a_pattern_captures_value_unit_and_time():
    text = r"""
[[mapping]]
topic = "csv"
pattern = '^(?P<room>\w+);(?P<value>[\d.]+);(?P<unit>\S+);(?P<time>\S+)$'
observation = "edge:{room}"
time = { path = "time", format = "unix" }
units = { grad = "unit:DegreeCelsius" }
"""
    reading = one(text, "csv", b"hall;21.5;grad;1700000000")
    assert reading.observation == "urn:sepa-edge:hall"
    assert reading.unit == "http://qudt.org/1.1/vocab/unit#DegreeCelsius"
    assert reading.time == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    mapped, found = problem(text, "csv", b"hall;21.5;furlong;1700000000")
    assert mapped.readings[0].unit is None
    assert (found.what, found.kept) == ("unit", True)
    _, found = problem(text, "csv", b"hall 21")
    assert "pattern" in found.reason


def test_value_tables_absent_values_and_decimal_commas():
    text = """
[[mapping]]
topic = "door"
observation = "edge:door"
values = { open = true, shut = false, broken = "defect", half = 0.5 }
absent = ["?"]
[[mapping]]
topic = "scale"
observation = "edge:scale"
decimal_comma = true
"""
    assert [one(text, "door", word).datatype for word in (b"open", b"broken", b"half")] == [
        XSD + "boolean",
        XSD + "string",
        XSD + "decimal",
    ]
    assert mapper(text).map("door", b"?").problems == mapper(text).map("door", b"?").readings == ()
    assert "not in the table" in problem(text, "door", b"ajar")[1].reason
    assert one(text, "scale", b"22,5 kg").value == "22.5"


@pytest.mark.parametrize(
    ("datatype", "raw", "value", "iri"),
    [
        ("integer", "5.0", "5", XSD + "integer"),
        ("xsd:integer", "1e3", "1000", XSD + "integer"),
        ("decimal", "1.5e-3", "0.0015", XSD + "decimal"),
        ("double", "22.3", "22.3", XSD + "double"),
        ("string", "22.3", "22.3", XSD + "string"),
        ("boolean", '"Off"', "false", XSD + "boolean"),
        ("boolean", "1", "true", XSD + "boolean"),
        ("auto", '"22"', "22", XSD + "string"),
        ("auto", "22", "22", XSD + "decimal"),
        ("http://www.opengis.net/ont/geosparql#wktLiteral", '"POINT(1 2)"', "POINT(1 2)", None),
    ],
)
def test_datatypes(datatype, raw, value, iri):
    text = f'[[mapping]]\ntopic = "a"\npath = "v"\nobservation = "edge:a"\ndatatype = "{datatype}"\n'
    reading = one(text, "a", b'{"v": ' + raw.encode() + b"}")
    assert (reading.value, reading.datatype) == (value, iri or datatype)


@pytest.mark.parametrize(("datatype", "raw"), [("integer", "5.5"), ("boolean", '"maybe"'), ("decimal", "1e200")])
def test_values_of_another_datatype_are_problems(datatype, raw):
    text = f'[[mapping]]\ntopic = "a"\npath = "v"\nobservation = "edge:a"\ndatatype = "{datatype}"\n'
    mapped, _ = problem(text, "a", b'{"v": ' + raw.encode() + b"}")
    assert mapped.readings == ()


def test_the_most_specific_pattern_wins_and_equal_ones_share():
    text = """
[[mapping]]
name = "all"
topic = "#"
observation = "edge:all"
[[mapping]]
name = "line"
topic = "plant/{line}/temperature"
observation = "edge:line"
[[mapping]]
name = "odd"
topic = "plant/odd-{n}/temperature"
observation = "edge:odd"
[[mapping]]
name = "one"
topic = "plant/one/temperature"
observation = "edge:one"
[[mapping]]
name = "wild"
topic = "plant/+/temperature"
observation = "edge:wild"
"""
    names = {
        "plant/one/temperature": ("file0/one",),
        "plant/odd-1/temperature": ("file0/odd",),
        "plant/two/temperature": ("file0/line", "file0/wild"),
        "plant/two": ("file0/all",),
    }
    mapping = mapper(text)
    for topic, expected in names.items():
        assert mapping.map(topic, b"1").mappings == expected
    assert not mapping.map("$SYS/uptime", b"1").matched


def test_conditions_choose_among_mappings_and_also_adds_them():
    text = """
[[mapping]]
name = "special"
topic = "a"
when = { path = "kind", equals = "special" }
path = "v"
observation = "edge:special"
[[mapping]]
name = "plain"
topic = "a"
path = "v"
observation = "edge:plain"
[[mapping]]
name = "archive"
topic = "+"
path = "v"
observation = "edge:archive"
"""
    assert mapper(text).map("a", b'{"v": 1, "kind": "special"}').mappings == ("file0/special",)
    assert mapper(text).map("a", b'{"v": 1}').mappings == ("file0/plain",)
    both = text.replace('name = "plain"', 'name = "plain"\nalso = true')
    assert mapper(both).map("a", b'{"v": 1}').mappings == ("file0/plain", "file0/archive")


@pytest.mark.parametrize(
    ("condition", "payload", "holds"),
    [
        ('path = "a", equals = 1', b'{"a": 1.0}', True),
        ('path = "a", equals = true', b'{"a": true}', True),
        ('path = "a", equals = "1"', b'{"a": 1}', False),
        ('path = "a", one_of = ["x", "y"]', b'{"a": "y"}', True),
        ('path = "a", exists = false', b'{"b": 1}', True),
        ('path = "a[*].n", equals = "x"', b'{"a": [{"n": "w"}, {"n": "x"}]}', True),
        ('matches = "^ok"', b"ok then", True),
        ('matches = "^ok"', b"not ok", False),
        ('path = "a", exists = true', b"no json", False),
    ],
)
def test_conditions(condition, payload, holds):
    text = f'[[mapping]]\ntopic = "a"\nwhen = {{ {condition} }}\nignore = true\n'
    assert mapper(text).map("a", payload).matched is holds


def test_a_regular_expression_refines_the_topic():
    text = r"""
[[mapping]]
topic = "plant/#"
topic_regex = 'plant/(?P<path>.+)/t(?P<n>\d+)'
observation = "edge:{path}:{n}"
"""
    assert one(text, "plant/a/b/t12", b"1").observation == "urn:sepa-edge:a/b:12"
    assert not mapper(text).map("plant/a/b/x12", b"1").matched


def test_limits_of_a_message():
    text = '[[mapping]]\ntopic = "a"\npath = "[{i}]"\nobservation = "edge:a-{i}"\n'
    bounded = mapper(text, limits=MappingLimits(payload=100, readings=3))
    mapped = bounded.map("a", b"[1, 2, 3, 4, 5]")
    assert len(mapped.readings) == 3
    assert "more than 3 readings" in mapped.problems[0].reason
    mapped = bounded.map("a", b"1" * 101)
    assert mapped.matched
    assert "101 bytes" in mapped.problems[0].reason


def test_remembered_topics_stay_bounded():
    small = mapper(TEMPERATURE, limits=MappingLimits(topics=10, terms=10))
    for number in range(100):
        assert small.map(f"plant/l{number}/temperature", b"1").readings[0].label == f"Temperature of l{number}"
    assert small.map("plant/l0/temperature", b"1").readings


def test_static_observations_are_declared_before_their_first_value():
    text = (
        TEMPERATURE + '[[mapping]]\ntopic = "hall/t"\nobservation = "edge:hall"\nunit = "unit:Volt"\nlabel = "Hall"\n'
    )
    (declared,) = mapper(text).declared()
    assert (declared.topic, declared.observation, declared.label) == ("hall/t", "urn:sepa-edge:hall", "Hall")
    assert declared.unit == "http://qudt.org/1.1/vocab/unit#Volt"
    own = load_pack('[[mapping]]\ntopic = "hall/t"\nignore = true\n', "own")
    assert Mapper([load_pack(text, "pack", own=False), own]).declared() == ()


def test_yields_lists_possible_observations():
    mapping = mapper(JSON, TEMPERATURE)
    assert mapping.yields("plant/l1/temperature", "urn:sepa-edge:l1")
    assert not mapping.yields("plant/l1/temperature", "urn:sepa-edge:l2")
    assert mapping.yields("node/a", "urn:sepa-edge:a-t")
    assert not mapping.yields("node/a", "urn:sepa-edge:b-t")


def test_thousands_of_exact_topics():
    text = "".join(f'[[mapping]]\ntopic = "p/{n}/t"\nobservation = "edge:{n}"\n' for n in range(2000))
    mapping = mapper(text)
    assert mapping.map("p/1999/t", b"5").readings[0].observation == "urn:sepa-edge:1999"
    assert not mapping.map("p/2000/t", b"5").matched


METER = """
[[mapping]]
topic = "meter"
observation = "edge:{member}"
readings = [
  { path = "power.raw", observation = "edge:power", scale10_from = "@.exponent" },
  { path = "energy.raw", observation = "edge:energy", scale = 0.5, scale_from = "$.factor", offset = 1 },
]
"""


@pytest.mark.parametrize(
    ("payload", "power", "energy"),
    [
        (b'{"power": {"raw": 1234, "exponent": -1}, "energy": {"raw": 7}, "factor": 0.1}', "123.4", "1.35"),
        (b'{"power": {"raw": 1.5, "exponent": 3}, "energy": {"raw": 7}, "factor": "10"}', "1500", "36.0"),
        (b'{"power": {"raw": 0, "exponent": 0}, "energy": {"raw": 7}, "factor": 0}', "0", "1.0"),
    ],
)
def test_payloads_can_have_the_scale_of_their_values(payload, power, energy):
    mapped = mapper(METER).map("meter", payload)
    assert mapped.problems == ()
    assert {each.observation[14:]: each.value for each in mapped.readings} == {"power": power, "energy": energy}


@pytest.mark.parametrize("exponent", ["null", "1.5", '"x"', "1e9", "400", "true", "{}", "NaN"])
def test_a_value_without_its_scale_is_a_problem(exponent):
    payload = f'{{"power": {{"raw": 5, "exponent": {exponent}}}, "energy": {{"raw": 7}}, "factor": 1}}'.encode()
    mapped = mapper(METER).map("meter", payload)
    assert [each.observation for each in mapped.readings] == ["urn:sepa-edge:energy"]
    assert [problem.what for problem in mapped.problems] == ["power.raw"]


UPLINK = """
[[mapping]]
topic = "lora/{device}"
observation = "edge:{device}/{member}"
when = { path = "port", equals = 1 }
readings = [
  { path = "up.data.temperature", unit = "°C", scale = 0.01 },
  { path = "up.data.door", datatype = "boolean", when = { path = "up.data.kind", equals = 1 } },
  { path = "up.rssi", unit = "dBm" },
]
decode = { path = "up.data", encoding = "base64", fields = [
  { name = "kind", type = "u8" },
  { name = "temperature", type = "i16" },
  { name = "flags", type = "u8", bits = { door = 0 } },
] }
"""


def test_bytes_in_a_json_payload_are_decoded():
    text = UPLINK.replace("up.data.door", "up.data.flags.door")
    mapped = mapper(text).map("lora/7", b'{"port": 1, "up": {"data": "AQhmAQ==", "rssi": -90}}')
    assert mapped.problems == ()
    assert {each.observation[16:]: each.value for each in mapped.readings} == {
        "temperature": "21.50",
        "door": "true",
        "rssi": "-90",
    }
    hexadecimal = text.replace('"base64"', '"hex"')
    mapped = mapper(hexadecimal).map("lora/7", b'{"port": 1, "up": {"data": "02 FFFF 00", "rssi": -90}}')
    assert {each.observation[16:]: each.value for each in mapped.readings} == {"temperature": "-0.01", "rssi": "-90"}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ('"AQ"', "is not base64"),
        ('"AQ=="', "ends within"),
        ('"AQhm AQ=="', "is not base64"),
        ("5", "is not a text"),
        ("null", "is not a text"),
        ('{"a": 1}', "is not a text"),
    ],
)
def test_bytes_that_cannot_be_decoded_are_a_problem(data, reason):
    mapped = mapper(UPLINK).map("lora/7", f'{{"port": 1, "up": {{"data": {data}}}}}'.encode())
    assert mapped.readings == ()
    assert reason in str(mapped.problems[0])


def test_a_payload_that_others_read_is_not_changed_by_decoding():
    other = """
[[mapping]]
topic = "lora/{device}"
when = { path = "port", equals = 1 }
path = "up.data"
datatype = "string"
observation = "edge:raw/{device}"
"""
    mapped = mapper(UPLINK + other).map("lora/7", b'{"port": 1, "up": {"data": "AQhmAQ==", "rssi": -90}}')
    assert {each.observation: each.value for each in mapped.readings}["urn:sepa-edge:raw/7"] == "AQhmAQ=="


HEARD = """
[[mapping]]
topic = "lora/{device}"
each = "rx[*]"
pick = "max(rssi)"
observation = "edge:{device}/{member}"
readings = [{ path = "rssi" }, { path = "snr" }]
"""


@pytest.mark.parametrize(
    ("received", "values"),
    [
        ('[{"rssi": -90, "snr": 1}, {"rssi": -70.5, "snr": 2}, {"rssi": -80, "snr": 3}]', ["-70.5", "2"]),
        ('[{"rssi": -90, "snr": 1}, {"rssi": -90, "snr": 2}]', ["-90", "1"]),
        ('[{"snr": 1}, {"rssi": "x"}, {"rssi": null}, {"rssi": NaN}, {"rssi": "-99", "snr": 4}]', ["-99", "4"]),
        ('[{"snr": 1}]', []),
        ("[]", []),
    ],
)
def test_the_best_of_several_items_is_read(received, values):
    mapped = mapper(HEARD).map("lora/7", f'{{"rx": {received}}}'.encode())
    assert mapped.problems == ()
    assert [each.value for each in mapped.readings] == values


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('each = "a[*]"\npick = "best(rssi)"\n', "pick"),
        ('each = "a[*]"\npick = "max()"\n', "pick"),
        ('each = "a[*]"\npick = "max(a..b)"\n', "pick"),
        ('path = "a"\npick = "max(rssi)"\n', "pick"),
        ('decode = { path = "a[0]", encoding = "hex", fields = [{ name = "x", type = "u8" }] }\n', "decode.path"),
        ('decode = { path = "a", encoding = "hex", fields = [] }\n', "decode.fields"),
        (
            'decode = { path = "a", encoding = "hex", fields = [{ name = "x", type = "u9" }] }\n',
            "decode.fields[0].type",
        ),
        ('decode = { path = "a", encoding = "rot13", fields = [{ name = "x", type = "u8" }] }\n', "decode.encoding"),
        (
            'payload = "text"\ndecode = { path = "a", encoding = "hex", fields = [{ name = "x", type = "u8" }] }\n',
            "decode",
        ),
        ('payload = "text"\nscale_from = "a"\n', "scale_from"),
        ('path = "a"\nscale10_from = "b"\nset = { topic = "x" }\n', "set"),
    ],
)
def test_faults_of_items_bytes_and_scales(text, key):
    with pytest.raises(MappingError) as error:
        load_pack(f'[[mapping]]\ntopic = "a"\nobservation = "edge:a"\n{text}')
    assert [fault.key for fault in error.value.faults] == [key]
