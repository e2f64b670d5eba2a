"""Size and time limits for query results during serialisation, for all formats."""

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
    """Output buffer of a serialiser with limits; its exceptions end the evaluation too."""

    def __init__(self, max_bytes: int, seconds: float, setting: str = "http.max_result") -> None:
        """`setting`: name of the setting for `max_bytes`, for messages."""
        super().__init__()
        self._max_bytes = max_bytes
        self._seconds = seconds
        self._setting = setting
        self._deadline = time.monotonic() + seconds

    def write(self, data: Buffer, /) -> int:
        """Write data. Raises `ResultTooLarge`, `RequestTimeout`."""
        written = super().write(data)
        if self.tell() > self._max_bytes:
            raise ResultTooLarge(f"The result is larger than {self._max_bytes} bytes ({self._setting}); ask for less")
        if time.monotonic() > self._deadline:
            raise RequestTimeout(f"The query took longer than {self._seconds:g} s (engine.query_timeout); ask for less")
        return written


def as_results(answer: Answer, output: ResultLimit) -> str:
    """Return an answer as an object of the SPARQL 1.1 Query Results JSON format, as for subscribers.

    Triples of CONSTRUCT and DESCRIBE become bindings of subject, predicate and object.
    """
    if isinstance(answer, ox.QueryTriples):
        rows = []
        for triple in answer:
            rows.append((triple.subject, triple.predicate, triple.object))
            # placeholder of at most the final size, so that the limits apply during the evaluation
            output.write(b" " * len(str(triple)))
        return results_to_json(_GRAPH, rows)
    answer.serialize(output, format=ox.QueryResultsFormat.JSON)
    return output.getvalue().decode()
