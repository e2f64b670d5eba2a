"""Mapping files: every error names file, line, mapping, key, the permitted values and the most similar name."""

import json
from importlib import resources
from pathlib import Path

import pytest

from edge.mapping import (
    Mapper,
    MappingError,
    builtin_names,
    explain,
    load_builtin,
    load_pack,
    mapping_schema,
    suggest,
)


def faults(text):
    with pytest.raises(MappingError) as error:
        load_pack(text, "my.toml")
    return error.value.faults


def test_the_reason_of_a_fault_in_toml_leaves_its_code_to_other_languages():
    (fault,) = faults("x = \n")
    assert (fault.code, fault.reason) == ("not_toml", "Invalid value (at line 1, column 5).")
    assert str(fault) == "my.toml:1: Not TOML: Invalid value (at line 1, column 5)."


HEAD = '[[mapping]]\ntopic = "a/{line}"\nobservation = "edge:{line}"\n'


@pytest.mark.parametrize(
    ("text", "line", "key", "nearest", "reason"),
    [
        ('[[mapping]]\ntopik = "a"\nobservation = "edge:a"\n', 2, "topik", "topic", "Unknown key"),
        ("[maping]\n", 1, "maping", "mapping", "Unknown key"),
        ("x = \n", 1, None, None, "Invalid value"),
        ("a = 1\na = 2\n", 2, None, None, "Cannot overwrite a value"),
        (HEAD + 'unit = "uint:Volt"\n', 4, "unit", "unit", 'prefix "uint"'),
        (HEAD + 'unit = "Volt"\n', 4, "unit", "unit:Volt", "is not a unit"),
        (HEAD + 'label = "{lin}"\n', 4, "label", "line", "nothing captures"),
        (HEAD + 'label = "{line"\n', 4, "label", None, "brace"),
        (HEAD + 'label = "{line|uper}"\n', 4, "label", "upper", "not a filter"),
        (HEAD + 'location = "{line}:x"\n', 4, "location", None, "prefix"),
        (HEAD + 'location = "http://{line}/x"\n', 4, "location", None, "fixed scheme and host"),
        (HEAD + 'location = "http://a b/"\n', 4, "location", None, "not an absolute IRI"),
        (HEAD + 'datatype = "bool"\n', 4, "datatype", "boolean", "not a datatype"),
        (HEAD + 'datatype = "xsd:gYear"\n', 4, "datatype", None, "not offered"),
        (HEAD + 'min = "low"\n', 4, "min", None, "valid decimal"),
        (HEAD + "scale = true\n", 4, "scale", None, "Must be a number"),
        (HEAD + "scale = nan\n", 4, "scale", None, "finite"),
        (HEAD + "scale = 1e99\n", 4, "scale", None, "40 digits"),
        (HEAD + 'pattern = "("\n', 4, "pattern", None, "Not a regular expression"),
        (HEAD + 'pattern = "(a+)+"\n', 4, "pattern", None, "run forever"),
        (HEAD + 'pattern = "([a-z]+,?)*x"\n', 4, "pattern", None, "run forever"),
        (HEAD + 'path = "a..b"\n', 4, "path", None, "not a path"),
        (HEAD + 'path = "a"\npayload = "text"\n', 4, "path", None, "kind json"),
        (HEAD + 'payload = "jsn"\n', 4, "payload", None, "Must be 'text', 'json', 'senml' or 'binary'"),
        (HEAD + 'path = "a"\ntime = { path = "t", format = "unx" }\n', 5, "time", None, "not a time format"),
        (HEAD + 'path = "a"\ntime = { path = "t", zone = "Mars/Base" }\n', 5, "time", None, "not known"),
        (HEAD + 'path = "a"\ntime = { path = "t", formt = "unix" }\n', 5, "time.formt", "format", "Unknown key"),
        (HEAD + 'when = { path = "a" }\n', 4, "when", None, "says nothing"),
        (HEAD + "values = { a = [1] }\n", 4, "values.a", None, "true, false, a number or a text"),
        (HEAD + "readings = []\n", 4, "readings", None, "empty"),
        (HEAD + 'existing = true\nreadings = [{ path = "a" }]\n', 4, "existing", None, "Set it in each reading."),
        (HEAD + "values = 5\n", 4, "values", None, "Must be a table."),
        (HEAD + 'readings = [{ path = "a" }, { paht = "b" }]\n', 4, "readings[1].paht", "path", "Unknown key"),
        (
            HEAD + 'readings = [{ path = "a" }, { path = "b", unit = "x" }]\n',
            4,
            "readings[1].unit",
            None,
            "is not a unit",
        ),
        ('[[mapping]]\ntopic = "a/#/b"\nobservation = "edge:a"\n', 2, "topic", None, "must be the last"),
        ('[[mapping]]\ntopic = "a/b+"\nobservation = "edge:a"\n', 2, "topic", None, "whole level"),
        ('[[mapping]]\ntopic = "{a}/{a}"\nobservation = "edge:a"\n', 2, "topic", None, "twice"),
        ('[[mapping]]\ntopic = "a/{1}"\nobservation = "edge:a"\n', 2, "topic", None, "not a capture"),
        ('[[mapping]]\ntopic = "a"\n', 1, "observation", None, "needs an observation"),
        ('[[mapping]]\nobservation = "edge:a"\n', 1, "topic", None, "needs a topic"),
        ('[[mapping]]\ntopic = "a"\nignore = true\nunit = "unit:Volt"\n', 4, "unit", None, "has no readings"),
        ('[namespaces]\nx = "y"\n', 2, "namespaces.x", None, "neither"),
        ('[units]\nkg = "nit:Kilogram"\n', 2, 'units."kg"', "unit", "prefix"),
    ],
)
def test_faults_of_files(text, line, key, nearest, reason):
    (fault,) = faults(text)
    assert (fault.file, fault.line, fault.key, fault.nearest) == ("my.toml", line, key, nearest)
    assert reason in fault.reason
    assert str(fault).startswith("my.toml")


