# ruff: noqa: D102  the methods are told by `Value`
"""What an expression is worth, row by row: kinds of values, from which only what is needed becomes a column.

A column of ours is null where nothing is bound, or where evaluating is an error: SQL's three-valued logic is then that
of SPARQL (SPARQL 1.1 Query, section 17.2). A method that returns None says that no value of this kind has such a face.

Numbers are calculated with as doubles, but for integers that are known to be such. A decimal that was calculated is
written with 15 significant digits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
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


class Value(ABC):
    """Any. Fields of the kinds are columns."""

    @abstractmethod
    def pack(self) -> Column:
        """All of it as one column. `bound` tells where there is no value: this may be a struct of nulls there."""

    @abstractmethod
    def of(self, column: Column) -> Value:
        """A value of the same kind from a column that `pack` made."""

    @abstractmethod
    def term(self) -> Column:
        """The N-Triples text."""

    def kind(self) -> tuple[object, ...]:
        """Values of equal kinds have columns of the same type, which `of` reads."""
        return (type(self),)

    def key(self) -> Column:
        """A column that is equal where terms are equal, and other values are of this kind."""
        return self.term()

    def bound(self) -> Column:
        """Whether there is a value; never null."""
        return self.pack().isNotNull()

    def iri(self) -> Column | None:
        """The text of an IRI."""
        return None

    def text(self) -> Column | None:
        """The lexical form of a literal."""
        return None

    def datatype(self) -> Column | None:
        """Of a literal."""
        return None

    def lang(self) -> Column | None:
        """Of a literal; empty where it has none."""
        return None if self.text() is None else F.when(self.bound(), "")

    def plain(self) -> Column | None:
        """The lexical form of a string without a language."""
        return None

    def number(self) -> Column | None:
        """A double, or a long, where it is a number."""
        return None

    def moment(self) -> Column | None:
        """A timestamp, where it is an xsd:dateTime or dateTimeStamp. One without a time zone is taken for UTC."""
        return None

    def boolean(self) -> Column | None:
        """The value of an xsd:boolean."""
        return None

    def placed(self) -> tuple[Column, Column] | None:
        """Where the moment is, if it is one: a timestamp, and the day of it by which the table is parted."""
        return None

    def is_blank(self) -> Column:
        """Whether it is a blank node."""
        return F.when(self.bound(), F.lit(False))


@dataclass(frozen=True)
class Term(Value):
    """Nothing is known of it before: its N-Triples text."""

    column: Column

    def pack(self) -> Column:
        return self.column

    def of(self, column: Column) -> Value:
        return replace(self, column=column)

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

    def moment(self) -> Column | None:
        return lexical.moment(self.text(), self.datatype())

    def boolean(self) -> Column | None:
        return lexical.boolean(self.text(), self.datatype())

    def is_blank(self) -> Column:
        return terms.is_blank(self.column)


@dataclass(frozen=True)
class Known(Term):
    """A term, and what it means, which a row of the table may tell better than its text."""

    value: Column
    """A double, where it is a number."""
    ts: Column
    """A timestamp, where it is a moment."""
    date: Column

    def pack(self) -> Column:
        return F.struct(
            self.column.alias("term"), self.value.alias("number"), self.ts.alias("ts"), self.date.alias("date")
        )

    def of(self, column: Column) -> Value:
        return Known(column["term"], column["number"], column["ts"], column["date"])

    def bound(self) -> Column:
        return self.column.isNotNull()

    def number(self) -> Column:
        return self.value

    def moment(self) -> Column:
        return self.ts

    def placed(self) -> tuple[Column, Column]:
        return self.ts, self.date


def known(value: Value) -> Known:
    """A value as one of that kind."""
    number, moment = value.number(), value.moment()
    ts = F.lit(None).cast("timestamp") if moment is None else moment
    date = value.date if isinstance(value, (Known, Moment)) and value.date is not None else ts.cast("date")
    return Known(value.term(), F.lit(None).cast("double") if number is None else number.cast("double"), ts, date)


@dataclass(frozen=True)
class Iri(Value):
    """An IRI: its text."""

    column: Column

    def pack(self) -> Column:
        return self.column

    def of(self, column: Column) -> Value:
        return replace(self, column=column)

    def term(self) -> Column:
        return triples.iri(self.column)

    def key(self) -> Column:
        return self.column

    def iri(self) -> Column:
        return self.column


@dataclass(frozen=True)
class Derived(Value):
    """The IRI of a resource of an observation that the mapping stored: where it stands, and what the IRI ends in."""

    series: Column
    epoch: Column
    seq: Column
    end: str

    def pack(self) -> Column:
        return F.struct(self.series.alias("series"), self.epoch.alias("epoch"), self.seq.alias("seq"))

    def of(self, column: Column) -> Value:
        return replace(self, series=column["series"], epoch=column["epoch"], seq=column["seq"])

    def kind(self) -> tuple[object, ...]:
        return (Derived, self.end)

    def bound(self) -> Column:
        return self.seq.isNotNull()

    def term(self) -> Column:
        return triples.iri(self.iri())

    def key(self) -> Column:
        """An epoch is that of one outbox anywhere, so these two name the row."""
        return F.when(self.bound(), F.struct(self.epoch.alias("epoch"), self.seq.alias("seq")))

    def iri(self) -> Column:
        text = F.concat(self.series, F.lit("/"), self.epoch, F.lit("-"), self.seq.cast("string"))
        return F.concat(text, F.lit(self.end)) if self.end else text


@dataclass(frozen=True)
class Text(Value):
    """An xsd:string."""

    column: Column

    def pack(self) -> Column:
        return self.column

    def of(self, column: Column) -> Value:
        return replace(self, column=column)

    def term(self) -> Column:
        return triples.literal(self.column, F.lit(STRING))

    def key(self) -> Column:
        return self.column

    def text(self) -> Column:
        return self.column

    def datatype(self) -> Column:
        return F.when(self.column.isNotNull(), STRING)

    def plain(self) -> Column:
        return self.column


@dataclass(frozen=True)
class Boolean(Value):
    """An xsd:boolean."""

    column: Column

    def pack(self) -> Column:
        return self.column

    def of(self, column: Column) -> Value:
        return replace(self, column=column)

    def term(self) -> Column:
        return _literal(self.text(), BOOLEAN)

    def key(self) -> Column:
        return self.column

    def text(self) -> Column:
        return self.column.cast("string")

    def datatype(self) -> Column:
        return F.when(self.column.isNotNull(), BOOLEAN)

    def boolean(self) -> Column:
        return self.column


@dataclass(frozen=True)
class Number(Value):
    """A number that was calculated."""

    column: Column
    """A long where it is known to be an integer, else a double."""
    type: Column | str
    """Its datatype: integer, decimal, float or double."""

    @property
    def whole(self) -> bool:
        """Whether it is known to be an integer."""
        return isinstance(self.type, str) and self.type == INTEGER

    def pack(self) -> Column:
        if isinstance(self.type, str):
            return self.column
        return F.struct(self.column.alias("number"), self.type.alias("type"))

    def of(self, column: Column) -> Value:
        if isinstance(self.type, str):
            return replace(self, column=column)
        return replace(self, column=column["number"], type=column["type"])

    def kind(self) -> tuple[object, ...]:
        return (Number, self.type if isinstance(self.type, str) else None)

    def bound(self) -> Column:
        return self.column.isNotNull()

    def term(self) -> Column:
        return _literal(self.text(), self.type)

    def key(self) -> Column:
        return self.column if self.whole else self.term()

    def text(self) -> Column:
        return lexical.written(self.column, self.type)

    def datatype(self) -> Column:
        return F.when(self.column.isNotNull(), self.type)

    def number(self) -> Column:
        return self.column


@dataclass(frozen=True)
class Measured(Value):
    """The numeric value of a row of the table: a literal without a language."""

    form: Column
    type: Column
    value: Column
    """A double, where it is a number."""
    finite: bool = True
    """Whether it is known to be no NaN."""

    def pack(self) -> Column:
        return F.struct(self.form.alias("text"), self.type.alias("datatype"), self.value.alias("number"))

    def of(self, column: Column) -> Value:
        return replace(self, form=column["text"], type=column["datatype"], value=column["number"])

    def bound(self) -> Column:
        return self.form.isNotNull()

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

    def moment(self) -> Column:
        return lexical.moment(self.form, self.type)

    def boolean(self) -> Column:
        return lexical.boolean(self.form, self.type)


@dataclass(frozen=True)
class Moment(Value):
    """A time: that of a row, or one that was calculated."""

    ts: Column
    form: Column | None = None
    """Its lexical form, where that is not as `edge.outbox.observation.time_text` writes it."""
    type: Column | str = DATE_TIME_STAMP
    date: Column | None = None
    """The partition of the row."""

    def pack(self) -> Column:
        fields = [self.ts.alias("ts")]
        if self.form is not None:
            fields.append(self.form.alias("text"))
        if isinstance(self.type, Column):
            fields.append(self.type.alias("datatype"))
        if self.date is not None:
            fields.append(self.date.alias("date"))
        return self.ts if len(fields) == 1 else F.struct(*fields)

    def of(self, column: Column) -> Value:
        if self.form is None and isinstance(self.type, str) and self.date is None:
            return replace(self, ts=column)
        return replace(
            self,
            ts=column["ts"],
            form=None if self.form is None else column["text"],
            type=self.type if isinstance(self.type, str) else column["datatype"],
            date=None if self.date is None else column["date"],
        )

    def placed(self) -> tuple[Column, Column] | None:
        return None if self.date is None else (self.ts, self.date)

    def kind(self) -> tuple[object, ...]:
        type_ = self.type if isinstance(self.type, str) else None
        return (Moment, self.form is None, type_, self.date is None)

    def bound(self) -> Column:
        return self.ts.isNotNull()

    def term(self) -> Column:
        if self.form is None:
            return _literal(self.text(), self.type)
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

    def moment(self) -> Column:
        known = self.ts
        if self.form is not None:
            known = F.when(self.form.isNull(), self.ts).otherwise(lexical.date_time(self.form))
        return known if isinstance(self.type, str) else F.when(self.type.isin(DATE_TIME_STAMP, DATE_TIME), known)


def _literal(text: Column, datatype: Column | str) -> Column:
    """A literal whose text has nothing to be escaped."""
    type_ = F.lit(datatype) if isinstance(datatype, str) else datatype
    return F.concat(F.lit('"'), text, F.lit('"^^<'), type_, F.lit(">"))
