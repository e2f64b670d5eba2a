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
from recorder_harness import WAIT, House, note, storing

from edge.engine.journal.data_directory import DataDirectoryRefused
from edge.engine.journal.sqlite_schema import FILE_NAME
from edge.engine.requests import Dataset, QueryRequest, UpdateRequest
from edge.engine.updates.staged_change import StagedChange
from edge.outbox.observation import OWL_TIME, QUDT, RDF, SOSA
from edge.outbox.settings import OutboxSettings
from edge.outbox.table import Damaged
from edge.protocol.access import Access
from edge.protocol.errors import Forbidden, ResultTooLarge, StorageFailed, UpdateFailed
from edge.protocol.moments import After
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
def house(tmp_path):
    with House(tmp_path) as house:
        yield house


def test_observations_are_numbered_from_one_in_the_order_of_their_updates(house):
    outcomes = house.update(storing(1, 2), "INSERT DATA { <a:s> <a:p> 1 }", storing(3))
    assert [outcome.entries for outcome in outcomes] == [2, 0, 1]
    assert [(each.seq, each.cells.value) for each in house.stored()] == [(1, "1"), (2, "2"), (3, "3")]
    assert (house.outbox.oldest, house.outbox.last, house.outbox.count) == (1, 3, 3)
    assert house.outbox.oldest_time == 5


def test_an_update_that_changes_nothing_stores_all_the_same(house):
    again = storing(1, sparql="INSERT DATA { <a:s> <a:p> 1 }"), storing(2, sparql="INSERT DATA { <a:s> <a:p> 1 }")
    assert [outcome.added for outcome in house.update(*again)] == [1, 0]
    assert house.values() == ["1", "2"]


def test_an_update_that_fails_stores_nothing_and_takes_no_number(house):
    with pytest.raises(UpdateFailed):
        house.update(storing(1), storing(2, sparql="DROP GRAPH <a:none>"))
    house.update(storing(3))
    assert [(each.seq, each.cells.value) for each in house.stored()] == [(1, "3")]


