"""Random queries of the supported SPARQL subset over the names of `history_data`, connected to keep oracles fast."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import NamedTuple

from history_data import EPOCH, EX, OTHER_EPOCH

PROLOGUE = f"""
PREFIX rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#>
PREFIX rdfs: <http://www.w3.org/2000/01/rdf-schema#>
PREFIX xsd: <http://www.w3.org/2001/XMLSchema#>
PREFIX sosa: <http://www.w3.org/ns/sosa/>
PREFIX qudt: <http://qudt.org/1.1/schema/qudt#>
PREFIX time: <http://www.w3.org/2006/time#>
PREFIX dct: <http://purl.org/dc/terms/>
PREFIX m: <http://mml.arces.unibo.it/monitor#>
PREFIX ex: <{EX}>
"""


class Query(NamedTuple):
    """A query, and the permitted differences between right answers."""

    text: str
    form: str = "SELECT"
    limit: int | None = None
    """The size of the answer if it may be any subset of the solutions without LIMIT."""
    order: str | None = None
    """The variable by whose number solutions are ordered."""
    computed: bool = False
    """Whether numbers are results of arithmetic: right to nine digits."""

    def __str__(self) -> str:
        return self.text + (f" LIMIT {self.limit}" if self.limit is not None else "")


_PLACES = [f"<{EX}place/{number}>" for number in range(2)]
_SENSORS = [f"<{EX}sensor/{number}>" for number in range(2)]
_PROPERTIES = [f"<{EX}property/{number}>" for number in range(2)]
_UNITS = [f"<{EX}unit/{number}>" for number in range(2)]
_SERIES = [f"<{EX}observation/{number}>" for number in range(3)]
_GRAPHS = [f"<{EX}graph/{number}>" for number in range(2)]
_NUMBERS = ["1", "20", "1.0", "21.5", "1e1", "-1", '"01"^^xsd:integer', '"1.50"^^xsd:decimal', "0"]
_TIMES = [
    *(f'"2026-01-0{day}T00:00:00Z"^^xsd:dateTime{stamp}' for day in (1, 2) for stamp in ("", "Stamp")),
    '"2026-01-01T01:00:00+01:00"^^xsd:dateTime',
    '"2025-12-31T23:59:59.999999Z"^^xsd:dateTimeStamp',
]
_TEXTS = ['"home/1"', '""', '"a\\"b"', '"é😀"', '"x"@en', '" "']
_LANGUAGES = ['""', '"en"']
_PIECES = ['"1"', '"a"', '"/"', '"é"', '"http"', '"home"', '""']
_EXPRESSIONS = ['"^h"', '"[0-9]$"', '"A.B"', '"A.B", "i"', '"."']
_OWN = [f"<{EX}own{kind}/{number}>" for kind in ("", "-result", "-instant") for number in range(2)]
_DERIVED = [
    f"<{EX}observation/{series}/{epoch}-{seq}{end}>"
    for series in range(2)
    for epoch in (EPOCH, OTHER_EPOCH)
    for seq in (1, 2, 3)
    for end in ("", "/result", "/instant")
]

# Subject, predicate, object of the shape, and the terms that can replace the object.
_SHAPE = (
    ("?o", "a", "sosa:Observation", []),
    ("?o", "sosa:hasFeatureOfInterest", "?f", _PLACES),
    ("?o", "sosa:observedProperty", "?p", _PROPERTIES),
    ("?o", "sosa:madeBySensor", "?s", _SENSORS),
    ("?o", "dct:isVersionOf", "?live", _SERIES),
    ("?o", "m:hasMqttTopic", "?topic", _TEXTS),
    ("?o", "sosa:hasResult", "?r", _OWN + _DERIVED),
    ("?r", "a", "qudt:QuantityValue", []),
    ("?r", "qudt:unit", "?u", _UNITS),
    ("?r", "qudt:numericValue", "?v", _NUMBERS + _TEXTS),
    ("?r", "time:hasTime", "?i", _OWN + _DERIVED),
    ("?i", "a", "time:Instant", []),
    ("?i", "time:inXSDDateTimeStamp", "?t", _TIMES),
)
_UNUSUAL = (
    ("?o", "?any", "?x"),
    ("?r", "?any", "?x"),
    ("?x", "?any", "?o"),
    ("?x", "?other", "?v"),
    ("?o", "ex:quality", "?x"),
    ("?r", "rdfs:comment", "?x"),
    ("?i", "a", "?x"),
    ("?o", "a", "?x"),
    ("?x", "a", "sosa:Observation"),
    ("?r", "qudt:numericValue", "?w"),
    ("?x", "sosa:hasResult", "?r"),
    ("?x", "qudt:numericValue", "?v"),
    ("?x", "sosa:madeBySensor", "?s"),
    ("?x", "dct:isVersionOf", "?live"),
    ("?o", "sosa:hasResult", "?o"),
    ("?o", "sosa:hasResult/qudt:numericValue", "?v"),
    ("?o", "sosa:hasResult/time:hasTime/time:inXSDDateTimeStamp", "?t"),
    ("?r", "^sosa:hasResult", "?o"),
    ("?v", "^qudt:numericValue/^sosa:hasResult/sosa:madeBySensor", "?s"),
    ("?o", "sosa:madeBySensor|sosa:observedProperty", "?s"),
    ("?o", "(sosa:hasResult|^sosa:hasResult)/qudt:unit", "?u"),
    ("?o", "sosa:hasResult", "[ qudt:numericValue ?v ]"),
)


class _Scope:
    """The generator's state: the query and the variables in scope."""

    def __init__(self, random: Random, variables: set[str] | None = None) -> None:
        self.random = random
        self.variables = variables if variables is not None else set()

    def chance(self, of: int) -> bool:
        return self.random.randrange(of) == 0

    def one(self, texts: Sequence[str]) -> str:
        return self.random.choice(texts)

    def some(self, texts: Iterable[str], most: int) -> list[str]:
        """Return at least one item, if there is one."""
        known = sorted(texts)
        return self.random.sample(known, self.random.randint(min(1, len(known)), min(most, len(known))))

    def variable(self) -> str:
        return self.one(sorted(self.variables) or ["?v"])

    def constant(self) -> str:
        return self.one(self.random.choice((_NUMBERS, _NUMBERS, _TEXTS, _TIMES, _PLACES, _SENSORS, _DERIVED, _OWN)))

    def triple(self) -> str:
        """Return a triple pattern that shares a variable with earlier ones."""
        known = self.variables

        def joined(one: tuple[str, ...]) -> bool:
            return not known or any(part in known or part.removeprefix("[ qudt:numericValue ") in known for part in one)

        shape = [one for one in _SHAPE if joined(one[:3])]
        if self.chance(4) or not shape:
            subject, predicate, object_ = self.random.choice([one for one in _UNUSUAL if joined(one)] or _UNUSUAL)
        else:
            subject, predicate, object_, constants = self.random.choice(shape)
            if constants and self.chance(4):
                object_ = self.one(constants)
            elif self.chance(12):
                subject = self.one(_DERIVED + _OWN)
        self.variables |= {part for part in f"{subject} {predicate} {object_}".split() if part.startswith("?")}
        return f"{subject} {predicate} {object_} ."

    def basic(self, most: int = 4) -> str:
        return " ".join(self.triple() for _ in range(self.random.randint(1, most)))

    def star(self) -> str:
        """Return a typical star: an observation with some of its properties."""
        parts = [one[:3] for one in _SHAPE if one[1] in {"sosa:hasResult", "time:hasTime"} or self.chance(2)]
        self.variables |= {part for one in parts for part in one if part.startswith("?")}
        return " ".join(f"{' '.join(one)} ." for one in parts)

    def group(self, depth: int = 0) -> str:
        text = self.star() if not self.variables and self.chance(2) else self.basic(4 if depth == 0 else 2)
        for _ in range(self.random.randint(0, 2 if depth else 3)):
            text += " " + self.part(depth)
        return text

    def inner(self, depth: int) -> str:
        """Return a group of its own that joins: its variables are visible outside."""
        scope = _Scope(self.random, set(self.some(self.variables, 9)))
        text = scope.group(depth + 1)
        self.seen = scope.variables
        return text

    def part(self, depth: int) -> str:
        kinds = ["filter", "filter", "bind", "values", "triple"]
        if depth < 2:
            kinds += ["optional", "optional", "union", "minus", "exists", "graph", "subselect"]
        kind = self.one(kinds)
        if kind == "triple":
            return self.triple()
        if kind == "filter":
            return f"FILTER({self.condition()})"
        if kind == "bind":
            name = f"?b{self.random.randint(0, 99)}"
            if name in self.variables:
                return ""
            text = f"BIND({self.expression()} AS {name})"
            self.variables.add(name)
            return text
        if kind == "values":
            names = self.some(self.variables, 2)
            rows = [
                " ".join("UNDEF" if self.chance(4) else self.fitting(name) for name in names)
                for _ in range(self.random.randint(1, 3))
            ]
            return f"VALUES ({' '.join(names)}) {{ {' '.join(f'({row})' for row in rows)} }}"
        inner = self.inner(depth)
        seen = self.seen
        if kind == "optional":
            if self.chance(3):
                scope = _Scope(self.random, self.variables | seen)
                inner += f" FILTER({scope.condition()})"
            self.variables |= seen
            return f"OPTIONAL {{ {inner} }}"
        if kind == "minus":
            return f"MINUS {{ {inner} }}"
        if kind == "exists":
            return f"FILTER {self.one(['EXISTS', 'NOT EXISTS'])} {{ {inner} }}"
        if kind == "graph":
            name = self.one(["?g", *_GRAPHS])
            self.variables |= seen | ({name} if name == "?g" else set())
            return f"GRAPH {name} {{ {inner} }}"
        if kind == "subselect":
            names = sorted(seen)
            self.variables |= seen
            return f"{{ SELECT {self.one(['', 'DISTINCT '])}{' '.join(names)} WHERE {{ {inner} }} }}"
        other = self.inner(depth)
        self.variables |= seen | self.seen
        return f"{{ {inner} }} UNION {{ {other} }}"

    def fitting(self, name: str) -> str:
        """Return a constant that such a variable may well have."""
        for _, _, object_, constants in _SHAPE:
            if object_ == name and constants:
                return self.one(constants)
        return self.one(_DERIVED + _OWN if name in {"?o", "?r", "?i", "?x"} else _NUMBERS)

    def condition(self, depth: int = 0) -> str:
        if depth < 2 and self.chance(3):
            connective = self.one(["&&", "||"])
            return f"({self.condition(depth + 1)} {connective} {self.condition(depth + 1)})"
        if depth < 2 and self.chance(8):
            return f"!({self.condition(depth + 1)})"
        name = self.variable()
        value = self.fitting(name)
        comparison = self.one(["=", "!=", "<", ">", "<=", ">="])
        return self.one(
            [
                f"{name} {comparison} {value}",
                f"{name} {comparison} {value}",
                f"{value} {comparison} {name}",
                f"?v {comparison} {self.one(_NUMBERS)}",
                f"?t {comparison} {self.one(_TIMES)}",
                f"{name} {self.one(['=', '!='])} {self.variable()}",
                f"{name} {self.one(['IN', 'NOT IN'])} ({value}, {self.constant()})",
                f"BOUND({name})",
                f"sameTerm({name}, {value})",
                f"{self.one(['isIRI', 'isLiteral', 'isNumeric', 'isBlank'])}({name})",
                f"DATATYPE({name}) = {self.one(['xsd:decimal', 'xsd:string', 'xsd:integer', 'rdf:langString'])}",
                f"LANG({name}) = {self.one(_LANGUAGES)}",
                f'LANGMATCHES(LANG({name}), "*")',
                f"CONTAINS(STR({name}), {self.one(_PIECES)})",
                f"{self.one(['STRSTARTS', 'STRENDS'])}(STR({name}), {self.one(_PIECES)})",
                f"REGEX(STR({name}), {self.one(_EXPRESSIONS)})",
                f"STRLEN(STR({name})) > {self.one(['0', '3', '30'])}",
                f"{self.arithmetic()} {comparison} {self.one(_NUMBERS)}",
                f"COALESCE({name} > 1, {self.one(['true', 'false'])})",
                f"IF({name} {comparison} {value}, true, false)",
                f"YEAR({name}) = 2026",
                name,
            ]
        )

    def arithmetic(self) -> str:
        return f"({self.variable()} {self.one(['+', '-', '*', '/'])} {self.one(['1', '2.0', '10', '0', '?v'])})"

    def expression(self) -> str:
        name = self.variable()
        return self.one(
            [
                name,
                self.constant(),
                f"STR({name})",
                f"DATATYPE({name})",
                f"LANG({name})",
                f"UCASE(STR({name}))",
                f'CONCAT(STR({name}), "-")',
                f"SUBSTR(STR({name}), 2, 3)",
                f'STRBEFORE(STR({name}), "/")',
                f'STRAFTER(STR({name}), "/")',
                f"STRLEN(STR({name}))",
                f"({self.condition(2)})",
                f"COALESCE({name}, {self.constant()})",
                f"IF({self.condition(2)}, {name}, {self.constant()})",
                f"STRDT(STR({name}), xsd:string)",
                f"HOURS({name})",
                f"xsd:integer({name})",
                f"xsd:string({name})",
            ]
        )


