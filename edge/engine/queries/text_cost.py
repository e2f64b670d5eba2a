"""Upper bound of the work on texts that a query can cause for each solution.

A client can store a literal as long as a request, and a short query can make a text a thousand times as long from it.
The bound therefore follows from the longest term in the graph and from the functions of the query.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyoxigraph as ox

from edge.engine.operators.text_search import UNKNOWN, Search
from edge.engine.operators.variables import own_expressions
from edge.sparql.algebra import Call, Constant, Expression, Group, Node, OrderBy, Parameter

_READ: Final = 256
"""Characters that a function reads at the cost of one word of a query."""
_MADE: Final = 32
"""Characters that a function creates at that cost. Created texts take memory until the query ends."""

_ESCAPED: Final = 3
"""Characters of the percent-encoding of one byte."""
_SHORT: Final = frozenset(
    {
        *("&&", "||", "!", "=", "!=", "<", ">", "<=", ">=", "+", "-", "*", "/", "unary-", "unary+", "IN", "NOT IN"),
        *("BOUND", "SAMETERM", "ISIRI", "ISURI", "ISBLANK", "ISLITERAL", "ISNUMERIC", "REGEX", "LANG", "DATATYPE"),
        *("LANGMATCHES", "STRLEN", "CONTAINS", "STRSTARTS", "STRENDS", "ABS", "CEIL", "FLOOR", "ROUND", "RAND", "NOW"),
        *("YEAR", "MONTH", "DAY", "HOURS", "MINUTES", "SECONDS", "TIMEZONE", "TZ", "UUID", "STRUUID", "BNODE"),
        *("MD5", "SHA1", "SHA256", "SHA384", "SHA512", "IF", "COALESCE"),
    }
)
"""Functions that create no long text. IF and COALESCE return one of their arguments."""


class Texts:
    """Summary of the expressions of a query that read or create texts."""

    __slots__ = ("_growth", "_length", "_made", "_power", "_read", "_searches")

    def __init__(self, length: int, patterns: Iterable[Node]) -> None:
        """`length`: characters of the query; no text in it is longer. `patterns`: all nodes of the query."""
        self._length = length
        self._growth = 1.0
        """Factor by which the functions together can lengthen a text."""
        self._power = 1
        """Exponent of the length: REPLACE with a computed replacement can multiply the lengths of two texts."""
        self._read = self._made = 0
        """Number of calls and aggregates that read texts, and that create texts."""
        self._searches: list[Search] = []
        for node in patterns:
            if isinstance(node, Group):
                names = [aggregate.name for _, aggregate in node.aggregates]
                self._made += names.count("GROUP_CONCAT")
                self._read += len(names) - names.count("COUNT")
            elif isinstance(node, OrderBy):
                self._read += len(node.conditions)
            for expression in own_expressions(node):
                for call in _calls(expression):
                    self._add(call)

    def _add(self, call: Call) -> None:
        self._read += 1
        self._made += call.name not in _SHORT
        if call.name in ("REGEX", "REPLACE"):
            self._searches.append(_search(call))
        if call.name == "REPLACE":
            by = _constant(call.arguments[2])
            if by is None:
                self._power += 1
            else:
                self._growth *= 1 + len(by) + by.count("$")
        elif call.name == "ENCODE_FOR_URI":
            self._growth *= _ESCAPED
        elif call.name == "CONCAT":
            self._growth *= max(1, len(call.arguments))

    def work(self, longest: int) -> float:
        """Return the cost for each solution, in words of a query. `longest`: characters of the longest term."""
        length = self._growth * float(max(longest, self._length)) ** min(self._power, 8)
        searching = sum(search.steps(length) for search in self._searches)
        return length * (self._read / _READ + self._made / _MADE) + searching


def _calls(expression: Expression) -> Iterator[Call]:
    if isinstance(expression, Call):
        yield expression
        for argument in expression.arguments:
            yield from _calls(argument)


def _search(call: Call) -> Search:
    replaces = call.name == "REPLACE"
    arguments = list(map(_constant, call.arguments))
    pattern, flags = arguments[1], arguments[3 if replaces else 2 :]
    return UNKNOWN if pattern is None or None in flags else Search(pattern, "".join(map(str, flags)), replaces)


def _constant(expression: Expression) -> str | None:
    """Return a literal text of the query; None if the text is computed."""
    term = expression.term if isinstance(expression, Constant) else None
    term = term.term if isinstance(term, Parameter) else term
    return term.value if isinstance(term, ox.Literal) else None
