# ruff: noqa: D102  the docstrings of `Value` describe the methods
"""Values of expressions in each row. Kinds of values differ in their columns; only the columns in use are generated.

A column is null if the value is unbound or an error. SQL's three-valued logic then equals that of SPARQL (SPARQL 1.1
Query, section 17.2). A method that returns None means that values of this kind never have such a representation.

Arithmetic uses doubles, except for known integers. Computed decimals are written with 15 significant digits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from edge.outbox.observation import DATE_TIME_STAMP, STRING, XSD
from spark_offload import triples
from spark_offload.sparql import lexical, terms

BOOLEAN: Final = XSD + "boolean"
INTEGER: Final = XSD + "integer"
DECIMAL: Final = XSD + "decimal"
FLOAT: Final = XSD + "float"
DOUBLE: Final = XSD + "double"
DATE_TIME: Final = XSD + "dateTime"


@dataclass(frozen=True)
class Value(ABC):
    """Base class of values. Each kind is a dataclass whose fields are columns; the first is null if unbound."""

    def columns(self) -> tuple[Column, ...]:
        """Return all columns, for rows of a DataFrame."""
        return tuple(column for _, column in self._columns())

    def of(self, *columns: Column) -> Value:
        """Return a value of the same kind with other columns."""
        return replace(self, **{name: new for (name, _), new in zip(self._columns(), columns, strict=True)})

    def kind(self) -> tuple[object, ...]:
        """Return the kind. Values of equal kinds have the same columns."""
        # Other members than columns, such as a fixed datatype, are part of the kind.
        members = ((field.name, getattr(self, field.name)) for field in fields(self))
        return (type(self), *((name, None if isinstance(one, Column) else one) for name, one in members))

    def keys(self) -> tuple[Column, ...] | None:
        """Return columns that identify the term, or None if only its text does."""
        return None

    def bound(self) -> Column:
        """Return whether there is a value; never null."""
        return self.columns()[0].isNotNull()

    @abstractmethod
    def term(self) -> Column:
        """Return the N-Triples text of the term."""

    def iri(self) -> Column | None:
        """Return the text of an IRI; null for other terms."""
        return None

    def text(self) -> Column | None:
        """Return the lexical form of a literal; null for other terms."""
        return None

    def datatype(self) -> Column | None:
        """Return the datatype IRI of a literal; null for other terms."""
        return None

    def lang(self) -> Column | None:
        """Return the language tag of a literal; empty without one, null for other terms."""
        return None if self.text() is None else F.when(self.bound(), "")

    def plain(self) -> Column | None:
        """Return the lexical form of an xsd:string; null for other terms."""
        return None

    def number(self) -> Column | None:
        """Return the number as a double or a long; null for other terms."""
        return None

    def whole(self) -> Column | None:
        """Return the exact value of an integer as a long; null for other terms and beyond 64 bits."""
        return None

    def timestamp(self) -> Column | None:
        """Return the timestamp of an xsd:dateTime or dateTimeStamp; null for other terms.

        A time without a time zone counts as UTC.
        """
        return None

    def boolean(self) -> Column | None:
        """Return the value of an xsd:boolean; null for other terms."""
        return None

    def day(self) -> Column | None:
        """Return the first instant of an xsd:date; null for other terms."""
        return None

    def duration(self) -> Column | None:
        """Return the microseconds of an xsd:dayTimeDuration as a long; null for other terms."""
        return None

    def placed(self) -> tuple[Column, Column] | None:
        """Return the timestamp and the partition date of a time from the table."""
        return None

    def is_blank(self) -> Column:
        """Return whether the term is a blank node; null if unbound."""
        return F.when(self.bound(), F.lit(False))

    def _columns(self) -> list[tuple[str, Column]]:
        pairs = ((field.name, getattr(self, field.name)) for field in fields(self))
        return [(name, one) for name, one in pairs if isinstance(one, Column)]


@dataclass(frozen=True)
class TermValue(Value):
    """General term of unknown type, as its N-Triples text."""

    column: Column

    def keys(self) -> tuple[Column, ...] | None:
        return (self.column,)

    def term(self) -> Column:
        return self.column

    def iri(self) -> Column:
        return terms.iri_text(self.column)

    def text(self) -> Column:
        return terms.literal_text(self.column)

    def datatype(self) -> Column:
        return terms.datatype(self.column)

    def lang(self) -> Column:
        return terms.lang(self.column)

    def plain(self) -> Column | None:
        return F.when(self.datatype() == STRING, self.text())

    def number(self) -> Column | None:
        return lexical.number(self.text(), self.datatype())

    def whole(self) -> Column | None:
        return lexical.whole(self.text(), self.datatype())

    def timestamp(self) -> Column | None:
        return lexical.timestamp(self.text(), self.datatype())

    def boolean(self) -> Column | None:
        return lexical.boolean(self.text(), self.datatype())

    def day(self) -> Column | None:
        return lexical.day(self.text(), self.datatype())

    def duration(self) -> Column | None:
        return lexical.duration(self.text(), self.datatype())

    def is_blank(self) -> Column:
        return terms.is_blank(self.column)


@dataclass(frozen=True)
class KnownValue(TermValue):
    """A term with its number and time in separate columns, which may be more exact than its text."""

    value: Column
    """The number as a double; null for other terms."""
    ts: Column
    """The timestamp; null for other terms."""
    date: Column
    """The partition date of a time from the table, or the date of `ts`."""

    def number(self) -> Column:
        return self.value

    def timestamp(self) -> Column:
        return self.ts

    def placed(self) -> tuple[Column, Column]:
        return self.ts, self.date


def known(value: Value) -> KnownValue:
    """Return the value as a `KnownValue`."""
    number, timestamp = value.number(), value.timestamp()
    ts = F.lit(None).cast("timestamp") if timestamp is None else timestamp
    date = value.date if isinstance(value, (KnownValue, TimeValue)) and value.date is not None else ts.cast("date")
    return KnownValue(value.term(), F.lit(None).cast("double") if number is None else number.cast("double"), ts, date)


@dataclass(frozen=True)
class IriValue(Value):
    """An IRI, as its text without angle brackets."""

    column: Column

    def keys(self) -> tuple[Column, ...]:
        return (self.column,)

    def term(self) -> Column:
        return triples.iri(self.column)

    def iri(self) -> Column:
        return self.column


@dataclass(frozen=True)
class DerivedValue(Value):
    """The IRI of a resource of a mapped observation: the key of its row, and the suffix of the IRI."""

    series: Column
    epoch: Column
    seq: Column
    end: str

    def keys(self) -> tuple[Column, ...]:
        """Return epoch and sequence number. An epoch belongs to one outbox worldwide, so these two identify the row."""
        return self.epoch, self.seq

    def term(self) -> Column:
        return triples.iri(self.iri())

    def iri(self) -> Column:
        text = F.concat(self.series, F.lit("/"), self.epoch, F.lit("-"), self.seq.cast("string"))
        return F.concat(text, F.lit(self.end)) if self.end else text


@dataclass(frozen=True)
class TextValue(Value):
    """An xsd:string, as its text."""

    column: Column

    def keys(self) -> tuple[Column, ...]:
        return (self.column,)

    def term(self) -> Column:
        return triples.literal(self.column, F.lit(STRING))

    def text(self) -> Column:
        return self.column

    def datatype(self) -> Column:
        return F.when(self.column.isNotNull(), STRING)

    def plain(self) -> Column:
        return self.column


@dataclass(frozen=True)
class BooleanValue(Value):
    """An xsd:boolean, as a boolean column."""

    column: Column

    def keys(self) -> tuple[Column, ...]:
        return (self.column,)

    def term(self) -> Column:
        return typed_literal(self.text(), BOOLEAN)

    def text(self) -> Column:
        return self.column.cast("string")

    def datatype(self) -> Column:
        return F.when(self.column.isNotNull(), BOOLEAN)

    def boolean(self) -> Column:
        return self.column


@dataclass(frozen=True)
class MeasuredValue(Value):
    """The result value of a row of the table: a literal without a language tag, usually a number."""

    form: Column
    """Lexical form."""
    type: Column
    """Datatype IRI."""
    value: Column
    """The number as a double; null for other literals."""
    finite: bool = True
    """Whether no row has the number NaN."""
    large: bool = False
    """Whether a row may have an integer that a double cannot represent."""

    def keys(self) -> tuple[Column, ...]:
        return self.form, self.type

    def term(self) -> Column:
        return triples.literal(self.form, self.type)

    def text(self) -> Column:
        return self.form

    def datatype(self) -> Column:
        return self.type

    def plain(self) -> Column:
        return F.when(self.type == STRING, self.form)

    def number(self) -> Column:
        return self.value

    def whole(self) -> Column:
        # Without large integers, the lexical form need not be read.
        if self.large:
            return lexical.whole(self.form, self.type)
        return F.when(self.type.isin(*lexical.INTEGERS), self.value).try_cast("bigint")

    def timestamp(self) -> Column:
        return lexical.timestamp(self.form, self.type)

    def boolean(self) -> Column:
        return lexical.boolean(self.form, self.type)

    def day(self) -> Column:
        return lexical.day(self.form, self.type)

    def duration(self) -> Column:
        return lexical.duration(self.form, self.type)


@dataclass(frozen=True)
class TimeValue(Value):
    """A time of a row, or a computed time."""

    ts: Column
    """Timestamp."""
    form: Column | None = None
    """Lexical form in rows where it differs from the form of `edge.outbox.observation.time_text`; null in others."""
    type: Column | str = DATE_TIME_STAMP
    """Datatype IRI. A string if all rows have the same datatype."""
    date: Column | None = None
    """Partition date of the row; None for a computed time."""

    def placed(self) -> tuple[Column, Column] | None:
        return None if self.date is None else (self.ts, self.date)

    def keys(self) -> tuple[Column, ...] | None:
        """Return None with a separate lexical form, which may equal the default form of `ts`."""
        if self.form is not None:
            return None
        return (self.ts, self.type) if isinstance(self.type, Column) else (self.ts,)

    def term(self) -> Column:
        if self.form is None:
            return typed_literal(self.text(), self.type)
        return triples.literal(self.text(), self.datatype())

    def text(self) -> Column:
        written = triples.time_text(self.ts)
        return written if self.form is None else F.coalesce(self.form, written)

    def datatype(self) -> Column:
        return F.when(self.ts.isNotNull(), self.type)

    def plain(self) -> Column | None:
        return None if isinstance(self.type, str) else F.when(self.type == STRING, self.text())

    def number(self) -> Column | None:
        return None if isinstance(self.type, str) else lexical.number(self.text(), self.type)

    def boolean(self) -> Column | None:
        return None if isinstance(self.type, str) else lexical.boolean(self.text(), self.type)

    def timestamp(self) -> Column:
        known = self.ts
        if self.form is not None:
            known = F.when(self.form.isNull(), self.ts).otherwise(lexical.date_time(self.form))
        return known if isinstance(self.type, str) else F.when(self.type.isin(DATE_TIME_STAMP, DATE_TIME), known)


def typed_literal(text: Column, datatype: Column | str) -> Column:
    """Return the N-Triples text of a literal whose lexical form needs no escapes."""
    type_ = F.lit(datatype) if isinstance(datatype, str) else datatype
    return F.concat(F.lit('"'), text, F.lit('"^^<'), type_, F.lit(">"))
