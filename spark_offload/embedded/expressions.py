"""Expressions of Spark Connect as DuckDB's SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spark_offload.embedded import sql_text
from spark_offload.embedded.functions import called
from spark_offload.errors import EngineRefused

if TYPE_CHECKING:
    from pyspark.sql.connect.proto import expressions_pb2 as proto

_STRINGS: Final = {
    "uuid()": "uuid()::VARCHAR",
    # An aggregate that only matters for Spark's choice of an operator.
    "collect_set(CAST(NULL AS INT))": "CASE WHEN count(*) >= 0 THEN []::INTEGER[] END",
}


def expression(one: proto.Expression) -> str:
    """Return an expression. Raises `EngineRefused`."""
    match kind := one.WhichOneof("expr_type"):
        case "literal":
            return _literal(one.literal)
        case "unresolved_attribute":
            return attribute(one.unresolved_attribute.unparsed_identifier)
        case "unresolved_function":
            return _function(one.unresolved_function)
        case "expression_string":
            return _STRINGS.get(one.expression_string.expression, f"({one.expression_string.expression})")
        case "alias":
            return expression(one.alias.expr)
        case "cast":
            return _cast(one.cast)
        case "unresolved_extract_value":
            extracted = one.unresolved_extract_value
            return f"({expression(extracted.child)}).{sql_text.name(extracted.extraction.literal.string)}"
        case "lambda_function":
            names = ", ".join(sql_text.name(variable.name_parts[0]) for variable in one.lambda_function.arguments)
            return f"lambda {names}: {expression(one.lambda_function.function)}"
        case "unresolved_named_lambda_variable":
            return sql_text.name(one.unresolved_named_lambda_variable.name_parts[0])
        case "window":
            return _window(one.window)
        case "sort_order":
            return ordering(one.sort_order)
        case _:
            raise EngineRefused(f"DuckDB has no {kind} of Spark: use --engine spark")


def attribute(identifier: str) -> str:
    """Return a column, or a member of a column with a struct."""
    first, *members = sql_text.path(identifier)
    column = sql_text.name(first)
    return column if not members else f"({column})" + "".join(f".{sql_text.name(member)}" for member in members)


def output_name(one: proto.Expression) -> str:
    """Return the name of the column that an expression makes."""
    if one.WhichOneof("expr_type") == "alias":
        return str(one.alias.name[0])
    if one.WhichOneof("expr_type") == "unresolved_attribute":
        return sql_text.path(one.unresolved_attribute.unparsed_identifier)[-1]
    return expression(one)


def ordering(order: proto.Expression.SortOrder) -> str:
    """Return a term of ORDER BY."""
    descending = order.direction == order.SORT_DIRECTION_DESCENDING
    last = order.null_ordering == order.SORT_NULLS_LAST
    return f"{expression(order.child)} {'DESC' if descending else 'ASC'} NULLS {'LAST' if last else 'FIRST'}"


def _literal(literal: proto.Expression.Literal) -> str:
    match literal.WhichOneof("literal_type"):
        case "null":
            return "NULL"
        case "string":
            return sql_text.string(literal.string)
        case "boolean":
            return "true" if literal.boolean else "false"
        case "integer" | "short" | "byte" as kind:
            return str(getattr(literal, kind))
        case "long":
            return f"{literal.long}::BIGINT"
        case "double":
            return sql_text.double(literal.double)
        case "timestamp":
            return f"make_timestamp({literal.timestamp}::BIGINT)::TIMESTAMPTZ"
        case "date":
            return f"(DATE '1970-01-01' + {literal.date})"
        case kind:
            raise EngineRefused(f"DuckDB has no literal {kind} of Spark: use --engine spark")


def _function(call: proto.Expression.UnresolvedFunction) -> str:
    if call.function_name.lower() == "struct":
        members = []
        for place, one in enumerate(call.arguments, 1):
            named = one.WhichOneof("expr_type") in ("alias", "unresolved_attribute")
            members.append(f"{sql_text.name(output_name(one) if named else f'col{place}')} := {expression(one)}")
        return f"struct_pack({', '.join(members)})"
    args = [expression(one) for one in call.arguments]
    return called(call.function_name.lower(), args, distinct=call.is_distinct)


def _window(window: proto.Expression.Window) -> str:
    parts = ", ".join(map(expression, window.partition_spec))
    order = ", ".join(map(ordering, window.order_spec))
    over = f"PARTITION BY {parts} ORDER BY {order}" if order else f"PARTITION BY {parts}"
    return f"{expression(window.window_function)} OVER ({over})"


def _cast(cast: proto.Expression.Cast) -> str:
    child = expression(cast.expr)
    type_ = sql_text.type_name(cast.type_str)
    if child == "NULL":
        return f"CAST(NULL AS {type_})"
    if type_ == "VARCHAR" and cast.expr.literal.WhichOneof("literal_type") == "string":
        return child
    if type_ == "VARCHAR" and cast.expr.cast.type_str in ("double", "float"):
        return f"edge_{cast.expr.cast.type_str}({child})"  # as Java writes it
    if type_ == "FLOAT" and cast.eval_mode != cast.EVAL_MODE_TRY:
        # DuckDB raises an error for numbers beyond the range, which are infinite in Java.
        infinite = "CASE WHEN x > 0 THEN 'Infinity'::FLOAT WHEN x < 0 THEN '-Infinity'::FLOAT END"
        return f"list_transform([{child}], lambda x: coalesce(TRY_CAST(x AS FLOAT), {infinite}))[1]"
    return f"{'TRY_CAST' if cast.eval_mode == cast.EVAL_MODE_TRY else 'CAST'}({child} AS {type_})"
