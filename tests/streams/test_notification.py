"""Reports as Linked Data Notifications."""

from __future__ import annotations

import json
from collections import Counter

import pyoxigraph as ox
import pytest

from edge.protocol.results import Row
from edge.streams.model import QueryForm
from edge.streams.notification import notification
from edge.streams.observer import StoredReport
from edge.streams.report import Report, content_type, is_correction

TARGET = "http://example.org/target"
PREFIXES = {
    "as": "https://www.w3.org/ns/activitystreams#",
    "rs": "http://www.w3.org/2001/sw/DataAccess/tests/result-set#",
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "xsd": "http://www.w3.org/2001/XMLSchema#",
    "report": "urn:edge:report:",
}
S, P = ox.NamedNode("urn:s"), ox.NamedNode("urn:p")


def document(
    form: QueryForm, rows: list[Row], removed: list[Row] | None = None, key: str = '"q:o:f1:7"', **given
) -> bytes:
    variables = ("s", "o") if form is QueryForm.SELECT else ("subject", "predicate", "object")
    wrong = None if removed is None else tuple(removed)
    made = Report("urn:q", 7, 1_000_000, form, variables, tuple(rows), wrong)
    stored = StoredReport(7, 1_000_000, content_type(made.kind), made.body(), 2, is_correction(made.kind))
    return notification(key, "urn:q", TARGET, stored._replace(**given))


def graph(content: bytes) -> ox.Store:
    store = ox.Store()
    store.extend(ox.parse(content, format=ox.RdfFormat.JSON_LD, base_iri="http://receiver.org/1"))
    assert all(each.graph_name == ox.DefaultGraph() for each in store)
    return store


def found(content: bytes, pattern: str, *names: str) -> list[tuple[str, ...]]:
    """Return the values of variables, in order."""
    query = f"SELECT {' '.join(f'?{name}' for name in names)} {{ {pattern} }}"
    return sorted(tuple(map(str, row)) for row in graph(content).query(query, prefixes=PREFIXES))


def test_the_activity_names_target_query_and_numbers():
    content = document(QueryForm.SELECT, [])
    identity = json.loads(content)["@id"]
    assert identity.startswith("urn:uuid:")
    ((id_, *others),) = found(
        content,
        "?a a as:Announce ; as:target ?target ; as:published ?time ; report:query ?query ; report:number ?n ; "
        "report:merged ?m",
        *("a", "target", "time", "query", "n", "m"),
    )
    assert id_ == f"<{identity}>"
    assert others == [
        f"<{TARGET}>",
        '"1970-01-01T00:00:01Z"^^<http://www.w3.org/2001/XMLSchema#dateTime>',
        '"urn:q"',
        '"7"^^<http://www.w3.org/2001/XMLSchema#integer>',
        '"2"^^<http://www.w3.org/2001/XMLSchema#integer>',
    ]
    assert found(content, "?a as:object ?o . ?o a rs:ResultSet ; rs:resultVariable ?v", "v") == [('"o"',), ('"s"',)]


def test_the_id_is_that_of_the_key():
    first = json.loads(document(QueryForm.SELECT, []))["@id"]
    assert json.loads(document(QueryForm.SELECT, [], merged=1))["@id"] == first
    assert json.loads(document(QueryForm.SELECT, [], key='"q:o:f2:7"'))["@id"] != first


TERMS = [
    ox.NamedNode("urn:o"),
    ox.NamedNode("value:o"),
    ox.NamedNode("object:x"),
    ox.Literal('plain \u00e4 " \\ \n'),
    ox.Literal("ciao", language="it"),
    ox.Literal("1.5", datatype=ox.NamedNode("http://www.w3.org/2001/XMLSchema#decimal")),
    ox.Literal("x", datatype=ox.NamedNode("value:type")),
    ox.Literal("@id"),
]


