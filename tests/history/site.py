"""A whole site: Mosquitto, sensors, a gateway that stores and ships, and the remote table."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

import deltalake
import httpx
import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from edge.outbox.segment import MANIFEST, SegmentManifest
from tests.history.receiving import COMMAND, Receiver
from tests.support.processes import GatewayProcess, Mosquitto
from tests.support.waiting import wait_for

GATEWAY = "g1"
SENSORS = 5
MINUTE = 60_000
MIDNIGHT = 1_781_049_600_000
"""2026-06-10 in UTC, milliseconds since 1970."""

MAPPING = """
[[mapping]]
topic = "site/{room}"
observation = "http://example.org/{room}-temperature"
property = "http://example.org/temperature"
location = "http://example.org/{room}"
label = "Temperature of {room}"
unit = "unit:DegreeCelsius"
time = { path = "at", format = "unix_ms" }
readings = [{ path = "value" }]
store = "all"
"""


@contextmanager
def receiving(folder: Path) -> Iterator[Receiver]:
    """Start `edge-history receive`, with the landing zone of a site in the same folder."""
    receiver = Receiver(folder)
    receiver.start()
    try:
        yield receiver
    finally:
        if receiver.process is not None:
            receiver.end()


def shipping_to(receiver: Receiver) -> dict[str, str]:
    """Return the settings of a site's gateway."""
    return {"EDGE__OFFLOAD__TO": receiver.url, "EDGE__OFFLOAD__TOKEN": receiver.tokens[GATEWAY]}


class Site:
    """A site. Each reading has a unique value: a number, and its time is that many minutes after midnight."""

    def __init__(self, folder: Path, **settings: str) -> None:
        """`settings`: environment variables of the gateway. The default is to ship to `folder/landing`."""
        self.landing = folder / "landing"
        self.table = folder / "table"
        self.broker = Mosquitto(folder / "mosquitto")
        self.published: list[int] = []
        """Number of readings that the broker has acknowledged."""
        data = folder / "gateway"
        (data / "mappings").mkdir(parents=True)
        (data / "mappings" / "site.toml").write_text(MAPPING)
        self.gateway = GatewayProcess(
            data,
            {
                "EDGE__HOST__ENABLED": "false",
                "EDGE__MQTT__BROKER": self.broker.url,
                "EDGE__MQTT__RECONNECT_MIN": "0.1",
                "EDGE__MQTT__RECONNECT_MAX": "0.3",
                "EDGE__OUTBOX__GATEWAY": GATEWAY,
                "EDGE__OFFLOAD__TO": str(self.landing),
                "EDGE__OFFLOAD__EVERY": "0.3",
                "EDGE__OFFLOAD__SEGMENT_ROWS": "50",
                "EDGE__OFFLOAD__RETRY_MIN": "0.1",
                "EDGE__OFFLOAD__RETRY_MAX": "0.3",
                **settings,
            },
        )
        self.endpoints: dict[str, str] = {}
        self.sensors = mqtt.Client(CallbackAPIVersion.VERSION2, client_id="sensors")
        self.sensors.max_inflight_messages_set(50)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.broker.start()
            stack.callback(self.broker.stop, kill=True)
            self.sensors.connect("127.0.0.1", self.broker.port)
            self.sensors.loop_start()
            stack.callback(self.sensors.loop_stop)
            stack.callback(self.sensors.disconnect)
            stack.callback(self.gateway.stop)
            self.start()
            wait_for(self._listens, what="the gateway hears the sensors")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(self) -> None:
        """Start the gateway."""
        self.endpoints = self.gateway.start()

    def publish(self, numbers: Iterable[int]) -> None:
        """Publish readings. Returns when the broker has all of them."""
        sent = []
        for number in numbers:
            payload = json.dumps({"value": number, "at": MIDNIGHT + number * MINUTE})
            sent.append((number, self.sensors.publish(f"site/room{number % SENSORS}", payload, qos=1)))
        for number, message in sent:
            message.wait_for_publish(20)
            assert message.is_published()
            self.published.append(number)

    def _listens(self) -> bool:
        """Return whether it has subscribed: from then on the broker keeps readings for it."""
        self.sensors.publish("probe")
        return self.metric("edge_mqtt_received") > 0

    def metric(self, name: str) -> float:
        """Return the value of a metric, or 0 without one."""
        lines = httpx.get(self.endpoints["http"] + "/metrics", trust_env=False).text.splitlines()
        return next((float(line.split()[1]) for line in lines if line.startswith(f"{name} ")), 0.0)

    def shipped(self) -> list[SegmentManifest]:
        """Return the observations in the landing zone, by number."""
        found = [
            SegmentManifest.from_json(path.read_bytes()) for path in self.landing.glob(f"{GATEWAY}/*/[!.]*{MANIFEST}")
        ]
        return sorted(found, key=lambda manifest: manifest.first)

    def await_shipped(self, observations: int) -> list[SegmentManifest]:
        """Wait until the landing zone has received this number, including dropped ones. Return its manifests."""
        wait_for(
            lambda: max((manifest.last for manifest in self.shipped()), default=0) >= observations,
            what=f"{observations} observations in the landing zone",
            seconds=240,  # kills leave a long queue, and Spark shares the processors
        )
        return self.shipped()

    def ingester(self, *options: str) -> subprocess.Popen[bytes]:
        """Start `edge-history ingest` as a process."""
        command = [*COMMAND, "ingest", "--landing", str(self.landing), "--table", str(self.table), *options]
        with (self.landing.parent / "ingest.log").open("ab") as log:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def rows(self) -> list[dict[str, Any]]:
        """Return the table by number, read with another reader than Spark's."""
        found: list[dict[str, Any]] = deltalake.DeltaTable(self.table).to_pyarrow_table().to_pylist()
        return sorted(found, key=lambda row: row["seq"])

    def assert_each_once(self, rows: list[dict[str, Any]]) -> None:
        """Check that the table contains each published reading exactly once and unchanged, numbered without gaps."""
        assert Counter(int(row["value_text"]) for row in rows) == Counter(self.published)
        assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
        assert len({row["epoch"] for row in rows}) == 1
        for row in rows:
            number = int(row["value_text"])
            assert row["ts"].timestamp() * 1000 == MIDNIGHT + number * MINUTE
            assert (row["gateway"], row["value"]) == (GATEWAY, number)
            assert row["feature"] == f"http://example.org/room{number % SENSORS}"
