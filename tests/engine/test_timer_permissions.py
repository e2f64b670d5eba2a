"""Owners of delayed updates: who can list and cancel them, and the permissions with which they run."""

from __future__ import annotations

import contextlib
import sqlite3
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from timer_machine import WAIT, Box, after

from edge.engine.journal import sqlite_schema
from edge.engine.journal.data_directory import DataDirectoryRefused
from edge.engine.journal.sqlite_schema import SCHEMA
from edge.engine.requests import QueryRequest, UpdateRequest
from edge.protocol.access import ACTIONS, ANYBODY, Access
from edge.protocol.errors import Forbidden, InvalidClient, NotFound, StorageFailed, TooManyRequests
from tests.support.examples import examples

MINE, THEIRS = "urn:g:mine", "urn:g:theirs"
LAMP = Access("lamp", frozenset({"update"}), frozenset({MINE}), frozenset({MINE}), registration="r1")
DOOR = Access("door", frozenset({"update"}), registration="r2")
OPERATOR = Access("operator", ACTIONS, registration="r3")


def write(graph: str) -> str:
    return f"INSERT DATA {{ GRAPH <{graph}> {{ <a:s> <a:p> 1 }} }}"


def schedule(box: Box, access: Access, text: str = write(MINE), name: str = "t", seconds: float = 10) -> None:
    box.engine.schedule(UpdateRequest(text, access=access), after(seconds), name).result(WAIT)


def graphs(box: Box) -> set[str]:
    found = box.engine.query(QueryRequest("SELECT DISTINCT ?g { GRAPH ?g { ?s ?p ?o } }")).result(WAIT)
    return {row[0].value for row in found.rows}


def became(box: Box, access: Access, name: str = "t") -> tuple[str, str | None]:
    timer = box.engine.timer(name, access).result(WAIT)
    return timer.state, timer.error


@pytest.mark.parametrize("restart", [False, True], ids=["at once", "after a restart"])
@pytest.mark.integration
def test_a_delayed_update_runs_with_the_rights_of_its_client(box, restart):
    schedule(box, LAMP, write(MINE), "mine")
    schedule(box, LAMP, write(THEIRS), "theirs")
    schedule(box, LAMP, "CLEAR ALL", "all")
    schedule(
        box, LAMP, f"INSERT {{ GRAPH <{MINE}> {{ ?s ?p 2 }} }} WHERE {{ GRAPH <{THEIRS}> {{ ?s ?p ?o }} }}", "copy"
    )
    box.update(write(THEIRS).replace("1", "'secret'"))
    if restart:
        box.restart()
    box.advance(10)
    assert graphs(box) == {MINE, THEIRS}
    assert became(box, LAMP, "mine") == ("done", None)
    assert became(box, LAMP, "theirs") == became(box, LAMP, "all") == ("failed", "forbidden")
    assert became(box, LAMP, "copy") == ("unchanged", None)  # invisible timers count as not found


def test_rights_that_shrank_count_and_rights_that_grew_do_not(box):
    def everything_now(before: Access) -> Access:
        return Access(before.client, registration=before.registration).narrowed(before)

    schedule(box, LAMP, write(THEIRS), "grew")
    schedule(box, DOOR, write(THEIRS), "shrank", seconds=20)
    box.rights = everything_now
    box.advance(10)
    assert became(box, LAMP, "grew") == ("failed", "forbidden")
    box.rights = lambda before: replace(LAMP, registration=before.registration).narrowed(before)
    box.advance(10)
    assert became(box, DOOR, "shrank") == ("failed", "forbidden")
    assert graphs(box) == set()


def test_a_delayed_update_of_a_client_without_rights_fails_with_the_reason(box):
    def revoked(before: Access) -> Access:
        raise InvalidClient(f"{before.client} was revoked")

    schedule(box, LAMP)
    schedule(box, ANYBODY, write(THEIRS))
    box.stop()
    box.rights = revoked
    box.clock.advance(10)
    box.start()
    assert became(box, LAMP) == ("failed", "invalid_client")
    assert box.engine.timer("t", LAMP).result(WAIT).error_description == "lamp was revoked"
    assert graphs(box) == {THEIRS}  # scheduled without security, it needs no permissions


