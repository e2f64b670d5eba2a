"""Random groups of graph patterns, over a vocabulary so small that most patterns match."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

PREFIX = "PREFIX ex: <http://example.org/> PREFIX xsd: <http://www.w3.org/2001/XMLSchema#> "

RESOURCES = ("ex:a", "ex:a", "ex:b", "ex:b", "ex:g1", "<rel>")
PREDICATES = ("ex:p", "ex:p", "ex:p", "ex:q", "ex:q", "ex:n", "ex:n", "ex:a")
GRAPHS = ("ex:g1", "ex:g1", "ex:g2", "ex:a")
GRAPH_IRIS = ("http://example.org/g1", "http://example.org/g2", "http://example.org/a")
COMMON_LITERALS = ("1", "2", '"x"')
LITERALS = (
    '"01"^^xsd:integer',
    "-1",
    "1.0",
    '"1.00"^^xsd:decimal',
    '"1"^^xsd:int',
    '"-0"^^xsd:integer',
    "1e0",
    '"1.50E0"^^xsd:double',
    '"y"',
    '"x"@en',
    '"x"@EN',
    '"x"@en-GB',
    "true",
    "false",
    '"1"^^xsd:boolean',
    '"2024-01-01T00:00:00Z"^^xsd:dateTime',
    '"2024-01-01T00:00:00.0+00:00"^^xsd:dateTime',
    '"2024-01-01T01:00:00+01:00"^^xsd:dateTime',
    '"abc"^^xsd:integer',
    '"abc"^^ex:own',
    '""',
)
COMMON_NUMBERS = ("1", "1", "2", "2", "3", "-1")
NUMBERS = (
    "0",
    "1.0",
    "1.5",
    "-2.5",
    "1e0",
    "2.5e0",
    '"0.5"^^xsd:float',
    '"INF"^^xsd:double',
    '"NaN"^^xsd:double',
    '"abc"^^xsd:integer',
    '"x"',
)
"""Objects of `ex:n`. All are dyadic and divisors are too, so that sums are exact in any order."""
VARIABLES = ("?a", "?b", "?c")
PATHS = (
    "ex:p/ex:q",
    "ex:p/^ex:p",
    "^ex:p",
    "ex:p|ex:q",
    "ex:p/(ex:q|ex:n)",
    "(ex:p|ex:q)/ex:n",
    "^(ex:p|^ex:q)",
    "ex:p|ex:p",
    "!(ex:p|^ex:q)",
    "!(ex:q|^ex:p|ex:n)",
    "ex:p*",
    "ex:p+",
    "ex:p?",
    "(ex:p/ex:q)*",
    "(ex:p|^ex:q)+",
    "!ex:p",
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


@dataclass(frozen=True)
class Grouping:
    """The parts of a SELECT with aggregates."""

    selected: str
    tail: str
    """GROUP BY and HAVING."""
    inputs: str
    """The selection without grouping that shows the inputs of each aggregate; empty if they do not matter."""


class Patterns:
    """Generator of groups of graph patterns.

    The names of variables that an aggregate binds say what SPARQL leaves open about their value: `?any1` (SAMPLE: one
    of many), `?cat1` (GROUP_CONCAT: in any order), `?end1` (MIN and MAX: one of several equal values). They occur only
    with `free`, and only their value is used.
    """

    free = False

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._numbers = 0

    def chance(self, of: int) -> bool:
        """Return True once in `of` times."""
        return self.random.randrange(of) == 0

    def one(self, choices: Sequence[str]) -> str:
        return self.random.choice(choices)

    def drawn(self, makers: Sequence[tuple[int, Callable[[], str]]]) -> str:
        """Return the result of one of the makers, drawn by weight."""
        weights, choices = zip(*makers, strict=True)
        return self.random.choices(choices, weights)[0]()

    def fresh(self, kind: str = "num") -> str:
        """Return a variable name that is new in the text."""
        self._numbers += 1
        return f"?{kind}{self._numbers}"

    def variable(self) -> str:
        return self.one((*VARIABLES, *VARIABLES, "?n", "?d"))

    def literal(self) -> str:
        return self.one(COMMON_LITERALS if self.chance(2) else LITERALS)

    def number(self) -> str:
        return self.one(NUMBERS if self.chance(4) else COMMON_NUMBERS)

    def node(self) -> str:
        return self.one(RESOURCES) if self.chance(2) else self.literal()

    # Triples

    def triple(self, blanks: bool = True) -> str:
        at = self.random.randrange(3)
        s = self.one(RESOURCES) if self.chance(7) else "[]" if blanks and self.chance(10) else VARIABLES[at]
        p = self.one((*VARIABLES, "?d")) if self.chance(8) else self.one(PREDICATES)
        if p == "ex:n" and not self.chance(6):
            return f"{s} {p} {self.number() if self.chance(8) else '?n'}"
        other = VARIABLES[at] if self.chance(12) else VARIABLES[(at + self.random.randint(1, 2)) % 3]
        o = self.literal() if self.chance(8) else self.one(RESOURCES) if self.chance(6) else other
        return f"{s} {p} {'?d' if self.chance(16) else o}"

    def block(self, blanks: bool = True, most: int = 2) -> str:
        triples = [self.triple(blanks) for _ in range(self.random.randint(1, most))]
        if most > 1 and self.chance(10):
            triples.append(triples[0])
        if blanks and self.chance(14):
            label = self.fresh("blank").replace("?", "_:")
            triples += [f"{label} {self.one(PREDICATES)} {self.one(VARIABLES)}", f"?a {self.one(PREDICATES)} {label}"]
        if self.chance(10):
            triples[-1] += f" ; {self.one(PREDICATES)} {self.one(VARIABLES)} , {self.one(VARIABLES)}"
        return " . ".join(triples) + " ."

    def path_triple(self) -> str:
        s = self.one(RESOURCES) if self.chance(4) else self.one(VARIABLES)
        o = self.node() if self.chance(4) else self.one(VARIABLES)
        return f"{s} {self.one(PATHS)} {o} ."

    def plain_group(self) -> str:
        """Return a group of triples, GRAPH and OPTIONAL only."""
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

    # Expressions

    def equality(self) -> str:
        """Return an equality of a variable and a constant, which the engine can move into the patterns."""
        v = self.variable()
        c = self.number() if v == "?n" else self.node()
        return self.one((f"{v} = {c}", f"{v} = {c}", f"{c} = {v}", f"sameTerm({v}, {c})", f"{v} IN ({c})"))

    def comparison(self) -> str:
        a, b, n = self.variable(), self.variable(), self.number()
        return self.one(
            (
                f"{a} != {b}",
                f"{a} = {b}",
                f"{a} != {self.node()}",
                f"?n < {n}",
                f"?n >= {n}",
                f"?n -1 > {n}",
                f"{a} < {self.one(('2', '1.5', '5', '-1'))}",
                f"BOUND({a})",
                f"!BOUND({a})",
                f"!BOUND({a}) || {b} = {a}",
                f"isLITERAL({a}) && !sameTerm({a}, {b})",
                f'LANG({a}) = "en" || isIRI({b})',
                f'LANGMATCHES(LANG({a}), "en")',
                f"DATATYPE({a}) = xsd:integer",
                f"{a} IN ({self.node()}, {self.node()}, {b})",
                f"{a} NOT IN ({self.node()}, {b})",
                f"{a} IN ({', '.join(self.node() for _ in range(9))}, {b})",
                f"{a}>0&&{a}<5||?b>?a",
                f"COALESCE({a} + 1, 2) > 1",
                f"IF(isIRI({a}), {b} = ex:a, true)",
                f"STR({a}) = STR({b})",
                f"REGEX(STR({a}), '[ax]') || !({b} = 1)",
                f"{a}",
                f"!{a}",
                f"1 / ?n > {n}",
            )
        )

    def exists(self, depth: int) -> str:
        return f"{self.one(('EXISTS', 'NOT EXISTS'))} {{ {self.group(depth - 1) if depth > 0 else self.block()} }}"

    def constraint(self, depth: int) -> str:
        if self.chance(4):
            left = self.constraint(depth - 1) if depth > 0 else self.equality()
            return f"{left} {self.one(('&&', '&&', '||'))} {self.one((self.equality(), self.comparison()))}"
        return self.drawn(
            (
                (4, self.equality),
                (4, self.comparison),
                (4, lambda: self.exists(depth)),
                (1, lambda: f"!({self.equality()})"),
            )
        )

    def filter(self, depth: int) -> str:
        return f"FILTER({self.constraint(depth)})"

    def expression(self) -> str:
        a = self.variable()
        return self.one(
            (
                a,
                self.node(),
                f"{a} + 1",
                "?n * 2",
                "?n / 4",
                "?n -1",
                f"STR({a})",
                f"IRI(STR({a}))",
                f"IF(BOUND({a}), {a}, 1)",
                f"COALESCE({a}, {self.node()})",
                f"DATATYPE({a})",
                f"({a} = {self.node()})",
                f"CONCAT(STR({a}), 'x')",
                f"EXISTS {{ {self.block(blanks=False)} }}",
            )
        )

    # Aggregates

    def grouping(self, nested: bool) -> Grouping:
        keys = self.random.sample(VARIABLES, self.random.choice((0, 0, 1, 1, 1, 2)))
        selected, grouped = list(keys), list(keys)
        if not nested and self.chance(6):
            key, made = self.fresh("key"), self.expression()
            if self.chance(2):
                selected.append(key)
                grouped.append(f"({made} AS {key})")
                keys.append(f"({made} AS {key})")
        inputs = list(keys)
        loose = False
        aggregates = []
        for _ in range(self.random.randint(1, 3)):
            text, kind, argument = self.aggregate(keys, nested)
            name = self.fresh(kind)
            aggregates.append(f"({text} AS {name})")
            inputs.append(f"({argument} AS {name})")
            loose |= kind != "num"
        if not loose and self.chance(4):
            selected = self.random.sample(selected, self.random.randint(0, len(selected)))
        selected += aggregates
        if keys and keys[0] in VARIABLES and self.chance(8):
            selected.append(f"(CONCAT(STR({keys[0]}), '!') AS {self.fresh()})")
        tail = f"GROUP BY {' '.join(grouped)}" if grouped else ""
        if self.chance(3):
            tail += f" HAVING ({'COUNT(*) > 1' if loose and self.chance(2) else self.having()})"
            inputs += [name for name in ("?b", "?n") if name not in keys]
            loose &= "EXISTS" not in tail
        return Grouping(" ".join(selected), tail, " ".join(inputs) if loose and not nested else "")

    def having(self) -> str:
        return self.one(
            (
                "COUNT(*) > 1",
                "COUNT(*) = 2",
                "COUNT(DISTINCT ?b) = 1",
                "SUM(?n) > 2",
                "AVG(?n) < 2",
                "MAX(?n) > 1",
                "MIN(?n) = 1",
                "MIN(STR(?b)) > 'http'",
                "EXISTS { ?a ex:q ?z }",
                "?a != ex:a",
                "COUNT(?b) < 3 && COUNT(?n) > 0",
            )
        )

    def aggregate(self, keys: Sequence[str], nested: bool) -> tuple[str, str, str]:
        """Return an aggregate, the kind of its variable, and its inputs."""
        a = self.variable()
        distinct = "DISTINCT " if self.chance(4) else ""
        number = self.one(("?n", "?n", "?n", "?n + 1", "?n * ?n", f"IF(BOUND({a}), 1, 0)", "COALESCE(?n, 1)", a))
        kind = self.random.randrange(16)
        if kind <= 1:
            return "COUNT(*)", "num", "1"
        if kind <= 3:
            return f"COUNT({distinct}{a})", "num", a
        if kind == 4:
            counted = self.one((f"COUNT({distinct}STR({a}))", f"COUNT({distinct}{number})"))
            sums = ("COUNT(*) + SUM(?n)", "IF(COUNT(*) > 1, SUM(?n), 0)", "AVG(?n) * 2")
            return (
                (counted, "num", f"CONCAT(STR({a}), STR({number}))")
                if self.chance(3)
                else (self.one(sums), "num", "?n")
            )
        if kind <= 6:
            return f"SUM({distinct}{number})", "num", number
        if kind <= 8:
            return f"AVG({distinct}{number})", "num", number
        if kind <= 10:
            return f"{self.one(('MIN', 'MAX'))}({distinct}STR({a}))", "num", a
        if self.free and kind <= 12:
            if self.chance(4):
                return "MAX(?n) - MIN(?n)", "end", "?n"
            end = self.one(("?n", a, number))
            return f"{self.one(('MIN', 'MAX'))}({distinct}{end})", "end", end
        if self.free and kind <= 14:
            part = self.one((f"STR({a})", f"STR({a})", a))
            return f"GROUP_CONCAT({distinct}{part} ; SEPARATOR = '|')", "cat", part
        if self.free and not nested:
            one = self.one((a, number, "?n"))
            return f"SAMPLE({distinct}{one})", "any", one
        return (f"SAMPLE({keys[0]})", "num", "1") if keys and keys[0] in VARIABLES else ("COUNT(*)", "num", "1")

    # Groups

    def values(self) -> str:
        if self.chance(2):
            row = self.node()
            rows = [row, self.node(), self.one(("", "UNDEF", row))]
            self.random.shuffle(rows)
            return f"VALUES {self.one(VARIABLES)} {{ {' '.join(rows)} }}"
        a, b = self.random.sample((*VARIABLES, "?n"), 2)
        most = 14 if self.chance(3) else 3  # many rows use an index, few are compared one by one
        rows = [f"({self._cell()} {self._cell()})" for _ in range(self.random.randint(0, most))]
        if rows and self.chance(3):
            rows.append(rows[0])
        return f"VALUES ({a} {b}) {{ {' '.join(rows)} }}"

    def _cell(self) -> str:
        return "UNDEF" if self.chance(4) else self.node()

    def bind(self) -> str:
        return f"BIND({self.expression()} AS {'?d' if self.chance(2) else self.fresh()})"

    def bind_and_join(self) -> str:
        """Return a BIND and a triple pattern that needs its variable."""
        name = "?d" if self.chance(2) else self.fresh()
        triple = self.one(
            (f"{name} {self.one(PREDICATES)} {self.variable()}", f"{self.variable()} {self.one(PREDICATES)} {name}")
        )
        return f"BIND({self.expression()} AS {name}) {triple} ."

    def sub_query(self, depth: int) -> str:
        inner, distinct = self.group(depth - 1), "DISTINCT " if self.chance(2) else ""
        if self.chance(2):
            names = self.random.sample((*VARIABLES, "?n"), self.random.randint(1, 2))
            selected = "*" if self.chance(5) else " ".join(names)
            if self.chance(6):
                selected = f"{names[0]} ({self.expression()} AS {self.fresh()})"
            return f"{{ SELECT {distinct}{selected} WHERE {{ {inner} }} }}"
        grouping = self.grouping(nested=True)
        query = f"{{ SELECT {grouping.selected} WHERE {{ {inner} }} {grouping.tail} }}"
        used = [word.rstrip(")") for word in grouping.selected.split() if word.startswith("?num")]
        if used and self.chance(2):
            query += self.one((f" FILTER({used[0]} > 1)", f" {self.one(VARIABLES)} ex:n {used[0]} ."))
        return query

    def union(self, depth: int) -> str:
        branches = [self.group(depth - 1) for _ in range(self.random.choice((2, 2, 2, 3)))]
        if self.chance(6):
            branches[-1] = branches[0]
        return " UNION ".join(f"{{ {branch} }}" for branch in branches)

    def optional(self, depth: int) -> str:
        condition = self.filter(depth - 1) if self.chance(2) else ""
        return f"OPTIONAL {{ {self.group(depth - 1)} {condition} }}"

    def graph(self, depth: int) -> str:
        if self.chance(10):
            return self.one(("GRAPH ?g { }", "GRAPH ex:g1 { }"))
        name = self.one((self.one(GRAPHS), "?g", "?g", self.one(VARIABLES)))
        return f"GRAPH {name} {{ {self.group(depth - 1)} }}"

    def element(self, depth: int) -> str:
        simple = (
            (3, self.block),
            (2, self.path_triple),
            (2, self.values),
            (2, self.bind),
            (1, self.bind_and_join),
            (3, lambda: self.filter(depth)),
        )
        if depth <= 0:
            return self.drawn(simple)
        return self.drawn(
            (
                *simple,
                (8, lambda: self.optional(depth)),
                (6, lambda: f"MINUS {{ {self.group(depth - 1)} }}"),
                (6, lambda: self.union(depth)),
                (6, lambda: self.graph(depth)),
                (8, lambda: self.sub_query(depth)),
                (1, lambda: f"{{ {self.group(depth - 1)} }}"),
            )
        )

    def group(self, depth: int) -> str:
        parts = [] if self.chance(8) else [self.block(most=1 if depth else 2)]
        parts += [self.element(depth) for _ in range(self.random.choice((0, 1, 1, 2) if parts else (1, 2)))]
        if self.chance(5):
            parts.append(self.filter(depth - 1))
        return " ".join(parts)

    def any_group(self) -> str:
        return self.group(self.random.choice((0, 1, 1, 2, 2, 2, 3)))
