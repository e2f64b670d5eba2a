"""Minimum and maximum of a changing bag of terms, in the order in which Oxigraph sorts terms (section 15.1)."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final

import pyoxigraph as ox

from edge.engine.operators.functions import FUNCTIONS
from edge.engine.operators.oxigraph_functions import ask, question
from edge.engine.operators.values import TRUE, Instant, Single, Value, decode, encode
from edge.protocol.bag import Bag
from edge.protocol.results import Term
from edge.sparql.algebra import Call, Constant

_SORTED: Final = frozenset({int, Decimal, float, Single, str, Instant})
"""Types whose values have a total order."""

_KINDS: Final[dict[type, int]] = {ox.BlankNode: 0, ox.NamedNode: 1, ox.Literal: 2, ox.Triple: 3}
_ENTRY: Final = 180
"""Bytes of a sorted value in addition to its characters."""
_OTHER: Final = 300
"""Bytes of any other term in addition to its characters."""
_PLACEHOLDER: Final = Constant(ox.Literal(""))
_LESS: Final = question(Call("<", (_PLACEHOLDER, _PLACEHOLDER)), "urn:x-edge:")


class SortedTerms:
    """A bag of terms with fast access to the least and the greatest.

    Numbers of one type, strings, IRIs and times in UTC are in sorted lists. All others are rare and compared one by
    one.
    """

    __slots__ = ("_others", "_sorted", "held")

    def __init__(self) -> None:
        self.held = 0
        """Approximate bytes of the terms."""
        self._sorted: dict[type, list[Any]] = {}
        """Type -> its values, ascending."""
        self._others: Bag[Term] = Bag()
        """Term -> its number."""

    def add(self, term: Term, weight: int) -> None:
        """Add a term `weight` times; a negative weight removes it. Raises KeyError if it was not there so often."""
        value = decode(term)
        kind = type(value)
        if kind is ox.NamedNode:
            value = value.value  # type: ignore[union-attr]
        elif kind not in _SORTED or _is_negative_zero(value):
            self._add_other(term, weight)
            return
        self.held += weight * (_ENTRY + (len(value) if type(value) is str else 0))
        values = self._sorted.setdefault(kind, [])
        if weight > 0:
            for _ in range(weight):
                insort(values, value)
        else:
            at = bisect_left(values, value)
            if values[at : at - weight] != [value] * -weight:
                raise KeyError(term)
            del values[at : at - weight]
            if not values:
                del self._sorted[kind]

    def _add_other(self, term: Term, weight: int) -> None:
        left = self._others.add(term, weight)
        if not left or left == weight:
            self.held += (1 if left else -1) * (_OTHER + (len(term.value) if isinstance(term, ox.Literal) else 0))

    def least(self) -> Term | None:
        """Return the least term; among equals the first by text. None if the bag is empty."""
        result = None
        for term in sorted(self._candidates(0), key=str):
            if result is None or _less(term, result):
                result = term
        return result

    def greatest(self) -> Term | None:
        """Return the greatest term; among equals the first by text. None if the bag is empty."""
        result = None
        for term in sorted(self._candidates(-1), key=str):
            if result is None or _less(result, term):
                result = term
        return result

    def _candidates(self, end: int) -> Iterator[Term]:
        for kind, values in self._sorted.items():
            yield ox.NamedNode(values[end]) if kind is ox.NamedNode else encode(values[end])
        yield from self._others


def _is_negative_zero(value: Value) -> bool:
    """Return whether the value is negative zero, which equals zero but is a different term."""
    return isinstance(value, float) and value == 0 and math.copysign(1.0, value) < 0


def _less(a: Term, b: Term) -> bool:
    """Return whether a term sorts before another."""
    kind = _KINDS[type(a)]
    other = _KINDS[type(b)]
    if kind != other:
        return kind < other
    if isinstance(a, ox.Literal) and isinstance(b, ox.Literal):
        answer = FUNCTIONS["<"](decode(a), decode(b))
        less = ask(_LESS, (a, b)) if answer is NotImplemented else encode(answer)
        return _text(a) < _text(b) if less is None else less == TRUE
    if isinstance(a, ox.Triple) and isinstance(b, ox.Triple):
        pairs = zip(_parts(a), _parts(b), strict=True)
        return next((_less(one, other) for one, other in pairs if one != other), False)
    return a.value < b.value  # type: ignore[union-attr]


def _text(literal: ox.Literal) -> tuple[str, str, str]:
    """Return the sort key of literals that `<` cannot compare."""
    return literal.value, literal.datatype.value, literal.language or ""


def _parts(triple: ox.Triple) -> tuple[Term, Term, Term]:
    return triple.subject, triple.predicate, triple.object
