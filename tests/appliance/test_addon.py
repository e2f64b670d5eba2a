"""The Home Assistant add-on: its fields, and the settings that it gives the gateway."""

from __future__ import annotations

import http.server
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from edge import __version__
from edge.config.loading import load
from edge.config.problem_messages import fields
from images import oci_layout, release

FOLDER = Path(__file__).parents[2] / "images" / "home-assistant"
ADDON = FOLDER / "sepa-edge"
CONFIG = yaml.safe_load((ADDON / "config.yaml").read_text())
ARCHITECTURES = {"amd64": "amd64", "arm64": "aarch64"}
"""The Supervisor's names by Debian's."""
OPTIONS = {"discovery": True, "topics": ["zigbee2mqtt/#", 'odd "topic"'], "log_level": "debug"}
SERVICE = {"host": "core-mosquitto", "port": 1883, "ssl": False, "username": "addons", "password": "a secret"}


@pytest.fixture(scope="module")
def start():
    specification = importlib.util.spec_from_file_location("addon_start", ADDON / "start.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_the_required_fields_are_there():
    assert {"name", "version", "slug", "description", "arch"} <= set(CONFIG)
    assert CONFIG["version"] == __version__
    assert re.fullmatch(r"[a-z0-9_]+", CONFIG["slug"])
    assert CONFIG["startup"] in {"initialize", "system", "services", "application", "once"}
    assert CONFIG["init"] is False, "the image has no init system of its own"


def test_it_is_for_the_architectures_of_the_images():
    wanted = {ARCHITECTURES[each] for each in release.ARCHITECTURES}
    images = yaml.safe_load((ADDON / "build.yaml").read_text())["build_from"]
    assert set(CONFIG["arch"]) == set(images) == wanted
    for architecture, name in ARCHITECTURES.items():
        assert images[name].endswith(f"/sepa-edge:{__version__}-{architecture}")
        # The Supervisor takes REGISTRY/OWNER/NAME:TAG only.
        assert re.fullmatch(r"[a-z0-9.:-]+/[a-z0-9_-]+/[a-z0-9_-]+:[a-z0-9._-]+", images[name])


def test_the_page_is_reached_by_ingress_alone_and_its_menu_entry_is_for_administrators():
    assert CONFIG["ingress"] is True
    assert f"PORT: Final = {CONFIG['ingress_port']}\n" in (ADDON / "ingress.py").read_text()
    assert CONFIG["panel_admin"] is True
    assert CONFIG["panel_icon"].startswith("mdi:")
    risky = {
        "ports",
        "host_network",
        "privileged",
        "full_access",
        "docker_api",
        "hassio_api",
        "homeassistant_api",
        "map",
        "uart",
        "devices",
    }
    assert set(CONFIG) & risky == set()


def test_the_broker_is_that_of_the_supervisor():
    assert CONFIG["services"] == ["mqtt:want"]


def test_options_have_a_schema_that_their_defaults_meet():
    assert set(CONFIG["options"]) == set(CONFIG["schema"])
    levels = re.fullmatch(r"list\((.*)\)", CONFIG["schema"]["log_level"])
    assert CONFIG["options"]["log_level"] in levels[1].split("|")
    allowed = fields()["log.level"].annotation.__args__
    assert set(levels[1].split("|")) == set(allowed)
    assert CONFIG["schema"]["discovery"] == "bool"
    assert CONFIG["options"]["discovery"] is False


def test_the_recipe_copies_existing_files_and_runs_no_shell():
    lines = (ADDON / "Dockerfile").read_text().splitlines()
    copied = [name for line in lines if line.startswith("COPY ") for name in line.split()[1:-1]]
    assert copied == ["start.py", "ingress.py"]
    assert all((ADDON / name).exists() for name in copied)
    assert [line for line in lines if line.startswith(("RUN ", "SHELL "))] == [], "the image has no shell"
    entry = next(json.loads(line.removeprefix("ENTRYPOINT ")) for line in lines if line.startswith("ENTRYPOINT "))
    assert entry == ["/usr/bin/python3", "-I", "/usr/lib/sepa-edge-addon/start.py"]


def test_options_and_broker_become_settings(start, monkeypatch, tmp_path):
    secret = tmp_path / "password"
    secret.write_text(SERVICE["password"])
    monkeypatch.setattr(start, "SECRET", secret)
    found = start.settings(OPTIONS, SERVICE)
    for name in found:
        key = name.removeprefix("EDGE__").lower().replace("__", ".")
        assert key in fields() or key == "data_dir", name
    settings = load(environ=found).settings
    assert settings.mqtt.broker == "mqtt://core-mosquitto:1883"
    assert settings.mqtt.username == "addons"
    assert list(settings.mqtt.topics) == OPTIONS["topics"]
    assert settings.discovery.home_assistant is True
    assert settings.log.level == "debug"
    assert str(settings.data_dir) == "/data/gateway"
    assert "a secret" not in json.dumps(found)


def test_without_a_broker_the_embedded_one_is_used(start):
    assert not [name for name in start.settings({}, {}) if name.startswith("EDGE__MQTT__B")]
    assert start.broker(None) == {}
    assert start.settings({}, {**SERVICE, "ssl": True})["EDGE__MQTT__BROKER"] == "mqtts://core-mosquitto:1883"


def test_the_user_is_that_of_the_image(start):
    assert start.USER == oci_layout.USER


@contextmanager
def supervisor(*answers: tuple[int, object]):
    """Answer each request with the next status and content; the last one repeats. Yields the address."""
    left = list(answers)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            status, content = left.pop(0) if len(left) > 1 else left[0]
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(content).encode())

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


