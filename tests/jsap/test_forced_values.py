"""Values of forced bindings: typed conversion to terms, and protection against injection."""

import re
from datetime import UTC, date, datetime
from decimal import Decimal

import pyoxigraph as ox
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import query, update

from edge.jsap import BindingError, ProfileError
from edge.protocol.syntax import tokenize

XSD = "http://www.w3.org/2001/XMLSchema#"

SELECT = query("SELECT ?x ?y { BIND(?x AS ?y) FILTER(?x = ?x) } # ?x", {"x": "literal"})
INSERT = update("INSERT DATA { <a:s> <a:p>?x,1}; INSERT DATA { <a:s> <a:q> ?x }", {"x": "literal"})
LINK = update("INSERT DATA { <a:s> <a:p> ?x . ?x <a:p> <a:s> }", {"x": "uri"})
FRESH = update("INSERT DATA { ?x <a:p> _:b . _:b <a:p> ?x }", {"x": "bnode"})

TROUBLE = st.text(st.sampled_from("\"'\\\n\r\t{}<>?$x .;#@^:_u0022\u2028😀é"), max_size=30)
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])) | TROUBLE


NOON = datetime(2024, 2, 29, 12, tzinfo=UTC)


def typed(value, name):
    return ox.Literal(value, datatype=ox.NamedNode(XSD + name))


def stored(text):
    store = ox.Store()
    store.update(text)
    return list(store)


@given(TEXTS)
def test_any_text_stays_one_literal(value):
    text = SELECT.text({"x": value})
    assert [list(row) for row in ox.Store().query(text)] == [[ox.Literal(value)] * 2]
    assert [token.kind for token in tokenize(text)] == [token.kind for token in tokenize(SELECT.text({"x": ""}))]
    s, one = ox.NamedNode("a:s"), ox.Literal(1)
    assert set(stored(INSERT.text({"x": value}))) == {
        ox.Quad(s, ox.NamedNode("a:p"), ox.Literal(value)),
        ox.Quad(s, ox.NamedNode("a:p"), one),
        ox.Quad(s, ox.NamedNode("a:q"), ox.Literal(value)),
    }


@given(TEXTS)
def test_any_text_survives_early_unescaping(value):
    """SPARQL 1.1 Query, 19.2: codepoint escapes are decoded before parsing, wherever they are."""
    text = INSERT.text({"x": value})
    read = re.sub(r"\\u([0-9A-Fa-f]{4})|\\U([0-9A-Fa-f]{8})", lambda m: chr(int(m[1] or m[2], 16)), text)
    assert ox.Literal(value) in {quad.object for quad in stored(read)}
    assert len(stored(read)) == 3


@given(TROUBLE | TEXTS | st.text(st.sampled_from('htp:/ex.#?<>{}\\ "|^`é'), max_size=12))
def test_any_text_is_an_iri_or_is_refused(value):
    try:
        text = LINK.text({"x": value})
    except BindingError:
        return
    first, second = stored(text)
    assert {first.object, second.object} == {first.subject, second.subject}
    expected = value[1:-1] if value.startswith("<") else value
    (found,) = {first.subject, second.subject} - {ox.NamedNode("a:s")} or {ox.NamedNode("a:s")}
    assert found.value.endswith(expected.removeprefix("ex:").removeprefix("schema:"))


@given(TROUBLE | st.text(st.sampled_from("ab_:1.-·")))
def test_any_text_is_a_distinct_blank_node_or_is_refused(value):
    try:
        text = FRESH.text({"x": value})
    except BindingError:
        return
    first, second = stored(text)
    assert {type(first.subject), type(second.subject)} == {ox.BlankNode}
    assert first.subject != first.object, "it is not the node that the text calls by the same name"


@pytest.mark.parametrize("value", ["a\0b", "\ud800", "x\udfff"])
def test_nul_and_surrogates_are_refused(value):
    with pytest.raises(BindingError, match=r"query \"E\": \?x: .*(NUL|surrogate)"):
        SELECT.text({"x": value})
    with pytest.raises(BindingError, match=r"\?x: .*"):
        LINK.text({"x": "http://x/" + value})


