"""What slides, elements and corrections cost, counted in quads and calls."""

from __future__ import annotations

import pyoxigraph as ox
import pytest
from test_processor_order import BEGIN, SECOND, NoLiveData, make, query, triple

from edge.engine.engine import Engine
from edge.protocol.access import ANYBODY
from edge.streams import window_engine
from edge.streams.processor import AdvanceInProgress, NewElement, window_advance
from edge.streams.running_query import RunningQuery
from edge.streams.store import StreamStore
from edge.streams.stream import Stream

__all__ = ["NoLiveData"]


def count_quads(monkeypatch):
    """Return a list that gets the size of each change of an engine."""
    sizes: list[int] = []
    replay = Engine.replay_in_parts

    def counted(self, changes, at, *options, **named):
        sizes.append(len(changes.added) + len(changes.removed))
        return replay(self, changes, at, *options, **named)

    monkeypatch.setattr(Engine, "replay_in_parts", counted)
    return sizes


def test_a_slide_costs_the_entering_and_leaving_elements(monkeypatch):
    """A window of an hour costs as much as one of a minute, with the same input and the same step."""
    costs = {}
    for size in ("PT1M", "PT1H"):
        processor = make()
        processor.register("q", query(f"[RANGE {size} STEP PT1M]"), ANYBODY, BEGIN)
        sizes = count_quads(monkeypatch)
        for number in range(800):
            now = BEGIN + 10 * number * SECOND
            processor.advance(now)
            processor.add("s", [NewElement(triple(number), now)], ANYBODY, now)
            processor.store_reports()
        processor.advance(BEGIN + 5 * 3600 * SECOND)
        costs[size] = sum(sizes)
        monkeypatch.undo()
        processor.close()
    assert costs == {"PT1M": 1600, "PT1H": 1600}


def test_only_queries_that_report_are_visited(monkeypatch):
    processor = make()
    for number in range(200):
        window = f"[RANGE PT1H STEP PT{60 if number else 1}S]"
        processor.register(f"q{number}", query(window, name=f"q{number}"), ANYBODY, BEGIN)
    visited = []
    report = RunningQuery.report
    monkeypatch.setattr(RunningQuery, "report", lambda self, time: visited.append(self.name) or report(self, time))
    processor.advance(BEGIN + 2 * SECOND)
    assert visited == ["q0", "q0"]
    processor.close()


def test_queries_with_other_constants_share_a_window(monkeypatch):
    processor = make()
    for number in range(100):
        text = query(
            "[RANGE PT1M STEP PT1S]", name=f"q{number}", body=f"<urn:a{number}> <urn:v> ?v", select="SELECT ?v"
        )
        processor.register(f"q{number}", text, ANYBODY, BEGIN)
    assert len({window for each in processor.all_queries() for window in each.windows}) == 1
    sizes = count_quads(monkeypatch)
    processor.add("s", [NewElement(triple(5, "a7"), BEGIN)], ANYBODY, BEGIN)
    processor.advance(BEGIN + SECOND)
    assert sizes == [1]
    assert {report.query: len(report.rows) for report in processor.store_reports()}["q7"] == 1
    processor.close()


