"""The grammar of SPARQL 1.1, compared with Oxigraph's parser on texts that differ from valid ones by one token."""

from collections.abc import Iterator

import pyoxigraph as ox
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edge.protocol.errors import ParsingFailed
from edge.protocol.syntax import tokenize
from edge.sparql.grammar import Symbol, sparql, symbols

P = "PREFIX ex: <urn:ex:>\n"
QUERIES = (
    "SELECT * WHERE { ?s ?p ?o }",
    "BASE <urn:b> SELECT DISTINCT ?s (COUNT(DISTINCT *) AS ?n) FROM <urn:g> FROM NAMED <urn:h> "
    "{ ?s a ex:T ; ex:p 1, -2.5 . } "
    "GROUP BY ?s (STR(?s) AS ?t) HAVING (COUNT(*) > 1) ORDER BY DESC(?n) ?s LIMIT 10 OFFSET 5 VALUES ?s { ex:a UNDEF }",
    "SELECT ?x { { ?x ex:p ?y } UNION { ?x ex:q ?y } OPTIONAL { ?y ex:r ?z FILTER(!BOUND(?z) || ?z NOT IN (1, 2)) } }",
    "SELECT ?x { ?x (ex:a/^ex:b|!(ex:c|^a))*/ex:d+ ?y . MINUS { ?x a [] } "
    "GRAPH ?g { ?x ex:l (1 'two'@en \"3\"^^ex:t) } }",
    "SELECT (GROUP_CONCAT(DISTINCT ?x ; SEPARATOR=', ') AS ?all) { VALUES (?x ?y) { (1 2) (UNDEF ex:a) } }",
    "ASK { ?s ?p ?o FILTER EXISTS { ?s ?q true } FILTER regex(?o, 'a', 'i') BIND(IF(?o > 1, 1, -1) AS ?sign) }",
    "CONSTRUCT { ?s ex:p [ ex:q ?o ] } WHERE { ?s ?p ?o FILTER ex:f(?o) FILTER(NOT EXISTS { ?o ?p ?s }) }",
    "CONSTRUCT WHERE { ?s ex:p ?o }",
    "DESCRIBE ex:a ?x WHERE { ?x ex:p 1.0e3 }",
    "SELECT ?s { { SELECT ?s { ?s ex:p _:b } LIMIT 1 } "
    "SERVICE SILENT ex:far { ?s ex:q ?o } FILTER(NOW() - ?t >= 1 && ?a != ?b) }",
)
UPDATES = (
    "INSERT DATA { ex:a ex:p 1 . GRAPH ex:g { ex:a ex:p 'x'@en } ex:b a ex:C }",
    "DELETE DATA { ex:a ex:p true } ; LOAD SILENT <urn:x> INTO GRAPH ex:g ; CLEAR NAMED",
    "DELETE WHERE { ?s ex:p ?o }",
    "WITH ex:g DELETE { ?s ex:p ?o } INSERT { ?s ex:p ?n } USING NAMED ex:h WHERE { ?s ex:p ?o BIND(?o + 1 AS ?n) }",
    "INSERT { GRAPH ?g { ?s ex:p ?o } } WHERE { GRAPH ?g { ?s ex:q ?o } } ; DROP SILENT GRAPH ex:g ; CREATE GRAPH ex:h",
    "ADD ex:g TO DEFAULT ; MOVE SILENT GRAPH ex:g TO GRAPH ex:h ; COPY DEFAULT TO ex:g ;",
)
REPLACEMENTS = (
    *"{}()[].,;*+-/|^!?=<>", "&&", "^^", "?v", "ex:n", "<urn:i>", "'s'", "@en", "7", "_:l", "SELECT", "WHERE", "FILTER",
    "AS", "OPTIONAL", "GRAPH", "DISTINCT", "COUNT", "NOT", "IN", "EXISTS", "INSERT", "DATA", "true", "a", "word",
)  # fmt: skip


class _Parsed(Exception):
    pass


def _stop(_: object) -> ox.NamedNode:
    raise _Parsed


def accepts(form: str, text: str) -> bool:
    """Return whether Oxigraph parses a text. Nothing is evaluated."""
    try:
        if form == "Query":
            ox.Store().query(text, base_iri="urn:base:", default_graph=map(_stop, [None]))  # type: ignore[arg-type]
        else:
            ox.Store().update(P + "DROP GRAPH <urn:none>;" + text.removeprefix(P), base_iri="urn:base:")
    except (_Parsed, RuntimeError, OSError):
        return True
    except (SyntaxError, ValueError):
        return False
    raise AssertionError("evaluated")


@pytest.mark.parametrize("text", QUERIES)
def test_valid_queries_are_recognized(text):
    assert accepts("Query", P + text)
    assert sparql().check("Query", symbols(tokenize(P + text))) is None


@pytest.mark.parametrize("text", UPDATES)
def test_valid_updates_are_recognized(text):
    assert accepts("Update", P + text)
    assert sparql().check("Update", symbols(tokenize(P + text))) is None


def variants(texts: tuple[str, ...]) -> st.SearchStrategy[str]:
    """Yield texts with one token removed, doubled, replaced or swapped with the next one, or with the rest cut off."""

    def edited(text: str, at: int, edit: str, other: str) -> str:
        parts = [token.text for token in tokenize(text)]
        at %= len(parts)
        parts[at : at + 1] = {
            "remove": [], "double": [parts[at]] * 2, "replace": [other], "insert": [other, parts[at]], "cut": [],
        }[edit]  # fmt: skip
        return P + " ".join(parts[:at] if edit == "cut" else parts)

    edits = st.sampled_from(("remove", "double", "replace", "insert", "cut"))
    return st.builds(edited, st.sampled_from(texts), st.integers(0, 200), edits, st.sampled_from(REPLACEMENTS))


def check(form: str, text: str) -> None:
    """Check that the recognizer accepts texts that Oxigraph accepts, unless they belong to SPARQL 1.2."""
    try:
        tokens = tokenize(text)
    except ParsingFailed:
        return
    failure = sparql().check(form, symbols(tokens))
    assert failure is None or not accepts(form, text), (text, failure)


@given(variants(QUERIES))
@example("ASK { FILTER(- -1 = 1) }")
def test_rejected_text_is_not_a_query(text):
    check("Query", text)


@given(variants(UPDATES))
def test_rejected_text_is_not_an_update(text):
    check("Update", text)


def test_one_token_decides_between_the_branches_of_a_rule():
    """Otherwise the recognizer could take the wrong branch, and report a failure in a valid text."""
    grammar = sparql()
    assert list(_conflicts(grammar)) == []


def _conflicts(grammar) -> Iterator[tuple[str, Symbol]]:
    for name, rule in grammar.rules.items():
        nodes = [rule]
        while nodes:
            node = nodes.pop()
            if hasattr(node, "branches"):
                seen: set[Symbol] = set()
                for branch in node.branches:
                    yield from ((name, symbol) for symbol in seen & grammar.first(branch).symbols)
                    seen |= grammar.first(branch).symbols
                nodes.extend(node.branches)
            elif hasattr(node, "parts"):
                nodes.extend(node.parts)
            elif hasattr(node, "part"):
                nodes.append(node.part)