def test_a_delayed_update_waits_while_the_rights_are_unknown(box):
    def unreadable(before: Access) -> Access:
        raise StorageFailed("the disk is gone")

    schedule(box, LAMP)
    box.rights = unreadable
    box.advance(10)
    box.advance(10)
    assert became(box, LAMP) == ("pending", None)
    box.rights = lambda before: before
    box.advance(2)
    assert became(box, LAMP) == ("done", None)


def test_each_client_has_ids_of_its_own(box):
    schedule(box, LAMP, write(MINE))
    received = box.engine.schedule(UpdateRequest(write(THEIRS), access=DOOR), after(20), "t").result(WAIT)
    assert not received.replaced
    assert box.engine.timer("t", LAMP).result(WAIT).sparql == write(MINE)
    assert box.engine.timer("t", DOOR).result(WAIT).sparql == write(THEIRS)
    box.engine.cancel("t", DOOR).result(WAIT)
    assert (became(box, LAMP)[0], became(box, DOOR)[0]) == ("pending", "cancelled")
    with pytest.raises(NotFound):
        box.engine.timer("t").result(WAIT)


@pytest.mark.parametrize("ended", [False, True], ids=["pending", "ended"])
def test_a_delayed_update_of_another_client_looks_nonexistent(box, ended):
    schedule(box, LAMP, name="mine")
    if ended:
        box.advance(10)
    for name in ("mine", "none"):
        with pytest.raises(NotFound) as looked:
            box.engine.timer(name, DOOR).result(WAIT)
        with pytest.raises(NotFound) as cancelled:
            box.engine.cancel(name, DOOR).result(WAIT)
        assert str(looked.value).replace(name, "*") == str(cancelled.value).replace(name, "*").replace(
            "is pending", "is known"
        )
        for client in ("lamp", "nobody"):
            with pytest.raises(Forbidden):
                box.engine.timer(name, DOOR, client).result(WAIT)
            with pytest.raises(Forbidden):
                box.engine.cancel(name, DOOR, client).result(WAIT)
    assert box.engine.timers(who=DOOR).result(WAIT) == []
    assert [timer.id for timer in box.engine.timers(who=LAMP).result(WAIT)] == ["mine"]


def test_an_administrator_lists_and_cancels_all_delayed_updates(box):
    schedule(box, LAMP)
    schedule(box, DOOR, seconds=20)
    schedule(box, ANYBODY, name="without", seconds=30)
    listed = box.engine.timers(who=OPERATOR).result(WAIT)
    assert [(timer.id, timer.client) for timer in listed] == [("t", "lamp"), ("t", "door"), ("without", "")]
    with pytest.raises(NotFound):
        box.engine.cancel("t", OPERATOR).result(WAIT)
    box.engine.cancel("t", OPERATOR, "door").result(WAIT)
    assert box.engine.timer("t", OPERATOR, "door").result(WAIT).state == "cancelled"
    assert box.engine.timer("t", OPERATOR, "lamp").result(WAIT).state == "pending"
    assert box.engine.timer("without", OPERATOR, "").result(WAIT).state == "pending"
    schedule(box, OPERATOR)
    for ask in (box.engine.timer, box.engine.cancel):
        with pytest.raises(NotFound):
            ask("t", OPERATOR, "nobody").result(WAIT)
    assert box.engine.timer("t", OPERATOR).result(WAIT).state == "pending"


def test_a_later_client_of_the_same_name_is_a_different_client(box):
    schedule(box, LAMP)
    later = replace(LAMP, registration="r9")
    assert box.engine.timers(who=later).result(WAIT) == []
    schedule(box, later, seconds=20)
    box.restart()
    assert [timer.at for timer in box.engine.timers(who=later).result(WAIT)] != [
        timer.at for timer in box.engine.timers(who=LAMP).result(WAIT)
    ]


CLIENTS = [ANYBODY, LAMP, replace(DOOR, registration="r1 t"), replace(DOOR, client="t", registration="t")]


