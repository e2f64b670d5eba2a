"""Which streams have the results of a query: its own, and those to which its observers report."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from edge.protocol.errors import InvalidRequest
from edge.streams.running_query import RunningQuery
from edge.streams.stream import Stream

Feeds = Mapping[str, Collection[str]]
"""Streams whose elements are the reports of a query, besides its own, by the name of the query."""


def check_feed(query: RunningQuery, stream: Stream, queries: Collection[RunningQuery], feeds: Feeds) -> None:
    """Check that the reports of a query may become elements of a stream. `queries`: all that there are.

    Raises `InvalidRequest`, also if the query would then read its own results.
    """
    if not query.makes_graphs:
        raise InvalidRequest("Only a CONSTRUCT or DESCRIBE query can report to a stream")
    if stream.source:
        raise InvalidRequest(f"This stream has the elements of {stream.source}; report to another one")
    if stream.iri in _sources(query, queries, feeds):
        raise InvalidRequest(f"The query would read its own results, by the stream {stream.iri}")


def _sources(query: RunningQuery, queries: Collection[RunningQuery], feeds: Feeds) -> set[str]:
    """Return all streams on which the results of a query depend."""
    found: set[str] = set()
    waiting = [query]
    while waiting:
        for window in waiting.pop().query.windows:
            iri = window.definition.stream
            if iri not in found:
                found.add(iri)
                waiting += [each for each in queries if iri in (*feeds.get(each.name, ()), each.output_stream)]
    return found
