"""Expressions compiled to closures over a frame (SPARQL 1.1 Query Language, section 17).

Inside an expression a value is a Python object (see `values`), or None for an error or unbound. Both propagate through
every operator except the few that catch them. Oxigraph evaluates the operators and functions for which Python has no
rule (see `oxigraph_functions`).

Where Oxigraph departs from the standard the engine does the same, because a query on the mirror and a delta of the same
query must agree: `<` has no rule for booleans, a language string or ill-typed literal has no effective boolean value,
`"300"^^xsd:byte` is numeric, NaN is equal to itself for `<=` and `>=` (not for `=`), zero divided by a fraction is an
error. In one case Oxigraph is inconsistent and the engine decides: a duration can be added to a dateTime, but a
dateTime cannot be added to a duration (17.3 has neither).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol
from uuid import uuid4

import pyoxigraph as ox

from edge.engine.operators.calls import Evaluate, Result, oxigraph, strict, with_constant
from edge.engine.operators.functions import FUNCTIONS, Function, truth
from edge.engine.operators.in_index import LONG, InIndex, member
from edge.engine.operators.layout import Frame
from edge.engine.operators.now import NOW_FUNCTION, Now, date_time
from edge.engine.operators.oxigraph_functions import UnsupportedConstruct, ask, question
from edge.engine.operators.text_functions import affordable, affordable_answer, length
from edge.engine.operators.values import DATE_TIME, Value, decode, encode, literal_value
from edge.engine.operators.volatility import uses_now, volatile
from edge.engine.store.step_budget import StepBudget
from edge.engine.store.terms import SHORT, Dictionary, canonical
from edge.protocol.results import Term
from edge.sparql.algebra import Call, Constant, Exists, Expression, Node, Parameter, Reference, Slot

__all__ = [
    "ExpressionScope",
    "Now",
    "UnsupportedConstruct",
    "compile_condition",
    "compile_expression",
    "uses_now",
    "volatile",
]


class ExpressionScope(Protocol):
    """The context of an expression during compilation."""

    @property
    def dictionary(self) -> Dictionary:
        """Dictionary with the terms of a frame's ids."""

    @property
    def base_iri(self) -> str:
        """Base IRI of `IRI()`."""

    @property
    def evaluation_time(self) -> Now:
        """Time of the request."""

    @property
    def budget(self) -> StepBudget:
        """Step budget of the evaluation."""

    def place(self, slot: Slot) -> int | None:
        """Return the place of a variable or constant in the frame. None: it is never bound here."""

    def exists(self, pattern: Node) -> Callable[[Frame], bool]:
        """Compile the test whether a pattern has a solution that agrees with the frame."""


def compile_condition(expression: Expression, scope: ExpressionScope) -> Callable[[Frame], bool]:
    """Compile the effective boolean value of an expression; an error counts as False. Raises `UnsupportedConstruct`."""
    return _counted(_Compiler(scope).truth(expression), expression, scope)


def compile_expression(expression: Expression, scope: ExpressionScope) -> Callable[[Frame], Term | None]:
    """Compile an expression to its term. None: an error or unbound. Raises `UnsupportedConstruct`."""
    if isinstance(expression, Reference):
        terms, long = scope.dictionary.terms, scope.dictionary.long
        budget = scope.budget
        place = scope.place(expression.variable)
        if place is None:
            return _nothing

        def term(frame: Frame) -> Term | None:
            term_id = frame[place]
            if term_id is None:
                return None
            if long and term_id in long:
                budget.read(long[term_id])
            return terms[term_id]

        return term
    evaluate = _counted(_Compiler(scope).value(expression), expression, scope)

    def result(frame: Frame) -> Term | None:
        value = evaluate(frame)
        return None if value is None else encode(value)

    return result


def _counted(evaluate: Evaluate, expression: Expression, scope: ExpressionScope) -> Evaluate:
    """Wrap an evaluation so that all its calls except one count as steps."""
    # The caller counts one step for the solution, which covers the first call.
    more = _calls(expression) - 1
    if more <= 0:
        return evaluate
    budget = scope.budget

    def counted(frame: Frame) -> Result:
        budget.left -= more
        if budget.left < 0:
            raise budget.spent()
        return evaluate(frame)

    return counted


