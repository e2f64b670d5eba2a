"""Watches of the guard, with its checks called by hand: whatever happens between two of them ends what it must."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import jwt
import pytest

from edge.protocol.errors import EdgeError, InvalidGrant
from edge.security import keys as keys_module
from edge.security import row_checksums
from edge.security.client_database import NAME
from edge.security.clients import Rights
from edge.security.keys import Keys
from edge.security.security import Security
from edge.security.settings import SecuritySettings


class World:
    """The security of a gateway, and that of another process with the same files."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / NAME
        self.security = Security(directory, SecuritySettings(enabled=True))
        self.other = Security(directory, SecuritySettings(enabled=True))
        self.guard = self.security.guard
        self.ended: list[str] = []
        for name in ("lamp", "fan"):
            self.security.clients.allow(name, Rights())
        self.token("lamp")
        self.guard.look()

    def token(self, name: str) -> str:
        """Return a new token of a client."""
        return self.security.token(name, 600)

    def watch(self, token: str, name: str = "lamp") -> None:
        """Watch as a gate does."""
        client = self.guard.access(token).client
        self.guard.watch(client, lambda: self.ended.append(name))

    def rows(self) -> list[tuple[object, ...]]:
        """Return the stored keys."""
        with closing(sqlite3.connect(self.file)) as connection:
            return connection.execute("SELECT kid, private, created, needed FROM signing_key").fetchall()

    def store(self, *rows: tuple[object, ...]) -> None:
        """Replace the stored keys, as a restored file does."""
        with closing(sqlite3.connect(self.file)) as connection:
            row_checksums.connect(connection)
            connection.execute("DELETE FROM signing_key")
            connection.executemany("INSERT INTO signing_key (kid, private, created, needed) VALUES (?, ?, ?, ?)", rows)
            connection.commit()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.security.close()
    world.other.close()


def test_a_key_that_comes_and_goes_between_two_checks_ends_the_watch(world: World):
    first = world.rows()
    world.other.keys.rotate()
    token = world.token("lamp")
    assert jwt.get_unverified_header(token)["kid"] != first[0][0]
    world.watch(token)
    world.store(*first)
    world.guard.look()
    assert world.ended == ["lamp"]
    with pytest.raises(InvalidGrant):
        world.guard.access(token)
    world.guard.look()
    assert world.ended == ["lamp"]


def test_a_key_that_is_replaced_under_its_id_ends_the_watch_and_its_tokens(world: World):
    ((kid, _, created, needed),) = world.rows()
    token = world.token("lamp")
    world.watch(token)
    world.other.keys.rotate()
    (another,) = [row[1] for row in world.rows() if row[0] != kid]
    world.store((kid, another, created, needed))
    world.guard.look()
    assert world.ended == ["lamp"]
    with pytest.raises(InvalidGrant):
        world.guard.access(token)
    assert world.token("lamp") != token


def test_a_key_that_was_away_ends_the_watch_even_if_it_is_there_again(world: World):
    stored, token = world.rows(), world.token("lamp")
    world.watch(token)
    world.store()
    with pytest.raises(InvalidGrant):
        world.guard.access(token)
    world.store(*stored)
    assert world.guard.access(token).client == "lamp"
    world.guard.look()
    assert world.ended == ["lamp"]


def test_a_key_that_goes_between_the_request_and_its_watch_ends_it(world: World):
    token = world.token("lamp")
    client = world.guard.access(token).client
    world.store()
    world.guard.watch(client, lambda: world.ended.append("lamp"))
    world.guard.look()
    assert world.ended == ["lamp"]


def test_rights_that_change_between_the_request_and_its_watch_end_it(world: World):
    token = world.token("lamp")
    client = world.guard.access(token).client
    world.other.clients.allow("lamp", Rights(frozenset({"query"})))
    world.guard.watch(client, lambda: world.ended.append("lamp"))
    world.guard.look()
    assert world.ended == ["lamp"]


def test_a_watch_that_begins_after_a_change_does_not_end_by_it(world: World):
    old = world.token("lamp")
    world.watch(old, "before")
    world.other.keys.rotate(forget=True)
    world.watch(world.token("lamp"), "after")
    world.guard.look()
    world.guard.look()
    assert world.ended == ["before"]


def test_a_new_key_ends_nothing(world: World):
    world.watch(world.token("lamp"))
    world.other.keys.rotate()
    world.guard.look()
    assert world.ended == []


def test_all_watches_of_a_client_end_although_each_cancels_itself(world: World):
    token = world.token("lamp")
    cancel = []
    for number in range(5):
        client = world.guard.access(token).client

        def revoked(number: int = number) -> None:
            cancel[number]()
            world.ended.append(str(number))

        cancel.append(world.guard.watch(client, revoked))
    world.watch(world.token("fan"), "fan")
    world.other.clients.revoke("lamp")
    world.guard.look()
    assert world.ended == ["0", "1", "2", "3", "4"]


def test_a_cancelled_watch_is_not_called_even_by_another_one(world: World):
    token = world.token("lamp")
    forgets = []

    def first() -> None:
        world.ended.append("first")
        forgets[1]()

    forgets.append(world.guard.watch(world.guard.access(token).client, first))
    forgets.append(world.guard.watch(world.guard.access(token).client, lambda: world.ended.append("second")))
    world.other.clients.revoke("lamp")
    world.guard.look()
    assert world.ended == ["first"]
    for forget in forgets:
        forget()
    assert not world.guard._watched


def test_a_watch_begins_again_from_the_call_that_ended_it(world: World):
    token = world.token("lamp")

    def revoked() -> None:
        world.ended.append("lamp")
        try:
            client = world.guard.access(token).client
        except EdgeError:
            return
        world.guard.watch(client, revoked)

    world.guard.watch(world.guard.access(token).client, revoked)
    world.other.clients.allow("lamp", Rights(frozenset({"query"})))
    world.guard.look()
    world.guard.look()
    assert world.ended == ["lamp"]
    world.other.clients.revoke("lamp")
    world.guard.look()
    assert world.ended == ["lamp", "lamp"]


def test_a_key_is_parsed_once(world: World, monkeypatch: pytest.MonkeyPatch):
    parsed = []
    real = keys_module.load_pem_private_key
    monkeypatch.setattr(keys_module, "load_pem_private_key", lambda *given: parsed.append(given) or real(*given))
    keys: Keys = world.security.keys
    for number in range(3):
        world.other.clients.allow(f"another-{number}", Rights())  # the file has another version
        assert world.guard.access(world.token("lamp")).client == "lamp"
    assert parsed == []
    world.other.keys.rotate()
    assert len(keys.ring) == 2
    assert len(parsed) == 1
