"""The table as RDF: rows are triples for who asks for them, and never stored as such.

A term is its text in canonical N-Triples (RDF 1.2 N-Triples, section 4), so that equal terms are equal texts:
`<IRI>`, `"text"`, `"text"@en`, `"text"^^<datatype>`, `_:label`. The triples of a row are those of
`edge.outbox.observation.quads`, each as often as there are rows that tell it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from edge.outbox.observation import DATE_TIME_STAMP, DCTERMS, MONITOR, OWL_TIME, QUDT, RDF, SOSA, STRING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

COLUMNS: Final = ("subject", "predicate", "object", "graph")
"""Of a table of triples, all texts. `graph` is null in the default graph."""


class Triple(NamedTuple):
    """One of those that a row of cells stands for. Where `object` is null, the row has none."""

    subject: Column
    predicate: str
    """Its IRI."""
    object: Column


def triples(rows: DataFrame, predicates: Collection[str] | None = None) -> DataFrame:
    """The triples of rows of the table, in `COLUMNS`; only those with one of these predicates (IRIs), if given."""
    return of_cells(rows, predicates).unionByName(of_quads(rows, predicates))


def of_cells(rows: DataFrame, predicates: Collection[str] | None = None) -> DataFrame:
    """The triples of the rows that have a shape."""
    told = F.array(
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
    exploded = rows.where(shaped()).select(iri(F.col("graph")).alias("graph"), F.explode(told).alias("triple"))
    return exploded.where("triple.object IS NOT NULL").select(
        "triple.subject", "triple.predicate", "triple.object", "graph"
    )


def of_quads(rows: DataFrame, predicates: Collection[str] | None = None) -> DataFrame:
    """The triples of the rows that do not fit."""
    subject, predicate, object_, graph = (F.regexp_extract("line", _QUAD, group) for group in range(1, 5))
    told = lines(rows)
    if predicates is not None:
        told = told.where(predicate.isin([f"<{one}>" for one in predicates]))
    return told.select(
        subject.alias("subject"),
        predicate.alias("predicate"),
        object_.alias("object"),
        F.nullif(graph, F.lit("")).alias("graph"),
    )


def lines(rows: DataFrame) -> DataFrame:
    """The quads of the rows that do not fit as they came: texts `line`."""
    return rows.where("quads IS NOT NULL").select(F.explode(F.split("quads", "\n")).alias("line"))


def shaped() -> Column:
    """Whether a row of the table is an observation of the usual shape: neither quads nor a tombstone."""
    return F.col("quads").isNull() & F.col("lost").isNull()


def shape() -> tuple[Triple, ...]:
    """The triples of such a row, in the order of `edge.outbox.observation.quads`."""
    derived = F.concat("series", F.lit("/"), "epoch", F.lit("-"), F.col("seq").cast("string"))
    observation = iri(F.coalesce("observation", derived))
    result = iri(F.coalesce("result", F.concat(derived, F.lit("/result"))))
    instant = iri(F.coalesce("instant", F.concat(derived, F.lit("/instant"))))
    time = _quoted(
        F.coalesce(escaped(F.col("time_text")), time_text(F.col("ts"))),
        F.coalesce("time_datatype", F.lit(DATE_TIME_STAMP)),
    )
    return (
        Triple(observation, RDF + "type", F.lit(f"<{SOSA}Observation>")),
        Triple(observation, SOSA + "hasFeatureOfInterest", iri(F.col("feature"))),
        Triple(observation, SOSA + "observedProperty", iri(F.col("property"))),
        Triple(observation, SOSA + "madeBySensor", iri(F.col("sensor"))),
        Triple(observation, DCTERMS + "isVersionOf", iri(F.col("series"))),
        Triple(observation, MONITOR + "hasMqttTopic", literal(F.col("topic"), F.lit(STRING))),
        Triple(observation, SOSA + "hasResult", result),
        Triple(result, RDF + "type", F.lit(f"<{QUDT}QuantityValue>")),
        Triple(result, QUDT + "unit", iri(F.col("unit"))),
        Triple(result, QUDT + "numericValue", literal(F.coalesce("value_text", F.lit("")), F.col("datatype"))),
        Triple(result, OWL_TIME + "hasTime", instant),
        Triple(instant, RDF + "type", F.lit(f"<{OWL_TIME}Instant>")),
        Triple(instant, OWL_TIME + "inXSDDateTimeStamp", time),
    )


def iri(text: Column) -> Column:
    """An IRI as a term."""
    return F.concat(F.lit("<"), text, F.lit(">"))


def literal(text: Column, datatype: Column) -> Column:
    """A literal as a term. `datatype` is a text; null: `xsd:string`."""
    return _quoted(escaped(text), datatype)


def _quoted(text: Column, datatype: Column) -> Column:
    suffix = F.when(datatype.isNull() | (datatype == STRING), "").otherwise(
        F.concat(F.lit("^^<"), datatype, F.lit(">"))
    )
    return F.concat(F.lit('"'), text, F.lit('"'), suffix)


def escaped(text: Column) -> Column:
    """What stands between the quotes of a literal. JSON escapes as N-Triples does, but for three characters."""
    told = F.regexp_extract(F.to_json(F.struct(text.alias("t"))), r'(?s)\A\{"t":"(.*)"\}\z', 1)
    for char in "\x7f\ufffe\uffff":
        told = F.replace(told, F.lit(char), F.lit(f"\\u{ord(char):04X}"))
    return F.when(text.rlike(_SPECIAL), told).otherwise(text)  # few texts need any of it


def time_text(ts: Column) -> Column:
    """A time of the table as `edge.outbox.observation.time_text` writes it. The session's time zone is UTC."""
    fraction = F.pmod(F.unix_micros(ts), F.lit(1_000_000))
    return (
        F.when(fraction == 0, F.date_format(ts, "yyyy-MM-dd'T'HH:mm:ss'Z'"))
        .when(fraction % 1000 == 0, F.date_format(ts, "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"))
        .otherwise(F.date_format(ts, "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'"))
    )


_QUAD: Final = r'(?s)\A([^ ]+) ([^ ]+) (.*?)(?: (<[^<>" ]*>|_:[^<>" )]+))? \.\z'
"""A line of canonical N-Quads. What looks like a graph is one: at the end of another object there is no space, or a
quote, or a bracket."""
_SPECIAL: Final = r'[\x00-\x1f"\\\x7f\x{FFFE}\x{FFFF}]'
