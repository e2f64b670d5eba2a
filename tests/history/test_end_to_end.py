"""From sensors to answers with real components: gateway and ingester are killed, and each observation is in the table
once.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.history.receiving import COMMAND
from tests.history.site import Site, receiving, shipping_to
from tests.support.waiting import wait_for

pytest.importorskip("pyspark")

from spark_offload.ingest import ingest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KILLS = 4
EACH = 150
"""Readings between two kills."""

QUESTION = """PREFIX sosa: <http://www.w3.org/ns/sosa/> PREFIX qudt: <http://qudt.org/1.1/schema/qudt#>
SELECT (COUNT(DISTINCT ?value) AS ?count) (MAX(?value) AS ?highest) {
    ?o sosa:observedProperty <http://example.org/temperature> ; sosa:hasResult/qudt:numericValue ?value }"""


def kill_and_go_on(site: Site, drawn: random.Random, meanwhile: Callable[[], None] = lambda: None) -> None:
    """Kill the gateway repeatedly while readings arrive; call `meanwhile` before each kill."""
    for number in range(KILLS):
        first = number * EACH
        sensors = threading.Thread(target=slowly, args=(site, range(first, first + EACH)))
        sensors.start()
        time.sleep(drawn.uniform(0.1, 0.4))
        meanwhile()
        time.sleep(drawn.uniform(0, 0.4))
        site.gateway.kill()
        sensors.join()
        site.start()


def slowly(site: Site, numbers: range) -> None:
    """Publish in about a second."""
    for first in range(numbers.start, numbers.stop, 10):
        site.publish(range(first, min(first + 10, numbers.stop)))
        time.sleep(0.06)


@pytest.mark.timeout(500)
def test_shipment_to_a_directory_survives_kills_of_gateway_and_ingester(spark: SparkSession, tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        site.landing.mkdir()
        with site.ingester("--every", "1s") as ingester:
            try:
                kill_and_go_on(site, random.Random(1))
                wait_for(
                    lambda: list(site.table.rglob("*.parquet")) or ingester.poll() is not None,
                    seconds=200,
                    what="rows in the table",
                )
            finally:
                kill(ingester)
        assert ingester.returncode == -signal.SIGKILL, (tmp_path / "ingest.log").read_text()
        site.publish(range(KILLS * EACH, KILLS * EACH + EACH))
        total = KILLS * EACH + EACH
        site.await_shipped(total)
        damaged = site.shipped()[-1]
        spoil(site.landing / damaged.folder / f"{damaged.stem}.tsv.gz")
        ingest(spark, site.landing, site.table)
        assert [path.suffix for path in site.landing.glob(f"quarantine/{damaged.folder}/*.reason")] == [".reason"]
        site.await_shipped(total)
        ingest(spark, site.landing, site.table)
        wait_for(lambda: site.metric("edge_outbox_observations") == 0, what="the outbox is empty")
        site.assert_each_once(site.rows())
        answer = subprocess.run(
            [*COMMAND, "query", "-", "--table", str(site.table), "--format", "json"],
            input=QUESTION,
            capture_output=True,
            text=True,
            timeout=200,
            check=True,
        )
        (row,) = json.loads(answer.stdout)["results"]["bindings"]
        assert (row["count"]["value"], row["highest"]["value"]) == (str(total), str(total - 1))


@pytest.mark.timeout(500)
def test_shipment_to_a_receiver_survives_kills_of_gateway_and_receiver(spark: SparkSession, tmp_path: Path) -> None:
    with receiving(tmp_path) as receiver, Site(tmp_path, **shipping_to(receiver)) as site:

        def killed() -> None:
            receiver.end(signal.SIGKILL)
            receiver.start(receiver.url.removeprefix("http://"))

        kill_and_go_on(site, random.Random(2), killed)
        site.await_shipped(KILLS * EACH)
        ingest(spark, site.landing, site.table)
        wait_for(lambda: site.metric("edge_outbox_observations") == 0, what="the outbox is empty")
        site.assert_each_once(site.rows())


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and its JVM. Returns when both are gone and their locks released."""
    own = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    for one in own:
        with suppress(psutil.NoSuchProcess):
            one.kill()
    assert not psutil.wait_procs(own, timeout=60)[1]


def spoil(path: Path) -> None:
    """Flip a bit."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
