"""`edge diag collect`: the archive contains all useful data and no secrets."""

from __future__ import annotations

import gzip
import json
import os
import signal
import stat
import tarfile
from urllib.parse import quote

import pytest

from edge.doctor.redaction import Redactor
from tests.support.commands import run_edge
from tests.support.processes import GatewayProcess

BROKER = 'Br0ker"Pass/word&1'
OFFLOAD = "0ffload-T0ken-4711"
WIFI = "correct horse battery"
OTHER = "environment-s3cret"
CLIENT = "client-s3cret-abc"
ALONE = {"EDGE__HOST__ENABLED": "false", "EDGE__SECURITY__HTTPS_PORT": "0", "EDGE__SECURITY__WSS_PORT": "0"}
EXPECTED = {
    "version.txt", "doctor.json", "settings.toml", "health.json", "metrics.txt", "engine.json", "outbox.json",
    "endpoints.json", "last-run.json", "files.txt", "machine.txt", "units.txt", "log.txt", "log-1.txt",
}  # fmt: skip


@pytest.fixture
def gateway(tmp_path):
    process = GatewayProcess(tmp_path / "data", ALONE)
    yield process
    process.stop()


def edge(gateway, *arguments, **environ):
    command = [*arguments, "--data-dir", gateway.data_dir]
    return run_edge(command, gateway.environment, changed=environ, seconds=90)


def members(archive):
    with tarfile.open(archive) as opened:
        return {member.name.removeprefix("edge-diag/"): opened.extractfile(member).read().decode() for member in opened}


def test_the_archive_contains_no_secret(gateway, tmp_path):
    password_file, token_file = tmp_path / "broker-password", tmp_path / "offload-token"
    password_file.write_text(f"{BROKER}\n")
    token_file.write_text(f"{OFFLOAD}\n")
    gateway.environment |= {
        "EDGE__SECURITY__ENABLED": "true",
        "EDGE__MQTT__USERNAME": "me",
        "EDGE__MQTT__PASSWORD_FILE": str(password_file),
        "EDGE__OFFLOAD__TO": "http://127.0.0.1:9",
        "EDGE__OFFLOAD__TOKEN_FILE": str(token_file),
        "HOUSE_API_TOKEN": OTHER,
        "EDGE__MQTT__BROKER": "mqtt://127.0.0.1:9",
    }
    gateway.start()
    edge(gateway, "clients", "allow", "me", "--action", "administer", "--action", "query")
    token = edge(gateway, "clients", "token", "me").stdout.strip()
    keys = [path.read_text() for path in (gateway.data_dir / "tls").glob("*.key")]
    assert token
    assert len(keys) == 2
    log = tmp_path / "gateway.log"
    lines = [
        f"broker says {BROKER} is wrong",
        json.dumps({"event": "x", "password": "0ther-passw0rd", "reason": BROKER}),
        f"GET http://broker/?password={quote(BROKER, safe='')}&x=1",
        f"Authorization: Bearer {token}",
        f"token {token} expired",
        f"mqtt://me:{CLIENT}@broker.example.org",
        f"client_secret={CLIENT}",
        f"offload with {OFFLOAD}",
        f'wpa_supplicant: psk="{WIFI}"',
        f"wifi-sec.psk: {WIFI.replace(' ', '-')}",
        f"the house's {OTHER}",
        *keys,
        "one line without a secret",
    ]
    log.write_text("\n".join(lines) + "\n")
    (gateway.data_dir / "mappings" / "bad.toml").write_text(f"password = '{CLIENT}' nonsense")
    out = tmp_path / "diag.tar.gz"
    done = edge(gateway, "diag", "collect", "--out", out, "--log", log, EDGE_TOKEN=token)
    assert done.returncode == 0, done.stderr
    assert stat.S_IMODE(out.stat().st_mode) == 0o600

    raw = gzip.decompress(out.read_bytes()).decode()
    secrets = [BROKER, json.dumps(BROKER)[1:-1], quote(BROKER, safe=""), OFFLOAD, WIFI, WIFI.replace(" ", "-"), OTHER]
    secrets += [CLIENT, token, *token.split("."), "0ther-passw0rd"]
    secrets += [line for key in keys for line in key.splitlines() if not line.startswith("-----")]
    for secret in secrets:
        assert secret not in raw, secret

    found = members(out)
    assert set(found) == EXPECTED
    assert json.loads(found["health.json"])["last_restart"]["reason"] == "first"
    assert "edge_triples" in found["metrics.txt"]
    assert json.loads(found["engine.json"])["processing"]
    assert json.loads(found["outbox.json"])["epoch"]
    assert "one line without a secret" in found["log-1.txt"]
    assert "edge.sqlite3" in found["files.txt"]
    assert str(token_file) in found["settings.toml"]
    assert "token_lifetime = " in found["settings.toml"]
    assert {row["check"] for row in json.loads(found["doctor.json"])} >= {"gateway", "disk", "backlog"}


