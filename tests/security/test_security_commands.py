"""`edge clients` and `edge cert` on the data directory of a running and of a stopped gateway."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from click.testing import CliRunner

from edge.cli import edge
from edge.security.clients import Rights
from tests.support.waiting import wait_for


@pytest.fixture
def run(tmp_path):
    def run(*command: str, code: int = 0) -> str:
        result = CliRunner().invoke(edge, [*command, "--data-dir", str(tmp_path / "data")])
        assert result.exit_code == code, result.output
        return result.output.strip()

    return run


def listed(run) -> dict[str, dict[str, object]]:
    return {client["identity"]: client for client in json.loads(run("clients", "list", "--json"))["clients"]}


def test_a_client_is_allowed_shown_changed_and_revoked(run):
    assert "no clients" in run("clients", "list")
    run("clients", "allow", "lamp", "--action", "query", "--read", "default", "--read", "http://a/b", "--write", "none")
    lamp = listed(run)["lamp"]
    assert (lamp["state"], lamp["actions"], lamp["read"], lamp["write"]) == (
        "allowed",
        ["query"],
        ["", "http://a/b"],
        [],
    )
    assert "default, http://a/b" in run("clients", "list")
    assert lamp["priority"] == "normal"
    run("clients", "allow", "lamp", "--priority", "low")
    assert listed(run)["lamp"]["priority"] == "low"
    run("clients", "allow", "lamp")
    lamp = listed(run)["lamp"]
    assert (lamp["actions"], lamp["read"], lamp["write"]) == (["query", "subscribe", "update"], None, None)
    assert (lamp["publish"], lamp["receive"]) == (None, None)
    run("clients", "revoke", "lamp")
    assert listed(run)["lamp"]["state"] == "revoked"


@pytest.mark.parametrize(
    ("options", "publish", "receive"),
    [
        (["--action", "query"], [], None),
        (["--action", "update"], None, []),
        (["--read", "http://a/b", "--write", "http://a/b"], [], []),
        (["--read", "default", "--write", "default"], None, None),
        (["--action", "administer"], [], []),
        (["--action", "none", "--publish", "a/#", "--publish", "b"], ["a/#", "b"], []),
        (["--publish", "none", "--receive", "+/set"], [], ["+/set"]),
    ],
)
def test_topics_are_explicit_or_follow_the_default_graph(run, options, publish, receive):
    run("clients", "invite", "lamp", *options)
    lamp = listed(run)["lamp"]
    assert (lamp["publish"], lamp["receive"]) == (publish, receive)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["revoke", "nobody"], "does not exist"),
        (["allow", "a b"], "client identity"),
        (["allow", "lamp", "--read", "nonsense"], "not the IRI of a graph"),
        (["allow", "lamp", "--publish", "kitchen#"], "not a topic filter"),
        (["allow", "lamp", "--receive", "a/#/b"], "not a topic filter"),
        (["open", "--for", "forever"], "not a duration"),
        (["token", "nobody"], "does not exist"),
        (["open", "--for", "3651d"], "3650d is the longest"),
        (["invite", "lamp", "--for", "99999d"], "3650d is the longest"),
        (["invite", "lamp", "--for", "0s"], "is too short"),
        (["token", "lamp", "--for", "0s"], "is too short"),
        (["allow", "lamp", "--action", "none", "--action", "query"], "contradict"),
        (["allow", "lamp", "--read", "default", "--read", "none"], "contradict"),
        (["invite", "lamp", "--write", "none", "--write", "http://a/b"], "contradict"),
        (["allow", "lamp", "--publish", "none", "--publish", "a"], "contradict"),
        (["allow", "lamp", "--receive", "none", "--receive", "a"], "contradict"),
    ],
)
def test_invalid_arguments_are_reported(run, command, words):
    result = run("clients", *command, code=1 if command[1] in ("nobody", "a b") else 2)
    assert words in result


async def test_a_gateway_that_runs_follows_the_commands(secured, run):
    async with secured() as harness:

        async def do(*command: str) -> str:
            return await asyncio.to_thread(run, "clients", *command)

        token = await harness.token(await harness.register(await do("invite", "lamp", "--for", "10m")))
        assert (await harness.query(token)).status_code == 200
        await do("allow", "lamp", "--action", "update")
        assert (await harness.query(token)).status_code == 403
        await do("rotate-key")
        assert (await harness.query(token)).status_code == 403
        await do("revoke", "lamp")
        assert (await harness.query(token)).status_code == 401
        await do("open", "--for", "1m")
        await harness.register("newcomer")
        await do("allow", "operator", "--action", "administer")
        operator = await do("token", "operator", "--for", "2h")
        async with harness.http() as http:
            metrics = await http.get("/metrics", headers={"Authorization": f"Bearer {operator}"})
        assert metrics.status_code == 200


async def test_rotate_key_now_invalidates_all_tokens_of_the_key(secured, run):
    async with secured() as harness:

        async def do(*command: str) -> str:
            return await asyncio.to_thread(run, "clients", *command)

        harness.clients.allow("lamp", Rights())
        credentials = await harness.register("lamp")
        handed = await do("token", "lamp", "--for", "30d")
        token = await harness.token(credentials)
        assert (await harness.query(token)).status_code == 200
        assert (await asyncio.to_thread(listed, run))["lamp"]["until"] > time.time_ns() / 1000
        async with harness.socket() as socket:
            await socket.ask("subscribe", token, sparql="SELECT * { ?s ?p ?o }")
            await do("rotate-key", "--now")
            ended = await socket.receive()
        assert ended["error"] == "invalid_grant"
        for old in (handed, token):
            refused = await harness.query(old)
            assert (refused.status_code, refused.json()["error"]) == (401, "invalid_grant")
        again = await harness.token(credentials)
        assert again != token
        assert (await harness.query(again)).status_code == 200
        assert (await asyncio.to_thread(listed, run))["lamp"]["until"] is None


async def test_removing_an_unrelated_key_ends_no_subscription(secured):
    async with secured(token_lifetime=600) as harness:
        for _ in range(2):
            harness.security.keys.rotate()
        token = await harness.member()
        async with harness.socket() as socket:
            await socket.ask("subscribe", token, sparql="SELECT * { ?s ?p ?o }")
            harness.security.keys._lifetime = -1  # all keys except the last one, whose tokens may be valid, are deleted
            keys = harness.security.keys.ring
            harness.security.keys.rotate()
            assert keys - harness.security.keys.ring
            harness.security.guard.look()
            assert (await harness.update(token, "INSERT DATA { <urn:a> <urn:b> 1 }")).status_code == 200
            assert (await socket.receive())["notification"]["sequence"] == 1


def test_codes_and_tokens_end_and_the_list_says_when(run):
    run("clients", "invite", "early", "--for", "1s")
    run("clients", "invite", "late", "--for", "1h")
    run("clients", "allow", "lamp")
    assert listed(run)["lamp"]["until"] is None
    before = time.time_ns() // 1000
    run("clients", "token", "lamp", "--for", "2h")
    run("clients", "token", "lamp", "--for", "1h")
    run("clients", "oscore", "lamp")
    assert 7_100e6 < listed(run)["lamp"]["until"] - before < 7_300e6
    wait_for(lambda: listed(run)["early"]["state"] != "invited", "the end of the code")
    shown = {line.split()[0]: line for line in run("clients", "list").splitlines()}
    assert {name: client["state"] for name, client in listed(run).items()} == {
        "early": "expired",
        "late": "invited",
        "lamp": "registered",
    }
    assert {name: client["oscore"] for name, client in listed(run).items()}["lamp"]
    assert "expired" in shown["early"]
    assert "yes" in shown["lamp"]
    assert "yes" not in shown["late"]
    run("clients", "revoke", "lamp")
    assert (listed(run)["lamp"]["until"], listed(run)["lamp"]["oscore"]) == (None, False)


def test_since_member_is_the_time_of_the_last_state_change(run):
    run("clients", "allow", "lamp")
    first = listed(run)["lamp"]["since"]
    run("clients", "allow", "lamp", "--action", "query")
    assert listed(run)["lamp"]["since"] == first
    run("clients", "revoke", "lamp")
    revoked = listed(run)["lamp"]["since"]
    assert revoked > first
    run("clients", "allow", "lamp")
    assert listed(run)["lamp"]["since"] > revoked


@pytest.mark.parametrize("command", ["token", "oscore"])
def test_the_reason_for_a_refused_token_is_reported(run, command):
    run("clients", "invite", "lamp")
    assert "is invited; it has not registered" in run("clients", command, "lamp", code=1)
    run("clients", "revoke", "lamp")
    assert "was revoked" in run("clients", command, "lamp", code=1)
    assert "does not exist" in run("clients", command, "nobody", code=1)


async def test_a_token_that_lives_long_outlives_the_rotation_of_keys(secured, run):
    async with secured(token_lifetime=1) as harness:
        harness.clients.allow("lamp", Rights())
        token = await asyncio.to_thread(run, "clients", "token", "lamp", "--for", "1h")
        for _ in range(3):
            harness.security.keys.rotate()
            await asyncio.sleep(1.1)
        harness.security.keys.rotate()
        assert (await harness.query(token)).status_code == 200


async def test_commands_use_the_token_of_the_environment(secured, run, monkeypatch):
    async with secured() as harness:
        harness.clients.allow("lamp", Rights())
        token = await asyncio.to_thread(run, "clients", "token", "lamp")
        refused = await asyncio.to_thread(run, "query", "ASK {}", code=1)
        assert "EDGE_TOKEN" in refused
        monkeypatch.setenv("EDGE_TOKEN", token)
        assert "false" not in await asyncio.to_thread(run, "query", "ASK {}")
        subscribed = await asyncio.to_thread(run, "subscribe", "SELECT * { ?s ?p ?o }", "--count", "1", "--json")
        assert json.loads(subscribed)["sequence"] == 0


def test_certificates_are_made_and_keep_their_names(run, tmp_path):
    run("cert", "init", "gateway.example.org")
    authority = (tmp_path / "data" / "tls" / "ca.pem").read_bytes()
    shown = run("cert", "init", "10.0.0.4")
    assert "gateway.example.org" in shown
    assert "10.0.0.4" in shown
    assert "localhost" in run("cert", "show")
    assert (tmp_path / "data" / "tls" / "ca.pem").read_bytes() == authority
    assert "neither a host name" in run("cert", "init", "a b", code=1)


def test_clients_of_another_issuer_are_accepted_and_revoked_by_their_name_there(run, monkeypatch):
    url = "https://issuer.example/realms/home"
    assert "is not set" in run("clients", "allow", "lamp", "--issuer", url, code=2)
    monkeypatch.setenv("EDGE__ISSUER__URL", url)
    monkeypatch.setenv("EDGE__ISSUER__JWKS_URL", url + "/certs")
    run("clients", "allow", "lamp", "--issuer", url, "--action", "query")
    run("clients", "allow", "lamp")
    assert {name: client["state"] for name, client in listed(run).items()} == {
        "lamp": "allowed",
        f"{url} lamp": "trusted",
    }
    for name in ("lamp", "about whom nothing was said"):
        run("clients", "revoke", name, "--issuer", url)
        assert listed(run)[f"{url} {name}"]["state"] == "revoked"
    assert listed(run)["lamp"]["state"] == "allowed"
    assert f'it is "{url}"' in run("clients", "revoke", "lamp", "--issuer", url + "/", code=2)
    assert "printable" in run("clients", "allow", "a\nb", "--issuer", url, code=1)


async def test_administrator_manages_delayed_updates_of_others(secured, run, monkeypatch):
    async with secured() as harness:
        lamp = await harness.member("lamp")
        operator = await harness.member("operator", Rights(frozenset({"administer"})))
        await harness.update(lamp, "INSERT DATA { <urn:s> <urn:p> 1 }", delay="PT1H", id="off")
        monkeypatch.setenv("EDGE_TOKEN", operator)
        header, line = (await asyncio.to_thread(run, "timers")).splitlines()
        assert header.split() == ["at", "state", "id", "client"]
        assert "lamp" in line
        await asyncio.to_thread(run, "timers", "off", "--cancel", code=1)
        assert "is cancelled" in await asyncio.to_thread(run, "timers", "off", "--cancel", "--client", "lamp")
        assert "needs the id" in await asyncio.to_thread(run, "timers", "--client", "lamp", code=2)
