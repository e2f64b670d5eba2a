"""OPTIONAL without a join: its patterns describe the row of a preceding star, and its columns may be null."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from spark_offload.sparql.relational import Basic, Graph, LeftOuterJoin, Pattern, TriplePattern, visible
from spark_offload.sparql.stars import Star, split


class InRows(NamedTuple):
    """A basic graph pattern and its optional parts, which are members of the stars."""

    stars: list[Star]
    rest: list[TriplePattern]
    graph: Graph


def in_rows(pattern: LeftOuterJoin) -> InRows | None:
    """Return the stars with their optional parts, or None if the pattern requires a join."""
    # OPTIONAL nests to the left: the innermost left side is the required part, `rights` has the last OPTIONAL first.
    rights: list[Basic] = []
    left: Pattern = pattern
    while isinstance(left, LeftOuterJoin):
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
        # The optional star must share a resource with exactly one star: then both are about the same row.
        hosts = [place for place, star in enumerate(stars) if set(star.resources) & set(found[0].resources)]
        if len(hosts) != 1:
            return None
        host = stars[hosts[0]]
        named = visible(right)
        # A variable that another star or an earlier OPTIONAL binds would be a join condition.
        if named & (seen - visible(Basic(host.triples, left.graph))):
            return None
        seen |= named
        stars[hosts[0]] = replace(host, optional=(*host.optional, found[0]))
    return InRows(stars, rest, left.graph)
