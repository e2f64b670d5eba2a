"""Observations that updates store: atomic, numbered without gaps, and invisible to queries."""

from __future__ import annotations

import itertools
import secrets
import sqlite3
import tempfile
from pathlib import Path

import pyoxigraph as ox
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorder_harness import WAIT, Harness, note, storing

from edge.engine.journal.data_directory import DataDirectoryRefused
from edge.engine.journal.sqlite_schema import FILE_NAME
from edge.engine.requests import Dataset, QueryRequest, UpdateRequest
from edge.engine.updates.staged_change import StagedChange
from edge.outbox.observation import OWL_TIME, QUDT, RDF, SOSA
from edge.outbox.settings import OutboxSettings
from edge.outbox.sqlite_tables import DamagedDatabase
from edge.protocol.access import Access
from edge.protocol.due_time import After
from edge.protocol.errors import Forbidden, ResultTooLarge, StorageFailed, UpdateFailed
from tests.support.examples import examples
from tests.support.settings import unchecked
from tests.support.waiting import wait_for

HISTORY = "GRAPH <urn:edge:history>"
STORE_OBSERVATION = f"""
PREFIX rdf: <{RDF}>
PREFIX sosa: <{SOSA}>
PREFIX qudt-1-1: <{QUDT}>
PREFIX time: <{OWL_TIME}>
INSERT {{?observation rdf:type sosa:Observation ; sosa:hasResult ?quantity .
?quantity rdf:type qudt-1-1:QuantityValue ; qudt-1-1:unit ?unit ; qudt-1-1:numericValue ?value ; time:hasTime ?instant .
?instant rdf:type time:Instant ; time:inXSDDateTimeStamp ?time}}
WHERE {{
BIND(IRI(CONCAT("arces-monitor:QuantityValue-",STRUUID())) AS ?quantity)
BIND(IRI(CONCAT("http://www.w3.org/2006/time#Instant", STRUUID())) AS ?instant)
BIND(STR(now()) AS ?time)}}"""
"""SEPA paper, Listing 18."""
BINDINGS = {"observation": ox.NamedNode("urn:o:1"), "unit": ox.NamedNode("urn:unit:C"), "value": ox.Literal("22.5")}


@pytest.fixture
def harness(tmp_path):
    with Harness(tmp_path) as harness:
        yield harness


def test_observations_are_numbered_from_one_in_the_order_of_their_updates(harness):
    outcomes = harness.update(storing(1, 2), "INSERT DATA { <a:s> <a:p> 1 }", storing(3))
    assert [outcome.entries for outcome in outcomes] == [2, 0, 1]
    assert [(each.seq, each.cells.value) for each in harness.stored()] == [(1, "1"), (2, "2"), (3, "3")]
    assert (harness.outbox.oldest, harness.outbox.last, harness.outbox.count) == (1, 3, 3)
    assert harness.outbox.oldest_time == 5


def test_an_update_that_changes_nothing_stores_all_the_same(harness):
    again = storing(1, sparql="INSERT DATA { <a:s> <a:p> 1 }"), storing(2, sparql="INSERT DATA { <a:s> <a:p> 1 }")
    assert [outcome.added for outcome in harness.update(*again)] == [1, 0]
    assert harness.values() == ["1", "2"]


def test_an_update_that_fails_stores_nothing_and_takes_no_number(harness):
    with pytest.raises(UpdateFailed):
        harness.update(storing(1), storing(2, sparql="DROP GRAPH <a:none>"))
    harness.update(storing(3))
    assert [(each.seq, each.cells.value) for each in harness.stored()] == [(1, "3")]


