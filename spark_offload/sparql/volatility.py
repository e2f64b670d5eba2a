"""Expressions that Spark cannot evaluate in a join condition, but only as columns."""

from __future__ import annotations

from typing import Final

from edge.sparql import terms as rdf
from spark_offload.sparql.relational import ExistsTest, Expression, FunctionCall

RANDOM: Final = frozenset({"BNODE", "RAND", "STRUUID", "UUID"})
"""Functions with another result in each solution."""


def has_exists(expression: Expression) -> bool:
    """Return whether an expression contains EXISTS."""
    match expression:
        case ExistsTest():
            return True
        case FunctionCall(_, arguments):
            return any(map(has_exists, arguments))
        case _:
            return False


def volatile(expression: Expression) -> bool:
    """Return whether the result of an expression may differ if Spark evaluates it again.

    These are random values. Spark also counts regular expressions that are only known in each row (see `matching`).
    """
    match expression:
        case FunctionCall(name, arguments):
            patterns = {"REGEX": arguments[1:], "REPLACE": (*arguments[1:2], *arguments[3:])}.get(name, ())
            unknown = not all(isinstance(one, rdf.Literal) for one in patterns)
            return name in RANDOM or unknown or any(map(volatile, arguments))
        case _:
            return False
