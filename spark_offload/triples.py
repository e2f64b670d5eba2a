"""The table as RDF: triples are generated from rows on demand and never stored.

A term is its text in canonical N-Triples (RDF 1.2 N-Triples, section 4), so that equal terms are equal texts:
`<IRI>`, `"text"`, `"text"@en`, `"text"^^<datatype>`, `_:label`. The triples of a row are those of
`edge.outbox.observation.quads`. A triple that several rows contain occurs several times.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from edge.outbox.observation import DATE_TIME_STAMP, DCTERMS, MONITOR, OWL_TIME, QUDT, RDF, SOSA, STRING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

COLUMNS: Final = ("subject", "predicate", "object", "graph")
"""Columns of a table of triples, all texts. `graph` is null for the default graph."""


class RowTriple(NamedTuple):
    """Expression for one triple of a row. If `object` is null, the row does not have the triple."""

    subject: Column
    predicate: str
    """IRI, without angle brackets."""
    object: Column


def triples(rows: DataFrame, predicates: Collection[str] | None = None) -> DataFrame:
    """Return the triples of table rows, in `COLUMNS`. `predicates` (IRIs) restricts them."""
    return of_cells(rows, predicates).unionByName(of_quads(rows, predicates))


def of_cells(rows: DataFrame, predicates: Collection[str] | None = None) -> DataFrame:
    """Return the triples of the rows of the standard form (see `shaped`)."""
    generated = F.array(
        *(
            F.struct(
                triple.subject.alias("subject"),
                F.lit(f"<{triple.predicate}>").alias("predicate"),
                triple.object.alias("object"),
            )
            for triple in shape()
            if predicates is None or triple.predicate in predicates
        )
    ).cast("array<struct<subject: string, predicate: string, object: string>>")
    exploded = rows.where(shaped()).select(iri(F.col("graph")).alias("graph"), F.explode(generated).alias("triple"))
    return exploded.where("triple.object IS NOT NULL").select(
        "triple.subject", "triple.predicate", "triple.object", "graph"
    )


def of_quads(rows: DataFrame, predicates: Collection[str] | None = None) -> DataFrame:
    """Return the triples of the rows with `quads`."""
    subject, predicate, object_, graph = (F.regexp_extract("line", _QUAD, group) for group in range(1, 5))
    quads = lines(rows)
    if predicates is not None:
        quads = quads.where(predicate.isin([f"<{one}>" for one in predicates]))
    return quads.select(
        subject.alias("subject"),
        predicate.alias("predicate"),
        object_.alias("object"),
        F.nullif(graph, F.lit("")).alias("graph"),
    )


def lines(rows: DataFrame) -> DataFrame:
    """Return the stored N-Quads of the rows with `quads`, in a column `line`."""
    return rows.where("quads IS NOT NULL").select(F.explode(F.split("quads", "\n")).alias("line"))


def shaped() -> Column:
    """Return the condition that a row has the standard form: neither `quads` nor a tombstone."""
    return F.col("quads").isNull() & F.col("lost").isNull()


def shape() -> tuple[RowTriple, ...]:
    """Return the triples of a row of the standard form, in the order of `edge.outbox.observation.quads`."""
    derived = F.concat("series", F.lit("/"), "epoch", F.lit("-"), F.col("seq").cast("string"))
    observation = iri(F.coalesce("observation", derived))
    result = iri(F.coalesce("result", F.concat(derived, F.lit("/result"))))
    instant = iri(F.coalesce("instant", F.concat(derived, F.lit("/instant"))))
    time = _quoted(
        F.coalesce(escaped(F.col("time_text")), time_text(F.col("ts"))),
        F.coalesce("time_datatype", F.lit(DATE_TIME_STAMP)),
    )
    return (
        RowTriple(observation, RDF + "type", F.lit(f"<{SOSA}Observation>")),
        RowTriple(observation, SOSA + "hasFeatureOfInterest", iri(F.col("feature"))),
        RowTriple(observation, SOSA + "observedProperty", iri(F.col("property"))),
        RowTriple(observation, SOSA + "madeBySensor", iri(F.col("sensor"))),
        RowTriple(observation, DCTERMS + "isVersionOf", iri(F.col("series"))),
        RowTriple(observation, MONITOR + "hasMqttTopic", literal(F.col("topic"), F.lit(STRING))),
        RowTriple(observation, SOSA + "hasResult", result),
        RowTriple(result, RDF + "type", F.lit(f"<{QUDT}QuantityValue>")),
        RowTriple(result, QUDT + "unit", iri(F.col("unit"))),
        RowTriple(result, QUDT + "numericValue", literal(F.coalesce("value_text", F.lit("")), F.col("datatype"))),
        RowTriple(result, OWL_TIME + "hasTime", instant),
        RowTriple(instant, RDF + "type", F.lit(f"<{OWL_TIME}Instant>")),
        RowTriple(instant, OWL_TIME + "inXSDDateTimeStamp", time),
    )


def iri(text: Column) -> Column:
    """Return the term of an IRI."""
    return F.concat(F.lit("<"), text, F.lit(">"))


def literal(text: Column, datatype: Column) -> Column:
    """Return the term of a literal. `datatype` is an IRI text; null means `xsd:string`."""
    return _quoted(escaped(text), datatype)


def _quoted(text: Column, datatype: Column) -> Column:
    suffix = F.when(datatype.isNull() | (datatype == STRING), "").otherwise(
        F.concat(F.lit("^^<"), datatype, F.lit(">"))
    )
    return F.concat(F.lit('"'), text, F.lit('"'), suffix)


def escaped(text: Column) -> Column:
    """Return the escaped text of a literal, without the quotes.

    Spark's JSON writer escapes the same characters as canonical N-Triples, except for three that are replaced here.
    """
    escapes = F.regexp_extract(F.to_json(F.struct(text.alias("t"))), r'(?s)\A\{"t":"(.*)"\}\z', 1)
    for char in "\x7f\ufffe\uffff":
        escapes = F.replace(escapes, F.lit(char), F.lit(f"\\u{ord(char):04X}"))
    return F.when(text.rlike(_SPECIAL), escapes).otherwise(text)  # few texts need escapes


def time_text(ts: Column) -> Column:
    """Return a time in the format of `edge.outbox.observation.time_text`. The time zone of the session must be UTC."""
    fraction = F.pmod(F.unix_micros(ts), F.lit(1_000_000))
    written = (
        F.when(fraction == 0, F.date_format(ts, "yyyy-MM-dd'T'HH:mm:ss'Z'"))
        .when(fraction % 1000 == 0, F.date_format(ts, "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"))
        .otherwise(F.date_format(ts, "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'"))
    )
    return F.ltrim(written, F.lit("+"))  # Java writes it before years of more than four digits, XSD does not


_QUAD: Final = r'(?s)\A([^ ]+) ([^ ]+) (.*?)(?: (<[^<>" ]*>|_:[^<>" )]+))? \.\z'
"""Pattern of a line of canonical N-Quads.

The graph is recognised without parsing the object: the group for the graph requires a
space before it, and allows no spaces, quotes or brackets inside. The end of another object has none of this form.
"""
_SPECIAL: Final = r'[\x00-\x1f"\\\x7f\x{FFFE}\x{FFFF}]'