def query(number: int) -> Query:
    """Return a query, a different one for each number."""
    random = Random(number)
    scope = _Scope(random)
    form = scope.one(("plain", "plain", "plain", "aggregate", "aggregate", "ordered", "ask", "construct"))
    where = scope.group()
    chosen = scope.some(scope.variables, 4)
    if form == "ask":
        return Query(f"{PROLOGUE}ASK {{ {where} }}", "ASK")
    if form == "construct":
        subject = next((name for name in ("?o", "?r", "?i") if name in scope.variables), f"<{EX}all>")
        made = " . ".join(f"{subject} ex:made {name}" for name in chosen)
        return Query(f"{PROLOGUE}CONSTRUCT {{ {made} }} WHERE {{ {where} }}", "CONSTRUCT")
    if form == "aggregate":
        return _aggregate(scope, where)
    if form == "ordered":
        key = "?v" if "?v" in scope.variables else scope.variable()
        text = f"{PROLOGUE}SELECT (xsd:double({key}) AS ?key) WHERE {{ {where} FILTER(xsd:double({key}) < 1e9) }}"
        limit = random.choice((None, random.randint(1, 5)))
        return Query(f"{text} ORDER BY {scope.one(('', 'DESC'))}(?key)", limit=limit, order="key")
    what = "*" if scope.chance(4) else " ".join(chosen)
    text = f"{PROLOGUE}SELECT {scope.one(('', '', 'DISTINCT '))}{what} WHERE {{ {where} }}"
    return Query(text, limit=random.choice((None, None, random.randint(0, 5))))


def _aggregate(scope: _Scope, where: str) -> Query:
    keys = scope.some(scope.variables, 2) if not scope.chance(3) else []
    made = []
    for place in range(scope.random.randint(1, 3)):
        function = scope.one(("COUNT", "COUNT", "SUM", "AVG", "MIN", "MAX"))
        inside = "?v" if "?v" in scope.variables and not scope.chance(4) else scope.variable()
        if function == "COUNT" and scope.chance(3):
            inside = "*"
        elif function in {"MIN", "MAX"}:
            inside = f"COALESCE(xsd:double({inside}), 0e0)"
        elif function != "COUNT":  # rdflib ignores non-numbers, which should be an error
            inside = f"COALESCE({inside} + {scope.one(('0', '1.5', '0e0'))}, 0)"
        made.append(f"({function}({scope.one(('', '', 'DISTINCT '))}{inside}) AS ?a{place})")
    having = f" HAVING (COUNT(*) {scope.one(('>', '='))} 1)" if scope.chance(4) else ""
    group = f" GROUP BY {' '.join(keys)}" if keys else ""
    return Query(f"{PROLOGUE}SELECT {' '.join([*keys, *made])} WHERE {{ {where} }}{group}{having}", computed=True)