def test_a_large_slide_is_cut_into_turns_in_which_elements_come(monkeypatch, tmp_path):
    """No turn does more than the work of some pieces. Elements that came in between are in the next report.

    The process ends in the middle of the second slide: its reports are made again, each once.
    """
    store = StreamStore(tmp_path)
    processor = make(store=store)
    for number in range(150):
        text = query("[RANGE PT2S TUMBLING]", name=f"q{number}", body=f"<urn:a{number}> <urn:v> ?v", select="SELECT ?v")
        processor.register(f"q{number}", text, ANYBODY, BEGIN)
    reports, values = [], iter(range(100_000))
    sizes = count_quads(monkeypatch)
    for end in (2, 4, 6):
        for begin in range(0, 1_500, 500):
            now = BEGIN + (end - 1) * SECOND
            new = [NewElement(triple(next(values), f"a{number % 150}"), now) for number in range(begin, begin + 500)]
            processor.advance(now)
            processor.add("s", new, ANYBODY, now)
        now, turns = BEGIN + end * SECOND, 0
        sizes.clear()
        while not processor.advance(now):
            turns += 1
            assert processor.is_advancing
            assert not processor.store_reports()
            assert sum(sizes) <= 1_000
            sizes.clear()
            if turns == 2:
                later = now + turns
                assert processor.add("s", [NewElement(triple(-end, "a7"))], ANYBODY, later).elements == 1
            if turns == 3 and end == 4:
                processor.close()
                store.close()
                store = StreamStore(tmp_path)
                processor = make(store=store, restored=now)
                sizes.clear()
        assert turns >= 2
        reports += processor.store_reports()
    found = {number: [] for number in range(150)}
    for report in reports:
        assert report.number == len(found[int(report.query[1:])]) + 1
        found[int(report.query[1:])].append((report.time - BEGIN) // SECOND)
    assert all(times == [2, 4, 6] for times in found.values())
    assert [sorted(int(row[0].value) for row in each.rows) for each in reports if each.query == "q7"] == [
        list(range(7, 1_500, 150)),
        [-2, *range(1_507, 3_000, 150)],
        [-4, *range(3_007, 4_500, 150)],
    ]
    processor.close()
    store.close()


def count_parts(monkeypatch):
    """Return a list that gets the steps of each part of a change of an engine."""
    steps: list[int] = []
    replay = Engine.replay_in_parts

    def counted(self, changes, at, *options, **named):
        for each in replay(self, changes, at, *options, **named):
            steps.append(each)
            yield each

    monkeypatch.setattr(Engine, "replay_in_parts", counted)
    return steps


@pytest.mark.parametrize(
    "body",
    [
        "?s <urn:v> ?v FILTER(?v > {n})",
        "?s <urn:v> ?v . <urn:b{n}> <urn:w> ?w",
        "?s <urn:v> ?v OPTIONAL {{ ?s <urn:w> ?w FILTER(?w > {n}) }}",
    ],
)
def test_a_small_slide_that_concerns_many_queries_is_cut_into_turns(monkeypatch, body):
    """A turn is bounded by the triples times the queries that they concern. Requests do not get half of a change.

    What a request waits for is bounded, too, also if the slides before concerned no query.
    """
    monkeypatch.setattr(window_engine, "_PIECE_STEPS", 5_000)
    processor = make()
    for number in range(60):
        text = query("[RANGE PT2S TUMBLING]", name=f"q{number}", body=body.format(n=number), select="SELECT ?v")
        processor.register(f"q{number}", text, ANYBODY, BEGIN)
    foreign = ox.Triple(ox.NamedNode("urn:x"), ox.NamedNode("urn:other"), ox.Literal(1))
    now, turns = BEGIN, 0
    for _ in range(8):
        processor.add("s", [NewElement((foreign,))], ANYBODY, now)
        now += 2 * SECOND
        while not processor.advance(now):
            pass
    processor.store_reports()
    processor.add("s", [NewElement(triple(number, f"a{number}")) for number in range(900)], ANYBODY, now)
    now += 2 * SECOND
    steps = count_parts(monkeypatch)
    while not processor.advance(now):
        assert sum(steps) <= 15_000
        steps.clear()
        turns += 1
        if turns < 5:
            text = query("[RANGE PT2S TUMBLING]", name="late", body="?s <urn:v> ?v", select="SELECT ?v")
            if turns > 1:
                processor.unregister("late", ANYBODY)
            processor.register("late", text, ANYBODY, now)
            assert sum(steps) <= 15_000
            steps.clear()
        if turns == 2:
            processor.unregister("q7", ANYBODY)
    assert turns >= 5
    found = {report.query: len(report.rows) for report in processor.store_reports()}
    rows = {f"q{number}": 900 for number in range(60) if number != 7}
    if "FILTER(?v" in body:
        rows = {name: 899 - int(name[1:]) for name in rows}
    elif "urn:b" in body:
        rows = dict.fromkeys(rows, 0)
    assert found == rows
    while not processor.advance(now + 2 * SECOND):
        pass
    found = {report.query: len(report.rows) for report in processor.store_reports()}
    assert found == dict.fromkeys([*rows, "late"], 0)
    processor.close()


def test_a_correction_reads_only_the_elements_of_its_reports(monkeypatch):
    """Another window keeps many elements, and does not make the corrections of a short one slower."""
    processor = make(30)
    processor.register("long", query("[RANGE PT1H STEP PT1H]", name="long"), ANYBODY, BEGIN)
    processor.register("short", query("[RANGE PT2S STEP PT1S]", name="short"), ANYBODY, BEGIN)
    for number in range(1_000):
        processor.advance(BEGIN + number * SECOND)
        processor.add("s", [NewElement(triple(number))], ANYBODY, BEGIN + number * SECOND)
    processor.store_reports()
    sizes = count_quads(monkeypatch)
    processor.add("s", [NewElement(triple(-1), BEGIN + 990 * SECOND)], ANYBODY, BEGIN + 999 * SECOND)
    assert len([report for report in processor.store_reports() if report.removed is not None]) == 2
    assert sum(sizes) < 40
    processor.close()


def test_corrections_of_many_queries_are_made_in_turns(monkeypatch):
    """Late elements that come meanwhile are corrected together. Those that come then wait, so that the turns end."""
    processor = make(30)
    for number in range(4):
        processor.register(f"q{number}", query("[RANGE PT10S TUMBLING]", name=f"q{number}"), ANYBODY, BEGIN)
    processor.add("s", [NewElement(triple(number)) for number in range(1_000)], ANYBODY, BEGIN)
    now = BEGIN + 10 * SECOND
    while not processor.advance(now):
        pass
    processor.store_reports()
    sizes = count_quads(monkeypatch)

    def add(value, time=BEGIN + 9 * SECOND):
        return processor.add("s", [NewElement(triple(value), time)], ANYBODY, now)

    assert add(2_000).late == 1
    assert [add(value).late for value in (3_000, 4_000)] == [1, 1]
    assert add(0, now + 1).late == 0
    taken = waits = 0
    while processor.is_advancing:
        # One query in a turn: with and without the late elements, which enter and leave.
        assert sum(sizes) < 4_100
        sizes.clear()
        try:
            taken += add(5_000 + taken + waits).late
        except AdvanceInProgress:
            waits += 1
        processor.advance(now)
    assert (taken, waits) == (4, 4)
    reports = processor.store_reports()
    for number in range(4):
        rows = [report.rows for report in reports if report.query == f"q{number}"]
        assert [[term.value for term in row] for each in rows for row in each] == [["1001", "2000"], ["1007", "5003"]]
    processor.close()


def test_windows_slide_before_further_late_elements_are_corrected():
    """Otherwise clients that send late elements all the time stop all windows."""
    processor = make(30)
    processor.register("q", query("[RANGE PT10S STEP PT1S]"), ANYBODY, BEGIN)
    processor.add("s", [NewElement(triple(number)) for number in range(1_500)], ANYBODY, BEGIN)
    now = BEGIN + 10 * SECOND
    while not processor.advance(now):
        pass
    for later in range(3):
        processor.add("s", [NewElement(triple(-1), now - 9 * SECOND)], ANYBODY, now)
        assert processor.is_advancing
        now += SECOND
        while processor.is_advancing:
            processor.advance(now)
        assert processor.time == now, later
    processor.close()


def test_an_element_is_not_later_for_having_waited():
    processor = make(10)
    processor.register("q", query("[RANGE PT10S TUMBLING]"), ANYBODY, BEGIN)
    processor.advance(BEGIN + 23 * SECOND)
    arrival = BEGIN + 20 * SECOND
    late = [NewElement(triple(number), arrival - number * SECOND) for number in (10, 11)]
    assert processor.add("s", late, ANYBODY, arrival) == (2, 1, 1)
    assert processor.add("s", [NewElement(triple(0))], ANYBODY, arrival) == (1, 0, 0)
    processor.close()


@pytest.mark.parametrize("report", ["", " ON CHANGE"])
def test_late_elements_of_a_session_visit_its_elements_once(monkeypatch, report):
    processor = make(30)
    processor.register("q", query(f"[SESSION PT5S]{report}"), ANYBODY, BEGIN)
    times = [BEGIN + number * SECOND // 100 for number in range(400)]
    processor.add("s", [NewElement(triple(time), time) for time in times], ANYBODY, BEGIN)
    now = BEGIN + 4 * SECOND
    while not processor.advance(now):
        pass
    visited = []
    between = Stream.between
    monkeypatch.setattr(Stream, "between", lambda *args: (visited.append(each) or each for each in between(*args)))
    late = [NewElement(triple(time), time + SECOND // 200) for time in times[:200]]
    assert processor.add("s", late, ANYBODY, now) == (200, 0, 0)
    assert len(visited) <= 3 * 400
    processor.close()


def test_a_late_element_costs_only_the_queries_that_it_can_change(monkeypatch):
    processor = make(30)
    for number in range(20):
        text = query("[RANGE PT2S TUMBLING]", name=f"q{number}", body=f"<urn:a{number}> <urn:v> ?v", select="SELECT ?v")
        processor.register(f"q{number}", text, ANYBODY, BEGIN)
    processor.add("s", [NewElement(triple(number, f"a{number}")) for number in range(20)], ANYBODY, BEGIN)
    processor.advance(BEGIN + 2 * SECOND)
    processor.store_reports()
    sizes = count_quads(monkeypatch)
    processor.add("s", [NewElement(triple(-1, "a7"), BEGIN + SECOND)], ANYBODY, BEGIN + 3 * SECOND)
    assert [report.query for report in processor.store_reports()] == ["q7"]
    # Two times the window, with and without the element, which enters and leaves.
    assert sum(sizes) <= 4 * 21 + 1
    processor.close()


@pytest.mark.parametrize(
    ("body", "changes"),
    [
        ("?s <urn:v> ?v", False),
        ("?s <urn:v> ?v FILTER NOT EXISTS { ?s <urn:w> ?w }", True),
        ("?s <urn:v>* ?v", True),
        ("?s ?p ?v", True),
        ("OPTIONAL { ?s <urn:v> ?v }", True),  # a row without values, if the window has any triple
        ("<urn:b> <urn:w> ?v", False),
    ],
)
@pytest.mark.parametrize("report", ["", "NON EMPTY"])
def test_a_late_element_that_matches_no_pattern_corrects_what_it_changes(body, changes, report):
    processor = make(30)
    processor.register("q", query(f"[RANGE PT2S TUMBLING] {report}", body=body, select="SELECT ?v"), ANYBODY, BEGIN)
    new = [NewElement(triple(1), BEGIN)] if "EXISTS" in body else []
    processor.add("s", new, ANYBODY, BEGIN)
    processor.advance(BEGIN + 2 * SECOND)
    processor.store_reports()
    late = (ox.Triple(ox.NamedNode("urn:a"), ox.NamedNode("urn:w"), ox.Literal(1)),)
    processor.add("s", [NewElement(late, BEGIN + SECOND)], ANYBODY, BEGIN + 3 * SECOND)
    assert bool(processor.store_reports()) is changes
    processor.close()


@pytest.mark.parametrize("window", ["[ELEMENTS 1]", "[TRIPLES 1]", "[RANGE PT1M STEP PT1S] ON CHANGE"])
def test_an_element_that_makes_a_window_report_waits_for_the_slide_in_progress(monkeypatch, window):
    """Otherwise a source that sends as fast as it can would keep the reports from becoming durable."""
    monkeypatch.setattr(window_advance, "_LARGEST_TURN", 1)
    monkeypatch.setattr(window_advance, "_REPORTS", 2)
    processor = make()
    for number in range(8):
        text = query(window, name=f"q{number}", body=f"<urn:a{number}> <urn:v> ?v", select="SELECT ?v")
        processor.register(f"q{number}", text, ANYBODY, BEGIN)
    now, turns = BEGIN + 1, 0
    processor.add("s", [NewElement(triple(1, "a7"))], ANYBODY, now)
    while not processor.advance(now):
        turns += 1
        now += 1
        with pytest.raises(AdvanceInProgress):
            processor.add("s", [NewElement(triple(turns, "a7"))], ANYBODY, now)
        assert turns < 50
    seen = [report for report in processor.store_reports() if report.query == "q7"]
    assert turns > 1
    assert [int(row[0].value) for report in seen for row in report.rows] == [1]
    processor.close()


@pytest.mark.parametrize("ends", [False, True])
def test_an_element_that_is_late_for_a_slide_in_progress_does_not_wait_for_it(monkeypatch, tmp_path, ends):
    """`ends`: the process ends in the middle of the slide. Then the report that is made again has the elements."""
    for module, name in ((window_advance, "_LARGEST_TURN"), (window_engine, "_LARGEST_PIECE")):
        monkeypatch.setattr(module, name, 1)
    store = StreamStore(tmp_path)
    processor = make(3, store=store)
    processor.register("q", query("[RANGE PT10S STEP PT10S]", select="SELECT (COUNT(*) AS ?n)"), ANYBODY, BEGIN)

    def add(now, time, value):
        element = NewElement(triple(value), BEGIN + time * SECOND)
        return processor.add("s", [element], ANYBODY, BEGIN + now * SECOND)[1:]

    def advance(now):
        while not processor.advance(BEGIN + now * SECOND):
            pass

    def values(rows):
        return [int(row[0].value) for row in rows or ()]

    for time in range(1, 5):
        advance(time)
        assert add(time, time, value=time) == (0, 0)
    assert not processor.advance(BEGIN + 10 * SECOND)
    assert processor.is_advancing
    assert add(10, 2, value=20) == (0, 1)
    assert add(10, 8, value=80) == add(10, 7, value=70) == (1, 0)
    assert add(10, 10, value=100) == (0, 0)
    if ends:
        processor.close()
        store.close()
        store = StreamStore(tmp_path)
        processor = make(3, store=store, restored=BEGIN + 10 * SECOND)
    advance(10)
    assert add(12, 9, value=90) == (1, 0)
    advance(20)
    found = [(report.time - BEGIN, values(report.rows), values(report.removed)) for report in processor.store_reports()]
    first = [(10, [7], []), (10, [8], [7])] if ends else [(10, [4], []), (10, [6], [4]), (10, [7], [6])]
    assert found == [(time * SECOND, *rows) for time, *rows in (*first, (20, [1], []))]
    processor.close()
    store.close()
