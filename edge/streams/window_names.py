"""Names of windows in a query, and the graphs that hold their content."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from edge.sparql.terms_text import declarations_of
from edge.sparql.tokens import read_prologue, tokenize
from edge.streams.language import BASE


def with_graphs(sparql: str, graphs: Mapping[str, str]) -> str:
    """Return a query in which each `GRAPH` with the name of a window names its graph. `graphs`: IRI by IRI."""
    tokens = tokenize(sparql)
    _, begin = read_prologue(sparql, tokens, 0)
    declared = declarations_of(tokens[:begin], BASE)
    pieces: list[str] = []
    end = 0
    for keyword, name in pairwise(tokens[begin:]):
        if keyword.word() != "GRAPH" or name.kind not in ("iri", "name"):
            continue
        graph = graphs.get(declared.iri(name.text).value)
        if graph is not None:
            pieces += (sparql[end : name.start], f"<{graph}>")
            end = name.end
    return "".join((*pieces, sparql[end:]))
