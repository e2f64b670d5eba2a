"""`edge run`: start, stop, kill, refusals; and the files that it leaves."""

import contextlib
import json
import os
import shlex
import signal
import socket
import sqlite3
import subprocess
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest
from edge_command import DEADLINE, FREE_PORTS, launch_command
from support.processes import HANGING_ENGINE, HANGING_PARSER

from edge import last_run
from tests.support.processes import free_port
from tests.support.waiting import wait_for

OBSERVATIONS = (
    "SELECT ?observation ?value WHERE { ?observation <http://www.w3.org/ns/sosa/hasResult> ?result . "
    "?result <http://qudt.org/1.1/schema/qudt#numericValue> ?value }"
)


def answers(url):
    with urllib.request.urlopen(url, timeout=10) as response:
        return response.read()


def test_ready_gateway_answers_on_all_endpoints(edge, tmp_path):
    running = launch_command(edge, tmp_path / "data")
    assert set(running.endpoints) == {"http", "ws", "mqtt"}
    assert running.endpoints["ws"].endswith("/subscribe")
    health = json.loads(answers(running.endpoints["http"] + "/health"))
    assert health["status"] == "ready"
    assert health["mapping_faults"] == []
    for path in ("/", "/metrics", "/api/unmapped", "/api/bad-values"):
        assert answers(running.endpoints["http"] + path)
    assert json.loads(answers(running.endpoints["http"] + "/api/endpoints")) == running.endpoints


def test_a_terminal_user_sees_the_addresses_and_the_first_commands(edge, tmp_path):
    """The two printed commands work as they are: one subscribes, the other publishes a reading."""
    running = launch_command(edge, tmp_path / "data", EDGE__HOST__ENABLED="false")
    text = wait_for(
        lambda: "publish a reading" in running.output.read_text() and running.output.read_text(), "reported"
    )
    for url in running.endpoints.values():
        assert url in text
    subscribe, publish = (
        shlex.split(line) for line in text.splitlines() if line.startswith("  ") and " -m edge " in line
    )
    assert subscribe[:4] == [sys.executable, "-m", "edge", "subscribe"]
    assert publish[:4] == [sys.executable, "-m", "edge", "publish"]
    watching = edge.start(*subscribe[3:], "--json")
    assert json.loads(watching.stdout.readline())["sequence"] == 0
    assert edge(*publish[3:]).returncode == 0
    (binding,) = json.loads(watching.stdout.readline())["addedResults"]["results"]["bindings"]
    assert binding["value"]["value"] == "21.5"


def test_the_greeting_explains_how_to_get_a_token(edge, tmp_path):
    """All printed commands work when they are typed one after the other into a shell."""
    file = tmp_path / "edge settings.toml"
    ports = "https_port = 0\nwss_port = 0\nmqtts_port = 0\n"
    file.write_text(f'[security]\nenabled = true\naudience = "this house"\n{ports}')
    running = launch_command(edge, tmp_path / "data", "--config", file, EDGE__HOST__ENABLED="false")
    text = wait_for(
        lambda: "publish a reading" in running.output.read_text() and running.output.read_text(), "reported"
    )
    allow, token, subscribe, publish = (line.strip() for line in text.splitlines() if " -m edge " in line)
    assert token.startswith("export EDGE_TOKEN=")
    script = f"set -e\n{allow}\n{token}\n{publish}\n{subscribe} --count 1\n{publish}\n"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=60, env=edge.environ())
    assert done.returncode == 0, done.stderr
    assert "21.5" in done.stdout


def test_other_users_cannot_read_the_stored_data(edge, tmp_path):
    data_dir = tmp_path / "state" / "data"
    data_dir.parent.mkdir()
    for _ in range(2):
        running = launch_command(edge, data_dir, EDGE__HOST__ENABLED="false")
        assert {"edge.sqlite3", "endpoints.json", "lock"} <= {file.name for file in data_dir.iterdir()}
        assert [file for file in data_dir.iterdir() if file.stat().st_mode & 0o077] == []
        assert edge("query", "ASK {}", "--data-dir", data_dir).returncode == 0
        assert running.stop() == 0
        assert not data_dir.stat().st_mode & 0o077
        (data_dir / "edge.sqlite3").chmod(0o644)  # as created by a gateway without this protection


def test_commands_that_make_the_data_directory_make_it_private(edge, tmp_path):
    for name, command in (("a", ["clients", "list"]), ("b", ["cert", "init"])):
        assert edge(*command, "--data-dir", tmp_path / name).returncode == 0
        assert not (tmp_path / name).stat().st_mode & 0o077


