"""Parts of the announcer with a real engine: commands, results of queries, subscriptions, announcements of others."""

from __future__ import annotations

import json
import queue
import sys
from collections.abc import Callable, Sequence

import pyoxigraph as ox
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.announce import facts
from edge.announce.commands import Commands
from edge.announce.entities import CommandOf, EntityMaker
from edge.announce.facts import Facts
from edge.announce.following import Following
from edge.announce.foreign import ForeignAnnouncements
from edge.announce.groups import Groups
from edge.announce.places import load, store
from edge.announce.query_results import QueryResults
from edge.announce.settings import AnnounceSettings
from edge.announce.topics import Place
from edge.engine.requests import Delta, QueryRequest, SubscriberNotification, UpdateRequest
from edge.engine.start import open_engine
from edge.protocol.access import ANYBODY, Access

PREFIXES = """PREFIX sosa: <http://www.w3.org/ns/sosa/> PREFIX qudt: <http://qudt.org/1.1/schema/qudt#>
PREFIX rdfs: <http://www.w3.org/2000/01/rdf-schema#> PREFIX edge: <urn:sepa-edge:>
"""

PLACE = Place("homeassistant", "sepa", "gw")


class Bench:
    """An engine, and the events that it has for the announcer's thread."""

    def __init__(self) -> None:
        self.engine = open_engine(None)
        self.events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def update(self, text: str) -> None:
        self.engine.update([UpdateRequest(PREFIXES + text)]).result(20)

    def run(self, until: Callable[[], object]) -> None:
        while not until():
            self.events.get(timeout=20)()


@pytest.fixture
def bench():
    bench = Bench()
    yield bench
    assert bench.engine.close()


def desired(bench: Bench) -> list[str]:
    found = bench.engine.query(QueryRequest(f"{PREFIXES} SELECT ?v {{ ?o edge:desired ?v }}")).result(20)
    return [row[0].value for row in found.rows]


def test_of_many_commands_the_newest_counts(bench):
    commands = Commands(bench.engine, bench.events.put)
    commands.access = ANYBODY
    commands.put("set", CommandOf("urn:dimmer", {"kind": "number", "min": 0.0, "max": 254.0}))
    before = bench.engine.sequence
    for level in range(200):
        commands.take("set", str(level).encode())
        commands.send()
    bench.run(lambda: not commands._running)
    commands.send()
    bench.run(lambda: not commands._running)
    assert desired(bench) == ["199"]
    assert bench.engine.sequence - before == 2
    commands.take("other", b"1")
    commands.take("set", b"\xff")
    commands.send()
    assert commands.refused == 1
    commands.access = None
    commands.take("set", b"7")
    commands.send()
    assert (desired(bench), commands.refused) == (["199"], 1)


def test_a_client_that_may_not_write_sets_nothing(bench):
    commands = Commands(bench.engine, bench.events.put)
    commands.access = Access("ha", frozenset({"update"}), write=frozenset({"urn:other"}))
    commands.put("set", CommandOf("urn:lamp", {"kind": "switch"}))
    commands.take("set", b"ON")
    commands.send()
    bench.run(lambda: commands.refused)
    assert desired(bench) == []


def test_facts_follow_the_graph(bench):
    known = Facts()
    seen: list[dict[str, set[str]]] = []

    def take(notification: SubscriberNotification) -> None:
        seen.append(known.apply(notification.delta))

    following = Following(
        bench.engine, QueryRequest(facts.query()), bench.events.put, lambda: False, take, lambda reason: None
    )
    bench.run(lambda: seen)
    bench.update("""INSERT DATA { <urn:o> a sosa:Observation ; rdfs:label "l", "alt"@de ; sosa:madeBySensor <urn:s> ;
        sosa:hasResult [ qudt:numericValue 1 ; qudt:unit <urn:u> ] . <urn:s> rdfs:label "sensor" .
        [] a sosa:Observation ; rdfs:label "blank" . <urn:x> rdfs:label "not an observation" }""")
    bench.run(lambda: "urn:o" in known)
    assert list(known) == ["urn:o"]
    assert (known.text("urn:o", "label"), known.text("urn:s", "name")) == ("l", "sensor")
    assert (known.value("urn:o"), known.iri("urn:o", "unit")) == (ox.Literal(1), "urn:u")
    count = len(seen)
    bench.update("DELETE { ?q qudt:numericValue 1 } INSERT { ?q qudt:numericValue 2 } WHERE { ?q qudt:numericValue 1 }")
    bench.run(lambda: len(seen) > count)
    assert seen[-1] == {"urn:o": {"value"}}
    # Another observation of the sensor says nothing new about it.
    bench.update("INSERT DATA { <urn:o2> a sosa:Observation ; sosa:madeBySensor <urn:s> }")
    bench.run(lambda: "urn:o2" in known)
    assert seen[-1] == {"urn:o2": {"observed", "sensor"}}
    bench.update("DELETE WHERE { <urn:o2> ?p ?o }")
    bench.run(lambda: "urn:o2" not in known)
    assert known.text("urn:s", "name") == "sensor"
    bench.update("DELETE WHERE { <urn:o> ?p ?o }")
    bench.run(lambda: "urn:o" not in known)
    assert known._all == {}
    following.close()


