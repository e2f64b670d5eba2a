"""A gateway that is killed while it notifies an OSCORE device."""

import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from aiocoap import FETCH, GET, POST, Code
from click.testing import CliRunner
from oscore_device import ASK, Device

from edge.cli import edge
from edge.security.oscore import SharedContext
from tests.support.processes import GatewayProcess

ROUNDS = 3
CLEAR = "DELETE WHERE { <urn:a> ?p ?o } ;"
MINE = b"SELECT ?o { <urn:a> <urn:b> ?o }"
SETTINGS = {
    "EDGE__MQTT__ENABLED": "false",
    "EDGE__HOST__ENABLED": "false",
    "EDGE__COAP__ENABLED": "true",
    "EDGE__COAP__HOST": "0.0.0.0",
    "EDGE__COAP__PORT": "0",
    "EDGE__SECURITY__ENABLED": "true",
    "EDGE__SECURITY__HTTPS_PORT": "0",
    "EDGE__SECURITY__WSS_PORT": "0",
}


def clients(data_dir: Path, *command: str) -> str:
    result = CliRunner().invoke(edge, ["clients", *command, "--data-dir", str(data_dir)])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.timeout(180)
async def test_no_number_comes_twice_and_nothing_recorded_is_carried_out(tmp_path: Path):
    data_dir = tmp_path / "data"
    clients(data_dir, "allow", "device")
    made = json.loads(clients(data_dir, "oscore", "device", "--form", "aiocoap"))
    keys = SharedContext(
        "", bytes.fromhex(made["sender-id_hex"]), bytes.fromhex(made["secret_hex"]), bytes.fromhex(made["salt_hex"])
    )
    numbers, recorded, sent = [], [], 0
    gateway = GatewayProcess(data_dir, SETTINGS)
    try:
        for turn in range(ROUNDS):
            port = urlsplit(gateway.start()["coap"]).port
            device = Device(port, keys, sent)
            assert (await device.ask(FETCH, "/query", ASK)).code == Code.CONTENT
            for message in recorded:
                assert (await device.send_from_new_address(message)).payload == b"Replay detected"
            path = "/" + "/".join((await device.ask(POST, "/subscribe", MINE)).opt.location_path)
            follow, followed = device.seal(GET, path, observe=0)
            device.open(await device.exchange(follow), followed)
            for number in range(5):
                update, _ = device.seal(
                    POST, "/update", f"{CLEAR} INSERT DATA {{ <urn:a> <urn:b> {turn}{number} }}".encode()
                )
                recorded.append(update)
                await device.send_from_new_address(update)
                received = await device.line.receive()
                device.line.acknowledge(received)
                device.open(received, followed)
            gateway.kill()
            numbers += device.numbers
            sent = device.keys.sender_sequence_number
        assert len(numbers) >= ROUNDS * 6
        assert len(set(numbers)) == len(numbers)
    finally:
        gateway.stop()
