"""The performance model: running statistics equal those of the complete data, and the phases add up."""

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.engine.engine import Engine
from edge.engine.performance import PerformanceModel, Statistics
from edge.engine.queries.oxigraph_queries import QueryRules
from edge.engine.requests import QueryRequest, UpdateRequest

NANOSECONDS = st.integers(0, 10**10)


@given(st.lists(st.lists(NANOSECONDS)))
def test_running_figures_are_those_of_the_values(parts):
    running = Statistics()
    for part in parts:
        running.add(part)
    values = [value for part in parts for value in part]
    assert running.count == len(values)
    assert running.total == sum(values)
    if values:
        assert (running.least, running.greatest) == (min(values), max(values))
        assert running.mean == pytest.approx(statistics.mean(values))
    if len(values) > 1:
        assert running.sigma == pytest.approx(statistics.stdev(values), rel=1e-6, abs=1e-6 * running.mean)


@given(st.lists(st.tuples(NANOSECONDS, NANOSECONDS, NANOSECONDS, NANOSECONDS, st.integers(0, 3)), max_size=200))
def test_the_phases_add_up(updates):
    model = PerformanceModel()
    for update, lutt, booster, notify, notifications in updates:
        model.begin()
        model.note_lutt(lutt, notifications)
        model.note_booster(booster)
        model.published(model.executed(update + lutt + booster), notify, notifications)
    figures = model.figures()
    for place, phase in enumerate((figures.update, figures.lutt, figures.booster, figures.notify)):
        assert phase.total == sum(step[place] for step in updates)
    assert figures.total.count == len(updates)
    assert figures.total.total == sum(sum(step[:4]) for step in updates)
    assert figures.notifications == figures.hits == sum(step[4] for step in updates)
    late = [lutt + booster + notify for _, lutt, booster, notify, notifications in updates if notifications]
    assert figures.latency.count == len(late)
    assert figures.latency.greatest == max(late, default=0)
    assert figures.latency.least == min(late, default=0)


def test_an_update_that_failed_leaves_nothing_to_the_next():
    model = PerformanceModel()
    model.begin()
    model.note_lutt(5, 1)
    model.note_booster(7)
    model.begin()
    assert model.executed(3) == (3, 0, 0, 0)


def test_reset_clears_all_figures():
    model = PerformanceModel()
    model.published((1, 2, 3, 4), 5, 6)
    model.reset()
    assert model.figures() == PerformanceModel().figures()


def test_the_engine_counts_its_phases():
    engine = Engine(QueryRules(), lambda document: [])
    reported = []
    engine.subscribe(QueryRequest("SELECT ?o WHERE { <urn:s> <urn:p> ?o }"), reported.append, None, 0)
    for text in ("INSERT DATA { <urn:s> <urn:p> 1 }", "INSERT DATA { <urn:other> <urn:p> 1 }"):
        executed = engine.execute([engine.prepare(UpdateRequest(text))], 0)
        engine.show(executed)
        engine.publish(executed)
    figures = engine.performance.figures()
    assert figures.total.count == 2
    assert figures.notifications == 1 == len(reported) - 1
    assert figures.update.least > 0
    assert figures.latency.count == 1


def test_undone_updates_are_not_counted():
    engine = Engine(QueryRules(), lambda document: [])
    engine.undo(engine.execute([engine.prepare(UpdateRequest("INSERT DATA { <urn:s> <urn:p> 1 }"))], 0))
    assert engine.performance.figures().total.count == 0
