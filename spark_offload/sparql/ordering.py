"""Order of terms (SPARQL 1.1 Query, section 15.1): unbound, blank nodes, IRIs, then literals by value.

Where the specification leaves the order open, kinds of literals have a fixed order, and their texts break ties.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from spark_offload.sparql import lexical
from spark_offload.sparql.comparing import small
from spark_offload.sparql.durations import DurationValue
from spark_offload.sparql.number_values import NumberValue
from spark_offload.sparql.values import BooleanValue, IriValue, MeasuredValue, TextValue, Value


def sorting(value: Value) -> list[Column]:
    """Return the sort columns of a value, null first. A known type needs fewer columns."""
    if isinstance(value, NumberValue):
        return [value.number(), *([] if value.exact is None else [value.exact])]
    if isinstance(value, (BooleanValue, DurationValue, IriValue, TextValue)):
        return [value.column]
    number, timestamp, plain, boolean = value.number(), value.timestamp(), value.plain(), value.boolean()
    place = F.when(~value.bound(), 0).when(value.is_blank(), 1)
    if (iri := value.iri()) is not None:
        place = place.when(iri.isNotNull(), 2)
    day, duration = value.day(), value.duration()
    for rank, face in enumerate((number, boolean, timestamp, plain, day, duration), start=3):
        if face is not None:
            place = place.when(face.isNotNull(), rank)
    faces = [
        face
        for face in (None if number is None else number.cast("double"), boolean, timestamp, day, duration)
        if face is not None
    ]
    if number is not None and not small(value):
        # Doubles do not distinguish large integers.
        text, datatype = value.text(), value.datatype()
        assert text is not None  # noqa: S101  a number is a literal
        assert datatype is not None  # noqa: S101
        integer = datatype.isin(*lexical.INTEGERS) & number.isNotNull()
        faces.insert(1, F.when(integer, text.try_cast("decimal(38,0)")))
    texts = value.keys() if isinstance(value, MeasuredValue) else (value.term(),)
    return [place.otherwise(9), *faces, *texts]
