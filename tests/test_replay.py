"""The main task on real readings: through Mosquitto into the gateway, and every change to a WebSocket subscriber.

The readings were recorded by sensors of several cities and by the car parks of Aarhus.
"""

from __future__ import annotations

import asyncio
import csv
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import groupby
from pathlib import Path

import paho.mqtt.client as mqtt
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.support.processes import GatewayProcess, Mosquitto

DATA = Path(__file__).parents[2] / "shared" / "data"
CITY = DATA / "city_sensors_senml.csv"
PARKING = DATA / "aarhus_parking.csv"

pytestmark = [
    pytest.mark.skipif(not CITY.exists(), reason="the recorded readings are absent (../shared/data)"),
    pytest.mark.timeout(300),
]

VALUES = """PREFIX sosa: <http://www.w3.org/ns/sosa/> PREFIX qudt: <http://qudt.org/1.1/schema/qudt#>
SELECT ?observation ?value
WHERE { ?observation a sosa:Observation ; sosa:hasResult ?quantity . ?quantity qudt:numericValue ?value }"""

MAPPINGS = """
[[mapping]]
topic = "parking/{garage}"
payload = "json"
path = "vehiclecount"
observation = "http://example.org/parking/{garage}"
location = "http://example.org/garage/{garage}"
label = "Vehicles in {garage}"
unit = "unit:Unitless"
time = { path = "updatetime", format = "%Y-%m-%d %H:%M:%S.%f", zone = "Europe/Copenhagen" }

[[mapping]]
topic = "city/{city}"
payload = "senml"
captures = { source = "source" }
observation = "http://example.org/city/{source}/{name}"
label = "{name} of {source}"
units = { far = "unit:DegreeCelsius", per = "unit:Percent", lon = "unit:DegreeAngle", lat = "unit:DegreeAngle" }
readings = [{ record = "source", ignore = true }, { datatype = "number" }]
"""

Message = tuple[str, bytes]
Values = dict[str, list[Decimal]]
"""Observation -> its values in order, without repetitions."""


def city_messages() -> Iterator[tuple[Message, dict[str, Decimal]]]:
    """Yield each recorded message with its values by observation."""
    for line in CITY.read_text().splitlines():
        payload = line.partition(",")[2]
        records = json.loads(payload)["e"]
        source = next(record["sv"] for record in records if record["n"] == "source")
        values = {
            f"http://example.org/city/{source}/{record['n']}": Decimal(record["v"])
            for record in records
            if record["n"] != "source"
        }
        yield ("city/any", payload.encode()), values


def parking_messages(limit: int | None = None) -> Iterator[tuple[Message, dict[str, Decimal]]]:
    """Yield each row of the car parks as a JSON message with its value."""
    with PARKING.open(newline="") as file:
        for number, row in enumerate(csv.DictReader(file)):
            if number == limit:
                return
            garage = row["garagecode"]
            observation = f"http://example.org/parking/{garage}"
            yield (f"parking/{garage}", json.dumps(row).encode()), {observation: Decimal(row["vehiclecount"])}


def in_order(carried: Sequence[dict[str, Decimal]]) -> Values:
    """Return the expected values of a subscriber: those of each observation, without repetitions."""
    values: dict[str, list[Decimal]] = defaultdict(list)
    for readings in carried:
        for observation, value in readings.items():
            values[observation].append(value)
    return {observation: [value for value, _ in groupby(series)] for observation, series in values.items()}


class Subscriber:
    """A subscriber to all values that checks every notification against its state."""

    def __init__(self) -> None:
        self.state: dict[str, Decimal] = {}
        self.seen: dict[str, list[Decimal]] = defaultdict(list)
        """Values in the order of arrival, since the last sequence 0."""
        self.notifications = 0
        self.lost = asyncio.Event()
        self._moved = asyncio.Event()
        self._socket: ClientConnection | None = None
        self._task: asyncio.Task[None] | None = None

    async def subscribe(self, url: str) -> None:
        self._socket = await connect(url, max_size=None)
        self.lost.clear()
        await self._socket.send(json.dumps({"subscribe": {"sparql": VALUES, "alias": "values"}}))
        first = json.loads(await self._socket.recv())["notification"]
        assert first["sequence"] == 0
        self.state = dict(_values(first["addedResults"]))
        self.seen = defaultdict(list, {observation: [value] for observation, value in self.state.items()})
        self._task = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        assert self._socket is not None
        expected = 1
        try:
            async for text in self._socket:
                notification = json.loads(text)["notification"]
                assert notification["sequence"] == expected
                expected += 1
                self.notifications += 1
                self._moved.set()
                for observation, value in _values(notification["removedResults"]):
                    assert self.state.pop(observation) == value
                for observation, value in _values(notification["addedResults"]):
                    assert observation not in self.state
                    self.state[observation] = value
                    self.seen[observation].append(value)
        except ConnectionClosed:
            pass
        finally:
            self.lost.set()
            self._moved.set()

    async def until(self, state: dict[str, Decimal], seconds: float) -> None:
        """Wait for this state. Fails with the exception of the follower."""
        try:
            async with asyncio.timeout(seconds):
                while self.state != state:
                    assert self._task is not None
                    if self._task.done():
                        self._task.result()
                        pytest.fail("the subscriber lost its connection")
                    await self._moved.wait()
                    self._moved.clear()
        except TimeoutError:
            wrong = {key: (value, self.state.get(key)) for key, value in state.items() if self.state.get(key) != value}
            pytest.fail(f"after {self.notifications} notifications {len(wrong)} values are wrong: {wrong}"[:2000])

    async def until_notified(self, notifications: int, seconds: float) -> None:
        """Wait for this number of notifications, over all connections."""
        async with asyncio.timeout(seconds):
            while self.notifications < notifications:
                await self._moved.wait()
                self._moved.clear()

    async def close(self) -> None:
        if self._socket is not None:
            await self._socket.close()
        if self._task is not None:
            await self._task


