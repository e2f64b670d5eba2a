"""Translation of query texts to the relational form (SPARQL 1.1 Query, section 18.2).

`edge.sparql` parses the text. Its algebra names the graph of each triple; here each basic pattern has a graph, and
GRAPH with a variable becomes a hidden variable. Unsupported features raise `QueryRefused` with their name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import reduce
from typing import NoReturn, cast

from edge.sparql import algebra as source
from edge.sparql import terms as rdf
from edge.sparql.algebra import Variable
from edge.sparql.errors import LimitOfText, SparqlError
from edge.sparql.query import read_query
from spark_offload.errors import QueryRefused
from spark_offload.solutions import GatewaySolutions
from spark_offload.sparql import relational
from spark_offload.sparql.expression_translation import Expressions
from spark_offload.sparql.newest_suffice import LATEST
from spark_offload.sparql.paths import expanded
from spark_offload.sparql.relational import Graph, Pattern, TranslatedQuery
from spark_offload.sparql.volatility import volatile


def parse(
    text: str,
    answers: Mapping[str, GatewaySolutions] | None = None,
    dataset: tuple[Iterable[str], Iterable[str]] | None = None,
) -> TranslatedQuery:
    """Parse a query. Raises `QueryRefused`.

    `answers` are the solutions of gateways, by the name that replaces their SERVICE (see `spark_offload.services`).
    `dataset` has the IRIs of the default and of the named graphs, which replace FROM and FROM NAMED.
    """
    try:
        query = read_query(text)
    except LimitOfText as error:
        raise QueryRefused(f"the query is too large: {error}") from None
    except SparqlError as error:
        raise QueryRefused(f"this is not a valid SPARQL query: {error}") from None
    if dataset is not None:
        defaults, named = (tuple(map(rdf.Iri, graphs)) for graphs in dataset)
        query = replace(query, default_graphs=defaults, named_graphs=named)
    try:
        return _Translation(query, answers or {}).query()
    except RecursionError:
        raise QueryRefused("the query is nested too deeply") from None


class _Translation:
    """Translation of one query."""

    def __init__(self, query: source.Query, answers: Mapping[str, GatewaySolutions]) -> None:
        self._query = query
        self._answers = answers
        self._graph: Graph = None
        self._named: frozenset[rdf.Iri] | None = None
        self._hidden = 0
        self._expressions = Expressions(self._pattern, query.base)
        self._dataset(query.default_graphs, query.named_graphs)

    def query(self) -> TranslatedQuery:
        """Return the relational form of the whole query."""
        asked = self._query
        pattern = self._pattern(asked.pattern)
        if asked.form == "SELECT":
            return TranslatedQuery(asked.form, pattern, self._selected(asked.variables))
        if asked.form == "DESCRIBE":
            return self._described(pattern, asked.resources)
        if isinstance(pattern, relational.RowRange):
            pattern = relational.RowRange(_all_shown(pattern.pattern), pattern.offset, pattern.limit)
        else:
            pattern = _all_shown(pattern)
        template = tuple(self._triple(triple) for triple in asked.template)
        return TranslatedQuery(asked.form, pattern, (), template)

    def _described(self, pattern: Pattern, resources: tuple[rdf.Iri | Variable, ...]) -> TranslatedQuery:
        """Return DESCRIBE as a CONSTRUCT of the triples whose subject is one of the resources."""
        # Names that neither the text contains nor count as hidden, which would be blank nodes in the template.
        subject, predicate, object_ = (Variable(f"described:{place}") for place in range(3))
        named = tuple((resource,) for resource in resources if not isinstance(resource, Variable))
        found: Pattern = relational.InlineRows((subject.name,), named)
        for variable in resources:
            if isinstance(variable, Variable):
                values = relational.ComputedColumn(pattern, subject.name, variable)
                found = relational.UnionAll(found, relational.Projection(values, (subject.name,)))
        triple = relational.TriplePattern(subject, predicate, object_)
        triples = relational.InnerJoin(relational.DistinctRows(found), relational.Basic((triple,), self._graph))
        return TranslatedQuery("DESCRIBE", triples, (), (triple,))

    def _dataset(self, defaults: tuple[rdf.Iri, ...] | None, named: tuple[rdf.Iri, ...] | None) -> None:
        if defaults is None or named is None:
            return
        defaults = tuple(dict.fromkeys(defaults))
        self._graph = defaults[0] if len(defaults) == 1 else defaults
        if isinstance(self._graph, tuple) and LATEST in self._graph:
            _refuse(f"a default graph of <{LATEST.value}> and other graphs")
        self._named = frozenset(named)

    def _pattern(self, node: source.Node) -> Pattern:
        """Translate a node. The order of the modifiers of a SELECT is that of section 18.2.4."""
        match node:
            case source.Triple():
                return relational.Basic((self._triple(node),), self._graph)
            case source.Path(subject, path, object_):
                return expanded(self._node(subject), path, self._node(object_), self._graph, self._new)
            case source.Join(parts):
                pattern: Pattern = relational.UNIT
                for part in parts:
                    pattern = joined(pattern, self._pattern(part))
                return pattern
            case source.LeftJoin(left, right, condition):
                first, second = self._pattern(left), self._pattern(right)
                return relational.LeftOuterJoin(
                    first, second, None if condition is None else self._expression(condition)
                )
            case source.Union(branches):
                return reduce(relational.UnionAll, map(self._pattern, branches))
            case source.Minus(left, right):
                return relational.AntiJoin(self._pattern(left), self._pattern(right))
            case source.Filter(inner, conditions):
                pattern = self._pattern(inner)
                for condition in conditions:
                    pattern = relational.Selection(pattern, self._expression(condition, inner))
                return pattern
            case source.Extend(inner, variable, expression):
                pattern = self._pattern(inner)
                return relational.ComputedColumn(
                    pattern, self._expressions.name(variable), self._expression(expression)
                )
            case source.Values():
                return self._inline(node)
            case source.GraphPattern(name, inner):
                return self._in_graph(name, inner)
            case source.Service():
                return _refuse("SERVICE")
            case source.Group():
                return self._grouped(node)
            case source.OrderBy(inner, order):
                pattern = self._pattern(inner)
                return relational.Sort(pattern, tuple((self._expression(one, inner), down) for one, down in order))
            case source.Project(inner, variables):
                pattern = self._pattern(inner)
                shown = self._selected(one for one in variables if isinstance(one, Variable))
                if isinstance(self._graph, Variable):
                    # The graph must survive the projection: patterns outside the subquery are joined by it.
                    shown = (*shown, self._graph.name)
                return relational.Projection(pattern, shown)
            case source.Distinct(inner):
                return relational.DistinctRows(self._pattern(inner))
            case source.Slice(inner, offset, limit):
                if isinstance(self._graph, Variable):
                    _refuse("LIMIT inside GRAPH with a variable")
                return relational.RowRange(self._pattern(inner), offset, limit)

    def _grouped(self, group: source.Group) -> Pattern:
        pattern = self._pattern(group.pattern)
        keys = tuple((name, Variable(name)) for name in map(self._expressions.name, group.keys))
        # Inside GRAPH ?g, a subquery applies to each graph alone, so the graph is a key, too.
        if isinstance(self._graph, Variable):
            if not keys:
                _refuse("an aggregate of everything inside GRAPH with a variable")
            keys = (*keys, (self._graph.name, self._graph))
        return relational.Aggregation(
            pattern, keys, tuple(self._expressions.aggregate(*one) for one in group.aggregates)
        )

    def _expression(self, expression: source.Expression, below: source.Node | None = None) -> relational.Expression:
        """Translate an expression. If `below` is a GROUP BY, it may only use its keys and aggregates."""
        translated = self._expressions.expression(expression)
        known: list[Variable] = []
        while isinstance(below, source.Filter | source.Extend):
            if isinstance(below, source.Extend):
                known.append(below.variable)
            below = below.pattern
        if isinstance(below, source.Group):
            known += (*below.keys, *(variable for variable, _ in below.aggregates))
            outside = sorted(relational.free(translated) - {self._expressions.name(variable) for variable in known})
            if outside:
                _refuse(f"?{outside[0]}, as it is neither in GROUP BY nor in an aggregate")
        return translated

    def _selected(self, variables: Iterable[Variable]) -> tuple[str, ...]:
        """Return the distinct names of variables. The name of an answer stands for all of its variables."""
        names = [
            name
            for variable in variables
            for name in (self._answers[variable.name].variables if variable.name in self._answers else (variable.name,))
        ]
        return tuple(dict.fromkeys(names))

    def _inline(self, values: source.Values) -> relational.InlineRows:
        """Return the rows of VALUES, or the solutions of a gateway if VALUES replaces its SERVICE."""
        names = tuple(variable.name for variable in values.variables)
        found = self._answers.get(names[0]) if names else None
        if found is not None:
            return relational.InlineRows(found.variables, found.rows)
        rows = cast("tuple[tuple[rdf.Iri | rdf.Literal | None, ...], ...]", values.rows)
        return relational.InlineRows(names, rows)

    def _in_graph(self, graph: source.Slot, inner: source.Node) -> Pattern:
        """Return the pattern of GRAPH.

        GRAPH ?g evaluates its group with a hidden variable for the graph, and then equates ?g with it: the group may
        bind ?g, too.
        """
        outside = self._graph
        if not isinstance(graph, Variable):
            if self._named is not None and graph not in self._named:
                return relational.NOTHING
            self._graph = constant = cast("rdf.Iri", graph)
            try:
                pattern = self._pattern(inner)
            finally:
                self._graph = outside
            if relational.needs_triples(pattern, constant):
                return pattern
            return joined(pattern, relational.GraphExists(constant))
        self._graph = Variable(self._new(relational.GRAPH.strip()))
        name, shown = self._graph.name, graph.name
        try:
            pattern = self._pattern(inner)
        finally:
            self._graph = outside
        if name not in relational.certain(pattern):
            pattern = relational.InnerJoin(pattern, relational.NamedGraphs(name))
        if self._named is not None:
            named = sorted(self._named, key=lambda iri: iri.value)
            pattern = relational.Selection(pattern, relational.FunctionCall("IN", (Variable(name), *named)))
        if shown not in relational.visible(pattern):
            pattern = relational.ComputedColumn(pattern, shown, Variable(name))
        elif shown in relational.certain(pattern):
            pattern = relational.Selection(
                pattern, relational.FunctionCall("SAMETERM", (Variable(name), Variable(shown)))
            )
        else:
            bound = relational.FunctionCall("BOUND", (Variable(shown),))
            same = relational.FunctionCall("SAMETERM", (Variable(name), Variable(shown)))
            unbound = relational.FunctionCall("!", (bound,))
            pattern = relational.Selection(pattern, relational.FunctionCall("||", (unbound, same)))
            pattern = relational.ComputedColumn(pattern, shown, Variable(name))
        return relational.Projection(
            pattern, tuple(sorted((relational.visible(pattern) | relational.used(pattern)) - {name}))
        )

    def _triple(self, triple: source.Triple) -> relational.TriplePattern:
        return relational.TriplePattern(*map(self._node, (triple.subject, triple.predicate, triple.object)))

    def _node(self, slot: source.Slot) -> relational.PatternTerm:
        match slot:
            case Variable():
                return Variable(self._expressions.name(slot))
            # A blank node in a query is a variable that is not visible (section 4.1.4). Its name becomes the name of a
            # column, in which a dot would be the access to a field.
            case source.Blank(label):
                return Variable(f"blank {label.replace('.', ' ')}")
            case source.Fresh(label):
                return Variable(f"fresh {label.replace('.', ' ')}")
        return cast("rdf.Iri | rdf.Literal", slot)

    def _new(self, kind: str) -> str:
        """Return a new name of a hidden variable. The space in it cannot occur in names of the query text."""
        self._hidden += 1
        return f"{kind} {self._hidden}"


def joined(left: Pattern, right: Pattern) -> Pattern:
    """Return the join of two patterns. Merges basic patterns of the same graph, so that stars are not split.

    For this, a basic pattern also moves into the basic left or right side of a join, or below a BIND that does not
    depend on it. Joins are associative and commutative, and a blank node's label occurs in one basic pattern of the
    text only.
    """
    if left == relational.UNIT:
        return right
    if right == relational.UNIT:
        return left
    if isinstance(left, relational.Basic) and isinstance(right, relational.Basic) and left.graph == right.graph:
        return relational.Basic(left.triples + right.triples, left.graph)
    if isinstance(left, relational.ComputedColumn) and isinstance(right, relational.Basic) and _late(left, right):
        return relational.ComputedColumn(joined(left.pattern, right), left.variable, left.expression)
    if (
        isinstance(left, relational.Basic)
        and isinstance(right, relational.InnerJoin)
        and isinstance(right.left, relational.Basic)
    ):
        return joined(joined(left, right.left), right.right)
    if isinstance(left, relational.InnerJoin) and isinstance(right, relational.Basic):
        rest, together = _connected(left, right)
        return together if rest == relational.UNIT else relational.InnerJoin(rest, together)
    return relational.InnerJoin(left, right)


def _connected(left: Pattern, right: relational.Basic) -> tuple[Pattern, relational.Basic]:
    """Move the basic patterns of a join that have variables in common with `right` to `right`.

    Others stay: with them, `right` would be a cross product, and the join with the rest of `left` may be smaller.
    """
    if isinstance(left, relational.InnerJoin):
        rest, right = _connected(left.left, right)
        other, right = _connected(left.right, right)
        return _rest(rest, other), right
    if isinstance(left, relational.Basic) and left.graph == right.graph and _variables(left) & _variables(right):
        return relational.UNIT, relational.Basic(left.triples + right.triples, right.graph)
    return left, right


def _rest(left: Pattern, right: Pattern) -> Pattern:
    if relational.UNIT in (left, right):
        return right if left == relational.UNIT else left
    return relational.InnerJoin(left, right)


def _variables(basic: relational.Basic) -> frozenset[str]:
    return relational.visible(relational.Basic(basic.triples, None))


def _late(bind: relational.ComputedColumn, right: Pattern) -> bool:
    """Return whether BIND may be evaluated after a join with `right` without a change of its result."""
    # The join must neither bind the variable of BIND nor add bindings that its expression uses.
    others = relational.visible(right)
    new = others - relational.certain(bind.pattern)
    if volatile(bind.expression):
        return False
    return bind.variable not in others and not relational.mentioned(bind.expression) & new


def _all_shown(pattern: Pattern) -> Pattern:
    """Return a pattern without its hidden variables."""
    return relational.Projection(
        pattern, tuple(sorted(name for name in relational.visible(pattern) if not relational.hidden(name)))
    )


def _refuse(what: str) -> NoReturn:
    raise QueryRefused(f"{what} is not supported")
