"""Unmodified published clients in their secure modes: sepa-js (npm) and sepy (PyPI), over HTTPS and WSS."""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from edge.security.clients import Rights

CLIENTS = Path(__file__).parent.parent / "clients"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sepa-edge-tests"
LINES = "\n".join(
    ["INSERT DATA { <urn:t:lamp> <urn:t:is> 'on' }", *["SELECT ?v { <urn:t:lamp> <urn:t:is> ?v }"] * 2, ""]
)
ON = [{"v": {"type": "literal", "value": "on"}}]


async def seen(*command: str, env: dict[str, str] | None = None) -> dict[str, dict[str, object]]:
    """Return the reports of a client by event."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **(env or {})},
    )
    async with asyncio.timeout(60):
        out, err = await process.communicate(LINES.encode())
    events = {event["event"]: event for event in map(json.loads, out.decode().splitlines())}
    assert process.returncode == 0, (events, err.decode()[-2000:])
    return events


async def test_sepy_registers_with_an_enrolment_code_and_uses_all_services(harness):
    for module in ("sepy", "requests"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"no {module}")
    code = harness.clients.invite("sepy", Rights(), 60)
    where = harness.gateway.endpoints
    events = await seen(sys.executable, str(CLIENTS / "sepy_secure.py"), where["https"], where["wss"], code)
    assert events["updated"]["status"] == 200
    assert events["result"]["data"]["results"]["bindings"] == ON
    assert events["notification"]["added"] == ON
    assert events["subscribed"]["received"] is True


async def test_sepa_js_registers_and_uses_all_services(harness):
    lock = CLIENTS / "package-lock.json"
    place = CACHE / hashlib.sha256(lock.read_bytes()).hexdigest()[:16]
    if shutil.which("node") is None or not (place / "installed").exists():
        pytest.skip("no sepa-js: tests/gates/test_real_clients.py installs it")
    harness.clients.allow("sepa-js", Rights())
    ports = [harness.gateway.endpoints[name].split(":")[2].partition("/")[0] for name in ("https", "wss")]
    authority = str(harness.gateway.settings.tls_dir / "ca.pem")
    script = str(CLIENTS / "sepa_js_secure.js")
    env = {"NODE_PATH": str(place / "node_modules"), "NODE_EXTRA_CA_CERTS": authority}
    events = await seen("node", script, authority, *ports, "sepa-js", env=env)
    assert events["updated"]["status"] == 200
    assert events["result"]["data"]["results"]["bindings"] == ON
    assert events["added"]["data"]["results"]["bindings"] == ON
    assert "unsubscribed" in events