NO_SERVICE = (400, {"result": "error", "message": "Service not enabled"})


def test_the_supervisor_is_asked_again_until_it_answers(start):
    found = (200, {"result": "ok", "data": SERVICE})
    with supervisor((502, {}), (200, []), found) as url:
        assert start.broker("token", url, 3, 0) == SERVICE
    with supervisor((503, {}), NO_SERVICE) as url:
        assert start.broker("token", url, 2, 0) == {}


def test_without_an_answer_of_the_supervisor_no_other_broker_is_used(start):
    with supervisor((403, {})) as url, pytest.raises(SystemExit, match="no broker is known"):
        start.broker("token", url, 2, 0)
    with pytest.raises(SystemExit, match="no broker is known"):
        start.broker("token", "http://127.0.0.1:1", 2, 0)


RUN = """
import ctypes, importlib.util, sys
ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: inherits orphans, as the first process of a container
specification = importlib.util.spec_from_file_location("start", sys.argv[1])
start = importlib.util.module_from_spec(specification)
specification.loader.exec_module(start)
sys.exit(start.run([[sys.executable, "-c", each] for each in sys.argv[2:]], {}))
"""
STOPS = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit({code}))
print("ready", flush=True)
signal.pause()
"""
"""A program that ends with an exit code after SIGTERM."""
ORPHAN = """
import os
reader, writer = os.pipe()
if os.fork() == 0:
    os._exit(0 if os.fork() else 9)
os.close(writer)
os.read(reader, 1)
exit(5)
"""
"""A program whose grandchild ends before it, with another exit code."""
GATEWAY, INGRESS = STOPS.format(code=0), STOPS.format(code=7)


def running(*programs: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", RUN, str(ADDON / "start.py"), *programs]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)


def test_a_stopped_addon_ends_with_the_code_of_the_gateway():
    with running(GATEWAY, INGRESS) as process:
        assert [process.stdout.readline() for _ in range(2)] == ["ready\n"] * 2
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(20) == 0


@pytest.mark.parametrize(
    ("programs", "code"),
    [
        (("exit(3)", INGRESS), 3),
        ((GATEWAY, "exit(4)"), 4),
        ((GATEWAY, "import os; os.kill(os.getpid(), 9)"), 137),
        ((ORPHAN, INGRESS), 5),
    ],
    ids=["gateway", "ingress", "killed", "orphan"],
)
def test_the_addon_ends_with_the_code_of_the_process_that_ends(programs, code):
    with running(*programs) as process:
        assert process.wait(20) == code