def test_all_errors_are_reported_at_once():
    found = faults('[[mapping]]\nname = "one"\ntopic = "a"\nx = 1\n[[mapping]]\nname = "two"\ntopic = 5\n')
    assert [(each.mapping, each.line) for each in found] == [("one", 1), ("one", 4), ("two", 5), ("two", 7)]


def test_all_faults_of_one_mapping_are_reported_at_once():
    """One run of `edge mapping check` must do: each further one takes its author a minute."""
    found = faults(
        """
[namespaces]
ok = "urn:ok:"
[units]
far = "unit:Celcius"
[[mapping]]
topic = "a/{line}"
captures = { name = "a..b" }
when = { path = "kind" }
readings = [
  { path = "a[", observation = "ok:{line}-{nmae}", unit = "unit:Vlot" },
  { path = "b", observation = "edg:{line}", datatype = "bool", scale = "x" },
  { path = "c", observation = "ok:{line}/c", time = { path = "t", zone = "Mars/Base" }, store = {}, lable = "C" },
]
[[mapping]]
topic = "b/#/c"
observation = "ok:b"
unit = "C"
[[mapping]]
topic = "c"
observation = "ok:c"
unit = "unit:Volt"
"""
    )
    keys = [(each.mapping, each.key) for each in found]
    assert keys == [
        (None, 'units."far"'),
        ("a/{line}", "captures"),
        ("a/{line}", "when"),
        ("a/{line}", "readings[0].path"),
        ("a/{line}", "readings[0].unit"),
        ("a/{line}", "readings[1].scale"),
        ("a/{line}", "readings[1].datatype"),
        ("a/{line}", "readings[2].lable"),
        ("a/{line}", "readings[2].time"),
        ("a/{line}", "readings[2].store"),
        ("b/#/c", "topic"),
        ("b/#/c", "unit"),
    ]
    found = faults(
        """
[[mapping]]
topic = "a/{line}"
captures = { room = "b" }
when = { path = "kind" }
readings = [
  { path = "a[", observation = "urn:{line}-{romo}", datatype = "bool" },
  { path = "b", observation = "edg:{line}", unit = "unit:Vlot", label = "{romo}" },
  { path = "c", observation = "edge:{line}/c", time = { path = "t", zone = "Mars/Base" }, store = {} },
]
"""
    )
    assert [(each.line, each.key) for each in found] == [
        (5, "when"),
        (7, "readings[0].path"),
        (7, "readings[0].datatype"),
        (8, "readings[1].observation"),
        (8, "readings[1].unit"),
        (8, "readings[1].label"),
        (9, "readings[2].time"),
        (9, "readings[2].store"),
    ]


