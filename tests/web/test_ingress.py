"""The web application through the ingress of the Home Assistant add-on: below a path, from another origin."""

from __future__ import annotations

import asyncio
import importlib.util
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import uvicorn
import websockets
from house import LIVE

ADDON = Path(__file__).parents[2] / "images" / "home-assistant" / "sepa-edge"
PREFIX = "/api/hassio_ingress/a-session"
LOCAL = "127.0.0.1"


def load(name: str):
    """Load a module of the add-on, which is not a package."""
    specification = importlib.util.spec_from_file_location(f"addon_{name}", ADDON / f"{name}.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def below_prefix(app):
    """Remove the path of the session, as Home Assistant does."""

    async def forwarded(scope, receive, send):
        if scope["type"] in ("http", "websocket"):
            if not scope["path"].startswith(PREFIX):
                scope = {**scope, "path": "/outside-of-the-session", "raw_path": b"/outside-of-the-session"}
            else:
                raw = scope["raw_path"].removeprefix(PREFIX.encode())
                scope = {**scope, "path": scope["path"].removeprefix(PREFIX), "raw_path": raw}
        await app(scope, receive, send)

    return forwarded


@asynccontextmanager
async def serving(app) -> AsyncIterator[str]:
    """Serve an application. Yields its address, with another name than that of the gateway."""
    listening = socket.create_server((LOCAL, 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="on"))
    task = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        yield f"http://homeassistant.localhost:{listening.getsockname()[1]}{PREFIX}/"
    finally:
        server.should_exit = True
        await task
        listening.close()


@pytest.fixture
async def ingress(house) -> AsyncIterator[str]:
    ws = house.endpoints["ws"].removesuffix("/subscribe")
    app = load("ingress").application(house.url, ws, allowed=LOCAL)
    async with serving(below_prefix(app)) as url:
        yield url


async def test_values_are_live_below_the_path_of_a_session(ingress, house, browser):
    await browser.open(ingress)
    await browser.wait_for(LIVE)
    await browser.wait_for("document.body.textContent.includes('21.5')")
    house.publish([("zigbee2mqtt/kitchen_sensor", {"temperature": 22.25, "humidity": 44})])
    await browser.wait_for("document.body.textContent.includes('22.25')")
    assert await browser.violations() == []


async def test_updates_and_large_answers_pass(ingress, house):
    url = ingress.replace("homeassistant.localhost", LOCAL)
    headers = {"Origin": "http://homeassistant.local:8123", "Content-Type": "application/sparql-update"}
    text = "x" * 300_000
    async with httpx.AsyncClient(base_url=url, trust_env=False) as http:
        done = await http.post("update", content=f'INSERT DATA {{ <urn:large> <urn:b> "{text}" }}', headers=headers)
        assert done.status_code == 200
        query = {"query": "SELECT ?o { <urn:large> ?p ?o }"}
        assert text in (await http.get("query", params=query)).text
        assert (await http.get("nowhere")).status_code == 404
        policy = (await http.get("")).headers["content-security-policy"]
        assert "frame-ancestors 'self'" in policy
        assert (await http.get("api/endpoints")).json()["ws"] == "subscribe"


async def test_only_home_assistant_may_connect(house):
    ws = house.endpoints["ws"].removesuffix("/subscribe")
    async with serving(below_prefix(load("ingress").application(house.url, ws))) as url:
        url = url.replace("homeassistant.localhost", LOCAL)
        async with httpx.AsyncClient(base_url=url, trust_env=False) as http:
            assert (await http.get("health")).status_code == 403
        with pytest.raises(websockets.InvalidStatus):
            await websockets.connect(url.replace("http:", "ws:") + "subscribe", proxy=None)


@pytest.mark.parametrize("end", ["close", "abort"])
async def test_a_browser_that_leaves_causes_no_error(house, end):
    errors: list[Exception] = []
    ended = asyncio.Event()
    app = load("ingress").application(house.url, house.endpoints["ws"].removesuffix("/subscribe"), allowed=LOCAL)

    async def noting(scope, receive, send):
        try:
            await app(scope, receive, send)
        except Exception as error:  # noqa: BLE001
            errors.append(error)
        finally:
            if scope["type"] == "websocket":
                ended.set()

    async with serving(below_prefix(noting)) as url:
        url = url.replace("homeassistant.localhost", LOCAL).replace("http:", "ws:")
        connection = await websockets.connect(url + "subscribe", proxy=None)
        await connection.send("{}")
        assert "error" in await connection.recv()
        if end == "close":
            await connection.close()
        else:
            connection.transport.abort()
        async with asyncio.timeout(20):
            await ended.wait()
    assert errors == []


async def test_a_gateway_that_does_not_run_is_reported():
    app = load("ingress").application(f"http://{LOCAL}:1", f"ws://{LOCAL}:1", allowed=LOCAL)
    async with serving(below_prefix(app)) as url:
        url = url.replace("homeassistant.localhost", LOCAL)
        async with httpx.AsyncClient(base_url=url, trust_env=False) as http:
            assert (await http.get("health")).status_code == 502
        async with websockets.connect(url.replace("http:", "ws:") + "subscribe", proxy=None) as connection:
            with pytest.raises(websockets.ConnectionClosed):
                await connection.recv()
