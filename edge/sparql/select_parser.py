"""Parser of SELECT and the solution modifiers (SPARQL 1.1 Query Language, 19.8, rules 7 to 28; 18.2.4, 18.2.5)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

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
from edge.sparql.cursor import References
from edge.sparql.group_parser import Dataset, GroupParser, add, conditions_of, join
from edge.sparql.terms import AnyTerm
from edge.sparql.tokens import Token

_MAX_LIMIT: Final = 2**64
_MOST_DIGITS: Final = 20
"""Digits of the largest limit."""
"""LIMIT and OFFSET are smaller, as in Oxigraph."""


class _Item(NamedTuple):
    """A variable of SELECT."""

    variable: Variable
    token: Token
    """Token of the variable."""
    expression: Expression | None
    """Value that AS assigns."""
    references: References
    """Variables that need a value after grouping."""


class SelectParser(GroupParser):
    """Reads SELECT queries, and the clauses after the pattern of a query."""

    _grouped = False
    """Whether the query, whose modifiers were read last, has GROUP BY or aggregates."""

    def select(self) -> tuple[Node, tuple[Variable, ...], Dataset]:
        """Read a SELECT query. Returns its pattern with all modifiers, its variables, and its dataset."""
        self.expect_word("SELECT")
        distinct, reduced = self.accept_word("DISTINCT"), self.accept_word("REDUCED")
        found: dict[Aggregate, Variable] = {}
        outside, self.aggregates = self.aggregates, found
        start = self.token
        star = self.accept("*")
        items = () if star else tuple(self._select_items())
        self._check_assigned_once(items)
        if not star and not items:
            self.fail("a variable")
        dataset = self.dataset()
        where = self.where()
        pattern, order, (offset, limit) = self._modifiers(where, found)
        self.aggregates = outside
        if star and self._grouped:
            self.refuse(
                "SELECT * cannot be used with GROUP BY", "Name the variables of GROUP BY, and aggregates.", start
            )
        # After grouping, because the expressions may contain aggregates.
        for variable, token, expression, references in items:
            self.check_grouped(references)
            if expression is not None:
                if variable in self.visible:
                    problem = f"{token.text} already has a value, so AS cannot assign it"
                    self.refuse(problem, "Use a new variable after AS.", token)
                self.visible[variable] = None
                pattern = Extend(pattern, variable, expression)
        if order:
            # Below the projection: ORDER BY may use variables that are not selected (18.2.5).
            pattern = OrderBy(pattern, order)
        variables = tuple(self.visible) if star else tuple(item.variable for item in items)
        pattern = Project(pattern, variables)
        if distinct or reduced:
            pattern = Distinct(pattern, reduced)
        return _slice(pattern, offset, limit), variables, dataset

    def _check_assigned_once(self, items: Sequence[_Item]) -> None:
        assigned: dict[Variable, bool] = {}
        for variable, token, expression, _ in items:
            is_assigned = expression is not None
            if variable in assigned and (is_assigned or assigned[variable]):
                self.refuse(f"{token.text} occurs twice in SELECT", "Use a new variable after AS.", token)
            assigned[variable] = is_assigned

    def check_grouped(self, references: References) -> None:
        """Check that SELECT or DESCRIBE uses only keys and aggregates after GROUP BY.

        HAVING and ORDER BY may use other variables (11.4), which have no value there.
        """
        for variable, token in references if self._grouped else ():
            if variable not in self.visible:
                remedy = "Add it to GROUP BY, or put it in an aggregate such as SAMPLE()."
                self.refuse(f"{token.text} is neither in GROUP BY nor in an aggregate", remedy, token)

    def _select_items(self) -> Iterator[_Item]:
        while True:
            token = self.token
            if token.kind == "var":
                # Not `binding`: variables of SELECT are not in scope in WHERE, and do not count for `*`.
                variable = self.variable()
                yield _Item(variable, token, None, [(variable, token)])
            elif self.accept("("):
                before = len(self.references)
                expression = self.expression()
                self.expect_word("AS")
                token = self.token
                yield _Item(self.variable(), token, expression, self.references[before:])
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
        self._grouped = keys is not None or bool(found)
        if self._grouped:
            # Grouping hides the other variables (18.2.4.1).
            self.visible = dict.fromkeys(keys or ())
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
        return self.new_variable()

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
            # The grammar has one kind of token for all numbers.
            if not self.token.text.isdecimal():
                remedy = f"{word} takes a whole number of at least 0, such as 10."
                self.refuse(f"{self.token.text} is not a whole number", remedy)
            # Python refuses to convert more than 4,300 digits.
            digits = self.token.text.lstrip("0")
            number = int(digits or "0") if len(digits) <= _MOST_DIGITS else _MAX_LIMIT
            if number >= _MAX_LIMIT:
                self.refuse(f"{self.token.text} is not a whole number of less than 2^64", f"Write a smaller {word}.")
            self.advance()
            offset, limit = (offset, number) if word == "LIMIT" else (number, limit)
        return offset, limit


def _slice(pattern: Node, offset: int, limit: int | None) -> Node:
    return Slice(pattern, offset, limit) if offset or limit is not None else pattern