def test_the_machine_itself_is_observed_without_any_settings(edge, tmp_path):
    running = launch_command(edge, tmp_path / "data")
    watching = edge.start("subscribe", "--json", "--data-dir", running.data_dir, OBSERVATIONS)
    values = []
    while not values:
        values += json.loads(watching.stdout.readline())["addedResults"]["results"]["bindings"]
    assert any("Memory" in value["observation"]["value"] for value in values)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly_with_clients_there(edge, tmp_path, number):
    running = launch_command(edge, tmp_path / "data")
    watching = edge.start("subscribe", "--json", "--data-dir", running.data_dir, OBSERVATIONS)
    assert watching.stdout.readline()
    insert = "INSERT DATA { <urn:a> <urn:b> 1 }"
    assert edge("update", insert, "--data-dir", running.data_dir).stdout == "1 added, 0 removed\n"
    assert running.stop(number) == 0, "it took longer than shutdown.timeout"
    assert not (running.data_dir / "endpoints.json").exists()
    assert watching.wait(DEADLINE) == 3
    assert "ended" in watching.stderr.read()
    again = launch_command(edge, running.data_dir)
    assert edge("query", "ASK { <urn:a> <urn:b> 1 }", "--data-dir", again.data_dir).stdout == "true\n"


@contextlib.contextmanager
def silent_client(running):
    """A WebSocket client that opens its connection and then does nothing."""
    host, port = running.endpoints["ws"].removeprefix("ws://").removesuffix("/subscribe").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as client:
        client.sendall(
            b"GET /subscribe HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        assert b"101" in client.recv(4096)
        yield


def test_a_dead_client_does_not_delay_the_stop(edge, tmp_path):
    running = launch_command(edge, tmp_path / "data")
    with silent_client(running):
        assert running.stop() == 0, "it took longer than shutdown.timeout"


def test_a_second_signal_ends_it_at_once(edge, tmp_path):
    running = launch_command(edge, tmp_path / "data", EDGE__SHUTDOWN__TIMEOUT="60")
    with silent_client(running):
        running.process.send_signal(signal.SIGTERM)
        wait_for(lambda: any(line["event"] == "gateway.stopping" for line in running.log()), "it is stopping")
        # A second signal that arrives with the first has the same effect.
        wait_for(lambda: running.process.send_signal(signal.SIGTERM) or running.process.poll() is not None, "its end")
    assert running.process.returncode == 128 + signal.SIGTERM


def launch_on_hanging_engine(edge, tmp_path, **environ):
    """Start a gateway whose updates wait as long as the file `hanging` exists."""
    hook = {"PYTHONPATH": str(HANGING_ENGINE), "HANGING": str(tmp_path / "hanging")}
    return launch_command(edge, tmp_path / "data", EDGE__HOST__ENABLED="false", **hook, **environ)


@contextlib.contextmanager
def stuck_update(running, hanging):
    """Let the engine hang in an update, with another one waiting behind it."""
    update, health = (running.endpoints["http"] + path for path in ("/update", "/health"))
    with ThreadPoolExecutor() as clients:
        hanging.touch()
        reported = [clients.submit(sent, update, f"INSERT DATA {{ <urn:a> <urn:b> {number} }}") for number in range(2)]
        wait_for(lambda: json.loads(answers(health))["pending_updates"] == 2, "both wait")
        yield reported
        hanging.unlink(missing_ok=True)


def sent(url, text):
    """Return the status and the error of an update."""
    request = urllib.request.Request(url, text.encode(), {"Content-Type": "application/sparql-update"})
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE) as response:
            return response.status, None
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())["error"]


def faults(running):
    return [line for line in running.log() if "traceback" in line]


def test_a_stuck_engine_does_not_delay_the_stop(edge, tmp_path):
    running = launch_on_hanging_engine(edge, tmp_path, EDGE__SHUTDOWN__TIMEOUT="3")
    with stuck_update(running, tmp_path / "hanging") as reported:
        code = running.stop()
        assert [answer.result(DEADLINE) for answer in reported] == [(503, "not_ready")] * 2
    assert code == 1
    assert running.log()[-1]["event"] == "gateway.stop_timeout"
    assert last_run.read(running.data_dir).run.reason == "stop_timeout"
    assert faults(running) == []


def test_a_late_answer_is_not_an_error(edge, tmp_path):
    running = launch_on_hanging_engine(edge, tmp_path)
    with stuck_update(running, tmp_path / "hanging") as reported:
        running.process.send_signal(signal.SIGTERM)
        assert [answer.result(DEADLINE) for answer in reported] == [(503, "not_ready")] * 2
        (tmp_path / "hanging").unlink()
        assert running.process.wait(DEADLINE) == 0
    assert running.log()[-1]["event"] == "gateway.stopped"
    assert last_run.read(running.data_dir).run.reason == "stopped"
    assert faults(running) == []


