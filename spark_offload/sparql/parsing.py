"""Translation of query texts to the algebra (SPARQL 1.1 Query, section 18.2).

rdflib parses the text. Its algebra is not used, because it drops FILTERs that are false, and the variables that
SELECT * must hide. Unsupported features raise `QueryRefused` with their name.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NoReturn

import rdflib
from pyparsing import ParseBaseException
from rdflib.plugins.sparql.algebra import translatePath, translatePName, translatePrologue, traverse
from rdflib.plugins.sparql.parser import parseQuery
from rdflib.plugins.sparql.parserutils import CompValue

from spark_offload.errors import QueryRefused
from spark_offload.live import Solutions
from spark_offload.sparql import algebra
from spark_offload.sparql.algebra import Graph, Pattern, Query, Variable
from spark_offload.sparql.expression_parsing import Expressions, Tree
from spark_offload.sparql.paths import expanded

_FORMS: Final = {"SelectQuery": "SELECT", "AskQuery": "ASK", "ConstructQuery": "CONSTRUCT"}
_CODE_POINT: Final = re.compile(r"\\u([0-9A-Fa-f]{4})|\\U([0-9A-Fa-f]{8})")
_ESCAPED: Final = re.compile(r"\\(.)")
_SERVICE: Final = re.compile(r"\bSERVICE\s+(SILENT\s+)?[<?$\w:]", re.IGNORECASE)
_NAME: Final = re.compile(r"[?$](\w+)")
_RDFLIB: Final = logging.getLogger("rdflib.term")
_LITERALS_AS_WRITTEN: Final = threading.Lock()


def parse(text: str, answers: Mapping[str, Solutions] | None = None) -> Query:
    """Parse a query. Raises `QueryRefused`.

    `answers` are the solutions of gateways, by the name that replaces their SERVICE (see `spark_offload.services`).
    """
    tree = _tree(text)
    if tree.name == "DescribeQuery":
        raise QueryRefused("DESCRIBE is not supported. Ask with CONSTRUCT for the triples you want")
    return _Translation(text, tree, answers or {}).query()


def _tree(text: str) -> CompValue:
    try:
        # Code point escapes are replaced before parsing (section 19.2).
        text = _CODE_POINT.sub(lambda found: chr(int(found[1] or found[2], 16)), text)
        # By default, rdflib normalizes "01"^^xsd:integer to "1"^^xsd:integer. The switch is global, hence the lock.
        with _LITERALS_AS_WRITTEN:
            normalize, rdflib.NORMALIZE_LITERALS = rdflib.NORMALIZE_LITERALS, False
            _RDFLIB.disabled = True  # it warns about ill-typed literals, which are valid in SPARQL
            try:
                prologue, tree = parseQuery(text)
                names = translatePrologue(prologue, None)
                tree = traverse(tree, visitPost=lambda node: translatePName(_unescaped(node), names))
            finally:
                rdflib.NORMALIZE_LITERALS = normalize
                _RDFLIB.disabled = False
        tree = traverse(tree, visitPost=translatePath)
    except ParseBaseException as error:
        if _SERVICE.search(text):  # rdflib cannot parse most SERVICE clauses
            _refuse("SERVICE")
        raise QueryRefused(
            f"this is not a valid SPARQL query: line {error.lineno}, column {error.column}: {error.msg}"
        ) from None
    except RecursionError:
        raise QueryRefused("the query is nested too deeply") from None
    except Exception as error:  # rdflib raises exceptions of many types
        raise QueryRefused(f"the query cannot be read: {error}") from error
    assert isinstance(tree, CompValue)  # noqa: S101  it is a query
    return tree


def _unescaped(node: Tree) -> Tree:
    """Remove the backslashes from the local part of a prefixed name. rdflib does not remove them."""
    if isinstance(node, CompValue) and node.name == "pname" and node.localname:
        node["localname"] = _ESCAPED.sub(r"\1", node.localname)
    return node


class _Translation:
    """Translation of one query."""

    def __init__(self, text: str, tree: CompValue, answers: Mapping[str, Solutions]) -> None:
        self._text = text
        self._tree = tree
        self._answers = answers
        self._graph: Graph = None
        self._named: frozenset[rdflib.URIRef] | None = None
        self._hidden = 0
        self._expressions = Expressions(self._group)
        self._dataset(tree.datasetClause or [])

    def query(self) -> Query:
        """Return the algebra of the whole query."""
        tree = self._tree
        form = _FORMS[tree.name]
        if form == "SELECT":
            pattern, variables = self._select(tree)
            return Query(form, pattern, variables)
        where = tree.where if tree.where is not None else CompValue("GroupGraphPatternSub")
        tree.projection = None
        pattern, variables = self._select(tree, self._group(where))
        template: tuple[algebra.TriplePattern, ...] = ()
        if form == "CONSTRUCT":
            # CONSTRUCT WHERE { ... } has no template: its triples are the template (section 16.2.4).
            told = (
                tree.template if tree.template is not None else [block for part in where.part for block in part.triples]
            )
            template = tuple(algebra.TriplePattern(*map(self._node, triple)) for triple in _triples(told))
        return Query(form, pattern, variables, template)

    def _dataset(self, clauses: Iterable[CompValue]) -> None:
        defaults = [clause.default for clause in clauses if clause.default is not None]
        named = frozenset(clause.named for clause in clauses if clause.named is not None)
        if len(defaults) > 1:
            _refuse("FROM of several graphs")
        if defaults:
            self._graph = defaults[0]
        if defaults or named:
            self._named = named
            if not defaults:
                _refuse("FROM NAMED without FROM")

    def _select(self, tree: CompValue, where: Pattern | None = None) -> tuple[Pattern, tuple[str, ...]]:
        """Return the pattern and the variables of a query or subquery with its solution modifiers.

        `where` replaces the WHERE clause of the tree. The order of the operators is that of section 18.2.4.
        """
        pattern = self._group(tree.where) if where is None else where
        selected = [(str(one.var or one.evar), one.expr) for one in tree.projection or []]
        having = list(tree.having.condition) if tree.having else []
        order = list(tree.orderby.condition) if tree.orderby else []
        expressions = [expression for _, expression in selected if expression is not None]
        grouped = tree.groupby is not None or any(
            self._expressions.aggregates_in(one) for one in (*expressions, *having, *(each.expr for each in order))
        )
        allowed: set[str] | None = None
        if grouped or having:
            if not selected:
                _refuse("SELECT * with GROUP BY")
            keys = tuple(self._keys(tree.groupby.condition if tree.groupby else []))
            allowed = {name for name, _ in keys}
            # Inside GRAPH ?g, a subquery applies to each graph alone, so the graph is a key, too.
            if isinstance(self._graph, Variable):
                if not keys:
                    _refuse("an aggregate of everything inside GRAPH with a variable")
                keys = (*keys, (self._graph.name, self._graph))
        # From here on, the translation of expressions collects their aggregates until `aggregates()` returns them.
        aggregates = self._expressions.collecting() if allowed is not None else None
        conditions = [self._checked(one, allowed) for one in having]
        extended: list[tuple[str, algebra.Expression]] = []
        for name, expression in selected:
            if expression is not None:
                if name in algebra.visible(pattern) or name in dict(extended):
                    _refuse(f"(… AS ?{name}) where ?{name} is bound already")
                extended.append((name, self._checked(expression, allowed)))
                if allowed is not None:
                    allowed.add(name)
            elif allowed is not None and name not in allowed:
                _refuse(f"?{name} in SELECT, as it is neither in GROUP BY nor in an aggregate")
        sorting = tuple((self._checked(one.expr, allowed), one.order == "DESC") for one in order)
        if aggregates is not None:
            pattern = algebra.Group(pattern, keys, aggregates())
        for condition in conditions:
            pattern = algebra.Filter(pattern, condition)
        if tree.valuesClause:
            pattern = algebra.Join(pattern, _values(tree.valuesClause))
        for name, expression in extended:
            pattern = algebra.Extend(pattern, name, expression)
        variables = tuple(dict.fromkeys(name for name, _ in selected)) or self._in_order(algebra.visible(pattern))
        return self._modified(tree, pattern, sorting, variables), variables

    def _modified(
        self,
        tree: CompValue,
        pattern: Pattern,
        sorting: tuple[tuple[algebra.Expression, bool], ...],
        variables: tuple[str, ...],
    ) -> Pattern:
        if sorting:
            pattern = algebra.OrderBy(pattern, sorting)
        pattern = algebra.Project(
            pattern, (*variables, self._graph.name) if isinstance(self._graph, Variable) else variables
        )
        if tree.modifier:
            pattern = algebra.Distinct(pattern)
        if cut := tree.limitoffset:
            if isinstance(self._graph, Variable):
                _refuse("LIMIT inside GRAPH with a variable")
            limit = None if cut.limit is None else int(cut.limit)
            pattern = algebra.Slice(pattern, 0 if cut.offset is None else int(cut.offset), limit)
        return pattern

    def _keys(self, conditions: Iterable[Any]) -> Iterator[tuple[str, algebra.Expression]]:
        for condition in conditions:
            named = isinstance(condition, CompValue) and condition.name == "GroupAs"
            expression = self._expressions.expression(condition.expr if named else condition)
            if named and condition.var is not None:
                yield str(condition.var), expression
            elif isinstance(expression, Variable):
                yield expression.name, expression
            else:
                yield self._new("key"), expression

    def _checked(self, tree: Tree, allowed: set[str] | None) -> algebra.Expression:
        """Return an expression. Outside aggregates, it may use the `allowed` variables only; None allows all."""
        expression = self._expressions.expression(tree)
        if allowed is not None:
            outside = [one for one in algebra.free(expression) if one not in allowed and not algebra.hidden(one)]
            if outside:
                _refuse(f"?{min(outside)}, as it is neither in GROUP BY nor in an aggregate")
        return expression

    def _group(self, tree: CompValue) -> Pattern:
        """Return the pattern of a group graph pattern (section 18.2.2)."""
        if tree.name == "SubSelect":
            return self._select(tree)[0]
        pattern: Pattern = algebra.UNIT
        conditions = []
        for part in tree.part or []:
            match part.name:
                case "Filter":
                    conditions.append(part.expr)
                case "TriplesBlock":
                    pattern = joined(pattern, self._block(part))
                case "OptionalGraphPattern":
                    pattern = _optional(pattern, self._group(part.graph))
                case "MinusGraphPattern":
                    pattern = algebra.Minus(pattern, self._group(part.graph))
                case "GroupOrUnionGraphPattern":
                    first, *others = (self._group(one) for one in part.graph)
                    for other in others:
                        first = algebra.Union(first, other)
                    pattern = joined(pattern, first)
                case "GraphGraphPattern":
                    pattern = joined(pattern, self._in_graph(part))
                case "InlineData":
                    pattern = joined(pattern, self._inline(part))
                case "Bind":
                    if str(part.var) in algebra.visible(pattern):
                        _refuse(f"BIND to ?{part.var}, which is bound already")
                    pattern = algebra.Extend(pattern, str(part.var), self._expressions.expression(part.expr))
                case "ServiceGraphPattern":
                    _refuse("SERVICE")
                case other:
                    _refuse(str(other))
        # A FILTER applies to its whole group, wherever it stands in it.
        for condition in conditions:
            pattern = algebra.Filter(pattern, self._expressions.expression(condition))
        return pattern

    def _inline(self, tree: CompValue) -> algebra.Values:
        """Return the rows of VALUES, or the solutions of a gateway if VALUES replaces its SERVICE."""
        values = _values(tree)
        found = self._answers.get(values.variables[0]) if values.variables else None
        return values if found is None else algebra.Values(found.variables, found.rows)

    def _block(self, tree: CompValue) -> Pattern:
        pattern: Pattern = algebra.UNIT
        for subject, path, object_ in _triples(tree.triples):
            one = expanded(self._node(subject), path, self._node(object_), self._graph, self._new)
            pattern = joined(pattern, one)
        return pattern

    def _in_graph(self, tree: CompValue) -> Pattern:
        """Return the pattern of GRAPH.

        GRAPH ?g evaluates its group with a hidden variable for the graph, and then equates ?g with it: the group may
        bind ?g, too.
        """
        outside = self._graph
        if not isinstance(tree.term, rdflib.Variable):
            if self._named is not None and tree.term not in self._named:
                return algebra.NOTHING
            self._graph = tree.term
            try:
                return self._group(tree.graph)
            finally:
                self._graph = outside
        self._graph = Variable(self._new(algebra.GRAPH.strip()))
        name, shown = self._graph.name, str(tree.term)
        try:
            pattern = self._group(tree.graph)
        finally:
            self._graph = outside
        if name not in algebra.certain(pattern):
            pattern = algebra.Join(pattern, algebra.Graphs(name))
        if self._named is not None:
            pattern = algebra.Filter(pattern, algebra.Call("IN", (Variable(name), *sorted(self._named))))
        if shown not in algebra.visible(pattern):
            pattern = algebra.Extend(pattern, shown, Variable(name))
        elif shown in algebra.certain(pattern):
            pattern = algebra.Filter(pattern, algebra.Call("SAMETERM", (Variable(name), Variable(shown))))
        else:
            _refuse(f"?{shown} inside of GRAPH ?{shown} where it may be unbound")
        return algebra.Project(pattern, tuple(sorted(algebra.visible(pattern) - {name})))

    def _node(self, node: rdflib.term.Identifier) -> algebra.Node:
        if isinstance(node, rdflib.Variable):
            return Variable(str(node))
        # A blank node in a query is a variable that is not visible (section 4.1.4).
        if isinstance(node, rdflib.BNode):
            return Variable(f"blank {node}")
        assert isinstance(node, (rdflib.URIRef, rdflib.Literal))  # noqa: S101  rdflib has only these kinds of terms
        return node

    def _new(self, kind: str) -> str:
        """Return a new name of a hidden variable. The space in it cannot occur in names of the query text."""
        self._hidden += 1
        return f"{kind} {self._hidden}"

    def _in_order(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the variables of SELECT * in the order of their first occurrence in the text."""
        places = {name: place for place, name in reversed(list(enumerate(_NAME.findall(self._text))))}
        shown = [name for name in names if not algebra.hidden(name)]
        return tuple(sorted(shown, key=lambda name: (places.get(name, len(places)), name)))


