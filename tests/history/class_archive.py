"""An archive of Spark's classes (CDS), which the JVMs of the tests map instead of loading and verifying each class.

A JVM with Spark loads about 20,000 classes, a third of its work in a test. `make test` makes the archive once, in
.venv, since it is valid for the jars there. A JVM of another version, or with other jars, starts without it.
https://docs.oracle.com/en/java/javase/17/vm/class-data-sharing.html
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from spark_offload import jars
from spark_offload.session import java

ARCHIVE = Path(sys.prefix) / "spark.jsa"
_QUERY = """
PREFIX sosa: <http://www.w3.org/ns/sosa/> PREFIX qudt: <http://qudt.org/1.1/schema/qudt#>
SELECT ?property (COUNT(*) AS ?count) (MAX(?value) AS ?most)
WHERE { ?o sosa:observedProperty ?property ; sosa:hasResult/qudt:numericValue ?value FILTER(?value > 1) }
GROUP BY ?property ORDER BY ?count
"""


def java_options() -> str:
    """Return options for the JVMs of tests: they end before optimizing with Java's second compiler pays off.

    Without that compiler, Java reserves only 48 MiB for compiled methods. Spark fills them, and the thread that then
    looks for methods to discard took a fifth of the JVM's processor time in a session of 120 tests.
    """
    options = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m"
    if ARCHIVE.exists():
        options += f" -XX:SharedArchiveFile={ARCHIVE} -Xlog:cds*=off"
    return options


def make() -> None:
    """Make the archive in a JVM that ingests observations and answers a query."""
    from spark_offload.bench.observations import fill
    from spark_offload.history import History
    from spark_offload.ingest import ingest
    from spark_offload.session import session

    with tempfile.TemporaryDirectory(dir=ARCHIVE.parent) as name:
        made = Path(name) / "archive"
        options = f"{java_options()} -XX:ArchiveClassesAtExit={made} -Xlog:cds*=off"
        spark = session("local[1]", settings={"spark.driver.defaultJavaOptions": options})
        landing, table = Path(name) / "landing", Path(name) / "table"
        for rows in (200, 400):
            fill(landing, rows)
            ingest(spark, landing, table)
        History(spark, str(table)).sparql(_QUERY).collect()
        process = spark.sparkContext._gateway.proc
        spark.stop()
        process.stdin.close()
        process.wait()
        made.rename(ARCHIVE)


if __name__ == "__main__" and java() and not jars.missing():
    ARCHIVE.unlink(missing_ok=True)
    make()
