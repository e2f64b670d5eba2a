"""REGEX and REPLACE (SPARQL 1.1 Query, sections 17.4.3.14 and 17.4.3.15)."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from spark_offload.sparql.constants import ConstantText
from spark_offload.sparql.regular_expressions import java_pattern, java_replacement
from spark_offload.sparql.string_arguments import like, plain, stringy
from spark_offload.sparql.values import BooleanValue, Value

_OUTSIDE_CLASS: Final = r"(?<!\\)\$(?![^\[]*\])"
"""The sign $ that is not part of a class and not escaped."""
_REPLACEMENT: Final = r"(?s)\A([^$\\]|\\[$\\]|\$[0-9])*\z"


def regex(text: Value, pattern: Value, flags: Value | None = None) -> Value:
    """Return whether a part of the text matches. An invalid pattern is an error of the call."""
    return BooleanValue(F.regexp_like(stringy(text), _pattern(pattern, flags)))


def replaced(text: Value, pattern: Value, replacement: Value, flags: Value | None = None) -> Value:
    """Replace each match in the text."""
    known, mode = _constant(pattern), "" if flags is None else _constant(flags)
    by = _constant(replacement)
    if known is None or mode is None:
        return like(text, _replaced(stringy(text), _pattern(pattern, flags), replacement))
    java = java_pattern(known, mode)
    if java is None:
        return like(text, F.lit(None).cast("string"))
    if by is None and "q" not in mode:
        return like(text, _replaced(stringy(text), F.lit(java.text), replacement))
    if "q" in mode:
        # The replacement is literal, too.
        inserted = F.replace(F.replace(plain(replacement), F.lit("\\"), F.lit("\\\\")), F.lit("$"), F.lit("\\$"))
    else:
        inserted = F.lit(java_replacement(by or "", java.groups))
    return like(text, F.regexp_replace(stringy(text), F.lit(java.text), inserted))


def _replaced(text: Column, pattern: Column, replacement: Value) -> Column:
    """Replace with a replacement that is only known in each row."""
    # Java raises an error for groups that do not exist, where XPath inserts nothing: nine empty groups are added.
    groups = F.concat(F.lit("(?:"), pattern, F.lit(")" + "()" * 9))
    inserted = plain(replacement)
    return F.regexp_replace(text, groups, F.when(inserted.rlike(_REPLACEMENT), inserted))


def _constant(value: Value) -> str | None:
    return value.constant if isinstance(value, ConstantText) else None


def _pattern(pattern: Value, flags: Value | None) -> Column:
    """Return a Java pattern; null for an invalid one, which is an error in SPARQL."""
    known, mode = _constant(pattern), "" if flags is None else _constant(flags)
    if known is not None and mode is not None:
        java = java_pattern(known, mode)
        return F.lit(None if java is None else java.text).cast("string")
    return _checked(plain(pattern), None if flags is None else plain(flags))


def _checked(pattern: Column, flags: Column | None) -> Column:
    """Return a Java pattern that is only known in each row. The differences to XPath are those that matter most."""
    ends = F.regexp_replace(pattern, _OUTSIDE_CLASS, r"\\z")
    if flags is None:
        java = F.concat(F.lit("(?dU)"), ends)
    else:
        quoted = F.concat(F.lit("\\Q"), F.replace(pattern, F.lit("\\E"), F.lit("\\E\\\\E\\Q")), F.lit("\\E"))
        mode = F.concat(F.lit("(?dU"), F.replace(flags, F.lit("q"), F.lit("")), F.lit(")"))
        body = F.when(flags.contains("q"), quoted).when(flags.contains("m"), pattern).otherwise(ends)
        java = F.when(flags.rlike(r"\A[smixq]*\z"), F.concat(mode, body))
    # Spark has no function that checks a pattern. This one returns null if Java raises an error.
    return F.try_reflect(F.lit("java.util.regex.Pattern"), F.lit("compile"), java)
