"""Groups, sub-queries and templates (SPARQL 1.1 Query Language, 19.8, rules 16 to 74; translation: 18.2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyoxigraph import NamedNode

from edge.engine.sparql.algebra import (
    Aggregate,
    Call,
    Distinct,
    Expression,
    Extend,
    Filter,
    Fresh,
    GraphPattern,
    Group,
    Join,
    LeftJoin,
    Minus,
    Node,
    OrderBy,
    Project,
    Reference,
    Service,
    Slice,
    Slot,
    Triple,
    Union,
    Values,
    Variable,
)
from edge.engine.sparql.expression_parser import ExpressionParser
from edge.engine.sparql.triples_parser import TriplesParser

Dataset = tuple[tuple[NamedNode, ...] | None, tuple[NamedNode, ...] | None]
"""The graphs of FROM and FROM NAMED; None, None: there is neither."""


class GroupParser(TriplesParser, ExpressionParser):
    """Reads group graph patterns and what can stand in them."""

    # Groups (18.2.2)

    def group(self) -> Node:
        """A group graph pattern in its braces."""
        self.expect("{")
        pattern = self.group_body()
        self.expect("}")
        return pattern

    def group_body(self) -> Node:
        """What stands between the braces of a group."""
        outside, self.aggregates = self.aggregates, None
        pattern = self._sub_select() if self.token.word() == "SELECT" else self._group_elements()
        self.aggregates = outside
        return pattern

    def _group_elements(self) -> Node:
        parts: list[Node] = []
        conditions: list[Expression] = []
        while True:
            if self.at_triples():
                self.triples = parts
                self.triples_block()
            elif self.token.text == "{":
                _add(parts, self._union())
            elif self.token.kind != "word":
                break
            elif self.accept_word("FILTER"):
                conditions += _conditions(self.constraint())
            else:
                parts = self._element(parts)
            self.accept(".")
        pattern = _join(parts)
        return Filter(pattern, tuple(conditions)) if conditions else pattern

    def _element(self, parts: list[Node]) -> list[Node]:
        """What begins with a keyword, together with the parts of the group that stand before it."""
        word = self.token.word()
        self.advance()
        if word == "OPTIONAL":
            right = self.group()
            # Of its filter the parts are a condition of the left join, also where the filter stands within further
            # braces, `{ { } }`: like Oxigraph we simplify first.
            if isinstance(right, Filter):
                return [LeftJoin(_join(parts), right.pattern, _conjunction(right.conditions))]
            return [LeftJoin(_join(parts), right, None)]
        if word == "MINUS":
            return [Minus(_join(parts), self.hidden_group())]
        if word == "BIND":
            self.expect("(")
            expression = self.expression()
            self.expect_word("AS")
            variable = self.binding()
            self.expect(")")
            return [Extend(_join(parts), variable, expression)]
        if word == "GRAPH":
            name = self.name()
            return [*parts, GraphPattern(name, self._group_in(name))]
        if word == "VALUES":
            return [*parts, self._values()]
        if word == "SERVICE":
            silent = self.accept_word("SILENT")
            service = self.binding() if self.token.kind == "var" else self.iri()
            return [*parts, Service(service, silent, self._group_in(None))]
        return self.fail("a pattern")

    def _union(self) -> Node:
        """A group, or several with UNION between them."""
        first = self.group()
        if self.token.word() != "UNION":
            return first
        branches = [first]
        while self.accept_word("UNION"):
            branches.append(self.group())
        flat = (b for branch in branches for b in (branch.branches if isinstance(branch, Union) else (branch,)))
        return Union(tuple(flat))

    def _group_in(self, graph: Slot | None) -> Node:
        outside, self.graph = self.graph, graph
        pattern = self.group()
        self.graph = outside
        return pattern

    def _values(self) -> Values:
        if self.token.kind == "var":
            one = (self.binding(),)
            self.expect("{")
            cells = []
            while not self.accept("}"):
                cells.append((self._cell(),))
            return Values(one, tuple(cells))
        self.expect("(")
        variables = []
        while not self.accept(")"):
            variables.append(self.binding())
        self.expect("{")
        rows = []
        while not self.accept("}"):
            self.expect("(")
            rows.append(tuple(self._cell() for _ in variables))
            self.expect(")")
        return Values(tuple(variables), tuple(rows))

    def _cell(self) -> Slot | None:
        return None if self.accept_word("UNDEF") else self.term()

    # SELECT (18.2.4 and 18.2.5)

    def _sub_select(self) -> Node:
        if isinstance(self.graph, Variable):
            # Is the graph's name in scope in it? By the standard it is not, though it is what decides about each of its
            # triples; to Oxigraph it is another variable.
            self.fail("no sub-query where the graph is a variable")
        visible, self.visible = self.visible, {}
        pattern, variables, _ = self.select()
        self.visible = visible | dict.fromkeys(variables)
        return pattern

    def select(self) -> tuple[Node, tuple[Variable, ...], Dataset]:
        """A SELECT query: its pattern with all its modifiers, what it selects, and its dataset."""
        self.expect_word("SELECT")
        distinct, reduced = self.accept_word("DISTINCT"), self.accept_word("REDUCED")
        found: dict[Aggregate, Variable] = {}
        outside, self.aggregates = self.aggregates, found
        star = self.accept("*")
        items = () if star else tuple(self._select_items())
        dataset = self.dataset()
        pattern, order, (offset, limit) = self._modifiers(self.where(), found)
        self.aggregates = outside
        for variable, expression in items:
            if expression is not None:
                pattern = Extend(pattern, variable, expression)
        if order:
            pattern = OrderBy(pattern, order)
        variables = tuple(self.visible) if star else tuple(variable for variable, _ in items)
        pattern = Project(pattern, variables)
        if distinct or reduced:
            pattern = Distinct(pattern, reduced)
        return _slice(pattern, offset, limit), variables, dataset

    def _select_items(self) -> Iterator[tuple[Variable, Expression | None]]:
        while True:
            if self.token.kind == "var":
                yield self.variable(), None
            elif self.accept("("):
                expression = self.expression()
                self.expect_word("AS")
                yield self.variable(), expression
                self.expect(")")
            else:
                return

    def dataset(self) -> Dataset:
        """The FROM and FROM NAMED clauses."""
        default: list[NamedNode] = []
        named: list[NamedNode] = []
        given = False
        while self.accept_word("FROM"):
            given = True
            (named if self.accept_word("NAMED") else default).append(self.iri())
        return (tuple(default), tuple(named)) if given else (None, None)

    def where(self) -> Node:
        """A WHERE clause."""
        self.accept_word("WHERE")
        return self.group()

    def modified(self, pattern: Node) -> Node:
        """The pattern of a query that selects nothing, with the modifiers at the cursor."""
        pattern, order, (offset, limit) = self._modifiers(pattern, {})
        return _slice(OrderBy(pattern, order) if order else pattern, offset, limit)

    def _modifiers(
        self, pattern: Node, found: dict[Aggregate, Variable]
    ) -> tuple[Node, tuple[tuple[Expression, bool], ...], tuple[int, int | None]]:
        """The pattern grouped, filtered by HAVING and joined with VALUES; the order; offset and limit.

        `found` are the aggregates, to which HAVING and ORDER BY add theirs.
        """
        aggregates, self.aggregates = self.aggregates, None
        pattern, keys = self._group_by(pattern)
        self.aggregates = aggregates
        having = self._having()
        order = self._order_by()
        limits = self._limits()
        if keys is not None or found:
            pattern = Group(pattern, keys or (), tuple((variable, aggregate) for aggregate, variable in found.items()))
        if having:
            pattern = Filter(pattern, having)
        if self.accept_word("VALUES"):
            parts: list[Node] = []
            _add(parts, pattern)
            pattern = _join([*parts, self._values()])
        return pattern, order, limits

    def _group_by(self, pattern: Node) -> tuple[Node, tuple[Variable, ...] | None]:
        """The pattern with the keys that are expressions, and all keys. None: there is no GROUP BY."""
        if not self.accept_word("GROUP"):
            return pattern, None
        self.expect_word("BY")
        keys: dict[Variable, None] = {}
        while self.token.kind == "var" or self.at_constraint():
            if self.token.kind == "var":
                key: Expression = Reference(self.variable())
                name = None
            elif self.accept("("):
                key = self.expression()
                name = self._key_name() if self.accept_word("AS") else None
                self.expect(")")
            else:
                key, name = self.constraint(), None
            if isinstance(key, Reference):
                if name is not None:
                    self.fail("a key that is no variable")  # Oxigraph forgets its name
                keys[key.variable] = None
            else:
                variable = name or Variable(self.next_name())
                pattern = Extend(pattern, variable, key)
                keys[variable] = None
        return pattern, tuple(keys)

    def _key_name(self) -> Variable:
        variable = self.variable()
        if variable in self.visible:
            self.fail("a new variable")
        return variable

    def _having(self) -> tuple[Expression, ...]:
        conditions: list[Expression] = []
        if self.accept_word("HAVING"):
            while self.at_constraint():
                conditions += _conditions(self.constraint())
        return tuple(conditions)

    def _order_by(self) -> tuple[tuple[Expression, bool], ...]:
        order: list[tuple[Expression, bool]] = []
        if self.accept_word("ORDER"):
            self.expect_word("BY")
            while True:
                word = self.token.word()
                if word in ("ASC", "DESC"):
                    self.advance()
                    order.append((self.constraint(), word == "DESC"))
                elif self.token.kind == "var":
                    order.append((Reference(self.variable()), False))
                elif self.at_constraint():
                    order.append((self.constraint(), False))
                else:
                    break
        return tuple(order)

    def _limits(self) -> tuple[int, int | None]:
        offset, limit = 0, None
        while (word := self.token.word()) in ("LIMIT", "OFFSET"):
            self.advance()
            if not self.token.text.isdecimal():
                self.fail("a number")
            number = int(self.advance().text)
            offset, limit = (offset, number) if word == "LIMIT" else (number, limit)
        return offset, limit

    # Templates

    def template(self) -> tuple[Triple, ...]:
        """The template of a CONSTRUCT, in its braces."""
        outside = self._blank, self._paths
        self._blank, self._paths = Fresh, False
        self.expect("{")
        template = self.quads()
        self.expect("}")
        self._blank, self._paths = outside
        self.visible = {}
        return template

    def quads(self) -> tuple[Triple, ...]:
        """Triples, and those that GRAPH puts into a graph."""
        found: list[Node] = []
        self.triples = found
        while True:
            if self.at_triples():
                self.triples_block()
            elif self.accept_word("GRAPH"):
                outside, self.graph = self.graph, self.name()
                self.expect("{")
                self.triples_block()
                self.expect("}")
                self.graph = outside
                self.accept(".")
            else:
                return tuple(triple for triple in found if isinstance(triple, Triple))


def _add(parts: list[Node], node: Node) -> None:
    """Join one more node."""
    if isinstance(node, Join):
        parts += node.parts
    else:
        parts.append(node)


def _join(parts: Sequence[Node]) -> Node:
    return parts[0] if len(parts) == 1 else Join(tuple(parts))


def _slice(pattern: Node, offset: int, limit: int | None) -> Node:
    return Slice(pattern, offset, limit) if offset or limit is not None else pattern


def _conditions(expression: Expression) -> Iterator[Expression]:
    """The operands of `&&`, each of which has to be true."""
    if isinstance(expression, Call) and expression.name == "&&":
        for argument in expression.arguments:
            yield from _conditions(argument)
    else:
        yield expression


def _conjunction(conditions: Sequence[Expression]) -> Expression:
    first, *others = conditions
    for condition in others:
        first = Call("&&", (first, condition))
    return first
