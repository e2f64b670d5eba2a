"""CONSTRUCT: instantiate a template for each solution (SPARQL 1.1 Query, section 16.2)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it
from pyspark.sql.types import StringType, StructField, StructType

from edge.sparql.algebra import Variable
from spark_offload.local_rows import local_frame
from spark_offload.sparql import terms
from spark_offload.sparql.frames import Frame
from spark_offload.sparql.relational import PatternTerm, TriplePattern, hidden
from spark_offload.sparql.values import Value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SOLUTION = "solution"
"""Column with a number for each solution, which is part of the labels of its blank nodes."""


def constructed(solutions: Frame, template: tuple[TriplePattern, ...]) -> DataFrame:
    """Return the distinct triples in N-Triples, without those that are not valid RDF or have unbound variables."""
    columns = ("subject", "predicate", "object")
    numbered = solutions.rows.withColumn(_SOLUTION, F.monotonically_increasing_id())
    blanks = {
        name: place for place, name in enumerate(sorted({one for triple in template for one in triple.variables()}))
    }
    templates = [
        F.struct(
            *(
                _term(node, solutions.values, blanks).alias(name)
                for name, node in zip(columns, (triple.subject, triple.predicate, triple.object), strict=True)
            )
        )
        for triple in template
    ]
    if not templates:
        schema = StructType([StructField(name, StringType()) for name in columns])
        return local_frame(solutions.rows.sparkSession, [], schema)
    triples = numbered.select(F.explode(F.array(*templates)).alias("triple")).select(
        *(f"triple.{name}" for name in columns)
    )
    subject, predicate, object_ = map(F.col, columns)
    whole = [terms.is_iri(subject) | terms.is_blank(subject), terms.is_iri(predicate), object_.isNotNull()]
    return triples.where(reduce(Column.__and__, whole)).distinct()


def _term(node: PatternTerm, values: Mapping[str, Value], blanks: Mapping[str, int]) -> Column:
    if not isinstance(node, Variable):
        return F.lit(terms.written(node))
    if hidden(node.name):
        return F.concat(F.lit(f"_:c{blanks[node.name]}x"), F.col(_SOLUTION).cast("string"))
    known = values.get(node.name)
    return F.lit(None).cast("string") if known is None else known.term()
