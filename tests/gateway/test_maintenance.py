"""Log, settings, `edge doctor` and `edge backup` over the HTTP interface of a gateway as a process."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.support.processes import GatewayProcess, free_port
from tests.support.waiting import wait_for

ALONE = {"EDGE__MQTT__ENABLED": "false", "EDGE__HOST__ENABLED": "false", "EDGE__SECURITY__HTTPS_PORT": "0",
         "EDGE__SECURITY__WSS_PORT": "0"}  # fmt: skip
SECRET = "hunter2-hunter2"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    directory = tmp_path_factory.mktemp("maintained")
    file = directory / "edge.toml"
    (directory / "password").write_text(SECRET)
    file.write_text('[engine]\nquery_timeout = 21.0\n[mqtt]\npassword_file = "password"\nusername = "me"\n')
    ports = {f"EDGE__{name}__PORT": str(free_port()) for name in ("HTTP", "WS")}
    (directory / "tmp").mkdir()
    settings = {**ALONE, **ports, "EDGE_CONFIG": str(file), "TMPDIR": str(directory / "tmp")}
    process = GatewayProcess(directory / "data", settings)
    process.start()
    yield process
    process.stop()


@pytest.fixture
def http(gateway):
    with httpx.Client(base_url=url(gateway), timeout=60) as client:
        yield client


def url(gateway) -> str:
    return str(json.loads((gateway.data_dir / "endpoints.json").read_text())["http"])


def edge(gateway, *arguments, **options):
    command = [sys.executable, "-m", "edge", *arguments]
    return subprocess.run(command, env=gateway.environment, capture_output=True, timeout=60, check=False, **options)


def lines(http, **parameters):
    answer = http.get("/api/log", params=parameters)
    assert answer.status_code == 200, answer.text
    return answer.json()["lines"]


def test_log_lines_are_found_by_their_visible_text(gateway, http):
    mappings = gateway.data_dir / "mappings"
    (mappings / "k\u00fcche.toml").write_text("[[mapping]]")
    wait_for(lambda: lines(http, text="K\u00dcCHE.toml", level="error"), what="the line of the broken file")


def test_the_last_log_lines_are_found_by_level_and_text(http):
    (ready,) = lines(http, text="GATEWAY.ready")
    assert (ready["level"], ready["event"], ready["starts"]) == ("info", "gateway.ready", 1)
    assert lines(http, text="gateway.ready", level="warning") == []
    everything = lines(http)
    assert [line["time"] for line in everything] == sorted(line["time"] for line in everything)
    assert lines(http, limit=1) == everything[-1:]


@pytest.mark.parametrize("parameters", [{"level": "loud"}, {"limit": "0"}, {"limit": "many"}])
def test_a_wrong_filter_is_refused(http, parameters):
    answer = http.get("/api/log", params=parameters)
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")


def test_settings_in_effect_are_shown_with_their_origin_and_without_secrets(http):
    answer = http.get("/api/settings")
    assert answer.headers["content-type"].startswith("application/toml")
    found = tomllib.loads(answer.text)
    assert found["engine"]["query_timeout"] == 21.0
    assert "query_timeout = 21.0  # " in answer.text
    assert "EDGE__HTTP__PORT" in answer.text
    assert SECRET not in answer.text


def test_the_doctor_examines_the_gateway_that_runs_it(gateway, http):
    findings = {each["check"]: each for each in http.get("/api/doctor").json()["findings"]}
    assert findings["gateway"]["state"] == "ok"
    assert f"process {gateway.pid}" in findings["gateway"]["what"]


def test_a_safe_remedy_is_carried_out_on_request(gateway, http):
    leftover = gateway.data_dir / "clients.sqlite3"
    leftover.touch(mode=0o644)
    leftover.chmod(0o644)

    def about(found):
        return [each for each in found.json()["findings"] if "clients.sqlite3" in each["what"]]

    (before,) = about(http.get("/api/doctor"))
    assert (before["fixable"], before["fixed"]) == ("yes", "")
    (after,) = about(http.post("/api/doctor", json={"fix": True}))
    assert after["fixed"]
    assert about(http.get("/api/doctor")) == []
    leftover.unlink()


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"json": {"fix": False}}, 400),
        ({"json": {}}, 400),
        ({"content": '{"fix": true}'}, 415),
        ({"content": "x" * 9999}, 415),
    ],
)
def test_other_requests_fix_nothing(http, options, status):
    assert http.post("/api/doctor", **options).status_code == status


def test_a_backup_can_be_restored(gateway, http, tmp_path):
    http.post("/update", data={"update": "INSERT DATA { <urn:kept> <urn:p> 1 }"}).raise_for_status()
    answer = http.get("/api/backup")
    assert answer.status_code == 200
    assert answer.headers["content-disposition"].endswith('.tar.gz"')
    target = tmp_path / "restored"
    done = edge(gateway, "restore", "-", "--data-dir", str(target), input=answer.content)
    assert done.returncode == 0, done.stderr
    again = GatewayProcess(target, ALONE)
    again.start()
    found = httpx.get(f"{url(again)}/query", params={"query": "ASK { <urn:kept> <urn:p> 1 }"}).json()
    again.stop()
    assert found["boolean"] is True


def test_a_second_command_of_a_kind_is_refused_at_once(http):
    """A queue could fill with requests whose clients have gone, and keep the others waiting."""
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(http.get, ["/api/doctor", "/api/backup", "/api/doctor", "/api/doctor"]))
    codes = [answer.status_code for answer in answers]
    assert (codes[1], sorted([codes[0], *codes[2:]])) == (200, [200, 429, 429])
    assert {answer.headers["retry-after"] for answer in answers if answer.status_code == 429} == {"10"}


@pytest.mark.parametrize("path", ["/api/doctor", "/api/backup"])
def test_a_page_of_another_origin_starts_no_command(http, path):
    answer = http.get(path, headers={"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"})
    assert (answer.status_code, answer.json()["error"]) == (403, "forbidden")


def children(gateway) -> list[str]:
    """The commands that the gateway runs."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, parent = status.parent, int(status.read_text().rpartition(")")[2].split()[1])
            if parent == gateway.pid:
                found.append((name / "cmdline").read_text())
        except (OSError, ValueError):
            continue
    return [each for each in found if "doctor" in each or "backup" in each]