@settings(max_examples=examples(12), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["schedule", "cancel", "advance", "restart"]),
            st.integers(0, len(CLIENTS) - 1),
            st.sampled_from(["t", "r1", "t t"]),
        ),
        min_size=3,
        max_size=10,
    )
)
def test_other_clients_cannot_change_a_delayed_update(tmp_path_factory, story):
    """Sent to one engine with all clients, and for each client to one without other clients."""
    together = Box(tmp_path_factory.mktemp("all"))
    alone = {number: Box(tmp_path_factory.mktemp("one")) for number in range(len(CLIENTS))}
    try:
        for step, number, name in story:
            for box in (together, *alone.values()):
                if step in ("schedule", "cancel") and box not in (together, alone[number]):
                    continue
                if step == "schedule":
                    schedule(box, CLIENTS[number], write(MINE).replace("a:s", f"a:{number}"), name)
                elif step == "cancel":
                    with contextlib.suppress(NotFound):
                        box.engine.cancel(name, CLIENTS[number]).result(WAIT)
                elif step == "advance":
                    box.advance(4)
                else:
                    box.restart()
        for number, box in alone.items():
            who = replace(CLIENTS[number], actions=frozenset({"update"}))
            seen, expected = (
                {(t.id, t.state, t.at, t.client) for t in one.engine.timers(who=who).result(WAIT)}
                for one in (together, box)
            )
            assert seen == expected
    finally:
        for box in (together, *alone.values()):
            box.stop()


def test_a_file_of_the_format_before_is_read_and_its_updates_are_run(box, tmp_path):
    """Written by hand in the format of version 2: without owner and permissions."""
    schedule(box, ANYBODY, write(THEIRS))
    box.stop()
    path = tmp_path / "data" / sqlite_schema.FILE_NAME
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for table in ("timers", "timer_outcomes"):
            connection.execute(f"ALTER TABLE {table} RENAME TO old_{table}")
        connection.executescript(SCHEMA[1])
        columns = "number, id, due, relative, since, scheduled, body, crc"
        connection.execute(f"INSERT INTO timers SELECT {columns} FROM old_timers")
        with contextlib.closing(sqlite3.connect(":memory:")) as model:
            model.executescript("".join(SCHEMA[:2]))
            known = {name for (name,) in model.execute("SELECT name FROM sqlite_schema")}
        for (table,) in list(connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")):
            if table not in known:
                connection.execute(f"DROP TABLE {table}")
        connection.execute("PRAGMA user_version = 2")
    box.clock.advance(10)
    box.start()
    assert became(box, ANYBODY) == ("done", None)
    assert graphs(box) == {THEIRS}


@pytest.mark.parametrize(
    "damage",
    [
        "owner = ''",
        "owner = 'r2'",
        "body = CAST(replace(CAST(body AS TEXT), 'urn:g:mine', 'urn:g:xxxx') AS BLOB)",
    ],
    ids=["nobody's", "another's", "other rights"],
)
def test_rights_that_are_damaged_on_the_disk_are_noticed(box, tmp_path, damage):
    schedule(box, LAMP)
    box.stop()
    with contextlib.closing(sqlite3.connect(tmp_path / "data" / sqlite_schema.FILE_NAME)) as connection:
        connection.execute(f"UPDATE timers SET {damage}")
        connection.commit()
    with pytest.raises(DataDirectoryRefused, match="fails its checksum"):
        box.start()
    with contextlib.closing(sqlite3.connect(tmp_path / "data" / sqlite_schema.FILE_NAME)) as connection:
        connection.execute("DELETE FROM timers")
        connection.commit()
    box.start()


@pytest.mark.parametrize("restart", [False, True], ids=["at once", "after a restart"])
def test_one_client_gets_at_most_half_of_the_free_slots(make_box, restart):
    box = make_box(max_pending_timers=8)
    for number in range(4):
        schedule(box, LAMP, name=str(number))
    if restart:
        box.restart()
    with pytest.raises(TooManyRequests, match="4 of them of this client"):
        schedule(box, LAMP, name="one too many")
    schedule(box, LAMP, name="0")  # in place of another one
    for number in range(2):
        schedule(box, DOOR, name=str(number))
    with pytest.raises(TooManyRequests):
        schedule(box, DOOR, name="one too many")
    box.engine.cancel("0", LAMP).result(WAIT)
    schedule(box, DOOR, name="2")
    box.advance(10)
    for number in range(4):
        schedule(box, DOOR, name=str(number))
