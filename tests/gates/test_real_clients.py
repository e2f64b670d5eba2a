"""Unmodified published clients with the gates: sepa-js (npm) and sepy (PyPI)."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from edge.gates.settings import WsGateSettings
from edge.gates.ws import WsGate
from tests.support.node_packages import installed
from tests.support.waiting import eventually

CLIENTS = Path(__file__).parent.parent / "clients"
VALUE = "SELECT ?v { <urn:t:lamp> <urn:t:is> ?v }"


def switch(value: str) -> str:
    return (
        f"DELETE {{ <urn:t:lamp> <urn:t:is> ?v }} INSERT {{ <urn:t:lamp> <urn:t:is> '{value}' }} "
        "WHERE { OPTIONAL { <urn:t:lamp> <urn:t:is> ?v } }"
    )


class Driver:
    """A client in a separate process, controlled by lines of JSON."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.seen: list[dict[str, Any]] = []

    async def do(self, *command: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command).encode() + b"\n")
        await self.process.stdin.drain()

    async def see(self, **members: Any) -> dict[str, Any]:
        """Return the next report of the client with these members; `seen` keeps the earlier ones."""
        assert self.process.stdout is not None
        async with asyncio.timeout(30):
            while line := await self.process.stdout.readline():
                self.seen.append(json.loads(line))
                if members.items() <= self.seen[-1].items():
                    return self.seen[-1]
        raise AssertionError(f"the client ended without {members}: {self.seen}")

    async def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            async with asyncio.timeout(5):
                await self.process.wait()
        except TimeoutError:
            self.process.kill()
            await self.process.wait()


async def drive(*command: str, env: dict[str, str] | None = None) -> Driver:
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env={**os.environ, **(env or {})}
    )
    driver = Driver(process)
    await driver.see(event="up")
    return driver


@pytest.fixture(scope="session")
def node_modules() -> Path:
    """sepa-js with the versions of its lock file."""
    return installed(CLIENTS)


@pytest.fixture
async def sepa_js(gateway, node_modules):
    script = str(CLIENTS / "sepa_js.js")
    ports = str(gateway.http_port), str(gateway.ws_port)
    driver = await drive("node", script, "127.0.0.1", *ports, env={"NODE_PATH": str(node_modules)})
    yield driver
    await driver.end()


@pytest.fixture
async def sepy(gateway):
    if importlib.util.find_spec("sepy") is None:
        pytest.skip("no sepy: install the Python package sepy")
    if importlib.util.find_spec("requests") is None:
        pytest.skip("no requests: install the Python package requests, which sepy imports and does not ask for")
    driver = await drive(sys.executable, str(CLIENTS / "sepy_client.py"), gateway.http_url, gateway.ws_url)
    yield driver
    await driver.end()


def value_in(results: dict[str, Any]) -> list[str]:
    assert results["head"]["vars"] == ["v"]
    return [row["v"]["value"] for row in results["results"]["bindings"]]


async def test_sepa_js_updates_and_queries(sepa_js):
    await sepa_js.do("update", switch("on"))
    assert (await sepa_js.see(event="updated"))["data"] == {"status": 200, "statusText": "OK"}
    await sepa_js.do("query", VALUE)
    assert value_in((await sepa_js.see(event="result"))["data"]) == ["on"]
    await sepa_js.do("query", "ASK { <urn:t:lamp> ?p ?o }")
    assert (await sepa_js.see(event="result"))["data"]["boolean"] is True
    for command in ("query", "update"):
        await sepa_js.do(command, "SELECT {")
        failed = await sepa_js.see(event="failed")
        assert failed["status"] == 400
        assert failed["data"]["error"] == "parsing_failed"


async def test_sepa_js_subscribes_is_notified_and_unsubscribes(gateway, sepa_js):
    await gateway.update(switch("off"))
    await sepa_js.do("subscribe", VALUE, "lamp")
    subscribed = await sepa_js.see(event="subscribed", alias="lamp")
    assert subscribed["data"]["sequence"] == 0
    added = await sepa_js.see(event="added")
    assert value_in(added["data"]) == ["off"]
    assert value_in((await sepa_js.see(event="removed"))["data"]) == []  # reads removedResults.head.vars
    await sepa_js.do("update", switch("on"))
    assert value_in((await sepa_js.see(event="added"))["data"]) == ["on"]
    assert value_in((await sepa_js.see(event="removed"))["data"]) == ["off"]
    await sepa_js.do("unsubscribe", "lamp")
    unsubscribed = await sepa_js.see(event="unsubscribed", alias="lamp")
    assert unsubscribed["data"]["unsubscribed"]["spuid"] == subscribed["data"]["spuid"]
    await eventually(lambda: gateway.metric("edge_subscriptions", gate="ws") == 0, "unsubscription")


async def test_sepa_js_subscriptions_on_one_socket_find_their_errors_by_alias(gateway, sepa_js):
    await sepa_js.do("subscribe", VALUE, "good")
    await sepa_js.do("subscribe", "SELECT * {", "bad")
    await sepa_js.do("jsap", "SELECT ?v { t:lamp t:is ?v }", "jsap")
    error = await sepa_js.see(event="error")
    assert (error["alias"], error["data"]["error"], error["data"]["status_code"]) == ("bad", "parsing_failed", 400)
    await eventually(lambda: gateway.metric("edge_subscriptions", gate="ws") == 2, "two subscriptions")
    await gateway.update(switch("on"))
    seen = set()
    while seen != {"good", "jsap"}:
        notification = await sepa_js.see(event="notification")
        if notification["data"]["sequence"] == 1:
            assert value_in(notification["data"]["addedResults"]) == ["on"]
            seen.add(notification["alias"])


async def test_sepa_js_subscribes_again_after_a_drop(gateway, sepa_js):
    await sepa_js.do("subscribe", VALUE, "lamp")
    first = await sepa_js.see(event="subscribed")
    await gateway.ws_gate.stop()
    restarted = WsGate(gateway.engine, WsGateSettings(port=gateway.ws_port), gateway.metrics)
    await restarted.start()
    try:
        again = await sepa_js.see(event="subscribed", alias="lamp")
        assert again["data"]["sequence"] == 0
        assert again["data"]["spuid"] != first["data"]["spuid"]
    finally:
        await restarted.stop()


async def test_sepy_updates_and_queries(sepy):
    await sepy.do("update", switch("on"))
    assert json.loads((await sepy.see(event="updated"))["data"])["response"]["isJson"] is False
    await sepy.do("query", VALUE)
    assert value_in((await sepy.see(event="result"))["data"]) == ["on"]
    await sepy.do("query", "SELECT {")
    assert "400" in (await sepy.see(event="failed"))["data"]
    await sepy.do("update", "INSERT {")
    assert json.loads((await sepy.see(event="failed"))["data"])["error"] == "parsing_failed"


async def test_sepy_subscribes_is_notified_and_unsubscribes(gateway, sepy):
    await gateway.update(switch("off"))
    await sepy.do("subscribe", VALUE, "lamp")
    first = await sepy.see(event="notification", alias="lamp")
    assert ([row["v"]["value"] for row in first["added"]], first["removed"]) == (["off"], [])
    spuid = (await sepy.see(event="subscribed"))["spuid"]
    await gateway.update(switch("on"))
    change = await sepy.see(event="notification", alias="lamp")
    assert [row["v"]["value"] for row in change["added"]] == ["on"]
    assert [row["v"]["value"] for row in change["removed"]] == ["off"]
    await sepy.do("unsubscribe", spuid)
    await eventually(lambda: gateway.metric("edge_subscriptions", gate="ws") == 0, "unsubscription")
