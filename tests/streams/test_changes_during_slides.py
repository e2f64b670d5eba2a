"""Queries and observers are added, changed and ended while a slide is in progress, also if the process ends then."""

from __future__ import annotations

import itertools

import pytest
from test_processor_order import BEGIN, SECOND, make, query, triple

from edge.engine.clock import SystemClock
from edge.protocol.access import ANYBODY
from edge.streams import window_engine
from edge.streams.delivery import Delivery
from edge.streams.processor import AdvanceInProgress, NewElement, window_advance
from edge.streams.running_query import Follower
from edge.streams.store import StreamStore
from edge.streams.waiting import WaitingReports

WINDOW = "[RANGE PT10S STEP PT10S]"
END = BEGIN + 10 * SECOND


class World:
    """A processor with one query and an element in each second, and its observers."""

    def __init__(self, directory):
        self.directory = directory
        self.open()
        self.processor.put_stream("t", None, ANYBODY)
        self.register("q")
        for second in range(5):
            self.add(BEGIN + second * SECOND, second)

    def open(self, restored=None):
        self.store = StreamStore(self.directory)
        self.processor = make(5, store=self.store, restored=restored, waiting=lambda report: self.waiting.body(report))
        self.waiting = WaitingReports(self.store, 1 << 20)
        self.delivery = Delivery(
            self.processor, self.waiting, 10, SystemClock(), lambda _observer: None, {"/streams/fed": "fed"}.get
        )

    def close(self):
        self.processor.close()
        self.store.close()

    def add(self, now, value, time=None, stream="s"):
        return self.processor.add(stream, [NewElement(triple(value), time)], ANYBODY, now)

    def register(self, name, window=WINDOW, operator="RSTREAM", stream="s"):
        text = query(window, operator, name, select="SELECT ?v").replace("stream:s>", f"stream:{stream}>")
        return self.processor.register(name, text, ANYBODY, self.processor.time)

    def begin_slide(self):
        while not self.processor.is_advancing:
            self.processor.advance(END)
        # The elements are in the window in part.
        self.processor.advance(END)
        assert self.processor.is_advancing

    def finish(self, until=END):
        while not self.processor.advance(until):
            pass
        reports = self.processor.store_reports()
        self.delivery.add(reports)
        self.delivery.deliver()
        return [(each.query, each.number, (each.time - BEGIN) // SECOND, len(each.rows)) for each in reports]

    def finish_after(self, restarts):
        if restarts:
            self.close()
            self.open(restored=END)
        return self.finish()


@pytest.fixture
def world(tmp_path, monkeypatch):
    for module, name in ((window_engine, "_LARGEST_PIECE"), (window_advance, "_LARGEST_TURN")):
        monkeypatch.setattr(module, name, 1)
    world = World(tmp_path)
    yield world
    world.close()


class Steps:
    """A clock that moves by 10 ms with each look at it."""

    def __init__(self):
        self.time = 0

    def steady(self):
        self.time += 10_000
        return self.time


both = pytest.mark.parametrize("restarts", [False, True])


@both
def test_a_query_that_begins_during_a_slide_takes_no_part_in_it(world, restarts):
    world.begin_slide()
    windows = {"shared": WINDOW, "new": "[RANGE PT5S STEP PT5S]", "counted": "[ELEMENTS 3]"}
    assert [world.register(name, window).begun for name, window in windows.items()] == [END + 1] * 3
    assert world.finish_after(restarts) == [("q", 1, 10, 5)]
    world.add(END + 2 * SECOND, 7)
    assert world.finish(END + 10 * SECOND) == [
        ("counted", 1, 12, 1),
        ("new", 1, 15, 1),
        ("q", 2, 20, 1),
        ("shared", 1, 20, 1),
        ("new", 2, 20, 0),
    ]


@both
def test_the_last_query_of_windows_in_a_slide_can_end(world, restarts):
    world.begin_slide()
    world.add(END, 8, BEGIN + SECOND)  # late for the slide, and held
    world.delivery.unregister("q", ANYBODY)
    world.processor.drop_stream("s", ANYBODY)
    world.processor.put_stream("s", None, ANYBODY)
    world.register("q")
    assert world.finish_after(restarts) == []
    world.add(END + 2 * SECOND, 7)
    assert world.finish(END + 10 * SECOND) == [("q", 1, 20, 1)]


@both
def test_an_observer_that_comes_during_a_slide_gets_its_report(world, restarts):
    for _ in range(8):
        world.register(f"q{_}")
    world.begin_slide()
    while not world.processor.find("q").number:
        assert not world.processor.advance(END)
    observer = world.delivery.observe("q", "http://localhost/", ANYBODY).id
    world.delivery.end("q", world.delivery.observe("q", "http://localhost/2", ANYBODY).id, ANYBODY)
    assert world.processor.durable_number(world.processor.find("q")) == 0
    assert ("q", 1, 10, 5) in world.finish_after(restarts)
    assert [report.number for report in world.waiting.waiting(observer, 9)] == [1]


@both
def test_a_stream_gets_the_reports_before_a_slide(world, restarts):
    construct = query("[RANGE PT9S STEP PT9S]", name="c", select="CONSTRUCT { ?s <urn:w> ?v }")
    world.processor.put_stream("fed", None, ANYBODY)
    world.processor.register("c", construct, ANYBODY, world.processor.time)
    world.processor.register("d", query(WINDOW, name="d").replace("stream:s>", "stream:fed>"), ANYBODY, BEGIN)
    world.delivery.observe("c", "/streams/fed", ANYBODY)
    world.add(BEGIN + 5 * SECOND, 5)
    while not world.processor.advance(END - SECOND):
        pass
    reports = world.processor.store_reports()
    world.begin_slide()
    world.delivery.add(reports)
    world.delivery.deliver()
    assert world.processor.stream("fed", ANYBODY).number == 0
    world.finish_after(restarts)
    assert world.processor.stream("fed", ANYBODY).number == 1


@both
@pytest.mark.parametrize("paused", [False, True])
def test_pausing_takes_effect_with_the_next_report(world, restarts, paused):
    world.processor.pause("q", ANYBODY, paused=not paused)
    world.begin_slide()
    world.processor.pause("q", ANYBODY, paused=paused)
    assert world.finish_after(restarts) == ([] if paused else [("q", 1, 10, 5)])


def test_changes_that_depend_on_a_slide_wait_for_it(world):
    construct = query("[RANGE PT1M TUMBLING]", name="c", select="CONSTRUCT { ?s <urn:w> ?v }")
    world.processor.register("c", construct, ANYBODY, BEGIN)
    world.begin_slide()
    with pytest.raises(AdvanceInProgress):
        world.register("compared", operator="ISTREAM")
    with pytest.raises(AdvanceInProgress):
        world.register("chained", stream="c")
    with pytest.raises(AdvanceInProgress):
        world.processor.put_stream("s", 7 * SECOND, ANYBODY)
    with pytest.raises(AdvanceInProgress):
        world.processor.subscribe(query(WINDOW), ANYBODY, END)
    world.processor.put_stream("s", 5 * SECOND, ANYBODY)  # as it is
    world.register("compared", "[RANGE PT3S STEP PT3S]", operator="ISTREAM")
    assert world.finish() == [("q", 1, 10, 5)]
    world.register("chained", stream="c")


@both
@pytest.mark.parametrize("operator", ["RSTREAM", "ISTREAM"])
def test_late_elements_of_two_streams_correct_a_report_together(world, restarts, operator):
    text = (
        f"REGISTER {operator} <urn:edge:stream:q> AS SELECT ?v FROM NAMED WINDOW <urn:w> ON <urn:edge:stream:s> "
        f"{WINDOW} FROM NAMED WINDOW <urn:x> ON <urn:edge:stream:t> {WINDOW} "
        "WHERE { WINDOW <urn:w> { ?s <urn:v> ?v } FILTER NOT EXISTS { WINDOW <urn:x> { ?s <urn:v> ?v } } }"
    )
    world.delivery.unregister("q", ANYBODY)
    world.processor.register("q", text, ANYBODY, world.processor.time)
    for value in range(5):
        world.add(END - SECOND, value)
    world.begin_slide()
    for value, stream in ((7, "s"), (7, "t"), (3, "t"), (8, "s")):
        world.add(END, value, END - SECOND, stream)
    corrected = [] if restarts else [("q", 2, 10, 1)]
    assert world.finish_after(restarts) == [("q", 1, 10, 5), *corrected]
    # The result after the corrections, without 7, is that before the next report.
    world.add(END + SECOND, 8)
    found = world.finish(END + 10 * SECOND)
    assert found == ([("q", 2 + len(corrected), 20, 1)] if operator == "RSTREAM" else [])


def test_many_reports_are_delivered_in_pieces_in_order(world, monkeypatch):
    for module, name in ((window_engine, "_LARGEST_PIECE"), (window_advance, "_LARGEST_TURN")):
        monkeypatch.setattr(module, name, 1_000)
    got, pieces = [], []

    def follow(name):
        follower = Follower(lambda report: got.append((report.query, report.number)), lambda reason: None)
        world.processor.find(name).followers[name] = follower

    names = [f"q{number}" for number in range(200)]
    for name in names:
        world.register(name)
        follow(name)
    delivery = Delivery(
        world.processor, world.waiting, 10, Steps(), lambda observer: got.append(observer), lambda _url: None
    )
    observer = delivery.observe("q0", "http://localhost/", ANYBODY).id
    for end in (END, END + 10 * SECOND):
        while not world.processor.advance(end):
            pass
        delivery.add(world.processor.store_reports())
    assert delivery.number == 402
    while delivery.number:
        delivery.deliver()
        pieces.append(len(got))
        if len(pieces) == 1:
            # An ended query reports no more, and another one with its name does not get its reports.
            delivery.unregister("q199", ANYBODY)
            world.register("q199")
            follow("q199")
    assert len(pieces) > 2
    assert max(after - before for before, after in itertools.pairwise([0, *pieces])) <= 102
    assert got.count(observer) == 2
    found = [each for each in got if each != observer]
    assert found == [(name, number) for number in (1, 2) for name in names[:-1]]
