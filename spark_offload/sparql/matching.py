"""REGEX and REPLACE (SPARQL 1.1 Query, sections 17.4.3.14 and 17.4.3.15).

Spark's own operators evaluate patterns that are known to be harmless. Others, and those that are only known in each
row, could overflow the stack, which would end the Java process: they are evaluated by reflection, which turns every
exception and error of Java into null.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from spark_offload.sparql.constants import ConstantText
from spark_offload.sparql.regular_expressions import java_pattern, java_replacement
from spark_offload.sparql.string_arguments import like, plain, stringy
from spark_offload.sparql.values import BooleanValue, Value

_OUTSIDE_CLASS: Final = r"(?<!\\)\$(?![^\[]*\])"
"""The sign $ that is not part of a class and not escaped."""
_REFERENCES: Final = r"\\[$\\]|\$[0-9]"
"""What may contain the signs $ and \\ in a replacement."""
_UTILITIES: Final = "org.apache.commons.lang3.RegExUtils"
"""Class with static methods for regular expressions. Spark depends on its library."""


class _Pattern(NamedTuple):
    """A Java pattern; null for an invalid one, which is an error in SPARQL."""

    column: Column
    deep: bool


def regex(text: Value, pattern: Value, flags: Value | None = None) -> Value:
    """Return whether a part of the text matches. An invalid pattern is an error of the call."""
    searched, java = stringy(text), _pattern(pattern, flags)
    if not java.deep:
        return BooleanValue(F.regexp_like(searched, java.column))
    # A match becomes longer by a space.
    longer = _by_reflection("replaceFirst", searched, java.column, F.lit("$0 "))
    return BooleanValue(F.length(longer) > F.length(searched))


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
        return like(text, _replaced(stringy(text), _Pattern(F.lit(java.text), java.deep), replacement))
    if "q" in mode:
        # The replacement is literal, too.
        inserted = (
            F.lit(re.sub(r"([\\$])", r"\\\1", by))
            if by is not None
            else F.replace(F.replace(plain(replacement), F.lit("\\"), F.lit("\\\\")), F.lit("$"), F.lit("\\$"))
        )
    else:
        inserted = F.lit(java_replacement(by or "", java.groups))
    return like(text, _all_replaced(stringy(text), _Pattern(F.lit(java.text), java.deep), inserted))


def _replaced(text: Column, pattern: _Pattern, replacement: Value) -> Column:
    """Replace with a replacement that is only known in each row."""
    # Java raises an error for groups that do not exist, where XPath inserts nothing: nine empty groups are added.
    groups = F.concat(F.lit("(?:"), pattern.column, F.lit(")" + "()" * 9))
    inserted = plain(replacement)
    valid = ~F.regexp_replace(inserted, _REFERENCES, "").rlike(r"[$\\]")
    return _all_replaced(text, _Pattern(groups, pattern.deep), F.when(valid, inserted))


def _all_replaced(text: Column, pattern: _Pattern, inserted: Column) -> Column:
    if not pattern.deep:
        return F.regexp_replace(text, pattern.column, inserted)
    return _by_reflection("replaceAll", text, pattern.column, inserted)


def _by_reflection(method: str, text: Column, pattern: Column, inserted: Column) -> Column:
    """Call a static method of Java; null if it fails, or for an argument that is null."""
    called = F.try_reflect(F.lit(_UTILITIES), F.lit(method), text, pattern, inserted)
    return F.when(text.isNotNull() & pattern.isNotNull() & inserted.isNotNull(), called)


def _constant(value: Value) -> str | None:
    return value.constant if isinstance(value, ConstantText) else None


def _pattern(pattern: Value, flags: Value | None) -> _Pattern:
    known, mode = _constant(pattern), "" if flags is None else _constant(flags)
    if known is not None and mode is not None:
        java = java_pattern(known, mode)
        return _Pattern(F.lit(None if java is None else java.text).cast("string"), java is not None and java.deep)
    return _Pattern(_in_rows(plain(pattern), None if flags is None else plain(flags)), deep=True)


def _in_rows(pattern: Column, flags: Column | None) -> Column:
    """Return a Java pattern that is only known in each row. The differences to XPath are those that matter most."""
    ends = F.regexp_replace(pattern, _OUTSIDE_CLASS, r"\\z")
    if flags is None:
        return F.concat(F.lit("(?dU)"), ends)
    quoted = F.concat(F.lit("\\Q"), F.replace(pattern, F.lit("\\E"), F.lit("\\E\\\\E\\Q")), F.lit("\\E"))
    mode = F.concat(F.lit("(?dU"), F.replace(flags, F.lit("q"), F.lit("")), F.lit(")"))
    body = F.when(flags.contains("q"), quoted).when(flags.contains("m"), pattern).otherwise(ends)
    return F.when(flags.rlike(r"\A[smixq]*\z"), F.concat(mode, body))
