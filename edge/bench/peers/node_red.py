"""Node-RED: a flow of an MQTT node, a switch and a WebSocket listener."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from edge.bench.peers.cache import installing, run_tool
from edge.bench.peers.peer_error import PeerError
from edge.bench.peers.readings import THRESHOLD, TOPIC
from edge.bench.peers.receivers import WebSocketReceiver
from edge.bench.peers.side import Running, Setting, Side, free_ports, process, wait_for_port

_VERSION: Final = "4.1.8"
"""The last series that supports Node.js 18 and 20."""
_PATH: Final = "/results"
_PATIENCE: Final = 30.0
"""Time limit for the flow after the server listens (s)."""


class NodeRed(Side):
    """Node-RED without its editor."""

    name = "node-red"
    results = "WebSocket"

    def __init__(self, cache: Path, path: Path | None) -> None:
        """Use the installation at `path` (with `node_modules/node-red`), or else the one in the cache."""
        self._given = path is not None
        self._home = path or cache / f"node-red-{_VERSION}"

    @property
    def _package(self) -> Path:
        return self._home / "node_modules" / "node-red"

    def missing(self) -> str:
        """Return the need for Node-RED's files, Node.js or npm."""
        installed = (self._package / "red.js").exists()
        if self._given and not installed:
            return f"{self._home} has no node_modules/node-red. Run `npm install node-red` there"
        needed = ["node"] if installed else ["node", "npm"]
        absent = [name for name in needed if shutil.which(name) is None]
        if not absent:
            return ""
        return (
            f"Node-RED needs {' and '.join(f'`{name}`' for name in absent)}. Install Node.js 18 or newer with npm "
            "(Debian packages nodejs and npm), or leave Node-RED out (--peer gateway --peer ekuiper)"
        )

    def install(self) -> None:
        """Install the npm package."""
        if (self._package / "red.js").exists():
            return
        with installing(self._home) as directory:
            quiet = ["--no-audit", "--no-fund", "--omit=dev", "--ignore-scripts"]
            run_tool(["npm", "install", "--prefix", directory, *quiet, f"node-red@{_VERSION}"])

    @contextmanager
    def running(self, setting: Setting) -> Iterator[Running]:
        """Start Node-RED with the flow."""
        (port,) = free_ports(1)
        (setting.directory / "flows.json").write_text(json.dumps(_flow(setting)))
        (setting.directory / "settings.js").write_text(_settings(port))
        version = json.loads((self._package / "package.json").read_text())["version"]
        command: list[str | Path] = ["node", self._package / "red.js", "--userDir", setting.directory, "flows.json"]
        with process(command, setting.directory, os.environ) as running:
            wait_for_port(port, running, setting.directory)
            receiver = _connected(port)
            try:
                yield Running(running.pid, receiver, version)
            finally:
                receiver.close()

    def temperatures(self, message: bytes) -> list[int]:
        """Return the temperature of the selected reading."""
        return [int(json.loads(message)["temperature"])]


def _connected(port: int) -> WebSocketReceiver:
    """Connect to the listener of the flow, which starts after the server."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            return WebSocketReceiver(port, _PATH)
        except (PeerError, OSError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def _settings(port: int) -> str:
    settings = {
        "flowFile": "flows.json",
        "uiHost": "127.0.0.1",
        "uiPort": port,
        "disableEditor": True,
        "credentialSecret": False,
        "telemetry": {"enabled": False, "updateNotification": False},
        "logging": {"console": {"level": "warn", "metrics": False, "audit": False}},
    }
    return f"module.exports = {json.dumps(settings)};\n"


def _flow(setting: Setting) -> list[dict[str, object]]:
    return [
        {"id": "flow", "type": "tab", "label": "peers"},
        {
            "id": "broker",
            "type": "mqtt-broker",
            "broker": "127.0.0.1",
            "port": str(setting.broker),
            "clientid": "peers-node-red",
            "autoConnect": True,
            "usetls": False,
            "protocolVersion": "4",
            "keepalive": "60",
            "cleansession": True,
        },
        {"id": "listener", "type": "websocket-listener", "path": _PATH, "wholemsg": "false"},
        {
            "id": "readings",
            "type": "mqtt in",
            "z": "flow",
            "topic": f"{TOPIC}/#",
            "qos": str(setting.qos),
            "datatype": "json",
            "broker": "broker",
            "inputs": 0,
            "wires": [["rule"]],
        },
        {
            "id": "rule",
            "type": "switch",
            "z": "flow",
            "property": "payload.temperature",
            "propertyType": "msg",
            "rules": [{"t": "gt", "v": str(THRESHOLD), "vt": "num"}],
            "checkall": "true",
            "repair": False,
            "outputs": 1,
            "wires": [["results"]],
        },
        {"id": "results", "type": "websocket out", "z": "flow", "server": "listener", "client": "", "wires": []},
    ]