def _calls(expression: Expression) -> int:
    """Return the number of calls in an expression, except those inside EXISTS."""
    calls = 0
    pending = [expression]
    while pending:
        each = pending.pop()
        if isinstance(each, Call):
            calls += 1
            pending += each.arguments
    return calls


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
"""Functions that return a different value each time."""


@dataclass(frozen=True, slots=True)
class _Compiler:
    scope: ExpressionScope

    def value(self, expression: Expression) -> Evaluate:
        """Compile the value of an expression."""
        if isinstance(expression, Reference):
            return self._slot(expression.variable)
        if isinstance(expression, Constant):
            if isinstance(expression.term, Parameter):
                return self._slot(expression.term)
            constant = _constant(expression)
            return self._long(constant) if length(constant) > SHORT else lambda frame: constant
        if isinstance(expression, Exists):
            exists = self.scope.exists(expression.pattern)
            return (lambda frame: not exists(frame)) if expression.negated else exists
        special = _SPECIAL.get(expression.name)
        return self._call(expression) if special is None else special(self, expression.arguments)

    def truth(self, expression: Expression) -> Evaluate:
        """Compile the effective boolean value of an expression: True, False or None."""
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
            # Oxigraph has no function for the effective boolean value. `!` has its opposite, or an error.
            opposite = ask(negated, (encode(value),))
            return None if opposite is None else not decode(opposite)

        return effective

    def _slot(self, slot: Slot) -> Evaluate:
        place = self.scope.place(slot)
        if place is None:
            return _nothing
        terms = self.scope.dictionary.terms
        long = self.scope.dictionary.long
        budget = self.scope.budget
        literal = ox.Literal

        def look(frame: Frame) -> Result:
            term_id = frame[place]
            if term_id is None:
                return None
            if long and term_id in long:
                budget.read(long[term_id])
            term = terms[term_id]
            return literal_value(term) if type(term) is literal else term

        return look

    def _long(self, constant: Value) -> Evaluate:
        characters = length(constant)
        budget = self.scope.budget

        def read(frame: Frame) -> Result:
            budget.read(characters)
            return constant

        return read

    # Calls whose arguments must all have values

    def _call(self, call: Call) -> Evaluate:
        if call.name == "NOW":
            return self._now()
        if call.function == NOW_FUNCTION and not call.arguments:
            evaluation_time = self.scope.evaluation_time
            return lambda frame: evaluation_time.now
        if call.name in _SOURCES:
            if call.arguments:
                raise UnsupportedConstruct("BNODE of a name")
            source = _SOURCES[call.name]
            return lambda frame: source()
        native, otherwise = self._rules(call)
        arguments = [self.value(argument) for argument in call.arguments]
        last = call.arguments[-1] if call.arguments else None
        if len(arguments) == 2 and isinstance(last, Constant) and not isinstance(last.term, Parameter):
            return with_constant(native, otherwise, arguments[0], _constant(last))
        return strict(native, otherwise, arguments)

    def _rules(self, call: Call) -> tuple[Function | None, Function]:
        """Return Python's rule for a call, if there is one, and Oxigraph's."""
        budget = self.scope.budget
        native = affordable(call.name, FUNCTIONS.get(call.name), budget)
        return native, affordable_answer(call.name, oxigraph(question(call, self.scope.base_iri)), budget)

    def _now(self) -> Evaluate:
        evaluation_time = self.scope.evaluation_time

        def now(frame: Frame) -> Result:
            return decode(canonical(ox.Literal(date_time(evaluation_time.now), datatype=DATE_TIME)))

        return now

    # Calls that catch errors, or evaluate only some arguments

    def either(self, arguments: tuple[Expression, ...]) -> Evaluate:
        """Compile `||`."""
        return self._logic(arguments, True)

    def both(self, arguments: tuple[Expression, ...]) -> Evaluate:
        """Compile `&&`."""
        return self._logic(arguments, False)

    def _logic(self, arguments: tuple[Expression, ...], decisive: bool) -> Evaluate:
        """Compile a disjunction or conjunction: one `decisive` argument decides, otherwise an error is an error."""
        return _decided([self.truth(argument) for argument in arguments], decisive)

    def negation(self, arguments: tuple[Expression, ...]) -> Evaluate:
        """Compile `!`."""
        evaluate = self.truth(arguments[0])

        def negate(frame: Frame) -> Result:
            value = evaluate(frame)
            return None if value is None else not value

        return negate

    def bound(self, arguments: tuple[Expression, ...]) -> Evaluate:
        """Compile BOUND."""
        (argument,) = arguments
        place = self.scope.place(argument.variable) if isinstance(argument, Reference) else None
        if place is None:
            return lambda frame: False
        return lambda frame: frame[place] is not None

    def choice(self, arguments: tuple[Expression, ...]) -> Evaluate:
        """Compile IF."""
        condition = self.truth(arguments[0])
        then, otherwise = self.value(arguments[1]), self.value(arguments[2])

        def choose(frame: Frame) -> Result:
            value = condition(frame)
            return None if value is None else then(frame) if value else otherwise(frame)

        return choose

    def first(self, arguments: tuple[Expression, ...]) -> Evaluate:
        """Compile COALESCE."""
        values = [self.value(argument) for argument in arguments]

        def coalesce(frame: Frame) -> Result:
            # Later arguments are not evaluated: their errors do not count (17.4.1.3).
            for evaluate in values:
                value = evaluate(frame)
                if value is not None:
                    return value
            return None

        return coalesce

    def member(self, arguments: tuple[Expression, ...]) -> Evaluate:
        """Compile `IN`: `=` to one of the other arguments."""
        one, *others = arguments
        if not others:
            evaluate = self.value(one)
            return lambda frame: None if evaluate(frame) is None else False
        if len(others) > LONG:
            constants = [other.term for other in others if isinstance(other, Constant)]
            rest = [other for other in others if not isinstance(other, Constant)]
            if len(constants) > LONG:
                among = self._among(one, constants)
                truths = [self.truth(Call("=", (one, other))) for other in rest]
                return _decided([among, *truths], True) if truths else among
        return self._logic(tuple(Call("=", (one, other)) for other in others), True)

    def _among(self, one: Expression, constants: Sequence[Slot]) -> Evaluate:
        """Compile `=` to one of many constants."""
        places = [self.scope.place(slot) for slot in constants if isinstance(slot, Parameter)]
        fixed = [decode(canonical(slot)) for slot in constants if not isinstance(slot, Parameter)]  # type: ignore[arg-type]
        terms = self.scope.dictionary.terms
        known: tuple[Frame | None, InIndex] = (None, InIndex(fixed))

        def items(frame: Frame) -> InIndex:
            nonlocal known
            if places and known[0] is not frame:  # the constants of a frame never change
                known = frame, InIndex([*fixed, *(decode(terms[frame[place]]) for place in places)])  # type: ignore[index]
            return known[1]

        _, otherwise = self._rules(Call("=", (one, one)))
        return member(self.value(one), items, otherwise, self.scope.budget)

    def not_member(self, arguments: tuple[Expression, ...]) -> Evaluate:
        """Compile `NOT IN`."""
        return self.negation((Call("IN", arguments),))


_SPECIAL: Final[dict[str, Callable[[_Compiler, tuple[Expression, ...]], Evaluate]]] = {
    "||": _Compiler.either,
    "&&": _Compiler.both,
    "!": _Compiler.negation,
    "IN": _Compiler.member,
    "NOT IN": _Compiler.not_member,
    "BOUND": _Compiler.bound,
    "IF": _Compiler.choice,
    "COALESCE": _Compiler.first,
}


def _decided(truths: Sequence[Evaluate], decisive: bool) -> Evaluate:
    def decide(frame: Frame) -> Result:
        # A decisive argument outweighs an error of another one (section 17.2, three-valued logic).
        result: bool | None = not decisive
        for evaluate in truths:
            value = evaluate(frame)
            if value is decisive:
                return decisive
            if value is None:
                result = None
        return result

    return decide


_BOOLEAN: Final = frozenset({"||", "&&", "!", "IN", "NOT IN", "BOUND", "=", "!=", "<", ">", "<=", ">=", "SAMETERM"})
"""Calls that return a boolean or an error."""


def _constant(expression: Constant) -> Value:
    return decode(canonical(expression.term))  # type: ignore[arg-type]
