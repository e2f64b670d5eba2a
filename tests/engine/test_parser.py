"""SPARQL text to algebra: the tree of each construct, and the refused texts."""

from __future__ import annotations

import pyoxigraph as ox
import pytest
from unparser import parameters

from edge.engine.sparql.parser import parse_group, parse_quads, parse_query
from edge.engine.sparql.terms_text import Names
from edge.engine.store.terms import XSD
from edge.protocol.errors import ParsingFailed
from edge.protocol.syntax import tokenize
from edge.sparql.algebra import (
    Aggregate,
    Alternative,
    Blank,
    Call,
    Constant,
    Distinct,
    Exists,
    Extend,
    Filter,
    Fresh,
    GraphPattern,
    Group,
    Inverse,
    Join,
    LeftJoin,
    Minus,
    Negated,
    OrderBy,
    Parameter,
    Path,
    PathLink,
    Project,
    Query,
    Reference,
    Repeat,
    Service,
    Slice,
    Triple,
    Union,
    Values,
    Variable,
)
from edge.sparql.algebra import Sequence as Steps

BASE = "http://localhost/"
EX = "http://example.org/"
RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
PROLOGUE = f"PREFIX ex: <{EX}> PREFIX xsd: <{XSD}> "
NAMES = Names(PROLOGUE, BASE)
S, P, V = (Variable(name) for name in "spo")
UNIT = Join(())


def ex(name: str) -> ox.NamedNode:
    return ox.NamedNode(EX + name)


def rdf(name: str) -> ox.NamedNode:
    return ox.NamedNode(RDF + name)


def integer(text: str) -> ox.Literal:
    return ox.Literal(text, datatype=ox.NamedNode(XSD + "integer"))


def query(text: str) -> Query:
    return parse_query(PROLOGUE + text, tokenize(PROLOGUE + text), BASE)


def group(text: str):
    return parse_group(tokenize(text), NAMES)


def quads(text: str, **options):
    return parse_quads(tokenize(text), NAMES, **options)


def expression(text: str):
    filtered = group(f"FILTER({text})")
    (condition,) = filtered.conditions
    return condition


def spo(name: str, graph: object = None) -> Triple:
    return Triple(S, ex(name), V, graph)


T, U = spo("t"), spo("u")
GRAPH = GraphPattern(ex("g"), spo("t", ex("g")))
TRUE = ox.Literal("true", datatype=ox.NamedNode(XSD + "boolean"))


# Triples


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<http://example.org/a>", ex("a")),
        ("<http://example.org/a/../b>", ex("a/../b")),
        ("<rel>", ox.NamedNode(BASE + "rel")),
        ("<>", ox.NamedNode(BASE)),
        ("<#x>", ox.NamedNode(BASE + "#x")),
        (r"<http://example.org/\u0061>", ex("a")),
        ("ex:a", ex("a")),
        ("ex:", ex("")),
        (r"ex:a\,b%20c:d.e", ex("a,b%20c:d.e")),
        ("'it'", ox.Literal("it")),
        (r'"a\t\"\\n\u00e9\U0001F600\'"', ox.Literal("a\t\"\\n\u00e9\U0001f600'")),
        ("'''a'b''c\n\"'''", ox.Literal("a'b''c\n\"")),
        ('"""a"b""c\\""""', ox.Literal('a"b""c"')),
        ('""', ox.Literal("")),
        ("'x'@en-GB", ox.Literal("x", language="en-gb")),
        ("'x' @en", ox.Literal("x", language="en")),
        ("'x'^^ex:t", ox.Literal("x", datatype=ex("t"))),
        ("'x' ^^ <http://example.org/t>", ox.Literal("x", datatype=ex("t"))),
        ("1", integer("1")),
        ("-01", integer("-01")),
        ("+1.50", ox.Literal("+1.50", datatype=ox.NamedNode(XSD + "decimal"))),
        (".5", ox.Literal(".5", datatype=ox.NamedNode(XSD + "decimal"))),
        ("1.e-3", ox.Literal("1.e-3", datatype=ox.NamedNode(XSD + "double"))),
        ("1E0", ox.Literal("1E0", datatype=ox.NamedNode(XSD + "double"))),
        ("true", TRUE),
        ("?x", Variable("x")),
        ("$x", Variable("x")),
        ("_:b1.c", Blank("b1.c")),
        ("()", rdf("nil")),
    ],
)  # fmt: skip
def test_terms(text, expected):
    assert quads(f"?s ?p {text}", blank=Blank) == (Triple(S, P, expected, None),)


