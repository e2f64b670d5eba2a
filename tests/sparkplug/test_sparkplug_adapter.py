"""The adapter without a connection: documents are mapped with the births that they belong to."""

import json
import threading
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode

from edge.adapters.messages import MqttMessage
from edge.adapters.settings import ActuationSettings, MqttSettings
from edge.mapping.actuators import Command
from edge.mapping.mapper import Mapper
from edge.mapping.settings import MappingLimits
from edge.sparkplug.adapter import SparkplugAdapter
from edge.sparkplug.settings import SparkplugSettings
from tests.sparkplug import tahu
from tests.support.waiting import wait_for

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Engine:
    """Maps documents as they are read, with the mappings that are announced by then."""

    def __init__(self) -> None:
        self.mapper = Mapper([])
        self.values: list[tuple[str, str]] = []
        self.refused: list[str] = []
        self.given_up: list[tuple[Command, bool]] = []
        self.bad_values = SimpleNamespace(add=lambda _, __, reason, ___, ____: self.refused.append(reason))

    def announce(self, packs) -> None:
        self.mapper = Mapper(packs)

    def read(self, topic, payload, received, **_: object) -> list:
        found = self.mapper.map(topic, payload).readings
        self.values += [
            (each.value, (each.unit or "").rpartition("#")[2]) for each in found if "available" not in each.observation
        ]
        return []


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def adapter(engine, tmp_path) -> SparkplugAdapter:
    return SparkplugAdapter(
        SparkplugSettings(enabled=True, writable=["*"]),
        MqttSettings(),
        ActuationSettings(),
        engine,
        MappingLimits(),
        tmp_path / "sparkplug.json",
        announce=engine.announce,
        declare=lambda: None,
        up=lambda *_: None,
        written=lambda _: None,
        given_up=lambda *each: engine.given_up.append(each),
    )


def arrive(adapter: SparkplugAdapter, kind: str, seq: int, *metrics: tuple, device: str = "") -> None:
    payload = tahu.Payload(timestamp=1, seq=seq)
    for value, datatype, attributes in metrics:
        tahu.metric(payload, value, datatype, **attributes)
    topic = f"spBv1.0/g/{kind}/n" + (f"/{device}" if device else "")
    adapter._inbox.put(MqttMessage(topic, payload.SerializeToString(), 0, False, 0, NOW, 0, b""))


def test_waiting_documents_are_mapped_with_the_birth_before(adapter, engine):
    def temperature(value: float, unit: str, name: str = "t") -> tuple:
        return value, tahu.DOUBLE, {"name": name, "unit": unit}

    arrive(adapter, "NBIRTH", 0)
    arrive(adapter, "DBIRTH", 1, temperature(20.0, "°C"), device="a")
    arrive(adapter, "DDATA", 2, temperature(21.0, ""), device="a")
    # A new device and a changed one in one turn: the second one waited for the first one.
    arrive(adapter, "DBIRTH", 4, temperature(70.0, "°F"), device="a")
    arrive(adapter, "DBIRTH", 3, temperature(5.0, "m", "length"), device="b")
    arrive(adapter, "DDATA", 5, temperature(71.0, ""), device="a")
    adapter._turn()
    adapter._turn()
    units = ["DegreeCelsius", "DegreeCelsius", "Meter", "DegreeFahrenheit", "DegreeFahrenheit"]
    assert engine.values == list(zip(["20.0", "21.0", "5.0", "70.0", "71.0"], units, strict=True))
    assert adapter.queued == 0


def test_a_command_that_a_rebirth_makes_impossible_is_given_up(adapter, engine):
    sent: list[object] = []
    adapter._client = SimpleNamespace(publish=lambda *message, **_: sent.append(message))
    arrive(adapter, "NBIRTH", 0, (1, tahu.INT32, {"name": "a"}))
    adapter._turn()
    command = Command("x", "spBv1.0/g/NCMD/n/a", b"-5", 0, retain=False)
    assert adapter.put(command, 0.0) == ""
    arrive(adapter, "NBIRTH", 0, (True, tahu.BOOLEAN, {"name": "a"}))
    adapter._turn()
    assert engine.given_up == [(command, True)]
    assert (adapter.failed, adapter.sent, sent) == (1, 0, [])
    assert "is not true or false" in engine.refused[-1]


@pytest.mark.parametrize(
    "content", ["[" * 100_000, '{"births": [["g"]]}', '{"births": [["g","n","",[["a",Infinity,"",false]],[],[],0]]}']
)
def test_a_damaged_file_of_births_is_not_used(adapter, tmp_path, content):
    (tmp_path / "sparkplug.json").write_text(content)
    adapter._restore()
    assert adapter.host.nodes == 0


def test_a_refused_subscription_is_named_and_the_others_are_used(adapter, caplog):
    client = SimpleNamespace(subscribe=lambda _: None)
    adapter._up(client)
    granted = ReasonCode(PacketTypes.SUBACK, identifier=1)
    refused = ReasonCode(PacketTypes.SUBACK, identifier=135)
    adapter._confirmed(client, None, 1, [refused, *[granted] * 5], None)
    assert adapter.subscribed
    assert [each.filters for each in caplog.records] == ["spBv1.0/+/NBIRTH/+"]
    adapter.subscribed = False
    adapter._confirmed(client, None, 1, [refused] * 6, None)
    assert not adapter.subscribed


def fill(adapter: SparkplugAdapter, messages: int) -> None:
    """Let a birth of 40 metrics and many messages of them wait."""
    arrive(adapter, "NBIRTH", 0, *[(0.0, tahu.DOUBLE, {"name": f"m{number}"}) for number in range(40)])
    for seq in range(1, messages + 1):
        arrive(adapter, "NDATA", seq % 256, *[(float(seq), tahu.DOUBLE, {"name": f"m{each}"}) for each in range(40)])


def test_the_end_waits_for_received_messages(adapter, engine, caplog):
    fill(adapter, 250)
    adapter._writer.start()
    adapter.stop(20.0)
    assert [float(value) for value, _ in engine.values] == [number for number in range(251) for _ in range(40)]
    assert not caplog.records


def test_messages_that_remain_at_the_end_are_counted_and_births_are_stored(adapter, engine, tmp_path, caplog):
    fill(adapter, 50)
    goes_on = threading.Event()
    engine.read = lambda *_, **__: goes_on.wait(20) and []
    adapter._writer.start()
    wait_for(lambda: adapter.host.nodes)
    arrive(adapter, "NDATA", 51, (51.0, tahu.DOUBLE, {"name": "m0"}))
    try:
        adapter.stop(0.1)
        (warning,) = caplog.records
        assert warning.msg == "sparkplug.not_processed"
        assert warning.messages >= 1
        (node, *_) = json.loads((tmp_path / "sparkplug.json").read_text())["births"]
        assert len(node[3]) == 40
    finally:
        goes_on.set()
    wait_for(lambda: not adapter._writer.alive)
