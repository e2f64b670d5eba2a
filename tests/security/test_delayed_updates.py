"""Delayed updates of clients at the gates: each client has its own, and they run with its permissions."""

from __future__ import annotations

import time

import pytest
from secured import House, settings

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


async def timer(house: House, token: str, name: str = "t", method: str = "GET", **parameters: str):
    async with house.http() as http:
        headers = {"Authorization": f"Bearer {token}"}
        return await http.request(method, f"/timers/{name}", headers=headers, params=parameters)


async def listed(house: House, token: str) -> list[tuple[str, str]]:
    async with house.http() as http:
        answer = await http.get("/timers", headers={"Authorization": f"Bearer {token}"})
    return [(one["id"], one["client"]) for one in answer.json()["timers"]]


async def ended(house: House, token: str, name: str = "t", **parameters: str) -> tuple[str, str | None]:
    async def finished() -> dict[str, str] | None:
        found = (await timer(house, token, name, **parameters)).json()["timer"]
        return None if found["state"] == "pending" else found

    found = await eventually(finished, f"the timer {name} to run")
    return found["state"], found.get("error")


async def test_a_client_kept_to_some_graphs_has_updates_run_later_on_these(house):
    token = await house.member("lamp", LIMITED)
    for name, graph in (("mine", MINE), ("theirs", THEIRS)):
        assert (await house.update(token, insert(graph), delay="PT0S", id=name)).status_code == 202
    assert await ended(house, token, "mine") == ("done", None)
    assert await ended(house, token, "theirs") == ("failed", "forbidden")


async def test_a_client_that_is_revoked_changes_nothing_any_more(house, later):
    token, other = await house.member("lamp"), await house.member("operator", Rights(frozenset({"administer"})))
    await house.update(token, insert(MINE), at=later.at, id="t")
    house.clients.revoke("lamp")
    later.comes()
    assert await ended(house, other, client="lamp") == ("failed", "invalid_client")


async def test_a_client_that_is_revoked_while_the_gateway_is_down_changes_nothing_either(tmp_path, later):
    chosen = settings(tmp_path / "data")
    async with Gateway(chosen) as gateway:
        house = House(gateway)
        token, limited = await house.member("lamp"), await house.member("narrow")
        operator = await house.member("operator", Rights(frozenset({"administer", "query"})))
        for who in (token, limited):
            await house.update(who, insert(MINE), at=later.at, id="t")
    house.clients.revoke("lamp")
    house.clients.allow("lamp", Rights())  # a client that registers now is not the owner of the update
    house.clients.allow("narrow", LIMITED)
    later.comes()
    async with Gateway(chosen) as gateway:
        house = House(gateway)
        await house.register("lamp")
        assert await ended(house, operator, client="lamp") == ("failed", "invalid_client")
        assert await ended(house, operator, client="narrow") == ("done", None)


async def test_rights_that_are_taken_away_count_for_what_waits(house, later):
    token = await house.member("lamp")
    door, operator = await house.member("door"), await house.member("operator", Rights(frozenset({"administer"})))
    for who in (token, door):
        await house.update(who, insert(THEIRS), at=later.at, id="t")
    house.clients.allow("lamp", LIMITED)
    house.clients.allow("door", Rights(frozenset({"query"})))
    later.comes()
    assert await ended(house, token) == ("failed", "forbidden")
    assert await ended(house, operator, client="door") == ("failed", "forbidden")


async def test_without_security_an_update_keeps_the_limits_it_was_given_with(tmp_path, later):
    chosen = settings(tmp_path / "data")
    async with Gateway(chosen) as gateway:
        token = await House(gateway).member("lamp", LIMITED)
        for name, graph in (("mine", MINE), ("theirs", THEIRS)):
            await House(gateway).update(token, insert(graph), at=later.at, id=name)
    later.comes()
    opened = chosen.model_copy(update={"security": chosen.security.model_copy(update={"enabled": False})})
    async with Gateway(opened) as gateway:
        await House(gateway).until(lambda: not gateway._engine.pending_timers)
        told = {one.id: one.state for one in gateway._engine.timers().result(20)}
    assert told == {"mine": "done", "theirs": "failed"}


async def test_nobody_sees_replaces_or_ends_those_of_others(house):
    mine, other = await house.member("mine"), await house.member("other")
    await house.update(mine, insert(MINE), delay="PT1H", id="t")
    assert await listed(house, other) == []
    assert (await timer(house, other)).status_code == (await timer(house, other, "none")).status_code == 404
    assert (await timer(house, other, method="DELETE")).status_code == 404
    assert (await timer(house, other, client="mine")).status_code == 403
    assert (await timer(house, other, "none", client="nobody")).status_code == 403
    again = await house.update(other, insert(THEIRS), delay="PT1H", id="t")
    assert again.json()["scheduled"]["replaced"] is False
    assert (await timer(house, mine)).json()["timer"]["sparql"] == insert(MINE)
    async with house.socket() as socket:
        for kind in ("timer", "cancel"):
            assert (await socket.ask(kind, other, id="t", client="mine"))["error"] == "forbidden"
        assert [one["client"] for one in (await socket.ask("timers", other))["timers"]] == ["other"]
        assert (await socket.ask("cancel", other, id="t"))["cancelled"] == {"id": "t"}
    assert (await timer(house, mine)).json()["timer"]["state"] == "pending"


@pytest.mark.parametrize("actions", [{"administer"}, {"administer", "update"}])
async def test_who_may_administer_sees_and_ends_all(house, actions):
    mine, other = await house.member("mine"), await house.member("other")
    operator = await house.member("operator", Rights(frozenset(actions)))
    assert (await timer(house, operator, method="PUT", client="mine")).status_code == 403
    for number, who in enumerate((mine, other), 1):
        await house.update(who, insert(MINE), delay=f"PT{number}H", id="t")
    assert await listed(house, operator) == [("t", "mine"), ("t", "other")]
    assert (await timer(house, operator)).status_code == 404
    assert (await timer(house, operator, method="DELETE", client="other")).status_code == 200
    async with house.socket() as socket:
        told = await socket.ask("timer", operator, id="t", client="other")
        assert (told["timer"]["state"], told["timer"]["client"]) == ("cancelled", "other")
        assert (await socket.ask("cancel", operator, id="t", client="mine"))["cancelled"] == {"id": "t"}
    assert (await timer(house, mine)).json()["timer"]["state"] == "cancelled"


async def test_who_may_neither_update_nor_administer_has_none(house):
    token = await house.member("lamp", Rights(frozenset({"query", "subscribe"})))
    assert (await timer(house, token)).status_code == 403
    assert (await timer(house, token, method="PUT")).status_code == 403
    assert (await house.update(token, insert(MINE), delay="PT1S")).status_code == 403
    async with house.socket() as socket:
        for kind, members in (("timers", {}), ("timer", {"id": "t"}), ("cancel", {"id": "t"})):
            assert (await socket.ask(kind, token, **members))["error"] == "forbidden"
        assert (await socket.ask("update", token, sparql=insert(MINE), delay="PT1S"))["error"] == "forbidden"
