"""Expressions that Spark cannot evaluate in a join condition, but only as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from edge.sparql import terms as rdf
from spark_offload.sparql.regular_expressions import java_pattern
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

    These are random values. Spark also counts calls by reflection, for some regular expressions (see `matching`).
    """
    match expression:
        case FunctionCall(name, arguments):
            patterns = {"REGEX": arguments[1:], "REPLACE": (*arguments[1:2], *arguments[3:])}.get(name, ())
            return name in RANDOM or _reflected(patterns) or any(map(volatile, arguments))
        case _:
            return False


def _reflected(patterns: Sequence[Expression]) -> bool:
    """Return whether a pattern with its flags is evaluated by reflection."""
    if not patterns:
        return False
    known = [one.value for one in patterns if isinstance(one, rdf.Literal)]
    if len(known) < len(patterns):
        return True
    java = java_pattern(*known[:2])
    return java is not None and java.deep
