"""Delayed updates: they run once, at their time, over all changes of the clock and restarts."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from typing import Any

import pyoxigraph as ox
import pytest
from fake_clock import SECOND, START
from hypothesis import given, settings
from hypothesis import strategies as st
from timer_machine import WAIT, Box, after, at, insert

from edge.engine.journal.data_directory import DataDirectoryRefused
from edge.engine.requests import (
    Dataset,
    QueryRequest,
    SubscribeFailed,
    SubscriberNotification,
    UpdateRequest,
)
from edge.protocol.access import Access
from edge.protocol.due_time import After
from edge.protocol.errors import NotFound, ParsingFailed, StorageFailed, TooManyRequests
from edge.protocol.timers import TimerRecord
from tests.support.examples import examples

# Execution


@pytest.mark.parametrize("when", [after(30), at(30)], ids=["after", "at"])
def test_a_delayed_update_runs_at_its_time_and_not_before(box, when):
    scheduled = box.schedule(1, when)
    assert scheduled.at == START + 30 * SECOND
    box.advance(29.999999)
    assert box.values() == []
    box.advance(0.000001)
    assert box.values() == [1]
    assert box.timer(scheduled.id) == TimerRecord(
        scheduled.id, "done", scheduled.at, START, finished=START + 30 * SECOND, added=1
    )


def test_a_time_in_the_past_means_now(box):
    box.schedule(1, at(-5))
    box.schedule(2, after(0))
    box.settle()
    assert box.values() == [1, 2]


def test_due_updates_run_in_the_order_of_their_times(box):
    text = "DELETE {{ <a:s> <a:p> ?o }} INSERT {{ <a:s> <a:p> {} }} WHERE {{ OPTIONAL {{ <a:s> <a:p> ?o }} }}"
    for value, when in ((2, after(20)), (3, at(30)), (1, at(10)), (4, after(30))):
        box.engine.schedule(UpdateRequest(text.format(value)), when).result(WAIT)
    box.clock.advance(100)
    received: list[Any] = []
    box.engine.subscribe(QueryRequest("SELECT ?o { ?s <a:p> ?o }"), received.append).result(WAIT)
    box.settle()
    # At 30 seconds, the update that was scheduled first came first.
    assert [int(row[0].value) for item in received for row in item.delta.added] == [1, 2, 3, 4]


def test_the_where_clause_is_evaluated_when_the_update_runs(box):
    box.update("INSERT DATA { <a:sensor> <a:presence> false }")
    box.engine.schedule(
        UpdateRequest("INSERT { <a:s> <a:p> 1 } WHERE { <a:sensor> <a:presence> false }"), after(10), "off"
    ).result(WAIT)
    box.update("DELETE DATA { <a:sensor> <a:presence> false }")
    box.advance(10)
    assert box.values() == []
    assert box.timer("off").state == "unchanged"


def test_figure_2_of_the_paper(box):
    """An event that did not happen: FALSE, TRUE before the delay ends, FALSE again. SEPA paper, section II.D."""
    lamps: list[Any] = []
    box.engine.subscribe(QueryRequest("SELECT ?state { <a:lamp> <a:is> ?state }"), lamps.append).result(WAIT)

    def sense(presence: str) -> int:
        box.update(
            "DELETE { <a:sensor> <a:presence> ?p ; <a:since> ?t } "
            f"INSERT {{ <a:sensor> <a:presence> {presence} ; <a:since> ?now }} "
            "WHERE { BIND(<urn:sepa:function:now>() AS ?now) OPTIONAL { <a:sensor> <a:presence> ?p ; <a:since> ?t } }"
        )
        return box.clock.at

    def light(state: str, presence: str, since: int) -> UpdateRequest:
        return UpdateRequest(
            f'DELETE {{ <a:lamp> <a:is> ?old }} INSERT {{ <a:lamp> <a:is> "{state}" }} '
            f"WHERE {{ <a:sensor> <a:presence> {presence} ; <a:since> {since} OPTIONAL {{ <a:lamp> <a:is> ?old }} }}"
        )

    box.engine.update([light("ON", "true", sense("true"))]).result(WAIT)
    box.advance(100)
    box.engine.schedule(light("OFF", "false", sense("false")), after(30), "first").result(WAIT)
    box.advance(20)
    box.engine.update([light("ON", "true", sense("true"))]).result(WAIT)
    box.advance(5)
    box.engine.schedule(light("OFF", "false", sense("false")), after(30), "second").result(WAIT)
    second = box.clock.at + 30 * SECOND
    box.advance(5)
    assert box.timer("first").state == "unchanged"
    box.advance(24.999999)
    assert [[row[0].value for row in received.delta.added] for received in lamps] == [[], ["ON"]]
    box.advance(0.000001)
    assert [[row[0].value for row in received.delta.added] for received in lamps] == [[], ["ON"], ["OFF"]]
    assert (box.timer("second").state, box.timer("second").finished) == ("done", second)


def test_dataset_and_bindings_are_stored_with_a_delayed_update(box):
    request = UpdateRequest(
        'INSERT { <a:s> <a:p> ?v . <a:s> <a:q> ?text } WHERE { <a:here> <a:is> "so" }',
        Dataset(("urn:g",)),
        {"v": ox.Literal(7), "text": ox.Literal('a "quoted"\n\\ one', language="en")},
    )
    box.update('INSERT DATA { GRAPH <urn:g> { <a:here> <a:is> "so" } }')
    box.engine.schedule(request, after(5)).result(WAIT)
    box.restart()
    box.advance(5)
    assert box.values() == [7]
    found = box.engine.query(QueryRequest("SELECT ?o { ?s <a:q> ?o }")).result(WAIT)
    assert found.rows == ((ox.Literal('a "quoted"\n\\ one', language="en"),),)


def test_a_failed_delayed_update_has_its_reason_and_the_others_run(box):
    box.engine.schedule(UpdateRequest("CREATE GRAPH <urn:g>"), after(1), "twice").result(WAIT)
    box.schedule(1, after(1))
    box.update("CREATE GRAPH <urn:g>")
    box.advance(1)
    timer = box.timer("twice")
    assert (timer.state, timer.error) == ("failed", "update_failed")
    assert "urn:g" in (timer.error_description or "")
    assert box.values() == [1]


def test_a_wrong_text_is_refused_at_once(box):
    with pytest.raises(ParsingFailed):
        box.engine.schedule(UpdateRequest("INSERT NOTHING"), after(1)).result(WAIT)
    assert box.timers() == []


# Cancel, replace, list


def test_checking_a_long_text_does_not_block_the_caller(box, monkeypatch):
    """The caller may be an event loop. Later requests of the client wait for the check, so that they find the timer."""
    engine = box.engine._engine
    checking, go_on = threading.Event(), threading.Event()

    def prepare(request: UpdateRequest, prepare=engine.prepare) -> object:
        if len(request.sparql) > 40_000:
            checking.set()
            assert go_on.wait(WAIT)
        return prepare(request)

    monkeypatch.setattr(engine, "prepare", prepare)
    triples = " ".join(f"<urn:s{number}> <urn:p> {number} ." for number in range(2000))
    later, wrong = (
        box.engine.schedule(UpdateRequest(f"INSERT DATA {{ {triples} {more} }}", source="a"), After(SECOND), name)
        for name, more in (("later", ""), ("wrong", "<urn:s>"))
    )
    assert checking.wait(WAIT)
    box.engine.update([UpdateRequest("INSERT DATA { <urn:x> <urn:p> 1 }", source="b")]).result(WAIT)
    assert not later.done()
    go_on.set()
    assert later.result(WAIT).id == "later"
    with pytest.raises(ParsingFailed):
        wrong.result(WAIT)
    box.advance(2)
    assert box.engine.quads == 2001


def test_compiling_a_long_due_text_delays_no_other_client(box, monkeypatch):
    """Later requests of its client wait for it."""
    engine = box.engine._engine
    triples = " ".join(f"<urn:s{number}> <urn:p> {number} ." for number in range(200))
    for name, text in (("long", triples), ("next", "<urn:next> <urn:p> 1")):
        box.engine.schedule(UpdateRequest(f"INSERT DATA {{ {text} }}", source="a"), After(SECOND), name).result(WAIT)
    compiling, go_on = threading.Event(), threading.Event()

    def prepare(request: UpdateRequest, prepare=engine.prepare) -> object:
        if len(request.sparql) > 4_096:
            compiling.set()
            assert go_on.wait(WAIT)
        return prepare(request)

    monkeypatch.setattr(engine, "prepare", prepare)
    box.clock.advance(2)
    box.engine.on_writer(lambda: None).result(WAIT)
    assert compiling.wait(WAIT)
    box.engine.update([UpdateRequest("INSERT DATA { <urn:x> <urn:p> 1 }", source="b")]).result(WAIT)
    assert box.engine.quads == 1
    go_on.set()
    box.settle()
    assert box.engine.quads == 202
    assert [box.timer(name).state for name in ("long", "next")] == ["done", "done"]


def test_a_cancelled_update_never_runs(box):
    scheduled = box.schedule(1, after(10))
    box.engine.cancel(scheduled.id).result(WAIT)
    box.advance(20)
    assert box.values() == []
    assert box.timer(scheduled.id).state == "cancelled"
    with pytest.raises(NotFound, match="it is cancelled"):
        box.engine.cancel(scheduled.id).result(WAIT)


def test_the_same_id_replaces_the_waiting_update(box):
    assert not box.schedule(1, after(10), "mine").replaced
    box.advance(9)
    assert box.schedule(2, after(10), "mine").replaced
    box.advance(9)
    assert box.values() == []
    box.advance(1)
    assert box.values() == [2]
    assert box.timers() == ["mine"]


def test_timer_scheduled_and_cancelled_in_one_commit(box):
    """Both in one commit: the cancelled timer has not been written yet."""
    with box.engine._engine.writing:  # the writer waits with the first
        futures = [box.engine.update([UpdateRequest(insert(0))])]
        futures += [box.engine.schedule(UpdateRequest(insert(1)), after(5), "one"), box.engine.cancel("one")]
        futures += [box.engine.schedule(UpdateRequest(insert(2)), after(5), "two")]
        futures += [box.engine.schedule(UpdateRequest(insert(3)), after(5), "two")]
    for future in futures:
        future.result(WAIT)
    box.restart()
    box.advance(5)
    assert box.values() == [0, 3]
    assert box.timer("one").state == "cancelled"


def test_delayed_updates_are_listed_by_time_and_then_outcomes(box):
    box.schedule(1, after(1), "first")
    box.schedule(2, after(2), "second")
    box.schedule(3, at(50), "late")
    box.schedule(4, after(40), "early")
    box.advance(1)
    box.advance(1)
    assert box.timers() == ["early", "late", "second", "first"]
    assert box.timers(limit=3) == ["early", "late", "second"]
    assert box.timers(state="pending") == ["early", "late"]
    assert box.timers(state="done", limit=1) == ["second"]
    assert box.timers(state="failed") == []
    assert box.timer("early").sparql == insert(4)
    with pytest.raises(NotFound):
        box.timer("unheard-of")


def test_number_of_pending_updates_is_limited(make_box):
    box = make_box(max_pending_timers=2)
    box.schedule(1, after(1), "one")
    box.schedule(2, after(1))
    with pytest.raises(TooManyRequests, match="max_pending_timers"):
        box.schedule(3, after(1))
    box.schedule(4, after(1), "one")
    assert box.engine.pending_timers == 2


@pytest.mark.parametrize("restart", [False, True], ids=["at once", "after a restart"])
def test_the_texts_are_limited_in_bytes(make_box, restart):
    box = make_box(max_timer_bytes=3000)

    def schedule(size: int, name: str) -> None:
        text = f"INSERT DATA {{ <urn:a> <urn:b> 1 }} # {'x' * size}"
        box.engine.schedule(UpdateRequest(text), after(1), name).result(WAIT)

    schedule(900, "one")
    schedule(900, "two")
    if restart:
        box.restart()
    with pytest.raises(TooManyRequests, match="max_timer_bytes"):
        schedule(900, "three")
    with pytest.raises(TooManyRequests, match="max_timer_bytes"):
        schedule(2000, "one")
    assert box.engine.pending_timers == 2
    schedule(10, "one")  # a shorter text in its place
    schedule(900, "three")
    box.advance(1)
    schedule(2000, "four")


def test_outcomes_expire(make_box):
    box = make_box(timer_outcomes_for=60.0, max_timer_outcomes=500)
    for value in range(600):
        box.schedule(value, after(1), f"t{value}")
    box.advance(1)
    assert len(box.timers(limit=1000)) == 500
    box.schedule(1000, after(60), "last")
    box.advance(61)
    assert box.timers(limit=1000) == ["last"]
    box.restart()
    assert len(box.timers(limit=1000)) < 256  # the disk deletes many at a time


# Restarts, exactly once


def test_a_restart_changes_nothing(box):
    box.schedule(1, after(30), "one")
    box.schedule(2, at(40), "two")
    box.advance(10)
    box.restart()
    assert [box.timer(name).at for name in ("one", "two")] == [START + 30 * SECOND, START + 40 * SECOND]
    box.advance(19)
    assert box.values() == []
    box.advance(1)
    assert box.values() == [1]
    box.restart()
    assert box.timer("one").state == "done"
    assert box.timers(state="pending") == ["two"]
    box.advance(10)
    assert box.values() == [1, 2]


def test_overdue_updates_run_at_start_in_order(box):
    for value in (3, 1, 2):
        box.schedule(value, after(value))
    box.stop()
    box.clock.advance(100)
    box.start()
    assert box.values() == [1, 2, 3]


def test_many_that_are_due_at_once_take_turns_with_other_owners_and_clients(box):
    """However many timers one client has, those of others and requests wait for only a few of them."""
    many, count = Access("many", registration="1"), 3_000
    order: list[str] = []
    futures = [box.engine.schedule(UpdateRequest(insert(n), access=many), after(10), f"{n}") for n in range(count)]
    futures.append(box.engine.schedule(UpdateRequest(insert(-1), access=Access("other", registration="2")), after(11)))
    for future in futures:
        future.result(WAIT)

    def note(received: SubscriberNotification | SubscribeFailed) -> None:
        assert isinstance(received, SubscriberNotification)
        order.extend(row[0].value for row in received.delta.added)
        if len(order) == 100:  # in the middle of them another client arrives
            box.engine.update([UpdateRequest(insert(-2), access=Access("client"), source="client")])

    box.engine.subscribe(QueryRequest("SELECT ?o { ?s <a:p> ?o }"), note).result(WAIT)
    box.advance(20)
    of_many = [int(value) for value in order if int(value) >= 0]
    assert of_many == list(range(count)), "one owner's run in order"
    assert order.index("-1") < count - 1_000, "it is found while those are carried out"
    assert order.index("-2") < 100 + 2 * box.settings.max_batch


def test_an_update_that_is_too_late_is_missed(make_box):
    box = make_box(max_lateness=60.0)
    box.schedule(1, after(10), "late")
    box.schedule(2, after(50), "just in time")
    box.stop()
    box.clock.advance(105)
    box.start()
    assert box.values() == [2]
    assert box.timer("late").state == "missed"


def test_a_commit_that_fails_leaves_it_due(box):
    box.schedule(1, after(10), "one")
    with contextlib.closing(sqlite3.connect(box.directory / "edge.sqlite3", timeout=30)) as other:
        other.execute("BEGIN IMMEDIATE")  # a program that keeps the file locked
        box.clock.advance(10)
        box.settle()
        assert box.engine.storage_failing
        assert box.values() == []
        with pytest.raises(StorageFailed):
            box.schedule(2, after(10), "two")
        with pytest.raises(StorageFailed):
            box.engine.cancel("one").result(WAIT)
        other.rollback()
    assert box.timers() == ["one"]
    box.advance(1)
    assert box.values() == [1]
    assert box.timer("one").state == "done"
    box.restart()
    assert box.values() == [1]


def test_damage_is_found_at_start(box):
    box.schedule(1, after(10))
    box.stop()
    with contextlib.closing(sqlite3.connect(box.directory / "edge.sqlite3")) as file:
        file.execute("UPDATE timers SET due = due + 1")
        file.commit()
    with pytest.raises(DataDirectoryRefused, match="checksum"):
        box._open()


def test_delayed_updates_without_a_data_directory_are_in_memory(make_box):
    box = make_box(None)
    box.schedule(1, after(10))
    box.advance(10)
    assert box.values() == [1]


# Clocks


@pytest.mark.parametrize("jump", [-(10**9), -3600, 3600, 10**9])
def test_a_delay_does_not_notice_that_the_clock_is_set(box, jump):
    box.schedule(1, after(30), "one")
    box.advance(10)
    box.set(box.clock.at + jump * SECOND)
    assert box.timer("one").at == box.clock.at + 20 * SECOND
    box.advance(19)
    assert box.values() == []
    box.restart()
    assert box.values() == []
    box.advance(1)
    assert box.values() == [1]


def test_a_time_of_day_follows_the_clock(box):
    box.schedule(1, at(3600))
    box.set(START + 3599 * SECOND)
    assert box.values() == []
    box.set(START + 3600 * SECOND)
    assert box.values() == [1]


def test_time_without_power_counts_if_the_clock_is_right(box):
    box.schedule(1, after(3600))
    box.advance(600)
    box.stop()
    box.clock.reboot(START + 3599 * SECOND, right=True)
    box.start()
    assert box.values() == []
    box.advance(1)
    assert box.values() == [1]


def test_updates_due_during_a_power_cut_run_at_start(box):
    box.schedule(1, after(3600))
    box.stop()
    box.clock.reboot(START + 86_400 * SECOND, right=True)
    box.start()
    assert box.values() == [1]


@pytest.mark.parametrize("shows", [0, START - 86_400 * SECOND, START + 700 * SECOND], ids=["1970", "past", "near"])
def test_a_clock_without_battery_counts_the_time_off_once_the_network_has_set_it(box, shows):
    box.schedule(1, after(3600), "one")
    box.schedule(2, after(7200), "two")
    box.advance(600)
    box.stop()
    box.clock.reboot(shows, right=False)
    box.start()
    box.advance(60)
    assert box.values() == []
    box.set(START + 3600 * SECOND)  # the network: the machine was off for most of an hour
    assert box.values() == [1]
    assert box.timer("two").at == START + 7200 * SECOND
    box.set(START + 10**9 * SECOND)  # if the clock is set now, it is set wrong
    assert box.values() == [1]
    box.advance(3599)
    assert box.values() == [1]
    box.advance(1)
    assert box.values() == [1, 2]


def test_an_unset_clock_delays_by_at_most_the_delay(box):
    box.schedule(1, after(30))
    box.advance(86_400 - 86_399)
    box.stop()
    box.clock.reboot(0, right=False)
    box.start()
    assert box.values() == []
    box.advance(30)
    assert box.values() == [1]


def test_a_previously_wrong_clock_does_not_measure_the_time_off(box):
    box.set(0, right=False)
    box.schedule(1, after(30))
    box.advance(10)
    box.stop()
    box.clock.reboot(START, right=True)
    box.start()
    assert box.values() == []
    box.advance(30)
    assert box.values() == [1]


def test_the_clock_was_set_between_the_delay_and_the_power_cut(box):
    """Otherwise the jump would count as downtime."""
    box.set(0, right=False)
    box.schedule(1, after(7200))
    box.advance(10)
    box.set(START)
    box.advance(10)
    box.stop()
    box.clock.reboot(START + 3600 * SECOND, right=True)
    box.start()
    assert box.values() == []
    box.advance(7200 - 3600 - 10 - 1)
    assert box.values() == []
    box.advance(1)
    assert box.values() == [1]


def test_time_off_counts_over_two_power_cuts(box):
    box.schedule(1, after(3600))
    box.stop()
    box.clock.reboot(0, right=False)
    box.start()
    box.advance(60)
    box.restart()
    box.stop()
    box.clock.reboot(0, right=False)
    box.start()
    box.set(START + 3599 * SECOND)
    assert box.values() == []
    box.advance(1)
    assert box.values() == [1]


def test_a_delay_given_before_the_network_sets_the_clock_is_owed_nothing(box):
    """Downtime counts for delays that started before it, however few there are."""
    box.schedule(1, after(40_000), "before")
    box.stop()
    box.clock.reboot(START - 100 * SECOND, right=False)
    box.start()
    box.schedule(2, after(3600), "after")
    box.advance(60)
    box.set(START + 36_000 * SECOND)
    assert box.values() == []
    assert box.timer("after").at == box.clock.at + 3540 * SECOND
    assert box.timer("before").at == START + 40_000 * SECOND
    box.restart()
    box.advance(3539)
    assert box.values() == []
    box.advance(1)
    assert box.values() == [2]
    box.advance(459)
    box.restart()
    assert box.values() == [2]
    box.advance(1)
    assert box.values() == [1, 2]


def test_delay_given_before_the_clock_is_set_without_earlier_delays(box):
    box.schedule(1, after(1))
    box.advance(1)
    box.stop()
    box.clock.reboot(0, right=False)
    box.start()
    box.schedule(2, after(3600))
    box.advance(60)
    box.set(START + 36_000 * SECOND)
    assert box.values() == [1]
    box.advance(3540)
    assert box.values() == [1, 2]


def test_the_clock_is_set_just_before_the_first_delay(box):
    """The time that is stored with a delay must be the time after the change."""
    box.restart()
    box.set(0, right=False)
    box.restart()
    box.clock.set(START)
    box.schedule(1, after(3600))
    box.stop()
    box.clock.reboot(START + 600 * SECOND, right=True)
    box.start()
    assert box.values() == []
    box.advance(2999)
    assert box.values() == []
    box.advance(1)
    assert box.values() == [1]


def test_two_power_cuts_before_the_network_sets_the_clock(box):
    """The clock at the last update was wrong already: it says nothing about the time since then."""
    box.schedule(1, after(1))
    box.advance(1)
    box.schedule(2, after(3600))
    for _ in range(3):
        box.stop()
        box.clock.reboot(0, right=False)
        box.start()
        assert box.values() == [1]
    box.advance(3599)
    assert box.values() == [1]
    box.advance(1)
    assert box.values() == [1, 2]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("advance"), st.integers(0, 3000)),
        st.tuples(st.just("schedule"), st.integers(1, 5000)),
        st.tuples(st.just("set"), st.integers(-5000, 5000)),
        st.tuples(st.just("restart"), st.just(0)),
        st.tuples(st.just("cut"), st.integers(0, 5000)),
        st.tuples(st.just("sync"), st.just(0)),
    ),
    max_size=14,
)


@settings(max_examples=examples(60), deadline=None)
@given(steps=STEPS)
def test_no_delay_ends_early_if_the_clock_changes(steps, tmp_path_factory):
    """A world with a known true time: its clock is set by people, lost in power cuts, and corrected by NTP."""
    box = Box(tmp_path_factory.mktemp("clock"))
    true = START
    given: dict[str, tuple[int, int]] = {}
    ran: dict[str, int] = {}
    """For each delay: the true time of its start, its length, and its elapsed time when it ran."""

    def note() -> None:
        for timer in box.engine.timers("done", 100).result(WAIT):
            ran.setdefault(timer.id, true - given[timer.id][0])

    try:
        for number, (kind, value) in enumerate(steps):
            if kind == "advance":
                for _ in range(4):
                    true += value * SECOND // 4
                    box.advance(value / 4)
                    note()
            elif kind == "schedule":
                given[str(number)] = true, value * SECOND
                box.schedule(number, after(value), str(number))
            elif kind == "set":
                box.set(box.clock.at + value * SECOND, right=box.clock.right)
            elif kind == "sync":
                box.set(true)
            elif kind == "restart":
                box.restart()
            else:
                box.stop()
                true += value * SECOND
                box.clock.reboot(0, right=False)
                box.start()
            note()
        # If the clock counted as right, it may have been set wrong before: the downtime is wrong by this amount.
        error = sum(abs(value) for kind, value in steps if kind == "set") * SECOND
        for name, after_ in ran.items():
            assert after_ >= given[name][1] - error
        box.set(true)
        for _ in range(3):
            true += 2000 * SECOND
            box.advance(2000)
            note()
        assert ran.keys() == given.keys()
    finally:
        box.engine.close()
