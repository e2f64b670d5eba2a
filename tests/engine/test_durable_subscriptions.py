"""Durable subscriptions: they continue after a restart at their last position."""

from __future__ import annotations

import contextlib
import itertools
import random
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from unittest import mock

import pytest
from durable_subscriptions_world import WAIT, KeptWorld, received
from generated_patterns import PREFIX
from story import Subscribe, Unsubscribe, Update, draw

from edge.engine.engine import Engine
from edge.engine.journal import sqlite_schema
from edge.engine.journal.data_directory import DataDirectoryRefused
from edge.engine.journal.journal import Journal
from edge.engine.queries.evaluator import Evaluator, World
from edge.engine.requests import Dataset, QueryRequest, SubscriberNotification, UpdateRequest
from edge.engine.resume import durable_subscriptions, recovery
from edge.engine.resume.durable_subscriptions import repeatable
from edge.engine.start import make_engine, open_engine
from edge.engine.subscriptions.spu_registry import SpuRegistry
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
def test_every_restart_repeats_the_same_notifications(tmp_path: Path) -> None:
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
                    assert went_on[spuid].last_sequence == follower.received[-1][0], follower.request
                else:
                    assert not repeatable(follower.request.sparql, incremental=False), follower.request
        world.check()
    world.stop()
    return restored


@pytest.mark.parametrize("kill", [False, True])
def test_a_durable_subscription_continues_with_the_next_sequence_and_the_same_spuid(make, kill):
    world = make()
    world.update(put(1))
    follower = world.subscribe(VALUES)
    world.update(put(2))
    one = world.restart(kill=kill)[follower.spuid]
    assert (one.request, one.variables, one.last_sequence) == (QueryRequest(VALUES), ("v",), 1)
    assert [received(notification) for notification in one.unread] == follower.received[1:]
    world.update("DELETE DATA { <urn:s> <urn:p> 1 }")
    assert [sequence for sequence, *_ in follower.received] == [0, 1, 2]
    world.check()
    world.unsubscribe(follower)
    assert world.restart() == {}


def test_changes_before_the_take_over_are_notified(make):
    world = make()
    follower = world.subscribe(VALUES)
    world.update(put(1))
    world.stop()
    world.scheduler = open_engine(world.directory, world.settings, max_durable=1000)
    world.update(put(2))
    (one,) = world.scheduler.take_over(lambda spuid: follower.items.append).result(WAIT)
    assert (one.last_sequence, [notification.sequence for notification in one.unread]) == (1, [1, 2])


def test_a_subscription_continues_after_a_snapshot_without_earlier_notifications(make):
    world = make(snapshot_min_bytes=2000, snapshot_ratio=0.1)
    early = world.subscribe(VALUES)
    for number in range(30):
        world.update(put(number))
    late = world.subscribe(VALUES)
    world.update(put(30))
    for _ in range(3):
        restored = world.restart(kill=True)
        assert (restored[early.spuid].last_sequence, restored[late.spuid].last_sequence) == (31, 1)
        assert 0 < len(restored[early.spuid].unread) < 31
        world.check()


def test_a_subscription_first_stored_by_a_snapshot_keeps_its_sequence(make):
    world = make(snapshot_min_bytes=10, snapshot_ratio=0.1)  # after each update
    for number in range(5):
        follower = world.subscribe(VALUES)
        world.update(put(number))
        world.update(put(number + 10))
        assert world.restart(kill=True)[follower.spuid].last_sequence == 2
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
def test_a_query_with_a_nondeterministic_result_is_not_durable(make, query):
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
def test_a_query_with_a_deterministic_result_is_durable(make, query):
    world = make()
    world.update(put(1))
    follower = world.subscribe(query)
    world.update(put(2))
    world.update("INSERT DATA { <urn:other> <urn:p> 'NOW()', 2 }")
    assert list(world.restart(kill=True)) == [follower.spuid]
    world.update(put(3))
    world.check()


def test_only_requested_subscriptions_are_durable_up_to_the_limit(make):
    world = make(max_durable=2)
    followers = [world.subscribe(VALUES) for _ in range(4)]
    world.subscribe(VALUES, keep=False)
    assert list(world.restart()) == [follower.spuid for follower in followers[2:]]
    world.update(put(1))
    assert world.rows() == 2
    world.max_durable = 0
    assert world.restart() == {}
    assert world.scheduler.subscriptions == 0
    world.update(put(2))
    assert world.rows() == 0


