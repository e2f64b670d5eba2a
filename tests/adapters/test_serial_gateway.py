"""A gateway process with serial ports: a DASH7 modem, noise, kill -9, commands, files that change."""

import os
import re
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from edge.adapters.serial_frames import encoded
from edge.mapping.pack import load_pack
from tests.adapters.dash7_modem import LOG, PING, REBOOTED, Modem
from tests.adapters.serial_device import Wire
from tests.support.processes import GatewayProcess
from tests.support.waiting import wait_for

DOCUMENTED = re.findall(
    r"```toml\n(.*?)```", (Path(__file__).parents[2] / "docs" / "serial.md").read_text("utf-8"), re.DOTALL
)
SETTINGS = {"EDGE__HOST__ENABLED": "false", "EDGE__SERIAL__RECONNECT": "0.1", "EDGE__MAPPINGS__RELOAD_INTERVAL": "0.1"}
VALUES = "SELECT ?o ?v { ?o <http://www.w3.org/ns/sosa/hasResult>/<http://qudt.org/1.1/schema/qudt#numericValue> ?v }"
LED = """
[[serial]]
name = "board"
device = "DEVICE"

[[mapping]]
topic = "serial/board"
path = "t"
observation = "urn:t"

[[actuator]]
name = "led"
query = "SELECT ?state { <urn:led> <urn:is> ?state }"
topic = "serial/board/led"
payload = "LED {state}"
"""


def example(name: str, device: Path) -> str:
    """Return the example of the documentation for the port of this name, with another device."""
    (text,) = (each for each in DOCUMENTED if f'[[serial]]\nname = "{name}"' in each)
    return re.sub(r'device = "[^"]*"', f'device = "{device}"', text)


class Serving(GatewayProcess):
    """A gateway with a mapping file."""

    def __init__(self, directory: Path, text: str, **settings: str) -> None:
        super().__init__(directory / "data", {**SETTINGS, **settings})
        self.file = self.data_dir / "mappings" / "ports.toml"
        self.file.parent.mkdir(parents=True)
        self.file.write_text(text)
        self.url = ""

    def start(self) -> dict[str, str]:
        endpoints = super().start()
        self.url = endpoints["http"]
        return endpoints

    def values(self) -> dict[str, str]:
        answer = httpx.get(f"{self.url}/sparql", params={"query": VALUES}).json()
        return {row["o"]["value"]: row["v"]["value"] for row in answer["results"]["bindings"]}

    def update(self, text: str) -> None:
        kind = {"Content-Type": "application/sparql-update"}
        httpx.post(f"{self.url}/sparql", content=text, headers=kind).raise_for_status()

    def health(self, key: str) -> object:
        return httpx.get(f"{self.url}/health").json().get(key)

    def connected(self, name: str) -> None:
        wait_for(lambda: (self.health("serial") or {}).get(name) == "connected", what=f"{name} is connected")


@contextmanager
def serving(directory: Path, text: str, **settings: str):
    gateway = Serving(directory, text, **settings)
    gateway.start()
    try:
        yield gateway
    finally:
        assert gateway.stop() == 0


def led(state: str) -> str:
    return f"DELETE WHERE {{ <urn:led> <urn:is> ?x }} ; INSERT DATA {{ <urn:led> <urn:is> '{state}' }}"


def test_a_dash7_gateway_behind_noise_unplugged_and_through_kill_9(tmp_path):
    modem = Modem()
    with Wire(tmp_path / "tty") as wire, serving(tmp_path, example("dash7", wire.path)) as gateway:
        gateway.connected("dash7")
        wire.send(modem.frame(b"\1\0\0", REBOOTED) + modem.frame(b"hello", LOG) + modem.frame(b"", PING))
        wire.send(os.urandom(5000) + modem.reading("0a1b2c3d4e5f6071", -25, 401))
        wire.send(modem.reading("0a1b2c3d4e5f6072", 213, 550, status_first=False, rx_level=91) + b"\xc0\x00\x01")

        def expected(one: str, other: str) -> dict[str, str]:
            first, second = "urn:sepa-edge:dash7-0a1b2c3d4e5f6071", "urn:sepa-edge:dash7-0a1b2c3d4e5f6072"
            return {
                f"{first}-temperature": one,
                f"{first}-humidity": "40.1",
                f"{first}-rx-level": "-70",
                f"{second}-temperature": other,
                f"{second}-humidity": "55",
                f"{second}-rx-level": "-91",
            }

        def read(wanted: dict[str, str]) -> None:
            wait_for(
                lambda: (
                    {k: str(float(v)) for k, v in gateway.values().items()}
                    == {k: str(float(v)) for k, v in wanted.items()}
                ),
                what="the readings",
            )

        read(expected("-2.5", "21.3"))
        assert httpx.get(f"{gateway.url}/api/unmapped").json() == []

        wire.unplug()
        wait_for(lambda: str((gateway.health("serial") or {})["dash7"]).startswith("disconnected: "))
        wire.plug()
        gateway.connected("dash7")
        wire.send(modem.reading("0a1b2c3d4e5f6071", 10, 401))
        read(expected("1", "21.3"))

        gateway.kill()
        gateway.start()
        read(expected("1", "21.3"))
        gateway.connected("dash7")
        wire.send(modem.reading("0a1b2c3d4e5f6072", 220, 550, rx_level=91))
        read(expected("1", "22"))


