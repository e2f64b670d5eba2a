"""Relations of Spark Connect as queries of DuckDB."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from spark_offload.embedded import sql_text
from spark_offload.embedded.expressions import expression, ordering, output_name
from spark_offload.errors import EngineRefused

if TYPE_CHECKING:
    from pyspark.sql.connect.proto import relations_pb2 as proto

_NONE: Final = '1 AS "none"'
"""Column of rows without columns, which DuckDB does not have."""
_JOINS: Final = {1: "JOIN", 3: "LEFT JOIN", 5: "ANTI JOIN", 6: "SEMI JOIN", 7: "CROSS JOIN"}


class Rows(NamedTuple):
    """A query, and the names of its columns."""

    sql: str
    columns: list[str]


Source = Callable[["proto.Relation"], Rows]
"""Function that returns the rows of a table, of local rows or of a stored result."""


def translated(relation: proto.Relation, source: Source) -> Rows:
    """Return the query of a relation. Raises `EngineRefused`."""
    kind = relation.WhichOneof("rel_type")
    if kind in ("read", "local_relation", "cached_remote_relation", "cached_local_relation"):
        return source(relation)
    if kind == "range":
        return Rows(f"SELECT range AS id FROM range({relation.range.start}, {relation.range.end})", ["id"])
    made = _RELATIONS.get(kind or "")
    if made is None:
        raise EngineRefused(f"DuckDB has no {kind} of Spark: use --engine spark")
    return made(getattr(relation, kind or ""), source)


def _project(one: proto.Project, source: Source) -> Rows:
    rows = translated(one.input, source)
    columns: list[str] = []
    terms: list[str] = []
    for term in one.expressions:
        if term.WhichOneof("expr_type") == "unresolved_star":
            columns += rows.columns
            terms += map(sql_text.name, rows.columns)
        else:
            columns.append(output_name(term))
            terms.append(f"{expression(term)} AS {sql_text.name(columns[-1])}")
    return Rows(f"SELECT {', '.join(terms) or _NONE} FROM ({rows.sql})", columns)


def _filter(one: proto.Filter, source: Source) -> Rows:
    rows = translated(one.input, source)
    return Rows(f"SELECT * FROM ({rows.sql}) WHERE {expression(one.condition)}", rows.columns)


def _with_columns(one: proto.WithColumns, source: Source) -> Rows:
    rows = translated(one.input, source)
    new = {alias.name[0]: expression(alias.expr) for alias in one.aliases}
    terms = [f"{new.get(column, sql_text.name(column))} AS {sql_text.name(column)}" for column in rows.columns]
    terms += [f"{term} AS {sql_text.name(column)}" for column, term in new.items() if column not in rows.columns]
    columns = [*rows.columns, *(column for column in new if column not in rows.columns)]
    return Rows(f"SELECT {', '.join(terms)} FROM ({rows.sql})", columns)


def _renamed(one: proto.WithColumnsRenamed, source: Source) -> Rows:
    rows = translated(one.input, source)
    new = {rename.col_name: rename.new_col_name for rename in one.renames}
    columns = [new.get(column, column) for column in rows.columns]
    terms = (
        f"{sql_text.name(before)} AS {sql_text.name(after)}"
        for before, after in zip(rows.columns, columns, strict=True)
    )
    return Rows(f"SELECT {', '.join(terms)} FROM ({rows.sql})", columns)


def _drop(one: proto.Drop, source: Source) -> Rows:
    rows = translated(one.input, source)
    columns = [column for column in rows.columns if column not in one.column_names]
    return Rows(f"SELECT {_listed(columns)} FROM ({rows.sql})", columns)


def _join(one: proto.Join, source: Source) -> Rows:
    left, right = translated(one.left, source), translated(one.right, source)
    operator = _JOINS[one.join_type]
    columns = [*left.columns]
    if one.join_type not in (5, 6):
        columns += [column for column in right.columns if column not in one.using_columns]
    on = ""
    if one.using_columns:
        on = f" USING ({', '.join(map(sql_text.name, one.using_columns))})"
    elif one.HasField("join_condition"):
        on = f" ON {expression(one.join_condition)}"
    elif operator != "CROSS JOIN":
        on = " ON true"
    sql = f"SELECT {_listed(columns)} FROM ({left.sql}) {operator} ({right.sql}){on}"
    return Rows(sql, columns)


def _set_operation(one: proto.SetOperation, source: Source) -> Rows:
    left, right = translated(one.left_input, source), translated(one.right_input, source)
    columns = [*left.columns, *(column for column in right.columns if column not in left.columns)]
    return Rows(f"({left.sql}) UNION ALL BY NAME ({right.sql})", columns)


def _aggregate(one: proto.Aggregate, source: Source) -> Rows:
    rows = translated(one.input, source)
    terms = [*one.grouping_expressions, *one.aggregate_expressions]
    columns = [output_name(term) for term in terms]
    listed = ", ".join(
        f"{expression(term)} AS {sql_text.name(name)}" for term, name in zip(terms, columns, strict=True)
    )
    keys = ", ".join(map(expression, one.grouping_expressions))
    return Rows(f"SELECT {listed} FROM ({rows.sql})" + (f" GROUP BY {keys}" if keys else ""), columns)


def _deduplicate(one: proto.Deduplicate, source: Source) -> Rows:
    rows = translated(one.input, source)
    return Rows(f"SELECT DISTINCT * FROM ({rows.sql})", rows.columns)


def _sort(one: proto.Sort, source: Source) -> Rows:
    rows = translated(one.input, source)
    return Rows(f"SELECT * FROM ({rows.sql}) ORDER BY {', '.join(map(ordering, one.order))}", rows.columns)


def _limit(one: proto.Limit, source: Source) -> Rows:
    rows = translated(one.input, source)
    return Rows(f"SELECT * FROM ({rows.sql}) LIMIT {one.limit}", rows.columns)


def _offset(one: proto.Offset, source: Source) -> Rows:
    rows = translated(one.input, source)
    return Rows(f"SELECT * FROM ({rows.sql}) OFFSET {one.offset}", rows.columns)


def _as_it_is(one: proto.Hint | proto.Repartition, source: Source) -> Rows:
    return translated(one.input, source)


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(map(sql_text.name, columns)) or _NONE


_RELATIONS: Final[dict[str, Callable[..., Rows]]] = {
    "project": _project,
    "filter": _filter,
    "with_columns": _with_columns,
    "with_columns_renamed": _renamed,
    "drop": _drop,
    "join": _join,
    "set_op": _set_operation,
    "aggregate": _aggregate,
    "deduplicate": _deduplicate,
    "sort": _sort,
    "limit": _limit,
    "offset": _offset,
    "hint": _as_it_is,
    "repartition": _as_it_is,
}
