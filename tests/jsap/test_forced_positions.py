"""Positions of forced variables, and the meaning of a text with terms in these positions."""

import json
from collections import Counter

import pyoxigraph as ox
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import problems, query, refusals, update

NODES = [ox.NamedNode(f"http://example.org/n{number}") for number in range(3)]
NAMES = [ox.NamedNode(f"http://example.org/{name}") for name in "pqr"]
VALUES = [*NODES, ox.Literal(1), ox.Literal(2), ox.Literal("1")]
GRAPHS = st.sets(
    st.builds(ox.Quad, st.sampled_from(NODES), st.sampled_from(NAMES), st.sampled_from(VALUES)), max_size=14
)

SAME = [
    "SELECT ?x ?y { ?x ex:p ?y }",
    "SELECT ?y ?x { ?y ex:p ?x }",
    "SELECT ?x ?y{?x ex:p ?y}",
    "SELECT DISTINCT ?x { ?x ex:p ?y }",
    "SELECT ?x ?y WHERE { ?x ex:p ?y } ORDER BY ?x ?y",
    "SELECT ?x ?y WHERE { ?x ex:p ?y } ORDER BY DESC(?x) ASC(?y)",
    "SELECT ?x (COUNT(?y) AS ?n) { ?x ex:p ?y } GROUP BY ?x",
    "SELECT ?x (COUNT(?x) AS ?n) (SUM(?y) AS ?m) { ?x ex:p ?y } GROUP BY ?x HAVING(COUNT(?x) > 0) ORDER BY ?x",
    "SELECT ?x ?z { ?x ex:p ?y OPTIONAL { ?y ex:q ?x . ?x ex:r ?z } }",
    "SELECT ?x ?y { ?x ex:p ?y FILTER(?x != ?y && BOUND(?x)) }",
    "SELECT ?x ?y { ?x ex:p ?y FILTER(!BOUND( $x ) || ?y = 1) }",
    "SELECT $x ?y { $x ex:p ?y FILTER NOT EXISTS { ?x ex:q ?y } }",
    "SELECT ?x ?y { ?x ex:p ?y MINUS { ?x ex:q ?y } }",
    "SELECT ?x ?y { ?x ex:p ?y { ?x ex:q ?z } UNION { ?z ex:r ?x } }",
    "SELECT ?x ?n { ?x ex:p ?y { SELECT ?x (COUNT(*) AS ?n) { ?x ex:q ?z } GROUP BY ?x } }",
    "SELECT ?x ?y { ?x ex:p ?y { SELECT DISTINCT ?x { ?x ex:q ?some } } }",
    "SELECT ?x ?y { ?x ex:p ?y { SELECT ?y ?x { ?y ex:q ?x } ORDER BY ?x } }",
    "SELECT ?x ?y { ?x ex:p ?y { SELECT * { ?y ex:q ?x } } }",
    "SELECT ?x ?z { ?x ex:p ?y BIND(STR(?x) AS ?z) }",
    "SELECT ?x (CONCAT(STR(?x), '?x') AS ?z) { ?x ex:p ?y } # and ?x",
    "SELECT ?x ?y { ?x ex:p/ex:q* ?y }",
    "SELECT ?x ?y { ?x ex:p ?y VALUES ?y { 1 2 ex:n0 } }",
    "SELECT ?x ?y { [] ex:p ?x ; ex:q ?y . ?x ex:r [ ex:p ?y ] }",
    "SELECT ?x ?g { ?x ex:p 1 OPTIONAL { GRAPH ?g { ?x ex:p ?y } } }",
    "SELECT ?x { { SELECT ?x { ?x ex:p ?y } LIMIT 1000 } }",
]
"""Queries that always bind ?x."""


def rows(found: ox.QuerySolutions) -> Counter:
    names = sorted(variable.value for variable in found.variables)
    return Counter(tuple((name, row[name]) for name in names) for row in found)


