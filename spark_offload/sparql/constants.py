"""Constants of a query as values. Their type is known in advance, so only possible comparisons are generated."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from edge.outbox.observation import DATE_TIME_STAMP, STRING, XSD
from edge.sparql import terms as rdf
from spark_offload.sparql import lexical, terms
from spark_offload.sparql.relational import ConstantTerm
from spark_offload.sparql.values import (
    BOOLEAN,
    DATE_TIME,
    DECIMAL,
    DOUBLE,
    FLOAT,
    IriValue,
    TermValue,
    TextValue,
    Value,
)


@dataclass(frozen=True)
class LiteralValue(TermValue):
    """A literal of a query."""

    constant: rdf.Literal

    def of(self, *columns: Column) -> Value:
        """Return a general term: a value read from columns is not a constant."""
        return TermValue(*columns)

    def kind(self) -> tuple[object, ...]:
        """Return the kind of a term, because the column holds a term."""
        return TermValue(self.column).kind()

    def text(self) -> Column:
        """The lexical form."""
        return F.lit(self.constant.value)

    def datatype(self) -> Column:
        """As a constant."""
        return F.lit(terms.datatype_of(self.constant))

    def lang(self) -> Column:
        """As a constant."""
        return F.lit((self.constant.language or "").lower())

    def plain(self) -> Column | None:
        """The text of a string."""
        return self.text() if terms.datatype_of(self.constant) == STRING else None

    def number(self) -> Column | None:
        """The number that it is."""
        datatype, text = terms.datatype_of(self.constant), self.constant.value
        if datatype in lexical.INTEGERS:
            return F.lit(text).try_cast("bigint") if re.match(lexical.INTEGER, text) else None
        # The pattern comes first: Python's `float` accepts more than XML Schema, for example 1_000.
        form = {DECIMAL: lexical.DECIMAL, DOUBLE: lexical.DOUBLE, FLOAT: lexical.DOUBLE}.get(datatype)
        return F.lit(float(text)) if form is not None and re.match(form, text) else None

    def timestamp(self) -> Column | None:
        """The time that it is."""
        known = terms.datatype_of(self.constant) in (DATE_TIME, DATE_TIME_STAMP)
        return lexical.date_time(self.text()) if known and re.match(lexical.DATE_TIME, self.constant.value) else None

    def whole(self) -> Column | None:
        """The integer that it is."""
        return self.number() if terms.datatype_of(self.constant) in lexical.INTEGERS else None

    def day(self) -> Column | None:
        """The first instant of the date that it is."""
        return super().day() if terms.datatype_of(self.constant) == XSD + "date" else None

    def duration(self) -> Column | None:
        """The microseconds of the duration that it is."""
        known = terms.datatype_of(self.constant) in (XSD + "dayTimeDuration", XSD + "duration")
        return super().duration() if known else None

    def boolean(self) -> Column | None:
        """The truth that it is."""
        truth = {"true": True, "1": True, "false": False, "0": False}.get(self.constant.value)
        return None if truth is None or terms.datatype_of(self.constant) != BOOLEAN else F.lit(truth)


@dataclass(frozen=True)
class ConstantText(TextValue):
    """An xsd:string of a query."""

    constant: str

    def of(self, *columns: Column) -> Value:
        """Return a general text: a value read from columns is not a constant."""
        return TextValue(*columns)

    def kind(self) -> tuple[object, ...]:
        """Return the kind of a text."""
        return TextValue(self.column).kind()


def value_of(constant: ConstantTerm) -> Value:
    """Return a constant as a value."""
    if isinstance(constant, rdf.Iri):
        return IriValue(F.lit(constant.value))
    if terms.datatype_of(constant) == STRING:
        return ConstantText(F.lit(constant.value), constant.value)
    return LiteralValue(F.lit(terms.written(constant)), constant)
