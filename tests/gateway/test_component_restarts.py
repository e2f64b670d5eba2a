"""Components of a gateway that stop responding, and are restarted alone."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion
from pydantic import BaseModel
from websockets.asyncio.client import connect

from edge.config import Settings
from edge.gateway import Gateway
from edge.gateway.health import for_unauthenticated, without_texts
from tests.adapters.modbus_simulator import Simulator
from tests.adapters.serial_device import Wire
from tests.support.processes import free_port
from tests.support.waiting import eventually


def settings(data_dir: Path, **sections: Any) -> Settings:
    return Settings.model_validate(
        {
            "data_dir": data_dir,
            "http": {"port": free_port()},
            "ws": {"port": free_port()},
            "mqtt": {"enabled": False},
            "serial": {"enabled": False},
            "modbus": {"enabled": False},
            "host": {"enabled": False},
            "watchdog": {"interval": 0.4, "stall_after": 0.8},
            **sections,
        }
    )


def deafen(port: int) -> None:
    """Make a listening port stop accepting without an error."""
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # not a socket of the internet, or closed
            if not stat.S_ISSOCK(entry.stat().st_mode):
                continue
            with socket.socket(fileno=os.dup(int(entry.name))) as found:
                listens = found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                if listens and found.getsockname()[1] == port:
                    found.shutdown(socket.SHUT_RDWR)


async def ask_health(gateway: Gateway) -> httpx.Response:
    async with httpx.AsyncClient() as http:
        return await http.get(f"{gateway.endpoints['http']}/health")


async def is_well(gateway: Gateway) -> bool:
    try:
        answer = await ask_health(gateway)
    except httpx.TransportError:
        return False
    return answer.status_code == 200 and set(answer.json()["parts"].values()) == {"moves"}


def restarts(gateway: Gateway, part: str) -> float:
    return gateway.metrics.registry.get_sample_value("edge_part_restarts_total", {"part": part}) or 0.0


async def test_health_names_the_parts(tmp_path):
    async with Gateway(settings(tmp_path)) as gateway:
        assert (await ask_health(gateway)).json()["parts"] == dict.fromkeys(
            ("engine", "journal", "ws", "http", "automation"), "moves"
        )


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc to find the gate's socket")
@pytest.mark.parametrize("service", ["ws", "http", "wss", "https"])
async def test_a_deaf_gate_is_reopened_on_the_same_port(tmp_path, service):
    secured = {"enabled": True, "https_port": 0, "wss_port": 0} if service in ("wss", "https") else {}
    async with Gateway(settings(tmp_path, security=secured)) as gateway:
        address = urlsplit(gateway.endpoints[service])
        deafen(address.port or 0)

        async def mended() -> bool:
            return restarts(gateway, service) > 0 and await is_well(gateway)

        await eventually(mended)
        if service == "ws":
            async with connect(gateway.endpoints["ws"]) as socket_:
                await socket_.send('{"query": {"sparql": "ASK {}"}}')
                assert "boolean" in str(await socket_.recv())
        assert [part for part in ("ws", "http", "wss", "https") if restarts(gateway, part)] == [service]


SENML = '[{"n":"temperature","u":"Cel","v":%s}]'
VALUES = "SELECT ?v { ?r <http://qudt.org/1.1/schema/qudt#numericValue> ?v }"


async def publish(gateway: Gateway, value: float) -> None:
    """Publish like a device that repeats a message until it is acknowledged."""
    address = urlsplit(gateway.endpoints["mqtt"])
    async with asyncio.timeout(60):
        while True:
            client = Client(CallbackAPIVersion.VERSION2)
            try:
                await asyncio.to_thread(client.connect, str(address.hostname), address.port or 0)
            except OSError:
                await asyncio.sleep(0.05)
                continue
            client.loop_start()
            try:
                received = client.publish("senml/kitchen", SENML % value, qos=1)
                await asyncio.to_thread(received.wait_for_publish, 2)
                if received.is_published():
                    return
            finally:
                client.disconnect()
                client.loop_stop()


async def is_stored(gateway: Gateway, value: float) -> bool:
    async with httpx.AsyncClient() as http:
        answer = await http.get(f"{gateway.endpoints['http']}/query", params={"query": VALUES})
    return any(float(row["v"]["value"]) == value for row in answer.json()["results"]["bindings"])


async def end_adapter(gateway: Gateway) -> None:
    await asyncio.to_thread(gateway._mqtt.adapter._loop.stop, 5)


async def end_broker(gateway: Gateway) -> None:
    await gateway._mqtt.broker.stop()


async def end_port(gateway: Gateway) -> None:
    deafen(urlsplit(gateway.endpoints["mqtt"]).port or 0)


async def end_gate(gateway: Gateway) -> None:
    await asyncio.to_thread(gateway._mqtt.gate._wire._link.stop, 5)


async def end_host(gateway: Gateway) -> None:
    gateway._host._adapter._stopping.set()


@pytest.mark.parametrize(
    ("part", "end"),
    [
        ("mqtt", end_adapter),
        ("mqtt_broker", end_broker),
        ("mqtt_broker", end_port),
        ("mqtt_gate", end_gate),
        ("host", end_host),
    ],
)
async def test_an_ended_component_is_restarted_alone(tmp_path, part, end):
    sections = {"mqtt": {"port": free_port()}, "host": {"enabled": True, "interval": 1}}
    async with Gateway(settings(tmp_path, **sections)) as gateway:
        await publish(gateway, 1.5)
        await eventually(lambda: is_stored(gateway, 1.5))
        await end(gateway)

        async def mended() -> bool:
            return restarts(gateway, part) > 0 and await is_well(gateway)

        await eventually(mended)
        await publish(gateway, 2.5)
        await eventually(lambda: is_stored(gateway, 2.5))
        found = [name for name in ("mqtt", "mqtt_broker", "mqtt_gate", "host") if restarts(gateway, name)]
        assert part in found
        assert set(found) <= {part, "mqtt_gate"}  # the client has to reconnect, too, and these timeouts are short


def test_health_reports_ports_without_devices():
    received = {"serial": {"a": "connected", "b": "disconnected: /dev/ttyUSB0: No such file or directory"}}
    assert without_texts(received) == {"serial": {"connected": 1, "disconnected": 1}}
    assert for_unauthenticated(received) == {}
    assert without_texts({"modbus": received["serial"]}) == {"modbus": {"connected": 1, "disconnected": 1}}


@pytest.mark.parametrize("thread", ["writer", "ports"])
async def test_ended_serial_ports_are_restarted_alone(tmp_path, thread):
    with Wire(tmp_path / "tty") as wire:
        (tmp_path / "data" / "mappings").mkdir(parents=True)
        port = f'[[serial]]\nname = "a"\ndevice = "{wire.path}"\n'
        mapping = '[[mapping]]\ntopic = "serial/a"\nobservation = "urn:a"\n'
        (tmp_path / "data" / "mappings" / "a.toml").write_text(port + mapping)
        quick = {"enabled": True, "reconnect": 0.05}
        async with Gateway(settings(tmp_path / "data", serial=quick)) as gateway:
            adapter = gateway._serial._adapter
            if thread == "ports":
                adapter.ports[0]._stopping.set()
                adapter.ports[0]._wake_up.set()
            else:
                adapter._writer._queue.close()
                adapter._writer._wake_up.set()

            async def mended() -> bool:
                return restarts(gateway, "serial") > 0 and await is_well(gateway)

            await eventually(mended)
            assert gateway._serial._adapter is not adapter

            async def there() -> bool:
                return (await ask_health(gateway)).json()["serial"] == {"a": "connected"}

            await eventually(there)
            wire.send(b"\n2.5\n")
            await eventually(lambda: is_stored(gateway, 2.5))
            assert not restarts(gateway, "actuation")


async def test_an_ended_modbus_connection_is_restarted_alone(tmp_path):
    with Simulator(free_port()) as simulator:
        (tmp_path / "mappings").mkdir(parents=True)
        text = f'[[modbus]]\nname = "a"\nhost = "127.0.0.1"\nport = {simulator.port}\ninterval = 0.1\n'
        registers = 'registers = [{ name = "v", address = 1 }]\n'
        (tmp_path / "mappings" / "a.toml").write_text(text + registers)
        async with Gateway(settings(tmp_path, modbus={"enabled": True})) as gateway:
            adapter = gateway._modbus._adapter
            next(iter(adapter._buses.values())).stop(10)

            async def mended() -> bool:
                return restarts(gateway, "modbus") > 0 and await is_well(gateway)

            await eventually(mended)
            assert gateway._modbus._adapter is not adapter
            polls = gateway._modbus._adapter.devices[0].polls
            await eventually(lambda: gateway._modbus._adapter.devices[0].polls > polls)
            assert not restarts(gateway, "actuation")


def off() -> dict[str, dict[str, int]]:
    """Set every numeric setting that permits it to 0, which disables most of them."""
    found: dict[str, dict[str, int]] = {}
    for section, field in Settings.model_fields.items():
        table = field.annotation
        if not (isinstance(table, type) and issubclass(table, BaseModel)) or section in ("watchdog", "shutdown"):
            continue
        for name, setting in table.model_fields.items():
            if setting.annotation in (int, float) and any(getattr(each, "ge", None) == 0 for each in setting.metadata):
                found.setdefault(section, {})[name] = 0
    return found


async def test_a_timeout_of_0_disables_the_watchdog(tmp_path):
    """A disabled component makes no progress, and need not."""
    sections = off()
    assert sections["mappings"] == {"reload_interval": 0}
    for section in ("mqtt", "coap", "host", "serial", "modbus"):
        sections.setdefault(section, {})["enabled"] = True
    gateway = Gateway(settings(tmp_path, **{"http": {"port": 0}, "ws": {"port": 0}, **sections}))
    async with gateway:
        watchdog = gateway._watchdog
        for number in range(5):
            await watchdog.look(number * 1000.0)
            assert set(watchdog.states().values()) == {"moves"}
        assert (await ask_health(gateway)).status_code == 200