def _values(results: dict) -> Iterator[tuple[str, Decimal]]:
    for binding in results["results"]["bindings"]:
        yield binding["observation"]["value"], Decimal(binding["value"]["value"])


class Publisher:
    """A sensor network that publishes at QoS 1 in a persistent session and waits for the broker's acknowledgements."""

    def __init__(self, port: int) -> None:
        self._client = mqtt.Client(
            mqtt.CallbackAPIVersion.VERSION2, client_id="sensors", clean_session=False, protocol=mqtt.MQTTv311
        )
        self._client.max_inflight_messages_set(100)
        self._client.max_queued_messages_set(0)
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()

    def publish(self, messages: Sequence[Message]) -> None:
        sent = [self._client.publish(topic, payload, qos=1) for topic, payload in messages]
        for message in sent:
            message.wait_for_publish(60)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[Mosquitto]:
    broker = Mosquitto(tmp_path / "mosquitto")
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture
def gateway(tmp_path: Path, mosquitto: Mosquitto) -> Iterator[GatewayProcess]:
    data_dir = tmp_path / "data"
    (data_dir / "mappings").mkdir(parents=True)
    (data_dir / "mappings" / "replay.toml").write_text(MAPPINGS)
    each_alone = {"EDGE__WS__MERGE_AFTER": "3600", "EDGE__WS__MAX_UNMERGED": "100000000"}  # also on a busy machine
    settings = {"EDGE__MQTT__BROKER": mosquitto.url, "EDGE__HOST__ENABLED": "false", **each_alone}
    process = GatewayProcess(data_dir, settings)
    yield process
    process.stop()


async def test_every_reading_reaches_the_subscriber_as_the_right_delta(
    mosquitto: Mosquitto, gateway: GatewayProcess
) -> None:
    messages = [*city_messages(), *parking_messages()]
    expected = in_order([values for _, values in messages])
    final = {observation: series[-1] for observation, series in expected.items()}
    subscriber = Subscriber()
    await subscriber.subscribe(gateway.start()["ws"])
    publisher = Publisher(mosquitto.port)
    try:
        await asyncio.to_thread(publisher.publish, [message for message, _ in messages])
        await subscriber.until(final, 120)
    finally:
        await subscriber.close()
        publisher.close()
    assert dict(subscriber.seen) == expected
    assert subscriber.notifications == sum(len(series) for series in expected.values())
    assert gateway.stop() == 0, gateway.log()


async def test_nothing_is_lost_or_doubled_when_the_gateway_is_killed(
    mosquitto: Mosquitto, gateway: GatewayProcess
) -> None:
    messages = [*parking_messages(limit=4_000), *city_messages()]
    expected = in_order([values for _, values in messages])
    final = {observation: series[-1] for observation, series in expected.items()}
    subscriber = Subscriber()
    await subscriber.subscribe(gateway.start()["ws"])
    publisher = Publisher(mosquitto.port)
    parts: list[Values] = []
    try:
        sending = asyncio.to_thread(publisher.publish, [message for message, _ in messages])
        publishing = asyncio.create_task(sending)
        for notifications in (500, 1_500, 3_000):
            await subscriber.until_notified(notifications, 60)
            await asyncio.to_thread(gateway.kill)
            await asyncio.wait_for(subscriber.lost.wait(), 10)
            parts.append(dict(subscriber.seen))
            await subscriber.close()
            await subscriber.subscribe((await asyncio.to_thread(gateway.start))["ws"])
        await publishing
        await subscriber.until(final, 120)
        parts.append(dict(subscriber.seen))
    finally:
        await subscriber.close()
        publisher.close()
    for observation, series in expected.items():
        _check_parts(observation, series, [part.get(observation, []) for part in parts])


def _check_parts(observation: str, series: list[Decimal], parts: list[list[Decimal]]) -> None:
    """Check that each part is a run of the series without gap or repetition, in order, and that the last part is its
    end.

    Between two parts the subscriber was disconnected: its next notification may be later than its last one.
    """
    position = 0
    for part in parts:
        if not part:
            continue
        while series[position : position + len(part)] != part:
            position += 1
            assert position + len(part) <= len(series), f"{observation}: {part[:5]}... is no run of what was sent"
        position += len(part) - 1
    assert series[-1] == [part for part in parts if part][-1][-1]
