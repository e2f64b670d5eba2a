"""A notebook client of `edge-history serve`, a process without a JVM: prints its results as one JSON object."""

from __future__ import annotations

import json
import sys

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from edge.outbox.observation import QUDT, SOSA
from spark_offload.history import History
from spark_offload.table import open_table

QUERY = f"SELECT ?value {{ ?o <{SOSA}madeBySensor> ?s ; <{SOSA}hasResult>/<{QUDT}numericValue> ?value }}"

url, table = sys.argv[1:]
spark = SparkSession.builder.remote(url).getOrCreate()
reported: dict[str, object] = {
    "sql": [list(row) for row in spark.sql("select sensor, count(*) from observations group by sensor").collect()],
    "zone": spark.conf.get("spark.sql.session.timeZone"),
    "path": open_table(spark, table).count(),
    "sparql": [list(row) for row in History(spark, table).sparql(QUERY).collect()],
}
spark.stop()
try:
    SparkSession.builder.remote(url.partition("token=")[0] + "token=wrong").getOrCreate().sql("select 1").collect()
except PySparkException as error:
    reported["wrong"] = str(error)
print(json.dumps(reported))