@pytest.mark.parametrize("text", SAME)
def test_the_rows_are_those_that_have_the_term(text):
    template = query(text, {"x": "uri"})
    prefix = "PREFIX ex: <http://example.org/>\n"

    @given(GRAPHS, st.sampled_from(NODES))
    def compare(graph, node):
        store = ox.Store()
        store.extend(graph)
        wanted = Counter({row: count for row, count in rows(store.query(prefix + text)).items() if ("x", node) in row})
        assert rows(store.query(template.text({"x": node}))) == wanted

    compare()


def test_a_literal_may_be_forced_wherever_one_may_stand():
    store = ox.Store()
    store.update("INSERT DATA { <a:s> <a:p> 1, 2 . <a:t> <a:p> 1 }")
    text = "SELECT ?x (COUNT(?s) AS ?n) { ?s <a:p> ?x FILTER(?x IN (1, 2) && BOUND(?x)) } GROUP BY ?x ORDER BY ?x"
    (row,) = store.query(query(text, {"x": {"type": "literal", "datatype": "xsd:integer"}}).text({"x": 1}))
    assert (row["x"], row["n"]) == (ox.Literal(1), ox.Literal(2))


@pytest.mark.parametrize(
    ("text", "forced", "graph"),
    [
        ("INSERT DATA { GRAPH ?g { ?s a ?c } }", {"g": "uri", "s": "uri", "c": "uri"}, "<a:g>"),
        ("WITH ?g INSERT { <a:s> a <a:c> } WHERE {}", {"g": "uri"}, "<a:g>"),
        ("CREATE GRAPH ?g ; INSERT DATA { GRAPH ?g { <a:s> a <a:c> } }", {"g": "uri"}, "<a:g>"),
        ("INSERT { GRAPH ?g { <a:s> a <a:c> } } WHERE { BIND(1 AS ?one) }", {"g": "uri"}, "<a:g>"),
    ],
)
def test_updates_whose_graph_is_forced(text, forced, graph):
    store = ox.Store()
    store.update(update(text, forced).text({name: f"<a:{name}>" for name in forced}))
    assert [str(quad.graph_name) for quad in store] == [graph]


@pytest.mark.parametrize("text", ["INSERT DATA { ?x a <a:c> }", "INSERT { ?x a <a:c> } WHERE { <a:s> a <a:d> }"])
def test_a_blank_node_in_a_template_is_a_new_node(text):
    store = ox.Store()
    store.update("INSERT DATA { <a:s> a <a:d> }")
    store.update(update(text, {"x": "bnode"}).text({"x": "b1"}))
    (found,) = store.quads_for_pattern(None, None, ox.NamedNode("a:c"))
    assert isinstance(found.subject, ox.BlankNode)


