"""Start the gateway and its ingress as a Home Assistant add-on.

Takes the options of the add-on from /data/options.json, and the broker from the Supervisor's MQTT service. Without that
service, the gateway starts its embedded broker. Both processes run as an unprivileged user. The add-on ends when one
of them ends, and the Supervisor reports it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

USER: Final = 65532
DATA: Final = Path("/data")
SECRET: Final = Path("/tmp/mqtt-password")
SUPERVISOR: Final = "http://supervisor"
HERE: Final = Path(__file__).parent


def broker(token: str | None, supervisor: str = SUPERVISOR) -> dict[str, Any]:
    """Return the Supervisor's MQTT service: host, port, ssl, username, password. Empty without that service."""
    if not token:
        return {}
    request = urllib.request.Request(f"{supervisor}/services/mqtt", headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            found = json.load(answer).get("data", {})
    except (OSError, ValueError, urllib.error.HTTPError):  # no broker is installed
        return {}
    return found if isinstance(found, dict) and found.get("host") else {}


def settings(options: Mapping[str, Any], service: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings of the gateway as environment variables."""
    found = {
        "EDGE__DATA_DIR": str(DATA / "gateway"),
        "EDGE__LOG__LEVEL": str(options.get("log_level", "info")),
        "EDGE__MQTT__TOPICS": json.dumps(options.get("topics") or ["#"]),
        "EDGE__DISCOVERY__HOME_ASSISTANT": json.dumps(bool(options.get("discovery"))),
    }
    if service:
        scheme = "mqtts" if service.get("ssl") else "mqtt"
        found["EDGE__MQTT__BROKER"] = f"{scheme}://{service['host']}:{service.get('port', 1883)}"
        found["EDGE__MQTT__USERNAME"] = str(service.get("username") or "")
        if service.get("password"):
            found["EDGE__MQTT__PASSWORD_FILE"] = str(SECRET)
    return found


def _write_password(password: str) -> None:
    SECRET.unlink(missing_ok=True)
    descriptor = os.open(SECRET, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(password + "\n")
    os.chown(SECRET, USER, USER)


def main() -> int:
    """Start both processes; return when one of them ends."""
    options = json.loads((DATA / "options.json").read_text())
    service = broker(os.environ.pop("SUPERVISOR_TOKEN", None))
    if service.get("password"):
        _write_password(str(service["password"]))
    (DATA / "gateway").mkdir(mode=0o700, exist_ok=True)
    os.chown(DATA / "gateway", USER, USER)
    environment = {"PATH": "/usr/bin", "LANG": "C.UTF-8", **settings(options, service)}
    groups = [20]  # dialout: serial ports
    commands = ["/usr/bin/edge", "run"], [sys.executable, "-I", str(HERE / "ingress.py")]
    running = [
        subprocess.Popen(command, env=environment, user=USER, group=USER, extra_groups=groups) for command in commands
    ]

    def stop(*_: object) -> None:
        for process in running:
            process.terminate()

    signal.signal(signal.SIGTERM, stop)
    ended, status = os.wait()
    stop()
    for process in running:
        if process.pid != ended:
            process.wait()
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main())
