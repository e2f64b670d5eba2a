"""Results that SPARQL does not determine completely, and their equality.

The prefix of a column names the freedom: `any1` is a SAMPLE and may be any value of its group, `cat1` is a GROUP_CONCAT
and may have its parts in any order, `end1` is a MIN or MAX and may be any of several equal values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import pyoxigraph as ox
from oracle import Bag, NaiveEngine, Query

XSD = "http://www.w3.org/2001/XMLSchema#"
SEPARATOR = "|"
_NUMBERS = frozenset(XSD + name for name in ("integer", "decimal", "float", "double"))


def open_columns(variables: Sequence[str], kinds: Sequence[str] = ("any", "cat", "end")) -> list[int]:
    """Return the columns whose values are not determined."""
    return [index for index, name in enumerate(variables) if name.startswith(tuple(kinds))]


def settled(variables: Sequence[str], bag: Bag) -> Bag:
    """Return the rows with one representative for all values that are equally right."""
    columns = dict.fromkeys(open_columns(variables))
    if not columns:
        return bag
    result: Bag = Counter()
    for row, count in bag.items():
        result[tuple(_settle(variables[i], cell) if i in columns else cell for i, cell in enumerate(row))] += count
    return result


def _settle(name: str, cell: object) -> object:
    if not isinstance(cell, ox.Literal):
        return "any" if name.startswith("any") and cell is not None else cell
    if name.startswith("any"):
        return "any"
    if name.startswith("cat"):
        return cell.language, tuple(sorted(cell.value.split(SEPARATOR)))
    if cell.datatype.value in _NUMBERS:
        try:
            number = float(cell.value)
        except ValueError:
            return cell
        return number if number == number else "NaN"
    if cell.datatype.value == XSD + "dateTime":
        time = datetime.fromisoformat(cell.value)
        return cell if time.tzinfo is None else time
    return cell


@dataclass(frozen=True)
class Groups:
    """The inputs of the aggregates of a query, by group."""

    keys: list[int]
    """The columns of the query that identify a group."""
    inputs: dict[int, int]
    """The columns of the inputs, in the order of the columns of the query."""
    members: dict[tuple[object, ...], Bag]

    @classmethod
    def of(cls, naive: NaiveEngine, query: Query, variables: Sequence[str]) -> Groups:
        """Return the groups in the current state of the naive engine."""
        names, bag = naive.evaluate(replace(query, text=query.inputs))
        inputs = {index: names.index(name) for index, name in enumerate(variables) if name in names}
        keys = [index for index in inputs if not variables[index].startswith(("any", "cat", "end", "num"))]
        members: dict[tuple[object, ...], Bag] = {}
        for row, count in bag.items():
            members.setdefault(tuple(row[inputs[index]] for index in keys), Counter())[row] += count
        return cls(keys, inputs, members)

    def key(self, row: Sequence[object]) -> tuple[object, ...]:
        """Return the group of a row of the query."""
        return tuple(row[index] for index in self.keys)

    def admits(self, row: Sequence[object], column: int) -> bool:
        """Return whether the value of SAMPLE occurs in its group. Unbound is right only for an empty group."""
        values = {member[self.inputs[column]] for member in self.members.get(self.key(row), ())} - {None}
        return row[column] in values if values else row[column] is None
