"""eKuiper: a stream over MQTT, a rule in SQL, results published to the broker."""

from __future__ import annotations

import json
import os
import shutil
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.error import URLError

from edge.bench.peers.cache import installing, run_tool
from edge.bench.peers.peer_error import PeerError
from edge.bench.peers.readings import THRESHOLD, TOPIC
from edge.bench.peers.receivers import MqttReceiver
from edge.bench.peers.side import Running, Setting, Side, free_ports, process, wait_for_port

_MODULE: Final = "github.com/lf-edge/ekuiper/v2"
_VERSION: Final = "2.4.2"
_RESULTS: Final = "peers-results"


class Ekuiper(Side):
    """eKuiper with its default settings, except for addresses, ports and the quality of service.

    Results go over MQTT because the WebSocket sink has a buffer of its own that always discards.
    """

    results = "MQTT"
    notes = (
        "ekuiper: results pass Mosquitto a second time; this adds to the latency, not to the CPU time. The plain rule "
        "discards readings when a buffer is full; ekuiper-blocking has disableBufferFullDiscard.",
    )

    def __init__(self, cache: Path, path: Path | None, *, blocking: bool) -> None:
        """Use the installation at `path` (with `bin/kuiperd` and `etc`), or else the one in the cache."""
        self.name = "ekuiper-blocking" if blocking else "ekuiper"
        self._blocking = blocking
        self._given = path is not None
        self._home = path or cache / f"ekuiper-{_VERSION}"

    @property
    def _program(self) -> Path:
        return self._home / "bin" / "kuiperd"

    def missing(self) -> str:
        """Return the need for eKuiper's files, or for Go."""
        if self._program.exists():
            return ""
        if self._given:
            return f"{self._home} has no bin/kuiperd. Name the directory of an unpacked eKuiper release"
        if shutil.which("go") is None:
            return (
                "eKuiper is built with Go, and there is no `go`. Install Go 1.25 or newer, name an unpacked eKuiper "
                f"release (--peer {self.name}=DIRECTORY), or leave eKuiper out (--peer gateway --peer node-red)"
            )
        return ""

    def install(self) -> None:
        """Build kuiperd from the Go module, with the flags of its own release build."""
        if self._program.exists():
            return
        source = Path(json.loads(run_tool(["go", "mod", "download", "-json", f"{_MODULE}@v{_VERSION}"]))["Dir"])
        with installing(self._home) as directory:
            flags = f"-s -w -X {_MODULE}/cmd.Version={_VERSION} -X {_MODULE}/cmd.LoadFileType=relative"
            build: list[str | Path] = ["go", "build", "-C", source, "-trimpath", "-buildvcs=false", "-ldflags", flags]
            # The workspace file of the module names directories that the module does not contain.
            run_tool([*build, "-o", directory / "bin" / "kuiperd", "./cmd/kuiperd"], {"GOWORK": "off"})
            shutil.copytree(source / "etc", directory / "etc")

    @contextmanager
    def running(self, setting: Setting) -> Iterator[Running]:
        """Start kuiperd with a copy of its settings, and create the rule."""
        # The files of a Go module are read-only: copy their content only.
        shutil.copytree(self._home / "etc", setting.directory / "etc", copy_function=shutil.copyfile)
        for directory in (setting.directory / "etc", *(setting.directory / "etc").rglob("*/")):
            directory.chmod(0o755)
        for name in ("data", "log", "plugins/sources", "plugins/sinks", "plugins/functions", "plugins/portable"):
            (setting.directory / name).mkdir(parents=True)
        rest, cli, data = free_ports(3)
        environment = {**os.environ, "KuiperBaseKey": str(setting.directory), **_settings(setting, rest, cli, data)}
        with process([self._program], setting.directory, environment) as running:
            wait_for_port(rest, running, setting.directory)
            version = json.loads(_request(rest, "GET", ""))["version"]
            receiver = MqttReceiver(setting.broker, _RESULTS, setting.qos)
            try:
                self._create_rule(rest, setting)
                yield Running(running.pid, receiver, version)
            finally:
                receiver.close()

    def temperatures(self, message: bytes) -> list[int]:
        """Return the temperature of each selected reading: one object, or a list of them."""
        found = json.loads(message)
        return [int(row["temperature"]) for row in (found if isinstance(found, list) else [found])]

    def _create_rule(self, rest: int, setting: Setting) -> None:
        stream = f'CREATE STREAM readings () WITH (DATASOURCE="{TOPIC}/#", FORMAT="JSON", TYPE="mqtt")'
        _request(rest, "POST", "streams", {"sql": stream})
        sink = {
            "server": f"tcp://127.0.0.1:{setting.broker}",
            "topic": _RESULTS,
            "qos": setting.qos,
            "sendSingle": True,
        }
        rule = {
            "id": "warm",
            "sql": f"SELECT sensor, temperature FROM readings WHERE temperature > {THRESHOLD}",
            "actions": [{"mqtt": sink}],
            "options": {"disableBufferFullDiscard": True} if self._blocking else {},
        }
        _request(rest, "POST", "rules", rule)


def _settings(setting: Setting, rest: int, cli: int, data: int) -> dict[str, str]:
    """Return the environment variables that override eKuiper's settings files."""
    return {
        "KUIPER__BASIC__RESTIP": "127.0.0.1",
        "KUIPER__BASIC__RESTPORT": str(rest),
        "KUIPER__BASIC__IP": "127.0.0.1",
        "KUIPER__BASIC__PORT": str(cli),
        "KUIPER__BASIC__PPROF": "false",
        "KUIPER__SOURCE__HTTPSERVERIP": "127.0.0.1",
        "KUIPER__SOURCE__HTTPSERVERPORT": str(data),
        "MQTT_SOURCE__DEFAULT__SERVER": f"tcp://127.0.0.1:{setting.broker}",
        "MQTT_SOURCE__DEFAULT__QOS": str(setting.qos),
    }


def _request(port: int, method: str, path: str, body: object = None) -> bytes:
    """Send a request to the REST interface."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/{path}",
        None if body is None else json.dumps(body).encode(),
        {"Content-Type": "application/json"},
        method=method,
    )
    try:
        # No proxy of the environment may answer for loopback.
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30) as answer:
            return bytes(answer.read())
    except URLError as error:
        detail = error.read().decode(errors="replace") if hasattr(error, "read") else ""
        raise PeerError(f"eKuiper refuses {method} /{path}: {error} {detail}") from None
