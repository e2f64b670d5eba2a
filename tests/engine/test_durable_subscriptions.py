"""Durable subscriptions: they continue after a restart at their last position."""

from __future__ import annotations

import contextlib
import itertools
import random
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from unittest import mock

import pytest
from durable_subscriptions_world import WAIT, KeptWorld, told
from generated_patterns import PREFIX
from story import Subscribe, Unsubscribe, Update, draw

from edge.engine.engine import Engine
from edge.engine.journal import sqlite_schema
from edge.engine.journal.data_directory import DataDirectoryRefused
from edge.engine.journal.journal import Journal
from edge.engine.queries.evaluator import Evaluator, World
from edge.engine.requests import Dataset, Notification, QueryRequest, UpdateRequest
from edge.engine.resume import durable_subscriptions, recovery
from edge.engine.resume.durable_subscriptions import repeatable
from edge.engine.start import make_engine, open_engine
from edge.engine.subscriptions.spu_manager import SpuManager
from edge.protocol.access import Access
from edge.protocol.errors import EdgeError
from tests.support.waiting import wait_for

STORIES = 60
VALUES = "SELECT ?v { ?s <urn:p> ?v }"


def put(value: int, subject: str = "urn:s") -> str:
    return f"INSERT DATA {{ <{subject}> <urn:p> {value} }}"


@pytest.fixture
def make(tmp_path: Path):
    worlds: list[KeptWorld] = []

    def make(**settings: object) -> KeptWorld:
        worlds.append(KeptWorld(tmp_path / f"world{len(worlds)}", **settings))
        return worlds[-1]

    yield make
    for world in worlds:
        world.stop()


@pytest.fixture
def boot(tmp_path: Path):
    """Write the file that distinguishes one start of the machine from the next."""
    file = tmp_path / "boot_id"
    file.write_text("first\n")
    with mock.patch.object(durable_subscriptions, "_BOOT_ID", file):
        yield file


@pytest.mark.timeout(300)
def test_whatever_happens_everybody_is_told_the_same_again(tmp_path: Path) -> None:
    """Stories of updates and subscriptions, interleaved with stops, kills and snapshots."""
    restored = 0
    for seed in range(STORIES):
        directory = tmp_path / str(seed)
        restored += _tell(seed, directory)
        shutil.rmtree(directory)
    assert restored > 10 * STORIES, "stories in which nobody goes on prove nothing"


def _tell(seed: int, directory: Path) -> int:
    """Run the story of a seed. Return the number of subscriptions that continued."""
    author = random.Random(seed)
    world = KeptWorld(directory, snapshot_min_bytes=author.choice([200, 600, 10**6]), snapshot_ratio=0.1)
    names, restored = {}, 0
    for step in draw(seed):
        if isinstance(step, Update):
            with contextlib.suppress(EdgeError):
                world.update(PREFIX + " ;\n".join(step.operations))
        elif isinstance(step, Subscribe):
            with contextlib.suppress(EdgeError):
                names[step.name] = world.subscribe(step.query)
        elif isinstance(step, Unsubscribe) and names.get(step.name) in world.followers.values():
            world.unsubscribe(names.pop(step.name))
        if not author.randrange(3):
            kill = bool(author.randrange(2))
            if kill:
                # all notifications are on disk with it
                world.update(f"INSERT DATA {{ <urn:x> <urn:y> {author.random()} }}")
            before = dict(world.followers)
            went_on = world.restart(kill=kill)
            restored += len(went_on)
            for spuid, follower in before.items():
                if spuid in went_on:
                    assert went_on[spuid].told == follower.told[-1][0], follower.request
                else:
                    assert not repeatable(follower.request.sparql, incremental=False), follower.request
        world.check()
    world.stop()
    return restored


@pytest.mark.parametrize("kill", [False, True])
def test_it_goes_on_with_the_next_number_under_the_same_name(make, kill):
    world = make()
    world.update(put(1))
    follower = world.subscribe(VALUES)
    world.update(put(2))
    one = world.restart(kill=kill)[follower.spuid]
    assert (one.request, one.variables, one.told) == (QueryRequest(VALUES), ("v",), 1)
    assert [told(notification) for notification in one.unread] == follower.told[1:]
    world.update("DELETE DATA { <urn:s> <urn:p> 1 }")
    assert [sequence for sequence, *_ in follower.told] == [0, 1, 2]
    world.check()
    world.unsubscribe(follower)
    assert world.restart() == {}