def test_quads_added_to_the_history_are_stored_and_not_in_the_graph(harness):
    received = []
    everything = "SELECT * { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } }"
    harness.engine.subscribe(QueryRequest(everything), received.append).result(WAIT)
    sequence = harness.engine.sequence
    (outcome,) = harness.update(f"INSERT DATA {{ {HISTORY} {{ <a:s> <a:p> 1 . <a:s> <a:q> 2 }} }}")
    assert (outcome.added, outcome.entries) == (0, 1)
    (outcome,) = harness.update(f"DELETE WHERE {{ {HISTORY} {{ ?s ?p ?o }} }}")
    assert not outcome.changed
    assert harness.rows(everything) == harness.rows("SELECT ?g { GRAPH ?g {} }") == []
    assert harness.engine.sequence == sequence
    assert len(received) == 1
    assert {str(quad) for quad in harness.history()} == {
        '<a:s> <a:p> "1"^^<http://www.w3.org/2001/XMLSchema#integer>',
        '<a:s> <a:q> "2"^^<http://www.w3.org/2001/XMLSchema#integer>',
    }


@pytest.mark.parametrize(
    "text",
    [
        f"INSERT {{ {HISTORY} {{ ?s <a:p> ?o }} }} WHERE {{ ?s <a:p> ?o }}",
        "INSERT { GRAPH ?g { ?s <a:p> ?o } } WHERE { ?s <a:p> ?o BIND(<urn:edge:history> AS ?g) }",
        "WITH <urn:edge:history> INSERT { ?s <a:p> ?o } USING <urn:live> WHERE { ?s <a:p> ?o }",
        "ADD DEFAULT TO <urn:edge:history>",
        "COPY DEFAULT TO <urn:edge:history>",
        "MOVE DEFAULT TO <urn:edge:history>",
        "CREATE GRAPH <urn:edge:history> ; ADD <urn:live> TO <urn:edge:history>",
        f"DROP SILENT {HISTORY} ; INSERT DATA {{ {HISTORY} {{ <a:s> <a:p> 'x' }} }}",
    ],
)
def test_every_inserting_operation_stores(harness, text):
    harness.update("INSERT DATA { <a:s> <a:p> 'x' . GRAPH <urn:live> { <a:s> <a:p> 'x' } }")
    harness.update(text)
    assert harness.values() == ['<a:s> <a:p> "x" .']
    assert harness.rows("SELECT * { GRAPH <urn:edge:history> { ?s ?p ?o } }") == []


@pytest.mark.parametrize("text", ["CLEAR", "DROP", "COPY", "ADD"])
def test_the_history_can_be_neither_queried_nor_cleared(harness, text):
    harness.update(f"INSERT DATA {{ {HISTORY} {{ <a:s> <a:p> 'x' }} }}")
    graph = "GRAPH <urn:edge:history>" if text in ("CLEAR", "DROP") else "<urn:edge:history> TO <a:g>"
    with pytest.raises(UpdateFailed, match="the graph <urn:edge:history> does not exist"):
        harness.update(f"{text} {graph}")
    assert harness.outbox.count == 1


def test_forced_bindings_and_delayed_updates(harness):
    text = STORE_OBSERVATION.replace("INSERT {", f"INSERT {{ {HISTORY} {{").replace("}\nWHERE", "} }\nWHERE")
    harness.update(UpdateRequest(text, bindings=BINDINGS))
    request = UpdateRequest(STORE_OBSERVATION, bindings={**BINDINGS, "value": ox.Literal("23.5")}, to_ledger=True)
    harness.engine.schedule(request, After(1), "later").result(WAIT)
    wait_for(lambda: harness.outbox.count == 2)
    assert harness.engine.timer("later").result(WAIT).state == "done"
    assert harness.values() == ["22.5", "23.5"]


