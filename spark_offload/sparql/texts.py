"""The functions on strings (SPARQL 1.1 Query, section 17.4.3). Results have the language of the first argument."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from edge.outbox.observation import STRING
from spark_offload import triples
from spark_offload.sparql.matching import regex, replaced
from spark_offload.sparql.number_values import NumberValue
from spark_offload.sparql.string_arguments import like, stringy
from spark_offload.sparql.values import INTEGER, BooleanValue, TermValue, TextValue, Value


def _compatible(first: Value, second: Value) -> Column:
    """Whether two strings can be arguments together (section 17.4.3.1.2)."""
    if not isinstance(second, TermValue):
        return F.lit(True)
    lang = second.lang()
    other = first.lang()
    return (lang == "") | (lang == (F.lit("") if other is None else other))


def _search(found: Callable[[Column, Column], Column]) -> Callable[[Value, Value], Value]:
    def function(text: Value, part: Value) -> Value:
        return BooleanValue(F.when(_compatible(text, part), found(stringy(text), stringy(part))))

    return function


def _strlen(text: Value) -> Value:
    return NumberValue(F.length(stringy(text)).cast("bigint"), INTEGER)


def _ucase(text: Value) -> Value:
    return like(text, F.upper(stringy(text)))


def _lcase(text: Value) -> Value:
    return like(text, F.lower(stringy(text)))


def _substr(text: Value, start: Value, length: Value | None = None) -> Value:
    """Return the characters from position `start`, counted from 1 (XPath fn:substring).

    `start` may be below 1: positions before the text then count for `length`. Both arguments are rounded.
    """
    # Spark's `substring` would count a negative start from the end, and takes 32-bit integers only.
    begin = _rounded(start)
    end = F.lit(2**31 - 1).cast("double") if length is None else begin + _rounded(length)
    first = F.greatest(begin, F.lit(1.0))
    count = F.least(F.greatest(end - first, F.lit(0.0)), F.lit(2.0**31 - 1))
    return like(text, F.substring(stringy(text), F.least(first, F.lit(2.0**31 - 1)).cast("int"), count.cast("int")))


def _rounded(value: Value) -> Column:
    # XPath fn:round rounds halves up, Spark's `round` away from zero.
    number = value.number()
    return F.lit(None).cast("double") if number is None else F.floor(number.cast("double") + 0.5).cast("double")


def _strbefore(text: Value, part: Value) -> Value:
    return _around(text, part, lambda whole, inner: F.substring(whole, F.lit(1), F.instr(whole, inner) - 1))


def _strafter(text: Value, part: Value) -> Value:
    return _around(
        text, part, lambda whole, inner: F.substring(whole, F.instr(whole, inner) + F.length(inner), F.length(whole))
    )


def _around(text: Value, part: Value, cut: Callable[[Column, Column], Column]) -> Value:
    """Return the text before or after a part, or the plain empty string if the part does not occur."""
    whole, inner = stringy(text), stringy(part)
    found = like(text, cut(whole, inner))
    missing = TextValue(F.when(whole.isNotNull() & inner.isNotNull(), ""))
    within = F.contains(whole, inner)
    if isinstance(found, TextValue):
        return TextValue(F.when(_compatible(text, part), F.when(within, found.column).otherwise(missing.column)))
    return TermValue(F.when(_compatible(text, part), F.when(within, found.term()).otherwise(missing.term())))


def _concat(*parts: Value) -> Value:
    if not parts:
        return TextValue(F.lit(""))
    text = F.concat(*map(stringy, parts))
    if not all(isinstance(part, TermValue) for part in parts):
        return TextValue(text)
    langs = [part.lang() for part in parts]
    # The result has a language tag only if all arguments have the same one (section 17.4.3.12).
    first = langs[0]
    assert first is not None  # noqa: S101  a term may have one
    same = reduce(Column.__and__, [lang == first for lang in langs if lang is not None])
    written = triples.literal(text, F.lit(STRING))
    return TermValue(F.when(same & (first != ""), F.concat(written, F.lit("@"), first)).otherwise(written))


def _encode_for_uri(text: Value) -> Value:
    # Spark encodes form data: "+" for a space, "*" as it is, "%7E" for "~". SPARQL requires "%20", "%2A", "~".
    encoded = F.replace(F.url_encode(stringy(text)), F.lit("+"), F.lit("%20"))
    return TextValue(F.replace(F.replace(encoded, F.lit("*"), F.lit("%2A")), F.lit("%7E"), F.lit("~")))


FUNCTIONS: Final[dict[str, tuple[int, int, Callable[..., Value]]]] = {
    # Name: minimum and maximum number of arguments, function.
    "STRLEN": (1, 1, _strlen),
    "UCASE": (1, 1, _ucase),
    "LCASE": (1, 1, _lcase),
    "SUBSTR": (2, 3, _substr),
    "STRSTARTS": (2, 2, _search(F.startswith)),
    "STRENDS": (2, 2, _search(F.endswith)),
    "CONTAINS": (2, 2, _search(F.contains)),
    "STRBEFORE": (2, 2, _strbefore),
    "STRAFTER": (2, 2, _strafter),
    "CONCAT": (0, 1000, _concat),
    "ENCODE_FOR_URI": (1, 1, _encode_for_uri),
    "REGEX": (2, 3, regex),
    "REPLACE": (3, 4, replaced),
}