def test_rights_and_dataset_are_restored(make):
    world = make()
    rights = {"read": frozenset({"urn:g", ""}), "write": frozenset[str](), "publish": frozenset({"a/#", "b"})}
    access = Access("client", frozenset({"subscribe"}), receive=frozenset({"#"}), registration="first", **rights)
    assert {"client", "actions", "receive", *rights} == {field.name for field in fields(Access) if field.compare}
    request = QueryRequest("SELECT ?v { GRAPH ?g { ?s <urn:p> ?v } }", Dataset(("urn:g",), ("urn:g", "urn:h")), access)
    items: list[SubscriberNotification] = []
    world.scheduler.subscribe(request, items.append, keep=True).result(WAIT)
    world.update("INSERT DATA { GRAPH <urn:g> { <urn:s> <urn:p> 1 } GRAPH <urn:h> { <urn:s> <urn:p> 2 } }")
    assert [len(item.delta.added) for item in items] == [0, 1]
    world.stop()
    world.scheduler = open_engine(world.directory, world.settings, max_durable=1000)
    (one,) = world.scheduler.take_over(lambda spuid: items.append).result(WAIT)
    assert (one.request, one.request.access.registration, one.last_sequence) == (request, "first", 1)
    world.update("INSERT DATA { GRAPH <urn:g> { <urn:s> <urn:p> 3 } GRAPH <urn:h> { <urn:s> <urn:p> 4 } }")
    assert [len(item.delta.added) for item in items] == [0, 1, 1]


def test_a_subscription_whose_query_failed_has_ended(make):
    world = make(max_query_memory=512 * 10)
    follower, failing = world.subscribe(VALUES), world.subscribe("SELECT ?v { ?s <urn:p>+ ?v }")
    for number in range(12):
        world.update(put(number))
    assert not isinstance(failing.items[-1], SubscriberNotification)
    assert list(world.restart(kill=True)) == [follower.spuid]


def test_other_rules_or_versions_end_all_durable_subscriptions(make):
    world = make()
    world.subscribe(VALUES)
    world.settings = world.settings.model_copy(update={"base_iri": "http://example.org/"})
    assert world.restart() == {}
    follower = world.subscribe(VALUES)
    assert list(world.restart()) == [follower.spuid]
    with mock.patch.object(durable_subscriptions, "__version__", "another"):
        assert world.restart() == {}
        assert world.scheduler.subscriptions == 0
    world.update(put(1))
    assert world.rows() == 0


# Losses of a power cut


def test_a_killed_process_loses_nothing_with_interval(make, boot):
    world = make(durability="interval", flush_interval=3600)
    follower = world.subscribe(VALUES)
    world.update(put(1))
    for _ in range(2):
        assert world.restart(kill=True)[follower.spuid].last_sequence == 1
        world.update(put(2))
        world.update("DELETE DATA { <urn:s> <urn:p> 2 }")
        world.restart()
        follower = world.subscribe(VALUES)
        world.update("DELETE DATA { <urn:s> <urn:p> 1 }")


def test_a_power_cut_ends_durable_subscriptions_with_interval(make, boot):
    world = make(durability="interval", flush_interval=3600)
    follower = world.subscribe(VALUES)
    world.update(put(1))
    boot.write_text("second")
    assert world.restart() != {}  # the gateway was stopped, and the machine later
    world.update(put(2))
    boot.write_text("third")
    assert world.restart(kill=True) == {}
    assert follower.received[-1][0] == 2
    follower = world.subscribe(VALUES)
    world.update(put(3))
    assert list(world.restart(kill=True)) == [follower.spuid]


def test_notifications_after_a_stop_are_not_durable_with_interval(make, boot):
    """The power fails before any byte of the second run is written."""
    world = make(durability="interval", flush_interval=3600)
    world.subscribe(VALUES)
    world.update(put(1))
    assert world.restart() != {}
    boot.write_text("second")
    assert world.restart(kill=True) == {}


def test_a_power_cut_loses_nothing_with_commit(make, boot):
    world = make()
    follower = world.subscribe(VALUES)
    world.update(put(1))
    boot.write_text("second")
    assert world.restart(kill=True)[follower.spuid].last_sequence == 1


def test_earlier_notifications_with_interval_keep_their_durability(make, boot):
    world = make(durability="interval")
    world.subscribe(VALUES)
    world.update(put(1))
    boot.write_text("second")
    world.settings = world.settings.model_copy(update={"durability": "commit"})
    assert world.restart(kill=True) == {}


# Costs


def test_a_start_without_durable_subscriptions_replays_nothing(make):
    world = make()
    world.subscribe(VALUES, keep=False)
    world.update(put(1))
    with mock.patch.object(Engine, "replay", side_effect=AssertionError("replayed")):
        assert world.restart() == {}


def test_the_replay_begins_with_the_first_subscription(make):
    world = make()
    for number in range(20):
        world.update(put(number))
    world.subscribe(VALUES)
    world.update(put(20))
    with mock.patch.object(Engine, "replay", autospec=True, side_effect=Engine.replay) as replayed:
        assert len(world.restart()) == 1
        assert replayed.call_count == 1


def test_notifications_write_nothing_to_disk(make):
    world = make()
    follower = world.subscribe(VALUES)
    world.settle(1)
    with mock.patch.object(durable_subscriptions.DurableSubscriptions, "write", side_effect=AssertionError("written")):
        for number in range(10):
            world.update(put(number))
    assert follower.received[-1][0] == 10


def test_many_new_subscriptions_share_one_commit(make):
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


def test_the_start_waits_for_the_replay_up_to_its_limit(tmp_path, make, caplog):
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


