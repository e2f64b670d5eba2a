"""Queries whose answer depends only on the newest observations, so that they need not read the whole table.

`spark_offload.newest_rows.newest` has, for each gateway and combination of the columns `DESCRIPTION`, all rows with the
greatest time. The functions here return whether a star has the same effect on the newest rows as on all rows. The rows
of a gateway with the same combination are a *group*: they differ only in number, time and value.

- A star without conditions on number, time and value accepts all rows of a group or none. So MAX of the time, and
  MIN and MAX of the columns of a group, and the distinct values of these columns, are those of the newest rows.
- A join with `SELECT KEY (MAX(?time) AS ?last) … GROUP BY KEY` binds the time of a second star to `?last`. If this star
  has all conditions of the first one, then all rows of the group of an accepted row meet those, and have the same key.
  None of them is later than `?last`, so the accepted row is one of the newest of its group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from edge.sparql import terms as rdf
from edge.sparql.algebra import Variable
from spark_offload.newest_rows import DESCRIPTION
from spark_offload.sparql import relational
from spark_offload.sparql.relational import Aggregation, Basic, Pattern
from spark_offload.sparql.stars import Star, split

LATEST: Final = rdf.Iri("urn:edge:latest")
"""Graph with the newest observation of each series."""

_TIME: Final = "ts"
_VALUE: Final = "value"


def star_of_newest(pattern: Pattern) -> Basic | None:
    """Return the basic pattern next to or below an operation that needs only the newest rows of its star, if any."""
    match pattern:
        case relational.InnerJoin(Basic() as basic, other) | relational.InnerJoin(other, Basic() as basic) if (
            _suffice_for_join(other, basic)
        ):
            return basic
        case Aggregation(Basic() as basic) if _suffice_for_groups(pattern):
            return basic
        case relational.DistinctRows(relational.Projection(Basic() as basic, variables)) if _suffice(basic, variables):
            return basic
    return None


def _suffice(pattern: Pattern, keys: Iterable[str]) -> bool:
    """Return whether the distinct solutions of a basic pattern for some variables are those of the newest rows."""
    return (found := _variables(pattern)) is not None and all(found.get(key) in DESCRIPTION for key in keys)


def _suffice_for_groups(group: Aggregation) -> bool:
    """Return whether the aggregates of a basic pattern are those of the newest rows."""
    found = _variables(group.pattern)
    if found is None:
        return False
    for name, key in group.keys:
        if key != Variable(name) or found.get(name) not in DESCRIPTION:
            return False
    for _, aggregate in group.aggregates:
        argument = aggregate.argument
        column = found.get(argument.name) if isinstance(argument, Variable) else None
        described = column in DESCRIPTION and aggregate.name in ("MIN", "MAX")
        if not described and (column != _TIME or aggregate.name != "MAX"):
            return False
    return True


def _suffice_for_join(last: Pattern, pattern: Basic) -> bool:
    """Return whether the join of a subquery for last times with a basic pattern needs only its newest rows."""
    if not isinstance(last, relational.Projection) or not isinstance(last.pattern, relational.ComputedColumn):
        return False
    bind = last.pattern
    group = bind.pattern
    if not isinstance(group, Aggregation) or not _suffice_for_groups(group):
        return False
    times = {name for name, one in group.aggregates if one.name == "MAX" and one.argument in _cells(group, _TIME)}
    if not isinstance(bind.expression, Variable) or bind.expression.name not in times:
        return False
    if pattern.graph != _basic(group).graph or isinstance(pattern.graph, Variable):
        return False
    star = _only_star(pattern)
    if star is None or (_TIME, Variable(bind.variable)) not in star.cells:
        return False
    keys = {name for name, _ in group.keys}
    if not {*keys, bind.variable} <= {*last.variables}:
        return False
    columns = {column for column, _ in star.cells}
    return all(
        (column, node) in star.cells
        if not isinstance(node, Variable) or node.name in keys
        else column in columns or column == _VALUE
        for column, node in _star(group).cells
        if column != _TIME
    )


def _variables(pattern: Pattern) -> Mapping[str, str] | None:
    """Return the column of each variable, if the pattern is one star without conditions on number, time and value."""
    if not isinstance(pattern, Basic) or isinstance(pattern.graph, tuple):
        return None
    stars, rest = split(pattern.triples)
    if len(stars) != 1 or rest:
        return None
    star = stars[0]
    found = [
        (role, node) for role, node in (*star.resources, *star.cells, ("graph", pattern.graph)) if node is not None
    ]
    for column, node in found:
        if not isinstance(node, Variable) and column not in DESCRIPTION:
            return None
    named = [(node.name, column) for column, node in found if isinstance(node, Variable)]
    # A variable at two places would be a condition, as would be two nodes for the same resource.
    twice = [*Counter(name for name, _ in named).values(), *Counter(role for role, _ in star.resources).values()]
    return dict(named) if max(twice, default=1) == 1 and not _repeated(star) else None


def _repeated(star: Star) -> bool:
    """Return whether a time or value has two nodes, which must be equal."""
    return any(count > 1 for column, count in Counter(c for c, _ in star.cells).items() if column in (_TIME, _VALUE))


def _only_star(pattern: Basic) -> Star | None:
    stars, _ = split(pattern.triples)
    return stars[0] if len(stars) == 1 else None


def _basic(group: Aggregation) -> Basic:
    assert isinstance(group.pattern, Basic)  # noqa: S101  see _variables
    return group.pattern


def _star(group: Aggregation) -> Star:
    return split(_basic(group).triples)[0][0]


def _cells(group: Aggregation, column: str) -> list[object]:
    return [node for name, node in _star(group).cells if name == column]
