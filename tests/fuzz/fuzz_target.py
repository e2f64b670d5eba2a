"""A gateway process with all gates enabled, with checks of its log and metrics."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from tests.support.processes import GatewayProcess

SETTINGS = {
    "EDGE__HOST__ENABLED": "false",
    "EDGE__MQTT_GATE__ENABLED": "always",
    "EDGE__MQTT__RECONNECT_MIN": "0.1",
    "EDGE__MQTT__RECONNECT_MAX": "0.2",
    "EDGE__COAP__ENABLED": "true",
    "EDGE__COAP__PORT": "0",
    # Suspended subscriptions expire before a test ends.
    "EDGE__COAP__FOLLOW_WITHIN": "1",
    "EDGE__COAP__PING_INTERVAL": "1",
    # A random update may multiply the graph; it is refused before it takes long.
    "EDGE__ENGINE__MAX_STEPS": "20000",
    "EDGE__ENGINE__MAX_SOLUTIONS": "2000",
    "EDGE__ENGINE__QUERY_TIMEOUT": "5",
}


class Harness:
    """A running gateway."""

    def __init__(self, process: GatewayProcess) -> None:
        self._process = process
        self._checked = 0
        """Bytes of the log that are checked."""
        self.endpoints = process.start()
        self._http = httpx.Client(base_url=self.endpoints["http"], timeout=20, trust_env=False)

    def close(self) -> None:
        self._http.close()

    def authorize(self, token: str) -> None:
        """Read the metrics as this client, for a gateway with security."""
        self._http.headers["Authorization"] = f"Bearer {token}"

    def address(self, service: str) -> tuple[str, int]:
        """Return the address of a gate: "http", "ws", "mqtt" or "coap"."""
        found = urlsplit(self.endpoints[service])
        assert found.hostname is not None
        assert found.port is not None
        return found.hostname, found.port

    def metric(self, name: str) -> float:
        """Return a metric, with its labels in the format of Prometheus."""
        answer = self._http.get("/metrics")
        assert answer.status_code == 200
        for line in answer.text.splitlines():
            if line.startswith(f"{name} "):
                return float(line.removeprefix(f"{name} "))
        return 0.0

    def is_sound(self) -> None:
        """Check that the gateway has not failed so far: it logs each failure that it counts."""
        lines = self._process.new_log(self._checked)
        self._checked += len(lines)
        errors = [line for line in lines.decode(errors="replace").splitlines() if is_failure(line)]
        assert not errors, errors

    def has_counted_no_failure(self) -> None:
        assert self.metric("edge_internal_errors_total") == 0


def is_failure(line: str) -> bool:
    """Return whether a log line reports a fault of the gateway, such as an unhandled exception.

    amqtt, the library of the embedded broker, also logs an error if a client violates the protocol or disconnects.
    """
    if not line.startswith("{"):
        return "Traceback" in line or "Warning" in line
    return json.loads(line)["level"] == "error" and ("amqtt" not in line or "edge/adapters" in line)


@contextmanager
def running(data_dir: Path, **settings: str) -> Iterator[Harness]:
    """Run a gateway and check that it ends without errors. `settings` are environment variables."""
    process = GatewayProcess(data_dir, {**SETTINGS, **settings})
    try:
        harness = Harness(process)
        try:
            yield harness
            harness.has_counted_no_failure()
            harness.is_sound()
        finally:
            harness.close()
    finally:
        code = process.stop()
    assert code == 0
