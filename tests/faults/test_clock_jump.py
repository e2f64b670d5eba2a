"""The clock of the machine jumps by hours, forwards and backwards, under a running gateway (libfaketime)."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect

from edge.security.clients import Rights
from tests.faults.monitored_gateway import Watched
from tests.gates.gate_client import Client, rows
from tests.support.clients import clients_of
from tests.support.processes import GatewayProcess
from tests.support.waiting import wait_for

HOUR = 3600
SET = "SELECT ?n { <urn:set> <urn:has> ?n }"


class FakeClock:
    """The wall clock of a process, as an offset in seconds. Its monotonic clocks are unchanged."""

    def __init__(self, file: Path) -> None:
        if shutil.which("faketime") is None:
            pytest.skip("no libfaketime here; install the package faketime")
        preload = subprocess.run(
            ["faketime", "-f", "+0", "printenv", "LD_PRELOAD"], capture_output=True, text=True, check=True
        )
        self._file = file
        self.ahead = 0
        self.set(0)
        self.environment = {
            "LD_PRELOAD": preload.stdout.strip(),
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def set(self, ahead: int) -> None:
        new = self._file.with_suffix(".new")
        new.write_text(f"{ahead:+d}\n")
        new.replace(self._file)
        self.ahead = ahead

    def after(self, seconds: float) -> str:
        """Return a time on this clock, in microseconds since 1970."""
        return str(int((time.time() + self.ahead + seconds) * 1e6))


@pytest.fixture
def clock(tmp_path: Path) -> FakeClock:
    return FakeClock(tmp_path / "clock")


@pytest.fixture
def start(gateway: Callable[..., GatewayProcess], clock: FakeClock) -> Callable[..., Watched]:
    def start(**settings: str) -> Watched:
        return Watched(gateway(**clock.environment, EDGE__MQTT__ENABLED="false", **settings))

    return start


def put(value: str) -> str:
    return f"INSERT DATA {{ <urn:set> <urn:has> '{value}' }}"


def later(watched: Watched, name: str, **when: str) -> None:
    status, answer = watched.ask("/update", update=put(name), id=name, **when)
    assert status == 202, answer


def state(watched: Watched, name: str) -> str:
    return watched.ask(f"/timers/{name}")[1]["timer"]["state"]


async def test_delays_pings_and_subscriptions_continue_and_times_follow_the_clock(start, clock):
    watched = start(EDGE__WS__PING_INTERVAL="0.2", EDGE__WS__PING_TIMEOUT="5")
    client = Client(await connect(watched.endpoints["ws"]))
    await client.subscribe(SET)
    later(watched, "in an hour", delay="PT1H")
    later(watched, "at an hour from now", at=clock.after(HOUR))
    later(watched, "in three hours", delay="PT3H")

    clock.set(2 * HOUR)
    # It is due by the clock; of the delays not a minute has passed.
    assert rows((await client.notification())["addedResults"]) == [("at an hour from now",)]
    later(watched, "in a second", delay="PT1S")
    assert rows((await client.notification())["addedResults"]) == [("in a second",)]

    clock.set(-2 * HOUR)
    later(watched, "in another second", delay="PT1S")
    later(watched, "at two seconds from now", at=clock.after(2))
    reported = [rows((await client.notification())["addedResults"]) for _ in range(2)]
    assert sorted(reported) == [[("at two seconds from now",)], [("in another second",)]]

    clock.set(0)
    watched.update(put("now"))
    assert (await client.notification())["sequence"] == 5
    assert {state(watched, name.replace(" ", "%20")) for name in ("in an hour", "in three hours")} == {"pending"}
    await client.socket.close()


async def test_a_restart_keeps_the_remaining_delay(start, clock):
    watched = start()
    later(watched, "soon", delay="PT4S")
    later(watched, "late", delay="PT1H")
    watched.process.kill()
    clock.set(-5 * HOUR)
    watched.endpoints = watched.process.start()
    wait_for(lambda: watched.values(SET) == ["soon"], what="what was due")
    watched.process.kill()
    clock.set(5 * HOUR)
    watched.endpoints = watched.process.start()
    watched.update(put("alive"))
    assert watched.values(SET) == ["alive", "soon"]
    assert state(watched, "late") == "pending"


def test_a_token_ends_when_the_clock_says_so_and_the_next_one_is_good(start, clock):
    watched = start(EDGE__SECURITY__ENABLED="true", EDGE__SECURITY__HTTPS_PORT="0", EDGE__SECURITY__WSS_PORT="0")
    with clients_of(watched.process.data_dir) as clients:
        clients.allow("lamp", Rights())
    registered = post(watched, "/oauth/register", {"register": {"client_identity": "lamp"}})
    known = registered["credentials"]
    basic = base64.b64encode(f"{known['client_id']}:{known['client_secret']}".encode()).decode()
    for ahead in (0, 2 * HOUR, -2 * HOUR, 0):
        clock.set(ahead)
        token = post(watched, "/oauth/token", {}, f"Basic {basic}")["access_token"]
        assert query_status(watched, token) == 200
        clock.set(ahead + 2 * HOUR)
        assert query_status(watched, token) == 401


def post(watched: Watched, path: str, body: Any, authorization: str = "") -> dict[str, Any]:
    request = urllib.request.Request(watched.endpoints["http"] + path, json.dumps(body).encode(), method="POST")
    request.add_header("Content-Type", "application/json")
    if authorization:
        request.add_header("Authorization", authorization)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def query_status(watched: Watched, token: str) -> int:
    """Return the status of a query."""
    request = urllib.request.Request(watched.endpoints["http"] + "/query?query=ASK%7B%7D")
    request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code
