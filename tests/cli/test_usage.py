"""The `edge` command without a gateway: help, versions, completion, settings, and search paths."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from edge_command import DEADLINE, Edge

from edge import __version__, endpoints
from spark_offload.cli import edge_history
from tests.support.processes import free_port

COMMANDS = [
    [],
    ["run"],
    ["query"],
    ["update"],
    ["subscribe"],
    ["publish"],
    ["series"],
    ["streams"],
    ["streams", "list"],
    ["streams", "add"],
    ["queries"],
    ["queries", "list"],
    ["queries", "put"],
    ["queries", "follow"],
    ["new"],
    ["app"],
    ["app", "check"],
    ["app", "show"],
    ["config"],
    ["config", "check"],
    ["config", "show"],
    ["config", "schema"],
    ["mapping"],
    ["mapping", "check"],
    ["mapping", "test"],
    ["mapping", "schema"],
    ["modbus"],
    ["modbus", "read"],
    ["doctor"],
    ["diag"],
    ["diag", "collect"],
    ["backup"],
    ["restore"],
    ["rescue"],
    ["completion"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command) or "edge")
@pytest.mark.parametrize("option", ["-h", "--help"])
def test_every_command_has_help(edge, command, option):
    done = edge(*command, option)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: edge")
    assert len(done.stdout.splitlines()) > 4
    assert all(len(line) <= 100 for line in done.stdout.splitlines())


@pytest.mark.parametrize("command", ["query", "update", "subscribe", "publish", "run"])
def test_help_lists_the_exit_codes(edge, command):
    assert "Exit codes:" in edge(command, "--help").stdout


def test_every_command_is_documented():
    text = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    for command in COMMANDS:
        assert f"`edge {' '.join(command)}".rstrip() in text


@pytest.mark.parametrize(
    ("typed", "remedy"),
    [
        ("helth", "Did you mean `edge health`?"),
        ("qurey", "Did you mean `edge query`?"),
        ("backups", "Did you mean `edge backup`?"),
        ("frobnicate", "`edge --help` lists the commands."),
    ],
)
def test_an_unknown_command_is_answered_with_a_similar_one(edge, typed, remedy):
    done = edge(typed, "ASK {}")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"No such command '{typed}'. {remedy}" in done.stderr


def test_version_is_printed(edge):
    done = edge("--version")
    assert (done.returncode, done.stdout) == (0, f"edge {__version__}\n")


@pytest.mark.parametrize("arguments", [["--version"], ["query", "ASK {}"], ["timers", "list"]])
def test_a_command_imports_nothing_heavy(arguments, tmp_path):
    heavy = {"asyncio", "httpx", "paho", "pydantic", "pyoxigraph", "rdflib", "rich", "uvicorn", "websockets"}
    directory = tmp_path / "sepa-edge"
    directory.mkdir()
    endpoints.write(directory, {"http": f"http://127.0.0.1:{free_port()}"})
    script = f"""
import atexit, sys
atexit.register(lambda: print(sorted(set(sys.modules) & {heavy})))
sys.argv = ["edge", *{arguments}]
from edge.cli import main
main()
"""
    environ = {**Edge(tmp_path).environ(), "XDG_STATE_HOME": str(tmp_path)}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, env=environ, check=False)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_start_imports_only_what_its_settings_use(tmp_path):
    """Each of these takes milliseconds and memory: other gates and adapters, and messages about mistakes."""
    unused = {
        "aiocoap",
        "cbor2",
        "cryptography",
        "serial",
        "edge.jsap",
        "edge.security.security",
        "edge.sparkplug.host",
    }
    unused |= {"difflib", "edge.sparql.explanation", "edge.streams.language", "edge.gateway.streams", "httpx", "rdflib"}
    script = f"""
import asyncio, sys
import edge.process
from edge.config import Settings
from edge.gateway import Gateway
from edge.mapping import units
free = {{name: {{"port": 0}} for name in ("http", "ws", "mqtt")}}
async def main():
    async with Gateway(Settings.model_validate({{"data_dir": {str(tmp_path)!r}, **free}})):
        print(sorted(set(sys.modules) & {unused}), units._vocabulary.cache_info().currsize)
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("[] 0\n", "")


