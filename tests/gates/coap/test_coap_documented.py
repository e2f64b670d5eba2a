"""The examples of docs/coap.md run unchanged with the program that they name."""

import asyncio
import contextlib
import json
import re
import shlex
from pathlib import Path

import cbor2
import httpx
import pytest
from test_coap_gateway import harness  # noqa: F401 - a fixture
from test_libcoap import PROGRAM

from tests.support.waiting import eventually

EXAMPLES = dict(
    re.findall(
        r"<!-- (\S+) -->\n```\w+\n(.*?)```",
        (Path(__file__).parents[3] / "docs" / "coap.md").read_text("utf-8"),
        re.DOTALL,
    )
)

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no coap-client here; install the package libcoap3-bin")


def commands(name, url):
    """Return the commands of an example, for the gateway at this address."""
    lines = EXAMPLES[name].replace("coap://127.0.0.1", url).splitlines()
    return [[PROGRAM, *shlex.split(line)[1:]] for line in lines]


async def run(command, directory):
    process = await asyncio.create_subprocess_exec(
        *command, cwd=directory, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(30):
        out, err = await process.communicate()
    assert err == b""
    return out.decode()


async def test_documented_query_and_update_commands(harness, tmp_path):  # noqa: F811
    outputs = [await run(command, tmp_path) for command in commands("ask", harness.endpoints["coap"])]
    updated, found, empty_output, scheduled, read, listed = outputs
    assert json.loads(updated) == {"added": 1, "removed": 0}
    assert json.loads(found)["results"]["bindings"][0]["o"]["value"] == "on"
    assert (empty_output, cbor2.loads((tmp_path / "result.cbor").read_bytes())) == ("", json.loads(found))
    assert json.loads(scheduled)["id"] == "lamp-off"
    assert json.loads(read) == {"readings": 1}
    assert "</reading>" in listed


async def test_documented_subscription_commands(harness, tmp_path):  # noqa: F811
    subscribe, follow, end = commands("follow", harness.endpoints["coap"])
    name = json.loads(await run(subscribe, tmp_path))["path"].removeprefix("/subscribe/")
    follow, end = ([part.replace("NAME", name) for part in command] for command in (follow, end))
    process = await asyncio.create_subprocess_exec(*follow, stdout=asyncio.subprocess.PIPE)

    async def received():
        async with asyncio.timeout(30):
            return json.loads(await process.stdout.readline())

    assert (await received())["sequence"] == 0
    for command in commands("ask", harness.endpoints["coap"])[:1]:
        await run(command, tmp_path)
    assert (await received())["addedResults"]["results"]["bindings"][0]["o"]["value"] == "on"
    await run(end, tmp_path)
    await eventually(
        lambda: harness.metrics.registry.get_sample_value("edge_subscriptions", {"gate": "coap"}) == 0, "its end"
    )
    with contextlib.suppress(ProcessLookupError):  # newer versions end by themselves if there is nothing to observe
        process.kill()
    await process.communicate()


async def test_documented_observation_of_reports(harness, tmp_path):  # noqa: F811
    query = "REGISTER QUERY warm AS SELECT ?o FROM STREAM <urn:edge:stream:rooms> [TRIPLES 1] { ?s ?p ?o }"
    async with httpx.AsyncClient(base_url=harness.endpoints["http"], timeout=20) as http:
        assert (await http.put("/streams/rooms")).status_code == 200
        assert (await http.put("/queries/warm", content=query)).status_code == 200
        (observe,) = commands("reports", harness.endpoints["coap"])
        process = await asyncio.create_subprocess_exec(*observe, stdout=asyncio.subprocess.PIPE)

        async def received():
            async with asyncio.timeout(30):
                return json.loads(await process.stdout.readline())

        first = await received()
        assert first.pop("of")  # differs for each registration
        assert first == {"query": "warm", "number": 0}
        await http.post("/streams/rooms", content="<urn:a> <urn:p> 1 .", headers={"Content-Type": "text/turtle"})
        report = await received()
        assert set(report) == {"query", "number", "time", "merged", "content_type", "content"}
        assert report["number"] == 1
    process.kill()
    await process.communicate()
