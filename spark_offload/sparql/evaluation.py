"""Evaluation of the relational form over a table: each node becomes a `Frame`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import count
from typing import TYPE_CHECKING, Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it
from pyspark.sql.types import StringType, StructField, StructType

from edge.sparql import terms as rdf
from edge.sparql.algebra import Variable
from spark_offload.errors import QueryRefused
from spark_offload.local_rows import local_frame
from spark_offload.sparql import frames, relational, terms
from spark_offload.sparql.aggregates import grouped
from spark_offload.sparql.content import Content
from spark_offload.sparql.existence import marked, where_exists
from spark_offload.sparql.expressions import conjuncts, evaluated, holds
from spark_offload.sparql.frames import Frame, equal_terms, frame
from spark_offload.sparql.optionals import in_rows
from spark_offload.sparql.ordering import sorting
from spark_offload.sparql.relational import ExistsTest, Expression, Pattern, TriplePattern
from spark_offload.sparql.scans import scan
from spark_offload.sparql.stars import PREDICATES, Star, split
from spark_offload.sparql.values import TermValue, Value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CALLS: Final = count()
_CONNECTIVES: Final = ("&&", "||", "!")
"""Operators that use each argument only once."""


class Evaluation:
    """Evaluation of patterns over one version of a table."""

    def __init__(self, spark: SparkSession, content: Content, *, wide: bool = True) -> None:
        """With `wide`, stars are scans of rows. Otherwise all patterns match triples: slow, but simple to verify."""
        self._spark = spark
        self._content = content
        self._wide = wide

    def frame(self, pattern: Pattern) -> Frame:
        """Return the solutions of a pattern. Raises `QueryRefused`."""
        match pattern:
            case relational.Basic(triples, graph):
                return self._basic(triples, graph)
            case relational.NamedGraphs(variable):
                return self._graphs(variable)
            case relational.InlineRows():
                return self._values(pattern)
            case relational.InnerJoin(left, right):
                return frames.join(self.frame(left), self.frame(right))
            case relational.LeftOuterJoin(left, right, condition):
                return self._in_rows(pattern) or self._optional(left, right, condition)
            case relational.UnionAll(left, right):
                return frames.union(self.frame(left), self.frame(right))
            case relational.AntiJoin(left, right):
                return frames.minus(self.frame(left), self.frame(right))
            case relational.Selection(inner, condition):
                return self._filter(self.frame(inner), condition)
            case relational.ComputedColumn(inner, variable, expression):
                solutions, simple = self._simple(self.frame(inner), expression)
                return solutions.extended({variable: evaluated(simple, solutions.values)})
            case relational.Aggregation(inner, keys, aggregates):
                return self._group(self.frame(inner), keys, aggregates)
            case relational.Sort(inner, conditions):
                return self._order(self.frame(inner), conditions)
            case relational.Projection(inner, variables):
                return self.frame(inner).only(variables)
            case relational.DistinctRows(inner):
                return frames.distinct(self.frame(inner))
            case relational.RowRange(inner, offset, limit):
                return self._slice(self.frame(inner), offset, limit)

    def _basic(self, triples: tuple[TriplePattern, ...], graph: relational.Graph) -> Frame:
        if not self._wide or self._content.crossing:
            return _joined(_matches(triple, graph, self._content) for triple in triples)
        return self._found(*split(triples), graph)

    def _found(self, stars: Iterable[Star], rest: Iterable[TriplePattern], graph: relational.Graph) -> Frame:
        found = [self._star(star, graph) for star in stars]
        for triple in rest:
            by_row = not isinstance(triple.predicate, rdf.Iri) or triple.predicate.value in PREDICATES
            found.append(_matches(triple, graph, self._content, general=not by_row))
        return _joined(found)

    def _star(self, star: Star, graph: relational.Graph) -> Frame:
        rows = scan(star, self._content, graph)
        if not self._content.general:
            return rows
        return frames.union(
            rows, _joined(_matches(triple, graph, self._content, general=True) for triple in star.triples)
        )

    def _graphs(self, variable: str) -> Frame:
        rows = self._content.triples(None, general=False).where(F.col("graph").isNotNull()).select("graph").distinct()
        return frame(rows, {variable: TermValue(F.col("graph"))}, [variable])

    def _values(self, inline: relational.InlineRows) -> Frame:
        variables, rows = inline.variables, inline.rows
        if not variables:
            # Rows without columns: the number of solutions counts even if they bind nothing.
            return Frame(self._spark.range(len(rows)).select(), {}, frozenset())
        written = [[None if one is None else terms.written(one) for one in row] for row in rows]
        names = [f"column {place}" for place in range(len(variables))]
        schema = StructType([StructField(name, StringType()) for name in names])
        certain = [name for place, name in enumerate(variables) if all(row[place] is not None for row in rows)]
        values = {variable: TermValue(F.col(name)) for variable, name in zip(variables, names, strict=True)}
        return frame(local_frame(self._spark, written, schema), values, certain)

    def _in_rows(self, pattern: relational.LeftOuterJoin) -> Frame | None:
        """Evaluate OPTIONALs within the scan of rows. Returns None if they must be joined."""
        if not (self._wide and self._content.plain) or (split := in_rows(pattern)) is None:
            return None
        return self._found(split.stars, split.rest, split.graph)

    def _optional(self, left: Pattern, right: Pattern, condition: Expression | None) -> Frame:
        # A condition on variables of the right side alone filters that side before the join. Others depend on both
        # sides.
        known = relational.certain(right)
        outside = []
        for one in conjuncts(condition) if condition else ():
            if relational.mentioned(one) <= known:
                right = relational.Selection(right, one)
            else:
                outside.append(one)
        return frames.left_join(self.frame(left), self.frame(right), _condition(outside) if outside else None)

    def _filter(self, solutions: Frame, condition: Expression) -> Frame:
        for one in conjuncts(condition):
            if isinstance(one, ExistsTest):
                solutions = where_exists(self.frame, solutions, one)
            else:
                kept, simple = self._simple(solutions, one)
                solutions = replace(solutions, rows=kept.where(holds(simple, kept.values)).rows)
        return solutions

    def _simple(self, solutions: Frame, expression: Expression) -> tuple[Frame, Expression]:
        """Replace each EXISTS and each nested call in an expression with a column."""
        match expression:
            case ExistsTest():
                return marked(self.frame, solutions, expression)
            case relational.FunctionCall(name, arguments):
                simple = []
                step = self._simple if name in _CONNECTIVES else self._settled
                for argument in arguments:
                    solutions, one = step(solutions, argument)
                    simple.append(one)
                return solutions, relational.FunctionCall(name, tuple(simple))
            case _:
                return solutions, expression

    def _settled(self, solutions: Frame, expression: Expression) -> tuple[Frame, Expression]:
        """Simplify an expression that is used more than once, and make a call itself a column.

        Functions repeat their arguments in the generated SQL. Without the column, nested calls would grow the plan
        exponentially.
        """
        solutions, simple = self._simple(solutions, expression)
        if not isinstance(simple, relational.FunctionCall):
            return solutions, simple
        name = f"call {next(_CALLS)}"
        return solutions.extended({name: evaluated(simple, solutions.values)}), Variable(name)

    def _group(
        self,
        solutions: Frame,
        keys: Iterable[tuple[str, Expression]],
        aggregates: Iterable[tuple[str, relational.ColumnAggregate]],
    ) -> Frame:
        made: dict[str, Value] = {}
        for name, expression in keys:
            solutions, simple = self._settled(solutions, expression)
            made[name] = evaluated(simple, solutions.values)
        described: dict[str, tuple[relational.ColumnAggregate, Value | None]] = {}
        for name, aggregate in aggregates:
            if aggregate.argument is None:
                described[name] = (aggregate, None)
            else:
                solutions, simple = self._settled(solutions, aggregate.argument)
                described[name] = (aggregate, evaluated(simple, solutions.values))
        return grouped(solutions, made, described)

    def _order(self, solutions: Frame, conditions: Iterable[tuple[Expression, bool]]) -> Frame:
        columns: list[Column] = []
        for expression, descending in conditions:
            solutions, simple = self._settled(solutions, expression)
            columns += [
                # Unbound variables are the lowest (section 15.1).
                column.desc_nulls_last() if descending else column.asc_nulls_first()
                for column in sorting(evaluated(simple, solutions.values))
            ]
        return replace(solutions, rows=solutions.rows.orderBy(*columns))

    def _slice(self, solutions: Frame, offset: int, limit: int | None) -> Frame:
        # OFFSET applies before LIMIT, in whichever order the query has them (15.4 and 15.5).
        rows = solutions.rows if not offset else solutions.rows.offset(offset)
        return replace(solutions, rows=rows if limit is None else rows.limit(limit))


def _matches(pattern: TriplePattern, graph: relational.Graph, content: Content, *, general: bool = False) -> Frame:
    """Return the distinct solutions of a triple pattern over all triples, or over those of the general rows."""
    known = {pattern.predicate.value} if isinstance(pattern.predicate, rdf.Iri) else None
    rows: DataFrame = content.triples(known, general=general)
    bound: dict[str, Value] = {}
    places = (("subject", pattern.subject), ("predicate", pattern.predicate), ("object", pattern.object))
    for place, node in places:
        column = F.col(place)
        if not isinstance(node, Variable):
            rows = rows.where(column == terms.written(node))
        elif node.name in bound:
            rows = rows.where(equal_terms(bound[node.name], TermValue(column)))
        else:
            bound[node.name] = TermValue(column)
    if graph is None:
        rows = rows.where(F.col("graph").isNull())
    elif isinstance(graph, rdf.Iri):
        rows = rows.where(F.col("graph") == terms.written(graph))
    else:
        rows = rows.where(F.col("graph").isNotNull())
        bound[graph.name] = TermValue(F.col("graph"))
    return frame(rows.distinct(), bound, bound)


def _joined(found: Iterable[Frame]) -> Frame:
    """Join all frames, preferring frames with common variables to avoid cross joins."""
    first, *others = found
    while others:
        place = next((place for place, one in enumerate(others) if first.values.keys() & one.values.keys()), 0)
        first = frames.join(first, others.pop(place))
    return first


def _condition(conditions: Sequence[Expression]) -> frames.Condition:
    def column(values: Mapping[str, Value]) -> Column:
        return reduce(Column.__and__, [holds(one, values) for one in conditions])

    if any(isinstance(one, ExistsTest) for one in conditions):
        raise QueryRefused("EXISTS in the FILTER of an OPTIONAL is not supported")
    return column