def test_names_follow_the_prologue():
    names = Names("BASE <http://example.org/a/b> PREFIX p: <c#> BASE <d/> PREFIX : <e/> PREFIX p.q: <p>", BASE)
    (triple,) = parse_quads(tokenize("p:x :x p.q:x"), names)
    assert triple == Triple(ex("a/c#x"), ex("a/d/e/x"), ex("a/d/px"), None)
    assert query("BASE <d> ASK { ?s <e> ?o }").pattern == Triple(S, ox.NamedNode(BASE + "e"), V, None)
    assert query("BASE <d> ASK { }").base == BASE + "d"
    assert query("ASK { }").base == BASE


@pytest.mark.parametrize("text", ["un:known", "<rel>", "<http://[>", "'x'@toolonglanguage", r'"\uD800"', r'"\q"'])
def test_invalid_terms_are_refused(text):
    with pytest.raises(ParsingFailed):
        parse_quads(tokenize(f"?s ?p {text}"), Names("", None))


def test_abbreviated_triples():
    text = "ex:a a ex:b , ex:c ; ex:p 'a' ;; . ex:d ex:p ?o"
    assert group(text).parts == (
        Triple(ex("a"), rdf("type"), ex("b"), None),
        Triple(ex("a"), rdf("type"), ex("c"), None),
        Triple(ex("a"), ex("p"), ox.Literal("a"), None),
        Triple(ex("d"), ex("p"), V, None),
    )


def test_blank_nodes():
    first, second = group("[ ex:p [] ] ex:q _:x").parts
    assert isinstance(first.object, Blank)
    assert isinstance(first.subject, Blank)
    assert second == Triple(first.subject, ex("q"), Blank("x"), None)
    assert len({first.subject, first.object, second.object}) == 3
    (made,) = quads("_:x ex:p _:x")
    assert made == Triple(Fresh("x"), ex("p"), Fresh("x"), None)


def test_collections():
    parts = quads("?s ex:p (1 (ex:a) ?o)")
    firsts = {t.subject: t.object for t in parts if t.predicate == rdf("first")}
    rests = {t.subject: t.object for t in parts if t.predicate == rdf("rest")}
    (start,) = [t.object for t in parts if t.predicate == ex("p")]

    def listed(cell: object) -> list[object]:
        items = []
        while cell != rdf("nil"):
            assert isinstance(cell, Fresh)
            items.append(listed(firsts[cell]) if isinstance(firsts[cell], Fresh) else firsts[cell])
            cell = rests[cell]
        return items

    assert listed(start) == [integer("1"), [ex("a")], V]
    assert len(parts) == 9


def test_graphs_of_templates():
    assert quads("?s ex:t ?o GRAPH ?g { ?s ex:t ?o . ?s ex:u ?o } . GRAPH ex:g { } ?s ex:u ?o", graph=ex("w")) == (
        spo("t", ex("w")),
        spo("t", Variable("g")),
        spo("u", Variable("g")),
        spo("u", ex("w")),
    )


