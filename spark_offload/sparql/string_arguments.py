"""Arguments and results of the functions on strings (SPARQL 1.1 Query, section 17.4.3.1)."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from edge.outbox.observation import STRING
from spark_offload import triples
from spark_offload.sparql.values import TermValue, TextValue, Value


def plain(value: Value) -> Column:
    """Return the text of a string without a language tag; null for other values."""
    found = value.plain()
    return F.lit(None).cast("string") if found is None else found


def stringy(value: Value) -> Column:
    """Return the text of a string with or without a language tag; null for other values."""
    if not isinstance(value, TermValue):
        return plain(value)
    lang, text = value.lang(), value.text()
    return F.when((value.datatype() == STRING) | (lang != ""), text)


def like(first: Value, text: Column) -> Value:
    """Return `text` with the language tag of `first`."""
    if not isinstance(first, TermValue):
        return TextValue(text)
    lang = first.lang()
    written = triples.literal(text, F.lit(STRING))
    return TermValue(F.when(lang == "", written).otherwise(F.concat(written, F.lit("@"), lang)))
