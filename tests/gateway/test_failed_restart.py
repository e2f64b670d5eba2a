"""A component whose restart fails leaves no socket open, and the next restart finds its port free."""

from __future__ import annotations

import asyncio
import errno
import gc
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from edge.config import Settings
from edge.gateway import Gateway
from edge.listener import Listener
from tests.support.processes import free_port

SERVICES = {"http": "http", "ws": "ws", "https": "https", "wss": "wss", "mqtt": "mqtt_broker", "mqtts": "mqtt_broker"}
"""Services, and the components that open their ports."""


def settings(data_dir: Path) -> Settings:
    secure = {"enabled": True} | {f"{name}_port": free_port() for name in ("https", "wss", "mqtts")}
    sections: dict[str, Any] = {name: {"port": free_port()} for name in ("http", "ws", "mqtt")} | {"security": secure}
    return Settings.model_validate(
        {
            "data_dir": data_dir,
            **sections,
            "serial": {"enabled": False},
            "modbus": {"enabled": False},
            "host": {"enabled": False},
        }
    )


def restart_of(gateway: Gateway, part: str) -> Callable[[], Awaitable[None]]:
    assert gateway._watchdog is not None
    restart = next(one for one in gateway._watchdog._parts if one.name == part).restart
    assert restart is not None
    return restart


def open_listeners() -> set[int]:
    """Return the listening ports among these, whichever process has them."""
    gc.collect()
    return {one.port for one in gc.get_objects() if isinstance(one, Listener) and one.fileno() >= 0}


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("how", ["refused", "cancelled"])
async def test_a_failed_restart_is_cleaned_up_and_the_next_one_succeeds(tmp_path, monkeypatch, service, how):
    async with Gateway(settings(tmp_path)) as gateway:
        port = int(gateway.endpoints[service].rpartition(":")[2].partition("/")[0])
        restart = restart_of(gateway, SERVICES[service])
        before = open_listeners()
        assert port in before
        listen = Listener.listen
        task: asyncio.Task[None]

        def fail(listener: Listener, backlog: int = 0) -> None:
            if listener.port != port:
                listen(listener, backlog)
            elif how == "refused":
                raise OSError(errno.ENOBUFS, "no buffer space available")
            else:
                listen(listener, backlog)
                task.cancel()

        with monkeypatch.context() as patch:
            patch.setattr(Listener, "listen", fail)
            task = asyncio.ensure_future(restart())
            with pytest.raises((OSError, asyncio.CancelledError)):
                await asyncio.wait_for(asyncio.shield(task), 20)
        assert port not in open_listeners()
        await restart()
        assert open_listeners() == before
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
    assert not open_listeners() & before