def test_what_changes_before_anybody_takes_over_is_told_too_and_nobody_can_have_had_it(make):
    world = make()
    follower = world.subscribe(VALUES)
    world.update(put(1))
    world.stop()
    world.scheduler = open_engine(world.directory, world.settings)
    world.update(put(2))
    (one,) = world.scheduler.take_over(lambda spuid: follower.items.append).result(WAIT)
    assert (one.told, [notification.sequence for notification in one.unread]) == (1, [1, 2])


def test_after_a_snapshot_it_goes_on_and_what_was_told_before_it_is_not_known(make):
    world = make(snapshot_min_bytes=2000, snapshot_ratio=0.1)
    early = world.subscribe(VALUES)
    for number in range(30):
        world.update(put(number))
    late = world.subscribe(VALUES)
    world.update(put(30))
    for _ in range(3):
        restored = world.restart(kill=True)
        assert (restored[early.spuid].told, restored[late.spuid].told) == (31, 1)
        assert 0 < len(restored[early.spuid].unread) < 31
        world.check()


def test_one_that_began_before_a_snapshot_that_stored_it_first_is_where_it_was(make):
    world = make(snapshot_min_bytes=10, snapshot_ratio=0.1)  # after each update
    for number in range(5):
        follower = world.subscribe(VALUES)
        world.update(put(number))
        world.update(put(number + 10))
        assert world.restart(kill=True)[follower.spuid].told == 2
        world.check()


def test_blank_nodes_keep_their_names(make):
    world = make()
    world.subscribe("SELECT ?s ?o { ?s <urn:knows> ?o }")
    world.update("INSERT DATA { _:a <urn:knows> [ <urn:knows> <urn:b> ] }")
    world.restart(kill=True)
    world.update("DELETE WHERE { ?s <urn:knows> <urn:b> }")
    world.check()


@pytest.mark.parametrize(
    "query",
    [
        "SELECT ?v ?t { ?s <urn:p> ?v BIND(NOW() AS ?t) }",
        "PREFIX f: <urn:sepa:function:> SELECT ?v { ?s <urn:p> ?v FILTER(?v < f:now()) }",
        "SELECT ?v ?r { ?s <urn:p> ?v BIND(RAND() AS ?r) }",
        "SELECT ?v ?u { ?s <urn:p> ?v BIND(STRUUID() AS ?u) }",
        "SELECT ?v { ?s <urn:p> ?v } LIMIT 2",
        "SELECT ?v { ?s <urn:p> ?v { SELECT ?v { ?s <urn:p> ?v } ORDER BY ?v OFFSET 1 } }",
        "SELECT (AVG(?v) AS ?mean) { ?s <urn:p>+ ?v }",
        "CONSTRUCT { [] <urn:of> ?v } WHERE { ?s <urn:p> ?v }",
        "CONSTRUCT { _:b <urn:of> ?v } WHERE { ?s <urn:p> ?v }",
    ],
)
def test_what_would_be_another_result_is_not_kept(make, query):
    world = make()
    world.update(put(1))
    world.subscribe(query)
    kept = world.subscribe(VALUES)
    world.update(put(2))
    assert list(world.restart()) == [kept.spuid]
    assert world.rows() == 1


@pytest.mark.parametrize(
    "query",
    [
        "SELECT (AVG(?v) AS ?mean) (SAMPLE(?s) AS ?some) { ?s <urn:p> ?v }",
        "SELECT ?v { ?s <urn:p>+ ?v }",
        "DESCRIBE ?s { ?s <urn:p> ?v }",
        "CONSTRUCT { ?s <urn:of> ?v } WHERE { ?s <urn:p> ?v FILTER(?v > 0) }",
        "ASK { ?limit <urn:p> 'NOW()', 2 }",
    ],
)
def test_what_has_one_result_is_kept(make, query):
    world = make()
    world.update(put(1))
    follower = world.subscribe(query)
    world.update(put(2))
    world.update("INSERT DATA { <urn:other> <urn:p> 'NOW()', 2 }")
    assert list(world.restart(kill=True)) == [follower.spuid]
    world.update(put(3))
    world.check()


def test_only_what_asks_for_it_is_kept_and_as_much_as_may_be_the_last_first(make):
    world = make(max_kept=2)
    followers = [world.subscribe(VALUES) for _ in range(4)]
    world.subscribe(VALUES, keep=False)
    assert list(world.restart()) == [follower.spuid for follower in followers[2:]]
    world.update(put(1))
    assert world.rows() == 2
    world.settings = replace(world.settings, max_kept=0)
    assert world.restart() == {}
    assert world.scheduler.subscriptions == 0
    world.update(put(2))
    assert world.rows() == 0


