"""The Spark session: Delta Lake is available, and another reader of Delta tables agrees."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import pytest

from spark_offload import jars
from spark_offload.errors import MissingPart

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_table_is_written_and_read(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(5).write.format("delta").save(str(tmp_path / "table"))
    assert spark.read.format("delta").load(str(tmp_path / "table")).count() == 5
    assert deltalake.DeltaTable(tmp_path / "table").to_pyarrow_table().num_rows == 5


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