def test_a_subscription_that_falls_behind_starts_again(bench):
    full = [True]
    taken: list[int] = []
    following = Following(
        bench.engine,
        QueryRequest("SELECT * { ?s ?p ?o }"),
        bench.events.put,
        lambda: full[0],
        lambda notification: taken.append(notification.sequence),
        lambda reason: None,
    )
    bench.run(lambda: following.retry_at is not None)
    full[0] = False
    following.attempt(0.0)
    assert taken == []
    following.attempt(following.retry_at)
    bench.run(lambda: taken)
    assert taken == [0]
    following.close()


def test_only_single_values_of_queries_are_announced(bench):
    changed: list[str] = []
    results = QueryResults(bench.engine, bench.events.put, lambda: False, changed.append)
    texts = {
        "one": "SELECT ?v { <urn:a> <urn:p> ?v }",
        "two": "SELECT ?s ?v { ?s <urn:p> ?v }",
        "wrong": "SELECT",
        "with space/ü": "ASK { ?s ?p ?o }",
    }
    results.follow(texts, ANYBODY)
    bench.run(lambda: results.known)
    assert results.observed("urn:sepa-edge:query:two", "") is None
    (ask,) = [results.observed(iri, "") for iri in set(changed) if "space" in iri]
    assert (ask.name, ask.value) == ("with space/ü", ox.Literal(False))

    def value() -> object:
        return results.observed("urn:sepa-edge:query:one", "").value

    assert value() is None
    bench.update("INSERT DATA { <urn:a> <urn:p> 1 }")
    bench.run(lambda: value() == ox.Literal(1))
    bench.update("INSERT DATA { <urn:a> <urn:p> 2 }")
    bench.run(lambda: value() is None)
    bench.update("DELETE DATA { <urn:a> <urn:p> 1 }")
    bench.run(lambda: value() == ox.Literal(2))
    results.follow(texts, Access("ha", read=frozenset()))
    bench.run(lambda: results.known)
    assert value() is None
    results.follow(texts, None)
    assert results.observed("urn:sepa-edge:query:one", "") is None


def announced(*topics: str) -> bytes:
    components = {str(n): {"p": "sensor", "uniq_id": str(n), "stat_t": each} for n, each in enumerate(topics)}
    return json.dumps({"dev": {"ids": "d"}, "o": {"name": "x"}, "cmps": components}).encode()


def test_topics_of_others_are_known_while_they_are_announced():
    foreign = ForeignAnnouncements("homeassistant")
    first, second = "homeassistant/device/a/config", "homeassistant/device/b/config"
    assert foreign.is_one(first)
    assert not foreign.is_one("homeassistant/status")
    assert foreign.take(first, announced("t/1", "t/2")) == {"t/1", "t/2"}
    assert foreign.take(second, announced("t/2", "t/3")) == {"t/3"}
    assert foreign.take(first, announced("t/1", "t/2")) == set()
    assert foreign.take(first, b"") == {"t/1"}
    assert "t/2" in foreign
    assert foreign.take(second, b"[") == {"t/2", "t/3"}
    assert foreign.take(second, b"\xff") == set()
    assert "t/3" not in foreign


def test_places_survive_a_damaged_file(tmp_path):
    file = tmp_path / "places.json"
    places = [Place("a", "b", "c"), Place("ä/1", "b", "d")]
    assert load(file) == []
    store(file, places)
    assert load(file) == places
    file.write_text('[{"prefix": 1}]')
    assert load(file) == []
    store(file, [])
    assert not file.exists()


