"""Smart lighting as in its README, each component a process: Figure 2 of the SPS paper, and a busy street."""

from __future__ import annotations

import json
import queue
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from tests.support.processes import GatewayProcess, free_port
from tests.support.waiting import wait_for

EXAMPLE = Path(__file__).parents[2] / "examples" / "lighting"
AFTER = 2.0
"""Seconds that a lamp stays on."""


class Street:
    """The gateway with the example's mapping, its aggregator, and a client of the broker."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        ports = {f"EDGE__{gate}__PORT": str(free_port()) for gate in ("HTTP", "WS", "MQTT")}
        settings = {"EDGE__HOST__ENABLED": "false", "EDGE__ACTUATION__RATE": "1000", **ports}
        self.gateway = GatewayProcess(directory / "data", settings)
        (directory / "data" / "mappings").mkdir(parents=True)
        shutil.copy(EXAMPLE / "lighting.toml", directory / "data" / "mappings")
        self.endpoints = self.gateway.start()
        self.lamps: queue.Queue[tuple[str, str]] = queue.Queue()
        self.told_last: dict[str, str] = {}
        self.client = mqtt.Client(CallbackAPIVersion.VERSION2)
        self.client.on_connect = lambda client, *_: client.subscribe("street/+/lamp/set", qos=1)
        self.client.on_message = lambda _, __, message: self.lamps.put(
            (message.topic.split("/")[1], message.payload.decode())
        )
        self.client.reconnect_delay_set(1, 1)
        broker = urlsplit(self.endpoints["mqtt"])
        self.client.connect(broker.hostname or "", broker.port or 0)
        self.client.loop_start()
        self.aggregator = self.start("lighting.py", "--after", str(AFTER), "--profile", str(self._profile()))
        wait_for(self._subscribed, what="the aggregator's subscriptions")

    def start(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.directory / f"{program}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, str(EXAMPLE / program), *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def stop(self) -> None:
        self.aggregator.terminate()
        assert self.aggregator.wait(10) == 0, (self.directory / "lighting.py.log").read_text()
        self.client.disconnect()
        self.client.loop_stop()
        self.gateway.stop()

    def lit(self) -> dict[str, str]:
        """Return the last message to each lamp."""
        with suppress(queue.Empty):
            while True:
                post, state = self.lamps.get_nowait()
                self.told_last[post] = state
        return self.told_last

    def sense(self, post: str, presence: str) -> None:
        self.client.publish(f"street/{post}/presence", presence, qos=1).wait_for_publish(10)

    def reported(self, seconds: float = 20) -> tuple[str, str]:
        return self.lamps.get(timeout=seconds)

    def timers(self, state: str) -> list[dict[str, Any]]:
        with urllib.request.urlopen(f"{self.endpoints['http']}/timers?limit=1000&state={state}", timeout=20) as answer:
            return json.load(answer)["timers"]

    def rows(self, query: str) -> list[list[str]]:
        form = urlencode({"query": f"PREFIX street: <http://example.org/street#> {query}"}).encode()
        with urllib.request.urlopen(f"{self.endpoints['http']}/query", form, timeout=20) as answer:
            results = json.load(answer)
        names = results["head"]["vars"]
        return sorted([row[name]["value"] for name in names] for row in results["results"]["bindings"])

    def _profile(self) -> Path:
        profile = json.loads((EXAMPLE / "lighting.jsap").read_text())
        profile["sparql11protocol"]["port"] = urlsplit(self.endpoints["http"]).port
        profile["sparql11seprotocol"]["availableProtocols"]["ws"]["port"] = urlsplit(self.endpoints["ws"]).port
        path = self.directory / "lighting.jsap"
        path.write_text(json.dumps(profile))
        return path

    def _subscribed(self) -> bool:
        if self.aggregator.poll() is not None:
            pytest.fail((self.directory / "lighting.py.log").read_text())
        with urllib.request.urlopen(f"{self.endpoints['http']}/metrics", timeout=20) as answer:
            return 'edge_subscriptions{gate="ws"} 2.0' in answer.read().decode()


@pytest.fixture
def street(tmp_path: Path) -> Iterator[Street]:
    street = Street(tmp_path)
    yield street
    street.stop()


def test_the_aggregator_is_under_40_lines():
    assert len((EXAMPLE / "lighting.py").read_text().splitlines()) < 40


@pytest.mark.timeout(120)
def test_figure_2_lamp_goes_off_at_the_second_deadline(street: Street):
    """FALSE, TRUE before the delay ends, FALSE again: the lamp goes off once, at the second deadline."""
    street.sense("7", "true")
    assert street.reported() == ("7", "ON")
    street.sense("7", "false")
    (first,) = wait_for(lambda: street.timers("pending"), what="the first delayed update")
    street.sense("7", "true")
    wait_for(lambda: street.rows("SELECT ?p { street:7 street:presence ?p }") == [["true"]], what="somebody")
    street.sense("7", "false")
    (second,) = wait_for(
        lambda: [timer for timer in street.timers("pending") if timer["id"] != first["id"]], what="the second one"
    )
    assert second["at"] > first["at"]
    assert street.reported() == ("7", "OFF")
    assert [timer["id"] for timer in street.timers("unchanged")] == [first["id"]]
    assert [timer["id"] for timer in street.timers("done")] == [second["id"]]
    assert time.time_ns() // 1000 >= second["at"]
    assert street.timers("pending") == []
    assert street.lamps.empty()


@pytest.mark.timeout(120)
def test_a_sensor_that_repeats_itself_keeps_no_lamp_on(street: Street):
    street.sense("7", "true")
    assert street.reported() == ("7", "ON")
    for _ in range(20):
        street.sense("7", "false")
        time.sleep(AFTER / 15)
    assert street.reported() == ("7", "OFF")
    assert len(street.timers("done")) == 1


@pytest.mark.timeout(120)
def test_the_lamp_switches_off_without_running_agents(street: Street):
    street.sense("7", "true")
    assert street.reported() == ("7", "ON")
    street.sense("7", "false")
    wait_for(lambda: street.timers("pending"), what="the delayed update")
    street.aggregator.send_signal(signal.SIGTERM)
    street.aggregator.wait(10)
    street.gateway.kill()
    street.endpoints = street.gateway.start()
    wait_for(lambda: street.timers("done"), what="the delayed update to run")
    assert street.rows("SELECT ?s { street:7 street:lamp ?s }") == [["OFF"]]


@pytest.mark.timeout(180)
def test_kills_of_the_gateway_leave_no_lamp_on(street: Street):
    """A hundred sensors report that nobody is present any more, and meanwhile the gateway is killed."""
    posts = [str(number) for number in range(100)]
    for milliseconds in (20, 40, 80):
        for post in posts:
            street.client.publish(f"street/{post}/presence", "true", qos=1)
        wait_for(lambda: street.lit() == dict.fromkeys(posts, "ON"), what="all lamps")
        for post in posts:
            street.client.publish(f"street/{post}/presence", "false", qos=1)
        time.sleep(milliseconds / 1000)
        street.gateway.kill()
        street.gateway.start()
        for post in posts:  # the embedded broker may have lost some; for the others this repeats the value
            street.client.publish(f"street/{post}/presence", "false", qos=1)
        wait_for(lambda: street.lit() == dict.fromkeys(posts, "OFF"), what="no lamp")
        assert street.rows("SELECT ?post { ?post street:lamp 'ON' }") == []
    log = (street.directory / "lighting.py.log").read_text()
    assert " failed at " not in log
    assert "Traceback" not in log


@pytest.mark.timeout(60)
@pytest.mark.parametrize("text", [None, "{", '{"queries": {"Q": {"sparql": "SELECT"}}}'])
@pytest.mark.parametrize(
    "program",
    [
        ["lighting.py"],
        ["../chat/client.py", "Anna", "Bob"],
        ["../monitoring/live_values.py"],
        ["../monitoring/storing_service.py"],
        ["../monitoring/topics_manager.py"],
    ],
)
def test_an_invalid_profile_is_reported_in_one_line(tmp_path: Path, text: str | None, program: list[str]):
    profile = tmp_path / "wrong.jsap"
    if text is not None:
        profile.write_text(text)
    done = run(*program, "--profile", str(profile))
    assert done.returncode == 2
    assert done.stderr.startswith("usage:")
    assert str(profile) in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


@pytest.mark.timeout(60)
@pytest.mark.parametrize("address", ["http://127.0.0.1", "", "127.0.0.1:x", "127.0.0.1:99999", "mqtts://127.0.0.1"])
def test_addresses_that_are_not_those_of_a_broker_are_refused(address: str):
    done = run("street.py", "--mqtt", address)
    assert done.returncode == 2
    assert f"error: --mqtt {address}: " in done.stderr


@pytest.mark.timeout(60)
@pytest.mark.parametrize("form", ["127.0.0.1:{}", "mqtt://127.0.0.1:{}", "[::1]:{}"])
def test_the_address_of_a_broker_is_taken_as_it_is(form: str):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    done = run("street.py", "--mqtt", form.format(port))
    assert done.returncode == 1
    assert done.stderr.startswith("no MQTT broker at ")
    assert f"1:{port}: " in done.stderr


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLE / program), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)


@pytest.mark.timeout(120)
def test_a_street_of_a_hundred_lamps(street: Street):
    broker = urlsplit(street.endpoints["mqtt"]).netloc
    program = street.start("street.py", "--mqtt", broker, "--speed", "20", "--people", "10")
    try:
        for _ in range(200):
            street.reported()
    finally:
        program.send_signal(signal.SIGINT)
    assert program.wait(10) == 0, (street.directory / "street.py.log").read_text()
    lit, next_to_person = "SELECT ?post { ?post street:lamp 'ON' }", "SELECT ?post { ?post street:presence true }"
    # Lamps next to a person are on, all others are off. The aggregator may still read the last presence.
    wait_for(
        lambda: not street.timers("pending") and street.rows(lit) == street.rows(next_to_person), what="the last lamps"
    )
    assert len(street.rows("SELECT ?post { ?post street:presence ?any }")) == 100
