"""The monitoring as in its README, each component a process: gateway, store, and three programs."""

from __future__ import annotations

import csv
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import groupby, islice
from pathlib import Path

import httpx
import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from edge.jsap import Profile
from tests.support.processes import GatewayProcess, free_port
from tests.support.waiting import wait_for

EXAMPLE = Path(__file__).parents[2] / "examples" / "monitoring"
PARKING = Path(__file__).parents[3] / "shared" / "data" / "aarhus_parking.csv"
MONITOR = "http://mml.arces.unibo.it/monitor#"
BEGIN = Decimal(-1)
"""The first value of every topic in these tests; no sensor sends it."""

pytestmark = pytest.mark.timeout(180)


class Plant:
    """A gateway with its broker, a second one as the store, and the programs of the example."""

    def __init__(self, directory: Path, mappings: dict[str, str]) -> None:
        """`mappings`: topic to observation, of the profile."""
        self.directory = directory
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        quiet = {"EDGE__HOST__ENABLED": "false"}
        self._gateway = GatewayProcess(directory / "gateway", quiet)
        self.store = GatewayProcess(
            directory / "store", {**quiet, "EDGE__MQTT__ENABLED": "false", "EDGE__HTTP__PORT": str(free_port())}
        )
        self._at, self._stored_at = self._gateway.start(), self.store.start()
        self._profiles(mappings)
        self.profile = Profile.load(directory / "storing.yaml")
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2)
        broker = httpx.URL(self._at["mqtt"])
        self._client.connect(broker.host, broker.port or 0)
        self._client.loop_start()

    def _profiles(self, mappings: dict[str, str]) -> None:
        """Write the profiles of the example with the ports of these gateways, and with mappings."""
        ports = {
            "8000": httpx.URL(self._at["http"]).port,
            "8001": httpx.URL(self._stored_at["http"]).port,
            "9000": httpx.URL(self._at["ws"]).port,
        }
        for name in ("monitoring.jsap", "storing.yaml"):
            text = re.sub("|".join(ports), lambda found: str(ports[found[0]]), (EXAMPLE / name).read_text())
            (self.directory / name).write_text(text)
        path = self.directory / "monitoring.jsap"
        profile = json.loads(path.read_text())
        profile["extended"]["semantic-mappings"] = {
            topic: {
                "observation": observation,
                "unit": "qudt-unit-1-1:Unitless",
                "location": "arces-monitor:Aarhus",
                "comment": "made for a test",
                "label": f"Label {topic}",
            }
            for topic, observation in mappings.items()
        }
        path.write_text(json.dumps(profile))

    def start(self, program: str, profile: str) -> None:
        with (self.directory / f"{program}.out").open("ab") as out:
            self._running[program] = subprocess.Popen(
                [sys.executable, str(EXAMPLE / program), "--profile", str(self.directory / profile)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )

    def start_storing(self) -> None:
        """Start the storing service. Returns when it is subscribed."""
        others = len([program for program in self._running.values() if program.poll() is None])
        self.start("storing_service.py", "storing.yaml")
        wait_for(lambda: self._subscriptions() == others + 1, what="the storing service")

    def end(self, program: str, number: signal.Signals) -> int:
        self._running[program].send_signal(number)
        return self._running.pop(program).wait(10)

    def shown(self, program: str) -> str:
        return (self.directory / f"{program}.out").read_text()

    def manage_topics(self, *arguments: str) -> list[str]:
        command = [sys.executable, str(EXAMPLE / "topics_manager.py"), *arguments]
        command += ["--profile", str(self.directory / "monitoring.jsap")]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout.splitlines()

    def publish(self, topic: str, value: object) -> None:
        self._client.publish(topic, str(value), qos=1)

    def begin(self, topic: str, observation: str) -> None:
        """Send the first value of a topic until the adapter knows its mapping."""

        def there() -> bool:
            self.publish(topic, BEGIN)
            return (observation, BEGIN) in self.values()

        wait_for(there, what="the first value")

    def values(self) -> list[tuple[str, Decimal]]:
        """Return observation and value in the gateway."""
        rows = self._rows(self._at["http"], self.profile.query("OBSERVATIONS_VALUES").text())
        return [(row["observation"], Decimal(row["value"])) for row in rows]

    def history(self, observation: str) -> list[Decimal]:
        """Return the values in the store, in the order of their times. All times differ."""
        rows = self._rows(self._stored_at["http"], self.profile.query("HISTORY").text())
        rows = [row for row in rows if row["observation"] == observation]
        assert len({row["time"] for row in rows}) == len(rows)
        return [Decimal(row["value"]) for row in rows]

    def stores(self, observation: str, *wanted: object) -> None:
        """Wait for the last value, then return all."""
        numbers = [Decimal(str(value)) for value in wanted]
        wait_for(lambda: self.history(observation)[-1:] == numbers[-1:], what=f"the history of {observation}")
        assert self.history(observation) == numbers

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()
        for program in list(self._running):
            self.end(program, signal.SIGKILL)
        self._gateway.stop()
        self.store.stop()

    def _subscriptions(self) -> int:
        for name, program in self._running.items():
            assert program.poll() is None, self.shown(name)
        text = httpx.get(f"{self._at['http']}/metrics", trust_env=False).text
        found = re.search(r'^edge_subscriptions{gate="ws"} (\d+)', text, re.MULTILINE)
        return int(found[1]) if found else 0

    def _rows(self, url: str, sparql: str) -> list[dict[str, str]]:
        answer = httpx.post(f"{url}/query", data={"query": sparql}, trust_env=False).json()
        return [{name: term["value"] for name, term in row.items()} for row in answer["results"]["bindings"]]


def without_repetitions(values: Sequence[Decimal]) -> list[Decimal]:
    """Return the values without repetitions: a repeated value is not a change and causes no notification."""
    return [value for value, _ in groupby(values)]


@pytest.mark.skipif(not PARKING.exists(), reason="the recorded readings are absent (../shared/data)")
def test_every_value_of_the_car_parks_is_shown_and_stored(tmp_path: Path) -> None:
    with PARKING.open(newline="") as file:
        readings = [(row["garagecode"], row["vehiclecount"]) for row in islice(csv.DictReader(file), 800)]
    garages = {f"parking/{garage}": f"arces-monitor:{garage}" for garage, _ in readings}
    wanted = {garage: [BEGIN] for garage, _ in readings}
    for garage, count in readings:
        wanted[garage].append(Decimal(count))
    assert max(len(without_repetitions(values)) for values in wanted.values()) > 50
    plant = Plant(tmp_path, garages)
    try:
        assert len(plant.manage_topics()) == len(garages)
        plant.start_storing()
        plant.start("live_values.py", "monitoring.jsap")
        for topic in garages:
            plant.begin(topic, MONITOR + topic.removeprefix("parking/"))
        for garage, count in readings:
            plant.publish(f"parking/{garage}", count)
        for garage, values in wanted.items():
            plant.stores(f"{MONITOR}{garage}", *without_repetitions(values))
        wait_for(lambda: shown(plant) == {garage: values[-1] for garage, values in wanted.items()}, what="the table")
        assert plant.end("live_values.py", signal.SIGINT) == 0
        assert plant.end("storing_service.py", signal.SIGTERM) == 0
    finally:
        plant.close()


def shown(plant: Plant) -> dict[str, Decimal]:
    """Return garage and value of the last table in the terminal."""
    table = plant.shown("live_values.py").rpartition("\033[H")[2]
    lines = re.findall(r"^\S+ +(-?\d+) Unitless +Label parking/(\w+), Aarhus", table, re.MULTILINE)
    return {garage: Decimal(value) for value, garage in lines}


@pytest.fixture
def plant(tmp_path: Path) -> Iterator[Plant]:
    plant = Plant(tmp_path, {"t": "arces-monitor:t"})
    try:
        plant.manage_topics()
        plant.start_storing()
        plant.begin("t", MONITOR + "t")
        plant.stores(MONITOR + "t", BEGIN)
        yield plant
    finally:
        plant.close()


def test_the_storing_service_is_killed_and_continues(plant: Plant) -> None:
    """At rest no value is lost.

    While the service is away, newer values replace older ones. No value is stored twice.
    """
    plant.publish("t", 1)
    plant.publish("t", 2.5)
    plant.stores(MONITOR + "t", BEGIN, 1, 2.5)
    plant.end("storing_service.py", signal.SIGKILL)
    plant.start_storing()
    plant.publish("t", 3)
    plant.stores(MONITOR + "t", BEGIN, 1, 2.5, 3)
    plant.end("storing_service.py", signal.SIGKILL)
    for value in (4, 5, "6.0"):
        plant.publish("t", value)
    wait_for(lambda: plant.values() == [(MONITOR + "t", 6)], what="the gateway to have all")
    plant.start_storing()
    plant.stores(MONITOR + "t", BEGIN, 1, 2.5, 3, 6)
    plant.end("storing_service.py", signal.SIGKILL)
    plant.start_storing()
    plant.publish("t", 7)
    plant.stores(MONITOR + "t", BEGIN, 1, 2.5, 3, 6, 7)


def test_the_storing_service_is_killed_at_work(plant: Plant) -> None:
    for killed in range(3):
        for value in range(1000 * killed, 1000 * killed + 500):
            plant.publish("t", value)
        before = len(plant.history(MONITOR + "t"))
        wait_for(lambda before=before: len(plant.history(MONITOR + "t")) > before + 20, what="some values")
        plant.end("storing_service.py", signal.SIGKILL)
        wait_for(lambda value=value: plant.values() == [(MONITOR + "t", value)], what="the gateway to have all")
        plant.start_storing()
        wait_for(lambda value=value: plant.history(MONITOR + "t")[-1] == value, what="the last value")
    found = plant.history(MONITOR + "t")
    assert found == sorted(set(found))


def test_values_wait_for_an_unavailable_store(plant: Plant) -> None:
    """Values wait meanwhile."""
    plant.store.kill()
    for value in (1, 2, 3):
        plant.publish("t", value)
    wait_for(lambda: plant.values() == [(MONITOR + "t", 3)], what="the gateway to have all")
    plant.store.start()
    plant.stores(MONITOR + "t", BEGIN, 1, 2, 3)


def test_topics_are_added_once(plant: Plant) -> None:
    assert plant.manage_topics() == ["t is known"]
    assert plant.values() == [(MONITOR + "t", BEGIN)]
    (reported,) = plant.manage_topics("cellar/Wine & more", "--label", "Wine", "--unit", "qudt-unit-1-1:DegreeCelsius")
    iri = reported.split("<")[1].split(">")[0]
    plant.publish("t", 20)
    plant.begin("cellar/Wine & more", iri)
    plant.publish("cellar/Wine & more", "12.5 degrees")
    plant.stores(iri, BEGIN, 12.5)
    assert plant.manage_topics("cellar/Wine & more") == ["cellar/Wine & more is known"]
    assert (iri, Decimal("12.5")) in plant.values()
