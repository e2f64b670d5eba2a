"""Problems of streams that clients and operators can see: a clock that was set back, live data that fail."""

from __future__ import annotations

import sqlite3
import time

import pytest

from tests.support.stream_client import StreamGateway
from tests.support.waiting import wait_for

HOUR = 3_600_000_000


@pytest.fixture
def gateway(tmp_path):
    gateway = StreamGateway(tmp_path, EDGE__WATCHDOG__INTERVAL="0.2", EDGE__ENGINE__MAX_QUERY_MEMORY=str(1024 * 1024))
    yield gateway
    gateway.close()


def test_streams_and_health_show_that_the_clock_was_set_back(gateway):
    gateway.stream("s")
    assert [each["clock_set_back"] for each in gateway.ok("GET", "/streams")] == [0, 0]
    gateway.kill()
    # As if the process before had run an hour later.
    with sqlite3.connect(gateway.process.data_dir / "streams.sqlite3") as file:
        file.execute("UPDATE clock SET time = ?", (time.time_ns() // 1000 + HOUR,))
    file.close()
    gateway.start()
    for path in ("/streams", "/streams/s"):
        found = gateway.ok("GET", path)
        for each in found if isinstance(found, list) else [found]:
            assert 3_500 < each["clock_set_back"] <= 3_600
    wait_for(
        lambda: "set back" in gateway.http.get("/health").json()["parts"]["streams"], what="the report of a problem"
    )


def test_a_query_shows_that_its_live_data_do_not_follow_the_graph(gateway):
    gateway.stream("s")
    text = (
        "REGISTER RSTREAM <urn:q> AS SELECT * FROM NAMED WINDOW <urn:w> ON <urn:edge:stream:s> [RANGE PT1H] "
        "WHERE { WINDOW <urn:w> { ?s ?p ?o } ?s <urn:text> ?text }"
    )
    gateway.query("urn:q", text)
    assert gateway.ok("GET", "/queries/urn%3Aq")["live_data_failures"] == []
    # One notification with more text than a quarter of engine.max_query_memory.
    rows = " . ".join(f"<urn:{number}> <urn:text> '{number}{'x' * 30_000}'" for number in range(20))
    gateway.ok("POST", "/update", f"INSERT DATA {{ {rows} }}", "application/sparql-update")
    wait_for(lambda: gateway.ok("GET", "/queries/urn%3Aq")["live_data_failures"], what="the failure")
    (failure,) = gateway.ok("GET", "/queries")[0]["live_data_failures"]
    assert "<urn:text>" in failure
    gateway.ok("POST", "/update", "DELETE WHERE { ?s <urn:text> ?o }", "application/sparql-update")
    gateway.ok("DELETE", "/queries/urn%3Aq")
    gateway.query("urn:q", text)
    assert gateway.ok("GET", "/queries/urn%3Aq")["live_data_failures"] == []
