"""Functions of Spark's SQL as DuckDB's SQL. `{0}` is the first argument; functions of any number are callables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from spark_offload.embedded import regular_expressions
from spark_offload.errors import EngineRefused

Written = Callable[[Sequence[str]], str]


def _infix(operator: str) -> Written:
    return lambda args: "(" + f" {operator} ".join(args) + ")"


def _call(function: str) -> Written:
    return lambda args: f"{function}({', '.join(args)})"


def _when(args: Sequence[str]) -> str:
    pairs = " ".join(f"WHEN {args[at]} THEN {args[at + 1]}" for at in range(0, len(args) - 1, 2))
    return f"CASE {pairs}" + (f" ELSE {args[-1]}" if len(args) % 2 else "") + " END"


def _in(args: Sequence[str]) -> str:
    return f"({args[0]} IN ({', '.join(args[1:])}))"


def _cased(function: str) -> str:
    """Return a call that leaves texts beyond ASCII to Python, which changes cases as Java does."""
    choice = f"CASE WHEN regexp_matches(x, '^[\\x00-\\x7F]*$') THEN {function}(x) ELSE edge_{function}(x) END"
    return f"list_transform([{{0}}], lambda x: {choice})[1]"


FUNCTIONS: Final[dict[str, str | Written]] = {
    # Conditions
    "==": "({0} = {1})",
    "<=>": "({0} IS NOT DISTINCT FROM {1})",
    "<": "({0} < {1})",
    "<=": "({0} <= {1})",
    ">": "({0} > {1})",
    ">=": "({0} >= {1})",
    "and": _infix("AND"),
    "or": _infix("OR"),
    "not": "(NOT {0})",
    "!": "(NOT {0})",
    "isnull": "({0} IS NULL)",
    "isnotnull": "({0} IS NOT NULL)",
    "in": _in,
    "when": _when,
    "coalesce": _call("coalesce"),
    "nullif": "nullif({0}, {1})",
    # The history replaces NaN by null only. A repeated argument would let nested calls grow exponentially.
    "nanvl": "nullif({0}, 'NaN'::DOUBLE)",
    "isnan": "isnan({0})",
    # Numbers. TRY turns an overflow into null.
    "+": "({0} + {1})",
    "-": "({0} - {1})",
    "*": "({0} * {1})",
    "/": "({0} / nullif({1}, 0))",
    "%": "({0} % {1})",
    "negative": "(- {0})",
    "try_add": "TRY({0} + {1})",
    "try_subtract": "TRY({0} - {1})",
    "try_multiply": "TRY({0} * {1})",
    "try_divide": "({0} / nullif({1}, 0))",
    "abs": "abs({0})",
    "floor": "floor({0})",
    "ceil": "ceil({0})",
    "rint": "round_even({0}, 0)",
    "pmod": "((({0}) % {1} + {1}) % {1})",
    "greatest": _call("greatest"),
    "least": _call("least"),
    "rand": lambda _: "random()",
    "monotonically_increasing_id": lambda _: "(row_number() OVER () - 1)",
    "uuid": lambda _: "uuid()::VARCHAR",
    # Texts
    "concat": _infix("||"),
    "concat_ws": _call("concat_ws"),
    "length": "length({0})",
    "lower": _cased("lower"),
    "upper": _cased("upper"),
    "replace": "replace({0}, {1}, {2})",
    "substring": "substring({0}, {1}, greatest({2}, 0))",
    "startswith": "starts_with({0}, {1})",
    "endswith": "ends_with({0}, {1})",
    "contains": "contains({0}, {1})",
    "instr": "instr({0}, {1})",
    "lpad": "lpad({0}, {1}, {2})",
    "ltrim": "ltrim({1}, {0})",
    "rtrim": "rtrim({1}, {0})",
    "substring_index": "split_part({0}, {1}, {2})",  # the history has only -1, the last part
    "split": "string_split({0}, {1})",
    "format_string": "printf({0}, {1})",
    "url_encode": "url_encode({0})",
    "to_json": "to_json({0})::VARCHAR",
    "get_json_object": "json_extract_string({0}, {1})",
    "md5": "md5({0})",
    "sha1": "sha1({0})",
    "sha": "sha1({0})",
    # Times
    "unix_micros": "epoch_us({0})",
    "timestamp_micros": "make_timestamp({0})::TIMESTAMPTZ",
    "current_timestamp": lambda _: "now()",
    "year": "strftime({0}, '%Y')::BIGINT",  # `year` counts the years before the year 1 backwards
    "month": "month({0})",
    "dayofmonth": "day({0})",
    "day": "day({0})",
    "hour": "hour({0})",
    "from_utc_timestamp": "(timezone({1}, {0})::TIMESTAMPTZ)",
    "to_date": "({0})::DATE",
    "minute": "minute({0})",
    # Lists
    "array": lambda args: f"[{', '.join(args)}]",
    "size": "len({0})",
    "element_at": "({0})[{1}]",
    "slice": "({0})[{1}:({1} + {2} - 1)]",
    "array_append": "list_append({0}, {1})",
    "array_distinct": "list_distinct({0})",
    "array_join": "array_to_string({0}, {1})",
    "sort_array": "list_sort({0})",
    "transform": "list_transform({0}, {1})",
    "aggregate": "list_reduce({0}, {2}, {1})",
    "explode": "unnest({0})",
    "sequence": "generate_series({0}, {1}, {2})",
    # Aggregates
    "sum": "sum({0})",
    "avg": "avg({0})",
    "min": "min({0})",
    "max": "max({0})",
    "first": "any_value({0})",
    "try_sum": "TRY_CAST(sum({0}) AS BIGINT)",
    "min_by": "arg_min({0}, {1})",
    "max_by": "arg_max({0}, {1})",
    "collect_list": "list_filter(coalesce(list({0}), []), lambda x: x IS NOT NULL)",
    "median": "median({0})",
    "percentile_approx": "quantile_disc({0}, {1})",  # exact
    # Functions of windows
    "row_number": lambda _: "row_number()",
    "rank": lambda _: "rank()",
    "lead": "lead({0}, {1})",
}

_FORMATS: Final = {
    "'yyyy-MM-dd''T''HH:mm:ss''Z'''": "'%Y-%m-%dT%H:%M:%SZ'",
    "'yyyy-MM-dd''T''HH:mm:ss.SSS''Z'''": "'%Y-%m-%dT%H:%M:%S.%gZ'",
    "'yyyy-MM-dd''T''HH:mm:ss.SSSSSS''Z'''": "'%Y-%m-%dT%H:%M:%S.%fZ'",
}


def called(function: str, args: Sequence[str], *, distinct: bool) -> str:
    """Return a call of one of Spark's functions. Raises `EngineRefused` for one that DuckDB lacks."""
    if function == "count":
        return _count(args, distinct=distinct)
    if function == "date_format":
        return _formatted(f"strftime({args[0]}, {_FORMATS[args[1]]})")
    if function == "sha2" and args[1] == "256":
        return f"sha256({args[0]})"
    if function == "sha2":
        return f"edge_sha{args[1]}({args[0]})"
    if function in regular_expressions.FUNCTIONS:
        return regular_expressions.FUNCTIONS[function](args)
    found = FUNCTIONS.get(function)
    if found is None:
        raise EngineRefused(f"DuckDB has no function {function}: use --engine spark")
    return found.format(*args) if isinstance(found, str) else found(args)


def _formatted(time: str) -> str:
    """Return a time whose year has at least four digits; `strftime` writes -5 for the year -0005."""
    padded = f"regexp_replace({time}, '^-([0-9]{{1,3}}-)', '-000\\1')"
    return f"regexp_replace({padded}, '^-0+([0-9]{{4}}-)', '-\\1')"


def _count(args: Sequence[str], *, distinct: bool) -> str:
    if not distinct:
        return f"count({args[0]})"
    if len(args) == 1:
        return f"count(DISTINCT {args[0]})"
    # Spark counts the combinations without a null.
    known = " AND ".join(f"{one} IS NOT NULL" for one in args)
    return f"count(DISTINCT CASE WHEN {known} THEN row({', '.join(args)}) END)"
