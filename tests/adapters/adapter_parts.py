"""Real components for the tests of the adapters: Mosquitto, publishers, and queries of the graph."""

import paho.mqtt.client as paho

from edge.adapters.ingest import Ingest
from edge.adapters.mqtt_adapter import MqttAdapter
from edge.adapters.settings import MqttSettings
from edge.engine.requests import QueryRequest, UpdateRequest
from edge.mapping.mapper import Mapper
from edge.mapping.pack import load_pack
from tests.support.settings import unchecked
from tests.support.waiting import wait_for

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

[[mapping]]
name = "log"
topic = "room/{room}/log"
path = "[*]"
observation = "http://example.org/{room}-temperature"

[[mapping]]
name = "series"
topic = "room/{room}/series"
path = "[{number}]"
observation = "http://example.org/{room}-{number}"
"""


class Publisher:
    """An MQTT client that publishes a message and waits for the broker's acknowledgement."""

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
    """Ingest and MQTT adapter on an engine, connected as in the application."""

    def __init__(self, engine, observations, broker: str, mappings: str = MAPPINGS, **settings: object) -> None:
        mapper = Mapper([load_pack(mappings, "test")])
        self.ingest = Ingest(lambda: mapper, observations)
        options = {"client_id": "gateway", "reconnect_min": 0.1, "reconnect_max": 0.5, "retry_min": 0.02}
        self.adapter = MqttAdapter(
            unchecked(MqttSettings, broker=broker, **{**options, **settings}), self.ingest, engine.receipts().result(10)
        )

        self._started = False

    def __enter__(self):
        if not self._started:
            self._started = True
            self.adapter.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.adapter.stop()

    def connected(self) -> "Gateway":
        """Wait until the adapter is subscribed, so that the broker forwards new messages."""
        self.__enter__()
        wait_for(lambda: self.adapter.subscribed, what="the adapter is subscribed")
        return self


def select(engine, pattern: str) -> list[tuple[str | None, ...]]:
    """Return the sorted solutions of `SELECT * { pattern }` as plain values."""
    result = engine.query(QueryRequest(f"{PREFIXES} SELECT * WHERE {{ {pattern} }}")).result(10)
    return sorted(tuple(None if term is None else term.value for term in row) for row in result.rows)


def update(engine, text: str) -> None:
    engine.update([UpdateRequest(PREFIXES + text)]).result(10)


def value_of(engine, observation: str) -> str | None:
    rows = select(engine, f"<{observation}> sosa:hasResult/qudt:numericValue ?v")
    assert len(rows) <= 1
    return rows[0][0] if rows else None


class Values:
    """A subscriber to the values of observations, which records its notifications."""

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