# Paths


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ex:t", T),
        ("(ex:t)", T),
        ("^ex:t", Triple(V, ex("t"), S, None)),
        ("ex:t/ex:u", Join((Triple(S, ex("t"), Blank(".0"), None), Triple(Blank(".0"), ex("u"), V, None)))),
        ("^(ex:t/ex:u)", Join((Triple(V, ex("t"), Blank(".0"), None), Triple(Blank(".0"), ex("u"), S, None)))),
        ("ex:t|^a", Path(S, Alternative((PathLink(ex("t")), Inverse(PathLink(rdf("type"))))), V, None)),
        ("ex:t+", Path(S, Repeat(PathLink(ex("t")), 1, once=False), V, None)),
        ("ex:t*", Path(S, Repeat(PathLink(ex("t")), 0, once=False), V, None)),
        ("ex:t?", Path(S, Repeat(PathLink(ex("t")), 0, once=True), V, None)),
        ("(ex:t/ex:u)+", Path(S, Repeat(Steps((PathLink(ex("t")), PathLink(ex("u")))), 1, once=False), V, None)),
        ("^ex:t+", Path(V, Repeat(PathLink(ex("t")), 1, once=False), S, None)),
        ("!ex:t", Path(S, Negated((ex("t"),), ()), V, None)),
        ("!(^ex:t|a|ex:u)", Path(S, Negated((rdf("type"), ex("u")), (ex("t"),)), V, None)),
        (
            "ex:t|ex:u/ex:v",
            Path(S, Alternative((PathLink(ex("t")), Steps((PathLink(ex("u")), PathLink(ex("v")))))), V, None),
        ),
    ],
)
def test_paths(text, expected):
    assert group(f"?s {text} ?o") == expected


def test_each_object_of_a_path_has_nodes_of_its_own_between():
    parts = group("?s ex:t/ex:u ?o , ?p").parts
    assert len({node for triple in parts for node in (triple.subject, triple.object) if isinstance(node, Blank)}) == 2


# Groups


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", UNIT),
        ("{ } { { } }", UNIT),
        ("?s ex:t ?o", T),
        ("{ { ?s ex:t ?o } }", T),
        ("?s ex:t ?o { ?s ex:u ?o { } }", Join((T, U))),
        ("?s ex:t ?o OPTIONAL { ?s ex:u ?o }", LeftJoin(T, U, None)),
        ("OPTIONAL { ?s ex:u ?o } ?s ex:t ?o", Join((LeftJoin(UNIT, U, None), T))),
        ("?s ex:t ?o OPTIONAL { FILTER(?s) ?s ex:u ?o }", LeftJoin(T, U, Reference(S))),
        (
            "?s ex:t ?o OPTIONAL { ?s ex:u ?o FILTER(?s && ?o) FILTER(?p) }",
            LeftJoin(T, U, Call("&&", (Reference(S), Call("&&", (Reference(V), Reference(P)))))),
        ),
        ("?s ex:t ?o OPTIONAL { { ?s ex:u ?o FILTER(?s) } }", LeftJoin(T, Filter(U, (Reference(S),)), None)),
        ("?s ex:t ?o MINUS { ?s ex:u ?o }", Minus(T, U)),
        ("{ ?s ex:t ?o } UNION { ?s ex:u ?o } UNION { }", Union((T, U, UNIT))),
        ("{ { ?s ex:t ?o } UNION { ?s ex:u ?o } } UNION { }", Union((T, U, UNIT))),
        ("FILTER(?s && ?p && (?o && ?s)) ?s ex:t ?o", Filter(T, tuple(map(Reference, (S, P, V, S))))),
        ("FILTER(?s) ?s ex:t ?o FILTER(?o) . ?s ex:u ?o", Filter(Join((T, U)), (Reference(S), Reference(V)))),
        ("?s ex:t ?o { ?s ex:u ?o FILTER(?s) }", Join((T, Filter(U, (Reference(S),))))),
        ("?s ex:t ?o BIND(?o AS ?p) ?s ex:u ?o", Join((Extend(T, P, Reference(V)), U))),
        ("?s ex:t ?o { BIND(?o AS ?p) }", Join((T, Extend(UNIT, P, Reference(V))))),
        ("VALUES ?s { ex:a UNDEF } ", Values((S,), ((ex("a"),), (None,)))),
        ("VALUES (?s ?o) { (-1 true) (UNDEF 'x') }", Values((S, V), ((integer("-1"), TRUE), (None, ox.Literal("x"))))),
        ("VALUES () { () }", Values((), ((),))),
        ("GRAPH ex:g { ?s ex:t ?o }", GRAPH),
        ("GRAPH ?p { GRAPH ex:g { ?s ex:t ?o } ?s ex:u ?o }", GraphPattern(P, Join((GRAPH, spo("u", P))))),
        ("GRAPH ?p { FILTER EXISTS { ?s ex:t ?o } }", GraphPattern(P, Filter(UNIT, (Exists(spo("t", P), False),)))),
        ("GRAPH ?g { } ?s ex:t ?o", Join((GraphPattern(Variable("g"), UNIT), T))),
        ("GRAPH ex:g { SERVICE SILENT ?p { ?s ex:t ?o } }", GraphPattern(ex("g"), Service(P, silent=True, pattern=T))),
    ],
)  # fmt: skip
def test_groups(text, expected):
    assert group(text) == expected


