"""The Spark session: Delta Lake is available, and another reader of Delta tables agrees."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import pytest

from spark_offload import compat, jars
from spark_offload.errors import MissingPart
from tests.support.private_names import check_attributes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_table_is_written_and_read(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(5).write.format("delta").save(str(tmp_path / "table"))
    assert spark.read.format("delta").load(str(tmp_path / "table")).count() == 5
    assert deltalake.DeltaTable(tmp_path / "table").to_pyarrow_table().num_rows == 5


def test_the_private_names_of_pyspark_do_what_the_program_expects(spark: SparkSession, tmp_path: Path) -> None:
    check_attributes("pyspark", compat, spark, "_jvm", "_jsparkSession")
    check_attributes("pyspark", compat, spark.sparkContext, "_jsc")
    frame = spark.range(2)
    check_attributes("pyspark", compat, frame, "_jdf")
    check_attributes("pyspark", compat, type(spark.sparkContext), "_gateway")
    assert spark.sparkContext._gateway.proc.poll() is None
    assert "Range" in compat.plan_text(frame)
    assert not compat.is_stopped(spark)
    assert {"functions", "org.apache.spark.sql.functions", "PythonUtils", "PythonSQLUtils"} <= set(
        vars(compat.jvm(spark))
    )
    compat.remember_classes(compat.connect_session(object()))  # it has none
    assert compat.executors(spark) == 0
    path = tmp_path / "a table"
    assert not compat.is_delta_table(spark, str(path))
    frame.write.format("delta").save(str(path))
    assert compat.is_delta_table(spark, str(path))
    compat.checkpoint_delta(spark, str(path))
    assert list((path / "_delta_log").glob("*.checkpoint*"))
    assert compat.file_uri(spark, str(path)) == path.as_uri().replace("file:///", "file:/")
    compat.open_file(spark, str(tmp_path / "lock")).close()
    assert (tmp_path / "lock").is_file()


def test_a_wrong_jar_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGE_HISTORY_JARS", str(tmp_path / "kept"))
    for jar in jars.JARS:
        path = tmp_path / "maven" / jar.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"not a jar")
    with pytest.raises(MissingPart, match="not the released file"):
        jars.fetch((tmp_path / "maven").as_uri())
    assert list((tmp_path / "kept").iterdir()) == []


def test_an_unreachable_source_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGE_HISTORY_JARS", str(tmp_path / "kept"))
    with pytest.raises(MissingPart, match="edge-history jars --from URL"):
        jars.fetch((tmp_path / "nowhere").as_uri())
