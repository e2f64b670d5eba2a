"""SPARQL text at random, over a vocabulary so small that everything meets everything.

What Oxigraph may answer in more than one way is left out: BNODE, UUID, RAND, REDUCED, SAMPLE, LIMIT without a total
order. Hypothesis draws only the seed: its own choices lean so much to the simple side that few subscriptions would
ever be told anything.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st
from oracle import Query

PREFIX = "PREFIX ex: <http://example.org/> PREFIX xsd: <http://www.w3.org/2001/XMLSchema#> "

RESOURCES = ("ex:a", "ex:a", "ex:b", "ex:b", "ex:g1", "<rel>")
PREDICATES = ("ex:p", "ex:p", "ex:p", "ex:q", "ex:q", "ex:a")
GRAPHS = ("ex:g1", "ex:g1", "ex:g2", "ex:a")
GRAPH_IRIS = ("http://example.org/g1", "http://example.org/g2", "http://example.org/a")
COMMON_LITERALS = ("1", "2", '"x"')
LITERALS = (
    '"01"^^xsd:integer',
    "1.0",
    '"1.00"^^xsd:decimal',
    '"1"^^xsd:int',
    '"-0"^^xsd:integer',
    "1e0",
    '"1.50E0"^^xsd:double',
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
VARIABLES = ("?a", "?b", "?c")
PATHS = (
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
    "(ex:p*)/ex:q",
    "(ex:p?)+",
    "!(^ex:p)",
    "ex:p|ex:q?",
    "^(ex:p/ex:q?)",
)
MADE_BLANK_NODES = (
    "_:x ex:made ?a .",
    "_:x ex:made _:y . _:y ex:made ?b",
    "[ ex:made ?c ; ex:q [] ]",
    "(?a ?b) ex:made 1",
)


class Patterns:
    """Groups of graph patterns."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._numbers = 0

    def chance(self, of: int) -> bool:
        """True once in `of` times."""
        return self.random.randrange(of) == 0

    def one(self, choices: Sequence[str]) -> str:
        return self.random.choice(choices)

    def fresh(self) -> str:
        """A variable that nothing else in the text is called."""
        self._numbers += 1
        return f"?n{self._numbers}"

    def variable(self) -> str:
        return self.one(VARIABLES)

    def literal(self) -> str:
        return self.one(COMMON_LITERALS if self.chance(2) else LITERALS)

    def node(self) -> str:
        return self.one(RESOURCES) if self.chance(2) else self.literal()

    def triple(self, blanks: bool = True) -> str:
        at = self.random.randrange(3)
        s = self.one(RESOURCES) if self.chance(8) else "[]" if blanks and self.chance(8) else VARIABLES[at]
        p = self.variable() if self.chance(6) else self.one(PREDICATES)
        other = VARIABLES[at] if self.chance(12) else VARIABLES[(at + self.random.randint(1, 2)) % 3]
        o = self.literal() if self.chance(8) else self.one(RESOURCES) if self.chance(8) else other
        return f"{s} {p} {o}"

    def block(self, blanks: bool = True, most: int = 2) -> str:
        return " . ".join(self.triple(blanks) for _ in range(self.random.randint(1, most))) + " ."

    def path_triple(self) -> str:
        s = self.one(RESOURCES) if self.chance(4) else self.variable()
        o = self.node() if self.chance(4) else self.variable()
        return f"{s} {self.one(PATHS)} {o} ."

    def plain_group(self) -> str:
        """What the engine evaluates on its own index: triples, GRAPH and OPTIONAL."""
        parts = [] if self.chance(8) else [self.block()]
        for _ in range(self.random.randint(0, 2)):
            kind = self.random.randrange(12)
            if kind <= 3:
                parts.append(f"OPTIONAL {{ {self.block()} }}")
            elif kind == 4:
                parts.append(f"OPTIONAL {{ {self.block(most=1)} GRAPH ?g {{ {self.block(most=1)} }} }}")
            elif kind == 5:
                parts.append(f"GRAPH {self.one(GRAPHS)} {{ {self.block()} }}")
            elif kind <= 7:
                parts.append(f"GRAPH ?g {{ {self.block(most=1)} }}")
            elif kind == 8:
                parts.append(f"GRAPH {self.variable()} {{ {self.block(most=1)} }}")
            elif kind == 9:
                parts.append(self.one(("GRAPH ?g { }", "OPTIONAL { }", "GRAPH ex:g1 { }")))
            else:
                parts.append(self.block(most=1))
        return " ".join(parts)

    def constraint(self, depth: int) -> str:
        a, b = self.variable(), self.variable()
        choices = [
            f"{a} = {self.node()}",
            f"{a} != {b}",
            f"{a} < {self.one(('2', '1.5', '5'))}",
            f"BOUND({a})",
            f"!BOUND({a}) || {b} = {a}",
            f"isLITERAL({a}) && !sameTerm({a}, {b})",
            f'LANG({a}) = "en" || isIRI({b})',
            f"DATATYPE({a}) = xsd:integer",
            f"{a} IN ({self.node()}, {self.node()}, {b})",
            f"{a}>0&&{a}<5||?b>?a",
            f"COALESCE({a} + 1, 2) > 1",
            f"IF(isIRI({a}), {b} = ex:a, true)",
            f"STR({a}) = STR({b})",
            f"REGEX(STR({a}), '[ax]') || !({b} = 1)",
        ]
        if depth > 0 and self.chance(3):
            return f"{self.one(('EXISTS', 'NOT EXISTS'))} {{ {self.group(depth - 1)} }}"
        return self.one(choices)

    def expression(self) -> str:
        a = self.variable()
        return self.one(
            (
                f"{a} + 1",
                f"STR({a})",
                f"IF(BOUND({a}), {a}, 1)",
                f"COALESCE({a}, {self.node()})",
                f"DATATYPE({a})",
                f"({a} = {self.node()})",
                f"CONCAT(STR({a}), 'x')",
                f"EXISTS {{ {self.block(blanks=False)} }}",
            )
        )

    def sub_query(self, depth: int) -> str:
        inner, a, b, fresh = self.group(depth - 1), self.variable(), self.variable(), self.fresh()
        return self.one(
            (
                f"{{ SELECT {a} WHERE {{ {inner} }} }}",
                f"{{ SELECT DISTINCT {a} {b if a != b else ''} WHERE {{ {inner} }} }}",
                f"{{ SELECT (COUNT(*) AS {fresh}) WHERE {{ {inner} }} }}",
                f"{{ SELECT {a} (COUNT({b}) AS {fresh}) WHERE {{ {inner} }} GROUP BY {a} }}",
                f"{{ SELECT {a} (MAX({b}) AS {fresh}) WHERE {{ {inner} }} GROUP BY {a} HAVING (COUNT(*) > 1) }}",
            )
        )

    def element(self, depth: int) -> str:
        kind = self.random.randrange(14 if depth > 0 else 5)
        if kind <= 1:
            return self.block()
        if kind <= 3:
            return self.path_triple()
        if kind == 4:
            return f"VALUES {self.variable()} {{ {self.node()} {self.node()} {self.one(('', 'UNDEF'))} }}"
        if kind == 5:
            return self.sub_query(depth)
        if kind == 6:
            return f"BIND({self.expression()} AS {self.fresh()})"
        if kind == 7:
            return f"FILTER({self.constraint(depth)})"
        inner = self.group(depth - 1)
        if kind == 8:
            return f"{{ {inner} }} UNION {{ {self.group(depth - 1)} }}"
        around = (
            "OPTIONAL",
            "OPTIONAL",
            f"GRAPH {self.one(GRAPHS)}",
            "GRAPH ?g",
            f"GRAPH {self.variable()}",
            "MINUS",
            "",
        )
        return f"{self.one(around)} {{ {inner} }}"

    def group(self, depth: int) -> str:
        parts = [] if self.chance(5) else [self.block(most=1)]
        parts += [self.element(depth) for _ in range(self.random.randint(0 if parts else 1, 2))]
        if self.chance(6):
            parts.append(f"FILTER({self.constraint(max(depth - 1, 0))})")
        return " ".join(parts)

    def any_group(self) -> str:
        return self.group(self.random.randrange(3))