@pytest.mark.parametrize(
    ("value", "term"),
    [
        ("", ox.Literal("")),
        (5, typed("5", "integer")),
        (-5, typed("-5", "integer")),
        (10**40, typed(str(10**40), "integer")),
        (True, typed("true", "boolean")),
        (False, typed("false", "boolean")),
        (0.1, typed("0.1", "double")),
        (1e300, typed("1e+300", "double")),
        (float("inf"), typed("INF", "double")),
        (float("-inf"), typed("-INF", "double")),
        (float("nan"), typed("NaN", "double")),
        (Decimal("21.50"), typed("21.50", "decimal")),
        (Decimal("1E+3"), typed("1000", "decimal")),
        (datetime(2024, 2, 29, 12, 0, 0, 500, UTC), typed("2024-02-29T12:00:00.000500+00:00", "dateTime")),
        (date(2024, 2, 29), typed("2024-02-29", "date")),
        (ox.Literal("x", language="en"), ox.Literal("x", language="en")),
        (typed("x", "token"), typed("x", "token")),
        ({"type": "literal", "value": "x"}, ox.Literal("x")),
        ({"type": "literal", "value": "x", "xml:lang": "it"}, ox.Literal("x", language="it")),
        ({"type": "typed-literal", "value": "1", "datatype": XSD + "byte"}, typed("1", "byte")),
    ],
)
def test_values_of_python_have_their_datatype(value, term):
    assert SELECT.text({"x": value}).startswith(f"SELECT  ({term} AS ?x)  ?y {{ BIND( {term}  AS ?y) FILTER( {term} ")


@pytest.mark.parametrize(
    ("binding", "value", "written"),
    [
        ({"datatype": "xsd:decimal"}, "21.5", f'"21.5"^^<{XSD}decimal>'),
        ({"datatype": XSD + "decimal"}, 21, f'"21"^^<{XSD}decimal>'),
        ({"datatype": "xsd:decimal"}, typed("1", "decimal"), f'"1"^^<{XSD}decimal>'),
        ({"datatype": "xsd:string"}, "x", '"x"'),
        ({"datatype": "xsd:string"}, True, '"true"'),
        ({"datatype": "xsd:date"}, date(2024, 2, 29), f'"2024-02-29"^^<{XSD}date>'),
        ({"datatype": "xsd:dateTimeStamp"}, NOON, f'"2024-02-29T12:00:00+00:00"^^<{XSD}dateTimeStamp>'),
        ({"datatype": "xsd:boolean"}, 1, f'"1"^^<{XSD}boolean>'),
        ({"datatype": "xsd:double"}, 5, f'"5"^^<{XSD}double>'),
        ({"datatype": "xsd:double"}, 1e300, f'"1e+300"^^<{XSD}double>'),
        ({"datatype": "xsd:decimal"}, 1e-7, f'"0.0000001"^^<{XSD}decimal>'),
        ({"datatype": "xsd:decimal"}, 21.5, f'"21.5"^^<{XSD}decimal>'),
        ({"datatype": "xsd:unsignedByte"}, 7, f'"7"^^<{XSD}unsignedByte>'),
        ({"datatype": "xsd:integer"}, "true", f'"true"^^<{XSD}integer>'),
        ({"datatype": "ex:mine"}, True, '"true"^^<http://example.org/mine>'),
        ({"datatype": "ex:mine"}, "x", '"x"^^<http://example.org/mine>'),
        ({"language": "en-GB"}, "tea", '"tea"@en-gb'),
        ({"language": "en"}, ox.Literal("tea", language="EN"), '"tea"@en'),
    ],
)
def test_declared_datatypes_and_languages(binding, value, written):
    filled = query("SELECT ?s { ?s ?p ?x }", {"x": {"type": "literal", **binding}}).text({"x": value})
    assert filled == f"SELECT ?s {{ ?s ?p  {written}  }}"