def joined(left: Pattern, right: Pattern) -> Pattern:
    """Return the join of two patterns. Merges basic patterns of the same graph, so that stars are not split.

    For this, a basic pattern also moves into the basic left side of a join, or below a BIND that does not depend on it.
    """
    if left == algebra.UNIT:
        return right
    if right == algebra.UNIT:
        return left
    if isinstance(left, algebra.Basic) and isinstance(right, algebra.Basic) and left.graph == right.graph:
        return algebra.Basic(left.triples + right.triples, left.graph)
    if isinstance(left, algebra.Extend) and isinstance(right, algebra.Basic) and _late(left, right):
        return algebra.Extend(joined(left.pattern, right), left.variable, left.expression)
    if isinstance(left, algebra.Basic) and isinstance(right, algebra.Join) and isinstance(right.left, algebra.Basic):
        return joined(joined(left, right.left), right.right)
    if isinstance(left, algebra.Join) and isinstance(right, algebra.Basic) and isinstance(left.left, algebra.Basic):
        return joined(joined(left.left, right), left.right)
    return algebra.Join(left, right)


def _late(bind: algebra.Extend, right: Pattern) -> bool:
    """Return whether BIND may be evaluated after a join with `right` without a change of its result."""
    # The join must neither bind the variable of BIND nor add bindings that its expression uses.
    others = algebra.visible(right)
    new = others - algebra.certain(bind.pattern)
    return bind.variable not in others and not algebra.mentioned(bind.expression) & new


