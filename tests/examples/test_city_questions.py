"""The example of the city as in its README: readings over Mosquitto into a gateway, whose clock the test sets."""

from __future__ import annotations

import importlib.util
import json
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import paho.mqtt.client as mqtt
import pyoxigraph as ox
import pytest
from city_answers import CITY, Answers, Located, Reading, Report, new_readings, selected
from paho.mqtt.enums import CallbackAPIVersion

from tests.support.callback_server import CallbackServer, Received, callback_server
from tests.support.processes import GatewayProcess, Mosquitto
from tests.support.waiting import wait_for

EXAMPLE = Path(__file__).parents[2] / "examples" / "city"
DATA = Path(__file__).parents[3] / "shared" / "data"
RECORDED = (DATA / "aarhus_parking.csv", DATA / "city_sensors_senml.csv")
SAMPLE = (EXAMPLE / "sample" / "parking.csv", EXAMPLE / "sample" / "sensors.csv")
STEPPED_CLOCK = Path(__file__).parent / "stepped_clock"
SECOND = 1_000_000
EPOCH = 2_000_000_000
"""Begin of the queries, in seconds since 1970."""
SILENCE = 12
"""Seconds without readings at the end."""
OBSERVATIONS = "/streams/urn%3Aedge%3Astream%3Aobservations"
OPERATORS = {"02-became-full": "ISTREAM", "03-free-again": "DSTREAM"}
"""Of the queries in RSP-QL. C-SPARQL reports all rows."""

pytestmark = pytest.mark.timeout(180)


def module(name: str) -> ModuleType:
    """Import a program of the example."""
    specification = importlib.util.spec_from_file_location(f"examples_city_{name}", EXAMPLE / f"{name}.py")
    assert specification is not None
    assert specification.loader is not None
    found = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(found)
    return found


client, replay = module("questions"), module("replay")


class Town:
    """Mosquitto, a gateway with a clock of its own, and an observer of the queries in both languages."""

    def __init__(self, directory: Path, server: CallbackServer) -> None:
        self.server = server
        self.broker = Mosquitto(directory / "mosquitto")
        self._clock = directory / "clock"
        self.set_clock(0)
        data = directory / "data"
        (data / "mappings").mkdir(parents=True)
        (data / "mappings" / "city.toml").write_text((EXAMPLE / "city.toml").read_text())
        settings = {
            "EDGE__MQTT__BROKER": self.broker.url,
            "EDGE__HOST__ENABLED": "false",
            "PYTHONPATH": f"{STEPPED_CLOCK}:{EXAMPLE.parents[1]}",
            "CLOCK": str(self._clock),
        }
        self._gateway = GatewayProcess(data, settings)
        self._sensors = mqtt.Client(CallbackAPIVersion.VERSION2)
        self._state: dict[str, object] = {}
        self.readings: list[Reading] = []

    def start(self) -> None:
        self.broker.start()
        self._start_gateway()
        client.load_map(self.http)
        for language in ("csparql", "rspql"):
            for question in client.questions(language, self.http):
                question.register(self.server.url(f"/{language}/{question.title}"))
        self._sensors.connect("127.0.0.1", self.broker.port)
        self._sensors.loop_start()

    def _start_gateway(self) -> None:
        self.http = httpx.Client(base_url=self._gateway.start()["http"], timeout=30, trust_env=False)

    def restart(self) -> None:
        """Kill the gateway as a power cut would, and start it again."""
        self.http.close()
        self._gateway.kill()
        self._start_gateway()

    def close(self) -> None:
        self._sensors.disconnect()
        self._sensors.loop_stop()
        self.http.close()
        self._gateway.stop()
        self.broker.stop()

    def set_clock(self, time: float) -> None:
        new = self._clock.with_suffix(".new")
        new.write_text(str(round((EPOCH + time) * SECOND)))
        new.replace(self._clock)

    def pass_time(self, time: float) -> None:
        """Set the clock, and let the windows report."""
        self.set_clock(time)
        self.elements()

    def elements(self) -> int:
        """Return the number of elements of the stream of observations."""
        answer = self.http.get(OBSERVATIONS)
        assert answer.status_code == 200, answer.text
        return int(answer.json()["elements"])

    def publish(self, time: float, messages: list[tuple[str, str]]) -> None:
        """Publish the messages of a step, and wait until they are in the windows."""
        self.pass_time(time)
        self.readings += new_readings(time, messages, self._state)
        for sent in [self._sensors.publish(topic, payload, qos=1) for topic, payload in messages]:
            sent.wait_for_publish(10)
        wait_for(lambda: self.elements() == len(self.readings), what="the readings")
        # The writer has also passed on the descriptions of the observations when it has answered.
        assert self.http.post("/update", data={"update": "INSERT DATA { <urn:step> <urn:is> 1 }"}).is_success

    def reports(self, language: str, title: str, number: int) -> list[Report]:
        """Return the reports of a query, when this number of them, or more, have arrived."""
        question = next(each for each in client.questions(language, self.http) if each.title == title)
        status = wait_for(lambda: self._status(question.path, number), what=f"{number} reports of {title}")
        path, last = f"/{language}/{title}", status["reports"]
        wait_for(lambda: any(each.number == last for each in self.server.received(path)), what=f"report {last}")
        received = {each.number: each for each in self.server.received(path)}
        assert sorted(received) == list(range(1, last + 1))
        return [(time_of(each), rows_of(each)) for _, each in sorted(received.items())]

    def _status(self, path: str, number: int) -> dict[str, Any] | None:
        """Return the status of a query, or None until it has made reports. A slide may be in progress."""
        status: dict[str, Any] = self.http.get(path).json()
        assert status["state"] == "running", status["reason"]
        return status if status["reports"] >= number else None


