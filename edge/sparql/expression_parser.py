"""Parser of expressions (SPARQL 1.1 Query Language, 19.8, rules 107 to 128)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Final

from edge.sparql.algebra import Aggregate, Call, Constant, Exists, Expression, Node, Reference, Variable
from edge.sparql.cursor import Cursor
from edge.sparql.errors import LimitOfText

_OR, _AND, _RELATION, _SUM, _PRODUCT = range(5)
_LEVELS: Final = {
    "||": _OR,
    "&&": _AND,
    **dict.fromkeys(("=", "!=", "<", ">", "<=", ">=", "IN", "NOT IN"), _RELATION),
    **dict.fromkeys(("+", "-"), _SUM),
    **dict.fromkeys(("*", "/"), _PRODUCT),
}

_AGGREGATES: Final = frozenset({"COUNT", "SUM", "AVG", "MIN", "MAX", "SAMPLE", "GROUP_CONCAT"})
_WITHOUT_AGGREGATES: Final = _AGGREGATES | {"FILTER", "BIND", "GROUP", "HAVING", "ORDER"}
_FUNCTIONS: Final = frozenset(
    """
    STR LANG LANGMATCHES DATATYPE BOUND IRI URI BNODE RAND ABS CEIL FLOOR ROUND CONCAT STRLEN UCASE LCASE ENCODE_FOR_URI
    CONTAINS STRSTARTS STRENDS STRBEFORE STRAFTER YEAR MONTH DAY HOURS MINUTES SECONDS TIMEZONE TZ NOW UUID STRUUID MD5
    SHA1 SHA256 SHA384 SHA512 COALESCE IF STRLANG STRDT SAMETERM ISIRI ISURI ISBLANK ISLITERAL ISNUMERIC REGEX SUBSTR
    REPLACE
    """.split()  # noqa: SIM905
)
_SYNONYMS: Final = {"URI": "IRI", "ISURI": "ISIRI"}

_MAX_CHAIN: Final = 100
"""Limit of terms in a sum and factors in a product. Longer ones are trees too deep for recursive functions."""


class ExpressionParser(Cursor):
    """Reads expressions."""

    aggregates: dict[Aggregate, Variable] | None = None
    """Collects aggregates, each with the variable that stands for it. None: aggregates are not allowed here."""

    @abstractmethod
    def group(self) -> Node:
        """Read a group graph pattern in braces."""

    def expression(self) -> Expression:
        """Read an expression."""
        return self._operators(_OR)

    def at_constraint(self) -> bool:
        """Return whether a bracketed expression or a call is at the cursor."""
        token = self.token
        if token.kind == "word":
            word = token.text.upper()
            return word in _FUNCTIONS or word in _AGGREGATES or word in ("EXISTS", "NOT")
        return token.text == "(" or token.kind in ("iri", "name")

    def constraint(self) -> Expression:
        """Read a bracketed expression or a call."""
        if not self.at_constraint():
            self.fail("a constraint")
        return self._primary()

    def _operators(self, least: int) -> Expression:
        """Read operands and operators with a precedence of at least `least`."""
        left = self._unary()
        for _ in range(_MAX_CHAIN):
            operator = self._operator()
            level = _LEVELS.get(operator, -1)
            if level < least:
                return left
            self.advance()
            # `||` and `&&` are associative, so a long chain becomes a balanced tree instead of a deep one.
            if level <= _AND:
                operands = [left, self._operators(level + 1)]
                while self.accept(operator):
                    operands.append(self._operators(level + 1))
                left = balanced(operator, operands)
            elif operator == "IN":
                left = Call(operator, (left, *self._arguments()))
            elif operator == "NOT IN":
                self.advance()
                left = Call(operator, (left, *self._arguments()))
            else:
                left = Call(operator, (left, self._operators(level + 1)))
        raise LimitOfText(f"More than {_MAX_CHAIN} operators in a row", self.token.start, "Use brackets.")

    def _operator(self) -> str:
        """Return the operator at the cursor, or any other text."""
        token = self.token
        if token.kind == "punct":
            return token.text
        word = token.word()
        # `NOT` alone is not an operator: it may begin NOT EXISTS.
        return "NOT IN" if word == "NOT" and self.following().word() == "IN" else word

    def _unary(self) -> Expression:
        text = self.token.text
        # A sign directly before a number is part of the literal (rule NumericLiteral).
        if text in ("+", "-") and not self.at_signed_number():
            self.advance()
            return Call("unary" + text, (self._primary(),))
        if self.accept("!"):
            return Call("!", (self._unary(),))
        return self._primary()

    def _primary(self) -> Expression:
        token = self.token
        if token.kind == "var":
            variable = self.variable()
            self.references.append((variable, token))
            return Reference(variable)
        if self.accept("("):
            expression = self.expression()
            self.expect(")")
            return expression
        if token.kind in ("iri", "name") and self.following().text == "(":
            return Call("", function=self.iri(), arguments=tuple(self._arguments()))
        if token.kind == "word" and token.text not in ("true", "false"):
            return self._keyword(token.text.upper())
        return Constant(self.term())

    def _keyword(self, word: str) -> Expression:
        if word == "EXISTS" or (word == "NOT" and self.following().word() == "EXISTS"):
            negated = self.accept_word("NOT")
            self.advance()
            return Exists(self.hidden_group(), negated)
        if word in _AGGREGATES:
            return self._aggregate(word)
        if word not in _FUNCTIONS:
            self.fail("a function of SPARQL 1.1")
        self.advance()
        return Call(_SYNONYMS.get(word, word), tuple(self._arguments()))

    def _arguments(self) -> Iterator[Expression]:
        self.expect("(")
        if self.accept(")"):
            return
        yield self.expression()
        while self.accept(","):
            yield self.expression()
        self.expect(")")

    def hidden_group(self) -> Node:
        """Read a group whose variables are not in scope outside."""
        # 18.2.1: variables that occur only in EXISTS or MINUS are not in scope, so `SELECT *` leaves them out.
        visible, self.visible = self.visible, {}
        references = len(self.references)
        pattern = self.group()
        self.visible = visible
        del self.references[references:]
        return pattern

    def _aggregate(self, name: str) -> Reference:
        found = self.aggregates
        if found is None:
            # The nearest keyword before it names the clause, so valid texts need not keep track of clauses.
            clauses = (token.word() for token in reversed(self.tokens_read()))
            clause = next((word for word in clauses if word in _WITHOUT_AGGREGATES), "this place")
            remedy = (
                "Use it in SELECT, HAVING or ORDER BY of a SELECT; a sub-select makes its value available elsewhere."
            )
            clause += " BY" * (clause in ("GROUP", "ORDER"))
            self.refuse(f"{self.token.text} is an aggregate and cannot stand in {clause}", remedy)
        self.advance()
        self.expect("(")
        distinct = self.accept_word("DISTINCT")
        self.aggregates = None  # aggregates cannot be nested
        references = len(self.references)
        expression = None if name == "COUNT" and self.accept("*") else self.expression()
        self.aggregates = found
        del self.references[references:]
        separator = " "
        if self.accept(";"):
            self.expect_word("SEPARATOR")
            self.expect("=")
            separator = self.string()
        self.expect(")")
        aggregate = Aggregate(name, expression, distinct, separator)
        if aggregate not in found:
            found[aggregate] = Variable(self.next_name())
        return Reference(found[aggregate])


def balanced(operator: str, operands: Sequence[Expression]) -> Expression:
    """Return a chain of an associative operator as a balanced tree."""
    if len(operands) == 1:
        return operands[0]
    half = len(operands) // 2
    return Call(operator, (balanced(operator, operands[:half]), balanced(operator, operands[half:])))
