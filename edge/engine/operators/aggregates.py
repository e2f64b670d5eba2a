"""Aggregates as accumulators to which solutions are added and from which they are removed (section 18.5.1).

A value is removed by a negative weight. The result depends only on the current values, not on their order or history.
Where the standard leaves a choice (which of several equal minima, the order of GROUP_CONCAT), the first by text is
taken.

As in Oxigraph, whose answer to the same query must be equal, one error makes the result of a whole group an error. Only
SAMPLE ignores errors, and COUNT of plain references, as in `COUNT(?variable)`. In the standard COUNT always ignores
errors. As in Oxigraph, GROUP_CONCAT of anything but strings is an error. DISTINCT distinguishes values by their terms,
as in the standard. In a COUNT of computed values Oxigraph treats equal times in different zones as one value.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from typing import Final

import pyoxigraph as ox

from edge.engine.operators.sorted_terms import SortedTerms
from edge.engine.operators.sums import Sum
from edge.engine.operators.values import decode, encode
from edge.engine.store.step_budget import StepBudget
from edge.protocol.bag import Bag
from edge.protocol.results import Term
from edge.sparql.algebra import Aggregate, Call, Constant, Expression, Reference

Added = Term | Hashable

_FIXED: Final = 200
"""Bytes of an accumulator (measured). Most contain a number or two."""
_ENTRY: Final = 150
"""Bytes of a retained value: the term and its dictionary entry."""


class Accumulator(ABC):
    """State of an aggregate for one group."""

    __slots__ = ()

    @abstractmethod
    def add(self, value: Added | None, weight: int) -> None:
        """Add a value `weight` times; a negative weight removes values that were added before.

        The value is a term (None: an error or unbound). For `COUNT(*)` it is the whole solution, as any hashable
        object.
        """

    @abstractmethod
    def result(self) -> Term | None:
        """Return the aggregate of the current values. None: an error."""

    def held(self) -> int:
        """Return the approximate bytes of the accumulator."""
        return _FIXED


def accumulator(aggregate: Aggregate, budget: StepBudget) -> Accumulator:
    """Return a new accumulator for an empty group. `budget`: budget of the evaluations that call `result`."""
    if aggregate.name == "COUNT":
        # COUNT ignores errors of a value that is only selected, but a computed expression with an error fails the
        # group, as in Oxigraph.
        chosen = aggregate.expression is None or _is_choice(aggregate.expression)
        new: Accumulator = _Count() if chosen else _StrictCount()
    elif aggregate.name == "GROUP_CONCAT":
        new = _Concatenation(aggregate.separator, budget)
    else:
        new = _KINDS[aggregate.name]()
    # DISTINCT would only cost memory where duplicates do not change the result.
    return _Distinct(new) if aggregate.distinct and aggregate.name not in _BLIND else new


def _is_choice(expression: Expression) -> bool:
    """Return whether an expression computes nothing: it is a term, or selects one of several."""
    if not isinstance(expression, Call):
        return isinstance(expression, Reference | Constant)
    choices = {"COALESCE": expression.arguments, "IF": expression.arguments[1:]}.get(expression.name)
    return choices is not None and all(map(_is_choice, choices))


class _Distinct(Accumulator):
    """Wrapper that passes each value once to another accumulator."""

    __slots__ = ("_characters", "_inner", "_weights")

    def __init__(self, inner: Accumulator) -> None:
        self._inner = inner
        self._weights: Bag[Added] = Bag()
        self._characters = 0

    def add(self, value: Added | None, weight: int) -> None:
        """See `Accumulator`."""
        if value is None:
            self._inner.add(None, weight)
            return
        after = self._weights.add(value, weight)
        before = after - weight
        # The inner accumulator only learns whether the value is present.
        if (after > 0) != (before > 0):
            change = 1 if after > 0 else -1
            self._characters += change * _characters(value)
            self._inner.add(value, change)

    def result(self) -> Term | None:
        """See `Accumulator`."""
        return self._inner.result()

    def held(self) -> int:
        """See `Accumulator`."""
        return _ENTRY * len(self._weights) + self._characters + self._inner.held()


class _Count(Accumulator):
    """COUNT of solutions, and of values that are bound."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    def add(self, value: Added | None, weight: int) -> None:
        """See `Accumulator`."""
        if value is not None:
            self._count += weight

    def result(self) -> Term | None:
        """See `Accumulator`."""
        return encode(self._count)