# Expressions


def call(name: str, *arguments: object) -> Call:
    return Call(name, tuple(Constant(integer(a)) if isinstance(a, str) else a for a in arguments))  # type: ignore[arg-type, misc]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 - 2 - 3", call("-", call("-", "1", "2"), "3")),
        ("1 -2", call("-", "1", "2")),
        ("1-2*3", call("-", "1", call("*", "2", "3"))),
        ("1 - -2", call("-", "1", "-2")),
        ("-1 + +2", call("+", "-1", "+2")),
        ("- 1", call("unary-", "1")),
        ("-?s", call("unary-", Reference(S))),
        ("8 / 4 / 2 * 3", call("*", call("/", call("/", "8", "4"), "2"), "3")),
        ("?s || 1 < 2 && 3 >= 4", call("||", Reference(S), call("&&", call("<", "1", "2"), call(">=", "3", "4")))),
        ("!?s = ?o", call("=", call("!", Reference(S)), Reference(V))),
        ("!!?s", call("!", call("!", Reference(S)))),
        ("(1 = 2) != 3", call("!=", call("=", "1", "2"), "3")),
        ("?s in (1, 2 + 3)", call("IN", Reference(S), "1", call("+", "2", "3"))),
        ("?s Not In ()", call("NOT IN", Reference(S))),
        ("strlen(?s)", call("STRLEN", Reference(S))),
        ("isURI(URI(?s))", call("ISIRI", call("IRI", Reference(S)))),
        ("now()", call("NOW")),
        ("COALESCE(?s, 1)", call("COALESCE", Reference(S), "1")),
        ("ex:f(?s, 1)", Call("", (Reference(S), Constant(integer("1"))), ex("f"))),
        ("ex:f()", Call("", (), ex("f"))),
        ("ex:f", Constant(ex("f"))),
        ("EXISTS { ?s ex:t ?o }", Exists(T, negated=False)),
        ("not exists { ?s ex:t ?o }", Exists(T, negated=True)),
        ("!EXISTS { ?s ex:t ?o }", Call("!", (Exists(T, negated=False),))),
    ],
)  # fmt: skip
def test_expressions(text, expected):
    assert expression(text) == expected


def test_long_alternatives_do_not_nest():
    def depth(node: object) -> int:
        return 1 + max(map(depth, node.arguments)) if isinstance(node, Call) else 0

    condition = expression(" || ".join(f"?s = {number}" for number in range(400)))
    assert depth(condition) <= 12


# Queries


def select(text: str):
    return query(text).pattern


def test_modifiers_in_their_order():
    text = "SELECT DISTINCT ?s (?o AS ?x) { ?s ex:t ?o } ORDER BY ?o DESC(?s) STR(?x) LIMIT 3 OFFSET 2 VALUES ?o { 1 }"
    joined = Join((T, Values((V,), ((integer("1"),),))))
    ordered = OrderBy(
        Extend(joined, Variable("x"), Reference(V)),
        ((Reference(V), False), (Reference(S), True), (call("STR", Reference(Variable("x"))), False)),
    )
    projected = Project(ordered, (S, Variable("x")))
    assert query(text) == Query(
        "SELECT", Slice(Distinct(projected, reduced=False), 2, 3), (S, Variable("x")), None, None, base=BASE
    )


