"""Parser of SELECT and the solution modifiers (SPARQL 1.1 Query Language, 19.8, rules 7 to 28; 18.2.4, 18.2.5)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from edge.sparql.algebra import (
    Aggregate,
    Distinct,
    Expression,
    Extend,
    Filter,
    Group,
    Node,
    OrderBy,
    Project,
    Reference,
    Slice,
    Variable,
)
from edge.sparql.errors import SparqlError
from edge.sparql.group_parser import Dataset, GroupParser, add, conditions_of, join
from edge.sparql.terms import AnyTerm


class SelectParser(GroupParser):
    """Reads SELECT queries, and the clauses after the pattern of a query."""

    def select(self) -> tuple[Node, tuple[Variable, ...], Dataset]:
        """Read a SELECT query. Returns its pattern with all modifiers, its variables, and its dataset."""
        self.expect_word("SELECT")
        distinct, reduced = self.accept_word("DISTINCT"), self.accept_word("REDUCED")
        found: dict[Aggregate, Variable] = {}
        outside, self.aggregates = self.aggregates, found
        start = self.token.start
        star = self.accept("*")
        items = () if star else tuple(self._select_items())
        self._check_assigned_once(items)
        if not star and not items:
            self.fail("a variable")
        dataset = self.dataset()
        where = self.where()
        if star and self.token.word() == "GROUP":
            raise SparqlError("SELECT * cannot be used with GROUP BY", start, "Name the variables.")
        pattern, order, (offset, limit) = self._modifiers(where, found)
        self.aggregates = outside
        # After grouping, because the expressions may contain aggregates.
        for variable, expression in items:
            if expression is not None:
                pattern = Extend(pattern, variable, expression)
        if order:
            # Below the projection: ORDER BY may use variables that are not selected (18.2.5).
            pattern = OrderBy(pattern, order)
        variables = tuple(self.visible) if star else tuple(variable for variable, _ in items)
        pattern = Project(pattern, variables)
        if distinct or reduced:
            pattern = Distinct(pattern, reduced)
        return _slice(pattern, offset, limit), variables, dataset

    def _check_assigned_once(self, items: Sequence[tuple[Variable, Expression | None]]) -> None:
        names = [variable for variable, _ in items]
        for variable, expression in items:
            if expression is not None and names.count(variable) > 1:
                raise SparqlError(
                    f"?{variable.name} occurs twice in SELECT", self.token.start, "Use a new variable after AS."
                )

    def _select_items(self) -> Iterator[tuple[Variable, Expression | None]]:
        while True:
            if self.token.kind == "var":
                # Not `binding`: variables of SELECT are not in scope in WHERE, and do not count for `*`.
                yield self.variable(), None
            elif self.accept("("):
                expression = self.expression()
                self.expect_word("AS")
                yield self.variable(), expression
                self.expect(")")
            else:
                return

    def dataset(self) -> Dataset:
        """Read the FROM and FROM NAMED clauses."""
        default: list[AnyTerm] = []
        named: list[AnyTerm] = []
        given = False
        while self.accept_word("FROM"):
            given = True
            (named if self.accept_word("NAMED") else default).append(self.iri())
        return (tuple(default), tuple(named)) if given else (None, None)

    def where(self) -> Node:
        """Read a WHERE clause."""
        self.accept_word("WHERE")
        return self.group()

    def modified(self, pattern: Node) -> Node:
        """Return the pattern of an ASK, CONSTRUCT or DESCRIBE query with the modifiers at the cursor."""
        pattern, order, (offset, limit) = self._modifiers(pattern, {})
        return _slice(OrderBy(pattern, order) if order else pattern, offset, limit)

    def _modifiers(
        self, pattern: Node, found: dict[Aggregate, Variable]
    ) -> tuple[Node, tuple[tuple[Expression, bool], ...], tuple[int, int | None]]:
        """Read the modifiers. Returns the pattern with grouping, HAVING and VALUES; the order; offset and limit.

        `found`: the aggregates. HAVING and ORDER BY add theirs.
        """
        # HAVING and ORDER BY may contain aggregates, GROUP BY may not.
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
            add(parts, pattern)
            pattern = join([*parts, self._values()])
        return pattern, order, limits

    def _group_by(self, pattern: Node) -> tuple[Node, tuple[Variable, ...] | None]:
        """Return the pattern with the keys that are expressions, and all keys. None without GROUP BY."""
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
                name = self.key_name(key) if self.accept_word("AS") else None
                self.expect(")")
            else:
                key, name = self.constraint(), None
            if isinstance(key, Reference) and name is None:
                keys[key.variable] = None
            else:
                # A group key that is an expression becomes a variable, which `Group` can hash and compare.
                variable = name or Variable(self.next_name())
                pattern = Extend(pattern, variable, key)
                keys[variable] = None
        return pattern, tuple(keys)

    def key_name(self, key: Expression) -> Variable:
        """Read the name of a key."""
        variable = self.variable()
        if variable in self.visible:
            self.fail("a new variable")
        return variable

    def _having(self) -> tuple[Expression, ...]:
        conditions: list[Expression] = []
        if self.accept_word("HAVING"):
            while self.at_constraint():
                conditions += conditions_of(self.constraint())
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
        # In either order (rule 25, LimitOffsetClauses).
        while (word := self.token.word()) in ("LIMIT", "OFFSET"):
            self.advance()
            if not self.token.text.isdecimal():
                self.fail("a number")
            number = int(self.advance().text)
            offset, limit = (offset, number) if word == "LIMIT" else (number, limit)
        return offset, limit


def _slice(pattern: Node, offset: int, limit: int | None) -> Node:
    return Slice(pattern, offset, limit) if offset or limit is not None else pattern
