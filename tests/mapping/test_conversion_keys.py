"""Rounding, values for missing members, and the case of texts."""

import pytest

from edge.mapping.errors import MappingError
from edge.mapping.mapper import Mapper
from edge.mapping.pack import load_pack
from edge.mapping.reading import XSD_BOOLEAN, XSD_DATE_TIME, XSD_DECIMAL, XSD_DOUBLE, XSD_INTEGER


def mapper(*keys: str) -> Mapper:
    return Mapper([load_pack("\n".join(["[[mapping]]", 'topic = "a"', 'observation = "urn:x:a"', *keys]))])


def value(found: Mapper, payload: str) -> tuple[str, str] | None:
    mapped = found.map("a", payload.encode())
    assert mapped.problems == ()
    return (mapped.readings[0].value, mapped.readings[0].datatype) if mapped.readings else None


@pytest.mark.parametrize(
    ("keys", "payload", "wanted"),
    [
        (["round = 1"], "20.25", "20.2"),
        (["round = 1"], "20.35", "20.4"),
        (["round = 1"], "7", "7.0"),
        (["round = 0"], "-0.4", "0"),
        (["round = -1"], "1234", "1230"),
        (["round = 2", "scale = 0.3333"], "1", "0.33"),
        (['round = "down"'], "-2.9", "-2"),
        (['round = "down"', "offset = 0.5"], "2.6", "3"),
        (["round = 1"], "9" * 60 + ".55", "9" * 60 + ".6"),
    ],
)
def test_values_are_rounded_after_scaling(keys, payload, wanted):
    assert value(mapper(*keys), payload) == (wanted, XSD_DECIMAL)


def test_numbers_with_an_exponent_are_rounded_and_whole_numbers_are_integers():
    assert value(mapper("round = 1"), "1.25e1") == ("1.25E+1", XSD_DOUBLE)
    assert value(mapper("round = 0"), "1.26e1") == ("1.3E+1", XSD_DOUBLE)
    assert value(mapper('round = "down"', 'datatype = "integer"'), "12.7") == ("12", XSD_INTEGER)


def test_a_rounded_value_is_checked_against_its_bounds():
    assert mapper("round = 0", "max = 5").map("a", b"5.6").problems
    assert value(mapper("round = 0", "max = 5"), "5.4") == ("5", XSD_DECIMAL)


def test_a_rounded_value_can_be_set():
    found = mapper("round = 1", 'set = { topic = "a/set" }')
    assert found.setter("a", "urn:x:a") is not None


def test_a_default_is_the_value_of_a_missing_member():
    found = mapper('path = "b.c"', "default = 4", "scale = 0.5")
    assert value(found, '{"b": {"c": 10}}') == ("5.0", XSD_DECIMAL)
    assert value(found, '{"b": {}}') == ("2.0", XSD_DECIMAL)
    assert value(found, "[]") == ("2.0", XSD_DECIMAL)
    # A member without a value is not missing.
    assert value(found, '{"b": {"c": null}}') is None


def test_a_default_follows_the_conditions_and_the_table():
    keys = ['path = "b"', 'default = "off"', "values = { on = true, off = false }"]
    assert value(mapper(*keys), "{}") == ("false", XSD_BOOLEAN)
    found = mapper('payload = "json"', 'readings = [{ path = "b", default = 1, when = { path = "c", exists = true } }]')
    assert value(found, '{"c": 0}') == ("1", XSD_DECIMAL)
    assert value(found, '{"d": 0}') is None


def test_a_text_changes_its_case_first():
    found = mapper('case = "lower"', "values = { on = true, off = false }", 'absent = ["none"]')
    assert value(found, "ON") == ("true", XSD_BOOLEAN)
    assert value(found, "None") is None
    assert value(mapper('case = "upper"', 'datatype = "string"'), "straße") == (
        "STRASSE",
        "http://www.w3.org/2001/XMLSchema#string",
    )


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        (["default = 1"], "without wildcards"),
        (['path = "{x}"', 'observation = "urn:x:{x}"', "default = 1"], "without wildcards"),
        (["round = 1.5"], "round"),
        (['round = "up"'], "round"),
        (["round = 41"], "round"),
        (['case = "title"'], "case"),
    ],
)
def test_keys_that_cannot_be_used(keys, reason):
    text = "\n".join(["[[mapping]]", 'topic = "a"', *(["observation = 'urn:x:a'"] if len(keys) < 3 else []), *keys])
    with pytest.raises(MappingError, match=reason):
        load_pack(text)


def test_keys_without_effect_are_warnings():
    pack = load_pack('[[mapping]]\ntopic = "a"\nobservation = "urn:x:a"\ncase = "lower"\nunit = "unit:Watt"')
    assert [warning.key for warning in pack.warnings] == ["case"]
    pack = load_pack('[[mapping]]\ntopic = "a"\nobservation = "urn:x:a"\ndatatype = "boolean"\nround = 1')
    assert [warning.key for warning in pack.warnings] == ["round"]


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("2026-01-31T12:00:00Z", True),
        ("9999-12-31T23:59:59.999Z", True),
        ("2024-02-29T00:00:00.123456789-13:59", True),
        ("2026-01-31T12:00:00", True),
        ("2026-02-29T00:00:00Z", False),
        ("0000-01-01T00:00:00Z", False),
        ("2026-01-31T12:60:00Z", False),
        ("2026-01-31 12:00:00Z", False),
        ("2026-01-31T12:00:00+14:01", False),
        ("12:00", False),
    ],
)
def test_the_form_of_a_time_is_checked(text, valid):
    found = mapper('datatype = "xsd:dateTime"')
    if valid:
        assert value(found, text) == (text, XSD_DATE_TIME)
    else:
        assert "is not a time" in found.map("a", text.encode()).problems[0].reason
