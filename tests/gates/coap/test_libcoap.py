"""Interoperability with another implementation: libcoap's `coap-client`."""

import asyncio
import json
import shutil

import cbor2
import pytest
from coap_client import ALL, values

PROGRAM = shutil.which("coap-client-notls") or shutil.which("coap-client")

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no coap-client here; install the package libcoap3-bin")


async def coap(url, method="get", *options, text=None):
    """Return the output of `coap-client`."""
    arguments = ["-m", method, *options]
    process = await asyncio.create_subprocess_exec(
        PROGRAM, *arguments, *(["-f", "-"] if text is not None else []), url,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(30):
        out, err = await process.communicate(text)
    return out, err


async def test_update_and_query(gate):
    out, _ = await coap(f"{gate.url}/update", "post", text=b'INSERT DATA { <urn:a> <urn:b> "x" }')
    assert json.loads(out) == {"added": 1, "removed": 0}
    for method in ("fetch", "post"):
        out, _ = await coap(f"{gate.url}/query", method, text=ALL)
        assert values(json.loads(out)) == ["x"]
    out, _ = await coap(f"{gate.url}/query?query=SELECT%20%2A%20%7B%3Fs%20%3Fp%20%3Fo%7D")
    assert values(json.loads(out)) == ["x"]


async def test_query_and_response_in_cbor(gate):
    request = cbor2.dumps({"sparql": "ASK {}"})
    out, _ = await coap(f"{gate.url}/query", "fetch", "-t", "60", "-A", "60", text=request)
    assert cbor2.loads(out)["boolean"] is True


async def test_blockwise_request_and_response(gate):
    wanted = sorted(str(number) for number in range(300))
    text = "INSERT DATA { " + "".join(f'<urn:s{n}> <urn:p> "{n}" . ' for n in wanted) + "}"
    out, _ = await coap(f"{gate.url}/update", "post", text=text.encode())
    assert json.loads(out)["added"] == 300
    for size in ("64", "1024"):
        out, _ = await coap(f"{gate.url}/query", "fetch", "-b", size, text=ALL)
        assert values(json.loads(out)) == wanted


async def test_errors_are_shown(gate):
    _, err = await coap(f"{gate.url}/query", "fetch", text=b"nonsense")
    assert err.startswith(b"4.00")
    assert b"parsing_failed" in err
    _, err = await coap(f"{gate.url}/nothing")
    assert err.startswith(b"4.04")


async def test_resources_are_listed(gate):
    out, _ = await coap(f"{gate.url}/.well-known/core")
    assert b"</subscribe>" in out


async def test_a_subscription_is_followed(gate, client):
    """The first result is large, so that the first notification is block-wise."""
    await client.update("INSERT DATA { " + "".join(f'<urn:s{n}> <urn:p> "{n}" . ' for n in range(50)) + "}")
    path = await client.subscribe()
    process = await asyncio.create_subprocess_exec(
        PROGRAM, "-w", "-s", "60", f"{gate.url}{path}", stdout=asyncio.subprocess.PIPE, limit=1 << 20
    )

    async def notification():
        async with asyncio.timeout(30):
            return json.loads(await process.stdout.readline())

    first = await notification()
    assert (first["sequence"], len(values(first["addedResults"]))) == (0, 50)
    for number in range(3):
        await client.update(f"DELETE DATA {{ <urn:s{number}> <urn:p> '{number}' }}")
        received = await notification()
        assert (received["sequence"], values(received["removedResults"])) == (number + 1, [str(number)])
    process.kill()
    await process.communicate()


async def test_reading_is_accepted(gate):
    out, _ = await coap(f"{gate.url}/reading/cellar/temperature", "post", text=b"12.5")
    assert json.loads(out) == {"readings": 1}
    assert gate.came == [("cellar/temperature", b"12.5")]