def test_a_lora_receiver_as_documented(tmp_path):
    text = example("lora", tmp_path / "tty")
    (port,) = load_pack(text, "lora").ports
    with Wire(tmp_path / "tty") as wire, serving(tmp_path, text) as gateway:
        gateway.connected("lora")
        packet = bytes.fromhex("0007 100e b0 01 41a9999a 02 01")
        wire.send(encoded(port, packet))
        wait_for(lambda: len(gateway.values()) == 4, what="four readings")
        name = "urn:sepa-edge:lora-7"
        assert gateway.values() == {
            f"{name}-battery": "3.6",
            f"{name}-rssi": "-80",
            f"{name}-temperature": "21.2",
            f"{name}-door": "true",
        }


@pytest.mark.parametrize("mqtt", ["true", "false"])
def test_commands_go_to_the_port_also_without_mqtt_and_again_when_it_comes_back(tmp_path, mqtt):
    with Wire(tmp_path / "tty") as wire:
        text = LED.replace("DEVICE", str(wire.path))
        with serving(tmp_path, text, EDGE__MQTT__ENABLED=mqtt) as gateway:
            gateway.connected("board")
            gateway.update(led("ON"))
            wire.expect(b"LED ON\n")
            gateway.update(led("OFF"))
            wire.expect(b"LED OFF\n")
            wire.unplug()
            gateway.update(led("DIM"))
            gateway.update(led("ON"))
            wire.plug()
            wire.expect(b"LED ON\n")
            gateway.update(led("1"))
            wire.expect(b"LED 1\n")  # the device received its state only once, though the update also waited
            gateway.kill()
            gateway.start()
            wire.expect(b"LED 1\n")
            wire.send(b'\n{"t": 3}\n')
            wait_for(lambda: gateway.values() == {"urn:t": "3"}, what="the reading")


def test_binary_commands_as_documented(tmp_path):
    with Wire(tmp_path / "tty") as wire, serving(tmp_path, example("relays", wire.path)) as gateway:
        gateway.connected("relays")
        gateway.update("PREFIX ex: <http://example.org/> INSERT DATA { ex:r ex:number 3 ; ex:level 512 }")
        frame = bytes.fromhex("A5 03 03 00 02")
        (port,) = load_pack(gateway.file.read_text(), "relays").ports
        wire.expect(frame + port.checksum.algorithm.of(frame).to_bytes(2, "little"))
        gateway.update("PREFIX ex: <http://example.org/> INSERT DATA { ex:q ex:number 4 ; ex:level 70000 }")
        wait_for(lambda: httpx.get(f"{gateway.url}/api/bad-values").json(), what="it is listed")
        assert "cannot be written as u16le" in httpx.get(f"{gateway.url}/api/bad-values").text


def test_ports_follow_the_mapping_files(tmp_path):
    verbose = {"PYTHONPROFILEIMPORTTIME": "1"}
    with Wire(tmp_path / "one") as one, Wire(tmp_path / "other") as other, serving(tmp_path, "", **verbose) as gateway:
        assert gateway.health("serial") is None
        assert "serialposix" not in gateway.log(), "who has no port does not load what serves them"
        gateway.file.write_text(LED.replace("DEVICE", str(one.path)))
        gateway.connected("board")
        assert "serialposix" in gateway.log()
        gateway.file.write_text(LED.replace("DEVICE", str(other.path)))
        wait_for(lambda: '"device": "' + str(other.path) in gateway.log(), what="the other is opened")
        other.send(b'\n{"t": 8}\n')
        wait_for(lambda: gateway.values() == {"urn:t": "8"}, what="the reading")
        (gateway.file.parent / "second.toml").write_text(LED.replace("DEVICE", str(one.path)))
        wait_for(lambda: gateway.health("mapping_faults"), what="a second port of that name is reported")
        assert "and is used instead" in str(gateway.health("mapping_faults"))
        (gateway.file.parent / "second.toml").unlink()
        gateway.file.unlink()
        wait_for(lambda: gateway.health("serial") is None, what="no port is left")
        assert gateway.health("mapping_faults") == []


def test_a_megabyte_of_noise_costs_no_reading(tmp_path):
    modem = Modem()
    with Wire(tmp_path / "tty") as wire, serving(tmp_path, example("dash7", wire.path)) as gateway:
        gateway.connected("dash7")
        for number in range(20):
            wire.send(os.urandom(50_000) + modem.reading("0a1b2c3d4e5f6071", number, 1))
        wait_for(lambda: "1.9" in gateway.values().values(), what="the last reading")
        text = httpx.get(f"{gateway.url}/metrics").text
        frames = float(re.search(r'edge_serial_frames\{port="dash7"\} (\S+)', text)[1])
        assert frames >= 20
        discarded = float(re.search(r'edge_serial_discarded_bytes\{port="dash7"\} (\S+)', text)[1])
        assert discarded >= 990_000
        bad = httpx.get(f"{gateway.url}/api/bad-values").json()
        assert {each["topic"] for each in bad} <= {"serial/dash7"}
        assert len(bad) <= 4
