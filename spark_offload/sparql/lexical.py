"""Lexical forms and their values (XML Schema Part 2). Spark casts may raise errors, so patterns are checked first."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from edge.outbox.observation import DATE_TIME_STAMP, XSD

INTEGERS: Final = tuple(
    XSD + name
    for name in (
        "integer", "int", "long", "short", "byte", "nonNegativeInteger", "positiveInteger", "nonPositiveInteger",
        "negativeInteger", "unsignedLong", "unsignedInt", "unsignedShort", "unsignedByte",
    )
)  # fmt: skip
"""xsd:integer and the types derived from it."""
NUMBERS: Final = (*INTEGERS, XSD + "decimal", XSD + "float", XSD + "double")

INTEGER: Final = r"^[+-]?[0-9]+$"
DECIMAL: Final = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)$"
DOUBLE: Final = r"^([+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?INF|NaN)$"
DATE_TIME: Final = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-](0[0-9]|1[0-4]):[0-9]{2})?$"
)


def number(text: Column, datatype: Column) -> Column:
    """Return the value of a numeric literal as a double; null for other and for ill-formed literals."""
    good = (
        F.when(datatype == XSD + "decimal", text.rlike(DECIMAL))
        .when(datatype.isin(XSD + "double", XSD + "float"), text.rlike(DOUBLE))
        .when(datatype.isin(*INTEGERS), text.rlike(INTEGER))
    )
    return F.when(good, text.try_cast("double"))


def timestamp(text: Column, datatype: Column) -> Column:
    """Return the value of an xsd:dateTime or dateTimeStamp; null for other and for ill-formed literals."""
    return F.when(datatype.isin(DATE_TIME_STAMP, XSD + "dateTime"), date_time(text))


def date_time(text: Column) -> Column:
    """Return the time of a text, in UTC if it has no time zone."""
    return F.when(text.rlike(DATE_TIME), text.try_cast("timestamp"))


def boolean(text: Column, datatype: Column) -> Column:
    """Return the value of an xsd:boolean; null for other and for ill-formed literals."""
    return F.when(datatype == XSD + "boolean", truth(text))


def truth(text: Column) -> Column:
    """Return the boolean value of a text."""
    return F.when(text.isin("true", "1"), value=True).when(text.isin("false", "0"), value=False)


def written(number: Column, datatype: Column | str) -> Column:
    """Return the lexical form of a number as an integer, decimal, float or double."""
    if isinstance(datatype, str):
        return _form(number, datatype)
    return (
        F.when(datatype == XSD + "decimal", _form(number, XSD + "decimal"))
        .when(datatype == XSD + "integer", _form(number, XSD + "integer"))
        .otherwise(_form(number, XSD + "double"))
    )


def _form(number: Column, datatype: str) -> Column:
    if datatype == XSD + "integer":
        return number.try_cast("bigint").cast("string")
    if datatype == XSD + "decimal":
        digits = F.format_string("%.15g", number.cast("double"))
        # The first type has room for 20 digits before the point. Larger numbers fit into the second, and need no
        # fraction.
        exact = F.coalesce(
            digits.try_cast("decimal(38,18)").cast("string"), digits.try_cast("decimal(38,1)").cast("string")
        )
        return F.when(number.isNotNull(), F.rtrim(F.rtrim(exact, F.lit("0")), F.lit(".")))
    text = number.cast("float" if datatype == XSD + "float" else "double").cast("string")
    return F.when(text == "Infinity", "INF").when(text == "-Infinity", "-INF").otherwise(text)