def test_an_update_for_the_history_alone_stores_all_that_it_inserts(harness):
    harness.update("INSERT DATA { <a:live> <a:p> 'x' }")
    (outcome,) = harness.update(UpdateRequest(STORE_OBSERVATION, bindings=BINDINGS, to_ledger=True))
    assert (outcome.added, outcome.removed, outcome.entries) == (0, 0, 1)
    text = "DELETE { ?s ?p ?o } INSERT { ?s <a:q> ?o . GRAPH <a:g> { ?s <a:q> ?o } } WHERE { ?s ?p ?o }"
    harness.update(UpdateRequest(text, to_ledger=True))
    assert harness.rows("SELECT ?s { ?s ?p ?o }") == [(ox.NamedNode("a:live"),)]
    assert harness.values() == ["22.5", '<a:live> <a:q> "x" .', '<a:live> <a:q> "x" <a:g> .']
    using = UpdateRequest(text, Dataset(("a:none",), ()), to_ledger=True)
    assert harness.update(using)[0].entries == 0
    for refused in ("CLEAR ALL", "CREATE GRAPH <a:h>", "MOVE DEFAULT TO <a:g>"):
        with pytest.raises(UpdateFailed, match="only grows"):
            harness.update(UpdateRequest(refused, to_ledger=True))
    assert harness.outbox.count == 3


def test_a_client_without_permission_cannot_write_the_history(harness):
    access = Access("c", read=None, write=frozenset({"a:g"}), registration="c")
    for request in (
        UpdateRequest(f"INSERT DATA {{ {HISTORY} {{ <a:s> <a:p> 1 }} }}", access=access),
        UpdateRequest("INSERT DATA { <a:s> <a:p> 1 }", access=access, to_ledger=True),
    ):
        with pytest.raises(Forbidden):
            harness.update(request)
    access = Access("c", read=None, write=frozenset({"urn:edge:history"}), registration="c")
    harness.update(f"INSERT DATA {{ {HISTORY} {{ <a:s> <a:p> 1 }} }}", access=access)
    assert harness.outbox.count == 1


def test_blank_nodes_become_iris_that_occur_nowhere_else(harness):
    for _ in range(2):
        harness.update(f"INSERT DATA {{ {HISTORY} {{ _:x <a:p> _:y . <a:s> <a:p> _:x }} }}")
    epoch = harness.outbox.epoch
    assert harness.values() == [
        f"<urn:edge:{epoch}:1:1> <a:p> <urn:edge:{epoch}:1:2> .",
        f"<a:s> <a:p> <urn:edge:{epoch}:1:1> .",
        f"<urn:edge:{epoch}:3:1> <a:p> <urn:edge:{epoch}:3:2> .",
        f"<a:s> <a:p> <urn:edge:{epoch}:3:1> .",
    ]


def test_the_outbox_continues_after_a_restart(tmp_path):
    with Harness(tmp_path) as harness:
        harness.update(storing(1, 2, 3))
        harness.outbox.acknowledge(2)
        before = harness.outbox.epoch, harness.outbox.gateway, harness.stored()
    with Harness(tmp_path) as harness:
        assert (harness.outbox.epoch, harness.outbox.gateway, harness.stored()) == before
        assert (harness.outbox.acknowledged, harness.outbox.oldest, harness.outbox.count) == (2, 3, 1)
        harness.outbox.acknowledge(3)
        assert harness.outbox.oldest_time is None
    with Harness(tmp_path, OutboxSettings(gateway="attic")) as harness:
        assert (harness.outbox.gateway, harness.outbox.last, harness.outbox.count) == ("attic", 3, 0)
        harness.update(storing(4))
        assert harness.stored()[0].seq == 4


def test_each_new_outbox_has_an_epoch_and_a_name_of_its_own(tmp_path):
    names = set()
    for place in ("a", "b"):
        with Harness(tmp_path / place) as harness:
            names |= {harness.outbox.epoch, harness.outbox.gateway}
    assert len(names) == 4


def test_repeated_or_early_acknowledgements_are_ignored(harness):
    harness.update(storing(1, 2))
    harness.outbox.acknowledge(1)
    harness.outbox.acknowledge(1)
    harness.outbox.acknowledge(0)
    assert harness.values() == ["2"]