def test_a_client_that_leaves_ends_the_command(gateway, http):
    with httpx.Client(base_url=url(gateway)) as impatient, pytest.raises(httpx.ReadTimeout):
        impatient.get("/api/backup", timeout=0.05)
    wait_for(lambda: not children(gateway), what="the command has ended")
    wait_for(lambda: not any(Path(gateway.environment["TMPDIR"]).iterdir()), what="its copy is removed")
    assert http.get("/api/backup").status_code == 200


def test_a_command_that_fails_is_answered_with_its_reason(gateway, http):
    journal = gateway.data_dir / "edge.sqlite3"
    hidden = journal.with_name("hidden")
    journal.rename(hidden)
    try:
        answer = http.get("/api/backup")
    finally:
        hidden.rename(journal)
    assert (answer.status_code, answer.json()["error"]) == (500, "internal_error")
    assert "`edge backup` failed: " in answer.json()["error_description"]
    (line, *_) = lines(http, level="error", text="tool.failed")
    assert line["command"] == "backup"


def test_only_an_administrator_of_everything_gets_a_backup(tmp_path):
    process = GatewayProcess(tmp_path / "data", {**ALONE, "EDGE__SECURITY__ENABLED": "true"})
    process.start()
    try:

        def token(name: str, *rights: str) -> dict[str, str]:
            where = ("--data-dir", str(process.data_dir))
            assert edge(process, "clients", "allow", name, *rights, *where).returncode == 0
            return {
                "Authorization": f"Bearer {edge(process, 'clients', 'token', name, *where).stdout.decode().strip()}"
            }

        everything = [
            word for action in ("query", "update", "subscribe", "administer") for word in ("--action", action)
        ]
        operator, limited = token("operator", *everything), token("limited", *everything, "--read", "urn:g")
        with httpx.Client(base_url=url(process), timeout=60) as http:
            assert http.get("/api/backup", headers=limited).status_code == 403
            assert http.get("/api/backup", headers=operator).status_code == 200
            # The checks ask the gateway with the rights of the client.
            found = http.get("/api/doctor", headers=operator).json()["findings"]
            assert "ok" in [each["state"] for each in found if each["check"] == "gateway"]
            assert operator["Authorization"].split()[1] not in json.dumps(http.get("/api/log", headers=operator).json())
    finally:
        process.stop()