class Queries(Patterns):
    """Queries of all forms."""

    def dataset(self) -> str:
        if not self.chance(4):
            return ""
        a, b, c = (self.one(GRAPHS) for _ in range(3))
        return self.one((f"FROM {a}", f"FROM NAMED {a}", f"FROM {a} FROM {b} FROM NAMED {c}"))

    def distinct(self) -> str:
        return "DISTINCT " if self.chance(3) else ""

    def plain_select(self) -> str:
        names = [*VARIABLES, "?g"]
        self.random.shuffle(names)
        projected = "*" if self.chance(2) else " ".join(names[: self.random.randint(1, 4)])
        return f"SELECT {self.distinct()}{projected} WHERE {{ {self.plain_group()} }}"

    def general_select(self) -> str:
        where = f"{self.dataset()} WHERE {{ {self.any_group()} }}"
        a, b = self.variable(), self.variable()
        both = f"{a} {b if a != b else ''}"
        kind = self.random.randrange(9)
        if kind <= 2:
            return f"SELECT {self.distinct()}* {where}"
        if kind == 3:
            return f"SELECT {self.distinct()}{both} {where}"
        if kind == 4:
            return f"SELECT (COUNT(*) AS ?n) (COUNT(DISTINCT {a}) AS ?m) (MIN({b}) AS ?k) {where}"
        if kind == 5:
            having = self.one(("", "HAVING (COUNT(*) > 1)", "HAVING (EXISTS { ?a ex:q ?z })"))
            return f"SELECT {a} (SUM({b}) AS ?n) (COUNT(*) AS ?m) {where} GROUP BY {a} {having}"
        if kind == 6:
            return f"SELECT {a} ({self.expression()} AS ?n) {where}"
        if kind == 7:
            order = " ".join(f"{v} STR({v}) STR(DATATYPE({v})) LANG({v})" for v in (a, b))
            total = f"FILTER(!isBLANK({a}) && !isBLANK({b}))"
            limit = self.one(("LIMIT 1", "LIMIT 2 OFFSET 1", "OFFSET 1"))
            return (
                f"SELECT {both} {self.dataset()} WHERE {{ {{ {self.any_group()} }} {total} }} ORDER BY {order} {limit}"
            )
        return f"SELECT (COUNT({b}) AS ?n) (AVG({b}) AS ?m) {where} VALUES {a} {{ ex:a {self.literal()} UNDEF }}"

    def construct(self) -> str:
        if self.chance(5):
            return f"CONSTRUCT WHERE {{ {self.block(blanks=False)} }}"
        template = self.block(blanks=False) + (f" {self.one(MADE_BLANK_NODES)}" if self.chance(3) else "")
        return f"CONSTRUCT {{ {template} }} {self.dataset()} WHERE {{ {self.any_group()} }}"

    def describe(self) -> str:
        a, where = self.one(RESOURCES), f"{self.dataset()} WHERE {{ {self.any_group()} }}"
        return self.one(
            (
                f"DESCRIBE {a}",
                f"DESCRIBE {a} {self.variable()} {where}",
                f"DESCRIBE * {where}",
                f"DESCRIBE {self.variable()} WHERE {{ {self.plain_group()} }}",
            )
        )

    def text(self) -> str:
        kind = self.random.randrange(16)
        if kind <= 4:
            return PREFIX + self.plain_select()
        if kind <= 10:
            return PREFIX + self.general_select()
        if kind == 11:
            return f"{PREFIX}ASK {self.dataset()} {{ {self.any_group()} }}"
        return PREFIX + (self.construct() if kind <= 13 else self.describe())

    def query(self) -> Query:
        text = self.text()
        return Query(text, self._graphs(), self._graphs()) if self.chance(6) else Query(text)

    def _graphs(self) -> tuple[str, ...] | None:
        return None if self.chance(3) else tuple(self.random.sample(GRAPH_IRIS, self.random.randint(0, 2)))


