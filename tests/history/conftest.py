"""One Spark session for all tests of the history, because it takes seconds to start."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from spark_offload.embedded.session import connect_mode, embedded_session
from spark_offload.errors import MissingPart
from spark_offload.session import java
from spark_offload.session import session as new_session
from tests.history.class_archive import java_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

os.environ["JDK_JAVA_OPTIONS"] = java_options()
"""Options for the JVMs of this process and of its child processes, including those of a cluster."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Return a local session with one partition in shuffles."""
    if not java():
        pytest.skip("no Java: install the package openjdk-17-jre-headless")
    place = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "1",
        "spark.default.parallelism": "1",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "1",
        # Tables are small and plans are many: Spark's optimizations for large tables take longer than the queries.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.warehouse.dir": str(place / "warehouse"),
        "spark.local.dir": str(place / "local"),
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={place}",
    }
    try:
        made = new_session("local[1]", name="tests", settings=settings)
    except MissingPart as missing:
        pytest.skip(str(missing))
    yield made
    made.stop()


@pytest.fixture(params=["spark", "duckdb"])
def session(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """Return a session of each engine."""
    if request.param == "spark":
        yield request.getfixturevalue("spark")
        return
    with connect_mode():
        yield embedded_session()