def test_what_is_added_to_the_history_is_stored_and_seen_nowhere(house):
    told = []
    everything = "SELECT * { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } }"
    house.engine.subscribe(QueryRequest(everything), told.append).result(WAIT)
    sequence = house.engine.sequence
    (outcome,) = house.update(f"INSERT DATA {{ {HISTORY} {{ <a:s> <a:p> 1 . <a:s> <a:q> 2 }} }}")
    assert (outcome.added, outcome.entries) == (0, 1)
    (outcome,) = house.update(f"DELETE WHERE {{ {HISTORY} {{ ?s ?p ?o }} }}")
    assert not outcome.changed
    assert house.rows(everything) == house.rows("SELECT ?g { GRAPH ?g {} }") == []
    assert house.engine.sequence == sequence
    assert len(told) == 1
    assert {str(quad) for quad in house.history()} == {
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
def test_all_that_inserts_stores(house, text):
    house.update("INSERT DATA { <a:s> <a:p> 'x' . GRAPH <urn:live> { <a:s> <a:p> 'x' } }")
    house.update(text)
    assert house.values() == ['<a:s> <a:p> "x" .']
    assert house.rows("SELECT * { GRAPH <urn:edge:history> { ?s ?p ?o } }") == []


@pytest.mark.parametrize("text", ["CLEAR", "DROP", "COPY", "ADD"])
def test_the_history_cannot_be_looked_into_or_emptied(house, text):
    house.update(f"INSERT DATA {{ {HISTORY} {{ <a:s> <a:p> 'x' }} }}")
    graph = "GRAPH <urn:edge:history>" if text in ("CLEAR", "DROP") else "<urn:edge:history> TO <a:g>"
    with pytest.raises(UpdateFailed, match="the graph <urn:edge:history> does not exist"):
        house.update(f"{text} {graph}")
    assert house.outbox.count == 1


def test_forced_bindings_and_delayed_updates(house):
    text = STORE_OBSERVATION.replace("INSERT {", f"INSERT {{ {HISTORY} {{").replace("}\nWHERE", "} }\nWHERE")
    house.update(UpdateRequest(text, bindings=BINDINGS))
    request = UpdateRequest(STORE_OBSERVATION, bindings={**BINDINGS, "value": ox.Literal("23.5")}, beside=True)
    house.engine.schedule(request, After(1), "later").result(WAIT)
    wait_for(lambda: house.outbox.count == 2)
    assert house.engine.timer("later").result(WAIT).state == "done"
    assert house.values() == ["22.5", "23.5"]


def test_an_update_for_the_history_alone_stores_all_that_it_inserts(house):
    house.update("INSERT DATA { <a:live> <a:p> 'x' }")
    (outcome,) = house.update(UpdateRequest(STORE_OBSERVATION, bindings=BINDINGS, beside=True))
    assert (outcome.added, outcome.removed, outcome.entries) == (0, 0, 1)
    text = "DELETE { ?s ?p ?o } INSERT { ?s <a:q> ?o . GRAPH <a:g> { ?s <a:q> ?o } } WHERE { ?s ?p ?o }"
    house.update(UpdateRequest(text, beside=True))
    assert house.rows("SELECT ?s { ?s ?p ?o }") == [(ox.NamedNode("a:live"),)]
    assert house.values() == ["22.5", '<a:live> <a:q> "x" .', '<a:live> <a:q> "x" <a:g> .']
    using = UpdateRequest(text, Dataset(("a:none",), ()), beside=True)
    assert house.update(using)[0].entries == 0
    for refused in ("CLEAR ALL", "CREATE GRAPH <a:h>", "MOVE DEFAULT TO <a:g>"):
        with pytest.raises(UpdateFailed, match="only grows"):
            house.update(UpdateRequest(refused, beside=True))
    assert house.outbox.count == 3


def test_who_may_not_write_the_history_cannot(house):
    access = Access("c", read=None, write=frozenset({"a:g"}), registration="c")
    for request in (
        UpdateRequest(f"INSERT DATA {{ {HISTORY} {{ <a:s> <a:p> 1 }} }}", access=access),
        UpdateRequest("INSERT DATA { <a:s> <a:p> 1 }", access=access, beside=True),
    ):
        with pytest.raises(Forbidden):
            house.update(request)
    access = Access("c", read=None, write=frozenset({"urn:edge:history"}), registration="c")
    house.update(f"INSERT DATA {{ {HISTORY} {{ <a:s> <a:p> 1 }} }}", access=access)
    assert house.outbox.count == 1


def test_blank_nodes_become_iris_that_occur_nowhere_else(house):
    for _ in range(2):
        house.update(f"INSERT DATA {{ {HISTORY} {{ _:x <a:p> _:y . <a:s> <a:p> _:x }} }}")
    epoch = house.outbox.epoch
    assert house.values() == [
        f"<urn:edge:{epoch}:1:1> <a:p> <urn:edge:{epoch}:1:2> .",
        f"<a:s> <a:p> <urn:edge:{epoch}:1:1> .",
        f"<urn:edge:{epoch}:3:1> <a:p> <urn:edge:{epoch}:3:2> .",
        f"<a:s> <a:p> <urn:edge:{epoch}:3:1> .",
    ]


def test_all_is_there_after_a_restart_and_goes_on(tmp_path):
    with House(tmp_path) as house:
        house.update(storing(1, 2, 3))
        house.outbox.acknowledge(2)
        before = house.outbox.epoch, house.outbox.gateway, house.stored()
    with House(tmp_path) as house:
        assert (house.outbox.epoch, house.outbox.gateway, house.stored()) == before
        assert (house.outbox.acknowledged, house.outbox.oldest, house.outbox.count) == (2, 3, 1)
        house.outbox.acknowledge(3)
        assert house.outbox.oldest_time is None
    with House(tmp_path, OutboxSettings(gateway="attic")) as house:
        assert (house.outbox.gateway, house.outbox.last, house.outbox.count) == ("attic", 3, 0)
        house.update(storing(4))
        assert house.stored()[0].seq == 4


def test_each_new_outbox_has_an_epoch_and_a_name_of_its_own(tmp_path):
    names = set()
    for place in ("a", "b"):
        with House(tmp_path / place) as house:
            names |= {house.outbox.epoch, house.outbox.gateway}
    assert len(names) == 4


def test_what_is_acknowledged_twice_or_too_early_is_no_matter(house):
    house.update(storing(1, 2))
    house.outbox.acknowledge(1)
    house.outbox.acknowledge(1)
    house.outbox.acknowledge(0)
    assert house.values() == ["2"]


def test_an_older_copy_goes_on_in_another_epoch_with_all_that_is_not_acknowledged(tmp_path):
    with House(tmp_path, OutboxSettings(max_bytes=6000)) as house:
        house.update(storing(*range(10)))
        house.outbox.acknowledge(4)
        house.outbox.claim(8)
    with House(tmp_path, OutboxSettings(max_bytes=6000)) as house:
        assert house.outbox.claimed == 8
        epoch = house.outbox.epoch
        house.outbox.begin_epoch(50)  # up to the last number of the later instance
        assert house.outbox.epoch != epoch
        assert (house.outbox.acknowledged, house.outbox.claimed, house.outbox.oldest) == (0, 0, 1)
        assert [(each.seq, each.cells.value) for each in house.stored()] == [(1, "8"), (2, "9")]
        house.update(storing("new"))
        for number in range(100):
            house.update(storing(f"{number:0200}"))
        house.outbox.acknowledge(house.outbox.lost()[0].first)
        waiting, lost = house.stored(), house.outbox.lost()
        house.outbox.begin_epoch(0)
        less = lost[0].first - 1
    with House(tmp_path) as house:
        assert [each._replace(seq=each.seq + less) for each in house.stored()] == waiting
        assert [one._replace(first=one.first + less, last=one.last + less) for one in house.outbox.lost()] == lost
        assert house.outbox.lost()[0].first == 1
        house.outbox.acknowledge(house.outbox.last)
        assert house.stored() == house.outbox.lost() == []


def test_with_an_interval_only_what_survives_a_power_cut_may_be_sent(tmp_path):
    with House(tmp_path, durability="interval", flush_interval=3600.0) as house:
        house.update(storing(1))
        house.update(storing(2))
        assert house.outbox.last == 1  # it is flushed after the first commit
        assert house.values() == ["1"]
        assert house.outbox.count == 2
        house.outbox.acknowledge(2)
        assert (house.outbox.acknowledged, house.outbox.oldest) == (1, 2)


def test_at_the_cap_the_oldest_go_and_it_is_known_which(tmp_path):
    cap = 4000
    with House(tmp_path, OutboxSettings(max_bytes=cap)) as house:
        for number in range(200):
            house.update(UpdateRequest("INSERT DATA {}", notes=[note(f"{number:040}", time=number)]))
            assert house.outbox.bytes <= cap
        lost = house.outbox.lost()
        assert lost[0].first == 1
        assert (lost[0].start, lost[0].end) == (0, lost[0].last - 1)
        for one, other in itertools.pairwise(lost):
            assert other.first == one.last + 1
        assert lost[-1].last + 1 == house.outbox.oldest == house.stored()[0].seq
        assert [int(value) for value in house.values()] == list(range(lost[-1].last, 200))
        last = house.outbox.oldest
    with House(tmp_path, OutboxSettings(max_bytes=cap)) as house:
        assert house.outbox.lost() == lost
        assert house.outbox.oldest == last
        house.outbox.acknowledge(lost[0].last)
        assert house.outbox.lost() == lost[1:]
        house.outbox.acknowledge(last)
        assert house.outbox.lost() == []


def test_at_the_cap_what_stores_can_be_refused_and_nothing_else(tmp_path):
    with House(tmp_path, OutboxSettings(max_bytes=1000, when_full="refuse")) as house:
        with pytest.raises(StorageFailed, match=r"outbox\.max_bytes"):
            house.update(storing(*(secrets.token_hex(20) for _ in range(100)), sparql="INSERT DATA { <a:s> <a:p> 1 }"))
        assert house.rows("SELECT ?s { ?s ?p ?o }") == []
        for number in range(1000):
            try:
                house.update(storing(f"{number:040}"))
            except StorageFailed:
                break
        assert house.outbox.bytes <= 1000
        assert house.update("INSERT DATA { <a:s> <a:p> 1 }")[0].added == 1
        assert not house.engine.storage_failing
        house.outbox.acknowledge(number)
        house.update(storing("on we go"))
        assert house.values() == ["on we go"]


def test_contexts_that_nobody_needs_are_forgotten_when_there_are_many(house):
    for start in range(0, 5000, 500):
        notes = [note(1, series=f"urn:o:{number}") for number in range(start, start + 500)]
        house.update(UpdateRequest("INSERT DATA {}", notes=notes))
    house.outbox.acknowledge(4999)
    assert [each.context.series for each in house.stored()] == ["urn:o:4999"]
    ((contexts,),) = house.journal.select("SELECT count(*) FROM outbox_contexts")
    assert contexts == 1
    house.update(storing(1))
    assert house.values() == ["1", "1"]


def test_a_graph_that_has_been_used_for_something_else_is_not_taken(tmp_path):
    with House(tmp_path) as house:
        house.update("INSERT DATA { GRAPH <urn:mine> { <a:s> <a:p> 1 } }")
    with pytest.raises(UpdateFailed, match="urn:mine"):
        House(tmp_path, OutboxSettings(graph="urn:mine"))
    with House(tmp_path, OutboxSettings(graph="urn:other")) as house:
        house.update("INSERT DATA { GRAPH <urn:other> { <a:s> <a:p> 1 } }")
        assert house.outbox.count == 1


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("DELETE FROM outbox WHERE seq = 2", "of the stored observations 1 to 3 only 2 are there"),
        ("DELETE FROM outbox WHERE seq = 1", "observation 1 is missing"),
        ("UPDATE outbox_contexts SET body = '{}'", "context 1"),
        ("DELETE FROM outbox_contexts", "context 1"),
        ("UPDATE meta SET value = 'x' WHERE name = 'outbox'", "whose its outbox is"),
    ],
)
def test_damage_is_noticed_when_it_is_opened(tmp_path, damage, said):
    with House(tmp_path) as house:
        house.update(storing(1, 2, 3))
    connection = sqlite3.connect(tmp_path / FILE_NAME)
    connection.execute(damage)
    connection.commit()
    connection.close()
    with pytest.raises(DataDirectoryRefused, match=said):
        House(tmp_path)


