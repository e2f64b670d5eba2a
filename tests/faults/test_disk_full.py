"""The disk becomes full under a running gateway: another program fills it, or the gateway itself."""

from __future__ import annotations

import asyncio
import secrets
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from websockets.asyncio.client import connect

from tests.faults.monitored_gateway import Watched
from tests.faults.test_recorder_killed import stored
from tests.gates.gate_client import Client, rows
from tests.support.processes import GatewayProcess, free_port
from tests.support.waiting import eventually, wait_for

SET = "SELECT ?n { <urn:set> <urn:has> ?n }"
MAPPING = """
[[mapping]]
topic = "sensor/{number}"
observation = "http://example.org/{number}"
store = "all"
"""
SECURED = {"ENABLED": "true", "HTTPS_PORT": "0", "WSS_PORT": "0"}
VALUES = """PREFIX sosa: <http://www.w3.org/ns/sosa/> PREFIX qudt: <http://qudt.org/1.1/schema/qudt#>
SELECT ?v { ?o a sosa:Observation ; sosa:hasResult ?q . ?q qudt:numericValue ?v }"""


def put(value: object) -> str:
    return f"INSERT DATA {{ <urn:set> <urn:has> '{value}' }}"


def refused(answer: tuple[int, dict[str, Any]]) -> bool:
    status, body = answer
    return (status, body.get("error")) == (507, "storage_failed")


async def test_acknowledged_data_stays_and_the_gateway_recovers_from_a_full_disk(disk, gateway, mosquitto):
    broker = mosquitto()
    process = gateway(disk.data, EDGE__MQTT__BROKER=broker.url)
    (disk.data / "mappings").mkdir(parents=True)
    (disk.data / "mappings" / "sensors.toml").write_text(MAPPING)
    watched = await asyncio.to_thread(Watched, process)
    await asyncio.to_thread(wait_for, lambda: watched.metric("edge_mqtt_connected"))
    client = Client(await connect(watched.endpoints["ws"]))
    await client.subscribe(SET)
    watched.update(put("before"))
    assert rows((await client.notification())["addedResults"]) == [("before",)]
    status, scheduled = watched.ask("/update", update=put("due"), delay="PT4S", id="due")
    assert status == 202, scheduled

    disk.fill()
    answer = until_refused(watched)
    assert "disk" in answer["error_description"]
    assert refused(watched.ask("/update", update=put("later"), delay="PT1H", id="later"))
    status, reported = watched.ask("/health")
    assert status == 503
    assert "full" in reported["error_description"]
    assert "before" in watched.values(SET)
    sensor = publishing(broker.port, 20)
    with pytest.raises(TimeoutError):
        await client.receive(5)  # neither refused updates, nor due timers, nor readings
    assert watched.values(VALUES) == []

    disk.make_room()
    reported = await client.notification()
    assert rows(reported["addedResults"]) == [("due",)]
    assert reported["sequence"] == 1 + int(reported.get("merged", 1))
    await eventually(lambda: watched.values(VALUES) == ["20"], "the last reading")
    sensor.disconnect()
    sensor.loop_stop()
    watched.update(put("after"))
    assert rows((await client.notification())["addedResults"]) == [("after",)]
    assert watched.ask("/health")[0] == 200
    await client.socket.close()

    process.kill()
    again = await asyncio.to_thread(Watched, process)
    assert again.values(SET) == ["after", "before", "due"]
    assert again.values(VALUES) == ["20"]
    assert again.ask("/timers/due")[1]["timer"]["state"] == "done"
    assert again.ask("/timers/later")[0] == 404
    await asyncio.to_thread(process.stop)
    assert [value for _, value in stored(disk.data)] == [str(value) for value in range(1, 21)]


def until_refused(watched: Watched) -> dict[str, Any]:
    """Return the reason of the refusal, as soon as the journal has used up its preallocated space.

    Smaller requests follow large ones, because a small one fits into a rest that is too small for a large one.
    """
    answer: dict[str, Any] = {}
    for size, more in ((200, {}), (0, {}), (0, {"delay": "PT1H"})):
        in_turn = 0
        for number in range(20_000):
            update = f"INSERT DATA {{ <urn:other> <urn:has> '{noise(size)}{number}' }}"
            status, answer = watched.ask("/update", update=update, **more)
            assert status in (200, 202) or refused((status, answer)), answer
            in_turn = 0 if status in (200, 202) else in_turn + 1
            if in_turn == 20:
                break
        else:
            pytest.fail("the disk does not become full")
    return answer


def noise(length: int) -> str:
    """Return a text that does not compress."""
    return secrets.token_hex(length // 2)


def publishing(port: int, count: int) -> paho.Client:
    client = paho.Client(paho.CallbackAPIVersion.VERSION2)
    client.connect("127.0.0.1", port)
    client.loop_start()
    for value in range(1, count + 1):
        client.publish("sensor/1", str(value), 1).wait_for_publish(20)
    return client


def test_a_gateway_starts_on_a_full_disk_with_acknowledged_data(disk, gateway):
    process = gateway(disk.data, EDGE__MQTT__ENABLED="false", EDGE__HTTP__PORT=str(free_port()))
    watched = Watched(process)
    acknowledged = []
    while True:
        value = f"{len(acknowledged):04}{noise(50_000)}"
        answer = watched.ask("/update", update=put(value))
        if answer[0] != 200:
            break
        acknowledged.append(value)
    assert refused(answer)
    assert watched.values(SET) == acknowledged
    process.kill()
    for stop in (subprocess.Popen.kill, subprocess.Popen.terminate, subprocess.Popen.kill):
        disk.fill()
        running = started(process)
        try:
            wait_for(partial(answers, watched, running), what="the gateway")
            assert watched.values(SET) == acknowledged
        finally:
            stop(running)
            running.wait(30)


def test_a_secured_gateway_starts_on_a_disk_that_others_filled(disk, gateway):
    secured = {f"EDGE__SECURITY__{name}": value for name, value in SECURED.items()}
    process = gateway(disk.data, EDGE__MQTT__ENABLED="false", EDGE__HTTP__PORT=str(free_port()), **secured)
    watched = Watched(process)
    assert watched.ask("/query", query=SET)[0] == 401
    process.stop()
    for _ in range(2):
        disk.fill()
        running = started(process)
        try:
            wait_for(partial(answers, watched, running), what="the gateway")
            assert watched.ask("/query", query=SET)[0] == 401
        finally:
            running.terminate()
            running.wait(30)


def started(process: GatewayProcess) -> subprocess.Popen[bytes]:
    """Start the gateway again without space for `endpoints.json`; its ports are as before."""
    command = [sys.executable, "-m", "edge", "run", "--data-dir", str(process.data_dir)]
    with log_of(process.data_dir).open("wb") as log:
        return subprocess.Popen(command, env=process.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def log_of(data_dir: Path) -> Path:
    """Return the file for the log of a gateway, outside of the small disk."""
    return data_dir.parent.parent / "gateway.log"


def answers(watched: Watched, running: subprocess.Popen[bytes]) -> bool:
    """Return whether the gateway is healthy. Fails with its last reports if it has ended."""
    try:
        return watched.ask("/health")[0] == 200
    except OSError:
        log = log_of(watched.process.data_dir)
        assert running.poll() is None, log.read_text(encoding="utf-8")[-2000:]
        return False
