"""DataFrames from rows in the memory of this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def local_frame(spark: SparkSession, rows: Sequence[Sequence[object]], schema: StructType) -> DataFrame:
    """Return rows as a DataFrame.

    Spark starts Python workers to read a list of rows: the first one takes seconds of processor time, and is the
    `python3` on the PATH, whatever Python this process uses. Spark reads an Arrow table itself, and knows its size.
    """
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    types = to_arrow_schema(schema, timezone="UTC")
    columns = [pa.array([row[place] for row in rows], type=field.type) for place, field in enumerate(types)]
    return spark.createDataFrame(pa.Table.from_arrays(columns, schema=types), schema)
