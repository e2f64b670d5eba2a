"""A value of a wrong type hides no other fault of its file, and causes none that is not there without it."""

import re
import tomllib
from pathlib import Path

import pytest

from edge.mapping import MappingError, builtin_names, load_pack

ROOT = Path(__file__).parents[2]
PAGES = ("mapping", "serial", "actuation")
TEXTS = {
    f"{page}-{number}": text
    for page in PAGES
    for number, text in enumerate(
        re.findall(r"```toml\n(.*?)```", (ROOT / f"docs/{page}.md").read_text("utf-8"), re.DOTALL)
    )
} | {
    name: (ROOT / f"edge/device_mappings/{name}.toml").read_text("utf-8")
    for name in builtin_names()
    if name != "shelly"
}
WRONG = "[[1979-05-27]]"
"""No key of the model has this type, except payloads."""


def faults(text):
    try:
        load_pack(text, "my")
    except MappingError as error:
        return error.faults
    return ()


def wrong_values(text):
    """Yield the text with the value of each line of one key replaced, and the key."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        match = re.fullmatch(r"""([A-Za-z_."]+) = ("[^"]*"|-?[\d.]+|true|false|'[^']*'|\{[^{}]*\})(\s*#.*)?""", line)
        if match and match[1] != "payload":
            yield match[1], "\n".join([*lines[:number], f"{match[1]} = {WRONG}", *lines[number + 1 :]])


@pytest.mark.parametrize("name", list(TEXTS))
def test_a_wrong_type_causes_no_other_fault(name):
    before = [str(each) for each in faults(TEXTS[name])]
    assert before == []
    for key, text in wrong_values(TEXTS[name]):
        tomllib.loads(text)
        found = faults(text)
        assert found, (key, text)
        assert {(each.key or "").removesuffix("[0]").rpartition(".")[2] for each in found} == {
            key.rpartition(".")[2].strip('"')
        }, (
            key,
            [str(each) for each in found],
        )


HEAD = '[[mapping]]\ntopic = "a/{line}"\nobservation = "edge:{line}"\n'
PORT = '[[serial]]\nname = "p"\ndevice = "/dev/ttyS0"\n'
ACTUATOR = '[[actuator]]\nquery = "SELECT ?x { ?x ?y ?z }"\ntopic = "a/{x}"\npayload = "{x}"\n'


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        (HEAD + 'scale = "x"\nunit = "unit:Vlot"\nlabel = "{lin}"\n', ["scale", "unit", "label"]),
        (HEAD.replace('"a/{line}"', "5") + 'unit = "unit:Vlot"\n', ["topic", "unit"]),
        (
            HEAD + 'readings = [5, { path = "b..c" }, { path = "d", unit = 5, datatype = "bool" }]\n',
            ["readings[0]", "readings[2].unit", "readings[1].path", "readings[2].datatype"],
        ),
        (HEAD + "mapping = 5\n" + HEAD + "scale = []\nmin = {}\n", ["mapping", "scale", "min"]),
        ('mapping = [5, { topic = "a", unit = "x" }]\n', ["mapping[0]", "observation", "unit"]),
        ("[defaults]\nstore = 5\nunit = 'x'\n" + HEAD, ["defaults.store", "defaults.unit"]),
        ("namespaces = 5\n" + HEAD + 'unit = "own:x"\nlocation = "no iri"\n', ["namespaces", "location"]),
        (
            '[namespaces]\nown = 5\nbad = "x"\n' + HEAD + 'location = "own:x"\nsensor = "bad:x"\nproperty = "onw:x"\n',
            ["namespaces.own", "namespaces.bad", "property"],
        ),
        ("[units]\nfar = 5\n" + HEAD + 'unit = "far"\nlocation = "x"\n', ["units.far", "location"]),
        (
            HEAD + 'fields = [{ name = 5, type = "u8" }, { name = "b", type = "u9" }]\npath = "b"\n',
            ["fields[0].name", "fields[1].type"],
        ),
        (
            HEAD + 'path = "t"\nset = { topic = 5, payload = "{x}", step = -1 }\n',
            ["set.topic", "set.step", "set.payload"],
        ),
        (HEAD + 'path = "t"\ntime = { zone = "Mars", format = 5 }\n', ["time.path", "time.format", "time"]),
        (PORT.replace('"p"', "5") + 'baud = "x"\ncrc = "crc-99"\n', ["name", "baud", "crc"]),
        (PORT + 'framing = { kind = "length", sync = 5 }\ncrc = "x"\nskip = "x"\n', ["framing.sync", "skip", "crc"]),
        (PORT.replace("/dev/ttyS0", "x") + 'framing = { kind = "slip", sync = "00" }\n', ["framing.sync", "device"]),
        (
            ACTUATOR + 'qos = 7\nconvert.x = { scale = "x" }\nrate = 0\nremoved = { payload = "{y}" }\n',
            ["qos", "convert.x.scale", "rate", "removed.payload"],
        ),
        (
            ACTUATOR.replace('"a/{x}"', '"#"').replace('"{x}"', '"{y}"') + "convert.z = { scale = 2 }\n",
            ["convert.z", "topic", "payload"],
        ),
        (
            '[mapping]\ntopic = "a/{line}"\nobservation = 5\nscale = "x"\nunit = "C"\nlabel = "{y}"\n',
            ["mapping", "observation", "scale", "unit", "label"],
        ),
        ('[serial]\nname = "a b"\nbaud = "x"\n', ["serial", "device", "baud", "name"]),
        (
            HEAD + '[mapping.readings]\npath = 5\nunit = "C"\n',
            ["readings", "readings[0].path", "readings[0].unit"],
        ),
        ("mapping = [5, { topic = 6, observation = 'edge:a' }]\n", ["mapping[0]", "topic"]),
        (ACTUATOR.replace("query =", "quary =").replace("?x {", "{") + 'name = "a"\n', ["quary", "query"]),
    ],
)
def test_all_faults_of_a_file_are_found_at_once(text, keys):
    found = faults(text)
    assert sorted(each.key or "" for each in found) == sorted(keys), [str(each) for each in found]
    assert all(each.line is not None for each in found), [str(each) for each in found]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('[mapping]\ntopic = "a"\nobservation = "edge:a"\n', 1, "[[mapping]]"),
        ('[actuator]\nquery = "x"\n', 1, "[[actuator]]"),
        ('[serial]\nname = "x"\n', 1, "[[serial]]"),
        ('[reading]\npath = "x"\n', 1, "[[mapping.readings]]"),
        ('[[reading]]\npath = "x"\n', 1, "[[mapping.readings]]"),
        ('[[readings]]\npath = "x"\n', 1, "[[mapping.readings]]"),
        (HEAD + '[mapping.readings]\npath = "x"\n', 4, "[[mapping.readings]]"),
    ],
)
def test_a_table_with_single_brackets_is_a_fault_that_names_the_remedy(text, line, words):
    found = faults(text)[0]
    assert (found.line, words in found.reason) == (line, True), found


def test_a_wrong_type_in_the_form_of_the_paper_hides_no_other_fault():
    entries = '"a": {"observation": 5, "unit": "C"}, "b": 7, "c": {"observation": "edge:c", "units": "x", "label": 3}'
    found = faults(f'{{"semantic-mappings": {{{entries}}}}}')
    assert [(each.mapping, each.key) for each in found] == [
        (None, "semantic-mappings.a.observation"),
        (None, "semantic-mappings.b"),
        (None, "semantic-mappings.c.label"),
        (None, "semantic-mappings.c.units"),
        ("a", "unit"),
    ]