def time_of(report: Received) -> float:
    return datetime.fromisoformat(report.headers["report-time"]).timestamp() - EPOCH


def rows_of(report: Received) -> set[Any]:
    if not report.headers["content-type"].startswith("application/sparql-results+json"):
        return located(report.body)
    results = json.loads(report.body)
    if "boolean" in results:
        return {(results["boolean"],)}
    found = [
        tuple(plain(row[name]) if name in row else None for name in results["head"]["vars"])
        for row in results["results"]["bindings"]
    ]
    assert len(set(found)) == len(found)
    return set(found)


def located(triples: bytes) -> set[Located]:
    """Return the readings of the CONSTRUCT query: each blank node is one."""
    nodes: dict[str, dict[str, Any]] = defaultdict(dict)
    for triple in ox.parse(triples, ox.RdfFormat.N_TRIPLES):
        value = triple.object.value.removeprefix(CITY)
        name = triple.predicate.value.removeprefix(CITY)
        nodes[str(triple.subject)][name] = Decimal(value) if isinstance(triple.object, ox.Literal) else value
    return {Located(**node) for node in nodes.values()}


def plain(term: dict[str, str]) -> object:
    return Decimal(term["value"]) if "datatype" in term else term["value"].removeprefix(CITY)


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    with callback_server() as server:
        town = Town(tmp_path, server)
        try:
            town.start()
            yield town
        finally:
            town.close()


def check(town: Town, end: int) -> dict[str, int]:
    """Compare all reports with the answers of plain Python. Returns the number of rows by question."""
    answers, numbers = Answers(town.readings, EPOCH, end), {}
    for file in sorted((EXAMPLE / "queries").glob("*.rspql")):
        whole = answers.of(file.stem)
        operator = OPERATORS.get(file.stem)
        expected = whole if operator is None else selected(whole, operator)
        assert town.reports("rspql", file.stem, len(expected)) == expected, file.stem
        found = town.reports("csparql", file.stem, len(whole))
        assert found == whole, file.stem
        assert (found if operator is None else selected(found, operator)) == expected
        numbers[file.stem] = sum(len(rows) for _, rows in expected)
    return numbers


def run(town: Town, files: tuple[Path, Path], steps: int, restart: int | None = None) -> dict[str, int]:
    """Replay the first steps of two recordings, and check the reports. `restart`: step before which to restart."""
    for number, messages in enumerate(islice(replay.steps(*files), steps)):
        if number == restart:
            town.restart()
        town.publish(number + 0.5, messages)
    for second in range(steps, steps + SILENCE + 1):
        town.pass_time(second)
    return check(town, steps + SILENCE)


def test_both_languages_answer_the_questions_about_the_sample(town: Town) -> None:
    rows = run(town, SAMPLE, 24, restart=13)
    assert len(rows) == 12
    assert all(rows.values()), rows


@pytest.mark.skipif(
    not all(file.exists() for file in RECORDED), reason="the recorded readings are absent (../shared/data)"
)
def test_both_languages_answer_the_questions_about_recorded_readings(town: Town) -> None:
    rows = run(town, RECORDED, 6)
    assert all(rows.values()), rows