@pytest.mark.parametrize(
    ("text", "limits"), [("LIMIT 0", (0, 0)), ("OFFSET 5", (5, None)), ("OFFSET 5 LIMIT 1", (5, 1))]
)
def test_slices(text, limits):
    assert select(f"SELECT REDUCED * {{ ?s ex:t ?o }} {text}") == Slice(
        Distinct(Project(T, (S, V)), reduced=True), *limits
    )


@pytest.mark.parametrize(
    ("where", "names"),
    [
        ("?b ex:p ?a", "b a"),
        ("FILTER(?c > 1) ?b ex:p ?a . ?a ?c ?b", "b a c"),
        ("?a ex:p ?b MINUS { ?a ex:p ?c } FILTER EXISTS { ?d ex:p ?a }", "a b"),
        ("{ SELECT ?c { ?c ex:p ?d } } OPTIONAL { ?a ex:p ?b } BIND(1 AS ?e)", "c a b e"),
        ("GRAPH ?g { VALUES (?a ?b) { (1 2) } } { ?c ex:p* ?d } UNION { [] ex:p/ex:q _:x }", "g a b c d"),
        ("SERVICE ?e { ?a ex:p ?b }", "e a b"),
        ("", ""),
    ],
)
def test_star_selects_the_variables_in_scope_in_order(where, names):
    assert [variable.name for variable in query(f"SELECT * {{ {where} }}").variables] == names.split()
    assert [v.name for v in query(f"DESCRIBE * {{ {where} }}").resources] == names.split()
    (inner,) = [query(f"SELECT * {{ {{ SELECT * {{ {where} }} }} }}").pattern.pattern]
    assert [variable.name for variable in inner.variables] == names.split()


def test_aggregates_stand_for_variables():
    text = (
        "SELECT ?s (COUNT(*) + 1 AS ?n) (COUNT(*) AS ?m) (group_concat(DISTINCT ?o ; separator = ', ') AS ?k)"
        "{ ?s ex:t ?o } GROUP BY ?s HAVING (SUM(?o) > COUNT(*)) (?s) ORDER BY SUM(?o)"
    )
    pattern = select(text)
    assert isinstance(pattern, Project)
    assert isinstance(pattern.pattern, OrderBy)
    n, m, k = (pattern.pattern.pattern.pattern.pattern, pattern.pattern.pattern.pattern, pattern.pattern.pattern)
    having = n.pattern
    assert isinstance(having, Filter)
    assert isinstance(having.pattern, Group)
    group = having.pattern
    names = {aggregate: Reference(variable) for variable, aggregate in group.aggregates}
    count, concat, total = (
        Aggregate("COUNT", None, distinct=False),
        Aggregate("GROUP_CONCAT", Reference(V), distinct=True, separator=", "),
        Aggregate("SUM", Reference(V), distinct=False),
    )
    assert list(names) == [count, concat, total]
    assert all(reference.variable.name.startswith(".") for reference in names.values())
    assert (group.pattern, group.keys) == (T, (S,))
    assert having.conditions == (Call(">", (names[total], names[count])), Reference(S))
    assert (n.expression, m.expression, k.expression) == (call("+", names[count], "1"), names[count], names[concat])
    assert pattern.pattern.conditions == ((names[total], False),)


def test_one_group_without_keys():
    assert select("SELECT (COUNT(DISTINCT *) AS ?n) { ?s ex:t ?o }") == Project(
        Extend(
            Group(T, (), ((Variable(".0"), Aggregate("COUNT", None, distinct=True)),)),
            Variable("n"),
            Reference(Variable(".0")),
        ),
        (Variable("n"),),
    )
    assert select("SELECT (1 AS ?n) { ?s ex:t ?o } GROUP BY ?s ?s").pattern.pattern == Group(T, (S,), ())