@pytest.mark.parametrize(
    ("kind", "text", "type_", "reason"),
    [
        ("query", "SELECT ?x { BIND(1 AS ?x) }", "literal", "a value of its own"),
        ("query", "SELECT (1 AS ?x) {}", "literal", "a value of its own"),
        ("query", "SELECT ?x { VALUES ?x { 1 } }", "literal", "a value of its own"),
        ("query", "SELECT ?x { VALUES (?y ?x) { (1 2) } }", "literal", "a value of its own"),
        ("query", "SELECT ?x { ?s ?p ?o } GROUP BY (?o AS ?x)", "literal", "a value of its own"),
        ("query", "SELECT ?y { ?y ?p 1 MINUS { ?x ?q 2 } }", "uri", "write FILTER NOT EXISTS"),
        ("query", "SELECT ?y { ?x ?p ?y MINUS { ?x ?q 2 } }", "uri", "write FILTER NOT EXISTS"),
        ("query", "SELECT ?y { ?x ?p ?y }", "bnode", "cannot be a blank node"),
        ("update", "DELETE { ?x ?p ?y } WHERE { ?s ?p ?y }", "bnode", "cannot be a blank node"),
        ("update", "INSERT { ?s ?p 1 } WHERE { ?s ?p ?x }", "bnode", "cannot be a blank node"),
        ("query", "SELECT ?y { ?y ?x ?z }", "literal", "?x is declared as literal, which cannot stand here"),
        ("query", "SELECT ?x ?y { GRAPH ?x { ?y ?p ?x } }", "literal", "?x is declared as literal"),
        ("query", "SELECT ?y { ?y ex:p|!?x ?z }", "literal", "?x is declared as literal"),
        ("update", "INSERT DATA { ?x <a:p> 1 }", "literal", "?x is declared as literal"),
        ("update", "INSERT { <a:s> ?x 1 } WHERE {}", "bnode", "?x is declared as bnode"),
        ("query", "SELECT ?y { ?s ?p ?y } LIMIT ?x", "literal", "Expected: a number"),
        ("query", "SELECT ?y { ?y ?x ?z } LIMIT many", "literal", "Expected: a number"),
        ("update", "WITH ?x INSERT { <a:s> <a:p> 1 } WHERE {}", "literal", "?x is declared as literal"),
    ],
)
def test_places_where_a_variable_cannot_be_forced(kind, text, type_, reason):
    (reported,) = refusals(kind, text, {"x": type_})
    assert reason in reported


def test_each_misplaced_literal_is_reported_with_its_position():
    text = "SELECT ?x ?y { ?s ?x ?y . GRAPH ?y { ?s ?p ?x } FILTER(?x = ?y) }"
    forced = {"x": {"type": "literal"}, "y": {"type": "literal"}}
    file = json.dumps({"queries": {"E": {"sparql": text, "forcedBindings": forced}}})
    reported = [(problem.column, problem.reason.split()[0]) for problem in problems(file)]
    assert reported == [(file.index("?x ?y .") + 1, "?x"), (file.index("?y { ?s ?p") + 1, "?y")]


def test_a_minus_may_contain_a_forced_variable_with_another_shared_one():
    text = "SELECT ?y { ?y <a:p> 1 MINUS { ?y <a:hidden> ?x } }"
    store = ox.Store()
    store.update("INSERT DATA { <a:1> <a:p> 1 . <a:2> <a:p> 1 ; <a:hidden> <a:me> }")
    found = store.query(query(text, {"x": "uri"}).text({"x": "<a:me>"}))
    assert [row["y"].value for row in found] == ["a:1"]


def test_terms_do_not_merge_with_neighbouring_tokens():
    """A language tag would continue in the minus sign, a blank node in the dot, `<` with the IRI."""
    minus = query("SELECT (COUNT(?x-1) AS ?n) { FILTER(STRLEN(?x)<?x||?x=?x) }", {"x": {"type": "literal"}})
    iri = query("SELECT ?y { ?y ?p ?z FILTER(?z<?x) }", {"x": "uri"})
    dots = update("INSERT DATA{?x<a:p>?x.?x<a:q>1.<a:s><a:p>?x.}", {"x": "bnode"})
    for entry, value in ((minus, ox.Literal("a", language="en")), (iri, "<a:b>"), (dots, "b")):
        text = entry.text({"x": value})
        if entry.kind == "query":
            ox.Store().query(text)
        else:
            store = ox.Store()
            store.update(text)
            assert len(store) == 3


def test_only_prefixes_that_the_text_uses_and_does_not_declare():
    text = "PREFIX ex: <a:> SELECT * { ?s ex:p 'schema:' ; schema:name ?n } # rdfs:label"
    assert query(text).text() == f"PREFIX schema: <http://schema.org/>\n{text}"
    later = "INSERT DATA { ex:a ex:p 1 } ; PREFIX ex: <a:> INSERT DATA { ex:b ex:p rdf:nil }"
    prologue = "PREFIX ex: <http://example.org/>\nPREFIX rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#>\n"
    assert update(later).text() == prologue + later