@pytest.mark.parametrize(
    ("text", "key", "reason"),
    [
        ('path = "rooms[*].t"\nobservation = "edge:t/{member}"\n', "observation", "All values"),
        (
            'readings = [{ path = "a.v", observation = "edge:{member}" },'
            ' { path = "b.v", observation = "edge:{member}" }]\n',
            "readings[1].observation",
            "readings[0] has the same observation",
        ),
        ('payload = "senml"\nobservation = "edge:t"\n', "observation", "All records"),
        (
            'path = "t"\nobservation = "edge:{member}"\n[[mapping]]\ntopic = "a"\npath = "u.t"\n'
            'observation = "edge:{member}"\n',
            "observation",
            '"my/a" has the same',
        ),
        ('path = "l[{i}].v"\nobservation = "edge:{i}"\ntime = "l[*].ts"\n', "time", "the first of several"),
        ('path = "l[{i}].v"\nobservation = "edge:{i}"\nunit_from = "l[*].u"\n', "unit_from", "the first of several"),
        (
            'path = "l[{i}].v"\nobservation = "edge:{i}/{n}"\ncaptures = { n = "l[*].n" }\n',
            "captures",
            "the first of several",
        ),
        ('path = "rooms[*].t"\nobservation = "edge:t"\n', "observation", 'All values of "rooms[*].t"'),
        ('path = "{key}"\nobservation = "edge:t"\n', "observation", 'All values of "{key}"'),
        ('each = "rooms[*]"\npath = "t"\nobservation = "edge:t"\n', "observation", 'all items of "rooms[*]"'),
        (
            'readings = [{ path = "a", observation = "edge:t" }, { path = "b", observation = "edge:t" }]\n',
            "readings[1].observation",
            "readings[0] has the same observation",
        ),
        (
            'observation = "edge:t"\n[[mapping]]\ntopic = "b"\nobservation = "edge:t"\n',
            "observation",
            '"my/a" has the same',
        ),
    ],
)
def test_values_that_replace_each_other_are_warned_about(text, key, reason):
    (warning,) = load_pack(f'[[mapping]]\ntopic = "a"\n{text}', "my").warnings
    assert (warning.key, reason in warning.reason, warning.line is not None) == (key, True, True), warning


@pytest.mark.parametrize(
    "text",
    [
        'path = "rooms[*].t"\nwhen = { path = "@.name", equals = "hall" }\nobservation = "edge:t"\n',
        'path = "rooms[{i}].t"\nobservation = "edge:{i}"\n',
        'path = "{key}"\nobservation = "edge:{member}"\n',
        'path = "rooms[*].t"\ncaptures = { room = "@.name" }\nobservation = "edge:{room}"\n',
        'each = "rooms[*]"\ncaptures = { room = "name" }\npath = "t"\nobservation = "edge:{room}"\n',
        'readings = [{ path = "a", when = { path = "n", equals = 1 }, observation = "edge:t" },'
        ' { path = "b", observation = "edge:t" }]\n',
        'readings = [{ path = "a", observation = "edge:{member}" }, { path = "b", observation = "edge:{member}" }]\n',
    ],
)
def test_values_with_observations_of_their_own_are_not(text):
    assert load_pack(f'[[mapping]]\ntopic = "a"\n{text}', "my").warnings == ()


def test_packs_of_the_gateway_have_no_warnings():
    assert [load_builtin(name).warnings for name in builtin_names()] == [()] * len(builtin_names())


def test_a_fault_of_defaults_is_reported_once_at_its_line():
    text = """
[defaults]
unit = "C"
observation = "edge:{y}"
[[mapping]]
topic = "a"
[[mapping]]
topic = "b"
readings = [{ path = "a" }, { path = "b", unit = "unit:Volt" }]
"""
    assert [(each.line, each.key, each.mapping) for each in faults(text)] == [
        (3, "defaults.unit", None),
        (4, "defaults.observation", None),
    ]