def test_the_rights_and_the_dataset_come_back_with_it(make):
    world = make()
    rights = {"read": frozenset({"urn:g", ""}), "write": frozenset[str](), "publish": frozenset({"a/#", "b"})}
    access = Access("client", frozenset({"subscribe"}), receive=frozenset({"#"}), registration="first", **rights)
    assert {"client", "actions", "receive", *rights} == {field.name for field in fields(Access) if field.compare}
    request = QueryRequest("SELECT ?v { GRAPH ?g { ?s <urn:p> ?v } }", Dataset(("urn:g",), ("urn:g", "urn:h")), access)
    items: list[Notification] = []
    world.scheduler.subscribe(request, items.append, keep=True).result(WAIT)
    world.update("INSERT DATA { GRAPH <urn:g> { <urn:s> <urn:p> 1 } GRAPH <urn:h> { <urn:s> <urn:p> 2 } }")
    assert [len(item.delta.added) for item in items] == [0, 1]
    world.stop()
    world.scheduler = open_engine(world.directory, world.settings)
    (one,) = world.scheduler.take_over(lambda spuid: items.append).result(WAIT)
    assert (one.request, one.request.access.registration, one.told) == (request, "first", 1)
    world.update("INSERT DATA { GRAPH <urn:g> { <urn:s> <urn:p> 3 } GRAPH <urn:h> { <urn:s> <urn:p> 4 } }")
    assert [len(item.delta.added) for item in items] == [0, 1, 1]


def test_one_whose_query_failed_is_over(make):
    world = make(max_solutions=10)
    follower, failing = world.subscribe(VALUES), world.subscribe("SELECT ?v { ?s <urn:p>+ ?v }")
    for number in range(12):
        world.update(put(number))
    assert not isinstance(failing.items[-1], Notification)
    assert list(world.restart(kill=True)) == [follower.spuid]


def test_with_other_rules_or_another_version_all_begin_anew(make):
    world = make()
    world.subscribe(VALUES)
    world.settings = replace(world.settings, base_iri="http://example.org/")
    assert world.restart() == {}
    follower = world.subscribe(VALUES)
    assert list(world.restart()) == [follower.spuid]
    with mock.patch.object(durable_subscriptions, "__version__", "another"):
        assert world.restart() == {}
        assert world.scheduler.subscriptions == 0
    world.update(put(1))
    assert world.rows() == 0


# Losses of a power cut


def test_with_interval_a_killed_process_has_lost_nothing(make, boot):
    world = make(durability="interval", flush_interval=3600)
    follower = world.subscribe(VALUES)
    world.update(put(1))
    for _ in range(2):
        assert world.restart(kill=True)[follower.spuid].told == 1
        world.update(put(2))
        world.update("DELETE DATA { <urn:s> <urn:p> 2 }")
        world.restart()
        follower = world.subscribe(VALUES)
        world.update("DELETE DATA { <urn:s> <urn:p> 1 }")


def test_with_interval_all_begin_anew_after_a_power_cut_but_not_after_a_stop(make, boot):
    world = make(durability="interval", flush_interval=3600)
    follower = world.subscribe(VALUES)
    world.update(put(1))
    boot.write_text("second")
    assert world.restart() != {}  # the gateway was stopped, and the machine later
    world.update(put(2))
    boot.write_text("third")
    assert world.restart(kill=True) == {}
    assert follower.told[-1][0] == 2
    follower = world.subscribe(VALUES)
    world.update(put(3))
    assert list(world.restart(kill=True)) == [follower.spuid]


def test_with_interval_what_is_told_after_a_stop_is_not_taken_for_durable(make, boot):
    """The power fails before any byte of the second run is written."""
    world = make(durability="interval", flush_interval=3600)
    world.subscribe(VALUES)
    world.update(put(1))
    assert world.restart() != {}
    boot.write_text("second")
    assert world.restart(kill=True) == {}


def test_with_commit_a_power_cut_has_lost_nothing(make, boot):
    world = make()
    follower = world.subscribe(VALUES)
    world.update(put(1))
    boot.write_text("second")
    assert world.restart(kill=True)[follower.spuid].told == 1


def test_what_was_told_with_interval_counts_as_such_when_the_setting_has_changed(make, boot):
    world = make(durability="interval")
    world.subscribe(VALUES)
    world.update(put(1))
    boot.write_text("second")
    world.settings = replace(world.settings, durability="commit")
    assert world.restart(kill=True) == {}


