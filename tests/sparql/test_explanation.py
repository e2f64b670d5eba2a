"""Error messages for the author of an invalid text."""

import re

import pyoxigraph as ox
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edge.engine.queries.oxigraph_queries import QueryRules, check_query
from edge.engine.store.graph import LiveGraph
from edge.engine.updates.update_compiler import UpdateCompiler
from edge.protocol.errors import LimitExceeded, ParsingFailed
from tests.support.settings import query_rules


def message(form: str, text: str) -> str:
    """Return the description of the engine's error."""
    try:
        if form == "query":
            check_query(text, QueryRules())
        else:
            UpdateCompiler(LiveGraph(), QueryRules()).compile(text, None, {})
    except ParsingFailed as refused:
        return refused.description
    return "accepted"


SOSA = "http://www.w3.org/ns/sosa/"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELCT * { ?s ?p ?o }", "SELCT is not a SPARQL 1.1 keyword (line 1, column 1). Did you mean SELECT?"),
        (
            "SELECT *\nWHERE { ?s a sosa:Sensor }",
            f'The prefix "sosa:" is not declared (line 2, column 14). Add: PREFIX sosa: <{SOSA}>',
        ),
        (
            f"PREFIX sosa: <{SOSA}> ASK {{ ?s a soas:Sensor }}",
            'The prefix "soas:" is not declared (line 1, column 54). Did you mean sosa:?',
        ),
        (
            "ASK { ?s a my:Thing }",
            'The prefix "my:" is not declared (line 1, column 12). Add: PREFIX my: <the IRI that it stands for>',
        ),
        ("ASK { ?s ?p ?o } ORDR BY ?s", "ORDR is not a SPARQL 1.1 keyword (line 1, column 18). Did you mean ORDER?"),
        (
            "SELECT * {\n  ?s ?p ?o",
            'The bracket "{" at line 1, column 10 is not closed (line 2, column 11). '
            'Add "}", or continue with: a graph pattern such as OPTIONAL, ",", ".", ";" or "}".',
        ),
        ("SELECT * { FILTER(?x = ) }", '")" is not allowed here (line 1, column 24). Expected: an expression.'),
        ('SELECT * { ?s ?p """abc }', 'The string is not closed (line 1, column 18). Add """ at its end.'),
        ("SELECT * { ?s ?p 'abc }", "The string is not closed (line 1, column 18). Add ' at its end, "),
        ("SELECT * { ?s ?p ?o } }", '"}" closes no bracket (line 1, column 23). Remove it. '),
        ("SELECT ?s, ?o { ?s ?p ?o }", '"," is not allowed here (line 1, column 10). Separate variables by spaces.'),
        ("SELECT count(?s) { ?s ?p ?o }", "count is not allowed here (line 1, column 8). Write (count(...) AS ?name)."),
        ("ASK { FILTER(foo(1)) }", "foo is not a SPARQL 1.1 function (line 1, column 14). Use a built-in function, "),
        ("ASK { FILTER regexp(1) }", "regexp is not a SPARQL 1.1 keyword (line 1, column 14). Did you mean REGEX?"),
        ("ASK { ?s a Sensor }", "Sensor is neither a keyword nor a term (line 1, column 12). Write an IRI as <"),
        ("ASK { ?s <a b> ?o }", "This IRI is not closed (line 1, column 10). "),
        ("ASK { ?s <urn:%zz> ?o }", "<urn:%zz> is not a valid IRI: '%zz' cannot stand in an IRI; write % and two hexa"),
        ("ASK { ?s ?p 'a\\\\x\\q' }", "\\q is not an escape sequence (line 1, column 18). Write a backslash as two"),
        ("ASK { ?s ?p 'a\\q' }", "\\q is not an escape sequence (line 1, column 15). Write a backslash as two"),
        ("ASK { BIND(1 AS ?x) BIND(2 AS ?x) }", "?x already occurs in this group, so BIND cannot assign it (line 1, "),
        ("SELECT ?x { ?x ?p ?o } GROUP BY ?o", "?x is neither in GROUP BY nor in an aggregate (line 1, column 8). Add"),
        ("ASK { _:a ?p ?o { _:a ?p ?o } }", "The blank node label _:a is already used in another group (line 1, colum"),
        ("SELECT * { ?s ?p ?o } LIMIT -1", '"-" is not allowed here (line 1, column 29). Expected: a number.'),
        ("ASK { ?s ?p 'x'@ }", "The language tag is missing (line 1, column 16). Write for example @en."),
        ("ASK { ? ?p 1 }", '"?" is not allowed here (line 1, column 7). Expected: '),
        ("ASK { ?s ?p 1 & 2 }", "& is not an operator (line 1, column 15). Write && for a logical AND."),
        ("ASK { ?s ?p \\ }", r"The character '\\' cannot stand here (line 1, column 13). "),
        ("", "The text is empty (line 1, column 1). Expected: ASK, BASE, CONSTRUCT, DESCRIBE, PREFIX or SELECT."),
        ("DESCRIBE", "The text ends too early (line 1, column 9). "),
        ("INSERT DATA { <urn:a> <urn:b> 1 }", "This is an update, not a query (line 1, column 1). Send it as an updat"),
        ("SELECT * { ?s ?p ?o } GROUP BY ?s", "SELECT * cannot be used with GROUP BY (line 1, column 8). Name the"),
        ("ASK { ?s ?p ?o FILTER(COUNT(?o) > 1) }", "COUNT is an aggregate and cannot stand in FILTER (line 1, col"),
        ("ASK { VALUES (?a ?b) { (1 2) (1) } }", "This row has 1 values for 2 variables (line 1, column 30)."),
        ("SELECT (1 AS ?x) (2 AS ?x) {}", "?x occurs twice in SELECT (line 1, column 24). Use a new variable after AS"),
        ('ASK { ?s ?p "\\uD800" }', "is half of a character (a surrogate) (line 1, column 14)."),
        ("PREFIX ex <urn:x> ASK {}", 'The prefix "ex" has no colon (line 1, column 8). Write PREFIX ex:'),
        ('ASK { ?s ?p "b"@a1-b2 }', "@a1 is not a language tag (line 1, column 18). Write for example @de-1996."),
        ("ASK {\nFILTER(<urn:f>(1)) }", "urn:f> is not a function of 1 argument (line 2, column 8). Supported: the"),
        ("ASK { urn:x ?p ?o }", "Write an IRI in angle brackets: <urn:...>"),
        ("SELECT ?a ?b { ?a ?p ?b } GROUP BY ?a", "?b is neither in GROUP BY nor in an aggregate (line 1, column 11)."),
        ("SELECT ?a (COUNT(?b) AS ?n)\n{ ?a ?p ?b }", "?a is neither in GROUP BY nor in an aggregate (line 1, column"),
        ("SELECT (SUM(?v) / ?v AS ?x) { ?s ?p ?v }", "?v is neither in GROUP BY nor in an aggregate (line 1, column 1"),
        ("SELECT ?b { { SELECT ?b { ?b ?p ?c } GROUP BY ?c } }", "nor in an aggregate (line 1, column 22)."),
        ("DESCRIBE ?o { ?s ?p ?o } GROUP BY ?s", "?o is neither in GROUP BY nor in an aggregate (line 1, column 10)."),
        ("ASK { _:a ?p ?o\nOPTIONAL { _:a ?p 1 } }", "The blank node label _:a is already used in another group (line"),
        ("SELECT (?a AS ?b) { ?a ?p ?b }", "?b already has a value, so AS cannot assign it (line 1, column 15). Use a"),
        ("SELECT ?s { ?s ?p ?o } GROUP BY (?o AS ?s)", "?s already has a value, so AS cannot assign it (line 1, col"),
        ("SELECT ?b (?a AS ?b) { ?a ?p 1 }", "?b occurs twice in SELECT (line 1, column 18). Use a new variable after"),
        ("ASK { { ?o ?p 1 BIND(2 AS ?o) } UNION { BIND(1 AS ?o) } }", "so BIND cannot assign it (line 1, column 27)."),
        ("ASK {} LIMIT 3.5", "3.5 is not a whole number (line 1, column 14). LIMIT takes a whole number of at least"),
        ("ASK {} LIMIT 1 OFFSET 1e3", "1e3 is not a whole number (line 1, column 23). OFFSET takes a whole number of"),
        (f"ASK {{}} LIMIT {'9' * 5000}", "99 is not a whole number of less than 2^64 (line 1, column 14). W"),
        ("ASK {} LIMIT 18446744073709551616", "551616 is not a whole number of less than 2^64 (line 1, column 14). W"),
        ("ASK { FILTER(?x > 1) BIND(1 AS ?x) } LIMIT 1.5", "1.5 is not a whole number (line 1, column 44). LIMIT"),
        ("SELECT ?s ?p ?s { ?s ?p ?o }", "?s occurs twice in SELECT (line 1, column 14). Name each variable once."),
        ("SELECT DISTINCT ?s\n  $s { ?s ?p ?o }", "$s occurs twice in SELECT (line 2, column 3). Name each variable"),
        ("ASK { { SELECT ?s ?s { ?s ?p 1 } } }", "?s occurs twice in SELECT (line 1, column 19). Name each variable"),
        (
            "ASK { { SELECT (EXISTS { ?a ?b ?a BIND(1 AS ?c) } AS ?e) ?c { } } { SELECT ?s ?s { ?s ?p 1 } } }",
            "?s occurs twice in SELECT (line 1, column 79). Name each variable once.",
        ),
        ("SELECT ?s ?s { ?s ?p 1 } GROUP BY ?s", "?s occurs twice in SELECT (line 1, column 11). Name each variable"),
        ("SELECT (1 AS ?x) ?x { }", "?x occurs twice in SELECT (line 1, column 18). Use a new variable after AS."),
        ("ASK { VALUES (?a ?a) { (1 2) } }", "?a occurs twice in VALUES (line 1, column 18). Use different variables."),
        ("SELECT ?x {} GROUP BY COUNT(?x)", "COUNT is an aggregate and cannot stand in GROUP BY (line 1, column 23)."),
        ("ASK {} HAVING (COUNT(*) > 1)", "COUNT is an aggregate and cannot stand in HAVING (line 1, column 16). Use i"),
        ("ASK { ?s ?p TRUE }", "TRUE is not a keyword (line 1, column 13). Write true in lower case."),
        ("ASK { ?s A ?o }", "A is not a keyword (line 1, column 10). Write a in lower case, or rdf:type."),
        ("CONSTRUCT { ?s ?p 1 } { ?s ?p ?o } GROUP BY ?s", "GROUP BY is supported only in SELECT queries (line 1, col"),
        ("ASK { FILTER(?x AND ?y) }", "AND is not an operator of SPARQL (line 1, column 17). Write &&."),
        ("ASK { FILTER(?x == ?y) }", "== is not an operator of SPARQL (line 1, column 17). Write =."),
        ("ASK { FILTER(?x <> ?y) }", "<> is not an operator of SPARQL (line 1, column 17). Write !=."),
        ("SELECT (?x + AS ?y) { }", "AS is not allowed here (line 1, column 14). Expected: an expression."),
        ("ASK { << ?s ?p ?o }", 'The bracket "<<" of RDF 1.2 is not closed (line 1, column 7). Add ">>" aft'),
        ("ASK { <<( ?s ?p ?o > ?q ?r }", 'The bracket "<<(" of RDF 1.2 is not closed (line 1, column 7). Add ")>>" '),
        ("ASK { << ?s ?p (1 2)>> ?q << ?a ?b }", 'The bracket "<<" of RDF 1.2 is not closed (line 1, column 27). '),
        ("ASK { ?s ?p ?o ~ ?r ?t }", "This query is not valid: it has RDF 1.2 syntax before this place (line 1, "),
        ("ASK { FILTER(NOT ?y) }", '"?y" is not allowed here (line 1, column 18). Write NOT EXISTS { ... }'),
    ],
)  # fmt: skip
def test_the_message_names_problem_place_and_remedy_of_a_query(text, expected):
    assert expected in message("query", text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("INSRT DATA { }", "INSRT is not a SPARQL 1.1 keyword (line 1, column 1). Did you mean INSERT?"),
        ("INSERT { ?s ?p 1 } WERE { ?s ?p 2 }", "WERE is not a SPARQL 1.1 keyword (line 1, column 20). Did"),
        (
            "INSERT DATA { <urn:a> <urn:b> ?x }",
            "A variable cannot stand in INSERT DATA (line 1, column 31). Use a constant, or INSERT with a WHERE ",
        ),
        ("DELETE WHERE { _:a ?p ?o }", "A blank node cannot stand in DELETE (line 1, column 16). Use a"),
        (
            "INSERT { ?s ?p 1 } WHERE { SELECT ?s ?p ?s { ?s ?p ?o } }",
            "?s occurs twice in SELECT (line 1, column 41). Name each variable once.",
        ),
        ("CLEAR ALL ;\n; CLEAR ALL", '";" is not allowed here (line 2, column 1). '),
        (
            "PREFIX ex: <urn:> CLEAR ALL;\nPREFIX foo: <urn:f> INSERT DATA { ex:a foo:b fo:c }",
            'The prefix "fo:" is not declared (line 2, column 46)',
        ),
        ("CLEAR", "The text ends too early (line 1, column 6). Expected: ALL, DEFAULT, GRAPH, NAMED or SILENT."),
        ("INSERT DATA { GRAPH <urn:g> { <urn:a> <urn:b> 1 }", 'The bracket "{" at line 1, column 13 is not closed'),
        ("BASE <urn:a>\nASK {}", "This is a query, not an update (line 2, column 1). Send it as a query."),
        ("DELETE { _:b ?p ?o } WHERE { ?s ?p ?o }", "A blank node cannot stand in DELETE (line 1, column 10)."),
        ("INSERT DATA { <urn:a> <urn:b> }", '"}" is not allowed here (line 1, column 31). Expected: a term or v'),
        ("INSERT DATA { <urn:a> <urn:b>/<urn:c> 1 }", '"/" is not allowed here (line 1, column 30). Expected: '),
        (
            "INSERT { ?s ?p ?n } WHERE {\n{ SELECT ?s ?n { ?s ?p ?n } GROUP BY ?s } }",
            "?n is neither in GROUP BY nor in an aggregate (line 2, column 13). Add it to GROUP BY",
        ),
        (
            "CLEAR ALL ;\nINSERT { ?s ?p 1 } WHERE { ?s ?p _:a { ?s ?q _:a } }",
            "The blank node label _:a is already used in another group (line 2, column 46). Use another label",
        ),
        (
            "INSERT DATA { <urn:a> <urn:b> _:a } ; INSERT DATA { <urn:a> <urn:b> _:a }",
            "The blank node label _:a is already used in another INSERT DATA (line 1, column 69).",
        ),
        ("INSERT { ?s ?p 1 } WHERE { ?s ?p ?o BIND(1 AS ?o) }", "so BIND cannot assign it (line 1, column 47). Use"),
        ("DELETE { ?s ?p (1 2) } WHERE { ?s ?p ?o }", "cannot stand in DELETE (line 1, column 16). Use variables"),
        ("DELETE DATA { ?s <urn:b> 1 }", "A variable cannot stand in DELETE DATA (line 1, column 15). Use a constant,"),
        ("INSERT DATA { GRAPH ?g { <urn:a> <urn:b> 1 } }", "A variable cannot stand in INSERT DATA (line 1, column 21"),
        ("INSERT DATA { 'a' <urn:b> 1 }", "A literal cannot be the subject of a triple (line 1, column 15). Use an IR"),
        ("INSERT DATA { FILTER(1) }", "FILTER is not allowed here (line 1, column 15). Expected: a term or variable, "),
        ("INSERT DATA {\n<<( <urn:a> <urn:b> 1 )>> <urn:c> 2 }", "A triple term <<( )>> is RDF 1.2 and not acc"),
        ("INSERT DATA { << <urn:a> <urn:b> 1 >> <urn:c> 2 }", "A reified triple << >> is RDF 1.2 and not accepted"),
        ("INSERT DATA { <urn:a> <urn:b> 1 {| <urn:c> 2 |} }", "An annotation {| |} is RDF 1.2 and not accepted in "),
        ("INSERT DATA { <urn:a> <urn:b> 1 ~ <urn:c> }", "A reifier ~ is RDF 1.2 and not accepted in data or templates"),
        ("INSERT DATA { <urn:a> <urn:b> 'x'@en--ltr }", "A direction as in @en--ltr is RDF 1.2 and not accepted in da"),
        ("LOAD urn:x", '(line 1, column 6). Write an IRI in angle brackets: <urn:...>'),
    ],
)  # fmt: skip
def test_the_message_names_problem_place_and_remedy_of_an_update(text, expected):
    assert expected in message("update", text)


