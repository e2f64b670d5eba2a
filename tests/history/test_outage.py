"""An unreachable landing zone: stored observations arrive later with a report, and dropped ones are known."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.history.site import Site, receiving, shipping_to
from tests.support.waiting import wait_for

pytest.importorskip("pyspark")

from spark_offload.ingest import ingest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = range(20, 20 + 24 * 60)
"""One reading per minute."""


@pytest.mark.timeout(400)
def test_a_day_without_the_receiver_is_replayed(spark: SparkSession, tmp_path: Path) -> None:
    with receiving(tmp_path) as receiver, Site(tmp_path, **shipping_to(receiver)) as site:
        site.publish(range(DAY.start))
        site.await_shipped(DAY.start)
        assert receiver.end(signal.SIGKILL) == -signal.SIGKILL
        site.publish(DAY)
        wait_for(lambda: site.metric("edge_outbox_last") == DAY.stop, what="all stored")
        failures = site.metric("edge_offload_failures")
        wait_for(lambda: site.metric("edge_offload_failures") > failures, what="an attempt that fails")
        wait_for(lambda: site.metric("edge_offload_up") == 0, what="the report of the outage")
        receiver.start(receiver.url.removeprefix("http://"))
        site.await_shipped(DAY.stop)
        site.publish(range(DAY.stop, DAY.stop + 20))
        site.await_shipped(DAY.stop + 20)
        ingest(spark, site.landing, site.table)
        wait_for(lambda: site.metric("edge_outbox_observations") == 0, what="the outbox is empty")
        rows = site.rows()
        site.assert_each_once(rows)
        replayed = [int(row["value_text"]) for row in rows if row["replayed"]]
        assert sorted(replayed) == list(DAY)


@pytest.mark.timeout(400)
def test_the_table_records_observations_dropped_by_a_full_outbox(spark: SparkSession, tmp_path: Path) -> None:
    count = 6_000
    settings = {"EDGE__OUTBOX__MAX_BYTES": "65536", "EDGE__OFFLOAD__SEGMENT_ROWS": "1000"}
    with Site(tmp_path, **settings) as site:
        site.publish(range(count))
        wait_for(lambda: site.metric("edge_outbox_last") == count, what="all stored")
        site.landing.mkdir()
        site.await_shipped(count)
        ingest(spark, site.landing, site.table)
        wait_for(lambda: site.metric("edge_outbox_acknowledged") == count, what="the outbox knows that all has come")
        rows = site.rows()
    lost = [row for row in rows if row["lost"] is not None]
    kept = [row for row in rows if row["lost"] is None]
    reported = {seq for row in lost for seq in range(row["seq"] - row["lost"] + 1, row["seq"] + 1)}
    assert sum(row["lost"] for row in lost) == len(reported)
    assert 0 < len(kept) < count
    assert sorted(reported) == list(range(1, kept[0]["seq"]))  # the oldest were dropped
    assert [(row["seq"], int(row["value_text"])) for row in kept] == [
        (seq, seq - 1) for seq in range(kept[0]["seq"], count + 1)
    ]