def test_an_older_copy_continues_in_another_epoch_with_unacknowledged_observations(tmp_path):
    with Harness(tmp_path, unchecked(OutboxSettings, max_bytes=6000)) as harness:
        harness.update(storing(*range(10)))
        harness.outbox.acknowledge(4)
        harness.outbox.claim(8)
    with Harness(tmp_path, unchecked(OutboxSettings, max_bytes=6000)) as harness:
        assert harness.outbox.claimed == 8
        epoch = harness.outbox.epoch
        harness.outbox.begin_epoch(50)  # up to the last number of the later instance
        assert harness.outbox.epoch != epoch
        assert (harness.outbox.acknowledged, harness.outbox.claimed, harness.outbox.oldest) == (0, 0, 1)
        assert [(each.seq, each.cells.value) for each in harness.stored()] == [(1, "8"), (2, "9")]
        harness.update(storing("new"))
        for number in range(100):
            harness.update(storing(f"{number:0200}"))
        harness.outbox.acknowledge(harness.outbox.lost()[0].first)
        waiting, lost = harness.stored(), harness.outbox.lost()
        harness.outbox.begin_epoch(0)
        less = lost[0].first - 1
    with Harness(tmp_path) as harness:
        assert [each._replace(seq=each.seq + less) for each in harness.stored()] == waiting
        assert [one._replace(first=one.first + less, last=one.last + less) for one in harness.outbox.lost()] == lost
        assert harness.outbox.lost()[0].first == 1
        harness.outbox.acknowledge(harness.outbox.last)
        assert harness.stored() == harness.outbox.lost() == []


def test_with_interval_only_durable_observations_may_be_sent(tmp_path):
    with Harness(tmp_path, durability="interval", flush_interval=3600.0) as harness:
        harness.update(storing(1))
        wait_for(lambda: harness.outbox.last == 1)  # it is flushed after the first commit
        harness.update(storing(2))
        assert harness.outbox.last == 1
        assert harness.values() == ["1"]
        assert harness.outbox.count == 2
        harness.outbox.acknowledge(2)
        assert (harness.outbox.acknowledged, harness.outbox.oldest) == (1, 2)


def test_a_full_outbox_drops_the_oldest_and_records_them(tmp_path):
    cap = 4000
    with Harness(tmp_path, unchecked(OutboxSettings, max_bytes=cap)) as harness:
        for number in range(200):
            harness.update(UpdateRequest("INSERT DATA {}", notes=[note(f"{number:040}", time=number)]))
            assert harness.outbox.bytes <= cap
        lost = harness.outbox.lost()
        assert lost[0].first == 1
        assert (lost[0].start, lost[0].end) == (0, lost[0].last - 1)
        for one, other in itertools.pairwise(lost):
            assert other.first == one.last + 1
        assert lost[-1].last + 1 == harness.outbox.oldest == harness.stored()[0].seq
        assert [int(value) for value in harness.values()] == list(range(lost[-1].last, 200))
        last = harness.outbox.oldest
    with Harness(tmp_path, unchecked(OutboxSettings, max_bytes=cap)) as harness:
        assert harness.outbox.lost() == lost
        assert harness.outbox.oldest == last
        harness.outbox.acknowledge(lost[0].last)
        assert harness.outbox.lost() == lost[1:]
        harness.outbox.acknowledge(last)
        assert harness.outbox.lost() == []


def test_a_full_outbox_can_refuse_storing_updates_only(tmp_path):
    with Harness(tmp_path, unchecked(OutboxSettings, max_bytes=1000, when_full="refuse")) as harness:
        with pytest.raises(StorageFailed, match=r"outbox\.max_bytes"):
            harness.update(
                storing(*(secrets.token_hex(20) for _ in range(100)), sparql="INSERT DATA { <a:s> <a:p> 1 }")
            )
        assert harness.rows("SELECT ?s { ?s ?p ?o }") == []
        for number in range(1000):
            try:
                harness.update(storing(f"{number:040}"))
            except StorageFailed:
                break
        assert harness.outbox.bytes <= 1000
        assert harness.update("INSERT DATA { <a:s> <a:p> 1 }")[0].added == 1
        assert not harness.engine.storage_failing
        harness.outbox.acknowledge(number)
        harness.update(storing("on we go"))
        assert harness.values() == ["on we go"]


