"""The examples of docs/mqtt-gate.md run unchanged with the programs that they name."""

import json
import re
import shlex
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import ANY

import httpx
import pytest
from device import Device
from mqtt_harness import ROOT, MqttClient, port_of, running_gateway, subscriptions, wait_for_sessions

from edge.config import Settings
from tests.support.processes import Mosquitto
from tests.support.waiting import wait_for

TEXT = (Path(__file__).parents[3] / "docs" / "mqtt-gate.md").read_text("utf-8")
EXAMPLES = dict(re.findall(r"<!-- (\S+) -->\n```\w+\n(.*?)```", TEXT, re.DOTALL))


def commands(name: str, port: int) -> list[list[str]]:
    """Return the commands of an example, for the broker at this port."""
    found = [shlex.split(line) for line in EXAMPLES[name].splitlines()]
    if shutil.which(found[0][0]) is None:
        pytest.skip(f"needs {found[0][0]} (Debian package mosquitto-clients)")
    return [[program, "-h", "127.0.0.1", "-p", str(port), *arguments] for program, *arguments in found]


def run(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=20).stdout


@contextmanager
def listening(command: list[str]):
    """Start mosquitto_sub and wait for its subscription; with -d it prints that among other lines."""
    process = subprocess.Popen(["stdbuf", "-oL", *command, "-d"], stdout=subprocess.PIPE, text=True)
    try:
        while not process.stdout.readline().startswith("Subscribed"):
            assert process.poll() is None
        yield process
    finally:
        process.kill()
        process.wait(10)
        process.stdout.close()


def messages(process, count: int) -> list[str]:
    """Return the lines with messages, which contain JSON."""
    found = []
    while len(found) < count:
        line = process.stdout.readline()
        assert line
        if line.rstrip().endswith("}"):
            found.append(line.rstrip())
    return found


@pytest.fixture
def gateway(tmp_path):
    directory = tmp_path / "data" / "queries"
    directory.mkdir(parents=True)
    (directory / "lamps.rq").write_text(EXAMPLES["lamps.rq"])
    with running_gateway(tmp_path) as gateway:
        wait_for(lambda: gateway._mqtt.gate.connected, what="the gate")
        yield gateway


def test_documented_requests_are_answered(gateway):
    port = port_of(gateway)
    (listen,) = commands("listen", port)
    subscribe, update, query = commands("ask", port)
    with listening(listen) as process:
        run(subscribe)
        assert json.loads(messages(process, 1)[0])["notification"]["alias"] == "lamps"
        run(update)
        received = [json.loads(line) for line in messages(process, 2)]
        assert {"updated": {"alias": "write", "added": 1, "removed": 0}} in received
        assert any(each.get("notification", {}).get("sequence") == 1 for each in received)
        run(query)
        assert json.loads(messages(process, 1)[0])["result"]["boolean"] is True


def test_documented_requests_for_reports_are_answered(gateway):
    port = port_of(gateway)
    (listen,) = commands("listen", port)
    follow, unfollow = commands("reports", port)
    query = "REGISTER QUERY warm AS SELECT ?o FROM STREAM <urn:edge:stream:rooms> [TRIPLES 1] { ?s ?p ?o }"
    with httpx.Client(base_url=gateway.endpoints["http"], timeout=20) as http, listening(listen) as process:
        assert http.put("/streams/rooms").status_code == 200
        assert http.put("/queries/warm", content=query).status_code == 200
        run(follow)
        (following,) = map(json.loads, messages(process, 1))
        assert following == {"following": {"alias": "w", "query": "warm", "number": 0, "of": ANY}}
        http.post("/streams/rooms", content="<urn:a> <urn:p> 1 .", headers={"Content-Type": "text/turtle"})
        (report,) = map(json.loads, messages(process, 1))
        assert (report["report"]["alias"], report["report"]["number"]) == ("w", 1)
        run(unfollow)
        assert json.loads(messages(process, 1)[0]) == {"unfollowed": {"alias": "w", "query": "warm"}}


def test_documented_will_ends_the_session(gateway):
    hall, online, _ = commands("will", port_of(gateway))
    with listening(hall) as process:
        run(online)
        wait_for_sessions(gateway, 1)
        process.kill()
        wait_for_sessions(gateway, 0)
        assert subscriptions(gateway) == 0


def test_documented_farewell_ends_the_session(gateway):
    hall, online, offline = commands("will", port_of(gateway))
    with listening(hall):
        run(online)
        wait_for_sessions(gateway, 1)
        run(offline)
        wait_for_sessions(gateway, 0)