def test_an_error_in_the_replay_ends_subscriptions_but_not_the_start(make, caplog):
    world = make()
    world.subscribe(VALUES)
    for number in range(3):
        world.update(put(number))
    with mock.patch("edge.engine.subscriptions.fault_isolation.DeltaEvaluation", side_effect=ZeroDivisionError):
        assert world.restart() == {}
    assert world.current(QueryRequest(VALUES)).total() == 3
    assert world.scheduler.subscriptions == 0


def test_the_last_notified_rows_are_restored(make):
    world = make()
    followers = [world.subscribe(VALUES) for _ in range(2)]
    for number in range(10):
        world.update(put(number))
    with mock.patch.object(recovery, "MOST_ROWS", 12):
        for one in world.restart().values():
            assert [notification.sequence for notification in one.unread] == [8, 9, 10]
    world.update(put(10))
    assert [follower.received[-1][0] for follower in followers] == [11, 11]


def test_a_full_disk_ends_no_subscription(make):
    world = make()
    with mock.patch.object(Journal, "_begin", side_effect=sqlite3.OperationalError("disk is full")):
        follower = world.subscribe(VALUES)
        with pytest.raises(EdgeError):
            world.update(put(1))
    assert world.rows() == 0
    world.update(put(2))
    assert world.rows() == 1
    assert world.restart(kill=True)[follower.spuid].last_sequence == 1
    world.check()


# Content of the disk


def test_damaged_durable_subscription_is_detected(make):
    world = make()
    world.subscribe(VALUES)
    world.update(put(1))
    world.stop()
    for statement, expected_message in (
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
        with pytest.raises(DataDirectoryRefused, match=expected_message):
            open_engine(damaged, world.settings, max_durable=1000)
        shutil.rmtree(damaged)
    world._open()


@pytest.mark.parametrize("version", range(1, 4))
def test_a_file_of_an_older_format_is_read_and_upgraded(make, version):
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


def test_a_change_without_a_stored_position_is_notified_once_after_a_kill(make):
    """One change since the position on disk: the client can have received only one notification."""
    world = make()
    follower = world.subscribe(CLOSURE)
    world.update(put(1))
    world.update(put(2))  # the commit writes the position of 1, not its own
    restored = world.restart(kill=True)[follower.spuid]
    assert (restored.last_sequence, follower.received[-1][0]) == (2, 2)
    world.check()
    world.update(put(3))
    assert [sequence for sequence, *_ in follower.received] == [0, 1, 2, 3]
    world.check()


def test_a_kill_ends_a_subscription_with_possibly_merged_notifications(make):
    """Two changes in one commit interval: it is unknown whether the client received one notification or two."""
    world = make()
    follower, other = world.subscribe(CLOSURE), world.subscribe(VALUES)
    world.update(put(1))
    with holding_evaluations():
        world.scheduler.update([UpdateRequest(put(2))]).result(WAIT)
        world.scheduler.update([UpdateRequest(put(3))]).result(WAIT)
    world.evaluate()
    assert follower.received[-1][0] == 2
    assert list(world.restart(kill=True)) == [other.spuid]


def test_a_subscription_with_merged_notifications_continues_after_a_stop(make):
    world = make()
    follower = world.subscribe(CLOSURE)
    with holding_evaluations():
        world.scheduler.update([UpdateRequest(put(2))]).result(WAIT)
        world.scheduler.update([UpdateRequest(put(3))]).result(WAIT)
    world.evaluate()
    assert [sequence for sequence, *_ in follower.received] == [0, 1]
    assert world.restart()[follower.spuid].last_sequence == 1
    world.update(put(4))
    assert [sequence for sequence, *_ in follower.received] == [0, 1, 2]
    world.check()


def test_a_snapshot_that_comes_while_one_is_evaluated_is_followed_by_its_position(make):
    world = make(snapshot_min_bytes=1, snapshot_ratio=0.001)  # after each update
    follower = world.subscribe(CLOSURE)
    world.update(put(1))
    with holding_evaluations():
        world.scheduler.update([UpdateRequest(put(2))]).result(WAIT)
        world.scheduler.on_writer(lambda: None).result(WAIT)
    world.evaluate()
    assert world.restart(kill=True)[follower.spuid].last_sequence == follower.received[-1][0] == 2
    world.update(put(3))
    world.check()


def test_a_position_older_than_the_snapshot_restarts_the_subscription(make):
    world = make(snapshot_min_bytes=1, snapshot_ratio=0.001)
    world.subscribe(CLOSURE)
    other = world.subscribe(VALUES)
    spus = world.scheduler._engine.spus
    with (
        mock.patch.object(spus.reevaluated, "caught_up"),
        mock.patch.object(SpuRegistry, "is_current", return_value=False),
    ):
        world.update(put(1))
        journal = world.scheduler._journal
        wait_for(lambda: journal.snapshot_sequence == journal.sequence)
    assert list(world.restart(kill=True)) == [other.spuid]
    world.update(put(2))
    assert world.rows() == 1