def test_unused_contexts_are_evicted(harness):
    for start in range(0, 5000, 500):
        notes = [note(1, series=f"urn:o:{number}") for number in range(start, start + 500)]
        harness.update(UpdateRequest("INSERT DATA {}", notes=notes))
    harness.outbox.acknowledge(4999)
    assert [each.context.series for each in harness.stored()] == ["urn:o:4999"]
    ((contexts,),) = harness.journal.select("SELECT count(*) FROM outbox_contexts")
    assert contexts == 1
    harness.update(storing(1))
    assert harness.values() == ["1", "1"]


def test_a_graph_that_has_been_used_for_something_else_is_not_taken(tmp_path):
    with Harness(tmp_path) as harness:
        harness.update("INSERT DATA { GRAPH <urn:mine> { <a:s> <a:p> 1 } }")
    with pytest.raises(UpdateFailed, match="urn:mine"):
        Harness(tmp_path, OutboxSettings(graph="urn:mine"))
    with Harness(tmp_path, OutboxSettings(graph="urn:other")) as harness:
        harness.update("INSERT DATA { GRAPH <urn:other> { <a:s> <a:p> 1 } }")
        assert harness.outbox.count == 1


@pytest.mark.parametrize(
    ("damage", "expected_message"),
    [
        ("DELETE FROM outbox WHERE seq = 2", "of the stored observations 1 to 3 only 2 are there"),
        ("DELETE FROM outbox WHERE seq = 1", "observation 1 is missing"),
        ("UPDATE outbox_contexts SET body = '{}'", "context 1"),
        ("DELETE FROM outbox_contexts", "context 1"),
        ("UPDATE meta SET value = 'x' WHERE name = 'outbox'", "whose its outbox is"),
    ],
)
def test_damage_is_noticed_when_it_is_opened(tmp_path, damage, expected_message):
    with Harness(tmp_path) as harness:
        harness.update(storing(1, 2, 3))
    connection = sqlite3.connect(tmp_path / FILE_NAME)
    connection.execute(damage)
    connection.commit()
    connection.close()
    with pytest.raises(DataDirectoryRefused, match=expected_message):
        Harness(tmp_path)


def test_a_damaged_observation_is_noticed_when_it_is_read(tmp_path):
    with Harness(tmp_path) as harness:
        harness.update(storing(1, 2, 3))
    connection = sqlite3.connect(tmp_path / FILE_NAME)
    connection.execute("UPDATE outbox SET body = '6\t1' WHERE seq = 2")
    connection.commit()
    connection.close()
    with Harness(tmp_path) as harness, pytest.raises(DamagedDatabase, match="observation 2 fails its checksum"):
        harness.outbox.rows(1, 3)


actions = st.lists(
    st.one_of(
        st.lists(st.sampled_from(["good", "history", "plain", "bad"]), min_size=1, max_size=4),
        st.sampled_from(["full", "room", "restart", "acknowledge"]),
    ),
    max_size=14,
)


