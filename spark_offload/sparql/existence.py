"""EXISTS (SPARQL 1.1 Query, section 18.6). Conditions on variables of the outer query become join conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import reduce
from itertools import count
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from edge.sparql.algebra import Variable
from spark_offload.sparql import frames, relational
from spark_offload.sparql.correlation import correlated, correlates, outer_name
from spark_offload.sparql.expressions import conjuncts, holds
from spark_offload.sparql.frames import Condition, Frame, frame
from spark_offload.sparql.relational import ComputedRows, ExistsTest, Expression, Pattern
from spark_offload.sparql.values import BooleanValue, TermValue, TextValue, Value
from spark_offload.sparql.volatility import has_exists, volatile

Evaluate = Callable[[Pattern], Frame]

_ROWS: Final = count(1)


def where_exists(evaluate: Evaluate, solutions: Frame, exists: ExistsTest) -> Frame:
    """Return the solutions for which the pattern of EXISTS has a match, or none for NOT EXISTS."""
    names = relational.mentioned(exists) & solutions.values.keys()
    pattern, outside = _separated(exists.pattern, solutions)
    if (
        relational.outer(pattern) & names
        or any(has_exists(one) or volatile(one) for one in outside)
        or correlates(exists.pattern, names)
    ):
        return _where_correlated(evaluate, solutions, exists, names)

    def condition(values: Mapping[str, Value]) -> Column:
        return reduce(Column.__and__, [holds(one, values) for one in outside])

    found: Condition | None = condition if outside else None
    return frames.having(solutions, evaluate(pattern), found, negated=exists.negated)


def marked(evaluate: Evaluate, solutions: Frame, exists: ExistsTest) -> tuple[Frame, Expression]:
    """Add the truth value of EXISTS as a variable, for use in an expression. Returns the frame and the variable."""
    wanted = relational.mentioned(exists)
    names = [name for name in solutions.values if name in wanted]
    flag = f"exists {next(_ROWS)}"
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


def numbered(solutions: Frame, names: Iterable[str]) -> tuple[Frame, str]:
    """Add a variable that is equal in solutions with equal values of these variables. Returns its name."""
    row = f"row {next(_ROWS)}"
    # N-Triples texts contain no line ends, and are not empty.
    terms = [F.coalesce(solutions.values[name].term(), F.lit("")) for name in sorted(names)]
    return solutions.extended({row: TextValue(F.concat_ws("\n", *terms) if terms else F.lit(""))}, [row]), row


def _where_correlated(evaluate: Evaluate, solutions: Frame, exists: ExistsTest, names: frozenset[str]) -> Frame:
    """Evaluate EXISTS with the values of the outer solutions where the pattern uses them."""
    keyed, row = numbered(solutions, names)
    given = {row: keyed.values[row], **{outer_name(name): keyed.values[name] for name in sorted(names)}}
    certain = frozenset({row, *map(outer_name, names & solutions.certain)})
    distinct = frames.distinct(frame(keyed.rows, given, certain))
    pattern = correlated(exists.pattern, names, ComputedRows(distinct, tuple(given), certain))
    kept = frames.having(keyed, evaluate(pattern).only([row]), None, negated=exists.negated)
    return kept.only(solutions.values)


def _separated(pattern: Pattern, solutions: Frame) -> tuple[Pattern, list[Expression]]:
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
    return pattern, outside
