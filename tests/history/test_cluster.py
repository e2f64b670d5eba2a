"""A real standalone cluster: `kill -9` ends a worker and its executor during an ingest."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import deltalake
import psutil
import pyarrow.compute as pc
import pytest

from spark_offload.bench.cluster import Cluster
from spark_offload.bench.observations import fill
from spark_offload.session import java
from tests.support.waiting import wait_for

ROWS = 300_000
PATIENCE = 900.0
"""Seconds."""


@pytest.mark.timeout(0)  # each wait has a deadline
def test_a_worker_is_killed_in_the_middle(tmp_path: Path) -> None:
    if not java():
        pytest.skip("no Java: install the package openjdk-17-jre-headless")
    landing, table = tmp_path / "landing", tmp_path / "table"
    fill(landing, ROWS)
    with Cluster(tmp_path) as cluster, (tmp_path / "ingest.log").open("wb") as log:
        cluster.add_worker()
        cluster.add_worker()
        worker = psutil.Process(cluster._processes[-1].pid)
        process = subprocess.Popen(
            [Path(sys.executable).with_name("edge-history"), "ingest", "--landing", landing, "--table", table,
             "--master", cluster.master, "--conf", "spark.executor.memory=1g", "--conf", "spark.ui.enabled=false",
             "--conf", "spark.scheduler.minRegisteredResourcesRatio=1.0"],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
        try:

            def written() -> list[Path]:
                assert process.poll() is None, (tmp_path / "ingest.log").read_text()
                return list(table.glob("date=*/*.parquet"))

            parts = wait_for(written, "the first file", seconds=PATIENCE)
            killed = [*worker.children(recursive=True), worker]
            assert len(killed) > 1, "the worker has an executor"
            for one in killed:
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
            assert not list(table.glob("_delta_log/*1.json")), f"that was in the middle: {parts}"
            assert process.wait(PATIENCE) == 0, (tmp_path / "ingest.log").read_text()
        finally:
            process.kill()
            process.wait()
    found = deltalake.DeltaTable(table).to_pyarrow_table(columns=["gateway", "seq"])
    each = found.group_by("gateway").aggregate([("seq", "count"), ("seq", "count_distinct"), ("seq", "max")])
    assert found.num_rows == ROWS
    for aggregate in ("seq_count", "seq_count_distinct", "seq_max"):
        assert pc.unique(each[aggregate]).to_pylist() == [ROWS // 5]
