"""OSCORE with libcoap's `coap-client` from version 4.3.2 on; Debian 12 has an older one."""

import asyncio
import json
import shutil
import subprocess

import oscore_device
import pytest
from aiocoap import POST
from coap_client import ALL, values
from oscore_device import protected_gate

from edge.cli.oscore import as_libcoap
from edge.security.oscore import SharedContext


def _program():
    for name in ("coap-client", "coap-client-openssl", "coap-client-gnutls", "coap-client-notls"):
        found = shutil.which(name)
        if found and "oscore_conf_file" in subprocess.run([found, "-h"], capture_output=True, text=True).stderr:
            return found
    return None


PROGRAM = _program()

pytestmark = pytest.mark.skipif(
    PROGRAM is None, reason="no coap-client with OSCORE (option -E) here; libcoap3-bin has it from version 4.3.2 on"
)


@pytest.fixture
async def gate(engine, tmp_path):
    async with protected_gate(engine, tmp_path / "data", plain=False) as gate:
        yield gate


class Device:
    """The files of one device."""

    def __init__(self, gate, directory, keys):
        self.url = gate.url
        self.keys = keys
        self.settings, self.numbers = directory / "device.conf", directory / "device.seq"
        self.settings.write_text(as_libcoap(keys) + "\n")

    def command(self, path, method, *options):
        return [PROGRAM, "-E", f"{self.settings},{self.numbers}", "-m", method, *options, self.url + path]

    async def ask(self, path, method="get", *options, text=None):
        """Return the output: the answer, and errors."""
        process = await asyncio.create_subprocess_exec(
            *self.command(path, method, *options, *(["-f", "-"] if text is not None else [])),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        async with asyncio.timeout(30):
            return await process.communicate(text)


@pytest.fixture
def device(gate, tmp_path):
    return Device(gate, tmp_path, gate.keys())


async def test_update_query_and_a_reading(gate, device):
    out, _ = await device.ask("/update", "post", text=b'INSERT DATA { <urn:a> <urn:b> "x" }')
    assert json.loads(out) == {"added": 1, "removed": 0}
    for method in ("fetch", "post"):
        out, _ = await device.ask("/query", method, text=ALL)
        assert values(json.loads(out)) == ["x"]
    out, _ = await device.ask("/reading/cellar/temperature", "post", text=b"12.5")
    assert json.loads(out) == {"readings": 1}
    assert gate.came == [("cellar/temperature", b"12.5")]


async def test_blockwise_request_and_response(device):
    wanted = sorted(str(number) for number in range(300))
    text = "INSERT DATA { " + "".join(f'<urn:s{n}> <urn:p> "{n}" . ' for n in wanted) + "}"
    out, _ = await device.ask("/update", "post", text=text.encode())
    assert json.loads(out)["added"] == 300
    for size in ("64", "1024"):
        out, _ = await device.ask("/query", "fetch", "-b", size, text=ALL)
        assert values(json.loads(out)) == wanted


async def test_errors_are_shown(device):
    _, err = await device.ask("/query", "fetch", text=b"nonsense")
    assert err.startswith(b"4.00")
    assert b"parsing_failed" in err


async def test_wrong_keys_are_reported(gate, tmp_path):
    keys = gate.keys()
    device = Device(gate, tmp_path, SharedContext("", keys.kid, bytes(16), keys.salt))
    _, err = await device.ask("/reading/a", "post", text=b"1")
    assert b"Decryption failed" in err
    assert gate.came == []


async def test_a_subscription_is_followed(device, gate, tmp_path):
    (tmp_path / "other").mkdir()
    writer = Device(gate, tmp_path / "other", gate.keys("writer"))
    await writer.ask("/update", "post", text=b'INSERT DATA { <urn:s> <urn:p> "0" }')
    # The program does not print its sequence numbers. So it continues after the last number that another one used.
    beginner = oscore_device.Device(gate.port, device.keys)
    path = "/" + "/".join((await beginner.ask(POST, "/subscribe", ALL)).opt.location_path)
    device.numbers.write_text(f"{beginner.keys.sender_sequence_number}\n")
    process = await asyncio.create_subprocess_exec(
        *device.command(path, "get", "-w", "-s", "60"), stdout=asyncio.subprocess.PIPE, limit=1 << 20
    )

    async def notification():
        async with asyncio.timeout(30):
            return json.loads(await process.stdout.readline())

    first = await notification()
    assert (first["sequence"], values(first["addedResults"])) == (0, ["0"])
    for number in range(1, 4):
        await writer.ask("/update", "post", text=f'INSERT DATA {{ <urn:s> <urn:p> "{number}" }}'.encode())
        received = await notification()
        assert (received["sequence"], values(received["addedResults"])) == (number, [str(number)])
    process.kill()
    await process.communicate()