def test_a_running_parser_does_not_delay_the_exit(edge, tmp_path):
    """The thread that parses the text is busy until long after the shutdown."""
    hanging = tmp_path / "hanging"
    hook = {"PYTHONPATH": str(HANGING_PARSER), "HANGING": str(hanging), "PARSING": str(tmp_path / "parsing")}
    running = launch_command(edge, tmp_path / "data", EDGE__HOST__ENABLED="false", EDGE__SHUTDOWN__TIMEOUT="3", **hook)
    update = running.endpoints["http"] + "/update"
    assert sent(update, "INSERT DATA { <urn:a> <urn:b> 1 }")[0] == 200
    hanging.touch()
    large = f"INSERT DATA {{ {' '.join(f'<urn:s{number}> <urn:p> {number} .' for number in range(2_000))} }}"
    with ThreadPoolExecutor() as clients:
        reported = clients.submit(sent, update, large)
        wait_for((tmp_path / "parsing").exists, "it is being parsed")
        code = running.stop()
        assert reported.result(DEADLINE) == (503, "not_ready")
    assert hanging.exists(), "nothing has let the thread go"
    assert (code, running.log()[-1]["event"]) == (0, "gateway.stopped")
    again = launch_command(edge, running.data_dir)
    assert edge("query", "ASK { <urn:a> <urn:b> 1 }", "--data-dir", again.data_dir).stdout == "true\n"


def test_an_unread_log_does_not_delay_the_exit(edge, tmp_path):
    """Each thread that logs waits for the reader, even the thread that ends a slow shutdown."""
    data_dir = tmp_path / "data"
    environ = {**FREE_PORTS, "EDGE__HOST__ENABLED": "false", "EDGE__SHUTDOWN__TIMEOUT": "1"}
    process = edge.start("run", "--data-dir", data_dir, environ=environ)
    wait_for((data_dir / "endpoints.json").exists, "it is ready")
    wait_for(lambda: "gateway.ready" in process.stderr.readline(), "it has logged that it is ready")
    full = os.open(f"/proc/{process.pid}/fd/2", os.O_WRONLY | os.O_NONBLOCK)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(full, b"." * 4096)
    os.close(full)
    process.send_signal(signal.SIGTERM)
    assert process.wait(DEADLINE) == 1, "it ends although nobody reads the log"


def test_a_signal_while_it_starts_stops_it(edge, tmp_path):
    process = edge.start("run", "--data-dir", tmp_path / "data", environ=FREE_PORTS)
    wait_for((tmp_path / "data").exists, "it begins")
    process.send_signal(signal.SIGTERM)
    assert process.wait(DEADLINE) in (0, -signal.SIGTERM)
    assert not (tmp_path / "data" / "endpoints.json").exists()


def test_after_kill_9_acknowledged_data_is_served_by_the_next_start(edge, tmp_path):
    running = launch_command(edge, tmp_path / "data")
    edge("update", "INSERT DATA { <urn:a> <urn:b> 1 }", "--data-dir", running.data_dir)
    code = running.stop(signal.SIGKILL)
    assert code == -signal.SIGKILL
    stale = running.data_dir / "endpoints.json"
    assert stale.exists()
    asked = edge("query", "ASK {}", "--data-dir", running.data_dir)
    assert asked.returncode == 3
    assert "Is it running" in asked.stderr
    stale.unlink()
    again = launch_command(edge, running.data_dir)
    assert edge("query", "ASK { <urn:a> <urn:b> 1 }", "--data-dir", again.data_dir).stdout == "true\n"


@pytest.mark.parametrize("section", ["http", "ws", "mqtt"])
def test_port_in_use_is_one_line_with_exit_code_1(edge, tmp_path, section):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        variable = f"EDGE__{section.upper()}__PORT"
        done = edge("run", "--data-dir", tmp_path / "data", environ={**FREE_PORTS, variable: str(port)})
    assert done.returncode == 1
    lines = [line for line in done.stderr.splitlines() if line.startswith("edge: ")]
    assert lines == [
        f"edge: {section}.port: 127.0.0.1:{port} is in use by another program; "
        f"stop that, or set another port ({variable}=0: any free one)"
    ]
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "data" / "endpoints.json").exists()


def test_data_directory_in_use_is_one_line_with_exit_code_1(edge, tmp_path):
    running = launch_command(edge, tmp_path / "data")
    done = edge("run", "--data-dir", running.data_dir, environ=FREE_PORTS)
    assert done.returncode == 1
    assert done.stderr.startswith(f"edge: The data directory {running.data_dir} is in use by another gateway (process ")
    assert len(done.stderr.splitlines()) == 1
    assert (running.data_dir / "endpoints.json").exists()
    assert running.process.poll() is None


