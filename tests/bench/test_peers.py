"""`edge bench peers`: results are checked, a failing side does not hide the others, missing programs are named."""

import json
import os
import shutil
import sys
from itertools import islice
from pathlib import Path

import pytest
from click.testing import CliRunner

from edge.bench.gateway import BenchGateway
from edge.bench.peers import ekuiper, mqtt_packets
from edge.bench.peers.gateway_side import GatewaySide, added_temperatures, subscription
from edge.bench.peers.load import Publisher
from edge.bench.peers.measurement import Measured
from edge.bench.peers.node_red import NodeRed
from edge.bench.peers.readings import THRESHOLD, check, readings
from edge.bench.peers.receivers import MqttReceiver, WebSocketReceiver
from edge.bench.peers.report import FIGURES, Cell, LoadKind, PeersReport
from edge.bench.peers.sepa_bridge import update_of
from edge.bench.peers.side import process
from edge.bench.readings import mosquitto
from edge.cli import edge


def bench(*arguments):
    return CliRunner().invoke(edge, ["bench", "peers", *arguments], prog_name="edge", catch_exceptions=False)


@pytest.fixture
def broker(tmp_path):
    if shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin:/usr/bin") is None:
        pytest.skip("no mosquitto here; install the package mosquitto")
    with mosquitto(tmp_path) as port:
        yield port


def test_a_peer_that_fails_does_not_hide_the_others(broker, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "etc").mkdir()
    program = tmp_path / "bin" / "kuiperd"
    program.write_text("#!/bin/sh\necho broken >&2\nexit 3\n")
    program.chmod(0o755)
    done = bench("--peer", "gateway", "--peer", f"ekuiper={tmp_path}", "--small", "--json")
    assert done.exit_code == 1
    assert "ekuiper: QoS 1, every reading passes: it does not start:\nedge: broken" in done.stderr
    report = json.loads(done.stdout)
    assert set(report["sides"]) == {"gateway"}
    side = report["sides"]["gateway"]
    assert side["results"] == "WebSocket"
    assert set(side["loads"]) == {"qos1_1_in_1", "qos0_1_in_10"}
    for figures in side["loads"].values():
        assert set(figures) == {*FIGURES, "problems"}
        assert figures["burst_lost_percent"] == 0
        assert 0 < figures["p50_ms"] <= figures["p99_ms"]
        assert not [problem for problem in figures["problems"] if "best rate" not in problem]


@pytest.mark.parametrize("qos", [0, 1])
def test_the_load_arrives_at_a_subscriber_of_the_broker(broker, qos):
    receiver = MqttReceiver(broker, "peers/#", qos)
    publisher = Publisher(broker, qos)
    batch = list(islice(readings(10), 3_000))
    sent = publisher.publish(batch, 20_000, receiver)
    arrived = []

    def complete():
        arrived.extend(json.loads(payload)["temperature"] for _, payload in receiver.messages)
        receiver.messages.clear()
        return len(arrived) == len(batch)

    publisher.settle(receiver, complete)
    publisher.close()
    receiver.close()
    assert arrived == [reading.temperature for reading in batch] == list(sent.times)


def test_the_bridge_of_sepa_sends_updates_to_a_sparql_endpoint(broker, tmp_path):
    (tmp_path / "bridge").mkdir()
    batch = list(islice(readings(2), 20))
    with BenchGateway(tmp_path, EDGE__HOST__ENABLED="false") as gateway:
        ws = gateway.endpoints["ws"].removeprefix("ws://127.0.0.1:")
        receiver = WebSocketReceiver(int(ws.partition("/")[0]), "/" + ws.partition("/")[2])
        receiver.send(subscription())
        command = [sys.executable, "-m", "edge.bench.peers.sepa_bridge", str(broker), "1"]
        publisher = Publisher(broker, 1)
        with process([*command, f"{gateway.endpoints['http']}/sparql"], tmp_path / "bridge", os.environ):
            arrived = []

            def complete():
                arrived.extend(value for _, message in receiver.messages for value in added_temperatures(message))
                receiver.messages.clear()
                return bool(arrived)

            probe = next(readings(1))
            while not arrived:  # the bridge subscribes at its own time
                publisher.publish([probe], None, receiver)
                publisher.settle(receiver, complete)
            arrived.clear()
            publisher.publish(batch, None, receiver)
            expected = [reading.temperature for reading in batch[1:] if reading.passes]
            while len(arrived) < len(expected):
                receiver.read()
                complete()
        publisher.close()
        receiver.close()
    assert arrived == expected


