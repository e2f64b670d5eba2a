"""Result tables: whole results in Oxigraph's serialization, one line for each row.

Oxigraph releases the GIL while it serializes. The engine compares two results line by line, and converts only the
changed lines to terms.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyoxigraph as ox

from edge.engine.operators.stages import Weights
from edge.engine.queries.oxigraph_queries import EvaluationFailed, QueryRules, too_long, too_many
from edge.engine.store.terms import Dictionary
from edge.protocol.bag import Bag
from edge.protocol.results import Term

if TYPE_CHECKING:
    from typing_extensions import Buffer

Lines = Bag[bytes]
"""Lines of a table, each with its number of occurrences. In a difference, removed lines have a negative number."""


@dataclass(frozen=True, slots=True)
class ResultTable:
    """A result in Oxigraph's TSV (SPARQL 1.1 Query Results CSV and TSV Formats, section 4). Equal rows, equal lines."""

    header: bytes
    """The columns, `?a<TAB>?b`."""
    lines: Lines
    described: ResultTable | None = None
    """The resources that the WHERE clause of a DESCRIBE found."""

    @property
    def variables(self) -> tuple[str, ...]:
        """The columns."""
        return tuple(name[1:] for name in self.header.decode().split("\t")) if self.header else ()


def decoded(header: bytes, lines: Iterable[bytes]) -> Iterator[tuple[Term | None, ...]]:
    """Yield the lines of a table as terms. Raises `EvaluationFailed`."""
    text = b"\n".join((header, *lines, b""))
    try:
        yield from map(tuple, ox.parse_query_results(text, format=ox.QueryResultsFormat.TSV))  # type: ignore[arg-type]
    except (SyntaxError, MemoryError) as error:  # Oxigraph writes some terms that it cannot read
        raise EvaluationFailed(
            "The result holds a blank node with a label that TSV does not allow, or a term of 16 MiB and more "
            f"({error}). Use letters and digits in BNODE(), and shorter texts"
        ) from None


def rows_of(dictionary: Dictionary, header: bytes, lines: Mapping[bytes, int]) -> Weights:
    """Return the lines of a table as rows of term ids, with their counts."""
    weights: Weights = Bag()
    if lines:
        intern = dictionary.intern
        for cells, count in zip(decoded(header, lines), lines.values(), strict=True):
            weights.add(tuple([None if cell is None else intern(cell) for cell in cells]), count)
    return weights


def header_of(variables: Iterable[str]) -> bytes:
    """Return the header of a table with these columns."""
    return "\t".join(f"?{name}" for name in variables).encode()


def as_row(line: bytes) -> bytes:
    """Turn a line of N-Triples into a line of a table: subject and predicate hold no space, and literals no tab."""
    return line.removesuffix(b" .").replace(b" ", b"\t", 2)


def written(
    answer: ox.QuerySolutions | ox.QueryTriples, form: ox.QueryResultsFormat | ox.RdfFormat, text: LimitedBuffer
) -> list[bytes]:
    """Return the lines of an answer in Oxigraph's serialization. Raises `EvaluationFailed`, `ResultTooLarge`."""
    try:
        answer.serialize(text, format=form)  # type: ignore[arg-type]
    except (RuntimeError, OSError) as error:
        raise EvaluationFailed(f"The query could not be evaluated: {error}") from None
    return text.getvalue().splitlines()


class LimitedBuffer(io.BytesIO):
    """Buffer with a limit of lines and of characters."""

    def __init__(self, rules: QueryRules, most: int) -> None:
        """`most`: limit of lines."""
        super().__init__()
        self._rules = rules
        self._left = most

    def write(self, data: Buffer, /) -> int:
        """Append data. Raises `ResultTooLarge`."""
        text = bytes(data)
        self._left -= text.count(b"\n")
        if self._left < 0:
            raise too_many(self._rules)
        if self.tell() + len(text) > self._rules.longest_result:
            raise too_long(self._rules)
        return super().write(text)
