"""The order of terms (SPARQL 1.1 Query, section 15.1): nothing, blank nodes, IRIs, literals by their values.

Where the order is open, literals of other kinds come in a fixed one, and the last word have their texts.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from spark_offload.sparql.values import Boolean, Iri, Measured, Number, Text, Value


def sorting(value: Value) -> list[Column]:
    """Columns in whose order values are sorted, null first. What is known of a value makes them few."""
    if isinstance(value, (Boolean, Iri, Number, Text)):
        return [value.column]
    number, moment, plain, boolean = value.number(), value.moment(), value.plain(), value.boolean()
    place = F.when(~value.bound(), 0).when(value.is_blank(), 1)
    if (iri := value.iri()) is not None:
        place = place.when(iri.isNotNull(), 2)
    for rank, face in enumerate((number, boolean, moment, plain), start=3):
        if face is not None:
            place = place.when(face.isNotNull(), rank)
    faces = [face for face in (None if number is None else number.cast("double"), boolean, moment) if face is not None]
    texts = value.keys() if isinstance(value, Measured) else (value.term(),)
    return [place.otherwise(7), *faces, *texts]