def test_group_keys_that_are_expressions():
    text = "SELECT ?y (1 AS ?z) { ?s ex:t ?o } GROUP BY (?o + 1 AS ?y) STR(?s) (?o)"
    key = Variable(".0")
    inner = Extend(Extend(T, Variable("y"), call("+", Reference(V), "1")), key, call("STR", Reference(S)))
    assert select(text).pattern.pattern == Group(inner, (Variable("y"), key, V), ())


def test_aggregates_of_a_sub_query_are_its_own():
    text = "SELECT (COUNT(*) AS ?n) { { SELECT (COUNT(*) AS ?m) { ?s ex:t ?o } } }"
    outer = select(text).pattern.pattern
    inner = outer.pattern.pattern.pattern
    assert isinstance(outer, Group)
    assert isinstance(inner, Group)
    assert outer.aggregates[0][0] != inner.aggregates[0][0]


def test_ask_construct_and_describe():
    assert query("ASK FROM ex:g FROM NAMED ex:h { ?s ex:t ?o }") == Query(
        "ASK", T, (), (ex("g"),), (ex("h"),), base=BASE
    )
    assert query("ASK FROM NAMED ex:h { }").default_graphs == ()
    assert query("CONSTRUCT { ?s ex:u [] } { ?s ex:t ?o } ORDER BY ?s LIMIT 1") == Query(
        "CONSTRUCT",
        Slice(OrderBy(T, ((Reference(S), False),)), 0, 1),
        (),
        None,
        None,
        template=(Triple(S, ex("u"), Fresh(".0"), None),),
        base=BASE,
    )
    short = query("CONSTRUCT FROM ex:g WHERE { ?s ex:t ?o . _:x ex:t ?o }")
    assert short.pattern == Join((T, Triple(Blank("x"), ex("t"), V, None)))
    assert short.template == (T, Triple(Fresh("x"), ex("t"), V, None))
    assert query("CONSTRUCT WHERE { }").template == ()
    assert query("DESCRIBE ex:a ?s { ?s ex:t ?o }").resources == (ex("a"), S)
    assert query("DESCRIBE ex:a").pattern == UNIT


# Parameters


def opened(text: str, constants: list[str]) -> tuple[Query, set[int]]:
    """Return the query with constants as parameters, each the first of its kind."""
    whole = PROLOGUE + text
    found, position = {}, len(PROLOGUE)
    for index, constant in enumerate(constants):
        start = whole.index(constant, position)
        position = start + len(constant)
        found[start] = position, index
    used: set[int] = set()
    return parse_query(whole, tokenize(whole), BASE, found, used), used


def test_constants_that_are_parameters():
    constants = ["ex:a", "<http://x/p>", "'o'@en", "1", "'2'^^ex:t", "3.5", "ex:q", "4", "'v'", "ex:g", "true"]
    parsed, used = opened(
        "SELECT * { ex:a <http://x/p> 'o'@en . ?s ?p -1 , '2'^^ex:t FILTER(?o + 3.5 > 0) ?s ex:q* ?o "
        "VALUES ?o { 4 'v' } GRAPH ex:g { } }",
        constants[:-1],
    )
    assert used == set(range(10))
    assert {index: (p.negative, str(p.term)) for index, p in parameters(parsed).items()} == {
        0: (False, str(ex("a"))),
        1: (False, "<http://x/p>"),
        2: (False, '"o"@en'),
        3: (True, str(integer("-1"))),
        4: (False, f'"2"^^{ex("t")}'),
        5: (False, str(ox.Literal("3.5", datatype=ox.NamedNode(XSD + "decimal")))),
        6: (False, str(ex("q"))),
        7: (False, str(integer("4"))),
        8: (False, '"v"'),
        9: (False, str(ex("g"))),
    }


