"""Expressions compiled to closures over a frame (SPARQL 1.1 Query Language, section 17).

Inside an expression a value is a Python object (see `values`), or None: an error, or unbound. Both propagate alike
through every operator but the few that are made to catch them. Operators and functions that Python has no rule for
are asked of Oxigraph (see `library`).

Where Oxigraph departs from the standard the engine does so too, since a query on the mirror and a delta of the same
query must agree: `<` has no rule for booleans, a language string or ill-typed literal has no effective boolean value,
`"300"^^xsd:byte` is numeric, NaN is equal to itself for `<=` and `>=` (not for `=`), zero divided by a fraction is an
error. One thing the engine decides, because Oxigraph gives now this, now that: a duration and a moment can be added in
either order.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol
from uuid import uuid4

import pyoxigraph as ox

from edge.engine.operators.calls import Evaluate, Result, strict, with_constant
from edge.engine.operators.functions import FUNCTIONS, truth
from edge.engine.operators.layout import Frame
from edge.engine.operators.library import Unsupported, ask, question
from edge.engine.operators.moment import NOW_FUNCTION, Moment, date_time
from edge.engine.operators.values import DATE_TIME, Value, decode, encode, literal_value
from edge.engine.operators.volatility import uses_now, volatile
from edge.engine.sparql.algebra import (
    Call,
    Constant,
    Exists,
    Expression,
    Node,
    Parameter,
    Reference,
    Slot,
)
from edge.engine.terms import Dictionary, canonical
from edge.protocol.results import Term

__all__ = ["Moment", "Scope", "Unsupported", "compile_condition", "compile_expression", "uses_now", "volatile"]


class Scope(Protocol):
    """What an expression sees while it is compiled."""

    @property
    def dictionary(self) -> Dictionary:
        """Where the ids of a frame have their terms."""

    @property
    def base_iri(self) -> str:
        """Against what `IRI()` resolves."""

    @property
    def moment(self) -> Moment:
        """When it is."""

    def place(self, slot: Slot) -> int | None:
        """Where in the frame a variable or constant stands. None: it is never bound here."""

    def exists(self, pattern: Node) -> Callable[[Frame], bool]:
        """Whether a pattern has a solution that agrees with the frame."""


def compile_condition(expression: Expression, scope: Scope) -> Callable[[Frame], bool]:
    """The effective boolean value of an expression; an error is as false as False. Raises `Unsupported`."""
    return _Compiler(scope).truth(expression)


def compile_expression(expression: Expression, scope: Scope) -> Callable[[Frame], Term | None]:
    """The term that an expression gives. None: an error, or unbound. Raises `Unsupported`."""
    if isinstance(expression, Reference):
        terms = scope.dictionary.terms
        place = scope.place(expression.variable)
        if place is None:
            return _nothing

        def term(frame: Frame) -> Term | None:
            term_id = frame[place]
            return None if term_id is None else terms[term_id]

        return term
    evaluate = _Compiler(scope).value(expression)

    def result(frame: Frame) -> Term | None:
        value = evaluate(frame)
        return None if value is None else encode(value)

    return result


def _nothing(frame: Frame) -> None:
    return None


def _uuid() -> str:
    return str(uuid4())


_SOURCES: Final[dict[str, Callable[[], Value]]] = {
    "RAND": random.random,
    "UUID": lambda: ox.NamedNode(f"urn:uuid:{_uuid()}"),
    "STRUUID": _uuid,
    "BNODE": ox.BlankNode,
}
"""Functions that give another value each time."""


@dataclass(frozen=True, slots=True)
class _Compiler:
    scope: Scope

    def value(self, expression: Expression) -> Evaluate:
        """The value of an expression."""
        if isinstance(expression, Reference):
            return self._slot(expression.variable)
        if isinstance(expression, Constant):
            if isinstance(expression.term, Parameter):
                return self._slot(expression.term)
            constant = _constant(expression)
            return lambda frame: constant
        if isinstance(expression, Exists):
            exists = self.scope.exists(expression.pattern)
            return (lambda frame: not exists(frame)) if expression.negated else exists
        special = _SPECIAL.get(expression.name)
        return self._call(expression) if special is None else special(self, expression.arguments)

    def truth(self, expression: Expression) -> Evaluate:
        """The effective boolean value of an expression: True, False or None."""
        evaluate = self.value(expression)
        if isinstance(expression, Exists) or (isinstance(expression, Call) and expression.name in _BOOLEAN):
            return evaluate
        negated = question(Call("!", (expression,)), self.scope.base_iri)

        def effective(frame: Frame) -> Result:
            value = evaluate(frame)
            if value is True or value is False or value is None:
                return value
            answer = truth(value)
            if answer is not NotImplemented:
                return answer
            opposite = ask(negated, (encode(value),))
            return None if opposite is None else not decode(opposite)

        return effective

    def _slot(self, slot: Slot) -> Evaluate:
        place = self.scope.place(slot)
        if place is None:
            return _nothing
        terms = self.scope.dictionary.terms
        literal = ox.Literal

        def look(frame: Frame) -> Result:
            term_id = frame[place]
            if term_id is None:
                return None
            term = terms[term_id]
            return literal_value(term) if type(term) is literal else term

        return look

    # Calls whose arguments must all have values

    def _call(self, call: Call) -> Evaluate:
        if call.name == "NOW":
            return self._now()
        if call.function == NOW_FUNCTION and not call.arguments:
            moment = self.scope.moment
            return lambda frame: moment.now
        if call.name in _SOURCES:
            if call.arguments:
                raise Unsupported("BNODE of a name")
            source = _SOURCES[call.name]
            return lambda frame: source()
        asked = question(call, self.scope.base_iri)
        native = FUNCTIONS.get(call.name)
        arguments = [self.value(argument) for argument in call.arguments]
        last = call.arguments[-1] if call.arguments else None
        if len(arguments) == 2 and isinstance(last, Constant) and not isinstance(last.term, Parameter):
            return with_constant(native, asked, arguments[0], _constant(last))
        return strict(native, asked, arguments)

    def _now(self) -> Evaluate:
        moment = self.scope.moment

        def now(frame: Frame) -> Result:
            return decode(canonical(ox.Literal(date_time(moment.now), datatype=DATE_TIME)))

        return now

    # Calls that catch errors, or look at some arguments only

    def either(self, arguments: tuple[Expression, ...]) -> Evaluate:
        """`||`"""
        return self._logic(arguments, True)

    def both(self, arguments: tuple[Expression, ...]) -> Evaluate:
        """`&&`"""
        return self._logic(arguments, False)

    def _logic(self, arguments: tuple[Expression, ...], decisive: bool) -> Evaluate:
        """One argument that is `decisive` decides; else an error is an error."""
        truths = [self.truth(argument) for argument in arguments]

        def decide(frame: Frame) -> Result:
            result: bool | None = not decisive
            for evaluate in truths:
                value = evaluate(frame)
                if value is decisive:
                    return decisive
                if value is None:
                    result = None
            return result

        return decide

    def negation(self, arguments: tuple[Expression, ...]) -> Evaluate:
        """`!`"""
        evaluate = self.truth(arguments[0])

        def negate(frame: Frame) -> Result:
            value = evaluate(frame)
            return None if value is None else not value

        return negate

    def bound(self, arguments: tuple[Expression, ...]) -> Evaluate:
        """BOUND"""
        (argument,) = arguments
        place = self.scope.place(argument.variable) if isinstance(argument, Reference) else None
        if place is None:
            return lambda frame: False
        return lambda frame: frame[place] is not None

    def choice(self, arguments: tuple[Expression, ...]) -> Evaluate:
        """IF"""
        condition = self.truth(arguments[0])
        then, otherwise = self.value(arguments[1]), self.value(arguments[2])

        def choose(frame: Frame) -> Result:
            value = condition(frame)
            return None if value is None else then(frame) if value else otherwise(frame)

        return choose

    def first(self, arguments: tuple[Expression, ...]) -> Evaluate:
        """COALESCE"""
        values = [self.value(argument) for argument in arguments]

        def coalesce(frame: Frame) -> Result:
            for evaluate in values:
                value = evaluate(frame)
                if value is not None:
                    return value
            return None

        return coalesce

    def member(self, arguments: tuple[Expression, ...]) -> Evaluate:
        """`IN`: `=` to one of the others."""
        one, *others = arguments
        if not others:
            evaluate = self.value(one)
            return lambda frame: None if evaluate(frame) is None else False
        return self._logic(tuple(Call("=", (one, other)) for other in others), True)

    def stranger(self, arguments: tuple[Expression, ...]) -> Evaluate:
        """`NOT IN`"""
        return self.negation((Call("IN", arguments),))


_SPECIAL: Final[dict[str, Callable[[_Compiler, tuple[Expression, ...]], Evaluate]]] = {
    "||": _Compiler.either,
    "&&": _Compiler.both,
    "!": _Compiler.negation,
    "IN": _Compiler.member,
    "NOT IN": _Compiler.stranger,
    "BOUND": _Compiler.bound,
    "IF": _Compiler.choice,
    "COALESCE": _Compiler.first,
}

_BOOLEAN: Final = frozenset({"||", "&&", "!", "IN", "NOT IN", "BOUND", "=", "!=", "<", ">", "<=", ">=", "SAMETERM"})
"""Calls whose value, if there is one, is a boolean."""


def _constant(expression: Constant) -> Value:
    return decode(canonical(expression.term))  # type: ignore[arg-type]