@pytest.mark.parametrize("key", ["intSpec", "str", "tuple_", "literals", "bool", "x[0]"])
def test_a_key_with_the_name_of_a_type_is_a_fault(key):
    assert faults(f'{HEAD}"{key}" = 1\n')
    assert faults(f'{HEAD}readings = [{{ "{key}" = 1 }}]\n')


def test_an_empty_topic_is_a_fault():
    (fault,) = faults('[[mapping]]\ntopic = ""\nobservation = "edge:a"\n')
    assert (fault.line, fault.key) == (2, "topic")


def test_a_gateway_keeps_a_file_whose_unit_is_unknown():
    """The file was valid before units were checked. Without it, an update of the gateway would stop its values."""
    text = HEAD + 'unit = "unit:Celcius"\nunits = { far = "unit:Fahrenhiet" }\n'
    assert {each.nearest for each in faults(text)} == {"unit:DegreeCelsius", "unit:DegreeFahrenheit"}
    pack = load_pack(text, "my", strict=False)
    assert [(each.line, each.key) for each in pack.warnings] == [(4, "unit"), (5, 'units."far"'), (5, "units")]
    (reading,) = Mapper([pack]).map("a/1", b"21.5").readings
    assert reading.unit == "http://qudt.org/1.1/vocab/unit#Celcius"


def test_files_have_the_name_of_the_pack_and_utf_8(tmp_path: Path):
    path = tmp_path / "greenhouse.toml"
    path.write_text(HEAD)
    assert load_pack(path).name == "greenhouse"
    path.write_bytes(b"\xff")
    with pytest.raises(MappingError, match="UTF-8"):
        load_pack(path)


LISTING_17 = {
    "semantic-mappings": {
        "pepoli/6lowpan/network/NODO1/Temperature": {
            "observation": "arces-monitor:Pepoli-6lowpan-Nodo1-Temperature",
            "unit": "qudt-unit-1-1:DegreeCelsius",
            "location": "arces-monitor:Star",
            "comment": "Server room temperature---Viale Pepoli (6LowPan)",
            "label": "Server {room} temperature",
        }
    }
}


@pytest.mark.parametrize("document", [LISTING_17, {"host": "x", "namespaces": {}, "extended": LISTING_17}])
def test_the_form_of_listing_17(document):
    mapper = Mapper([load_pack(json.dumps(document), "jsap")])
    (reading,) = mapper.map("pepoli/6lowpan/network/NODO1/Temperature", b"22.5").readings
    assert reading.observation == "http://mml.arces.unibo.it/monitor#Pepoli-6lowpan-Nodo1-Temperature"
    assert reading.unit == "http://qudt.org/1.1/vocab/unit#DegreeCelsius"
    assert reading.location == "http://mml.arces.unibo.it/monitor#Star"
    assert reading.label == "Server {room} temperature"
    assert len(mapper.declared()) == 1


def test_faults_of_listing_17():
    (fault,) = faults('{"semantic-mappings": {"a": {"observation": "edge:a", "unitt": "x"}}}')
    assert fault.nearest == "unit"
    (fault,) = faults('{"semantic-mapping": {}}')
    assert "semantic-mappings" in fault.reason
    (fault,) = faults('{"semantic-mappings": ')
    assert "Not JSON" in fault.reason


def test_an_unknown_pack_is_reported_with_the_nearest_name():
    with pytest.raises(MappingError, match='Did you mean "zigbee2mqtt"'):
        load_builtin("zigbe2mqtt")


def test_the_shipped_schema_is_that_of_the_model():
    shipped = json.loads((resources.files("edge.mapping") / "schema.json").read_text("utf-8"))
    assert shipped == mapping_schema(), "write edge/mapping/schema.json anew: edge mapping schema"