@pytest.mark.parametrize(
    ("text", "constants"),
    [
        ("SELECT * FROM ex:g { }", ["ex:g"]),
        ("ASK { ?s ?p '1' ^^ex:t }", ["'1'", "ex:t"]),
        ("ASK { ?s ?p '1'^^ex:t }", ["ex:t"]),
        ("ASK { ?s ?p 'x' @en }", ["'x'"]),
        ("ASK { ?s ?p ?o FILTER(ex:f(?o)) }", ["ex:f"]),
        ("ASK { ?s ?p ?o FILTER(?o > +1) }", ["1"]),
        ("ASK { SERVICE ex:s { } }", ["ex:s"]),
        ("ASK { ?s ?p true }", ["true"]),
        ("DESCRIBE ex:a", ["ex:a"]),
        ("SELECT * { ?s ?p ?o } LIMIT 1 OFFSET 2", ["1", "2"]),
        ("SELECT (GROUP_CONCAT(?o; SEPARATOR = ',') AS ?x) { ?s ?p ?o }", ["','"]),
    ],
)
def test_constants_that_are_fixed(text, constants):
    parsed, used = opened(text, constants)
    assert used == set()
    assert parsed == query(text)


def test_a_minus_operator_leaves_the_number_positive():
    parsed, used = opened("ASK { FILTER(?o -1 > ?s) }", ["1"])
    assert used == {0}
    assert parameters(parsed)[0] == Parameter(0, negative=False, term=integer("1"))


def test_parameters_of_updates():
    text = "ex:a ex:p 1"
    found = {0: (4, 0), 5: (9, 1), 10: (11, 2)}
    used: set[int] = set()
    (triple,) = parse_quads(tokenize(text), NAMES, found, used)
    assert triple == parse_group(tokenize(text), NAMES, found, used)
    assert [type(slot) for slot in (triple.subject, triple.predicate, triple.object)] == [Parameter] * 3
    assert used == {0, 1, 2}


# Refused texts


@pytest.mark.parametrize(
    "text",
    [
        "ASK { << ?s ?p ?o >> ?q ?r }",
        "ASK { ?s ?p <<( ?a ?b ?c )>> }",
        "ASK { ?s ?p ?o ~ ex:r }",
        "ASK { ?s ?p ?o {| ?q ?r |} }",
        "ASK { ?s ?p 'x'@en--ltr }",
        "ASK { FILTER(LANGDIR(?s) = 'ltr') }",
        "VERSION '1.2' ASK { }",
        "ASK { ?s ex:p +1 }",
        "ASK { ?s ex:p+1 }",
        "ASK { GRAPH ?g { { SELECT ?s { ?s ?p ?o } } } }",
        "SELECT ?x { ?x ?y ?z } GROUP BY (?x AS ?y)",
        "SELECT ?s { ?s ?p ?o FILTER(COUNT(?o) > 1) }",
        "SELECT (SUM(COUNT(?o)) AS ?n) { ?s ?p ?o }",
        "ASK { ?s ?p ?o } HAVING (COUNT(*) > 1) nonsense",
        "ASK { ?s ?p ?o } ; ASK { }",
        "ASK { ?s ?p }",
        "ASK { ?s ?p ?o",
        "ASK { NONSENSE { } }",
        "ASK { FILTER(NONSENSE(?s)) }",
        "SELECT { }",
        "INSERT DATA { ex:a ex:b ex:c }",
        "",
    ],
)
def test_unsupported_syntax_is_refused(text):
    with pytest.raises(ParsingFailed):
        query(text)


def test_trees_are_never_too_deep():
    assert expression("(" * 90 + "?s" + ")" * 90) == Reference(S)
    with pytest.raises(ParsingFailed):
        expression(" + ".join(["?s"] * 200))

    def further_down(frames: int) -> None:
        if frames:
            further_down(frames - 1)
        else:
            group("FILTER" + "(?s || ?s && ?s = ?s + ?s * " * 99 + "?s" + ")" * 99)

    with pytest.raises(ParsingFailed):
        further_down(300)
