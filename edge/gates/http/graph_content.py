"""The content of one graph, as a representation with a strong entity tag (RFC 9110, section 8.8.3)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Final

import pyoxigraph as ox

from edge.engine.requests import Answer, QueryRequest
from edge.gates.http.formats import GRAPH_FORMATS, serialize_graph
from edge.protocol.access import DEFAULT_GRAPH, Access

_TAG_LENGTH: Final = 32
"""Hexadecimal digits of an entity tag: 128 bits of SHA-256."""


@dataclass(frozen=True, slots=True)
class Representation:
    """A graph in one format."""

    content: bytes
    tag: str
    """Its entity tag."""


@dataclass(frozen=True, slots=True)
class GraphReader:
    """Reads one graph. `max_bytes` and `seconds` limit the result."""

    graph: str
    """IRI; empty for the default graph."""
    max_bytes: int
    seconds: float

    def request(self, access: Access, source: str) -> QueryRequest:
        """Return the query for the triples of the graph. `access` must permit to read the graph.

        Its answer has no row if the graph does not exist, and a row without terms if it is empty.
        """
        if self.graph == DEFAULT_GRAPH:
            # Only this graph is readable, so that the default graph is not the union of all graphs.
            only = replace(access, read=frozenset({DEFAULT_GRAPH}))
            return QueryRequest("SELECT ?s ?p ?o { OPTIONAL { ?s ?p ?o } }", access=only, source=source)
        # A graph in a dataset of readable graphs would seem to exist. This query reads no other graph.
        text = f"SELECT ?s ?p ?o {{ GRAPH {ox.NamedNode(self.graph)} {{ OPTIONAL {{ ?s ?p ?o }} }} }}"
        return QueryRequest(text, access=replace(access, read=None), source=source)

    def representation(self, media_type: str) -> Callable[[Answer], Representation | None]:
        """Return a function that reads the answer as a representation; None: the graph does not exist."""

        def read(answer: Answer) -> Representation | None:
            lines = _lines(answer)
            if lines is None:
                return None
            content = serialize_graph((triple for _, triple in lines), media_type, self.max_bytes, self.seconds)
            return Representation(content, tag(_digest(lines), media_type))

        return read

    def tags(self, answer: Answer) -> frozenset[str]:
        """Return the entity tags of the graph in all formats; none if it does not exist."""
        lines = _lines(answer)
        if lines is None:
            return frozenset()
        digest = _digest(lines)
        return frozenset(tag(digest, media_type) for media_type in GRAPH_FORMATS)


def _lines(answer: Answer) -> Sequence[tuple[str, ox.Triple]] | None:
    """Return the triples and their texts, in the order of the texts: equal graphs give equal bytes.

    None: the graph does not exist. A graph with many triples is read in a forked process, with a limit of memory.
    """
    lines: list[tuple[str, ox.Triple]] = []
    exists = False
    for subject, predicate, object_ in answer:  # type: ignore[union-attr]  # the rows of a SELECT
        exists = True
        if predicate is not None:
            triple = ox.Triple(subject, predicate, object_)
            lines.append((str(triple), triple))
    lines.sort(key=itemgetter(0))
    return lines if exists else None


def _digest(lines: Sequence[tuple[str, ox.Triple]]) -> bytes:
    digest = hashlib.sha256()
    for line, _ in lines:
        digest.update(f"{line} .\n".encode())
    return digest.digest()


def tag(digest: bytes, media_type: str) -> str:
    """Return the entity tag of a graph with this digest in one format."""
    found = hashlib.sha256(digest + media_type.encode()).hexdigest()
    return f'"{found[:_TAG_LENGTH]}"'
