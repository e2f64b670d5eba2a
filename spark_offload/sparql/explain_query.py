"""Description of the evaluation of a query: the algebra, scans and joins, and Spark's plan."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from edge.sparql import terms as rdf
from spark_offload.sparql import algebra, terms
from spark_offload.sparql.algebra import Expression, Node, Pattern, TriplePattern, Variable
from spark_offload.sparql.content import Content
from spark_offload.sparql.optionals import in_rows
from spark_offload.sparql.stars import PREDICATES, Star, split

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def explained(query: algebra.Query, content: Content, plan: DataFrame, *, wide: bool) -> str:
    """Return the description as a text of several lines."""
    # PySpark only prints the plan. The JVM object returns it as a text.
    formatted = str(plan._jdf.queryExecution().explainString(_mode(plan)))
    lines = [query.form, *(f"  {line}" for line in _lines(query.pattern, content, wide=wide))]
    lines += ["", "Reads from the table:", *(f"  {line}" for line in _reading(formatted))]
    return "\n".join([*lines, "", "Spark's plan:", formatted])


def _mode(plan: DataFrame) -> object:
    jvm = plan.sparkSession._jvm
    assert jvm is not None  # noqa: S101  it has run
    return jvm.org.apache.spark.sql.execution.ExplainMode.fromString("formatted")


def _reading(formatted: str) -> Iterator[str]:
    """Yield the columns and the pushed-down filters of each scan in Spark's plan."""
    for block in map(str.strip, formatted.split("\n\n")):
        if re.match(r"\(\d+\) Scan (parquet|ExistingRDD)?", block) and "PushedFilters" in block:
            number = block.split(" ", 1)[0]
            output = re.search(r"Output(?: \[\d+\])?: \[(.*)\]", block)
            columns = sorted(set(re.findall(r"(\w+)#\d+", output[1]))) if output else []
            yield f"scan {number} columns: {', '.join(columns) or 'none'}"
            for name, label in (("PartitionFilters", "days"), ("PushedFilters", "conditions")):
                if found := re.search(rf"^{name}: \[(.*)\]$", block, re.MULTILINE):
                    yield f"scan {number} {label}: {re.sub(r'#[0-9]+L?', '', found[1])}"


def _lines(pattern: Pattern, content: Content, *, wide: bool) -> Iterator[str]:
    """Yield a line for each node of the algebra, indented by depth."""
    match pattern:
        case algebra.Basic(triples, graph):
            yield from _basic(triples, graph, content, wide=wide)
            return
        case algebra.LeftJoin() if wide and content.plain and (found := in_rows(pattern)):
            yield from _stars(found.stars, found.rest, found.graph, content)
            return
        case algebra.Values(variables, rows):
            yield f"VALUES of {_names(variables)}: {len(rows)} rows"
        case algebra.Graphs():
            yield "the named graphs, from all triples"
        case algebra.LeftJoin(_, _, condition):
            yield "OPTIONAL" if condition is None else f"OPTIONAL where {_text(condition)}"
        case algebra.Filter(_, condition):
            yield f"FILTER {_text(condition)}"
        case algebra.Extend(_, variable, expression):
            yield f"BIND {_text(expression)} AS ?{variable}"
        case algebra.Group(_, keys, aggregates):
            by = ", ".join(_text(expression) for _, expression in keys) or "nothing"
            listed = ", ".join(
                f"{one.name}({'*' if one.argument is None else _text(one.argument)})" for _, one in aggregates
            )
            yield f"GROUP BY {by}: {listed}"
        case algebra.OrderBy(_, conditions):
            yield "ORDER BY " + ", ".join(f"{_text(one)}{' descending' if down else ''}" for one, down in conditions)
        case algebra.Project(_, variables):
            yield f"only {_names(variables)}"
        case algebra.Slice(_, offset, limit):
            yield f"rows from {offset + 1}" + ("" if limit is None else f", {limit} at most")
        case other:
            yield type(other).__name__.upper()
    for inner in (getattr(pattern, name, None) for name in ("pattern", "left", "right")):
        if inner is not None:
            yield from (f"  {line}" for line in _lines(inner, content, wide=wide))


def _basic(triples: tuple[TriplePattern, ...], graph: algebra.Graph, content: Content, *, wide: bool) -> Iterator[str]:
    if not wide or content.crossing:
        why = "some quads describe mapped observations" if wide else "requested with wide=False"
        yield f"{len(triples)} patterns{_where(graph)}, each over all triples, joined ({why})"
        yield from (f"  {_triple(triple)}" for triple in triples)
        return
    yield from _stars(*split(triples), graph, content)


def _stars(
    stars: Iterable[Star], rest: Iterable[TriplePattern], graph: algebra.Graph, content: Content
) -> Iterator[str]:
    where = _where(graph)
    for star in stars:
        yield f"a star{where}: one scan of rows, {len(star.triples)} patterns"
        yield from (f"  {name} {_node(node)}" for name, node in (*star.resources, *star.cells))
        for more in star.optional:
            new = [one for one in more.resources if one not in star.resources]
            yield f"  OPTIONAL {', '.join(f'{name} {_node(node)}' for name, node in (*new, *more.cells))}"
        if content.general:
            yield "  and the same patterns over the triples of observations that clients wrote, joined"
    for triple in rest:
        every = not isinstance(triple.predicate, rdf.Iri) or triple.predicate.value in PREDICATES
        yield f"over {'all triples' if every else 'triples that clients wrote'}{where}: {_triple(triple)}"


def _where(graph: algebra.Graph) -> str:
    return "" if graph is None else f" in graph {_node(graph)}"


def _triple(triple: TriplePattern) -> str:
    return " ".join(map(_node, (triple.subject, triple.predicate, triple.object)))


def _node(node: Node) -> str:
    if isinstance(node, Variable):
        return "?" + node.name.split(" ")[0] if not algebra.hidden(node.name) else "(a node without a name)"
    return terms.written(node)


def _names(names: tuple[str, ...]) -> str:
    return " ".join(f"?{name}" for name in names if not algebra.hidden(name)) or "nothing"


def _text(expression: Expression) -> str:
    match expression:
        case Variable(name):
            return f"?{name}" if not algebra.hidden(name) else name
        case algebra.Call(name, (one, other)) if not name[0].isalpha():
            return f"({_text(one)} {name} {_text(other)})"
        case algebra.Call(name, arguments):
            return f"{name}({', '.join(map(_text, arguments))})"
        case algebra.Exists(_, negated):
            return "NOT EXISTS {…}" if negated else "EXISTS {…}"
        case _:
            return terms.written(expression)
