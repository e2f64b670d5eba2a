"""The reference engine of SEPA. It has no MQTT, so a bridge turns readings into SPARQL updates over HTTP."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from edge.bench.peers.gateway_side import added_temperatures, subscription
from edge.bench.peers.receivers import WebSocketReceiver
from edge.bench.peers.side import Running, Setting, Side, process, wait_for_port

LEFT_OUT: Final = (
    "sepa: left out. It is not installed automatically: name the directory of its jar, engine.jpar and endpoint.jpar "
    "(--peer sepa=DIRECTORY)"
)


class Sepa(Side):
    """The engine in a directory with its jar, `engine.jpar` and `endpoint.jpar`."""

    name = "sepa"
    results = "WebSocket"
    notes = (
        "sepa: a bridge sends each reading as an update over HTTP, because the engine has no MQTT. The CPU time and "
        "memory of the bridge are not counted, its time counts as latency. Addresses are those of the engine's files.",
    )

    def __init__(self, path: Path) -> None:
        """Use the installation at `path`."""
        self._home = path

    @property
    def _jars(self) -> list[Path]:
        return sorted(self._home.glob("*.jar"))

    def missing(self) -> str:
        """Return the need for Java or for the files of the engine."""
        if shutil.which("java") is None:
            return "SEPA needs `java`. Install a Java runtime (Debian package default-jre-headless)"
        absent = [name for name in ("engine.jpar", "endpoint.jpar") if not (self._home / name).exists()]
        if absent or len(self._jars) != 1:
            return (
                f"{self._home} must contain exactly one jar, engine.jpar and endpoint.jpar: the files of a SEPA release"
            )
        return ""

    def install(self) -> None:
        """Do nothing."""

    @contextmanager
    def running(self, setting: Setting) -> Iterator[Running]:
        """Start the engine and the bridge, and subscribe."""
        for file in self._home.glob("*.jpar"):
            shutil.copyfile(file, setting.directory / file.name)
        (jar,) = self._jars
        http, update, ws, subscribe = _addresses(json.loads((self._home / "engine.jpar").read_text())["parameters"])
        module = ["-m", "edge.bench.peers.sepa_bridge", str(setting.broker), str(setting.qos)]
        bridge_directory = setting.directory / "bridge"
        bridge_directory.mkdir()
        with process(["java", "-jar", jar.resolve()], setting.directory, os.environ) as engine:
            wait_for_port(http, engine, setting.directory)
            wait_for_port(ws, engine, setting.directory)
            receiver = WebSocketReceiver(ws, subscribe)
            receiver.send(subscription())
            command = [sys.executable, *module, f"http://127.0.0.1:{http}{update}"]
            with process(command, bridge_directory, os.environ):
                try:
                    yield Running(engine.pid, receiver, jar.stem.rpartition("-")[2])
                finally:
                    receiver.close()

    def temperatures(self, message: bytes) -> list[int]:
        """Return the values of added rows of a notification."""
        return added_temperatures(message)


def _addresses(parameters: dict[str, Any]) -> tuple[int, str, int, str]:
    """Return the port and path of updates and of subscriptions. Newer engines have them in the member `gates`."""
    gates = parameters.get("gates", parameters)
    ports, paths = gates["ports"], gates["paths"]
    return ports["http"], paths["update"], ports["ws"], paths["subscribe"]
