"""Functions that create or search texts. Their steps are taken before the call.

One call can create a text of any length from a stored one, and nothing can stop it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyoxigraph as ox

from edge.engine.operators.functions import Function, Operand, Result
from edge.engine.operators.text_search import Search
from edge.engine.operators.values import Value
from edge.engine.store.step_budget import StepBudget
from edge.engine.store.terms import size

_ASKED: Final = 8
"""Steps of a call that Oxigraph evaluates."""
_ESCAPED: Final = 3
"""Characters that represent a byte in an IRI."""


def length(value: Value) -> int:
    """Return the characters of a value; 0 if they are few."""
    if isinstance(value, str):
        return len(value)
    return size(value) if isinstance(value, ox.Literal | ox.NamedNode | ox.Triple) else 0


def affordable(name: str, native: Function | None, budget: StepBudget) -> Function | None:
    """Return Python's rule for a call, limited by the budget: None if the created text would be too long."""
    if native is None or name not in _NATIVE:
        return native

    def call(*values: Operand) -> Result:
        if budget.may_make(sum(map(length, values))):
            return native(*values)
        return None

    return call


def affordable_answer(name: str, answer: Function, budget: StepBudget) -> Function:
    """Return Oxigraph's rule for a call, limited in the same way."""
    result = _RESULTS.get(name, _no_longer)

    def call(*values: Value) -> Result:
        given = sum(map(length, values))
        searched = _searched(name, values)
        budget.spend(_ASKED)
        if (not given or budget.may_make(result(values, given))) and (not searched or budget.may_take(searched)):
            return answer(*values)
        return None

    return call


def _no_longer(values: tuple[Value, ...], given: int) -> int:
    return given


def _escaped(values: tuple[Value, ...], given: int) -> int:
    return _ESCAPED * sum(len(value.encode()) for value in values if isinstance(value, str))


def _replaced(values: tuple[Value, ...], given: int) -> int:
    """Return the longest result of REPLACE.

    The replacement can occur at each position, and each group in it can insert all characters of the text.
    """
    text, _, by = map(length, values[:3])
    groups = str(values[2]).count("$")
    return text + (text + 1) * by + text * groups


def _searched(name: str, values: tuple[Value, ...]) -> int:
    if name not in ("REGEX", "REPLACE") or not isinstance(values[1], str):
        return 0
    replaces = name == "REPLACE"
    flags = "".join(map(str, values[3 if replaces else 2 :]))
    return int(Search(values[1], flags, replaces).steps(length(values[0])))


_NATIVE: Final = frozenset({"CONCAT", "UCASE", "LCASE"})
"""Python's functions that create texts."""
_RESULTS: Final[dict[str, Callable[[tuple[Value, ...], int], int]]] = {"ENCODE_FOR_URI": _escaped, "REPLACE": _replaced}
"""Longest results of other functions."""
