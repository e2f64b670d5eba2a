"""Translation of expressions from the SPARQL algebra to the relational form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast

from edge.sparql import algebra as source
from edge.sparql import terms as rdf
from edge.sparql.algebra import Variable
from spark_offload.sparql.relational import ColumnAggregate, ExistsTest, Expression, FunctionCall, Pattern

_SIGNS: Final = {"unary-": "-", "unary+": "+"}


class Expressions:
    """Translator of the expressions of one query."""

    def __init__(self, pattern: Callable[[source.Node], Pattern], base: str | None = None) -> None:
        """Create a translator. `pattern` translates the pattern of EXISTS; `base` is the base IRI of the query."""
        self._pattern = pattern
        self._base = () if base is None else (rdf.Literal(base),)
        self._aggregates: dict[Variable, str] = {}

    def name(self, variable: Variable) -> str:
        """Return the name of a variable. Those that the parser adds become hidden ones."""
        if not variable.name.startswith("."):
            return variable.name
        return self._aggregates.get(variable) or f"key {variable.name[1:]}"

    def aggregate(self, variable: Variable, aggregate: source.Aggregate) -> tuple[str, ColumnAggregate]:
        """Translate an aggregate, and give the variable that stands for it a name."""
        name = self._aggregates.setdefault(variable, f"aggregate {len(self._aggregates) + 1}")
        argument = None if aggregate.expression is None else self.expression(aggregate.expression)
        return name, ColumnAggregate(aggregate.name, argument, aggregate.distinct, aggregate.separator)

    def expression(self, expression: source.Expression) -> Expression:
        """Translate an expression. Raises `QueryRefused` for a pattern in EXISTS."""
        match expression:
            case source.Reference(variable):
                return Variable(self.name(variable))
            case source.Constant(term):
                return cast("rdf.Iri | rdf.Literal", term)
            case source.Exists(pattern, negated):
                return ExistsTest(self._pattern(pattern), negated)
            case source.Call(name, arguments, function):
                called = _SIGNS.get(name, name) if function is None else function.value
                translated = tuple(map(self.expression, arguments))
                if called == "IRI":
                    translated += self._base
                return FunctionCall(called, translated)
