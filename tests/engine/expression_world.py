"""Expressions in isolation: the engine and Oxigraph evaluate them with the same values of a few variables."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pyoxigraph as ox

from edge.engine.operators.expression import Now, compile_condition, compile_expression
from edge.engine.operators.layout import Frame
from edge.engine.sparql.oxigraph_text import corrections, edited
from edge.engine.store.step_budget import StepBudget
from edge.engine.store.terms import XSD, Dictionary
from edge.protocol.results import Term
from edge.protocol.syntax import tokenize
from edge.sparql.algebra import Call, Constant, Expression, Node, Parameter, Reference, Slot, Variable

BASE_IRI = "http://example.org/base/"
VARIABLES = tuple(Variable(name) for name in "abcd")
SUBJECT = ox.NamedNode("urn:s")


def typed(text: str, datatype: str) -> ox.Literal:
    return ox.Literal(text, datatype=ox.NamedNode(XSD + datatype if ":" not in datatype else datatype))


def iri(text: str) -> ox.NamedNode:
    return ox.NamedNode(text)


@dataclass
class World:
    """The values of variables, as scope and frame of the engine and as a store of Oxigraph."""

    values: Mapping[Variable, Term]
    base_iri: str = BASE_IRI
    evaluation_time: Now = field(default_factory=Now)
    dictionary: Dictionary = field(default_factory=Dictionary)
    budget: StepBudget = field(default_factory=StepBudget)

    def __post_init__(self) -> None:
        self._places = {variable: place for place, variable in enumerate(VARIABLES)}
        self.frame: Frame = [None] * len(VARIABLES)
        for variable, term in self.values.items():
            self.frame[self._places[variable]] = self.dictionary.intern(term)
        self.exists_answer = False

    def place(self, slot: Slot) -> int | None:
        if isinstance(slot, Parameter):
            self.frame.append(self.dictionary.intern(slot.term))
            return len(self.frame) - 1
        return self._places.get(slot)

    def exists(self, pattern: Node) -> Callable[[Frame], bool]:
        return lambda frame: self.exists_answer

    def evaluate(self, expression: Expression) -> Term | None:
        return compile_expression(expression, self)(self.frame)

    def holds(self, expression: Expression) -> bool:
        return bool(compile_condition(expression, self)(self.frame))

    def oxigraph_value(self, expression: Expression) -> Term | None:
        """Return Oxigraph's result."""
        store = ox.Store()
        patterns = []
        for variable in VARIABLES:
            predicate = iri(f"urn:{variable.name}")
            patterns.append(f"OPTIONAL {{ <urn:s> {predicate} ?{variable.name} }}")
            if variable in self.values:
                store.add(ox.Quad(SUBJECT, predicate, self.values[variable]))
        query = f"SELECT ({written(expression)} AS ?r) {{ {' '.join(patterns)} }}"
        if "uration>" in query or any("uration>" in str(term) for term in self.values.values()):
            query = edited(query, corrections(query, tokenize(query)))
        (solution,) = store.query(query, base_iri=self.base_iri)
        return solution["r"]


_INFIX = {"||", "&&", "=", "!=", "<", ">", "<=", ">=", "+", "-", "*", "/"}
_PREFIX = {"!": "! ", "unary-": "- ", "unary+": "+ "}


def written(expression: Expression) -> str:
    """Return an expression as text."""
    if isinstance(expression, Reference):
        return f"?{expression.variable.name}"
    if isinstance(expression, Constant):
        term = expression.term.term if isinstance(expression.term, Parameter) else expression.term
        return str(term)
    assert isinstance(expression, Call)
    arguments = [written(argument) for argument in expression.arguments]
    if expression.name in _INFIX:
        return "(" + f" {expression.name} ".join(arguments) + ")"
    if expression.name in _PREFIX:
        return f"({_PREFIX[expression.name]}{arguments[0]})"
    if expression.name in ("IN", "NOT IN"):
        return f"({arguments[0]} {expression.name} ({', '.join(arguments[1:])}))"
    return f"{expression.name or expression.function}({', '.join(arguments)})"


