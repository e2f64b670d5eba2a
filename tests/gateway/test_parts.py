"""Parts of a gateway that stand still, and are restarted alone."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from websockets.asyncio.client import connect

from edge.config import Settings
from edge.gateway import Gateway


def settings(data_dir: Path, **sections: Any) -> Settings:
    anywhere = {"port": 0}
    return Settings.model_validate(
        {
            "data_dir": data_dir,
            "http": anywhere,
            "ws": anywhere,
            "mqtt": {"enabled": False},
            "host": {"enabled": False},
            "watchdog": {"interval": 0.1, "stall_after": 0.2},
            **sections,
        }
    )


def deafen(port: int) -> None:
    """Have what listens on a port hear nobody any more, without its knowing."""
    for entry in Path("/proc/self/fd").iterdir():
        try:
            with socket.socket(fileno=os.dup(int(entry.name))) as found:
                listens = found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                if listens and found.getsockname()[1] == port:
                    found.shutdown(socket.SHUT_RDWR)
        except OSError:
            continue  # no socket, or gone


async def eventually(found: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(20):
        while not await found():  # noqa: ASYNC110 - what it waits for is outside
            await asyncio.sleep(0.05)


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
        assert (await ask_health(gateway)).json()["parts"] == {"engine": "moves", "ws": "moves", "http": "moves"}


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc to find the gate's socket")
@pytest.mark.parametrize("service", ["ws", "http", "wss", "https"])
async def test_a_gate_that_hears_nobody_is_opened_again_where_it_was(tmp_path, service):
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