# Costs


def test_a_start_without_them_replays_nothing(make):
    world = make()
    world.subscribe(VALUES, keep=False)
    world.update(put(1))
    with mock.patch.object(Engine, "replay", side_effect=AssertionError("replayed")):
        assert world.restart() == {}


def test_nothing_is_replayed_from_before_they_began(make):
    world = make()
    for number in range(20):
        world.update(put(number))
    world.subscribe(VALUES)
    world.update(put(20))
    with mock.patch.object(Engine, "replay", autospec=True, side_effect=Engine.replay) as replayed:
        assert len(world.restart()) == 1
        assert replayed.call_count == 1


def test_nothing_is_written_for_what_is_told(make):
    world = make()
    follower = world.subscribe(VALUES)
    world.settle(1)
    with mock.patch.object(durable_subscriptions.DurableSubscriptions, "write", side_effect=AssertionError("written")):
        for number in range(10):
            world.update(put(number))
    assert follower.told[-1][0] == 10


def test_many_that_begin_at_once_are_one_commit_and_those_that_end_wait_for_another(make):
    world = make()
    with mock.patch.object(Journal, "commit", autospec=True, side_effect=Journal.commit) as commits:
        futures = [world.scheduler.subscribe(QueryRequest(VALUES), lambda _: None, keep=True) for _ in range(50)]
        spuids = [future.result(WAIT).spuid for future in futures]
        world.settle(50)
        assert commits.call_count < 20
        commits.reset_mock()
        for spuid in spuids:
            world.scheduler.unsubscribe(spuid).result(WAIT)
        assert commits.call_count == 0
        world.update(put(1))
        assert commits.call_count == 1
    assert world.rows() == 0


def test_the_start_waits_for_them_so_long_and_no_longer(tmp_path, make, caplog):
    world = make()
    world.subscribe(VALUES)
    for number in range(10):
        world.update(put(number))
    world.stop()
    journal = Journal.open(world.directory)
    table = durable_subscriptions.DurableSubscriptions(journal, make_engine(world.settings).rules, 10)
    engine = make_engine(world.settings)
    clock = itertools.count()
    assert len(recovery.Recovery(engine, journal, patience=5, clock=lambda: next(clock)).run(table.starts)) == 1
    assert (engine.spus.subscriptions, len(engine.graph)) == (0, 10)
    assert "subscriptions.given_up" in caplog.text
    journal.close()
    world._open()


def test_a_fault_with_one_costs_the_subscriptions_and_not_the_start(make, caplog):
    world = make()
    world.subscribe(VALUES)
    for number in range(3):
        world.update(put(number))
    with mock.patch("edge.engine.subscriptions.fault_isolation.DeltaEvaluation", side_effect=ZeroDivisionError):
        assert world.restart() == {}
    assert world.current(QueryRequest(VALUES)).total() == 3
    assert world.scheduler.subscriptions == 0


def test_of_what_was_told_the_last_rows_are_known_again(make):
    world = make()
    followers = [world.subscribe(VALUES) for _ in range(2)]
    for number in range(10):
        world.update(put(number))
    with mock.patch.object(recovery, "MOST_ROWS", 12):
        for one in world.restart().values():
            assert [notification.sequence for notification in one.unread] == [8, 9, 10]
    world.update(put(10))
    assert [follower.told[-1][0] for follower in followers] == [11, 11]


def test_a_disk_that_has_no_room_for_it_harms_nobody(make):
    world = make()
    with mock.patch.object(Journal, "_transaction", side_effect=sqlite3.OperationalError("disk is full")):
        follower = world.subscribe(VALUES)
        with pytest.raises(EdgeError):
            world.update(put(1))
    assert world.rows() == 0
    world.update(put(2))
    assert world.rows() == 1
    assert world.restart(kill=True)[follower.spuid].told == 1
    world.check()


# Content of the disk


def test_damage_is_noticed(make):
    world = make()
    world.subscribe(VALUES)
    world.update(put(1))
    world.stop()
    for statement, said in (
        ("UPDATE subscriptions SET began = 1", "the subscription 1 fails its checksum"),
        (
            "INSERT INTO subscription_sequences VALUES (1, 5, 5)",
            "the last notification of the subscription 1 fails its checksum",
        ),
        ("UPDATE meta SET value = '5' WHERE name = 'subscriptions'", "the origin of the subscriptions cannot be read"),
    ):
        damaged = world.directory.with_name("damaged")
        shutil.copytree(world.directory, damaged)
        with contextlib.closing(sqlite3.connect(damaged / sqlite_schema.FILE_NAME, isolation_level=None)) as connection:
            connection.execute(statement)
        with pytest.raises(DataDirectoryRefused, match=said):
            open_engine(damaged, world.settings)
        shutil.rmtree(damaged)
    world._open()