@pytest.mark.parametrize(
    ("binding", "value", "reason"),
    [
        ("uri", "foo", "not an absolute IRI"),
        ("uri", "foo:bar", 'namespace "foo" is not declared'),
        ("uri", "exx:bar", 'did you mean "ex"'),
        ("uri", "ex:a b", "not an absolute IRI"),
        ("uri", "http://x/> . <", "not an absolute IRI"),
        ("uri", 5, "a uri is a text, not int"),
        ("uri", ox.Literal("http://x/"), "declared as uri"),
        ("uri", ox.BlankNode("b"), "is a bnode"),
        ("uri", {"type": "literal", "value": "http://x/"}, "is a literal"),
        ("uri", {"type": "uri", "value": "ex:a b"}, "not an absolute IRI"),
        ("literal", ox.NamedNode("http://x/"), "is a uri"),
        ("literal", None, "NoneType"),
        ("literal", [1], "list"),
        ("literal", Decimal("NaN"), "Decimal"),
        ("literal", {"value": "x"}, "it needs type"),
        ("literal", {"type": "literal", "value": 5}, "it needs type"),
        ("literal", {"type": "literal", "value": "x", "xml:lang": "not a tag"}, ""),
        ("literal", {"type": "literal", "value": "x", "xml:lang": "en", "its:dir": "ltr"}, "no base directions"),
        ({"type": "literal", "datatype": "xsd:decimal"}, typed("1", "integer"), "declared as <"),
        ({"type": "literal", "datatype": "xsd:integer"}, True, 'integer>, unlike "True" (bool)'),
        ({"type": "literal", "datatype": "xsd:int"}, 1.0, 'int>, unlike "1.0" (float)'),
        ({"type": "literal", "datatype": "xsd:decimal"}, float("inf"), "(float)"),
        ({"type": "literal", "datatype": "xsd:boolean"}, 2, "(int)"),
        ({"type": "literal", "datatype": "xsd:double"}, False, "(bool)"),
        ({"type": "literal", "datatype": "xsd:date"}, NOON, "(datetime)"),
        ({"type": "literal", "datatype": "xsd:dateTime"}, NOON.date(), "(date)"),
        ({"type": "literal", "datatype": "xsd:dateTimeStamp"}, NOON.replace(tzinfo=None), "(datetime)"),
        ({"type": "literal", "language": "en"}, ox.Literal("x", language="it"), "declared with language en"),
        ({"type": "literal", "language": "en"}, ox.Literal("x"), "declared with language en"),
    ],
)
def test_values_of_another_type_are_refused(binding, value, reason):
    with pytest.raises(BindingError) as refused:
        query("SELECT ?s { ?s ?p ?x }", {"x": binding}).text({"x": value})
    assert str(refused.value).startswith('query "E": ?x: ')
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    ("value", "iri"),
    [
        ("ex:lamp", "http://example.org/lamp"),
        ("ex:a/b?c#d", "http://example.org/a/b?c#d"),
        ("ex:", "http://example.org/"),
        ("ex://lamp", "ex://lamp"),
        ("<ex:lamp>", "ex:lamp"),
        ("xsd:string", XSD + "string"),
        ("urn:uuid:1", "urn:uuid:1"),
        ("mqtt://broker/x", "mqtt://broker/x"),
        (ox.NamedNode("ex:lamp"), "ex:lamp"),
        ({"type": "uri", "value": "ex:lamp"}, "ex:lamp"),
    ],
)
def test_prefixed_names_are_distinguished_from_iris(value, iri):
    assert f" <{iri}> " in LINK.text({"x": value})


def test_missing_and_unknown_bindings_are_named():
    both = query("SELECT * { ?s ?x ?y }", {"x": "uri", "y": {"type": "literal", "value": "d"}})
    with pytest.raises(BindingError, match=r'query "E" needs a value for \?x, which has no default'):
        both.text()
    with pytest.raises(BindingError, match=r'query "E" has no forced binding \?z; there are: \?x, \?y'):
        both.text({"x": "ex:a", "z": 1})
    with pytest.raises(BindingError, match="there are: none"):
        query("ASK {}").text({"z": 1})
    assert both.text({"x": "ex:a"}) == 'SELECT * { ?s  <http://example.org/a>   "d"  }'
    assert '"e"' in both.text({"x": "ex:a", "y": "e"})


def test_defaults_of_json_have_datatypes():
    for value, written in ((1, "integer"), (1.5, "decimal"), (True, "boolean")):
        filled = query("SELECT * { ?s ?p ?x }", {"x": {"type": "literal", "value": value}}).text()
        assert f"^^<{XSD}{written}>" in filled
    port = {"type": "literal", "value": 52877, "datatype": "xsd:long"}
    assert f'"52877"^^<{XSD}long>' in query("SELECT * { ?s ?p ?x }", {"x": port}).text()
    with pytest.raises(ProfileError, match="unlike"):
        query("SELECT * { ?s ?p ?x }", {"x": {**port, "value": True}})
    assert "<http://example.org/a>" in query("SELECT * { ?s ?p ?x }", {"x": {"type": "uri", "value": "ex:a"}}).text()
