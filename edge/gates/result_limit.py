"""The results of a query while they are written: within limits, in whatever format."""

from __future__ import annotations

import io
import time
from typing import TYPE_CHECKING

import pyoxigraph as ox

from edge.engine.requests import Answer
from edge.protocol.errors import RequestTimeout, ResultTooLarge
from edge.protocol.results import results_to_json

if TYPE_CHECKING:
    from typing_extensions import Buffer

_GRAPH = ("subject", "predicate", "object")


class ResultLimit(io.BytesIO):
    """Takes in what a serialiser writes, within limits: what it raises ends the evaluation, too."""

    def __init__(self, max_bytes: int, seconds: float, setting: str = "http.max_result") -> None:
        """`setting` is where `max_bytes` comes from."""
        super().__init__()
        self._max_bytes = max_bytes
        self._seconds = seconds
        self._setting = setting
        self._deadline = time.monotonic() + seconds

    def write(self, data: Buffer, /) -> int:
        """Take in more. Raises `ResultTooLarge`, `RequestTimeout`."""
        written = super().write(data)
        if self.tell() > self._max_bytes:
            raise ResultTooLarge(f"The result is larger than {self._max_bytes} bytes ({self._setting}); ask for less")
        if time.monotonic() > self._deadline:
            raise RequestTimeout(f"The query took longer than {self._seconds:g} s (engine.query_timeout); ask for less")
        return written


def as_results(answer: Answer, output: ResultLimit) -> str:
    """An answer as an object of the SPARQL 1.1 Query Results JSON format, as subscribers get it.

    The triples of CONSTRUCT and DESCRIBE are bindings of subject, predicate and object.
    """
    if isinstance(answer, ox.QueryTriples):
        rows = []
        for triple in answer:
            rows.append((triple.subject, triple.predicate, triple.object))
            output.write(b" " * len(str(triple)))  # what is written of it is longer: the limits hold before the end
        return results_to_json(_GRAPH, rows)
    answer.serialize(output, format=ox.QueryResultsFormat.JSON)
    return output.getvalue().decode()
