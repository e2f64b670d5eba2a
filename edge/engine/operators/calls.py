"""Calls whose arguments must all have values: an error or unbound argument makes the call an error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from edge.engine.operators.functions import Function
from edge.engine.operators.layout import Frame
from edge.engine.operators.oxigraph_functions import Question, ask
from edge.engine.operators.values import Value, decode, encode

Result = Any
"""A Value, or None."""
Evaluate = Callable[[Frame], Result]


def _no_rule(*values: Value) -> Result:
    return NotImplemented


def oxigraph(asked: Question) -> Function:
    """Return a function that lets Oxigraph evaluate a call."""

    def answer(*values: Value) -> Result:
        term = ask(asked, tuple(map(encode, values)))
        return None if term is None else decode(term)

    return answer


def strict(native: Function | None, otherwise: Function, arguments: Sequence[Evaluate]) -> Evaluate:
    """Return a call that uses Python's rule, if there is one, and `otherwise` if the rule does not apply."""
    native = native or _no_rule
    # A closure for each of the usual numbers of arguments spares a list for each call.
    if len(arguments) == 1:
        return _unary(native, otherwise, arguments[0])
    if len(arguments) == 2:
        return _binary(native, otherwise, *arguments)
    return _any_arity(native, otherwise, arguments)


def with_constant(native: Function | None, otherwise: Function, left: Evaluate, constant: Value) -> Evaluate:
    """Return a call of two arguments, the second of which is constant."""
    rule = native or _no_rule

    def call(frame: Frame) -> Result:
        a = left(frame)
        if a is None:
            return None
        result = rule(a, constant)
        return result if result is not NotImplemented else otherwise(a, constant)

    return call


def _unary(native: Function, otherwise: Function, argument: Evaluate) -> Evaluate:
    def call(frame: Frame) -> Result:
        value = argument(frame)
        if value is None:
            return None
        result = native(value)
        return result if result is not NotImplemented else otherwise(value)

    return call


def _binary(native: Function, otherwise: Function, left: Evaluate, right: Evaluate) -> Evaluate:
    def call(frame: Frame) -> Result:
        a = left(frame)
        if a is None:
            return None
        b = right(frame)
        if b is None:
            return None
        result = native(a, b)
        return result if result is not NotImplemented else otherwise(a, b)

    return call


def _any_arity(native: Function, otherwise: Function, arguments: Sequence[Evaluate]) -> Evaluate:
    def call(frame: Frame) -> Result:
        values = []
        for argument in arguments:
            value = argument(frame)
            if value is None:
                return None
            values.append(value)
        result = native(*values)
        return result if result is not NotImplemented else otherwise(*values)

    return call