def test_a_damaged_observation_is_noticed_when_it_is_read(tmp_path):
    with House(tmp_path) as house:
        house.update(storing(1, 2, 3))
    connection = sqlite3.connect(tmp_path / FILE_NAME)
    connection.execute("UPDATE outbox SET body = '6\t1' WHERE seq = 2")
    connection.commit()
    connection.close()
    with House(tmp_path) as house, pytest.raises(Damaged, match="observation 2 fails its checksum"):
        house.outbox.rows(1, 3)


actions = st.lists(
    st.one_of(
        st.lists(st.sampled_from(["good", "history", "plain", "bad"]), min_size=1, max_size=4),
        st.sampled_from(["full", "room", "restart", "acknowledge"]),
    ),
    max_size=14,
)


@given(actions)
@settings(max_examples=25)
def test_in_every_story_exactly_what_was_acknowledged_is_stored_in_order(story):
    texts = {
        "good": "INSERT DATA {}",
        "history": f"INSERT DATA {{ {HISTORY} {{ <a:s> <a:p> 'x' }} }}",
        "plain": "INSERT DATA { <a:s> <a:p> 1 }",
        "bad": "DROP GRAPH <a:none>",
    }
    expected: list[tuple[int, str]] = []
    number = last = 0
    with tempfile.TemporaryDirectory() as place:
        house = House(Path(place))
        for action in story:
            if action == "restart":
                house.__exit__()
                house = House(Path(place))
            elif action == "acknowledge":
                keep = len(expected) // 2
                if expected:
                    house.outbox.acknowledge(last - keep)
                    expected = expected[len(expected) - keep :]
            elif isinstance(action, str):
                house.disk_full(full=action == "full")
            else:
                futures = []
                for kind in action:
                    number += 1
                    values = [] if kind == "plain" else [f"{number:01000}"]  # a page at least
                    futures.append((kind, number, house.engine.update([storing(*values, sparql=texts[kind])])))
                for kind, made, future in futures:
                    if future.exception(WAIT) is None and kind != "plain":
                        last += 1
                        expected.append((last, f"{made:01000}"))
                        if kind == "history":
                            last += 1
                            expected.append((last, '<a:s> <a:p> "x" .'))
            assert list(zip((each.seq for each in house.stored()), house.values(), strict=True)) == expected
            assert house.outbox.count == len(expected)
            assert house.outbox.last == last
        house.__exit__()


