"""The examples of docs/mapping.md are valid mapping files and do what the text says."""

import re
from pathlib import Path

import pytest

from edge.mapping import Mapper, builtin_names, load_pack
from edge.mapping.terms import NAMESPACES

TEXT = (Path(__file__).parents[2] / "docs" / "mapping.md").read_text("utf-8")
EXAMPLES = re.findall(r"```(?:toml|json)\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_loads(number):
    assert load_pack(EXAMPLES[number], "example").mappings


def test_examples_give_the_documented_results():
    mapper = Mapper([load_pack(text, f"example{number}") for number, text in enumerate(EXAMPLES)])
    assert mapper.map("greenhouse/bed1/temperature", b"T=21.5 C").readings[0].value == "21.5"
    assert mapper.map("serial/line1", b"hall;-2.5;grad;1700000000").readings[0].unit.endswith("#DegreeCelsius")
    payload = (
        b'{"temperature": 215, "valves": [{"open": true}], "motors": {"m1": {"speed": 900}}, "debug": 1, "x": "y"}'
    )
    values = {each.observation: each.value for each in mapper.map("plc/l1", payload).readings}
    assert values == {
        "urn:sepa-edge:l1-temperature": "21.5",
        "urn:sepa-edge:l1-valve": "true",
        "urn:sepa-edge:l1-m1-speed": "900",
        "urn:sepa-edge:l1-x": "y",
    }
    assert mapper.map("devices/a", b'{"type": "th", "t": 5}').readings[0].value == "5"
    assert mapper.map("devices/a", b'{"type": "th", "t": 5, "error": 1}').ignored


def test_every_pack_and_prefix_is_documented():
    for name in builtin_names():
        assert f"| `{name}` |" in TEXT
    for prefix in NAMESPACES:
        assert f"`{prefix}`" in TEXT
