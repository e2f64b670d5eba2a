"""Rows, results and answers in the client library."""

import json
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pyoxigraph as ox
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.client import BadAnswer, Row, plain
from edge.client.answers import from_microseconds, to_microseconds, when
from edge.client.results import query_form, read_result, read_rows
from edge.client.rows import read_term
from edge.protocol.results import term_to_json

XSD = "http://www.w3.org/2001/XMLSchema#"
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
terms = st.one_of(
    st.sampled_from([ox.NamedNode("urn:a"), ox.BlankNode("b0"), ox.Literal(True), ox.Literal(1.5)]),
    texts.map(ox.Literal),
    texts.map(lambda text: ox.Literal(text, language="en-gb")),
    texts.map(lambda text: ox.Literal(text, language="ar", direction=ox.BaseDirection("rtl"))),
    texts.map(lambda text: ox.Literal(text, datatype=ox.NamedNode("urn:t"))),
)


@given(terms)
def test_terms_come_as_they_were_sent(term):
    assert read_term(json.loads(term_to_json(term))) == term


@pytest.mark.parametrize(
    ("datatype", "text", "value"),
    [
        ("integer", "7", 7),
        ("unsignedByte", "7", 7),
        ("decimal", "1.50", Decimal("1.50")),
        ("double", "1e3", 1000.0),
        ("boolean", "1", True),
        ("boolean", "false", False),
        ("dateTime", "2024-05-01T10:00:00Z", datetime(2024, 5, 1, 10, tzinfo=UTC)),
        ("date", "2024-05-01", date(2024, 5, 1)),
        ("integer", "many", "many"),
        ("boolean", "perhaps", "perhaps"),
        ("string", "x", "x"),
    ],
)
def test_literals_as_python_values(datatype, text, value):
    found = plain(ox.Literal(text, datatype=ox.NamedNode(XSD + datatype)))
    assert (found, type(found)) == (value, type(value))


def test_rows_are_dictionaries_that_fit_sets():
    lamp, on = ox.NamedNode("urn:l"), ox.Literal(True)
    row = Row({"lamp": lamp, "on": on})
    assert row == {"on": on, "lamp": lamp}
    assert row == Row({"on": on, "lamp": lamp})
    assert len({row, Row({"on": on, "lamp": lamp})}) == 1
    assert row != {"lamp": lamp}
    assert dict(row) == {"lamp": lamp, "on": on}
    assert row.get("other") is None
    assert row.plain() == {"lamp": "urn:l", "on": True}
    assert repr(row) == 'Row(lamp=<urn:l>, on="true"^^<http://www.w3.org/2001/XMLSchema#boolean>)'


@pytest.mark.parametrize(
    "broken",
    [
        None,
        [],
        {"results": []},
        {"head": {"vars": ["x"]}, "results": {"bindings": [1]}},
        {"results": {"bindings": [{"x": {"type": "uri", "value": "no iri"}}]}},
        {"results": {"bindings": [{"x": {"type": "what", "value": "v"}}]}},
        {"results": {"bindings": [{"x": "v"}]}},
        {"results": {"bindings": [{"x": {"type": "literal", "value": 1}}]}},
        {"results": {"bindings": [{"x": {"type": "literal", "value": "a", "xml:lang": "en", "its:dir": "up"}}]}},
        {"results": {"bindings": [{"x": {"type": "literal", "value": "a", "xml:lang": "en", "its:dir": 1}}]}},
    ],
)
def test_an_invalid_result_is_reported(broken):
    with pytest.raises(BadAnswer):
        read_rows(broken)


def test_an_empty_object_is_an_empty_result():
    assert list(read_rows({})) == []


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("SELECT * { ?s ?p ?o }", "SELECT"),
        ("# ASK\nPREFIX ask: <urn:construct>\nBASE <urn:x>\n construct where { ?s ?p ?o }", "CONSTRUCT"),
        ("ask {}", "ASK"),
        ("DESCRIBE <urn:x>", "DESCRIBE"),
        ("", "SELECT"),
        ("PREFIX", "SELECT"),
        ("%", "SELECT"),
    ],
)
def test_the_form_of_a_query(text, form):
    assert query_form(text) == form


def test_triples_are_made_of_bindings():
    row = {name: {"type": "uri", "value": f"urn:{name}"} for name in ("subject", "predicate", "object")}
    answer = {"head": {"vars": list(row)}, "results": {"bindings": [row]}}
    nodes = [ox.NamedNode(f"urn:{name}") for name in row]
    assert read_result(answer, "CONSTRUCT") == [ox.Triple(*nodes)]
    assert list(read_result(answer, "SELECT")) == [dict(zip(row, nodes, strict=True))]
    with pytest.raises(BadAnswer):
        read_result({"results": {"bindings": [{"subject": row["subject"]}]}}, "DESCRIBE")


@pytest.mark.parametrize(
    ("delay", "text"),
    [
        (timedelta(seconds=30), "PT30S"),
        (timedelta(milliseconds=500), "PT0.5S"),
        (timedelta(days=1, microseconds=1), "PT86400.000001S"),
        (timedelta(seconds=10, milliseconds=100), "PT10.1S"),
        (timedelta(0), "PT0S"),
    ],
)
def test_delays_are_iso_8601(delay, text):
    assert when(delay, None, None) == {"delay": text}


def test_due_times():
    moment = datetime(2024, 5, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    assert when(None, moment, "mine") == {"at": 1714557600000000, "id": "mine"}
    assert when(None, None, None) == {}
    for wrong in [
        (timedelta(seconds=-1), None, None),
        (timedelta(1), moment, None),
        (None, None, "mine"),
        (None, moment.replace(tzinfo=None), None),
    ]:
        with pytest.raises(ValueError, match=r".+"):
            when(*wrong)


@given(st.datetimes(timezones=st.just(UTC)))
def test_times_keep_their_microseconds(moment):
    assert from_microseconds(to_microseconds(moment)) == moment
