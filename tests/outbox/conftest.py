"""A gateway in a separate process that ships to a landing zone."""

import json

import pytest
from memory_outbox import Zone

from tests.faults.monitored_gateway import Watched
from tests.support.processes import GatewayProcess
from tests.support.waiting import wait_for

_QUIET = {"EDGE__MQTT__ENABLED": "false", "EDGE__HOST__ENABLED": "false"}
_FAST = {"EDGE__OFFLOAD__EVERY": "0.2", "EDGE__OFFLOAD__SEGMENT_ROWS": "20", "EDGE__OFFLOAD__RETRY_MIN": "0.1"}

OBSERVATION = """
<urn:o/{name}> a sosa:Observation ; arces-monitor:hasMqttTopic "attic" ; sosa:hasResult <urn:o/{name}/r> .
<urn:o/{name}/r> a qudt:QuantityValue ; qudt:numericValue "{value}" ; time:hasTime <urn:o/{name}/t> .
<urn:o/{name}/t> a time:Instant ; time:inXSDDateTimeStamp "2026-03-01T12:00:00Z"^^xsd:dateTimeStamp ."""
PREFIXES = """PREFIX sosa: <http://www.w3.org/ns/sosa/> PREFIX qudt: <http://qudt.org/1.1/schema/qudt#>
PREFIX arces-monitor: <http://mml.arces.unibo.it/monitor#> PREFIX time: <http://www.w3.org/2006/time#>
PREFIX xsd: <http://www.w3.org/2001/XMLSchema#>"""


class Site:
    """A gateway `attic` that stores observations for the test, with its landing zone."""

    def __init__(self, data_dir, zone, settings):
        self.path = zone
        self.process = GatewayProcess(data_dir, {**_QUIET, **_FAST, "EDGE__OUTBOX__GATEWAY": "attic", **settings})
        self.watched = None

    def start(self):
        self.watched = Watched(self.process)

    def store(self, *names, size=2):
        """Run one update that stores an observation for each name, with values of this many characters."""
        observations = "".join(OBSERVATION.format(name=name, value="1" * size) for name in names)
        self.watched.update(f"{PREFIXES} INSERT DATA {{ GRAPH <urn:edge:history> {{ {observations} }} }}")

    def status(self):
        return self.watched.ask("/api/outbox")[1]

    def until(self, **wanted):
        """Wait until the status has these values."""

        def said():
            status = self.status()
            return status if all(status[name] == value for name, value in wanted.items()) else None

        return wait_for(said, what=f"{wanted}; it was {self.status()}")

    def until_shipped(self):
        def all_shipped():
            status = self.status()
            return status if status["shipped"] == status["last"] and status["state"] == "ships" else None

        return wait_for(all_shipped, what="all is shipped")

    def ship(self):
        status, answer = self.watched.ask("/api/outbox", now="")
        assert status == 200, answer
        return answer

    @property
    def zone(self):
        head = self.status()
        return Zone(self.path, head["gateway"], head["epoch"])

    def log(self, event):
        lines = [json.loads(line) for line in self.process.log().splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == event]


@pytest.fixture
def site(tmp_path):
    """Return a gateway that ships to the directory `landing`; the test starts it."""
    (tmp_path / "landing").mkdir()
    made = []

    def site(**settings):
        settings = {"EDGE__OFFLOAD__TO": str(tmp_path / "landing"), **settings}
        made.append(Site(tmp_path / "data", tmp_path / "landing", settings))
        return made[-1]

    yield site
    for one in made:
        one.process.stop()