@pytest.mark.parametrize(
    "content",
    [
        "[" * 100_000,
        "null",
        '"x"',
        '{"a": 1}',
        "\xff",
        '[{"prefix": "a+", "root": "b", "node": "c"}]',
        '[{"prefix": "a", "root": "b/#/c", "node": "c"}]',
        '[{"prefix": "a", "root": "", "node": "c"}]',
        '[{"prefix": "a", "root": "b", "node": "\\u0000"}]',
        '[{"prefix": "a", "root": "\\ud800", "node": "c"}]',
    ],
    ids=["nested", "null", "text", "object", "bytes", "prefix", "root", "empty", "node", "surrogate"],
)
def test_a_damaged_place_is_ignored(tmp_path, content, caplog):
    file = tmp_path / "places.json"
    file.write_bytes(content.encode("latin-1"))
    assert load(file) == []
    assert "announce.places_unreadable" in caplog.text


def test_one_damaged_place_does_not_hide_the_others(tmp_path):
    file = tmp_path / "places.json"
    good = {"prefix": "a", "root": "b", "node": "c"}
    file.write_text(json.dumps([{**good, "root": "#"}, 1, good]))
    assert load(file) == [Place("a", "b", "c")]


def groups_of(outgoing: object, settable: Callable[..., dict[str, object]] = lambda _: {}, most: int = 2000) -> Groups:
    bench = Commands(None, lambda _: None)
    queries = QueryResults(None, lambda _: None, lambda: False, lambda _: None)
    bench.access = ANYBODY
    settings = AnnounceSettings(home_assistant=True, max_entities=most)
    foreign = ForeignAnnouncements("homeassistant")
    return Groups(settings, PLACE, EntityMaker(PLACE), outgoing, bench, queries, foreign, settable)


class Published:
    """Counts the announcements of each topic."""

    def __init__(self) -> None:
        self.topics: list[str] = []
        self.retained: dict[str, bytes] = {}

    def put(self, topic: str, payload: bytes, interval: float) -> None:
        self.topics.append(topic)
        self.retained[topic] = payload
        if not payload:
            del self.retained[topic]

    def as_json(self) -> dict[str, object]:
        return {topic: json.loads(each) if topic.endswith("config") else each for topic, each in self.retained.items()}


def rows(*facts: tuple[str, str, object]) -> list[tuple[ox.NamedNode, ox.Literal, object]]:
    terms = {str: ox.NamedNode, int: ox.Literal}
    return [(ox.NamedNode(iri), ox.Literal(key), terms[type(fact)](fact)) for iri, key, fact in facts]


def delta(added: list[object], removed: Sequence[object] = ()) -> Delta:
    return Delta(("iri", "key", "fact"), tuple(added), tuple(removed))


def test_another_observation_of_a_place_does_not_announce_the_others_again():
    published = Published()
    groups = groups_of(published)
    area = ("urn:place", "area", ox.Literal("Attic"))
    attic = [(ox.NamedNode(area[0]), ox.Literal(area[1]), area[2])]
    for number in range(3):
        iri = f"urn:o{number}"
        facts = rows((iri, "observed", iri), (iri, "value", 1), (iri, "place", "urn:place"))
        groups.apply(delta([*facts, *attic]), first=number == 0)
        groups.settle(100)
    assert sum("o0" in each and each.endswith("config") for each in published.topics) == 1
    cellar = [(ox.NamedNode(area[0]), ox.Literal(area[1]), ox.Literal("Cellar"))]
    groups.apply(delta(cellar * 3, attic * 3), first=False)
    groups.settle(100)
    assert sum(each.endswith("config") for each in published.topics) == 6


def test_an_entity_that_cannot_be_published_is_counted_once():
    published = Published()
    groups = groups_of(published)
    groups.apply(delta(rows(("urn:o", "observed", "urn:o"), ("urn:o", "value", 1))), first=True)
    published.put = None
    for _ in range(3):
        with pytest.raises(TypeError):
            groups.settle(100)
        groups.recheck()
    assert groups.entities == 1


def calls_for(values: int) -> tuple[int, int]:
    """Return the calls of functions and the messages for a device whose values appear one by one."""
    published = Published()
    groups = groups_of(published)
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        for number in range(values):
            iri = f"urn:o{number}"
            facts = rows(
                (iri, "observed", iri), (iri, "value", number), (iri, "sensor", "urn:s"), (iri, "place", "urn:p")
            )
            groups.apply(delta(facts), first=False)
            groups.settle(200)
    finally:
        sys.setprofile(None)
    assert groups.entities == values
    return calls, len(published.topics)