def test_a_declaration_before_the_operation_does_not_move_the_place():
    lines = "<urn:a> <urn:b> 1 .\n" * 1000
    text = f"PREFIX ex: <urn:> INSERT DATA {{{lines}oops, oops and oops\n{lines}}}"
    assert "(line 1001, column " in message("update", text)


def test_a_long_text_gets_the_place_that_oxigraph_reports():
    """Only short texts are checked against the grammar: an error must not cost more than an update."""
    text = "INSERT DATA {" + "<urn:a> <urn:b> 1 .\n" * 2000 + "oops }"
    assert "This update is not valid SPARQL 1.1 at or before this place (line 2001, column " in message("update", text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ASK {\n" + "{" * 101, "Brackets are nested deeper than 100 levels (line 2, column 100). Use fewer"),
        ("ASK { ?s ?p\n" + "(" * 101, "Brackets are nested deeper than 100 levels (line 2, column 100). Use fewer"),
        ("ASK {\n" + "?s ?p ?o .\n" * 1001 + "}", "operators and triples in one query (line 1002, column 10). "),
        ("ASK\n{ ?a ?b ?c . ?c ?d ?e . ?e ?f ?g }", "are joined in one group (line 2, column 1). Split it, or put"),
        ("ASK { FILTER(\nIF(" + "1, " * 1001 + "1)) }", "arguments in one function call (line 2, column 3). Nest"),
        ("ASK { FILTER(\n" + "1\n+ " * 101 + "1) }", "operators in a row (line 100, column 1). Split it."),
    ],
)  # fmt: skip
def test_a_limit_is_reported_as_a_limit_with_its_place(text, expected):
    with pytest.raises(LimitExceeded, match=re.escape(expected)) as refused:
        check_query(text, query_rules(max_steps=5))
    assert refused.value.to_message()["error"] == "limit_exceeded"
    assert refused.value.status_code == 400


@pytest.mark.parametrize("quote", ["'", '"', "'''", '"""'])
def test_a_string_may_be_long_but_not_have_any_number_of_escape_sequences(quote):
    check_query("ASK { VALUES ?x { " + quote + "x" * 2_000_000 + "\\\\\\n" * 1000 + quote + " } }", QueryRules())
    expected = (
        r"more than 100000 escape sequences or quotation marks in it \(line 1, column \d+\). Use a shorter string"
    )
    with pytest.raises(LimitExceeded, match=expected):
        check_query("ASK { VALUES ?x { " + quote + "\\n" * 100_001 + quote + " } }", QueryRules())


@given(st.text("SELECTWHRASK {}?s<>\"'.;[]()0123ab:@&#\\\n", max_size=40))
@example("SELECT * { ?s ?p ?o } LIMIT")
@example("SELECT ?x { ?x a")
def test_no_grammar_of_the_parser_library_is_shown(text):
    try:
        ox.Store().query(text)
    except SyntaxError:
        explanation = message("query", text)
        assert "(line " in explanation or "not a query" in explanation
        assert "[_]" not in explanation
        assert "..=" not in explanation
        for keyword in ("LANGDIR", "ISTRIPLE", "TRIPLE", "VERSION", "PREDICATE"):
            assert keyword not in explanation.upper().replace(text.upper(), "")
