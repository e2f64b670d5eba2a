"""Hypothesis strategies: SPARQL text over a vocabulary so small that everything meets everything.

What Oxigraph may answer in more than one way is left out: BNODE, UUID, RAND, REDUCED, SAMPLE, LIMIT without a total
order.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st
from oracle import Query

PREFIX = "PREFIX ex: <http://example.org/> PREFIX xsd: <http://www.w3.org/2001/XMLSchema#> "

RESOURCES = ("ex:a", "ex:b", "ex:c", "ex:g1", "<rel>")
PREDICATES = ("ex:p", "ex:q", "ex:r", "ex:a")
GRAPHS = ("ex:g1", "ex:g2", "ex:g3", "ex:a")
GRAPH_IRIS = tuple("http://example.org/" + name.removeprefix("ex:") for name in GRAPHS)
LITERALS = (
    "1",
    "2",
    '"01"^^xsd:integer',
    "1.0",
    '"1.00"^^xsd:decimal',
    '"1"^^xsd:int',
    '"-0"^^xsd:integer',
    "1e0",
    '"1.50E0"^^xsd:double',
    '"x"',
    '"x"@en',
    '"x"@EN',
    '"x"@en-GB',
    "true",
    '"1"^^xsd:boolean',
    '"2024-01-01T00:00:00Z"^^xsd:dateTime',
    '"2024-01-01T00:00:00.0+00:00"^^xsd:dateTime',
    '"2024-01-01T01:00:00+01:00"^^xsd:dateTime',
    '"abc"^^xsd:integer',
    '"abc"^^ex:own',
    '""',
)
VARIABLES = ("?a", "?b", "?c", "?d")

resource = st.sampled_from(RESOURCES)
predicate = st.sampled_from(PREDICATES)
graph_name = st.sampled_from(GRAPHS)
literal = st.sampled_from(LITERALS)
variable = st.sampled_from(VARIABLES)
node = st.one_of(resource, literal)


# Patterns


@st.composite
def triple(draw: Callable, blanks: bool = True) -> str:
    subjects = [variable, variable, resource, *([st.just("[]")] if blanks else [])]
    s = draw(st.one_of(*subjects))
    p = draw(st.one_of(predicate, predicate, predicate, variable))
    o = draw(st.one_of(variable, variable, resource, literal))
    return f"{s} {p} {o}"


@st.composite
def block(draw: Callable, blanks: bool = True, most: int = 3) -> str:
    return " . ".join(draw(st.lists(triple(blanks), min_size=1, max_size=most))) + " ."


path = st.sampled_from(
    (
        "ex:p/ex:q",
        "^ex:p",
        "ex:p|ex:q",
        "ex:p*",
        "ex:p+",
        "ex:p?",
        "(ex:p/ex:q)*",
        "(ex:p|^ex:q)+",
        "!ex:p",
        "!(ex:p|^ex:q)",
        "ex:p/ex:q*",
        "(ex:p*)/ex:r",
        "(ex:p?)+",
        "!(^ex:p)",
    )
)


@st.composite
def path_triple(draw: Callable) -> str:
    ends = st.one_of(variable, variable, resource)
    return f"{draw(ends)} {draw(path)} {draw(st.one_of(ends, literal))} ."


@st.composite
def plain_group(draw: Callable) -> str:
    """What the engine evaluates on its own index: triples, GRAPH and OPTIONAL."""
    parts = draw(
        st.lists(
            st.one_of(
                block(),
                block(),
                st.builds("GRAPH {} {{ {} }}".format, graph_name, block()),
                st.builds("GRAPH ?g {{ {} }}".format, block()),
                st.builds("OPTIONAL {{ {} }}".format, block()),
                st.builds("OPTIONAL {{ {} GRAPH ?g {{ {} }} }}".format, block(most=1), block(most=1)),
                st.just("GRAPH ?g { }"),
                st.just("OPTIONAL { }"),
                st.builds("GRAPH {} {{ }}".format, graph_name),
                st.builds("GRAPH ?a {{ {} }}".format, block()),
            ),
            min_size=0,
            max_size=3,
        )
    )
    return " ".join(parts)


@st.composite
def constraint(draw: Callable, depth: int) -> str:
    kind = draw(st.integers(0, 15 if depth > 0 else 13))
    a, b = draw(variable), draw(variable)
    if kind == 0:
        return f"{a} = {draw(node)}"
    if kind == 1:
        return f"{a} != {b}"
    if kind == 2:
        return f"{a} < {draw(st.sampled_from(('2', '1.5', '5')))}"
    if kind == 3:
        return f"BOUND({a})"
    if kind == 4:
        return f"!BOUND({a}) || {b} = {a}"
    if kind == 5:
        return f"isLITERAL({a}) && sameTerm({a}, {b})"
    if kind == 6:
        return f'LANG({a}) = "en"'
    if kind == 7:
        return f"DATATYPE({a}) = xsd:integer"
    if kind == 8:
        return f"{a} IN ({draw(node)}, {draw(node)}, {b})"
    if kind == 9:
        return f"{a}>0&&{a}<?b"
    if kind == 10:
        return f"COALESCE({a} + 1, 0) > 1"
    if kind == 11:
        return f"IF(isIRI({a}), {b} = ex:a, true)"
    if kind == 12:
        return f"STR({a}) = STR({b})"
    if kind == 13:
        return f"REGEX(STR({a}), '[ax]') || !({b} = 1)"
    if kind == 14:
        return f"EXISTS {{ {draw(group(depth - 1))} }}"
    return f"NOT EXISTS {{ {draw(group(depth - 1))} }}"


expression = st.one_of(
    st.builds("{} + 1".format, variable),
    st.builds("STR({})".format, variable),
    st.builds("IF(BOUND({0}), {0}, 1)".format, variable),
    st.builds("COALESCE({}, {})".format, variable, node),
    st.builds("DATATYPE({})".format, variable),
    st.builds("({} = {})".format, variable, node),
    st.builds("CONCAT(STR({}), 'x')".format, variable),
    st.builds("EXISTS {{ {} }}".format, block(blanks=False)),
)


class _Names:
    """Variables that nothing else in a text is called; their number is drawn, so that shrinking can reuse it."""

    @staticmethod
    def fresh(draw: Callable) -> str:
        return f"?n{draw(st.integers(0, 10_000))}"


@st.composite
def subselect(draw: Callable, depth: int) -> str:
    inner = draw(group(depth - 1))
    kind = draw(st.integers(0, 4))
    a, b = draw(variable), draw(variable)
    fresh = _Names.fresh(draw)
    if kind == 0:
        return f"{{ SELECT {a} WHERE {{ {inner} }} }}"
    if kind == 1:
        return f"{{ SELECT DISTINCT {a} {b if a != b else ''} WHERE {{ {inner} }} }}"
    if kind == 2:
        return f"{{ SELECT (COUNT(*) AS {fresh}) WHERE {{ {inner} }} }}"
    if kind == 3:
        return f"{{ SELECT {a} (COUNT({b}) AS {fresh}) WHERE {{ {inner} }} GROUP BY {a} }}"
    return f"{{ SELECT {a} (MAX({b}) AS {fresh}) WHERE {{ {inner} }} GROUP BY {a} HAVING (COUNT(*) > 1) }}"


@st.composite
def element(draw: Callable, depth: int) -> str:
    kind = draw(st.integers(0, 13 if depth > 0 else 3))
    if kind <= 1:
        return draw(block())
    if kind == 2:
        return draw(path_triple())
    if kind == 3:
        return f"VALUES {draw(variable)} {{ {draw(node)} {draw(node)} {draw(st.sampled_from(('', 'UNDEF')))} }}"
    inner = group(depth - 1)
    if kind == 4:
        return f"OPTIONAL {{ {draw(inner)} }}"
    if kind == 5:
        return f"GRAPH {draw(graph_name)} {{ {draw(inner)} }}"
    if kind == 6:
        return f"GRAPH ?g {{ {draw(inner)} }}"
    if kind == 7:
        return f"GRAPH {draw(variable)} {{ {draw(inner)} }}"
    if kind == 8:
        return f"{{ {draw(inner)} }} UNION {{ {draw(inner)} }}"
    if kind == 9:
        return f"MINUS {{ {draw(inner)} }}"
    if kind == 10:
        return draw(subselect(depth))
    if kind == 11:
        return f"BIND({draw(expression)} AS {_Names.fresh(draw)})"
    if kind == 12:
        return f"{{ {draw(inner)} }}"
    return f"FILTER({draw(constraint(depth))})"


@st.composite
def group(draw: Callable, depth: int = 2) -> str:
    parts = draw(st.lists(element(depth), min_size=0 if depth < 2 else 1, max_size=3))
    if draw(st.integers(0, 4)) == 0:
        parts.append(f"FILTER({draw(constraint(max(depth - 1, 0)))})")
    return " ".join(parts)


# Queries


dataset_clause = st.one_of(
    st.just(""),
    st.just(""),
    st.just(""),
    st.builds("FROM {}".format, graph_name),
    st.builds("FROM NAMED {}".format, graph_name),
    st.builds("FROM {} FROM {} FROM NAMED {}".format, graph_name, graph_name, graph_name),
)

distinct = st.sampled_from(("", "", "DISTINCT "))


@st.composite
def plain_select(draw: Callable) -> str:
    projected = draw(
        st.one_of(st.just("*"), st.lists(st.sampled_from((*VARIABLES, "?g")), min_size=1, unique=True).map(" ".join))
    )
    return f"SELECT {draw(distinct)}{projected} WHERE {{ {draw(plain_group())} }}"


@st.composite
def general_select(draw: Callable) -> str:
    where = f"{draw(dataset_clause)} WHERE {{ {draw(group())} }}"
    kind = draw(st.integers(0, 8))
    a, b = draw(variable), draw(variable)
    if kind <= 2:
        return f"SELECT {draw(distinct)}* {where}"
    if kind == 3:
        return f"SELECT {draw(distinct)}{a} {b if a != b else ''} {where}"
    if kind == 4:
        return f"SELECT (COUNT(*) AS ?n) (COUNT(DISTINCT {a}) AS ?m) (MIN({b}) AS ?k) {where}"
    if kind == 5:
        extra = draw(st.sampled_from(("", "HAVING (COUNT(*) > 1)", "HAVING (EXISTS { ?a ex:q ?z })")))
        return f"SELECT {a} (SUM({b}) AS ?n) (COUNT(*) AS ?m) {where} GROUP BY {a} {extra}"
    if kind == 6:
        return f"SELECT {a} ({draw(expression)} AS ?n) {where}"
    if kind == 7:
        order = " ".join(f"{v} STR({v}) STR(DATATYPE({v})) LANG({v})" for v in (a, b))
        total = f"FILTER(!isBLANK({a}) && !isBLANK({b}))"
        limit = draw(st.sampled_from(("LIMIT 1", "LIMIT 2 OFFSET 1", "OFFSET 1")))
        chosen = f"{a} {b if a != b else ''}"
        return (
            f"SELECT {chosen} {draw(dataset_clause)} WHERE {{ {{ {draw(group())} }} {total} }} ORDER BY {order} {limit}"
        )
    return (
        f"SELECT (GROUP_CONCAT(DISTINCT ?z) AS ?n) (AVG(?y) AS ?m) {where} VALUES ?a {{ ex:a {draw(literal)} UNDEF }}"
    )


@st.composite
def construct(draw: Callable) -> str:
    kind = draw(st.integers(0, 4))
    if kind == 0:
        return f"CONSTRUCT WHERE {{ {draw(block(blanks=False))} }}"
    template = draw(block(blanks=False))
    if kind >= 3:
        template += " " + draw(
            st.sampled_from(
                (
                    "_:x ex:made ?a .",
                    "_:x ex:made _:y . _:y ex:made ?b",
                    "[ ex:made ?c ; ex:q [] ]",
                    "(?a ?b) ex:made 1",
                )
            )
        )
    return f"CONSTRUCT {{ {template} }} {draw(dataset_clause)} WHERE {{ {draw(group())} }}"


@st.composite
def describe(draw: Callable) -> str:
    kind = draw(st.integers(0, 3))
    if kind == 0:
        return f"DESCRIBE {draw(resource)}"
    if kind == 1:
        return f"DESCRIBE {draw(resource)} {draw(variable)} {draw(dataset_clause)} WHERE {{ {draw(group(1))} }}"
    if kind == 2:
        return f"DESCRIBE * {{ {draw(group(1))} }}"
    return f"DESCRIBE {draw(variable)} {draw(resource)} WHERE {{ {draw(plain_group())} }}"


query_text = st.one_of(
    plain_select(),
    plain_select(),
    general_select(),
    general_select(),
    general_select(),
    st.builds("ASK {} {{ {} }}".format, dataset_clause, group()),
    construct(),
    describe(),
).map(PREFIX.__add__)

_some_graphs = st.one_of(st.none(), st.lists(st.sampled_from(GRAPH_IRIS), max_size=2, unique=True).map(tuple))


@st.composite
def query(draw: Callable) -> Query:
    text = draw(query_text)
    if draw(st.integers(0, 5)) == 0:
        return Query(text, draw(_some_graphs), draw(_some_graphs))
    return Query(text)


# Updates


@st.composite
def data(draw: Callable, blanks: bool = True) -> str:
    subjects = st.one_of(resource, resource, *([st.sampled_from(("_:x", "_:y"))] if blanks else []))
    objects = st.one_of(resource, literal, literal, *([st.sampled_from(("_:x", "_:y", "[]"))] if blanks else []))
    parts = []
    for _ in range(draw(st.integers(1, 5))):
        quad = f"{draw(subjects)} {draw(predicate)} {draw(objects)}"
        named = draw(st.one_of(st.none(), st.none(), graph_name))
        parts.append(f"{quad} ." if named is None else f"GRAPH {named} {{ {quad} }}")
    return " ".join(parts)


@st.composite
def template(draw: Callable, blanks: bool) -> str:
    subjects = st.one_of(variable, variable, resource, *([st.sampled_from(("_:x", "_:y"))] if blanks else []))
    objects = st.one_of(variable, variable, resource, literal, *([st.sampled_from(("_:x", "_:y"))] if blanks else []))
    predicates = st.one_of(predicate, predicate, variable)
    parts = []
    for _ in range(draw(st.integers(1, 3))):
        quad = f"{draw(subjects)} {draw(predicates)} {draw(objects)}"
        named = draw(st.one_of(st.none(), st.none(), graph_name, st.just("?g"), variable))
        parts.append(f"{quad} ." if named is None else f"GRAPH {named} {{ {quad} }}")
    return " ".join(parts)


using = st.one_of(
    st.just(""),
    st.just(""),
    st.just(""),
    st.builds("USING {}".format, graph_name),
    st.builds("USING NAMED {}".format, graph_name),
    st.builds("USING {} USING {} USING NAMED {}".format, graph_name, graph_name, graph_name),
)


@st.composite
def modify(draw: Callable) -> str:
    with_ = draw(st.one_of(st.just(""), st.just(""), st.builds("WITH {} ".format, graph_name)))
    kind = draw(st.integers(0, 2))
    delete = f"DELETE {{ {draw(template(False))} }} " if kind != 0 else ""
    insert = f"INSERT {{ {draw(template(True))} }} " if kind != 1 else ""
    where = draw(st.one_of(plain_group(), plain_group(), group()))
    return f"{with_}{delete}{insert}{draw(using)} WHERE {{ {where} }}"


@st.composite
def delete_where(draw: Callable) -> str:
    parts = draw(
        st.lists(
            st.one_of(
                block(blanks=False, most=2),
                st.builds(
                    "GRAPH {} {{ {} }}".format, st.one_of(graph_name, st.just("?g")), block(blanks=False, most=2)
                ),
            ),
            min_size=1,
            max_size=2,
        )
    )
    return f"DELETE WHERE {{ {' '.join(parts)} }}"


silent = st.sampled_from(("", "SILENT "))
_target = st.one_of(st.builds("GRAPH {}".format, graph_name), st.sampled_from(("DEFAULT", "NAMED", "ALL")))
_end = st.one_of(graph_name, st.just("DEFAULT"), st.builds("GRAPH {}".format, graph_name))

operation = st.one_of(
    st.builds("INSERT DATA {{ {} }}".format, data()),
    st.builds("INSERT DATA {{ {} }}".format, data()),
    st.builds("DELETE DATA {{ {} }}".format, data(blanks=False)),
    modify(),
    modify(),
    modify(),
    delete_where(),
    st.builds("CREATE {}GRAPH {}".format, silent, graph_name),
    st.builds("{} {}{}".format, st.sampled_from(("CLEAR", "DROP")), silent, _target),
    st.builds("{} {}{} TO {}".format, st.sampled_from(("ADD", "COPY", "MOVE")), silent, _end, _end),
)


def _scoped(operations: list[str]) -> list[str]:
    """Blank node labels may not be shared between operations."""
    return [
        text.replace("_:x", f"_:x{number}").replace("_:y", f"_:y{number}") for number, text in enumerate(operations)
    ]


update = st.lists(operation, min_size=1, max_size=3).map(_scoped)
"""The operations of one request, without prologue."""

seed = st.lists(st.builds("INSERT DATA {{ {} }}".format, data()), min_size=1, max_size=3).map(_scoped)
"""Operations that only insert: something to work on."""