def test_an_update_of_the_bridge_replaces_a_value():
    assert b"INSERT { <http://example.org/s1> sosa:hasResult" in update_of(b'{"sensor":"s1","temperature":31}')


@pytest.mark.parametrize("share", [1, 10])
def test_one_reading_in_a_share_passes(share):
    some = list(islice(readings(share), 20_000))
    passing = [reading.temperature for reading in some if reading.passes]
    assert len(passing) == len(some) / share
    assert passing == sorted(set(passing))
    assert all((json.loads(reading.payload)["temperature"] > THRESHOLD) == reading.passes for reading in some)
    if share > 1:  # each sensor has both kinds
        assert {reading.topic for reading in some if reading.passes} == {reading.topic for reading in some}


@pytest.mark.parametrize(
    ("received", "text"),
    [
        ([31, 33], "1 lost of 3"),
        ([31, 32, 32, 33], "1 repeated of 3"),
        ([31, 33, 32], "1 out of order of 3"),
        ([31, 32, 33, 34], "1 wrong of 3"),
        ([], "3 lost of 3"),
    ],
)
def test_a_wrong_result_is_found(received, text):
    verdict = check([31, 32, 33], received)
    assert not verdict.correct
    assert str(verdict) == text
    assert check([31, 32, 33], [31, 32, 33]).correct


def test_packets_are_split_wherever_a_read_ends():
    packets = [mqtt_packets.publish("a/b", b"x" * length, 1, 7) for length in (0, 200, 20_000)]
    stream, buffer, found = b"".join(packets), bytearray(), []
    for start in range(0, len(stream), 97):
        buffer += stream[start : start + 97]
        found += mqtt_packets.split(buffer)
    assert [mqtt_packets.message(*packet) for packet in found] == [
        (b"\x00\x07", b"x" * length) for length in (0, 200, 20_000)
    ]
    assert not buffer


def test_a_report_has_ratios_and_problems():
    ours, peer = GatewaySide(), NodeRed(Path("cache"), None)
    load = LoadKind(1, 10)
    report = PeersReport("peers", "sequential", sides=[ours, peer])
    report.cells = {
        Cell(ours, load): Measured("1", 4_000, 0, 500, 200, 2, 4, 80),
        Cell(peer, load): Measured("4", 2_000, 12.5, 1_000, 400, 1, 8, 160, ["at 200/s: 3 lost of 200"]),
    }
    text = report.to_text()
    assert "QoS 1, one reading in 10 passes" in text
    assert text.count("0.50") == 4  # both CPU times, p99, memory
    assert text.count("2.00") == 2  # best rate, p50
    assert "! node-red: at 200/s: 3 lost of 200" in text
    found = json.loads(report.to_json())["sides"]["node-red"]
    assert found["loads"][load.key]["burst_lost_percent"] == 12.5


def test_missing_programs_are_named_with_the_remedy(monkeypatch, tmp_path):
    monkeypatch.setattr(ekuiper.shutil, "which", lambda *_, **__: None)
    done = bench("--cache", str(tmp_path))
    assert done.exit_code == 1
    assert "Install Go" in done.stderr
    assert "Install Node.js" in done.stderr
    assert done.stdout == ""


def test_mosquitto_is_needed(monkeypatch):
    monkeypatch.setattr(ekuiper.shutil, "which", lambda *_, **__: None)
    done = bench("--peer", "gateway")
    assert done.exit_code == 1
    assert "needs Mosquitto" in done.stderr


@pytest.mark.parametrize(
    ("peer", "message"),
    [
        ("ekuiper=/nowhere", "has no bin/kuiperd"),
        ("node-red=/nowhere", "npm install node-red"),
        ("sepa", "--peer sepa=DIRECTORY"),
        ("sepa=/nowhere", "engine.jpar"),
        ("kafka", "there is no peer 'kafka'"),
    ],
)
def test_a_peer_that_is_not_there(peer, message):
    done = bench("--peer", peer)
    assert done.exit_code == 1
    assert message in done.stderr or (peer.startswith("sepa=") and "needs `java`" in done.stderr)
