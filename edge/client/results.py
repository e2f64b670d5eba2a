"""Results of a query: rows, a truth value, or triples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypeVar, overload

import pyoxigraph as ox

from edge.client.errors import BadAnswer
from edge.client.rows import Row
from edge.protocol.errors import ParsingFailed
from edge.protocol.syntax import tokenize
from edge.sparql.tokens import read_prologue

T = TypeVar("T")

Form = Literal["SELECT", "ASK", "CONSTRUCT", "DESCRIBE"]

_FORMS: Final[dict[str, Form]] = {
    "SELECT": "SELECT",
    "ASK": "ASK",
    "CONSTRUCT": "CONSTRUCT",
    "DESCRIBE": "DESCRIBE",
}


class Rows(Sequence[Row]):
    """Result of a SELECT: rows in the query's order, and `variables`, including those that no row binds."""

    __slots__ = ("_rows", "variables")

    def __init__(self, variables: Iterable[str], rows: Iterable[Row]) -> None:
        self.variables = tuple(variables)
        self._rows = tuple(rows)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | Sequence[Row]:
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rows) and (self.variables, self._rows) == (other.variables, other._rows)

    def __hash__(self) -> int:
        return hash((self.variables, self._rows))

    def __repr__(self) -> str:
        return f"Rows({list(self._rows)!r})"


Result = Rows | bool | list[ox.Triple]
"""SELECT: rows; ASK: a truth value; CONSTRUCT and DESCRIBE: triples."""


def read_rows(results: object) -> Rows:
    """Return the rows of an object of the results format. Raises `BadAnswer`.

    An empty object is an empty result: the Subscribe Language draft shows one as `removedResults` of sequence 0.
    """
    if not isinstance(results, Mapping):
        raise BadAnswer(f"not results: {results!r:.200}")
    try:
        variables = results.get("head", {}).get("vars", ())
        bindings = results.get("results", {}).get("bindings", ())
        return Rows(map(str, variables), map(Row.of, bindings))
    except (AttributeError, TypeError):
        raise BadAnswer(f"not results: {results!r:.200}") from None


def read_result(answer: Mapping[str, Any], form: Form) -> Result:
    """Return the result of a query of this form. Raises `BadAnswer`."""
    if isinstance(truth := answer.get("boolean"), bool):
        return truth
    rows = read_rows(answer)
    if form not in ("CONSTRUCT", "DESCRIBE"):
        return rows
    # In JSON, a gateway sends triples as rows with these three variables.
    try:
        return [ox.Triple(row["subject"], row["predicate"], row["object"]) for row in rows]  # type: ignore[arg-type]
    except (KeyError, TypeError):
        raise BadAnswer("these are not triples") from None


def query_form(text: str) -> Form:
    """Return the form of a query. Return SELECT for an unknown form; the broker then reports the syntax error."""
    try:
        tokens = tokenize(text)
        _, index = read_prologue(text, tokens, 0)
    except ParsingFailed:
        return "SELECT"
    return _FORMS.get(tokens[index].word(), "SELECT") if index < len(tokens) else "SELECT"


def of_form(kind: type[T], result: object) -> T:
    """Return the result if it is of this type. Raises `BadAnswer`."""
    if not isinstance(result, kind):
        raise BadAnswer(f"the query has another form: its result is of type {type(result).__name__}")
    return result
