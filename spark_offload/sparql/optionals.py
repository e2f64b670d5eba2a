"""OPTIONAL whose patterns are about a row that a star before it has found: columns that may be empty, and no join."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from spark_offload.sparql.algebra import Basic, Graph, LeftJoin, Pattern, TriplePattern, visible
from spark_offload.sparql.stars import Star, split


class InRows(NamedTuple):
    """A basic graph pattern with all that is optional to it."""

    stars: list[Star]
    rest: list[TriplePattern]
    graph: Graph


def in_rows(pattern: LeftJoin) -> InRows | None:
    """None: it has to be joined."""
    rights: list[Basic] = []
    left: Pattern = pattern
    while isinstance(left, LeftJoin):
        if left.condition is not None or not isinstance(left.right, Basic):
            return None
        rights.append(left.right)
        left = left.left
    if not isinstance(left, Basic):
        return None
    stars, rest = split(left.triples)
    seen = visible(left)
    for right in reversed(rights):
        found, others = split(right.triples)
        if right.graph != left.graph or len(found) != 1 or others:
            return None
        hosts = [place for place, star in enumerate(stars) if set(star.resources) & set(found[0].resources)]
        if len(hosts) != 1:
            return None
        host = stars[hosts[0]]
        named = visible(right)
        if named & (seen - visible(Basic(host.triples, left.graph))):
            return None
        seen |= named
        stars[hosts[0]] = replace(host, optional=(*host.optional, found[0]))
    return InRows(stars, rest, left.graph)
