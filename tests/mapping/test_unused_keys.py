"""Settings without effect are warnings: the file can be used, but its author meant something else."""

import re
from pathlib import Path

import pytest

from edge.mapping import Mapper, load_pack

ROOT = Path(__file__).parents[2]
HEAD = '[[mapping]]\ntopic = "a/{line}"\nobservation = "edge:{line}"\n'
JSON = HEAD + 'path = "t"\n'
SENML = '[[mapping]]\ntopic = "a/{line}"\npayload = "senml"\nobservation = "edge:{name}"\n'
SWITCH = JSON + 'datatype = "boolean"\n'


PORT = '[[serial]]\nname = "p"\ndevice = "/dev/ttyS0"\n'
ACTUATOR = '[[actuator]]\nquery = "SELECT ?x ?y { ?x ?p ?y }"\ntopic = "a/{x}"\npayload = ["1"]\n'


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        (SWITCH + 'unit = "unit:Volt"\n', ["unit"]),
        ("[defaults]\nunit = 'unit:Volt'\nscale = 2\nlabel = 'x'\n" + SWITCH, ["defaults.unit", "defaults.scale"]),
        ("[defaults]\nobservation = 'edge:x'\n" + JSON, ["defaults.observation"]),
        (ACTUATOR + "convert.x = { scale = 2 }\nconvert.y = { scale = 2 }\n", ["convert.y"]),
        (PORT + 'crc = { name = "xor8", endian = "big" }\n', ["crc.endian"]),
        (PORT + 'framing = { kind = "length", sync = "00", endian = "big" }\n', ["framing.endian"]),
        (PORT + 'flow = "rtscts"\nrts = true\n', ["rts"]),
        (JSON + 'datatype = "string"\nunit = "unit:Volt"\nunit_from = "u"\n', ["unit", "unit_from"]),
        (JSON + 'values = { a = true }\nunit = "unit:Volt"\n', ["unit"]),
        (JSON + 'datatype = "string"\nscale = 2\noffset = 1\nmin = 1\nmax = 2\n', ["scale", "offset", "min", "max"]),
        (
            SWITCH + 'scale_from = "s"\nscale10_from = "p"\ndecimal_comma = true\n',
            ["scale_from", "scale10_from", "decimal_comma"],
        ),
        (JSON + "values = { a = 1 }\nscale = 2\nmax = 5\n", ["scale", "max"]),
        (JSON + "min = 5\nmax = 4\n", ["min"]),
        (JSON + 'units = { a = "unit:Volt" }\n', ["units"]),
        (SWITCH + "store = { dead_band = 1 }\n", ["store.dead_band"]),
        (JSON + "store = { dead_band = 1, change = true }\n", ["store.change"]),
        (SENML + 'time = "t"\nrequired = true\n', ["time", "required"]),
        (HEAD + "required = true\n", ["required"]),
        (JSON + 'time = { path = "t", format = "unix_ms", zone = "UTC" }\n', ["time.zone"]),
        (JSON + 'time = { path = "t", format = "%Y %z", zone = "UTC" }\n', ["time.zone"]),
        (JSON + 'when = { path = "a", exists = true, equals = 1 }\n', ["when.exists"]),
        (JSON + 'when = [{ path = "a", exists = false, matches = "b" }]\n', ["when[0].exists"]),
        (JSON + 'when = { path = "a", equals = 1, one_of = [2] }\n', ["when.one_of"]),
        (JSON + 'when = { path = "a", one_of = [] }\n', ["when.one_of"]),
        ('[[mapping]]\ntopic = "a"\nignore = true\nwhen = { path = "a", one_of = [] }\n', ["when.one_of"]),
        (SWITCH + 'set = { topic = "a/x", min = 1, max = 2 }\n', ["set.min", "set.max"]),
        (JSON + 'datatype = "string"\nset = { topic = "a/x", scale = 2 }\n', ["set.scale"]),
        (JSON + 'set = { topic = "a/x", step = 2 }\n', ["set.step"]),
        (JSON + 'set = { topic = "a/x", payload = { a = ["{{value}}"] }, values = { 1 = "a" } }\n', ["set.values"]),
        (
            HEAD
            + 'readings = [{ path = "a", ignore = true, unit = "unit:Volt", observation = "edge:x" },'
            + ' { path = "b" }]\n',
            ["readings[0].observation", "readings[0].unit"],
        ),
        (
            HEAD + 'readings = [{ path = "a", observation = "edge:a" }, { path = "b", observation = "edge:b" }]\n',
            ["observation"],
        ),
        (HEAD + 'scale = 2\nreadings = [{ path = "a", datatype = "boolean" }]\n', ["scale"]),
        (
            HEAD
            + 'readings = [{ path = "a", datatype = "boolean", unit = "unit:Volt" },'
            + ' { path = "b", observation = "edge:b" }]\n',
            ["readings[0].unit"],
        ),
    ],
)
def test_a_setting_without_effect_is_a_warning_at_its_line(text, keys):
    warnings = load_pack(text, "my").warnings
    assert sorted(each.key for each in warnings) == sorted(keys), warnings
    assert all(each.line is not None for each in warnings)