class _Strict(Accumulator):
    """An accumulator without a result while there is an error."""

    __slots__ = ("_errors",)

    def __init__(self) -> None:
        self._errors = 0

    def add(self, value: Added | None, weight: int) -> None:
        """See `Accumulator`."""
        # Counted, not flagged: the group recovers when the last solution with an error leaves it.
        if value is None or not self._take(value, weight):  # type: ignore[arg-type]
            self._errors += weight

    def result(self) -> Term | None:
        """See `Accumulator`."""
        return None if self._errors else self._give()

    @abstractmethod
    def _take(self, term: Term, weight: int) -> bool:
        """Add a term. Returns False if it is an error."""

    @abstractmethod
    def _give(self) -> Term | None:
        """Return the result without errors."""


class _StrictCount(_Strict):
    """COUNT of computed values."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        super().__init__()
        self._count = 0

    def _take(self, term: Term, weight: int) -> bool:
        self._count += weight
        return True

    def _give(self) -> Term | None:
        return encode(self._count)


class _Sum(_Strict):
    """SUM."""

    __slots__ = ("_sum",)

    def __init__(self) -> None:
        super().__init__()
        self._sum = Sum()

    def _take(self, term: Term, weight: int) -> bool:
        return self._sum.add(decode(term), weight)

    def _give(self) -> Term | None:
        total = self._sum.total()
        return None if total is None else encode(total)


class _Average(_Sum):
    """AVG."""

    __slots__ = ()

    def _give(self) -> Term | None:
        mean = self._sum.mean()
        return None if mean is None else encode(mean)


class _Minimum(_Strict):
    """MIN."""

    __slots__ = ("_terms",)

    def __init__(self) -> None:
        super().__init__()
        self._terms = SortedTerms()

    def _take(self, term: Term, weight: int) -> bool:
        self._terms.add(term, weight)
        return True

    def _give(self) -> Term | None:
        return self._terms.least()

    def held(self) -> int:
        """See `Accumulator`."""
        return _FIXED + self._terms.held


class _Maximum(_Minimum):
    """MAX."""

    __slots__ = ()

    def _give(self) -> Term | None:
        return self._terms.greatest()


class _Sample(Accumulator):
    """SAMPLE: the first value by term, so that the result does not depend on the history of the group."""

    __slots__ = ("_terms",)

    def __init__(self) -> None:
        self._terms = SortedTerms()

    def add(self, value: Added | None, weight: int) -> None:
        """See `Accumulator`."""
        if value is not None:
            self._terms.add(value, weight)  # type: ignore[arg-type]

    def result(self) -> Term | None:
        """See `Accumulator`."""
        return self._terms.least()

    def held(self) -> int:
        """See `Accumulator`."""
        return _FIXED + self._terms.held


class _Concatenation(_Strict):
    """GROUP_CONCAT: a string with a language tag if all parts have the same one."""

    __slots__ = ("_budget", "_characters", "_separator", "_weights")

    def __init__(self, separator: str, budget: StepBudget) -> None:
        super().__init__()
        self._budget = budget
        self._separator = separator
        self._weights: Bag[Term] = Bag()
        self._characters = 0

    def _take(self, term: Term, weight: int) -> bool:
        if not isinstance(term, ox.Literal) or (term.language is None and type(decode(term)) is not str):
            return False
        # Each different text is in memory once, whatever its multiplicity.
        known = len(self._weights)
        self._weights.add(term, weight)
        self._characters += (len(self._weights) - known) * len(term.value)
        return True

    def _give(self) -> Term | None:
        characters = [(len(term.value), weight) for term, weight in self._weights.items()]  # type: ignore[union-attr]
        # The length is known before the text is made, so a text over the budget is never in memory.
        length = sum((length + len(self._separator)) * weight for length, weight in characters)
        if not self._budget.may_make(length):
            return None
        # Sorted, because the order of the solutions depends on the history of the group.
        literals = sorted((term.value, term.language or "", weight) for term, weight in self._weights.items())  # type: ignore[union-attr]
        text = self._separator.join(value for value, _, weight in literals for _ in range(weight))
        languages = {language for _, language, _ in literals}
        language = languages.pop() if len(languages) == 1 else ""
        return ox.Literal(text, language=language) if language else ox.Literal(text)

    def held(self) -> int:
        """See `Accumulator`."""
        return _FIXED + _ENTRY * len(self._weights) + self._characters


def _characters(value: Added) -> int:
    return len(value.value) if isinstance(value, ox.Literal | ox.NamedNode) else 0


_KINDS: Final[dict[str, Callable[[], Accumulator]]] = {
    "SUM": _Sum,
    "AVG": _Average,
    "MIN": _Minimum,
    "MAX": _Maximum,
    "SAMPLE": _Sample,
}
_BLIND: Final = frozenset({"MIN", "MAX", "SAMPLE"})
"""Aggregates whose result duplicates do not change."""