NUMBERS = (
    *(typed(text, "integer") for text in ("0", "1", "-1", "30", "9007199254740993", "9223372036854775807")),
    *(typed(text, "integer") for text in ("-9223372036854775808", "9223372036854775808", "16777217", "1000000000")),
    *(typed(text, "decimal") for text in ("0", "1.0", "1.5", "-0.1", "0.000000000000000001", "999999999.999999999")),
    *(typed(text, "decimal") for text in ("170141183460469231731.687303715884105727", "0.3", "123456789012345678")),
    *(
        typed(text, "double")
        for text in ("0", "-0", "1", "1.5", "0.1", "NaN", "INF", "-INF", "1e300", "1e-300", "1e21")
    ),
    *(typed(text, "double") for text in ("9007199254740992", "5e-324", "0.30000000000000004", "30", "123456.789")),
    *(typed(text, "float") for text in ("0", "-0", "1", "0.1", "1.5", "NaN", "INF", "16777216", "1e30")),
    *(typed(sign + "9" * digits, "integer") for sign in ("", "-") for digits in (18, 19, 39, 4301)),
    *(typed(text, "decimal") for text in ("-170141183460469231731.687303715884105728", "9" * 400, f"0.{'0' * 400}1")),
    *(typed(text, "double") for text in ("1.7976931348623157e308", "-1e309", "1e99999999", "4.9e-324", "1e-99999")),
    *(typed(text, "float") for text in ("3.4028235e38", "-3.5e38", "1e-45", "1e-46", "1e308", "16777217")),
    typed("1", "int"),
    typed("2", "unsignedByte"),
    typed("30", "positiveInteger"),
)
STRINGS = tuple(
    map(ox.Literal, ("", "a", "b", "abc", "Abc", "äö", "1", "true", "x y", "ß", "𝄞", "z", "en", "en-GB", "*"))
)
OTHERS = (
    ox.Literal("a", language="en"),
    ox.Literal("a", language="EN"),
    ox.Literal("abc", language="en-gb"),
    ox.Literal("b", language="fr"),
    ox.Literal("", language="en"),
    typed("true", "boolean"),
    typed("false", "boolean"),
    typed("1", "boolean"),
    typed("maybe", "boolean"),
    typed("one", "integer"),
    typed(" 1 ", "integer"),
    typed("300", "byte"),
    typed("x", "urn:d"),
    typed("y", "urn:d"),
    typed("x", "anyURI"),
    typed("2024-02-29T12:00:00Z", "dateTime"),
    typed("2024-02-29T12:00:00.5Z", "dateTime"),
    typed("2024-02-29T12:00:00", "dateTime"),
    typed("2024-02-29T15:00:00+02:00", "dateTime"),  # equal to none: see the test of sameness by terms
    typed("2024-03-01T10:00:00", "dateTime"),
    typed("2024-02-29T24:00:00Z", "dateTime"),
    typed("-0044-03-15T00:00:00Z", "dateTime"),
    typed("12024-01-01T00:00:00Z", "dateTime"),
    typed("2024-02-30T00:00:00Z", "dateTime"),
    typed("9999-12-31T23:59:59.999999999999999999Z", "dateTime"),
    typed("0000-01-01T00:00:00Z", "dateTime"),
    typed("9" * 30 + "-01-01T00:00:00Z", "dateTime"),
    typed("2024-02-29", "date"),
    typed("2024-02-29Z", "date"),
    typed("12:00:00", "time"),
    typed("12:00:00Z", "time"),
    typed("2024", "gYear"),
    iri("http://example.org/a"),
    iri("http://example.org/b"),
    iri("urn:x"),
)
DURATIONS = (
    typed("P1D", "dayTimeDuration"),
    typed("PT24H", "duration"),
    typed("P1Y", "yearMonthDuration"),
    typed("P1Y1D", "duration"),
    typed("-P1D", "dayTimeDuration"),
    typed("PT9223372036854775807S", "dayTimeDuration"),
    typed("P9223372036854775807M", "yearMonthDuration"),
    typed("P" + "9" * 400 + "Y", "duration"),
)
CONSTANTS = (*NUMBERS, *STRINGS, *OTHERS)
TERMS = (*CONSTANTS, ox.BlankNode("x"), ox.BlankNode("y"))
CASTS = ("integer", "decimal", "double", "float", "string", "boolean", "dateTime", "date", "duration")

_UNARY = (
    *("!", "unary-", "unary+", "STR", "LANG", "DATATYPE", "ISIRI", "ISURI", "ISBLANK", "ISLITERAL", "ISNUMERIC", "ABS"),
    *(
        "STRLEN",
        "UCASE",
        "LCASE",
        "ENCODE_FOR_URI",
        "CEIL",
        "FLOOR",
        "ROUND",
        "YEAR",
        "MONTH",
        "DAY",
        "HOURS",
        "MINUTES",
    ),
    *("SECONDS", "TIMEZONE", "TZ", "MD5", "SHA256", "IRI"),
)
_BINARY = (
    *("||", "&&", "=", "!=", "<", ">", "<=", ">=", "+", "-", "*", "/", "SAMETERM", "STRSTARTS", "STRENDS", "CONTAINS"),
    *(
        "STRBEFORE",
        "STRAFTER",
        "LANGMATCHES",
        "STRLANG",
        "STRDT",
        "SUBSTR",
        "REGEX",
        "CONCAT",
        "COALESCE",
        "IN",
        "NOT IN",
    ),
)
_TERNARY = ("IF", "SUBSTR", "REPLACE", "REGEX", "COALESCE", "CONCAT", "IN", "NOT IN")


class Expressions:
    """Generator of random expressions."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.durations = self.random.random() < 0.2

    def values(self) -> dict[Variable, Term]:
        """Return values for most variables, often related ones."""
        pool = (*DURATIONS, *OTHERS) if self.durations else self.random.choice((NUMBERS, STRINGS, TERMS, TERMS))
        return {variable: self.random.choice(pool) for variable in VARIABLES if self.random.random() < 0.9}

    def expression(self, depth: int = 3) -> Expression:
        choice = self.random.random()
        if depth == 0 or choice < 0.2:
            return self._leaf()
        if choice < 0.4:
            if self.random.random() < 0.15:
                return Call("BOUND", (Reference(self.random.choice(VARIABLES)),))
            if self.random.random() < 0.3:
                return Call("", (self.expression(depth - 1),), iri(XSD + self.random.choice(CASTS)))
            return Call(self.random.choice(_UNARY), (self.expression(depth - 1),))
        if choice < 0.9:
            name = self.random.choice(_BINARY[:12] if self.random.random() < 0.7 else _BINARY)
            return Call(name, (self.expression(depth - 1), self.expression(depth - 1)))
        return Call(self.random.choice(_TERNARY), tuple(self.expression(depth - 1) for _ in range(3)))

    def _leaf(self) -> Expression:
        if self.random.random() < 0.7:
            return Reference(self.random.choice(VARIABLES))
        constant = self.random.choice(CONSTANTS)
        if constant.value in ("NaN", "maybe"):  # Oxigraph's constant folding simplifies these without an evaluation
            constant = CONSTANTS[0]
        return Constant(Parameter(0, False, constant) if self.random.random() < 0.3 else constant)
