"""Real parts that the adapters' tests are made of: Mosquitto, publishers, and looks into the graph."""

import os
import pwd
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import paho.mqtt.client as paho
import pytest

from edge.adapters.intake import Intake
from edge.adapters.mqtt import MqttAdapter
from edge.adapters.settings import MqttSettings
from edge.engine.requests import QueryRequest, UpdateRequest
from edge.mapping.mapper import Mapper
from edge.mapping.pack import load_pack

PREFIXES = """
PREFIX rdfs: <http://www.w3.org/2000/01/rdf-schema#>
PREFIX sosa: <http://www.w3.org/ns/sosa/>
PREFIX qudt: <http://qudt.org/1.1/schema/qudt#>
PREFIX unit: <http://qudt.org/1.1/vocab/unit#>
PREFIX monitor: <http://mml.arces.unibo.it/monitor#>
PREFIX time: <http://www.w3.org/2006/time#>
"""

MAPPINGS = """
[[mapping]]
name = "room"
topic = "room/{room}/temperature"
observation = "http://example.org/{room}-temperature"
unit = "http://qudt.org/1.1/vocab/unit#DegreeCelsius"
label = "Temperature of {room}"
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(condition: Callable[[], object], seconds: float = 10.0, what: str = "") -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what or condition}"
        time.sleep(0.01)


class Mosquitto:
    """A Mosquitto process of its own, with persistence, on a port that stays the same over restarts."""

    def __init__(self, directory: Path, extra: str = "", *, anonymous: bool = True) -> None:
        self.program = shutil.which("mosquitto", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
        if self.program is None:
            pytest.skip("no mosquitto here; install the package mosquitto")
        directory.mkdir()
        self.port = free_port()
        self.config = directory / "mosquitto.conf"
        lines = [
            f"listener {self.port} 127.0.0.1",
            f"allow_anonymous {str(anonymous).lower()}",
            # Started by root it would become another user, who cannot get at the files of tests.
            f"user {pwd.getpwuid(os.getuid()).pw_name}",
            "persistence true",
            f"persistence_location {directory}/",
            "max_queued_messages 0",
            extra,
        ]
        self.config.write_text("\n".join(lines) + "\n")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.process = subprocess.Popen(
            [self.program, "-c", self.config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_for(self._answers, what="mosquitto answers")

    def stop(self, *, kill: bool = False) -> None:
        if self.process is not None:
            if kill:
                self.process.kill()
            else:
                self.process.terminate()
            self.process.wait(10)
            self.process = None

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, "mosquitto ended"
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    @property
    def url(self) -> str:
        return f"mqtt://127.0.0.1:{self.port}"


class Publisher:
    """A real MQTT client that publishes and waits for the broker's word."""

    def __init__(self, port: int, **options: object) -> None:
        self.client = paho.Client(paho.CallbackAPIVersion.VERSION2, **options)
        self.client.max_queued_messages_set(0)
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()
        wait_for(self.client.is_connected, what="the publisher is connected")

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        self.client.disconnect()
        self.client.loop_stop()

    def publish(self, topic: str, payload: object, qos: int = 1, retain: bool = False) -> None:
        self.client.publish(topic, str(payload), qos, retain).wait_for_publish(10)


class Gateway:
    """Intake and MQTT adapter on an engine, as the application puts them together."""

    def __init__(self, engine, observations, broker: str, mappings: str = MAPPINGS, **settings: object) -> None:
        mapper = Mapper([load_pack(mappings, "test")])
        self.intake = Intake(lambda: mapper, observations)
        options = {"client_id": "gateway", "reconnect_min": 0.1, "reconnect_max": 0.5, "retry_min": 0.02}
        self.adapter = MqttAdapter(MqttSettings(broker, **{**options, **settings}), self.intake, engine.receipts())

        self._started = False

    def __enter__(self):
        if not self._started:
            self._started = True
            self.adapter.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.adapter.stop()

    def connected(self) -> "Gateway":
        """Started, and the broker sends what is published from now on."""
        self.__enter__()
        wait_for(lambda: self.adapter.subscribed, what="the adapter is subscribed")
        return self


def select(engine, pattern: str) -> list[tuple[str | None, ...]]:
    """Solutions of a SELECT of everything in `pattern`, as plain values, sorted."""
    result = engine.query(QueryRequest(f"{PREFIXES} SELECT * WHERE {{ {pattern} }}")).result(10)
    return sorted(tuple(None if term is None else term.value for term in row) for row in result.rows)


def update(engine, text: str) -> None:
    engine.update([UpdateRequest(PREFIXES + text)]).result(10)


def value_of(engine, observation: str) -> str | None:
    rows = select(engine, f"<{observation}> sosa:hasResult/qudt:numericValue ?v")
    assert len(rows) <= 1
    return rows[0][0] if rows else None


class Values:
    """Subscribes to the values of observations, as a client does, and keeps what it is told."""

    def __init__(self, engine) -> None:
        self.added: list[tuple[str, str]] = []
        self.removed: list[tuple[str, str]] = []
        query = PREFIXES + (
            "SELECT ?o ?v WHERE { ?o a sosa:Observation ; sosa:hasResult ?q . ?q qudt:numericValue ?v }"
        )
        engine.subscribe(QueryRequest(query), self._note).result(10)

    def _note(self, event) -> None:
        self.added += [(o.value, v.value) for o, v in event.delta.added]
        self.removed += [(o.value, v.value) for o, v in event.delta.removed]
