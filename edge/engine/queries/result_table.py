"""Tables: whole results as Oxigraph writes them, a line a row.

Writing is Oxigraph's work, which lets go of Python's lock meanwhile. Two results are compared line by line, and only
lines that changed are read into terms.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyoxigraph as ox

from edge.engine.operators.stages import Weights, add_weight
from edge.engine.queries.oxigraph_queries import EvaluationFailed, QueryRules, too_long, too_many
from edge.engine.store.terms import Dictionary
from edge.protocol.results import Term

if TYPE_CHECKING:
    from typing_extensions import Buffer

Lines = dict[bytes, int]
"""Lines of a table, and how often each occurs; in a difference a line that goes has a negative number."""


@dataclass(frozen=True, slots=True)
class ResultTable:
    """A result in Oxigraph's TSV (SPARQL 1.1 Query Results CSV and TSV Formats, section 4): equal rows, equal lines."""

    header: bytes
    """The columns, `?a<TAB>?b`."""
    lines: Lines
    described: ResultTable | None = None
    """The resources that the WHERE of a DESCRIBE found."""

    @property
    def variables(self) -> tuple[str, ...]:
        """The columns."""
        return tuple(name[1:] for name in self.header.decode().split("\t")) if self.header else ()


def decoded(header: bytes, lines: Iterable[bytes]) -> Iterator[tuple[Term | None, ...]]:
    """Lines of a table as terms. Raises `EvaluationFailed`."""
    text = b"\n".join((header, *lines, b""))
    try:
        yield from map(tuple, ox.parse_query_results(text, format=ox.QueryResultsFormat.TSV))  # type: ignore[arg-type]
    except (SyntaxError, MemoryError) as error:  # Oxigraph writes such terms, and cannot read them
        raise EvaluationFailed(
            "The result holds a blank node with a label that TSV does not allow, or a term of 16 MiB and more "
            f"({error}). Use letters and digits in BNODE(), and shorter texts"
        ) from None


def rows_of(dictionary: Dictionary, header: bytes, lines: Mapping[bytes, int]) -> Weights:
    """Lines of a table as term ids."""
    weights: Weights = {}
    if lines:
        intern = dictionary.intern
        for cells, count in zip(decoded(header, lines), lines.values(), strict=True):
            add_weight(weights, tuple([None if cell is None else intern(cell) for cell in cells]), count)
    return weights


def header_of(variables: Iterable[str]) -> bytes:
    """The header of a table with these columns."""
    return "\t".join(f"?{name}" for name in variables).encode()


def as_row(line: bytes) -> bytes:
    """A line of N-Triples as one of a table: subject and predicate hold no space, and literals no tab."""
    return line.removesuffix(b" .").replace(b" ", b"\t", 2)


def written(
    answer: ox.QuerySolutions | ox.QueryTriples, form: ox.QueryResultsFormat | ox.RdfFormat, text: Text
) -> list[bytes]:
    """The lines that Oxigraph writes of an answer. Raises `EvaluationFailed`, `ResultTooLarge`."""
    try:
        answer.serialize(text, format=form)  # type: ignore[arg-type]
    except (RuntimeError, OSError) as error:
        raise EvaluationFailed(f"The query could not be evaluated: {error}") from None
    return text.getvalue().splitlines()


class Text(io.BytesIO):
    """Takes in so many lines, and no more; nor a text that is too long."""

    def __init__(self, rules: QueryRules, most: int) -> None:
        super().__init__()
        self._rules = rules
        self._left = most

    def write(self, data: Buffer, /) -> int:
        """Take in more. Raises `ResultTooLarge`."""
        text = bytes(data)
        self._left -= text.count(b"\n")
        if self._left < 0:
            raise too_many(self._rules)
        if self.tell() + len(text) > self._rules.longest_result:
            raise too_long(self._rules)
        return super().write(text)
