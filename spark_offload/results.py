"""Results in the formats of SPARQL, written as they come: never in memory as a whole.

Terms are N-Triples texts (`spark_offload.triples`), so solutions are SPARQL's TSV as they are, and triples N-Triples.
From these pyoxigraph makes the other formats.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import IO, TYPE_CHECKING, Any, Final

import pyoxigraph as ox
from pyspark import StorageLevel

from spark_offload import tabular
from spark_offload.errors import QueryRefused
from spark_offload.prefixes import PREFIXES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SOLUTIONS: Final = {
    "json": ox.QueryResultsFormat.JSON,
    "xml": ox.QueryResultsFormat.XML,
    "csv": ox.QueryResultsFormat.CSV,
    "tsv": ox.QueryResultsFormat.TSV,
}
"""Of SELECT and ASK."""
GRAPHS: Final = {"turtle": ox.RdfFormat.TURTLE, "ntriples": ox.RdfFormat.N_TRIPLES}
"""Of CONSTRUCT."""
TABLE: Final = "table"
"""For people, and for all three."""


def write_solutions(found: DataFrame, form: str, output: IO[bytes]) -> None:
    """What a SELECT found: a column of terms for each variable. Raises `QueryRefused` where something is no term."""
    header = "\t".join(f"?{name}" for name in found.columns)
    with _rows(found) as rows, _terms():
        lines = ("\t".join([term or "" for term in row]) for row in rows)
        read = ox.parse_query_results(_Stream(header, lines), ox.QueryResultsFormat.TSV)  # type: ignore[arg-type]
        assert isinstance(read, ox.QuerySolutions)  # noqa: S101  it is not yes or no
        if form == TABLE:
            tabular.write(found.columns, read, output)
        else:
            read.serialize(output, SOLUTIONS[form])


def write_boolean(answer: bool, form: str, output: IO[bytes]) -> None:
    """What an ASK found."""
    text = "true" if answer else "false"
    if form == TABLE:
        output.write(f"{text}\n".encode())
        return
    read = ox.parse_query_results(f'{{"head":{{}},"boolean":{text}}}', ox.QueryResultsFormat.JSON)
    read.serialize(output, SOLUTIONS[form])


def write_graph(triples: DataFrame, form: str, output: IO[bytes]) -> None:
    """What a CONSTRUCT made: columns of terms, subject, predicate and object. Raises `QueryRefused` likewise."""
    with _rows(triples) as rows, _terms():
        lines = (f"{' '.join(row)} ." for row in rows)
        read = ox.parse(_Stream("", lines), ox.RdfFormat.N_TRIPLES)  # type: ignore[arg-type]
        made = (quad.triple for quad in read)
        ox.serialize(made, output, GRAPHS.get(form, ox.RdfFormat.TURTLE), prefixes=PREFIXES)


@contextmanager
def _rows(found: DataFrame) -> Iterator[Iterator[Any]]:
    """Rows one after the other. They are found by all workers at once, and kept on their disks until they are read."""
    found.persist(StorageLevel.DISK_ONLY)
    try:
        found.count()
        yield found.toLocalIterator(prefetchPartitions=True)
    finally:
        found.unpersist()


@contextmanager
def _terms() -> Iterator[None]:
    """What no parser takes is no term: an IRI with a space in it, say, that an expression made."""
    try:
        yield
    except SyntaxError as error:
        raise QueryRefused(f"a result of the query cannot be written: {error.msg}") from error


class _Stream:
    """Lines as a file to read from."""

    def __init__(self, header: str, lines: Iterable[str]) -> None:
        self._lines = iter(lines)
        self._rest = f"{header}\n".encode()

    def read(self, size: int = -1) -> bytes:
        """The next bytes, at most so many of them; none: it is the end."""
        if not self._rest:
            self._rest = b"".join(f"{line}\n".encode() for line in islice(self._lines, _LINES))
        found, self._rest = self._rest[:size], self._rest[size:]
        return found


_LINES: Final = 100
"""How many are read at once."""
