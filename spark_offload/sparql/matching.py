"""Matching of a triple pattern against triples, without duplicates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import rdflib
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from spark_offload.sparql import terms
from spark_offload.sparql.algebra import Graph, TriplePattern, Variable
from spark_offload.sparql.content import Content
from spark_offload.sparql.frames import Frame, equal_terms, frame
from spark_offload.sparql.values import Term, Value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def matches(pattern: TriplePattern, graph: Graph, content: Content, *, general: bool = False) -> Frame:
    """Return the solutions of a pattern over all triples, or over those of the general rows."""
    known = None if isinstance(pattern.predicate, Variable) else {str(pattern.predicate)}
    rows: DataFrame = content.triples(known, general=general)
    bound: dict[str, Value] = {}
    places = (("subject", pattern.subject), ("predicate", pattern.predicate), ("object", pattern.object))
    for place, node in places:
        column = F.col(place)
        if not isinstance(node, Variable):
            rows = rows.where(column == terms.written(node))
        elif node.name in bound:
            rows = rows.where(equal_terms(bound[node.name], Term(column)))
        else:
            bound[node.name] = Term(column)
    if graph is None:
        rows = rows.where(F.col("graph").isNull())
    elif isinstance(graph, rdflib.URIRef):
        rows = rows.where(F.col("graph") == terms.written(graph))
    else:
        rows = rows.where(F.col("graph").isNotNull())
        bound[graph.name] = Term(F.col("graph"))
    return frame(rows.distinct(), bound, bound)
