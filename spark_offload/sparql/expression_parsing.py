"""Translation of expressions from rdflib's parse tree to the algebra. Aggregates become hidden variables."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

import rdflib
from rdflib.plugins.sparql.parserutils import CompValue

from spark_offload.errors import QueryRefused
from spark_offload.sparql.algebra import Aggregate, Call, Exists, Expression, Pattern, Variable

Tree: TypeAlias = Any
"""Node of rdflib's parse tree: a `CompValue`, a term, or a list of these."""

_AGGREGATE: Final = "Aggregate_"
_BUILTIN: Final = "Builtin_"


class Expressions:
    """Translator of the expressions of one query."""

    def __init__(self, group: Callable[[CompValue], Pattern]) -> None:
        """Create a translator. `group` translates the pattern of EXISTS."""
        self._group = group
        self._collected: list[dict[Aggregate, str]] = []
        self._count = 0

    def collecting(self) -> Callable[[], tuple[tuple[str, Aggregate], ...]]:
        """Allow aggregates from now on. The returned function ends this, and returns the aggregates found."""
        self._collected.append({})

        def collected() -> tuple[tuple[str, Aggregate], ...]:
            return tuple((name, aggregate) for aggregate, name in self._collected.pop().items())

        return collected

    def aggregates_in(self, tree: Tree) -> bool:
        """Return whether a tree contains an aggregate."""
        if isinstance(tree, CompValue):
            return tree.name.startswith(_AGGREGATE) or (
                tree.name not in ("Builtin_EXISTS", "Builtin_NOTEXISTS") and any(map(self.aggregates_in, tree.values()))
            )
        return isinstance(tree, list) and any(map(self.aggregates_in, tree))

    def expression(self, tree: Tree) -> Expression:
        """Translate an expression. Raises `QueryRefused`."""
        if isinstance(tree, rdflib.Variable):
            return Variable(str(tree))
        if isinstance(tree, (rdflib.URIRef, rdflib.Literal)):
            return tree
        if isinstance(tree, list) and len(tree) == 1:
            return self.expression(tree[0])
        assert isinstance(tree, CompValue)  # noqa: S101  there is nothing else
        name = tree.name
        if name.startswith(_AGGREGATE):
            return self._aggregate(tree)
        if name.startswith(_BUILTIN):
            return self._builtin(tree, name.removeprefix(_BUILTIN).upper())
        if name == "Function":
            return self._function(tree)
        if name.startswith("Unary"):
            operator = {"UnaryNot": "!", "UnaryMinus": "-", "UnaryPlus": "+"}[name]
            return Call(operator, (self.expression(tree.expr),))
        return self._operators(tree)

    def _operators(self, tree: CompValue) -> Expression:
        """Translate a chain of binary operators, which rdflib also creates around a single operand."""
        first = self.expression(tree.expr)
        if tree.other is None:
            return first
        match tree.name:
            case "ConditionalOrExpression" | "ConditionalAndExpression":
                operator = "||" if tree.name == "ConditionalOrExpression" else "&&"
                return Call(operator, (first, *self._all(tree.other)))
            case "RelationalExpression" if str(tree.op) in ("IN", "NOT IN"):
                return Call(str(tree.op), (first, *self._all(tree.other)))
            case "RelationalExpression":
                return Call(str(tree.op), (first, self.expression(tree.other)))
            case "AdditiveExpression" | "MultiplicativeExpression":
                for operator, other in zip(tree.op, self._all(tree.other), strict=True):
                    first = Call(str(operator), (first, other))
                return first
            case other:
                raise QueryRefused(f"{other} is not supported")

    def _builtin(self, tree: CompValue, name: str) -> Expression:
        if name in ("EXISTS", "NOTEXISTS"):
            return Exists(self._group(tree.graph), negated=name == "NOTEXISTS")
        arguments: list[Expression] = []
        for part in tree.values():
            arguments += self._all(part)
        return Call({"URI": "IRI", "ISURI": "ISIRI"}.get(name, name), tuple(arguments))

    def _function(self, tree: CompValue) -> Expression:
        if tree.distinct:
            raise QueryRefused(f"DISTINCT in a call of <{tree.iri}> is not supported")
        return Call(str(tree.iri), tuple(self._all(tree.expr)))

    def _aggregate(self, tree: CompValue) -> Expression:
        name = {"GroupConcat": "GROUP_CONCAT"}.get(told := tree.name.removeprefix(_AGGREGATE), told.upper())
        if not self._collected:
            raise QueryRefused(f"{name} outside of SELECT, HAVING and ORDER BY is not valid SPARQL")
        every = isinstance(tree.vars, str) and tree.vars == "*" and not isinstance(tree.vars, rdflib.term.Identifier)
        outside, self._collected = self._collected, []  # none within another
        try:
            argument = None if every else self.expression(tree.vars)
        finally:
            self._collected = outside
        separator = " " if tree.separator is None else str(tree.separator)
        aggregate = Aggregate(name, argument, bool(tree.distinct), separator)
        if aggregate not in self._collected[-1]:
            self._count += 1
            self._collected[-1][aggregate] = f"aggregate {self._count}"
        return Variable(self._collected[-1][aggregate])

    def _all(self, tree: Tree) -> Iterable[Expression]:
        """Translate a list of arguments; rdflib parses `()` as rdf:nil."""
        if tree is None or tree == rdflib.RDF.nil:
            return ()
        return tuple(map(self.expression, tree)) if isinstance(tree, list) else (self.expression(tree),)
