"""Query texts, with the names of streams as they are registered."""

from __future__ import annotations

from dataclasses import replace

from edge.streams.language import parse
from edge.streams.model import ContinuousQuery
from edge.streams.names import stream_iri


def read_query_text(text: str, now: int, origin: int) -> ContinuousQuery:
    """Parse a query, and name its streams as they are registered.

    `now`: begin of LANDMARK NOW. `origin`: alignment of time windows without START. Both in microseconds since 1970.
    Raises `ParsingFailed`, `InvalidRequest`.
    """
    query = parse(text, now=now, t0=origin)
    windows = (
        replace(window, definition=replace(window.definition, stream=stream_iri(window.definition.stream)))
        for window in query.windows
    )
    return replace(query, windows=tuple(windows))