class Updates(Patterns):
    """Updates of all forms."""

    def data(self, blanks: bool = True, least: int = 1, most: int = 5) -> str:
        parts = []
        for _ in range(self.random.randint(least, most)):
            s = self.one(("_:x", "_:y")) if blanks and self.chance(4) else self.one(RESOURCES)
            o = self.one(("_:x", "_:y", "[]")) if blanks and self.chance(5) else self.node()
            parts.append(self._placed(f"{s} {self.one(PREDICATES)} {o}", GRAPHS))
        return " ".join(parts)

    def template(self, blanks: bool) -> str:
        parts = []
        for _ in range(self.random.randint(1, 3)):
            s = (
                self.one(("_:x", "_:y"))
                if blanks and self.chance(5)
                else self.one((*VARIABLES, *VARIABLES, *RESOURCES))
            )
            p = self.variable() if self.chance(5) else self.one(PREDICATES)
            o = (
                self.one(("_:x", "_:y"))
                if blanks and self.chance(6)
                else self.one((*VARIABLES, *VARIABLES, self.node()))
            )
            parts.append(self._placed(f"{s} {p} {o}", (*GRAPHS, "?g", "?a")))
        return " ".join(parts)

    def _placed(self, quad: str, graphs: Sequence[str]) -> str:
        return f"GRAPH {self.one(graphs)} {{ {quad} }}" if self.chance(3) else f"{quad} ."

    def using(self) -> str:
        if not self.chance(4):
            return ""
        a, b, c = (self.one(GRAPHS) for _ in range(3))
        return self.one((f"USING {a}", f"USING NAMED {a}", f"USING {a} USING {b} USING NAMED {c}"))

    def modify(self) -> str:
        with_ = f"WITH {self.one(GRAPHS)} " if self.chance(4) else ""
        how, kind = self.random.randrange(6), self.random.randrange(4)
        where = self.triple(False) if how <= 1 else self.plain_group() if how <= 4 else self.any_group()
        found = where if how <= 1 else self.template(False)
        delete = f"DELETE {{ {found} }} " if kind != 0 else ""
        insert = f"INSERT {{ {self.template(True)} }} " if kind != 1 else ""
        return f"{with_}{delete}{insert}{self.using()} WHERE {{ {where} }}"

    def delete_where(self) -> str:
        parts = []
        for _ in range(self.random.randint(1, 2)):
            block = self.block(blanks=False, most=1)
            parts.append(f"GRAPH {self.one((*GRAPHS, '?g'))} {{ {block} }}" if self.chance(3) else block)
        return f"DELETE WHERE {{ {' '.join(parts)} }}"

    def operation(self) -> str:
        kind = self.random.randrange(20)
        if kind <= 4:
            return f"INSERT DATA {{ {self.data()} }}"
        if kind <= 6:
            return f"DELETE DATA {{ {self.data(blanks=False, most=10)} }}"
        if kind <= 14:
            return self.modify()
        if kind <= 16:
            return self.delete_where()
        silent = self.one(("", "SILENT "))
        if kind == 17:
            return f"CREATE {silent}GRAPH {self.one(GRAPHS)}"
        if kind == 18:
            target = self.one((f"GRAPH {self.one(GRAPHS)}", f"GRAPH {self.one(GRAPHS)}", "DEFAULT", "NAMED", "ALL"))
            return f"{self.one(('CLEAR', 'DROP'))} {silent}{target}"
        source, end = (self.one((*GRAPHS, "DEFAULT", "GRAPH ex:g2")) for _ in range(2))
        return f"{self.one(('ADD', 'COPY', 'MOVE'))} {silent}{source} TO {end}"

    def update(self) -> list[str]:
        """The operations of one request, without prologue."""
        return _scoped([self.operation() for _ in range(self.random.choice((1, 1, 1, 2, 3)))])

    def seed(self) -> list[str]:
        """One operation that inserts: something to work on."""
        return [f"INSERT DATA {{ {self.data(least=8, most=24)} }}"]


def _scoped(operations: list[str]) -> list[str]:
    """Blank node labels may not be shared between operations."""
    return [
        text.replace("_:x", f"_:x{number}").replace("_:y", f"_:y{number}") for number, text in enumerate(operations)
    ]


@dataclass(frozen=True)
class Story:
    """What is done to the engine: subscriptions on a graph, then updates."""

    first: list[str]
    queries: list[Query]
    updates: list[list[str]]


def story(seed: int) -> Story:
    updates, queries = Updates(seed), Queries(~seed)
    return Story(
        updates.seed(),
        [queries.query() for _ in range(queries.random.randint(2, 6))],
        [updates.update() for _ in range(updates.random.randint(4, 10))],
    )


seeds = st.integers(min_value=0, max_value=2**63)
query_text = seeds.map(lambda seed: Queries(seed).text())