@pytest.mark.parametrize("arguments", [["nonsense"], ["query"], ["run", "--nonsense"], ["query", "-f", "pdf", "x"], []])
def test_invalid_command_line_is_exit_code_2(edge, arguments):
    done = edge(*arguments)
    assert done.returncode == 2
    assert "Usage:" in done.stderr + done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(edge, shell):
    done = edge("completion", shell)
    assert done.returncode == 0
    assert "_EDGE_COMPLETE" in done.stdout


def test_completion_completes(edge):
    words = edge(environ={"_EDGE_COMPLETE": "bash_complete", "COMP_WORDS": "edge su", "COMP_CWORD": "1"}).stdout
    assert words.split() == ["plain,subscribe"]
    environ = {"_EDGE_COMPLETE": "bash_complete", "COMP_WORDS": "edge query --form", "COMP_CWORD": "2"}
    assert "plain,--format" in edge(environ=environ).stdout


def test_config_check_and_run_report_the_same_errors_with_exit_code_2(edge, tmp_path):
    file = tmp_path / "edge.toml"
    file.write_text("[http]\nprot = 1\n")
    line = f'edge: {file}: http.prot: no such key; did you mean "http.port"?\n'
    for command in (["config", "check"], ["config", "show"], ["run"]):
        done = edge(*command, "--config", file, environ={"EDGE__LOG__LEVEL": "loud"})
        assert done.returncode == 2
        assert done.stdout == ""
        allowed = '"loud" is not allowed: must be one of "debug", "info", "warning", "error"'
        assert done.stderr == line + f"edge: EDGE__LOG__LEVEL: {allowed}\n"


def test_reachable_listen_address_is_refused_with_the_remedy(edge):
    done = edge("run", environ={"EDGE__HTTP__HOST": "0.0.0.0"})
    assert done.returncode == 2
    assert "EDGE__HTTP__HOST" in done.stderr
    assert "SSH tunnel" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_config_check_accepts_valid_settings(edge, tmp_path):
    file = tmp_path / "edge.toml"
    file.write_text("[http]\nport = 0\n")
    done = edge("config", "check", "-c", file)
    assert (done.returncode, done.stderr) == (0, "")
    assert "valid" in done.stdout


def test_config_show_is_a_settings_file(edge, tmp_path):
    shown = edge(
        "config", "show", "--data-dir", "/d", environ={"EDGE__MQTT__PASSWORD": "x", "EDGE__MQTT__USERNAME": "u"}
    )
    assert shown.returncode == 0
    assert 'data_dir = "/d"  # --data-dir' in shown.stdout
    assert 'username = "u"  # $EDGE__MQTT__USERNAME' in shown.stdout
    file = tmp_path / "edge.toml"
    file.write_text(shown.stdout)
    assert edge("config", "check", "--config", file).returncode == 0


