"""Export: the output is exactly the RDF that the gateways stored."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from history_data import EXPLICIT, MAPPED, ODD, Stored, frame, graph_of, histories, numbered, readings
from hypothesis import HealthCheck, Phase, given, settings

from spark_offload import export
from spark_offload.errors import OutputRefused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BULK = settings(max_examples=3, suppress_health_check=list(HealthCheck), phases=[Phase.generate])


@BULK
@given(histories(MAPPED, EXPLICIT, ODD, size=60))
def test_lines_are_the_quads_of_all_observations(session: SparkSession, stored: list[Stored]) -> None:
    assert {row.line for row in export.lines(frame(session, stored)).collect()} == graph_of(stored)


@pytest.mark.parametrize("name", ["history.nq", "history.nq.gz", "history"])
def test_n_quads_are_a_file_or_a_folder(session: SparkSession, tmp_path: Path, name: str) -> None:
    stored = numbered([*readings("a1", range(5)), *readings("b1", range(5))])
    export.write_nquads(frame(session, stored).repartition(3), tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    files = [tmp_path / name] if (tmp_path / name).is_file() else sorted((tmp_path / name).glob("part-*.gz"))
    texts = [path.read_bytes() if path.suffix == ".nq" else gzip.decompress(path.read_bytes()) for path in files]
    lines = b"".join(texts).decode().splitlines()
    assert sorted(lines) == sorted(graph_of(stored))


@pytest.mark.parametrize("name", ["history.nq", "history"])
def test_export_does_not_overwrite_files(session: SparkSession, tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(OutputRefused, match="already exists"):
        export.write_nquads(frame(session, []), str(tmp_path / name))
    assert not list((tmp_path / name).iterdir())
