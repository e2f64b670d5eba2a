"""Reports of registered continuous queries (docs/streams.md), for applications."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import pyoxigraph as ox

from edge.client.errors import BadAnswer
from edge.client.results import Result, Rows, read_rows

_REMOVED: Final = ox.NamedNode("urn:edge:removed")
"""Graph of the triples that a correction removes."""


@dataclass(frozen=True, slots=True)
class Report:
    """A report of a continuous query."""

    query: str
    """Name of the query."""
    number: int
    """Number of the report in its query, from 1 without gaps."""
    time: datetime | None
    """Time of which it is the result, with time zone; None if it has no calendar date."""
    result: Result
    """Rows of a SELECT, truth value of an ASK, or triples of a CONSTRUCT or DESCRIBE."""
    merged: int = 1
    """Number of reports that it stands for, because the application or the network was slow."""
    missed: int = 0
    """Number of reports before it that this client has not received."""
    correction: bool = False
    """Whether it corrects the report of an earlier time, which is its `time`. `result` is then what that one lacks."""
    removed: Rows | Sequence[ox.Triple] = ()
    """Rows or triples that the corrected report should not have."""

    @property
    def rows(self) -> Rows:
        """Rows of a SELECT. Raises `BadAnswer` for other forms."""
        if not isinstance(self.result, Rows):
            raise BadAnswer(f'the query "{self.query}" has another form: its reports have no rows')
        return self.result

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> Report:
        """Parse a report of the gateway. Raises `BadAnswer`."""
        try:
            content, correction = message["content"], message.get("correction") is True
            removed: Rows | Sequence[ox.Triple] = ()
            if isinstance(content, str):
                result, removed = _triples(content)
            elif isinstance(truth := content.get("boolean"), bool):
                result = truth
            else:
                result = read_rows(content)
                if "removed" in content:
                    removed = read_rows({"head": content.get("head", {}), "results": content["removed"]})
            number, merged = int(message["number"]), int(message.get("merged", 1))
            return cls(
                str(message["query"]), number, _time(message.get("time")), result, merged, 0, correction, removed
            )
        except (LookupError, TypeError, ValueError, AttributeError, SyntaxError) as error:
            raise BadAnswer(f"not a report: {message!r:.200}") from error


def _triples(text: str) -> tuple[Result, Sequence[ox.Triple]]:
    """Return the triples of N-Triples, or those that an N-Quads correction adds and removes."""
    quads = list(ox.parse(text, format=ox.RdfFormat.N_QUADS))
    added: Result = [quad.triple for quad in quads if quad.graph_name != _REMOVED]
    return added, [quad.triple for quad in quads if quad.graph_name == _REMOVED]


def _time(text: object) -> datetime | None:
    try:
        return datetime.fromisoformat(str(text))
    except ValueError:
        return None