def test_config_show_changed_is_a_settings_file_of_the_changes(edge, tmp_path):
    environ = {"EDGE__MQTT__PASSWORD": "x", "EDGE__MQTT__USERNAME": "u", "EDGE__HTTP__PORT": "8001"}
    shown = edge("config", "show", "--changed", "--data-dir", "/d", environ=environ)
    assert shown.returncode == 0
    lines = shown.stdout.splitlines()
    assert lines[:4] == ['data_dir = "/d"  # --data-dir', "", "[http]", "port = 8001  # $EDGE__HTTP__PORT"]
    assert 'username = "u"  # $EDGE__MQTT__USERNAME' in lines
    assert "x" not in [line.split(" = ")[-1] for line in lines]
    file = tmp_path / "edge.toml"
    file.write_text(shown.stdout)
    assert edge("config", "check", "--config", file).returncode == 0
    assert edge("config", "show", "--changed").stdout == "# all settings have their defaults\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--port", "65536"], "Invalid value for '--port'"),
        (["--port", "x"], "Invalid value for '--port'"),
        (["--broker", "ftp://h"], "--broker: "),
        (["--broker", ":1883"], "--broker: "),
        (["--broker", "h:99999"], "--broker: "),
    ],
)
def test_run_refuses_invalid_addresses_and_names_the_option(edge, arguments, words):
    done = edge("run", *arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert "EDGE__" not in done.stderr
    assert "Traceback" not in done.stderr


def test_help_names_the_recent_values_in_a_backup(edge):
    assert "recent values" in " ".join(edge("backup", "--help").stdout.split())


def test_invitations_and_tokens_are_distinguished(edge):
    invite, token = (" ".join(edge("clients", name, "--help").stdout.split()) for name in ("invite", "token"))
    assert "`edge clients token`" in invite
    assert "`edge clients invite`" in token


@pytest.mark.parametrize(
    ("typed", "remedy"),
    [
        ("ingst", "Did you mean `edge-history ingest`?"),
        ("frobnicate", "`edge-history --help` lists the commands."),
    ],
)
def test_an_unknown_command_of_the_history_is_answered_with_a_similar_one(typed, remedy):
    done = CliRunner().invoke(edge_history, [typed])
    assert done.exit_code == 2
    assert f"No such command '{typed}'. {remedy}" in done.output


def test_config_schema(edge):
    assert "http" in json.loads(edge("config", "schema").stdout)["properties"]


@pytest.mark.parametrize(
    "arguments", [["query", "ASK {}"], ["update", "CLEAR ALL"], ["subscribe", "ASK {}"], ["publish", "a", "1"]]
)
def test_a_missing_gateway_is_exit_code_3_with_the_remedy(edge, tmp_path, arguments):
    done = edge(*arguments, "--data-dir", tmp_path / "data")
    assert done.returncode == 3
    assert done.stderr == (
        f"edge: no gateway runs on {tmp_path / 'data'} (endpoints.json: No such file or directory); "
        f"start it with `edge run --data-dir {tmp_path / 'data'}`\n"
    )


@pytest.mark.parametrize(
    ("arguments", "url"),
    [
        (["query", "ASK {}", "--url"], "http://127.0.0.1:1"),
        (["update", "CLEAR ALL", "--url"], "http://127.0.0.1:1"),
        (["subscribe", "ASK {}", "--ws"], "ws://127.0.0.1:1/subscribe"),
        (["publish", "a", "1", "--mqtt"], "mqtt://127.0.0.1:1"),
    ],
)
def test_an_unreachable_address_is_exit_code_3(edge, arguments, url):
    done = edge(*arguments, url)
    assert done.returncode == 3
    assert re.match(r"edge: cannot reach the gateway at \S+: Connection refused. Is it running", done.stderr)
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["query", "ASK {}", "--url", "localhost:8000"], "such as http://"),
        (["query", "ASK {}", "--url", "ftp://localhost"], "such as http://"),
        (["subscribe", "ASK {}", "--ws", "http://127.0.0.1"], "such as ws://"),
        (["publish", "a", "1", "--mqtt", "127.0.0.1:1883"], "such as mqtt://"),
        (["publish", "a/#", "1", "--mqtt", "mqtt://127.0.0.1"], "without + and #"),
        (["query", "@/no/such/file"], "/no/such/file cannot be read: No such file or directory"),
    ],
)
def test_invalid_argument_is_exit_code_2(edge, arguments, message):
    done = edge(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_gateway_that_is_missing_is_reported_before_standard_input_is_read(shared_edge):
    commands = (["query"], ["update"], ["explain"], ["queries", "put", "q"], ["streams", "add", "s"])
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "edge", *words, "-", "--url", "http://127.0.0.1:1"],
            env=shared_edge.environ(),
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for words in commands
    ]
    try:
        assert [process.wait(DEADLINE) for process in started] == [3] * len(commands)
    finally:
        for process in started:
            process.kill()
            process.communicate()
