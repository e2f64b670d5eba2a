"""Streaming serialization of results in the formats of SPARQL, without holding a result in memory.

Terms are N-Triples texts (`spark_offload.triples`), so solutions are already valid SPARQL TSV, and triples valid
N-Triples. pyoxigraph converts these into the other formats.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, islice
from typing import IO, TYPE_CHECKING, Any, Final

import pyoxigraph as ox
from pyspark import StorageLevel
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from edge.rdf_xml import is_element_name
from spark_offload import compat, tabular
from spark_offload.errors import QueryRefused, ResultTooLarge
from spark_offload.prefixes import PREFIXES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SOLUTIONS: Final = {
    "json": ox.QueryResultsFormat.JSON,
    "xml": ox.QueryResultsFormat.XML,
    "csv": ox.QueryResultsFormat.CSV,
    "tsv": ox.QueryResultsFormat.TSV,
}
"""Formats for SELECT and ASK."""
GRAPHS: Final = {
    "turtle": ox.RdfFormat.TURTLE,
    "ntriples": ox.RdfFormat.N_TRIPLES,
    "json": ox.RdfFormat.JSON_LD,
    "xml": ox.RdfFormat.RDF_XML,
}
"""Formats for CONSTRUCT."""
_OWN: Final = "id of the result"
"""Column that no variable can be called."""
TABLE: Final = "table"
"""Format for terminals, for all three forms of query."""


def write_solutions(found: DataFrame, form: str, output: IO[bytes], most: int | None = None) -> None:
    """Write the solutions of a SELECT, a column of terms for each variable.

    Raises `QueryRefused` for invalid terms, and `ResultTooLarge` for more than `most` solutions.
    """
    header = "\t".join(f"?{name}" for name in found.columns)
    with _rows(found, most) as rows, _terms():
        lines = ("\t".join([term or "" for term in row]) for row in rows)
        read = ox.parse_query_results(_Stream(header, lines), ox.QueryResultsFormat.TSV)  # type: ignore[arg-type]
        assert isinstance(read, ox.QuerySolutions)  # noqa: S101  the input is not a boolean result
        if form == TABLE:
            tabular.write(found.columns, read, output)
        else:
            read.serialize(output, SOLUTIONS[form])


def write_boolean(answer: bool, form: str, output: IO[bytes]) -> None:
    """Write the answer of an ASK."""
    text = "true" if answer else "false"
    if form == TABLE:
        output.write(f"{text}\n".encode())
        return
    read = ox.parse_query_results(f'{{"head":{{}},"boolean":{text}}}', ox.QueryResultsFormat.JSON)
    read.serialize(output, SOLUTIONS[form])


def write_graph(triples: DataFrame, form: str, output: IO[bytes], most: int | None = None) -> None:
    """Write the triples of a CONSTRUCT, from the columns subject, predicate and object.

    Raises `QueryRefused` for invalid terms, and `ResultTooLarge` for more than `most` triples.
    """
    with _rows(triples, most) as rows, _terms():
        lines = (f"{' '.join(row)} ." for row in rows)
        read = ox.parse(_Stream("", lines), ox.RdfFormat.N_TRIPLES)  # type: ignore[arg-type]
        made = (quad.triple for quad in read)
        ox.serialize(_nameable(made) if form == "xml" else made, output, GRAPHS[form], prefixes=PREFIXES)


def _nameable(triples: Iterable[ox.Triple]) -> Iterator[ox.Triple]:
    """Return the triples. Raises `QueryRefused` for a predicate that RDF/XML cannot represent."""
    for triple in triples:
        if not is_element_name(triple.predicate.value):
            raise QueryRefused(f"{triple.predicate} cannot be a predicate in RDF/XML: ask for another format")
        yield triple


@contextmanager
def _rows(found: DataFrame, most: int | None) -> Iterator[Iterator[Any]]:
    """Iterate over the rows. Spark computes all partitions in parallel and keeps them on disk until they are read.

    Spark counts the rows before the first one. DuckDB yields them while it computes, so that `ResultTooLarge` may come
    after `most` of them.
    """
    if not compat.is_classic(found):
        rows = found.toLocalIterator()
        first = list(islice(rows, 1))  # an error comes before the first byte of the answer
        yield _counted(chain(first, rows), most)
        return
    # Without the cache toLocalIterator would compute one partition after the other.
    # Equal plans share a cache. With a column of its own, a result does not end with that of an equal query.
    kept = found.withColumn(_OWN, F.lit(str(uuid.uuid4()))).persist(StorageLevel.DISK_ONLY)
    try:
        count = kept.count()
        if most is not None and count > most:
            raise _too_many(most)
        yield kept.drop(_OWN).toLocalIterator(prefetchPartitions=True)
    finally:
        kept.unpersist()


def _counted(rows: Iterator[Any], most: int | None) -> Iterator[Any]:
    for count, row in enumerate(rows, 1):
        if most is not None and count > most:
            raise _too_many(most)
        yield row


def _too_many(most: int) -> ResultTooLarge:
    return ResultTooLarge(f"the result has more than {most} rows (--max-rows): add a LIMIT")


@contextmanager
def _terms() -> Iterator[None]:
    """Convert syntax errors into `QueryRefused`. An expression can create invalid terms, as an IRI with a space."""
    try:
        yield
    except SyntaxError as error:
        raise QueryRefused(f"a result of the query cannot be written: {error.msg}") from error


class _Stream:
    """Readable binary file over an iterable of lines."""

    def __init__(self, header: str, lines: Iterable[str]) -> None:
        self._lines = iter(lines)
        self._rest = f"{header}\n".encode()

    def read(self, size: int = -1) -> bytes:
        """Return up to `size` bytes, or b"" at the end."""
        if not self._rest:
            self._rest = b"".join(f"{line}\n".encode() for line in islice(self._lines, _LINES))
        found, self._rest = self._rest[:size], self._rest[size:]
        return found


_LINES: Final = 100
"""Number of lines that `_Stream` encodes at once."""
