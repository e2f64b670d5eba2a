"""Delayed updates of a gateway that is killed repeatedly: each runs exactly once, in the order of the times."""

from __future__ import annotations

import json
import time
import urllib.request
from pathlib import Path
from urllib.parse import urlencode

import pytest

from tests.support.processes import GatewayProcess
from tests.support.waiting import wait_for

COUNT = 120
NEXT = (
    "DELETE { <urn:counter> <urn:is> ?n } INSERT { <urn:counter> <urn:is> ?next ; <urn:ran> ?ran } "
    "WHERE { <urn:counter> <urn:is> ?n BIND(?n + 1 AS ?next) BIND(CONCAT(STR(?next), ' ', '%d') AS ?ran) }"
)


def ask(url: str, **form: str) -> dict:
    with urllib.request.urlopen(url, urlencode(form).encode(), timeout=20) as answer:
        return json.load(answer)


def ran(http: str) -> list[tuple[int, int]]:
    """Return the executed updates: actual position and expected position."""
    results = ask(f"{http}/query", query="SELECT ?ran { <urn:counter> <urn:ran> ?ran }")["results"]["bindings"]
    return sorted(tuple(map(int, row["ran"]["value"].split())) for row in results)


def wait_until_ran(http: str, count: float) -> None:
    wait_for(lambda: len(ran(http)) >= count, what=f"{count:g} of them")


@pytest.mark.timeout(180)
def test_delayed_updates_run_once_and_in_order_despite_kills(tmp_path: Path):
    gateway = GatewayProcess(tmp_path / "data", {"EDGE__MQTT__ENABLED": "false", "EDGE__HOST__ENABLED": "false"})
    try:
        http = gateway.start()["http"]
        ask(f"{http}/update", update="INSERT DATA { <urn:counter> <urn:is> 0 }")
        begin = time.time_ns() // 1000 + 500_000
        for number in range(1, COUNT + 1):
            at = begin + number * 30_000
            # Relative and absolute times alternate, which must give one order.
            when = {"at": str(at)} if number % 2 else {"delay": f"PT{(at - time.time_ns() // 1000) / 1e6:.6f}S"}
            ask(f"{http}/update", update=NEXT % number, id=str(number), **when)
        for share in (0.2, 0.4, 0.7):
            wait_until_ran(http, share * COUNT)
            gateway.kill()
            http = gateway.start()["http"]
        wait_until_ran(http, COUNT)
        found = ran(http)
        assert [number for number, _ in found] == list(range(1, COUNT + 1))
        assert sorted(wanted for _, wanted in found) == list(range(1, COUNT + 1))
        # A delay starts shortly after its text was written: the update may be later than its neighbour, but not more.
        assert all(abs(number - wanted) <= 1 for number, wanted in found)
        with urllib.request.urlopen(f"{http}/timers?limit=1000") as answer:
            timers = json.load(answer)["timers"]
        assert {timer["state"] for timer in timers} == {"done"}
        assert len(timers) == COUNT
    finally:
        gateway.stop()