def test_more_than_can_be_stored_in_one_go_is_refused_as_a_whole(house):
    def insert(count: int) -> UpdateRequest:
        triples = " . ".join(f"<urn:o:{number // 4}> <urn:p:{number % 4}> {number}" for number in range(count))
        return UpdateRequest(f"INSERT DATA {{ {HISTORY} {{ {triples} }} }}")

    with pytest.raises(ResultTooLarge, match="in several requests"):
        house.update(insert(20_001))
    assert house.outbox.last == 0
    (outcome,) = house.update(insert(20_000))
    assert outcome.entries == house.outbox.last > 0


@pytest.mark.parametrize("last", ["", "; INSERT { <a:s> <a:q> ?o } WHERE { <urn:o:0> <urn:p:0> ?o }"])
def test_large_data_beside_what_is_stored_is_prepared_in_pieces(house, monkeypatch, last):
    applied: list[int] = []
    apply = StagedChange.apply

    def noted(self):
        applied.append(self.size)
        return apply(self)

    monkeypatch.setattr(StagedChange, "apply", noted)
    triples = " . ".join(f"<urn:o:{number // 4}> <urn:p:{number % 4}> {number}" for number in range(4_000))
    stored = "<urn:stored:1> <a:p> 1 . <urn:stored:1> <a:q> 2"
    text = f"INSERT DATA {{ {triples} {HISTORY} {{ {stored} }} }} ; DELETE DATA {{ {HISTORY} {{ {stored} }} }} {last}"
    (outcome,) = house.update(text)
    assert (outcome.added, outcome.removed, outcome.entries) == (4_000 + bool(last), 0, 1)
    assert applied == [outcome.added]
    assert house.rows("SELECT (COUNT(*) AS ?n) { ?s ?p ?o }") == [(ox.Literal(outcome.added),)]
    assert house.rows(f"SELECT * {{ {HISTORY} {{ ?s ?p ?o }} }}") == []
    assert {str(quad) for quad in house.history()} == {
        f'<urn:stored:1> <a:{p}> "{value}"^^<http://www.w3.org/2001/XMLSchema#integer>'
        for p, value in (("p", 1), ("q", 2))
    }
    with pytest.raises(Forbidden):
        house.update(text, access=Access("anna", read=None, write=frozenset({""})))
    house.disk_full(full=True)
    with pytest.raises(StorageFailed):
        house.update(text.replace("urn:o:", "urn:o:new:"))
    house.disk_full(full=False)
    assert house.outbox.last == 1
    (outcome,) = house.update(text)
    assert (outcome.added, outcome.entries) == (0, 1)
    assert house.outbox.last == 2