@pytest.mark.parametrize("version", range(1, 4))
def test_a_file_of_an_older_format_is_read_and_can_keep_them_from_then_on(make, version):
    world = make()
    path = world.directory.with_name("old") / sqlite_schema.FILE_NAME
    path.parent.mkdir()
    with mock.patch.object(sqlite_schema, "SCHEMA", sqlite_schema.SCHEMA[:version]):
        sqlite_schema.create(path, "commit")
    world.stop()
    world.directory = path.parent
    world._open()
    follower = world.subscribe(VALUES)
    assert list(world.restart()) == [follower.spuid]


# Re-evaluated subscriptions, which may skip states


@contextlib.contextmanager
def holding_evaluations() -> Iterator[None]:
    """Evaluations that start meanwhile do not read a state before it ends."""
    door = threading.Event()
    read = World.read

    def wait_and_read(self: World, evaluator: Evaluator, now: int) -> object:
        assert door.wait(WAIT)
        return read(self, evaluator, now)

    with mock.patch.object(World, "read", wait_and_read):
        try:
            yield
        finally:
            door.set()


CLOSURE = "SELECT ?v { ?s <urn:p>+ ?v }"


def test_a_change_whose_position_was_not_written_is_told_once_after_a_kill(make):
    """One change since the position on disk: the client can have received only one notification."""
    world = make()
    follower = world.subscribe(CLOSURE)
    world.update(put(1))
    world.update(put(2))  # the commit writes the position of 1, not its own
    restored = world.restart(kill=True)[follower.spuid]
    assert (restored.told, follower.told[-1][0]) == (2, 2)
    world.check()
    world.update(put(3))
    assert [sequence for sequence, *_ in follower.told] == [0, 1, 2, 3]
    world.check()


def test_after_a_kill_one_whose_notifications_may_have_been_merged_begins_anew(make):
    """Two changes in one commit interval: it is unknown whether the client received one notification or two."""
    world = make()
    follower, other = world.subscribe(CLOSURE), world.subscribe(VALUES)
    world.update(put(1))
    with holding_evaluations():
        world.scheduler.update([UpdateRequest(put(2))]).result(WAIT)
        world.scheduler.update([UpdateRequest(put(3))]).result(WAIT)
    world.evaluate()
    assert follower.told[-1][0] == 2
    assert list(world.restart(kill=True)) == [other.spuid]


def test_after_a_stop_one_whose_notifications_were_merged_goes_on(make):
    world = make()
    follower = world.subscribe(CLOSURE)
    with holding_evaluations():
        world.scheduler.update([UpdateRequest(put(2))]).result(WAIT)
        world.scheduler.update([UpdateRequest(put(3))]).result(WAIT)
    world.evaluate()
    assert [sequence for sequence, *_ in follower.told] == [0, 1]
    assert world.restart()[follower.spuid].told == 1
    world.update(put(4))
    assert [sequence for sequence, *_ in follower.told] == [0, 1, 2]
    world.check()


def test_a_snapshot_that_comes_while_one_is_evaluated_is_followed_by_its_position(make):
    world = make(snapshot_min_bytes=1, snapshot_ratio=0.001)  # after each update
    follower = world.subscribe(CLOSURE)
    world.update(put(1))
    with holding_evaluations():
        world.scheduler.update([UpdateRequest(put(2))]).result(WAIT)
        world.scheduler.on_writer(lambda: None).result(WAIT)
    world.evaluate()
    assert world.restart(kill=True)[follower.spuid].told == follower.told[-1][0] == 2
    world.update(put(3))
    world.check()


def test_one_whose_position_is_older_than_the_snapshot_begins_anew(make):
    world = make(snapshot_min_bytes=1, snapshot_ratio=0.001)
    world.subscribe(CLOSURE)
    other = world.subscribe(VALUES)
    spus = world.scheduler._engine.spus
    with mock.patch.object(spus, "caught_up"), mock.patch.object(SpuManager, "is_current", return_value=False):
        world.update(put(1))
        journal = world.scheduler._journal
        wait_for(lambda: journal.snapshot_sequence == journal.sequence)
    assert list(world.restart(kill=True)) == [other.spuid]
    world.update(put(2))
    assert world.rows() == 1