def test_another_value_costs_the_same_however_many_its_device_has():
    few, many = calls_for(50), calls_for(500)
    assert many[0] < 11 * few[0]
    assert many[1] <= 10 * few[1]


def availabilities(published: Published) -> list[list[dict[str, str]]]:
    configs = [each for topic, each in published.as_json().items() if topic.endswith("config")]
    return [config["availability"] for config in configs]


def test_a_new_value_does_not_take_the_place_of_another_one():
    """Not even one that changes what all entities of the device have in common."""
    published = Published()
    groups = groups_of(published, most=2)
    for name, value in (("a", 1), ("b", 2)):
        facts = rows((f"urn:{name}", "observed", f"urn:{name}"), (f"urn:{name}", "value", value))
        groups.apply(delta([*facts, *rows((f"urn:{name}", "sensor", "urn:s"))]), first=False)
    groups.settle(100)
    announced = set(published.retained)
    found = {"value": ox.Literal(True), "sensor": ox.NamedNode("urn:s"), "property": ox.NamedNode("urn:available")}
    groups.apply(delta(rows_of({"urn:s/available": found}, "s")[:-1]), first=False)
    groups.settle(100)
    assert groups.entities == 2
    assert announced <= set(published.retained)
    # The value that has no place decides about the availability of the others as soon as it has one.
    assert {len(each) for each in availabilities(published)} == {1}
    groups.apply(delta([], rows_of({"urn:b": {"sensor": ox.NamedNode("urn:s")}}, "s")[:-1]), first=False)
    while groups.settle(100):
        pass
    assert sorted(map(len, availabilities(published))) == [1, 2]


NUMBERS = {"kind": "number", "min": 0.0, "max": 254.0, "step": 1.0}
SET = {"urn:s/lamp": {"kind": "switch"}, "urn:s/lamp/state": {"kind": "switch"}, "urn:s/lamp/brightness": NUMBERS}
IRIS = [*SET, "urn:s/available", "urn:s/t", "urn:s"]
OBSERVED = st.fixed_dictionaries(
    {"value": st.sampled_from([ox.Literal(1), ox.Literal(True), ox.Literal("x")])},
    optional={
        "sensor": st.sampled_from([ox.NamedNode("urn:s"), ox.NamedNode("urn:other")]),
        "place": st.sampled_from([ox.NamedNode("urn:attic"), ox.NamedNode("urn:cellar")]),
        "property": st.sampled_from([ox.NamedNode("urn:brightness"), ox.NamedNode("urn:available")]),
    },
)
CHANGES = st.dictionaries(st.sampled_from(IRIS), st.none() | OBSERVED, min_size=1)


def rows_of(observed: dict[str, dict[str, object] | None], name: str) -> list[tuple[object, ...]]:
    found = [
        (ox.NamedNode(iri), ox.Literal(key), fact)
        for iri, known in observed.items()
        if known is not None
        for key, fact in {**known, "observed": ox.NamedNode(iri)}.items()
    ]
    return [*found, (ox.NamedNode("urn:s"), ox.Literal("name"), ox.Literal(name))]


@given(st.lists(st.tuples(CHANGES, st.sampled_from(["a", "b"])), max_size=8), st.integers(1, 7))
def test_announcements_of_changes_are_those_of_the_whole(changes, most):
    def settable(iris: Sequence[str]) -> dict[str, object]:
        return {iri: SET[iri] for iri in iris if iri in SET}

    published, whole = Published(), Published()
    groups, expected = groups_of(published, settable, most), groups_of(whole, settable)
    observed: dict[str, dict[str, object] | None] = {}
    before: list[tuple[object, ...]] = []
    for change, name in changes:
        observed |= change
        after = rows_of(observed, name)
        groups.apply(delta(after, before), first=False)
        before = after
        while groups.settle(2):
            pass
    expected.apply(delta(before), first=True)
    expected.settle(100)
    assert groups.entities == min(most, expected.entities)
    assert bool(groups.left_out) == (expected.entities > most)
    if expected.entities <= most:
        assert published.as_json() == whole.as_json()
    # An entity that refers to a topic without a message would be unavailable forever.
    topics = {each["topic"] for listed in availabilities(published) for each in listed}
    assert topics <= published.retained.keys() | {PLACE.status}