@given(actions)
@settings(max_examples=examples(25))
def test_acknowledged_observations_are_stored_in_order_in_every_story(story):
    texts = {
        "good": "INSERT DATA {}",
        "history": f"INSERT DATA {{ {HISTORY} {{ <a:s> <a:p> 'x' }} }}",
        "plain": "INSERT DATA { <a:s> <a:p> 1 }",
        "bad": "DROP GRAPH <a:none>",
    }
    expected: list[tuple[int, str]] = []
    number = last = 0
    with tempfile.TemporaryDirectory() as place:
        harness = Harness(Path(place))
        for action in story:
            if action == "restart":
                harness.__exit__()
                harness = Harness(Path(place))
            elif action == "acknowledge":
                keep = len(expected) // 2
                if expected:
                    harness.outbox.acknowledge(last - keep)
                    expected = expected[len(expected) - keep :]
            elif isinstance(action, str):
                harness.disk_full(full=action == "full")
            else:
                futures = []
                for kind in action:
                    number += 1
                    values = [] if kind == "plain" else [f"{number:01000}"]  # a page at least
                    futures.append((kind, number, harness.engine.update([storing(*values, sparql=texts[kind])])))
                for kind, made, future in futures:
                    if future.exception(WAIT) is None and kind != "plain":
                        last += 1
                        expected.append((last, f"{made:01000}"))
                        if kind == "history":
                            last += 1
                            expected.append((last, '<a:s> <a:p> "x" .'))
            assert list(zip((each.seq for each in harness.stored()), harness.values(), strict=True)) == expected
            assert harness.outbox.count == len(expected)
            assert harness.outbox.last == last
        harness.__exit__()


def test_too_many_observations_in_one_update_are_refused_as_a_whole(harness):
    def insert(count: int) -> UpdateRequest:
        triples = " . ".join(f"<urn:o:{number // 4}> <urn:p:{number % 4}> {number}" for number in range(count))
        return UpdateRequest(f"INSERT DATA {{ {HISTORY} {{ {triples} }} }}")

    with pytest.raises(ResultTooLarge, match="in several requests"):
        harness.update(insert(20_001))
    assert harness.outbox.last == 0
    (outcome,) = harness.update(insert(20_000))
    assert outcome.entries == harness.outbox.last > 0


@pytest.mark.parametrize("last", ["", "; INSERT { <a:s> <a:q> ?o } WHERE { <urn:o:0> <urn:p:0> ?o }"])
def test_large_data_with_stored_observations_is_prepared_in_pieces(harness, monkeypatch, last):
    applied: list[int] = []
    apply = StagedChange.apply

    def noted(self):
        applied.append(self.size)
        return apply(self)

    monkeypatch.setattr(StagedChange, "apply", noted)
    triples = " . ".join(f"<urn:o:{number // 4}> <urn:p:{number % 4}> {number}" for number in range(4_000))
    stored = "<urn:stored:1> <a:p> 1 . <urn:stored:1> <a:q> 2"
    text = f"INSERT DATA {{ {triples} {HISTORY} {{ {stored} }} }} ; DELETE DATA {{ {HISTORY} {{ {stored} }} }} {last}"
    (outcome,) = harness.update(text)
    assert (outcome.added, outcome.removed, outcome.entries) == (4_000 + bool(last), 0, 1)
    assert applied == [outcome.added]
    assert harness.rows("SELECT (COUNT(*) AS ?n) { ?s ?p ?o }") == [(ox.Literal(outcome.added),)]
    assert harness.rows(f"SELECT * {{ {HISTORY} {{ ?s ?p ?o }} }}") == []
    assert {str(quad) for quad in harness.history()} == {
        f'<urn:stored:1> <a:{p}> "{value}"^^<http://www.w3.org/2001/XMLSchema#integer>'
        for p, value in (("p", 1), ("q", 2))
    }
    with pytest.raises(Forbidden):
        harness.update(text, access=Access("anna", read=None, write=frozenset({""})))
    harness.disk_full(full=True)
    with pytest.raises(StorageFailed):
        harness.update(text.replace("urn:o:", "urn:o:new:"))
    harness.disk_full(full=False)
    assert harness.outbox.last == 1
    (outcome,) = harness.update(text)
    assert (outcome.added, outcome.entries) == (0, 1)
    assert harness.outbox.last == 2
