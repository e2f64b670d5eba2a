"""The table of the history: one Delta table, a row an observation.

Rows are *wide*: the cells of a segment's row and of its context. The triples that they stand for are made when they
are asked for (`edge.outbox.observation`). There are three kinds of rows:

- an observation that the mapping stored: `series` is set, and the IRIs of its resources follow from it;
- one whose IRIs a client chose: `observation`, `result` and `instant` are set, `series` is not;
- one that does not fit: `quads` alone;

and tombstones, of which `lost` says how many observations up to `seq` the gateway dropped.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    BooleanType,
    DateType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

SCHEMA: Final = StructType(
    [
        StructField("gateway", StringType(), nullable=True),
        StructField("epoch", StringType()),
        StructField("seq", LongType()),
        StructField("ts", TimestampType()),  # when it was made, or else stored
        StructField("time_text", StringType()),  # where it is not `edge.outbox.observation.time_text(ts)`
        StructField("series", StringType()),
        StructField("observation", StringType()),
        StructField("result", StringType()),
        StructField("instant", StringType()),
        StructField("topic", StringType()),
        StructField("feature", StringType()),
        StructField("property", StringType()),
        StructField("sensor", StringType()),
        StructField("unit", StringType()),
        StructField("value", DoubleType()),  # of a numeric literal that is well formed
        StructField("value_text", StringType()),  # its lexical form
        StructField("datatype", StringType()),
        StructField("time_datatype", StringType()),  # null: xsd:dateTimeStamp
        StructField("graph", StringType()),  # null: the default graph
        StructField("quads", StringType()),
        StructField("replayed", BooleanType()),
        StructField("lost", LongType()),
        StructField("date", DateType()),  # of `ts`, UTC: the partition
    ]
)

PARTITION: Final = "date"