@pytest.mark.parametrize("term", TERMS, ids=range(len(TERMS)))
def test_terms_survive(term):
    rows = document(QueryForm.SELECT, [(S, term)])
    assert found(rows, '?b rs:variable "o" ; rs:value ?value', "value") == [(str(term),)]
    triples = document(QueryForm.CONSTRUCT, [(S, P, term)])
    assert found(triples, "?a as:object ?s . ?s <urn:p> ?o", "s", "o") == [(str(S), str(term))]


def test_rows_are_solutions_also_equal_ones_and_those_with_unbound_variables():
    node = ox.BlankNode("b")
    content = document(QueryForm.SELECT, [(S, None), (S, None), (node, node)])
    bindings = found(content, "?r rs:solution ?s . ?s rs:binding [ rs:variable ?v ; rs:value ?o ]", "s", "o")
    assert sorted(Counter(row for row, _ in bindings).values()) == [1, 1, 2]
    assert len({value for _, value in bindings}) == 2


@pytest.mark.parametrize("answer", ["true", "false"])
def test_ask_has_a_boolean(answer):
    row = (ox.Literal(answer, datatype=ox.NamedNode("http://www.w3.org/2001/XMLSchema#boolean")),)
    content = document(QueryForm.ASK, [row])
    expected = f'"{answer}"^^<http://www.w3.org/2001/XMLSchema#boolean>'
    assert [each for (each,) in found(content, "?a as:object/rs:boolean ?boolean", "boolean")] == [expected]


def test_a_correction_is_an_update_with_added_and_removed_rows():
    content = document(QueryForm.SELECT, [(S, ox.Literal("new"))], [(S, ox.Literal("old"))])
    path = "rs:solution/rs:binding/rs:value"
    assert ('"new"',) in found(content, f"?a a as:Update ; as:object/{path} ?value", "value")
    assert ('"old"',) in found(content, f"?a <urn:edge:removed>/{path} ?value", "value")
    content = document(QueryForm.CONSTRUCT, [(S, P, ox.Literal("new"))], [(S, P, ox.Literal("old"))])
    assert found(content, "?a as:object ?s . ?s <urn:p> ?o", "o") == [('"new"',)]
    statement = "?a <urn:edge:removed> [ a rdf:Statement ; rdf:subject ?s ; rdf:predicate ?p ; rdf:object ?o ]"
    assert found(content, statement, "s", "p", "o") == [(str(S), str(P), '"old"')]


def test_an_empty_report_is_an_activity_without_objects():
    content = document(QueryForm.CONSTRUCT, [])
    assert json.loads(content)["object"] == []
    assert len(found(content, "?a a as:Announce", "a")) == 1


def test_a_time_that_is_no_date_is_left_out():
    assert "published" not in json.loads(document(QueryForm.SELECT, [], time=2**62))


def test_a_base_direction_survives():
    """JSON-LD 1.1 has directions (section 4.2.4.1), but reading them as RDF is optional."""
    term = ox.Literal("salam", language="ar", direction=ox.BaseDirection("rtl"))
    value = {"@value": "salam", "@language": "ar", "@direction": "rtl"}
    rows = json.loads(document(QueryForm.SELECT, [(S, term)]))
    (solution,) = rows["object"]["solution"]
    assert [each["value"] for each in solution["binding"] if each["variable"] == "o"] == [value]
    triples = json.loads(document(QueryForm.CONSTRUCT, [(S, P, term)], [(S, P, term)]))
    assert triples["object"] == [{"@id": "urn:s", "urn:p": [value]}]
    assert triples["removed"][0]["statementObject"] == value


def test_triple_terms_are_left_out():
    body = b'<urn:s> <urn:p> <<( <urn:s> <urn:p> "x" )>> .\n<urn:s> <urn:p> "y" .\n'
    report = StoredReport(1, 0, "application/n-triples", body)
    assert json.loads(notification("o", "q", TARGET, report))["object"] == [
        {"@id": "urn:s", "urn:p": [{"@value": "y"}]}
    ]
