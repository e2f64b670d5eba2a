"""Functions (section 17.4) and casts (section 17.5) of SPARQL 1.1, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from edge.outbox.observation import DATE_TIME_STAMP, STRING, XSD
from spark_offload import triples
from spark_offload.sparql import lexical, texts
from spark_offload.sparql.arithmetic import absolute, number
from spark_offload.sparql.constants import ConstantText
from spark_offload.sparql.durations import ZONE_AT_END, DurationValue, zone_minutes
from spark_offload.sparql.frames import equal_terms
from spark_offload.sparql.number_values import NumberValue
from spark_offload.sparql.references import resolved
from spark_offload.sparql.string_arguments import plain as plain_text
from spark_offload.sparql.values import (
    BOOLEAN,
    DATE_TIME,
    DECIMAL,
    DOUBLE,
    FLOAT,
    INTEGER,
    BooleanValue,
    IriValue,
    TermValue,
    TextValue,
    TimeValue,
    Value,
)

Function = Callable[..., Value]

DATE: Final = XSD + "date"


def _string(value: Value) -> Value:
    known = [face for face in (value.text(), value.iri()) if face is not None]
    return TextValue(F.coalesce(*known))


def _lang(value: Value) -> Value:
    lang = value.lang()
    return TextValue(nothing("string") if lang is None else lang)


def _langmatches(tag: Value, ranges: Value) -> Value:
    lang, wanted = plain_text(tag), F.lower(plain_text(ranges))
    # Basic filtering of RFC 4647, section 3.3.1: a range matches whole subtags only.
    basic = (F.lower(lang) == wanted) | F.lower(lang).startswith(F.concat(wanted, F.lit("-")))
    return BooleanValue(F.when(wanted == "*", lang != "").otherwise(basic))


def _datatype(value: Value) -> Value:
    datatype = value.datatype()
    return IriValue(nothing("string") if datatype is None else datatype)


def _iri(value: Value, base: Value | None = None) -> Value:
    known = [face for face in (value.iri(), value.plain()) if face is not None]
    text = F.coalesce(*known) if known else nothing("string")
    # Without a base IRI, a relative reference is an error.
    if isinstance(base, ConstantText):
        text = resolved(text, base.constant)
    return IriValue(F.when(text.rlike(r'^[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20<>"{}|^`\\]*$'), text))


def _is_iri(value: Value) -> Value:
    return BooleanValue(_is(value, value.iri()))


def _is_literal(value: Value) -> Value:
    return BooleanValue(_is(value, value.text()))


def _is_numeric(value: Value) -> Value:
    return BooleanValue(_is(value, value.number()))


def _is(value: Value, face: Column | None) -> Column:
    return F.when(value.bound(), F.lit(False) if face is None else face.isNotNull())


def _strdt(text: Value, datatype: Value) -> Value:
    iri = datatype.iri()
    return TermValue(triples.literal(plain_text(text), nothing("string") if iri is None else iri))


def _strlang(text: Value, lang: Value) -> Value:
    tag = F.lower(plain_text(lang))
    # Without a repeated group, for which Java's engine would recurse.
    malformed = tag.rlike(r"\A[^a-z]|[^a-z0-9-]|(\A|-)(-|\z)|[a-z0-9]{9}|\A[a-z]+[0-9]")
    tag = F.when(~malformed, tag)
    return TermValue(F.concat(triples.literal(plain_text(text), F.lit(STRING)), F.lit("@"), tag))


def _round(value: Value) -> Value:
    # XPath fn:round rounds halves up, Spark's `round` away from zero.
    return _whole(value, lambda column: F.floor(column + 0.5))


def _ceil(value: Value) -> Value:
    return _whole(value, F.ceil)


def _floor(value: Value) -> Value:
    return _whole(value, F.floor)


def _whole(value: Value, rounded: Callable[[Column], Column]) -> Value:
    one = number(value)
    if one.integer:
        return one
    finite = F.abs(one.column) < 2.0**52  # a larger double has no fraction, and no long might hold it
    return NumberValue(F.when(finite, rounded(one.column).cast("double")).otherwise(one.column), one.type, one.exact)


def _part(pick: Callable[[Column], Column], *, dates: bool = False) -> Function:
    """Return a function for a part of a time, or also of an xsd:date, in the time zone of its lexical form."""

    def function(value: Value) -> Value:
        timestamp = _as_written(value, dates=dates)
        return NumberValue(nothing("bigint") if timestamp is None else pick(timestamp).cast("bigint"), INTEGER)

    return function


def _seconds(value: Value) -> Value:
    timestamp = _as_written(value)
    if timestamp is None:
        return NumberValue(nothing("double"), DECIMAL)
    return NumberValue(F.pmod(F.unix_micros(timestamp), F.lit(60_000_000)) / 1e6, DECIMAL)


def _as_written(value: Value, *, dates: bool = False) -> Column | None:
    """Return a time shifted to its own time zone, as its lexical form shows it."""
    timestamp, text = _instant(value) if dates else value.timestamp(), value.text()
    if timestamp is None or text is None:
        return timestamp
    if isinstance(value, TimeValue):
        if value.form is None:
            return timestamp
        text = value.form
    shift = F.coalesce(zone_minutes(F.regexp_extract(text, ZONE_AT_END, 0)), F.lit(0))
    return F.timestamp_micros(F.unix_micros(timestamp) + shift * 60_000_000)


def _instant(value: Value) -> Column | None:
    """Return the timestamp of a time, or the first instant of a date."""
    known = [face for face in (value.timestamp(), value.day()) if face is not None]
    return F.coalesce(*known) if known else None


def _tz(value: Value) -> Value:
    timestamp, text = _instant(value), value.text()
    if timestamp is None or text is None:
        return TextValue(nothing("string"))
    return TextValue(F.when(timestamp.isNotNull(), F.regexp_extract(text, ZONE_AT_END, 0)))


def _timezone(value: Value) -> Value:
    zone = plain_text(_tz(value))
    return DurationValue(F.when(zone != "", zone_minutes(zone)) * 60_000_000)


def _now() -> Value:
    return TimeValue(F.current_timestamp(), type=DATE_TIME)


def _hash(digest: Callable[[Column], Column]) -> Function:
    return lambda value: TextValue(digest(plain_text(value).cast("binary")))


def _to_string(value: Value) -> Value:
    return _string(value)


def _to_number(datatype: str) -> Function:
    def cast(value: Value) -> Value:
        whole = "bigint" if datatype == INTEGER else "double"
        form = {INTEGER: lexical.INTEGER, DECIMAL: lexical.DECIMAL}.get(datatype, lexical.DOUBLE)
        ways: list[Column] = []
        if datatype == INTEGER and (exact := value.whole()) is not None:
            ways.append(exact)
        if (known := value.number()) is not None:
            ways.append(_truncated(known) if datatype == INTEGER else _finite(known, datatype))
        if (boolean := value.boolean()) is not None:
            ways.append(boolean.cast("int").cast(whole))
        if (plain := value.plain()) is not None:
            ways.append(F.when(plain.rlike(form), plain.try_cast(whole)))
        return NumberValue(F.coalesce(*ways) if ways else nothing(whole), datatype)

    return cast


def _truncated(value: Column) -> Column:
    double = value.cast("double")
    return F.when(F.abs(double) < 2.0**63, F.when(double < 0, F.ceil(value)).otherwise(F.floor(value)).cast("bigint"))


def _finite(value: Column, datatype: str) -> Column:
    double = value.cast("double")
    return F.when(F.abs(double) < float("inf"), double) if datatype == DECIMAL else double


def _to_boolean(value: Value) -> Value:
    ways: list[Column] = []
    if (boolean := value.boolean()) is not None:
        ways.append(boolean)
    if (known := value.number()) is not None:
        ways.append((known != 0) & ~F.isnan(known.cast("double")))
    if (plain := value.plain()) is not None:
        ways.append(lexical.truth(plain))
    return BooleanValue(F.coalesce(*ways) if ways else nothing("boolean"))


def _to_timestamp(datatype: str) -> Function:
    def cast(value: Value) -> Value:
        timestamp, plain, day, text = value.timestamp(), value.plain(), value.day(), value.text()
        ways = [] if timestamp is None else [timestamp]
        if plain is not None:
            ways.append(lexical.date_time(plain))
        if day is not None and text is not None:
            ways.append(day)
            text = F.when(day.isNotNull(), lexical.midnight(text)).otherwise(text)
        if not ways or text is None:
            return TimeValue(nothing("timestamp"), type=datatype)
        known = F.coalesce(*ways)
        return TimeValue(known, F.when(known.isNotNull(), text), datatype)

    return cast


def _to_date(value: Value) -> Value:
    text, plain, known = value.text(), value.plain(), _instant(value)
    if text is None:
        return TermValue(nothing("string"))
    ways = [] if known is None else [known]
    if plain is not None:
        ways += [lexical.date_time(plain), lexical.day(plain, F.lit(DATE))]
    date = F.regexp_replace(text, "T[^Z+-]*", "")
    return TermValue(F.when(F.coalesce(*ways, nothing("timestamp")).isNotNull(), triples.literal(date, F.lit(DATE))))


def nothing(type_: str) -> Column:
    """Return a null column of a type."""
    return F.lit(None).cast(type_)


FUNCTIONS: Final[dict[str, tuple[int, int, Function]]] = {
    "STR": (1, 1, _string),
    "LANG": (1, 1, _lang),
    "LANGMATCHES": (2, 2, _langmatches),
    "DATATYPE": (1, 1, _datatype),
    "IRI": (1, 2, _iri),
    "ISIRI": (1, 1, _is_iri),
    "ISBLANK": (1, 1, lambda value: BooleanValue(value.is_blank())),
    "ISLITERAL": (1, 1, _is_literal),
    "ISNUMERIC": (1, 1, _is_numeric),
    "SAMETERM": (2, 2, lambda left, right: BooleanValue(equal_terms(left, right))),
    "STRDT": (2, 2, _strdt),
    "STRLANG": (2, 2, _strlang),
    "ABS": (1, 1, absolute),
    "ROUND": (1, 1, _round),
    "CEIL": (1, 1, _ceil),
    "FLOOR": (1, 1, _floor),
    "YEAR": (1, 1, _part(F.year, dates=True)),
    "MONTH": (1, 1, _part(F.month, dates=True)),
    "DAY": (1, 1, _part(F.dayofmonth, dates=True)),
    "HOURS": (1, 1, _part(F.hour)),
    "MINUTES": (1, 1, _part(F.minute)),
    "SECONDS": (1, 1, _seconds),
    "TZ": (1, 1, _tz),
    "TIMEZONE": (1, 1, _timezone),
    "NOW": (0, 0, _now),
    "RAND": (0, 0, lambda: NumberValue(F.rand(), DOUBLE)),
    "UUID": (0, 0, lambda: IriValue(F.concat(F.lit("urn:uuid:"), F.expr("uuid()")))),
    "STRUUID": (0, 0, lambda: TextValue(F.expr("uuid()"))),
    "BNODE": (0, 0, lambda: TermValue(F.concat(F.lit("_:b"), F.replace(F.expr("uuid()"), F.lit("-"), F.lit(""))))),
    "MD5": (1, 1, _hash(F.md5)),
    "SHA1": (1, 1, _hash(F.sha1)),
    "SHA256": (1, 1, _hash(lambda column: F.sha2(column, 256))),
    "SHA384": (1, 1, _hash(lambda column: F.sha2(column, 384))),
    "SHA512": (1, 1, _hash(lambda column: F.sha2(column, 512))),
    STRING: (1, 1, _to_string),
    BOOLEAN: (1, 1, _to_boolean),
    DATE_TIME: (1, 1, _to_timestamp(DATE_TIME)),
    DATE_TIME_STAMP: (1, 1, _to_timestamp(DATE_TIME_STAMP)),
    DATE: (1, 1, _to_date),
    **{datatype: (1, 1, _to_number(datatype)) for datatype in (INTEGER, DECIMAL, FLOAT, DOUBLE)},
    **texts.FUNCTIONS,
}
"""Minimum and maximum number of arguments, and implementation, by name."""
