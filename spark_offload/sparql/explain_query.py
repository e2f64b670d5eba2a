"""Description of the evaluation of a query: the operations, scans and joins, and Spark's plan."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from edge.sparql import terms as rdf
from edge.sparql.algebra import Variable
from spark_offload.sparql import relational, terms
from spark_offload.sparql.content import Content
from spark_offload.sparql.newest_suffice import LATEST, star_of_newest
from spark_offload.sparql.optionals import in_rows
from spark_offload.sparql.relational import Expression, Pattern, PatternTerm, TriplePattern
from spark_offload.sparql.stars import PREDICATES, Star, split


def explained(query: relational.TranslatedQuery, content: Content, plan: str, *, wide: bool, engine: str) -> str:
    """Return the description as a text of several lines. `plan`: the plan of the engine."""
    lines = [query.form, *(f"  {line}" for line in _lines(query.pattern, content, wide=wide))]
    if reading := list(_reading(plan)):
        lines += ["", "Reads from the table:", *(f"  {line}" for line in reading)]
    return "\n".join([*lines, "", f"{engine}'s plan:", plan])


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


def _lines(pattern: Pattern, content: Content, *, wide: bool, newest: relational.Basic | None = None) -> Iterator[str]:
    """Yield a line for each operation, indented by depth. `newest` is a pattern whose newest rows suffice."""
    match pattern:
        case relational.Basic(triples, graph):
            yield from _basic(triples, graph, content, wide=wide, newest=pattern is newest)
            return
        case relational.LeftOuterJoin() if (
            wide and (found := in_rows(pattern)) and (of_graph := _content_of(found.graph, content)).plain
        ):
            yield from _stars(found.stars, found.rest, found.graph, of_graph)
            return
        case relational.InlineRows(variables, rows):
            yield f"VALUES of {_names(variables)}: {len(rows)} rows"
        case relational.TransitiveClosure(step, _, _, subject, object_, graph):
            yield f"a path of one or more steps{_where(graph)}, from {_node(subject)} to {_node(object_)}; each step:"
            yield from (f"  {line}" for line in _lines(step, content, wide=wide))
            return
        case relational.NamedGraphs():
            yield "the named graphs, from all triples"
        case relational.GraphExists(graph):
            yield f"if graph {_node(graph)} exists"
        case relational.LeftOuterJoin(_, _, condition):
            yield "OPTIONAL" if condition is None else f"OPTIONAL where {_text(condition)}"
        case relational.Selection(_, condition):
            yield f"FILTER {_text(condition)}"
        case relational.ComputedColumn(_, variable, expression):
            yield f"BIND {_text(expression)} AS ?{variable}"
        case relational.Aggregation(_, keys, aggregates):
            by = ", ".join(_text(expression) for _, expression in keys) or "nothing"
            listed = ", ".join(
                f"{one.name}({'*' if one.argument is None else _text(one.argument)})" for _, one in aggregates
            )
            yield f"GROUP BY {by}: {listed}"
        case relational.Sort(_, conditions):
            yield "ORDER BY " + ", ".join(f"{_text(one)}{' descending' if down else ''}" for one, down in conditions)
        case relational.Projection(_, variables):
            yield f"only {_names(variables)}"
        case relational.RowRange(_, offset, limit):
            yield f"rows from {offset + 1}" + ("" if limit is None else f", {limit} at most")
        case relational.InnerJoin():
            yield "JOIN"
        case relational.UnionAll():
            yield "UNION"
        case relational.AntiJoin():
            yield "MINUS"
        case relational.DistinctRows():
            yield "DISTINCT"
    for inner in (getattr(pattern, name, None) for name in ("pattern", "left", "right")):
        if inner is not None:
            newest = star_of_newest(pattern) or newest
            yield from (f"  {line}" for line in _lines(inner, content, wide=wide, newest=newest))


def _basic(
    triples: tuple[TriplePattern, ...], graph: relational.Graph, content: Content, *, wide: bool, newest: bool
) -> Iterator[str]:
    content = _content_of(graph, content)
    if not wide or content.crossing:
        why = "some quads describe mapped observations" if wide else "requested with wide=False"
        yield f"{len(triples)} patterns{_where(graph)}, each over all triples, joined ({why})"
        yield from (f"  {_triple(triple)}" for triple in triples)
        return
    yield from _stars(*split(triples), graph, content, newest=newest)


def _stars(
    stars: Iterable[Star],
    rest: Iterable[TriplePattern],
    graph: relational.Graph,
    content: Content,
    *,
    newest: bool = False,
) -> Iterator[str]:
    where = _where(graph)
    scanned = "the newest rows" if newest and content.newest_whole_rows is not None else "rows"
    for star in stars:
        yield f"a star{where}: one scan of {scanned}, {len(star.triples)} patterns"
        yield from (f"  {name} {_node(node)}" for name, node in (*star.resources, *star.cells))
        for more in star.optional:
            new = [one for one in more.resources if one not in star.resources]
            yield f"  OPTIONAL {', '.join(f'{name} {_node(node)}' for name, node in (*new, *more.cells))}"
        if content.general:
            yield "  and the same patterns over the triples of observations that clients wrote, joined"
    for triple in rest:
        every = not isinstance(triple.predicate, rdf.Iri) or triple.predicate.value in PREDICATES
        yield f"over {'all triples' if every else 'triples that clients wrote'}{where}: {_triple(triple)}"


def _content_of(graph: relational.Graph, content: Content) -> Content:
    return content.latest if graph == LATEST else content


def _where(graph: relational.Graph) -> str:
    if isinstance(graph, tuple):
        return f" in the merge of {len(graph)} graphs"
    return "" if graph is None else f" in graph {_node(graph)}"


def _triple(triple: TriplePattern) -> str:
    return " ".join(map(_node, (triple.subject, triple.predicate, triple.object)))


def _node(node: PatternTerm) -> str:
    if isinstance(node, Variable):
        return "?" + node.name.split(" ")[0] if not relational.hidden(node.name) else "(a node without a name)"
    return terms.written(node)


def _names(names: tuple[str, ...]) -> str:
    return " ".join(f"?{name}" for name in names if not relational.hidden(name)) or "nothing"


def _text(expression: Expression) -> str:
    match expression:
        case Variable(name):
            return f"?{name}" if not relational.hidden(name) else name
        case relational.FunctionCall(name, (one, other)) if not name[0].isalpha():
            return f"({_text(one)} {name} {_text(other)})"
        case relational.FunctionCall(name, arguments):
            return f"{name}({', '.join(map(_text, arguments))})"
        case relational.ExistsTest(_, negated):
            return "NOT EXISTS {…}" if negated else "EXISTS {…}"
        case _:
            return terms.written(expression)
