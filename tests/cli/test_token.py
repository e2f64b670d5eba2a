"""The token in the environment: the commands that send it, and the error if it is missing."""

from __future__ import annotations

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from click.testing import CliRunner
from edge_command import launch

from edge import endpoints
from edge.cli import edge as command

TOKEN = "abc.def.ghi"


def run(*arguments, **environ):
    return CliRunner().invoke(command, arguments, env={"EDGE_TOKEN": None, "EDGE_MQTT_PASSWORD": None, **environ})


@pytest.fixture
def elsewhere():
    """A server that redirects every request to another one, and the requests that the other receives."""
    received = []

    class Other(BaseHTTPRequestHandler):
        def do_GET(self):
            received.append(dict(self.headers))
            self.send_response(200)
            self.end_headers()

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_):
            pass

    class Sender(Other):
        def do_GET(self):
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(302)
            self.send_header("Location", f"http://127.0.0.1:{other.server_port}/query")
            self.end_headers()

        do_POST = do_GET  # noqa: N815

    with HTTPServer(("127.0.0.1", 0), Other) as other, HTTPServer(("127.0.0.1", 0), Sender) as sender:
        threads = [threading.Thread(target=server.serve_forever, args=(0.05,)) for server in (other, sender)]
        for thread in threads:
            thread.start()
        yield f"http://127.0.0.1:{sender.server_port}", received
        for server, thread in zip((other, sender), threads, strict=True):
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("name", ["query", "timers"])
def test_commands_do_not_follow_redirects(elsewhere, name):
    url, received = elsewhere
    arguments = {"query": ["query", "ASK {}"], "timers": ["timers"]}[name]
    done = run(*arguments, "--url", url, EDGE_TOKEN=TOKEN)
    assert done.exit_code == 1
    assert "redirects to http://127.0.0.1" in done.output
    assert received == []


@pytest.mark.parametrize(
    ("arguments", "variable", "use"),
    [
        (["query", "ASK {}", "--url", "http://192.0.2.1:8000"], "EDGE_TOKEN", "use https"),
        (["update", "CLEAR ALL", "--url", "http://gateway.example"], "EDGE_TOKEN", "use https"),
        (["subscribe", "ASK {}", "--ws", "ws://localhost.example/subscribe"], "EDGE_TOKEN", "use wss"),
        (["publish", "t", "1", "--mqtt", "mqtt://192.0.2.1"], "EDGE_MQTT_PASSWORD", "use mqtts"),
    ],
)
def test_secrets_are_not_sent_unencrypted(monkeypatch, arguments, variable, use):
    def no_network(*_arguments, **_more):
        raise AssertionError("nothing is to be sent")

    monkeypatch.setattr(socket, "create_connection", no_network)
    done = run(*arguments, **{variable: TOKEN})
    assert done.exit_code == 2, done.output
    assert variable in done.output
    assert use in done.output.lower()
    assert TOKEN not in done.output


@pytest.mark.parametrize(
    "arguments", [["query", "ASK {}"], ["subscribe", "ASK {}"], ["publish", "t", "1", "--mqtt", "mqtt://127.0.0.1"]]
)
def test_an_invalid_token_is_neither_sent_nor_shown(arguments):
    done = run(*arguments, EDGE_TOKEN="secret\nwords")
    assert done.exit_code == 2
    assert "EDGE_TOKEN is not a token" in done.output
    assert "secret" not in done.output


def test_an_unreadable_endpoints_file_is_reported_with_the_remedy(tmp_path, monkeypatch):
    def forbidden(_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(endpoints, "read", forbidden)
    done = run("query", "ASK {}", "--data-dir", str(tmp_path))
    assert done.exit_code == 2
    assert "--url" in done.output


@pytest.fixture(scope="module")
def secured(shared_edge, tmp_path_factory):
    ports = {f"EDGE__SECURITY__{name}_PORT": "0" for name in ("HTTPS", "WSS", "MQTTS")}
    data_dir = tmp_path_factory.mktemp("secured") / "data"
    return launch(shared_edge, data_dir, EDGE__HOST__ENABLED="false", EDGE__SECURITY__ENABLED="true", **ports)


def test_all_commands_explain_how_to_get_a_token(shared_edge, secured):
    for arguments in (["query", "ASK {}"], ["subscribe", "ASK {}"], ["publish", "t", "1", "--timeout", "1000"]):
        done = shared_edge(*arguments, "--data-dir", secured.data_dir)
        assert done.returncode == 1
        assert "EDGE_TOKEN" in done.stderr


def test_a_reading_is_published_with_a_token_or_a_password(shared_edge, secured):
    for arguments in (["allow", "lamp"], ["token", "lamp"]):
        done = shared_edge("clients", *arguments, "--data-dir", secured.data_dir)
        assert done.returncode == 0
    token, ca = done.stdout.strip(), str(secured.data_dir / "tls" / "ca.pem")
    for url in (secured.endpoints["mqtt"], secured.endpoints["mqtts"]):
        for given in (
            {"EDGE_TOKEN": token},
            {"EDGE_MQTT_PASSWORD": token},
            {"EDGE_TOKEN": "x", "EDGE_MQTT_PASSWORD": token},
        ):
            done = shared_edge("publish", "t", "1", "--mqtt", url, environ={**given, "SSL_CERT_FILE": ca})
            assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("service", "arguments"),
    [
        ("https", ["query", "ASK {}", "--url"]),
        ("wss", ["subscribe", "ASK {}", "--ws"]),
        ("mqtts", ["publish", "t", "1", "--mqtt"]),
    ],
)
def test_an_untrusted_certificate_is_reported_with_the_remedy(shared_edge, secured, service, arguments):
    done = shared_edge(*arguments, secured.endpoints[service])
    assert done.returncode == 3
    assert "SSL_CERT_FILE=DATA_DIR/tls/ca.pem" in done.stderr


def test_the_token_is_sent_with_each_subscription(shared_edge, secured):
    for arguments in (["allow", "hall"], ["token", "hall"]):
        done = shared_edge("clients", *arguments, "--data-dir", secured.data_dir)
    environ = {"EDGE_TOKEN": done.stdout.strip(), "SSL_CERT_FILE": str(secured.data_dir / "tls" / "ca.pem")}
    done = shared_edge("subscribe", "ASK {}", "--json", "-n", "1", "--ws", secured.endpoints["wss"], environ=environ)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["sequence"] == 0
