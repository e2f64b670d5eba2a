"""Values of properties as JSON, and JSON as desired values."""

from __future__ import annotations

import json
import math
from decimal import Decimal

import pyoxigraph as ox
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.observed_values import data_schema, desired_value, to_json
from edge.protocol.errors import InvalidRequest

XSD = "http://www.w3.org/2001/XMLSchema#"
TEXT = {"kind": "text"}
MODE = {"kind": "choice", "choices": ["auto", "heat"]}
LEVEL = {"kind": "choice", "choices": ["1", "2.5"]}
SPEED = {"kind": "choice", "choices": ["0.5", "1.0", "2.0", "2", "1e400"]}


def literal(text: str, datatype: str) -> ox.Literal:
    return ox.Literal(text, datatype=ox.NamedNode(XSD + datatype))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (literal("21.50", "decimal"), "21.50"),
        (literal(".5", "decimal"), "0.5"),
        (literal("007", "integer"), "7"),
        (literal("1E-3", "double"), "0.001"),
        (literal("1E308", "double"), "1e+308"),
        (literal("NaN", "double"), '"NaN"'),
        (literal("x", "integer"), '"x"'),
        (literal("true", "boolean"), "true"),
        (literal("yes", "boolean"), '"yes"'),
        (literal("2030-01-31", "date"), '"2030-01-31"'),
        (ox.Literal('"\n'), '"\\"\\n"'),
    ],
    ids=str,
)
def test_a_value_is_valid_json(value, text):
    assert to_json(value) == text
    json.loads(text, parse_constant=pytest.fail)


@pytest.mark.parametrize(
    ("value", "settable", "schema"),
    [
        (None, None, {"type": "string", "readOnly": True}),
        (ox.Literal(3), None, {"type": "number", "readOnly": True}),
        (None, {"kind": "switch"}, {"type": "boolean"}),
        (None, {"kind": "number", "min": 0.5, "max": None, "step": 0.5}, {"type": "number", "minimum": 0.5}),
        (ox.Literal("auto"), MODE, {"type": "string", "enum": ["auto", "heat"]}),
        (ox.Literal(3), MODE, {"type": "string", "enum": ["auto", "heat"]}),
        (ox.Literal(1), LEVEL, {"type": "number", "enum": [1, 2.5]}),
        (ox.Literal("1"), LEVEL, {"type": "string", "enum": ["1", "2.5"]}),
        (ox.Literal(1), SPEED, {"type": "number", "enum": [0.5, 1, 2]}),
        (ox.Literal(20.5), TEXT, {"type": "number"}),
        (None, {"kind": "number", "min": -math.inf, "max": 1.5}, {"type": "number", "maximum": 1.5}),
    ],
    ids=str,
)
def test_the_schema_describes_the_allowed_values(value, settable, schema):
    assert data_schema(value, settable) == schema


@pytest.mark.parametrize(
    ("text", "settable", "value"),
    [
        ("true", {"kind": "switch"}, ox.Literal(True)),
        ('"heat"', MODE, ox.Literal("heat")),
        ("2.5", LEVEL, ox.Literal("2.5")),
        ('"1"', LEVEL, ox.Literal("1")),
        ("1", SPEED, ox.Literal("1.0")),
        ("1.00", SPEED, ox.Literal("1.0")),
        ("5e-1", SPEED, ox.Literal("0.5")),
        ("2", SPEED, ox.Literal("2")),
        (str(int(1e300)), {"kind": "choice", "choices": ["1e300"]}, ox.Literal("1e300")),
        ("2.00", SPEED, ox.Literal("2.0")),
        ("1e2", {"kind": "number", "min": None, "max": 100.0}, literal("100", "integer")),
        ("1e308", {"kind": "number", "min": 0.0, "max": None}, literal("1e+308", "double")),
        ("5e-324", TEXT, literal("5e-324", "double")),
        ("-1e64", TEXT, literal("-1e+64", "double")),
        ("1e63", TEXT, literal(f"1{'0' * 63}", "integer")),
        ("99.9", {"kind": "number", "min": None, "max": 100.0}, literal("99.9", "decimal")),
        (' "a\\u00e9" ', TEXT, ox.Literal("aé")),
        ("21.5", TEXT, literal("21.5", "decimal")),
        ("false", TEXT, ox.Literal(False)),
    ],
    ids=str,
)
def test_a_possible_value_becomes_a_term(text, settable, value):
    assert desired_value(text, settable) == value


@pytest.mark.parametrize(
    ("text", "settable", "reason"),
    [
        ('"cool"', MODE, '"cool" is not possible; send one of "auto", "heat" as JSON'),
        ("1e401", SPEED, "1e401 is not possible"),
        ("1", {"kind": "choice", "choices": ["NaN", "x"]}, "1 is not possible"),
        ("2", LEVEL, '2 is not possible; send one of "1", "2.5" as JSON'),
        ("null", TEXT, "null is not possible; send a string, a number or a boolean as JSON"),
        ("{}", TEXT, "{} is not possible"),
        ("1e309", TEXT, "1e309 is not possible: no double has this size (4.9e-324 to 1.8e308)"),
        ("1e-330", TEXT, "1e-330 is not possible: no double"),
        ("1e99999999999999999999", TEXT, "1e99999999999999999999 is not possible|cannot be read"),
        ("7", {"kind": "number", "min": None, "max": 6.5}, "7 is not possible; send a number to 6.5 as JSON"),
    ],
    ids=str,
)
def test_an_impossible_value_is_refused(text, settable, reason):
    with pytest.raises(InvalidRequest) as caught:
        desired_value(text, settable)
    assert any(each in caught.value.description for each in reason.split("|"))


def exact(text: str) -> object:
    return json.loads(text, parse_int=Decimal, parse_float=Decimal)


@given(st.text() | st.integers() | st.floats() | st.booleans() | st.none() | st.lists(st.integers()))
def test_any_json_is_accepted_or_refused(value):
    for settable in (TEXT, MODE, {"kind": "switch"}, {"kind": "number", "min": 0.0, "max": None}):
        try:
            found = desired_value(json.dumps(value), settable)
        except InvalidRequest:
            continue
        assert exact(to_json(found)) == exact(json.dumps(value))
