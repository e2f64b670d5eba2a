"""EXISTS (SPARQL 1.1 Query, section 18.6). Conditions on variables of the outer query become join conditions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from edge.sparql.algebra import Variable
from spark_offload.errors import QueryRefused
from spark_offload.sparql import frames, relational
from spark_offload.sparql.expressions import conjuncts, holds
from spark_offload.sparql.frames import Condition, Frame, frame
from spark_offload.sparql.relational import ExistsTest, Expression, FunctionCall, Pattern
from spark_offload.sparql.values import BooleanValue, TermValue, Value

Evaluate = Callable[[Pattern], Frame]


def where_exists(evaluate: Evaluate, solutions: Frame, exists: ExistsTest) -> Frame:
    """Return the solutions for which the pattern of EXISTS has a match, or none for NOT EXISTS."""
    pattern, condition = _separated(exists.pattern, solutions)
    return frames.having(solutions, evaluate(pattern), condition, negated=exists.negated)


def marked(evaluate: Evaluate, solutions: Frame, exists: ExistsTest) -> tuple[Frame, Expression]:
    """Add the truth value of EXISTS as a variable, for use in an expression. Returns the frame and the variable."""
    wanted = relational.mentioned(exists)
    names = [name for name in solutions.values if name in wanted]
    flag = f"exists {id(exists)}"
    keys = {name: TermValue(solutions.values[name].term()) for name in names}
    # Distinct keys, because the join below must not multiply the solutions.
    distinct = frames.distinct(frame(solutions.rows, keys, solutions.certain & keys.keys()))
    there = where_exists(evaluate, distinct, replace(exists, negated=False))
    there = there.extended({flag: BooleanValue(F.lit(True))}, [flag])
    on = [keys[name].term().eqNullSafe(there.values[name].term()) for name in names]
    rows = solutions.rows.join(there.rows, reduce(Column.__and__, on, F.lit(True)), "left")
    found = there.values[flag].bound()
    made = Frame(rows, solutions.values, solutions.certain)
    return made.extended({flag: BooleanValue(~found if exists.negated else found)}, [flag]), Variable(flag)


def _separated(pattern: Pattern, solutions: Frame) -> tuple[Pattern, Condition | None]:
    """Separate the conditions on outer variables from a pattern. Returns the remaining pattern and the conditions."""
    conditions: list[Expression] = []
    while isinstance(pattern, relational.Selection):
        conditions += conjuncts(pattern.condition)
        pattern = pattern.pattern
    certain = relational.certain(pattern)
    outside = [one for one in conditions if relational.mentioned(one) & solutions.values.keys() - certain]
    for one in conditions:
        if one not in outside:
            pattern = relational.Selection(pattern, one)
    far = relational.outer(pattern) & solutions.values.keys()
    if far or any(_exists_in(one) for one in outside):
        raise QueryRefused(f"a nested FILTER in EXISTS that uses {_names(far)} is not supported")
    if not outside:
        return pattern, None

    def condition(values: Mapping[str, Value]) -> Column:
        return reduce(Column.__and__, [holds(one, values) for one in outside])

    return pattern, condition


def _exists_in(expression: Expression) -> bool:
    return isinstance(expression, ExistsTest) or (
        isinstance(expression, FunctionCall) and any(map(_exists_in, expression.arguments))
    )


def _names(names: frozenset[str]) -> str:
    return ", ".join(f"?{name}" for name in sorted(names)) or "outer variables"