@pytest.mark.parametrize(
    "text",
    [
        SWITCH + 'unit = "unit:Volt"\n',
        JSON + 'datatype = "string"\nunit_from = "u"\n',
        SWITCH + 'scale_from = "u"\n',
        JSON + 'values = { a = 1 }\nscale10_from = "u"\n',
        "[defaults]\nunit = 'unit:Volt'\n" + SWITCH,
    ],
)
def test_the_warning_does_not_say_that_a_key_with_an_effect_has_none(text):
    """A unit of a text is written, and without a usable scale the value is not read."""
    pack = load_pack(text, "my")
    mapper = Mapper([pack])
    [warning] = pack.warnings
    assert "no effect" not in warning.reason
    value = b'"a"' if "values" in text else b"true"
    with_unit = [each.unit for each in mapper.map("a/b", b'{"t": %s, "u": "V"}' % value).readings]
    assert with_unit == ([] if "scale" in text else ["http://qudt.org/1.1/vocab/unit#Volt"])


@pytest.mark.parametrize(
    "text",
    [
        SWITCH + 'unit = "unit:Unitless"\n',
        JSON + "values = { a = 1 }\nstore = { dead_band = 1 }\nunit = 'unit:Volt'\n",
        JSON + 'datatype = "auto"\nscale = 2\nunit = "unit:Volt"\n',
        JSON + 'datatype = "http://example.org/quantity"\nunit = "unit:Volt"\n',
        "[defaults]\nunit = 'unit:Volt'\nscale = 2\n" + SWITCH + HEAD.replace("a/", "b/"),
        "[defaults]\nunit = 'unit:Volt'\n",
        ACTUATOR.replace("{x}", "{x...}", 1) + "convert.x = { scale = 2 }\n",
        PORT + 'crc = { name = "crc-32", endian = "big" }\n',
        HEAD + 'scale = 2\nreadings = [{ path = "a", datatype = "boolean" }, { path = "b", observation = "edge:b" }]\n',
        HEAD + 'unit = "unit:Volt"\nreadings = [{ path = "a", ignore = true }, { path = "b" }]\n',
        HEAD + 'pattern = "(?P<value>.)(?P<unit>.)"\nrequired = true\nunits = { a = "unit:Volt" }\n',
        SENML + 'units = { a = "unit:Volt" }\n',
        JSON + 'time = { path = "t", format = "%Y %%z", zone = "UTC" }\n',
        JSON + 'set = { topic = "a/x", min = 1, max = 2, step = 1, scale = 2, payload = ["{ value|lower }"] }\n',
        JSON + 'when = [{ path = "a", exists = true }, { path = "b", equals = 1 }]\n',
    ],
)
def test_settings_with_an_effect_are_not(text):
    assert load_pack(text, "my").warnings == ()


def examples():
    for page in sorted((ROOT / "docs").rglob("*.md")):
        for number, text in enumerate(re.findall(r"```toml\n(.*?)```", page.read_text("utf-8"), re.DOTALL)):
            if re.search(r"^\[\[(mapping|serial)\]\]", text, re.MULTILINE):
                yield pytest.param(text, id=f"{page.stem}-{number}")


@pytest.mark.parametrize("text", list(examples()))
def test_examples_of_the_documentation_have_no_warnings(text):
    assert load_pack(text, "example").warnings == ()
