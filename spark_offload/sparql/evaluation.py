"""Evaluation of the relational form over a table: each node becomes a `Frame`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import count
from typing import TYPE_CHECKING, Final, cast

from pyspark.sql import Column, Window
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it
from pyspark.sql.types import StringType, StructField, StructType

from edge.sparql import terms as rdf
from edge.sparql.algebra import Variable
from spark_offload.errors import QueryRefused
from spark_offload.local_rows import local_frame
from spark_offload.sparql import frames, lexical, relational, terms
from spark_offload.sparql.aggregates import grouped
from spark_offload.sparql.arithmetic import MAX_TIME_OPERANDS, OF_NUMBERS, numbers_only, operands
from spark_offload.sparql.closure import closure
from spark_offload.sparql.content import Content
from spark_offload.sparql.existence import marked, numbered, where_exists
from spark_offload.sparql.expressions import conjuncts, evaluated, holds
from spark_offload.sparql.frames import Frame, equal_terms, frame, grouping_key
from spark_offload.sparql.newest_suffice import LATEST, star_of_newest
from spark_offload.sparql.number_values import NumberValue
from spark_offload.sparql.optionals import in_rows
from spark_offload.sparql.ordering import sorting
from spark_offload.sparql.relational import ExistsTest, Expression, Pattern, TriplePattern
from spark_offload.sparql.scans import scan
from spark_offload.sparql.shared_values import shared
from spark_offload.sparql.stars import PREDICATES, Star, split
from spark_offload.sparql.values import MeasuredValue, TermValue, Value
from spark_offload.sparql.volatility import has_exists, volatile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CALLS: Final = count()
_PLACE: Final = "place"
_MAX_ROWS: Final = 2**31 - 1
_ARITHMETIC: Final = ("+", "-", "*", "/", *OF_NUMBERS.values())
_MAX_DEPTH: Final = 16
"""Limit of nested operations in one expression; more are columns. Spark's optimizer is recursive."""
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
            case relational.Basic():
                return self._basic(pattern)
            case relational.TransitiveClosure(step):
                return closure(self._spark, self.frame(step), pattern)
            case relational.NamedGraphs(variable):
                return self._graphs(variable)
            case relational.GraphExists(graph):
                at, inside = self._at(graph)
                rows = at._content.triples(None, general=False)
                rows = rows.where(F.col("graph").isNull() if inside is None else F.col("graph") == terms.written(graph))
                return Frame(rows.limit(1).select(), {}, frozenset())
            case relational.ComputedRows(rows):
                known = cast("Frame", rows)
                # New names of columns: a join may have the same rows on both sides.
                return frame(known.rows, known.values, known.certain)
            case relational.InlineRows():
                return self._values(pattern)
            case relational.InnerJoin(relational.Basic() as basic, other) | relational.InnerJoin(
                other, relational.Basic() as basic
            ) if star_of_newest(pattern) is basic:
                return frames.join(self.frame(other), self._basic(basic, newest=True))
            case relational.InnerJoin(left, right):
                return frames.join(self.frame(left), self.frame(right))
            case relational.LeftOuterJoin(left, right, condition):
                return self._in_rows(pattern) or self._optional(left, right, condition)
            case relational.UnionAll(left, right):
                return frames.union(self.frame(left), self.frame(right))
            case relational.AntiJoin(left, right):
                return frames.minus(self.frame(left), self.frame(right))
            case relational.Selection():
                return self._filter(*_unnested(pattern))
            case relational.ComputedColumn(inner, variable, expression):
                solutions, simple = self._simple(*shared(self.frame(inner), expression))
                return solutions.extended({variable: evaluated(simple, solutions.values)})
            case relational.Aggregation(inner, keys, aggregates):
                if isinstance(inner, relational.Basic) and star_of_newest(pattern) is inner:
                    return self._group(self._basic(inner, newest=True), keys, aggregates)
                return self._group(self.frame(inner), keys, aggregates)
            case relational.Sort(inner, conditions):
                return self._order(self.frame(inner), conditions)
            case relational.Projection(inner, variables):
                return self.frame(inner).only(variables)
            case relational.DistinctRows(relational.Projection(relational.Sort(inner, conditions), variables)):
                return self._distinct_in_order(inner, conditions, variables)
            case relational.DistinctRows(relational.Projection(relational.Basic() as basic, variables)) if (
                star_of_newest(pattern) is basic
            ):
                return frames.distinct(self._basic(basic, newest=True).only(variables))
            case relational.DistinctRows(inner):
                return frames.distinct(self.frame(inner))
            case relational.RowRange(inner, offset, limit):
                return self._slice(self.frame(inner), offset, limit)

    def _at(self, graph: relational.Graph) -> tuple[Evaluation, relational.Graph]:
        """Return where to evaluate the patterns of a graph: the evaluation of its rows, and the graph there."""
        if graph == LATEST:
            return Evaluation(self._spark, self._content.latest, wide=self._wide), None
        return self, graph

    def _basic(self, pattern: relational.Basic, *, newest: bool = False) -> Frame:
        """Return the solutions of a basic pattern. With `newest`, those of its star's newest rows suffice."""
        at, graph = self._at(pattern.graph)
        if not at._wide or isinstance(graph, tuple) or at._content.crossing:
            return _joined(_matches(triple, graph, at._content) for triple in pattern.triples)
        return at._found(*split(pattern.triples), graph, newest=newest)

    def _found(
        self,
        stars: Iterable[Star],
        rest: Iterable[TriplePattern],
        graph: relational.OneGraph,
        *,
        newest: bool = False,
    ) -> Frame:
        known = self._content.newest_whole_rows if newest else None
        rows = self._content.whole_rows if known is None else known
        found = [self._star(star, graph, rows) for star in stars]
        for triple in rest:
            by_row = not isinstance(triple.predicate, rdf.Iri) or triple.predicate.value in PREDICATES
            found.append(_matches(triple, graph, self._content, general=not by_row))
        return _joined(found)

    def _star(self, star: Star, graph: relational.OneGraph, rows: DataFrame) -> Frame:
        found = scan(star, self._content, graph, rows)
        if not self._content.general:
            return found
        return frames.union(
            found, _joined(_matches(triple, graph, self._content, general=True) for triple in star.triples)
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
        if not self._wide or (split := in_rows(pattern)) is None:
            return None
        at, graph = self._at(split.graph)
        if isinstance(graph, tuple) or not at._content.plain:
            return None
        return at._found(split.stars, split.rest, graph)

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
        solutions = self.frame(left)
        if any(has_exists(one) or volatile(one) for one in outside):
            # Such a condition cannot be part of a join: find the pairs that satisfy it, then join them.
            solutions, row = numbered(solutions, solutions.values)
            rows = relational.ComputedRows(frames.distinct(solutions), tuple(solutions.values), solutions.certain)
            right = relational.InnerJoin(rows, right)
            for one in outside:
                right = relational.Selection(right, one)
            return frames.left_join(solutions, self.frame(right), None).without(row)
        return frames.left_join(solutions, self.frame(right), _condition(outside) if outside else None)

    def _filter(self, pattern: Pattern, conditions: Sequence[Expression]) -> Frame:
        solutions = self.frame(pattern)
        kept = [one for one in conditions if not isinstance(one, ExistsTest)]
        if kept:
            # One expression for all, because variables that are used often are shared.
            known, one = shared(solutions, relational.FunctionCall("&&", tuple(kept)))
            known, simple = self._simple(known, one)
            solutions = replace(solutions, rows=known.where(holds(simple, known.values)).rows)
        for one in conditions:
            if isinstance(one, ExistsTest):
                solutions = where_exists(self.frame, solutions, one)
        return solutions

    def _simple(self, solutions: Frame, expression: Expression, depth: int = 0) -> tuple[Frame, Expression]:
        """Replace each EXISTS and each nested call in an expression with a column."""
        match expression:
            case ExistsTest():
                return marked(self.frame, solutions, expression)
            case relational.FunctionCall() if operands(expression) > MAX_TIME_OPERANDS:
                return self._simple(solutions, numbers_only(expression), depth)
            case relational.FunctionCall(name, arguments):
                simple = []
                for argument in arguments:
                    once = name in _CONNECTIVES or (name in _ARITHMETIC and _single_use(argument, solutions, depth))
                    solutions, one = (
                        self._simple(solutions, argument, depth + 1) if once else self._settled(solutions, argument)
                    )
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
            solutions, simple = self._settled(*shared(solutions, expression))
            made[name] = evaluated(simple, solutions.values)
        described: dict[str, tuple[relational.ColumnAggregate, Value | None]] = {}
        for name, aggregate in aggregates:
            if aggregate.argument is None:
                described[name] = (aggregate, None)
            else:
                solutions, simple = self._settled(*shared(solutions, aggregate.argument))
                described[name] = (aggregate, evaluated(simple, solutions.values))
        return grouped(solutions, made, described)

    def _order(self, solutions: Frame, conditions: Iterable[tuple[Expression, bool]]) -> Frame:
        solutions, columns = self._sort_columns(solutions, conditions)
        return replace(solutions, rows=solutions.rows.orderBy(*columns))

    def _sort_columns(
        self, solutions: Frame, conditions: Iterable[tuple[Expression, bool]]
    ) -> tuple[Frame, list[Column]]:
        columns: list[Column] = []
        for expression, descending in conditions:
            solutions, simple = self._settled(*shared(solutions, expression))
            columns += [
                # Unbound variables are the lowest (section 15.1).
                column.desc_nulls_last() if descending else column.asc_nulls_first()
                for column in sorting(evaluated(simple, solutions.values))
            ]
        return solutions, columns

    def _distinct_in_order(
        self, inner: Pattern, conditions: tuple[tuple[Expression, bool], ...], variables: tuple[str, ...]
    ) -> Frame:
        """Remove duplicates of ordered solutions, of which the first keep their places."""
        used = frozenset[str]().union(*(relational.mentioned(expression) for expression, _ in conditions))
        if used <= {*variables} and not any(volatile(expression) for expression, _ in conditions):
            distinct = frames.distinct(self.frame(relational.Projection(inner, variables)))
            return self._order(distinct, conditions).only(variables)
        solutions, columns = self._sort_columns(self.frame(inner), conditions)
        keys = [column for name in variables if name in solutions.values
                for column in grouping_key(solutions.values[name]).columns()]  # fmt: skip
        place = F.row_number().over(Window.partitionBy(*(keys or [F.lit(1)])).orderBy(*columns))
        first = solutions.rows.withColumn(_PLACE, place).where(F.col(_PLACE) == 1)
        return replace(solutions, rows=first.orderBy(*columns)).only(variables)

    def _slice(self, solutions: Frame, offset: int, limit: int | None) -> Frame:
        if offset > _MAX_ROWS:
            raise QueryRefused(f"an OFFSET of more than {_MAX_ROWS} is not supported")
        # OFFSET applies before LIMIT, in whichever order the query has them (15.4 and 15.5).
        rows = solutions.rows if not offset else solutions.rows.offset(offset)
        # Spark's limits are 32-bit integers, also the sum of both. No answer has as many rows as a larger one permits.
        if limit is None or limit + offset > _MAX_ROWS:
            return replace(solutions, rows=rows)
        return replace(solutions, rows=rows.limit(limit))


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
    elif isinstance(graph, tuple):
        rows = rows.where(F.col("graph").isin(*map(terms.written, graph)))
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

    return column


def _unnested(pattern: Pattern) -> tuple[Pattern, list[Expression]]:
    """Return the pattern below all its conditions, and the conditions."""
    conditions: list[Expression] = []
    while isinstance(pattern, relational.Selection):
        conditions[:0] = conjuncts(pattern.condition)
        pattern = pattern.pattern
    return pattern, conditions


def _single_use(argument: Expression, solutions: Frame, depth: int) -> bool:
    """Return whether arithmetic uses each column of an argument once, so that it needs no column of its own."""
    if depth % _MAX_DEPTH == _MAX_DEPTH - 1 or not isinstance(argument, relational.FunctionCall):
        return False
    return argument.name in _ARITHMETIC and _number(argument, solutions)


def _number(expression: Expression, solutions: Frame) -> bool:
    """Return whether an expression is a number in all rows: neither a time nor a duration."""
    match expression:
        case relational.FunctionCall("+" | "-", (left, right)):
            return _number(left, solutions) or _number(right, solutions)
        case relational.FunctionCall(name):
            return name in _ARITHMETIC
        case rdf.Literal():
            return expression.datatype.value in lexical.NUMBERS
        case Variable(name):
            return isinstance(solutions.values.get(name), (NumberValue, MeasuredValue))
        case _:
            return False
