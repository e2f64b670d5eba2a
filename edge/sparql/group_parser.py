"""Parser of groups, sub-queries and templates (SPARQL 1.1 Query Language, 19.8, rules 16 to 74; translation: 18.2)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence

from edge.sparql.algebra import (
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
from edge.sparql.expression_parser import ExpressionParser, balanced
from edge.sparql.terms import AnyTerm
from edge.sparql.triples_parser import TriplesParser

Dataset = tuple[tuple[AnyTerm, ...] | None, tuple[AnyTerm, ...] | None]
"""Graphs of FROM and FROM NAMED; (None, None) if the query has neither."""


class GroupParser(TriplesParser, ExpressionParser):
    """Reads group graph patterns and their elements."""

    # Groups (18.2.2)

    def group(self) -> Node:
        """Read a group graph pattern in braces."""
        pattern, conditions = self._braced()
        return Filter(pattern, conditions) if conditions else pattern

    def group_body(self) -> Node:
        """Read the content of a group's braces."""
        pattern, conditions = self._elements()
        return Filter(pattern, conditions) if conditions else pattern

    def _braced(self) -> tuple[Node, tuple[Expression, ...]]:
        """Read a group in braces. Returns the pattern, and the filter conditions of this group."""
        self.expect("{")
        self.close_labels()
        # In the inner group only its own variables are in scope, afterwards they are also in scope here (18.2.1).
        outside, self.visible = self.visible, {}
        found = self._elements()
        outside.update(self.visible)
        self.visible = outside
        self.close_labels()
        self.expect("}")
        return found

    def _elements(self) -> tuple[Node, tuple[Expression, ...]]:
        """Read the content of a group's braces. Returns the pattern, and the filter conditions of this group."""
        # Patterns must not contain aggregates, only the clauses around them.
        outside, self.aggregates = self.aggregates, None
        parts: list[Node] = []
        conditions: list[Expression] = []
        if self.token.word() == "SELECT":
            parts.append(self.sub_select())
        while True:
            if self.at_triples():
                self.triples = parts
                self.triples_block()
            elif self.token.text == "{":
                add(parts, self._union())
            elif self.token.kind != "word":
                break
            elif self.accept_word("FILTER"):
                # A filter applies to the whole group, wherever it stands in it (18.2.2.2).
                conditions += conditions_of(self.constraint())
            else:
                parts = self._element(parts)
            self.accept(".")
        self.aggregates = outside
        return join(parts), tuple(conditions)

    def _element(self, parts: list[Node]) -> list[Node]:
        """Read an element that begins with a keyword. Returns the new parts of the group."""
        word = self.token.word()
        self.advance()
        if word == "OPTIONAL":
            # Filters of this group become the condition of the LeftJoin: they also see the variables of the left side
            # (18.2.2.6).
            right, conditions = self._braced()
            # OPTIONAL, MINUS and BIND apply to everything before them in the group (18.2.2.6).
            return [LeftJoin(join(parts), right, _conjunction(conditions))]
        if word == "MINUS":
            return [Minus(join(parts), self.hidden_group())]
        if word == "BIND":
            self.expect("(")
            expression = self.expression()
            self.expect_word("AS")
            variable = self.new_variable("already occurs in this group, so BIND cannot assign it")
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
            # The graph of an outer GRAPH clause is not known to the remote endpoint, so its patterns have none.
            return [*parts, Service(service, silent, self._group_in(None))]
        return self.fail("a pattern")

    def _union(self) -> Node:
        """Read a group, or several joined by UNION."""
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
        variables: list[Variable] = []
        while not self.accept(")"):
            token, variable = self.token, self.binding()
            if variable in variables:
                self.refuse(f"{token.text} occurs twice in VALUES", "Use different variables.", token)
            variables.append(variable)
        self.expect("{")
        rows = []
        while not self.accept("}"):
            rows.append(self._row(len(variables)))
        return Values(tuple(variables), tuple(rows))

    def _row(self, length: int) -> tuple[Slot | None, ...]:
        opening = self.token
        self.expect("(")
        cells = []
        while not self.accept(")"):
            cells.append(self._cell())
        if len(cells) != length:
            problem = f"This row has {len(cells)} values for {length} variables"
            self.refuse(problem, "Write UNDEF for no value.", opening)
        return tuple(cells)

    def _cell(self) -> Slot | None:
        return None if self.accept_word("UNDEF") else self.term()

    def sub_select(self) -> Node:
        """Read a sub-query without its braces."""
        visible, self.visible = self.visible, {}
        pattern, variables, _ = self.select()
        # Only the variables that the sub-query selects are in scope outside (18.2.1).
        self.visible = visible | dict.fromkeys(variables)
        return pattern

    @abstractmethod
    def select(self) -> tuple[Node, tuple[Variable, ...], Dataset]:
        """Read a SELECT query. Returns its pattern with all modifiers, its variables, and its dataset."""

    # Templates

    def template(self) -> tuple[Triple, ...]:
        """Read the template of a CONSTRUCT, in braces."""
        outside = self._blank, self._paths
        self._blank, self._paths = Fresh, False
        self.expect("{")
        template = self.quads()
        self.expect("}")
        self._blank, self._paths = outside
        # Labels of a template are independent of those in the pattern, and its variables do not count for `*`.
        self._labels = set()
        self.visible = {}
        return template

    def quads(self) -> tuple[Triple, ...]:
        """Read triples, and GRAPH blocks with triples."""
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
    """Add a node to the parts of a join."""
    if isinstance(node, Join):
        parts += node.parts
    else:
        parts.append(node)


def join(parts: Sequence[Node]) -> Node:
    """Return the join of parts, none of which is a Join."""
    return parts[0] if len(parts) == 1 else Join(tuple(parts))


def conditions_of(expression: Expression) -> Iterator[Expression]:
    """Yield the operands of nested `&&`, all of which must be true."""
    if isinstance(expression, Call) and expression.name == "&&":
        for argument in expression.arguments:
            yield from conditions_of(argument)
    else:
        yield expression


def _conjunction(conditions: Sequence[Expression]) -> Expression | None:
    return balanced("&&", conditions) if conditions else None