def test_explain_names_the_reason():
    text = '[[mapping]]\nname = "hot"\ntopic = "plant/{x}"\nwhen = { matches = "hot" }\nobservation = "edge:{x}"\n'
    text += '[[mapping]]\nname = "any"\ntopic = "plant/{x}"\nobservation = "edge:{x}"\n'
    mapper = Mapper([load_pack(text, "f")])
    received = explain(mapper, "plant/b", b"5")
    assert [(each.mapping, each.applied) for each in received.candidates] == [("f/hot", False), ("f/any", True)]
    assert "condition" in received.candidates[0].why
    assert received.candidates[1].captures == {"x": "b"}
    assert received.outcome.readings[0].value == "5"
    assert received.suggestion is None
    received = explain(mapper, "plan/b", b"5")
    assert received.nearest == ("plant/{x}",)
    assert received.suggestion is not None


@pytest.mark.parametrize(
    ("text", "payload", "reasons"),
    [
        ('path = "v"\ntime = "t"\n', b'{"v": 1}', ['f/a, v: the payload has nothing at "t" (time)']),
        ('path = "v"\ntime = "t"\n', b'{"v": 1, "t": 1700000000}', []),
        (
            'path = "*.v"\nunit_from = "@.u"\n',
            b'{"a": {"v": 1}}',
            ['f/a, *.v: the payload has nothing at "@.u" (unit_from)'],
        ),
        ('each = "l[*]"\npath = "v"\n', b'{"l": []}', ['f/a: the payload has no items at "l[*]"']),
        ('each = "l[*]"\npick = "max(r)"\npath = "v"\n', b'{"l": [{"v": 1}]}', ['f/a: no item has a number at "r"']),
        ('each = "l[*]"\npath = "v"\ntime = "$.t"\n', b'{"l": [{"v": 1}], "t": 1700000000}', []),
    ],
)
def test_explain_names_missing_parts_of_the_payload(text, payload, reasons):
    mapper = Mapper([load_pack(f'[[mapping]]\ntopic = "a"\nobservation = "edge:{{member}}"\n{text}', "f")])
    assert list(explain(mapper, "a", payload).reasons) == reasons


@pytest.mark.parametrize(
    "payload",
    [
        b"22.5",
        b"ON",
        b"warm",
        b"",
        b"\xff",
        b'{"a b": {"c": [1, true, "x"]}, "\xf0\x9f\x92\xa1": 3, "t": 2}',
        b'[{"n": "a", "v": 1}]',
        b"[1, 2]",
        b"{}",
    ],
)
@pytest.mark.parametrize("topic", ["my/room/t", 'q"{x}\\/é', "lamp/💡", "a/+/b", "a/#"])
def test_a_suggestion_can_be_pasted(topic, payload):
    text = suggest(topic, payload)
    if payload == b"{}" or "+" in topic or "#" in topic:
        return
    mapped = Mapper([load_pack(text, "pasted")]).map(topic, payload)
    assert mapped.matched
    if payload not in (b"", b"\xff"):
        assert mapped.readings
        assert mapped.problems == ()


@pytest.mark.parametrize("word", ["member", "name", "topic"])
def test_a_built_in_capture_cannot_be_defined(word):
    text = f'[[mapping]]\ntopic = "a/b"\npath = "t"\nobservation = "edge:x"\ncaptures = {{ {word} = "p" }}'
    with pytest.raises(MappingError, match=f"captures: The capture {{{word}}} is built in"):
        load_pack(text, "file")


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ('each = "a[*]"\npayload = "text"', "each: A text payload has no items"),
        ('each = "a[*]"\npayload = "senml"', "each: A senml payload has no items"),
        ('each = "a[{i}]"\npath = "t"', "each: The path of the items has no captures"),
        ('each = "@.a[*]"\npath = "t"', "each: The path of the items has no captures"),
        ('each = "a[*"\npath = "t"', 'each: "a\\[\\*" is not a path'),
        ('ignore = true\neach = "a[*]"', "each: A mapping that ignores its topic has no readings"),
        ('captures = { "..." = "p" }\npath = "t"', 'captures: "" is not a valid capture name'),
    ],
)
def test_wrong_items_are_refused(keys, reason):
    with pytest.raises(MappingError, match=reason):
        load_pack(f'[defaults]\nobservation = "edge:x"\n[[mapping]]\ntopic = "a/b"\n{keys}', "file")