def test_the_archive_is_made_without_a_responding_gateway_and_without_graph_data(gateway, tmp_path):
    gateway.environment["EDGE__MQTT__ENABLED"] = "false"
    http = gateway.start()["http"]
    command = ["update", "INSERT DATA { <urn:private> <urn:is> 'kept-to-myself' }", "--url", http]
    assert run_edge(command, gateway.environment, seconds=60).returncode == 0
    os.kill(gateway.pid, signal.SIGSTOP)
    try:
        done = edge(gateway, "diag", "collect", "--out", tmp_path / "hangs.tar.gz")
    finally:
        os.kill(gateway.pid, signal.SIGCONT)
    assert done.returncode == 0
    found = members(tmp_path / "hangs.tar.gz")
    assert found["health.json"] == "no answer: no answer within 5 s\n"
    assert found["metrics.txt"] == "not requested: no answer within 5 s\n"
    gateway.kill()
    assert edge(gateway, "diag", "collect", "--out", tmp_path / "down.tar.gz", "--log", "/missing").returncode == 0
    found = members(tmp_path / "down.tar.gz")
    assert "does not answer" in found["doctor.json"] or "no gateway runs" in found["doctor.json"]
    assert found["log-1.txt"].startswith("not available: FileNotFoundError")
    for name in ("hangs", "down"):
        assert b"kept-to-myself" not in gzip.decompress((tmp_path / f"{name}.tar.gz").read_bytes())


def test_existing_files_are_not_overwritten_and_long_ones_are_truncated(gateway, tmp_path):
    gateway.data_dir.mkdir()
    out = tmp_path / "diag.tar.gz"
    out.write_text("mine")
    done = edge(gateway, "diag", "collect", "--out", out)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert out.read_text() == "mine"
    log = tmp_path / "gateway.log"
    log.write_text("".join(f"{number:08} {'x' * 1000}\n" for number in range(10_000)))
    assert edge(gateway, "diag", "collect", "--out", tmp_path / "other.tar.gz", "--log", log).returncode == 0
    text = members(tmp_path / "other.tar.gz")["log-1.txt"]
    assert len(text) < 2.2 * 1024 * 1024
    assert "00009999 " in text


def test_values_that_look_like_secrets_are_redacted():
    clean = Redactor([]).clean
    assert clean('{"password": "a \\"b\\" c", "user": "me"}') == '{"password": ***, "user": "me"}'
    assert clean("mqtts://me:secret@host/x") == "mqtts://me:***@host/x"
    assert clean("psk=abc next=1") == "psk=*** next=1"
    assert clean("Authorization: Basic bWU6c2VjcmV0") == "Authorization: Basic ***"
    assert clean("-----BEGIN EC PRIVATE KEY-----\nabc\ndef") == "***"
    assert clean(r'{"reason":"password=\"LEAK\" is wrong"}') == '{"reason":"password=*** is wrong"}'
    assert clean(r'{"text":"{\"token\": \"LE, AK\"}"}') == r'{"text":"{\"token\": ***}"}'
    assert clean("X-Api-Key: LEAK, api-key=LEAK private-key:LEAK pwd=LEAK pass=LEAK") == (
        "X-Api-Key: *** api-key=*** private-key:*** pwd=*** pass=***"
    )
    assert clean("password=a,REST") == "password=***"
    assert clean("https://store.example/x?sv=1&sig=LEAK&key=LEAK") == "https://store.example/x?sv=1&sig=***&key=***"
    assert clean("3 tests pass, keys: 4") == "3 tests pass, keys: 4"
    assert clean("the topic kitchen/temperature = 21.5") == "the topic kitchen/temperature = 21.5"
    assert clean("password_file = '/etc/x'") == "password_file = '/etc/x'"


def test_known_secrets_are_redacted_in_every_form():
    secret = 'Pä"ss\\w'
    clean = Redactor([secret]).clean
    once = json.dumps({"v": secret})
    for text in (secret, once, json.dumps({"text": once}), repr(secret), json.dumps(secret, ensure_ascii=False)):
        assert "ss" not in clean(text), text


def test_short_secrets_are_not_searched_everywhere():
    assert Redactor(["a", "x1"]).clean("a banana x1") == "a banana x1"
