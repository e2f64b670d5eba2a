"""Groups, sub-queries and templates (SPARQL 1.1 Query Language, 19.8, rules 16 to 74; translation: 18.2)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence

from pyoxigraph import NamedNode

from edge.engine.sparql.algebra import (
    Call,
    Expression,
    Extend,
    Filter,
    Fresh,
    GraphPattern,
    Join,
    LeftJoin,
    Minus,
    Node,
    Service,
    Slot,
    Triple,
    Union,
    Values,
    Variable,
)
from edge.engine.sparql.expression_parser import ExpressionParser, balanced
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
        pattern, conditions = self._elements()
        return Filter(pattern, conditions) if conditions else pattern

    def _elements(self) -> tuple[Node, tuple[Expression, ...]]:
        """What stands between the braces of a group, and the conditions of the filters of this very group."""
        outside, self.aggregates = self.aggregates, None
        parts: list[Node] = []
        conditions: list[Expression] = []
        if self.token.word() == "SELECT":
            parts.append(self._sub_select())
        while True:
            if self.at_triples():
                self.triples = parts
                self.triples_block()
            elif self.token.text == "{":
                add(parts, self._union())
            elif self.token.kind != "word":
                break
            elif self.accept_word("FILTER"):
                conditions += conditions_of(self.constraint())
            else:
                parts = self._element(parts)
            self.accept(".")
        self.aggregates = outside
        return join(parts), tuple(conditions)

    def _element(self, parts: list[Node]) -> list[Node]:
        """What begins with a keyword, together with the parts of the group that stand before it."""
        word = self.token.word()
        self.advance()
        if word == "OPTIONAL":
            self.expect("{")
            right, conditions = self._elements()
            self.expect("}")
            return [LeftJoin(join(parts), right, _conjunction(conditions))]
        if word == "MINUS":
            return [Minus(join(parts), self.hidden_group())]
        if word == "BIND":
            self.expect("(")
            expression = self.expression()
            self.expect_word("AS")
            variable = self.binding()
            self.expect(")")
            return [Extend(join(parts), variable, expression)]
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

    def _sub_select(self) -> Node:
        if isinstance(self.graph, Variable):
            # Is the graph's name in scope in it? By the standard it is not, though it is what decides about each of its
            # triples; to Oxigraph it is another variable.
            self.fail("no sub-query where the graph is a variable")
        visible, self.visible = self.visible, {}
        pattern, variables, _ = self.select()
        self.visible = visible | dict.fromkeys(variables)
        return pattern

    @abstractmethod
    def select(self) -> tuple[Node, tuple[Variable, ...], Dataset]:
        """A SELECT query: its pattern with all its modifiers, what it selects, and its dataset."""

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


def add(parts: list[Node], node: Node) -> None:
    """Join one more node to the parts of a join."""
    if isinstance(node, Join):
        parts += node.parts
    else:
        parts.append(node)


def join(parts: Sequence[Node]) -> Node:
    """The join of parts none of which is a Join."""
    return parts[0] if len(parts) == 1 else Join(tuple(parts))


def conditions_of(expression: Expression) -> Iterator[Expression]:
    """The operands of `&&`, each of which has to be true."""
    if isinstance(expression, Call) and expression.name == "&&":
        for argument in expression.arguments:
            yield from conditions_of(argument)
    else:
        yield expression


def _conjunction(conditions: Sequence[Expression]) -> Expression | None:
    return balanced("&&", conditions) if conditions else None
