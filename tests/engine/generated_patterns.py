"""Groups of graph patterns at random, over a vocabulary so small that everything meets everything."""

from __future__ import annotations

import random
from collections.abc import Sequence

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
                f"{{ SELECT {a} (MAX(STR({b})) AS {fresh}) WHERE {{ {inner} }} GROUP BY {a} HAVING (COUNT(*) > 1) }}",
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