def test_documented_status_has_the_published_members(gateway):
    (command,) = commands("status", port_of(gateway))
    status = json.loads(run(command))
    (example,) = re.findall(r'^\{"status": "online".*\}$', TEXT, re.MULTILINE)
    assert status.keys() == json.loads(example).keys()
    assert status["health"].keys() >= json.loads(example)["health"].keys()


def test_following_a_continuous_query(gateway):
    (command,) = commands("follow", port_of(gateway))
    with listening(command) as process, MqttClient(port_of(gateway)) as client:
        client.update("INSERT DATA { <urn:lamp1> <urn:is> true }")
        delta = result = None
        while delta is None or result is None or result["sequence"] < delta["sequence"]:
            topic, content = messages(process, 1)[0].split(" ", 1)
            if topic == f"{ROOT}/query/lamps/delta":
                delta = json.loads(content)
            elif topic == f"{ROOT}/query/lamps":
                result = json.loads(content)
        assert delta["addedResults"]["results"] == result["results"]
        assert len(result["results"]["bindings"]) == 1


def test_documented_mqtt_5_example_runs(tmp_path, mosquitto):
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    names: dict = {}
    exec(compile(code, "docs/mqtt-gate.md", "exec"), names)
    with (
        running_gateway(tmp_path, mosquitto.url, mqtt={"version": "5"}),
        MqttClient(mosquitto.port, five=True) as client,
    ):
        names["ask"](client.client, "me", "ASK {}", 7)
        message = client.message()
        assert (message.topic, message.properties.CorrelationData) == (f"{ROOT}/response/me/answers", b"\0\0\0\7")


def test_every_setting_that_is_named_exists():
    known = {f"mqtt_gate.{name}" for name in type(Settings().mqtt_gate).model_fields}
    events = {"mqtt_gate.closed", "mqtt_gate.full", "mqtt_gate.ignored"}
    assert set(re.findall(r"mqtt_gate\.\w+", TEXT)) - events <= known


def test_documented_mosquitto_files_separate_the_clients(tmp_path):
    """Each client has its own topics of the gate, and the gateway has all."""
    folder = tmp_path / "etc"
    folder.mkdir()
    passwords = folder / "passwords"
    for name in ("gateway", "kitchen-sensor", "dashboard"):
        new = [] if passwords.exists() else ["-c"]
        subprocess.run(["mosquitto_passwd", *new, "-b", passwords, name, name], check=True, capture_output=True)
    (folder / "acl").write_text(EXAMPLES["acl"])
    for file in folder.iterdir():
        file.chmod(0o600)
    (tmp_path / "password").write_text("gateway")
    extra = EXAMPLES["mosquitto.conf"].replace("/etc/mosquitto", str(folder)).replace("allow_anonymous false\n", "")
    broker = Mosquitto(tmp_path / "mosquitto", extra, anonymous=False)
    broker.start()
    account = {"username": "gateway", "password_file": str(tmp_path / "password")}
    try:
        with (
            running_gateway(tmp_path, broker.url, mqtt=account),
            Device(broker.port, "kitchen-sensor", user="kitchen-sensor") as sensor,
            Device(broker.port, "dashboard", user="dashboard") as dashboard,
        ):
            for topic_filter in (f"{ROOT}/response/+", f"{ROOT}/status/+", "kitchen/#"):
                dashboard.subscribe(topic_filter)  # Mosquitto grants this to everybody, without further effect
            sensor.subscribe(f"{ROOT}/response/kitchen-sensor")
            with Device(broker.port, "dashboard", user="dashboard") as intruder:
                refused = intruder.client.publish(f"{ROOT}/request/kitchen-sensor", "[1]", 1)
                # Mosquitto 2.0.11 closes the connection then; later versions acknowledge.
                wait_for(lambda: intruder.gone.is_set() or refused.is_published())
            sensor.publish("kitchen/a", "1")
            sensor.publish(f"{ROOT}/status/kitchen-sensor", "online")
            sensor.publish(f"{ROOT}/request/kitchen-sensor", "[2]")
            assert "error" in sensor.hear()[1]
            dashboard.publish(f"{ROOT}/request/dashboard", "[3]")
            assert dashboard.hear()[0] == f"{ROOT}/response/dashboard"
            assert sensor.came.empty()
    finally:
        broker.stop()