def test_data_directory_that_is_a_file_is_one_line_with_exit_code_1(edge, tmp_path):
    (tmp_path / "data").write_text("")
    done = edge("run", environ={**FREE_PORTS, "EDGE__DATA_DIR": str(tmp_path / "data")})
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "cannot be used" in done.stderr


def test_damaged_data_is_refused_and_not_changed(edge, tmp_path):
    running = launch_command(edge, tmp_path / "data")
    running.stop()
    (file,) = running.data_dir.glob("*.sqlite3")
    damaged = b"SQLite format 3\0" + b"nonsense" * 4096
    file.write_bytes(damaged)
    with contextlib.closing(sqlite3.connect(file)) as connection, pytest.raises(sqlite3.DatabaseError):
        connection.execute("SELECT * FROM sqlite_master")
    done = edge("run", "--data-dir", running.data_dir, environ=FREE_PORTS)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert file.read_bytes() == damaged


def test_a_broker_that_is_down_is_waited_for(edge, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    running = launch_command(edge, tmp_path / "data", EDGE__MQTT__BROKER=f"mqtt://127.0.0.1:{port}")
    assert running.endpoints["mqtt"] == f"mqtt://127.0.0.1:{port}"
    wait_for(lambda: [line for line in running.log() if line["event"] == "mqtt.down"], "the log says so")
    assert json.loads(answers(running.endpoints["http"] + "/health"))["mqtt"] == "disconnected"
    assert running.stop() == 0


def test_without_mqtt_no_broker_is_started(edge, tmp_path):
    running = launch_command(edge, tmp_path / "data", EDGE__MQTT__ENABLED="false")
    assert set(running.endpoints) == {"http", "ws"}
    done = edge("publish", "a", "1", "--data-dir", running.data_dir)
    assert done.returncode == 3
    assert "offers no mqtt" in done.stderr


def test_log_lines_are_json_without_a_terminal(edge, tmp_path):
    running = launch_command(edge, tmp_path / "data")
    errors = running.output.with_suffix(".err")
    wait_for(lambda: "gateway.ready" in errors.read_text(), "it logs that it is ready")
    running.stop()
    events = running.log()
    assert [event["event"] for event in events if event["logger"].startswith(("edge.gateway", "edge.process"))] == [
        "gateway.ready",
        "gateway.stopping",
        "gateway.stopped",
    ]
    assert all(event["level"] == "info" for event in events), events


def test_a_closed_standard_output_does_not_stop_it(edge, tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    process = edge.start("run", "--data-dir", tmp_path / "data", environ=FREE_PORTS, stdout=writing)
    os.close(writing)
    wait_for((tmp_path / "data" / "endpoints.json").exists, "ready")
    process.send_signal(signal.SIGTERM)
    assert process.wait(DEADLINE) == 0


def test_a_second_gateway_is_refused_although_the_lock_file_was_removed(edge, tmp_path):
    running = launch_command(edge, tmp_path / "data", EDGE__HOST__ENABLED="false")
    (tmp_path / "data" / "lock").unlink()
    for _ in range(2):
        second = edge("run", "--data-dir", tmp_path / "data", environ=FREE_PORTS)
        assert second.returncode == 1
        assert f"in use by another gateway (process {running.process.pid})" in second.stderr
    doctor = edge("doctor", "--data-dir", tmp_path / "data")
    assert f"(process {running.process.pid})" in doctor.stdout
    assert edge("backup", tmp_path / "backup.tar.gz", "--data-dir", tmp_path / "data").returncode == 0
    restored = edge("restore", tmp_path / "backup.tar.gz", "--replace", "--data-dir", tmp_path / "data")
    assert restored.returncode == 1
    assert "in use" in restored.stderr
    assert edge("update", "--data-dir", tmp_path / "data", "INSERT DATA { <urn:s> <urn:p> 1 }").returncode == 0
    assert running.stop() == 0


def test_port_and_broker_of_the_command_line_take_precedence(edge, tmp_path):
    port = free_port()
    running = launch_command(
        edge,
        tmp_path / "data",
        *("--port", port, "--broker", "127.0.0.1:1"),
        EDGE__MQTT__BROKER="mqtt://127.0.0.1:2",
        EDGE__HOST__ENABLED="false",
    )
    assert running.endpoints["http"] == f"http://127.0.0.1:{port}"
    assert running.endpoints["mqtt"] == "mqtt://127.0.0.1:1"
    assert running.stop() == 0