def _optional(left: Pattern, right: Pattern) -> Pattern:
    # A FILTER at the top of OPTIONAL is the condition of the left join: it may use variables of the left side.
    condition: algebra.Expression | None = None
    while isinstance(right, algebra.Filter):
        condition = right.condition if condition is None else algebra.Call("&&", (right.condition, condition))
        right = right.pattern
    return algebra.LeftJoin(left, right, condition)


def _values(tree: CompValue) -> algebra.Values:
    names = tuple(map(str, tree.var or []))
    told = [] if tree.value is None else list(tree.value)
    rows = [list(row) if isinstance(row, list) else [row] for row in told]
    if not names:  # VALUES () { () () }
        return algebra.Values((), ((),) * len(rows))
    if any(len(row) != len(names) for row in rows):
        _refuse("VALUES with a row that has not as many terms as there are variables")
    return algebra.Values(
        names,
        tuple(
            tuple(
                None if isinstance(one, str) and one == "UNDEF" and not isinstance(one, rdflib.term.Identifier) else one
                for one in row
            )
            for row in rows
        ),
    )


def _triples(blocks: Iterable[Iterable[Any]]) -> Iterator[tuple[Any, Any, Any]]:
    for block in blocks:
        flat = list(block)
        yield from zip(flat[::3], flat[1::3], flat[2::3], strict=True)


def _refuse(what: str) -> NoReturn:
    raise QueryRefused(f"{what} is not supported")
