"""Lexical forms and their values (XML Schema Part 2). Spark casts may raise errors, so patterns are checked first."""

from __future__ import annotations

from functools import reduce
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
ZONE: Final = r"(Z|[+-]((0[0-9]|1[0-3]):[0-5][0-9]|14:00))?"
# The limits on digits keep microseconds within 64 bits.
DURATION: Final = r"^-?P(?=[0-9T])([0-9]{1,6}D)?(T(?=[0-9])([0-9]{1,8}H)?([0-9]{1,9}M)?([0-9]{1,11}(\.[0-9]+)?S)?)?$"
DATE: Final = r"-?([1-9][0-9]{4,5}|[0-9]{4})-[0-9]{2}-[0-9]{2}"
DATE_TIME: Final = rf"^{DATE}T(([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?|24:00:00(\.0+)?){ZONE}$"


def number(text: Column, datatype: Column) -> Column:
    """Return the value of a numeric literal as a double; null for other and for ill-formed literals."""
    good = (
        F.when(datatype == XSD + "decimal", text.rlike(DECIMAL))
        .when(datatype.isin(XSD + "double", XSD + "float"), text.rlike(DOUBLE))
        .when(datatype.isin(*INTEGERS), text.rlike(INTEGER))
    )
    return F.when(good, text.try_cast("double"))


def whole(text: Column, datatype: Column) -> Column:
    """Return the value of an integer as a long; null for other literals and beyond 64 bits."""
    return F.when(datatype.isin(*INTEGERS) & text.rlike(INTEGER), text.try_cast("bigint"))


def timestamp(text: Column, datatype: Column) -> Column:
    """Return the value of an xsd:dateTime or dateTimeStamp; null for other and for ill-formed literals."""
    return F.when(datatype.isin(DATE_TIME_STAMP, XSD + "dateTime"), date_time(text))


def date_time(text: Column) -> Column:
    """Return the time of a text, in UTC if it has no time zone."""
    # Spark does not accept the hour 24, with which a text means the first instant of the next day.
    midnight = F.replace(text, F.lit("T24:"), F.lit("T00:")).try_cast("timestamp") + F.expr("INTERVAL 1 DAY")
    known = F.when(text.contains("T24:"), midnight).otherwise(text.try_cast("timestamp"))
    return F.when(text.rlike(DATE_TIME), known)


def boolean(text: Column, datatype: Column) -> Column:
    """Return the value of an xsd:boolean; null for other and for ill-formed literals."""
    return F.when(datatype == XSD + "boolean", truth(text))


def day(text: Column, datatype: Column) -> Column:
    """Return the first instant of an xsd:date, in UTC if it has no time zone; null for other literals."""
    return F.when((datatype == XSD + "date") & text.rlike(rf"^{DATE}{ZONE}$"), date_time(midnight(text)))


def midnight(date: Column) -> Column:
    """Return the text of the first instant of a date."""
    return F.regexp_replace(date, rf"^({DATE})", "$1T00:00:00")


def duration(text: Column, datatype: Column) -> Column:
    """Return the microseconds of a duration of days and smaller units; null for other and ill-formed literals."""
    units = ((r"([0-9]+)D", 86_400), (r"([0-9]+)H", 3_600), (r"([0-9]+)M", 60), (r"([0-9.]+)S", 1))
    parts = [
        F.coalesce(F.regexp_extract(text, unit, 1).try_cast("decimal(18,6)"), F.lit(0)) * seconds * 1_000_000
        for unit, seconds in units
    ]
    total = reduce(Column.__add__, parts).cast("bigint")
    known = datatype.isin(XSD + "dayTimeDuration", XSD + "duration") & text.rlike(DURATION)
    return F.when(known, F.when(text.startswith("-"), -total).otherwise(total))


def truth(text: Column) -> Column:
    """Return the boolean value of a text."""
    return F.when(text.isin("true", "1"), value=True).when(text.isin("false", "0"), value=False)


def written(number: Column, datatype: str) -> Column:
    """Return the lexical form of a number as an integer, decimal, float or double."""
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
