"""`IN` over a long list (SPARQL 1.1 Query Language, 17.4.1.9), by look-up instead of comparison.

For most kinds of values, `=` with a constant of the same kind is Python's (see `functions.equal`), so a set finds equal
ones. Other cases are compared one by one: numbers of different types, and values that only Oxigraph can compare.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Final

import pyoxigraph as ox

from edge.engine.operators.calls import Evaluate, Result
from edge.engine.operators.functions import EQUATED, NUMERIC, Function, equal
from edge.engine.operators.layout import Frame
from edge.engine.operators.values import Value
from edge.engine.store.step_budget import StepBudget

LONG: Final = 8
"""Items from which an index is worthwhile."""

_Kind = type | str
_LANGUAGE: Final = "language string"
_REPRESENTED_BY_ONE: Final = (ox.NamedNode, str, _LANGUAGE)
"""Kinds of constants of which one represents all: `=` with a different value gives the same for each, false or error.
"""


class InIndex:
    """Index of the constants of a list."""

    __slots__ = ("_by_kind", "_others")

    def __init__(self, constants: Iterable[Value]) -> None:
        self._by_kind: dict[_Kind | None, set[Value] | list[Value]] = {None: []}
        for value in constants:
            kind = _kind(value)
            known = self._by_kind.get(kind)
            if known is None:
                known = self._by_kind[kind] = set()
            (known.append if isinstance(known, list) else known.add)(value)
        self._others: dict[_Kind | None, list[Value]] = {}

    def have(self, value: Value) -> bool:
        """Return whether a constant of the same kind equals the value."""
        kind = _kind(value)
        return kind is not None and value in self._by_kind.get(kind, ())

    def others(self, value: Value) -> Sequence[Value]:
        """Return the constants that must be compared one by one if `have` returns False."""
        kind = _kind(value)
        found = self._others.get(kind)
        if found is None:
            found = self._others[kind] = list(self._compared(kind))
        return found

    def _compared(self, kind: _Kind | None) -> Iterable[Value]:
        for other, values in self._by_kind.items():
            # Values of different kinds differ, and `have` finds equal ones of the same kind. Only numbers compare
            # across types.
            if kind in EQUATED and other in EQUATED and not (kind in NUMERIC and other in NUMERIC and kind != other):
                continue
            if other in _REPRESENTED_BY_ONE:
                yield next(iter(values))
            else:
                yield from values


def _kind(value: Value) -> _Kind | None:
    """Return the kind of a value. None: equality within this kind cannot be decided by a set."""
    kind = type(value)
    if kind in EQUATED:
        return int if kind is Decimal else kind  # Python compares these two exactly
    return _LANGUAGE if kind is ox.Literal and value.language else None  # type: ignore[union-attr]


def member(one: Evaluate, items: Callable[[Frame], InIndex], otherwise: Function, budget: StepBudget) -> Evaluate:
    """Return a test whether a value equals an item. `otherwise`: `=` for values without a rule in Python."""

    def evaluate(frame: Frame) -> Result:
        value = one(frame)
        if value is None:
            return None
        list_ = items(frame)
        if list_.have(value):
            return True
        others = list_.others(value)
        budget.spend(len(others))
        result: bool | None = False
        for other in others:
            answer = equal(value, other)
            if answer is NotImplemented:
                answer = otherwise(value, other)
            if answer:
                return True
            if answer is None:
                result = None
        return result

    return evaluate
