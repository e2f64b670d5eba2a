"""Start the gateway and its ingress as a Home Assistant add-on.

Takes the options of the add-on from /data/options.json, and the broker from the Supervisor's MQTT service. Without that
service, the gateway starts its embedded broker. Both processes run as an unprivileged user. The add-on ends when one
of them ends, and the Supervisor reports it. Without an answer of the Supervisor it does not start: another broker would
get no readings.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

USER: Final = 65532
DATA: Final = Path("/data")
SECRET: Final = Path("/tmp/mqtt-password")
SUPERVISOR: Final = "http://supervisor"
HERE: Final = Path(__file__).parent
ATTEMPTS: Final = 12
PAUSE: Final = 5.0
"""Seconds between two requests to the Supervisor."""
_NO_SERVICE: Final = 400
"""Status of the Supervisor's answer if no add-on or integration provides the service."""


def broker(
    token: str | None, supervisor: str = SUPERVISOR, attempts: int = ATTEMPTS, pause: float = PAUSE
) -> dict[str, Any]:
    """Return the Supervisor's MQTT service: host, port, ssl, username, password. Empty without that service.

    Raises `SystemExit` if the Supervisor gives no answer after several attempts, `pause` seconds apart.
    """
    if not token:
        return {}
    problem = ""
    for attempt in range(attempts):
        if attempt:
            time.sleep(pause)
        try:
            return _service(token, supervisor)
        except (OSError, ValueError, AttributeError) as error:
            problem = str(error)
            _log(f"the Supervisor does not say which broker to use: {problem}")
    raise SystemExit(f"sepa-edge add-on: no broker is known ({problem}). Start the add-on again")


def _service(token: str, supervisor: str) -> dict[str, Any]:
    request = urllib.request.Request(f"{supervisor}/services/mqtt", headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            found = json.load(answer).get("data", {})
    except urllib.error.HTTPError as error:
        if error.code != _NO_SERVICE:
            raise
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


def _log(text: str) -> None:
    print(f"sepa-edge add-on: {text}", file=sys.stderr, flush=True)


def run(commands: Sequence[Sequence[str]], environment: Mapping[str, str], user: int | None = None) -> int:
    """Run both processes until one of them ends, and end the other. `user`: their user and group;
    None: those of this process.

    Returns the exit code of the first one that ends; after SIGTERM, that of the gateway, the first command.
    """
    running: list[subprocess.Popen[bytes]] = []
    groups: list[int] | None = None if user is None else []
    stopped = False

    def stop(*_: object) -> None:
        nonlocal stopped
        if stopped:  # a second signal would kill a process that is ending, and its exit code would be that of a kill
            return
        stopped = True
        for process in running:
            process.terminate()

    signal.signal(signal.SIGTERM, stop)
    for command in commands:
        running.append(subprocess.Popen(command, env=environment, user=user, group=user, extra_groups=groups))
        if stopped:
            running[-1].terminate()
    first = _first(running)
    asked = stopped
    stop()
    for process in running:
        process.wait()
    code = (running[0] if asked else first).returncode
    return code if code >= 0 else 128 - code


def _first(running: Sequence[subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    """Wait for the end of one of these processes. The first process of a container also inherits orphans of others."""
    while True:
        for process in running:
            if process.returncode is not None:  # `terminate` also notices an end
                return process
        ended, status = 0, 0
        with contextlib.suppress(ChildProcessError):
            ended, status = os.wait()
        for process in running:
            if process.pid == ended:
                process.returncode = os.waitstatus_to_exitcode(status)


def main() -> int:
    """Start both processes; return when one of them ends."""
    # Until there are processes to end. The kernel ignores the signal for a container's first process otherwise.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    options = json.loads((DATA / "options.json").read_text())
    service = broker(os.environ.pop("SUPERVISOR_TOKEN", None))
    if service:
        _log(f"the broker is {service['host']}:{service.get('port', 1883)}, the Supervisor's MQTT service")
    else:
        _log(
            "the Supervisor has no MQTT service, so the gateway starts its own broker, which only the add-on can reach"
        )
    if service.get("password"):
        _write_password(str(service["password"]))
    (DATA / "gateway").mkdir(mode=0o700, exist_ok=True)
    os.chown(DATA / "gateway", USER, USER)
    environment = {"PATH": "/usr/bin", "LANG": "C.UTF-8", **settings(options, service)}
    commands = ["/usr/bin/edge", "run"], [sys.executable, "-I", str(HERE / "ingress.py")]
    return run(commands, environment, USER)


if __name__ == "__main__":
    sys.exit(main())
