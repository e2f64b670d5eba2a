"""Delayed updates of clients at the gates: each client has its own, and they run with its permissions."""

from __future__ import annotations

import time

import pytest
from secured import Harness, settings

from edge.engine.clock import SystemClock
from edge.gateway import Gateway
from edge.security.clients import Rights
from tests.support.waiting import eventually

MINE, THEIRS = "urn:g:mine", "urn:g:theirs"
LIMITED = Rights(frozenset({"update"}), read=frozenset({MINE}), write=frozenset({MINE}))


def insert(graph: str, value: int = 1) -> str:
    return f"INSERT DATA {{ GRAPH <{graph}> {{ <urn:s> <urn:p> {value} }} }}"


@pytest.fixture
def later(monkeypatch) -> Later:
    return Later(monkeypatch)


class Later:
    """Control of the engine's clock, to make timers due."""

    def __init__(self, monkeypatch) -> None:
        self.at = str(time.time_ns() // 1000 + 3600 * 1_000_000)
        self._monkeypatch = monkeypatch

    def comes(self) -> None:
        self._monkeypatch.setattr(SystemClock, "wall", lambda _: time.time_ns() // 1000 + 7200 * 1_000_000)


async def timer(harness: Harness, token: str, name: str = "t", method: str = "GET", **parameters: str):
    async with harness.http() as http:
        headers = {"Authorization": f"Bearer {token}"}
        return await http.request(method, f"/timers/{name}", headers=headers, params=parameters)


async def listed(harness: Harness, token: str) -> list[tuple[str, str]]:
    async with harness.http() as http:
        answer = await http.get("/timers", headers={"Authorization": f"Bearer {token}"})
    return [(one["id"], one["client"]) for one in answer.json()["timers"]]


async def ended(harness: Harness, token: str, name: str = "t", **parameters: str) -> tuple[str, str | None]:
    async def finished() -> dict[str, str] | None:
        found = (await timer(harness, token, name, **parameters)).json()["timer"]
        return None if found["state"] == "pending" else found

    found = await eventually(finished, f"the timer {name} to run")
    return found["state"], found.get("error")


async def test_a_delayed_update_changes_only_graphs_that_its_client_may_change(harness):
    token = await harness.member("lamp", LIMITED)
    for name, graph in (("mine", MINE), ("theirs", THEIRS)):
        assert (await harness.update(token, insert(graph), delay="PT0S", id=name)).status_code == 202
    assert await ended(harness, token, "mine") == ("done", None)
    assert await ended(harness, token, "theirs") == ("failed", "forbidden")


async def test_a_client_that_is_revoked_changes_nothing_any_more(harness, later):
    token, other = await harness.member("lamp"), await harness.member("operator", Rights(frozenset({"administer"})))
    await harness.update(token, insert(MINE), at=later.at, id="t")
    harness.clients.revoke("lamp")
    later.comes()
    assert await ended(harness, other, client="lamp") == ("failed", "invalid_client")


async def test_a_client_that_is_revoked_while_the_gateway_is_down_changes_nothing_either(tmp_path, later):
    chosen = settings(tmp_path / "data")
    async with Gateway(chosen) as gateway:
        harness = Harness(gateway)
        token, limited = await harness.member("lamp"), await harness.member("narrow")
        operator = await harness.member("operator", Rights(frozenset({"administer", "query"})))
        for who in (token, limited):
            await harness.update(who, insert(MINE), at=later.at, id="t")
    harness.clients.revoke("lamp")
    harness.clients.allow("lamp", Rights())  # a client that registers now is not the owner of the update
    harness.clients.allow("narrow", LIMITED)
    later.comes()
    async with Gateway(chosen) as gateway:
        harness = Harness(gateway)
        await harness.register("lamp")
        assert await ended(harness, operator, client="lamp") == ("failed", "invalid_client")
        assert await ended(harness, operator, client="narrow") == ("done", None)


async def test_withdrawn_permissions_apply_to_waiting_updates(harness, later):
    token = await harness.member("lamp")
    door, operator = await harness.member("door"), await harness.member("operator", Rights(frozenset({"administer"})))
    for who in (token, door):
        await harness.update(who, insert(THEIRS), at=later.at, id="t")
    harness.clients.allow("lamp", LIMITED)
    harness.clients.allow("door", Rights(frozenset({"query"})))
    later.comes()
    assert await ended(harness, token) == ("failed", "forbidden")
    assert await ended(harness, operator, client="door") == ("failed", "forbidden")


async def test_without_security_an_update_keeps_its_limits(tmp_path, later):
    chosen = settings(tmp_path / "data")
    async with Gateway(chosen) as gateway:
        token = await Harness(gateway).member("lamp", LIMITED)
        for name, graph in (("mine", MINE), ("theirs", THEIRS)):
            await Harness(gateway).update(token, insert(graph), at=later.at, id=name)
    later.comes()
    opened = chosen.model_copy(update={"security": chosen.security.model_copy(update={"enabled": False})})
    async with Gateway(opened) as gateway:
        await Harness(gateway).until(lambda: not gateway._engine.pending_timers)
        received = {one.id: one.state for one in gateway._engine.timers().result(20)}
    assert received == {"mine": "done", "theirs": "failed"}


async def test_no_client_sees_or_changes_delayed_updates_of_others(harness):
    mine, other = await harness.member("mine"), await harness.member("other")
    await harness.update(mine, insert(MINE), delay="PT1H", id="t")
    assert await listed(harness, other) == []
    assert (await timer(harness, other)).status_code == (await timer(harness, other, "none")).status_code == 404
    assert (await timer(harness, other, method="DELETE")).status_code == 404
    assert (await timer(harness, other, client="mine")).status_code == 403
    assert (await timer(harness, other, "none", client="nobody")).status_code == 403
    again = await harness.update(other, insert(THEIRS), delay="PT1H", id="t")
    assert again.json()["scheduled"]["replaced"] is False
    assert (await timer(harness, mine)).json()["timer"]["sparql"] == insert(MINE)
    async with harness.socket() as socket:
        for kind in ("timer", "cancel"):
            assert (await socket.ask(kind, other, id="t", client="mine"))["error"] == "forbidden"
        assert [one["client"] for one in (await socket.ask("timers", other))["timers"]] == ["other"]
        assert (await socket.ask("cancel", other, id="t"))["cancelled"] == {"id": "t"}
    assert (await timer(harness, mine)).json()["timer"]["state"] == "pending"


@pytest.mark.parametrize("actions", [{"administer"}, {"administer", "update"}])
async def test_an_administrator_lists_and_cancels_all_delayed_updates(harness, actions):
    mine, other = await harness.member("mine"), await harness.member("other")
    operator = await harness.member("operator", Rights(frozenset(actions)))
    assert (await timer(harness, operator, method="PUT", client="mine")).status_code == 403
    for number, who in enumerate((mine, other), 1):
        await harness.update(who, insert(MINE), delay=f"PT{number}H", id="t")
    assert await listed(harness, operator) == [("t", "mine"), ("t", "other")]
    assert (await timer(harness, operator)).status_code == 404
    assert (await timer(harness, operator, method="DELETE", client="other")).status_code == 200
    async with harness.socket() as socket:
        received = await socket.ask("timer", operator, id="t", client="other")
        assert (received["timer"]["state"], received["timer"]["client"]) == ("cancelled", "other")
        assert (await socket.ask("cancel", operator, id="t", client="mine"))["cancelled"] == {"id": "t"}
    assert (await timer(harness, mine)).json()["timer"]["state"] == "cancelled"


async def test_a_client_without_permissions_has_no_delayed_updates(harness):
    token = await harness.member("lamp", Rights(frozenset({"query", "subscribe"})))
    assert (await timer(harness, token)).status_code == 403
    assert (await timer(harness, token, method="PUT")).status_code == 403
    assert (await harness.update(token, insert(MINE), delay="PT1S")).status_code == 403
    async with harness.socket() as socket:
        for kind, members in (("timers", {}), ("timer", {"id": "t"}), ("cancel", {"id": "t"})):
            assert (await socket.ask(kind, token, **members))["error"] == "forbidden"
        assert (await socket.ask("update", token, sparql=insert(MINE), delay="PT1S"))["error"] == "forbidden"
